//! Tests of the decoder of seg6 encapsulations.

use super::*;

/// Attributes that Linux 6.18 returned for routes added by iproute2 6.1 and newer, little
/// endian. `| ` only separates the attributes for the reader.
const SEG6: u16 = LWTUNNEL_ENCAP_SEG6;
const SEG6_LOCAL: u16 = LWTUNNEL_ENCAP_SEG6_LOCAL;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn segments(text: &str) -> Vec<Ipv6Addr> {
    text.split(',').map(|it| it.parse().unwrap()).collect()
}

fn both_ways(kind: u16, hex: &str, expected: &Encap) {
    let captured = bytes(hex);
    let decoded = decode(kind, &captured);
    assert_eq!(&decoded, expected, "{hex}");
    if cfg!(target_endian = "little") {
        assert_eq!(encode(&decoded), Some((kind, captured)), "{hex}");
    }
}

fn seg6(mode: EncapMode, list: &str) -> Seg6Encap {
    Seg6Encap {
        mode,
        segments: segments(list),
        hmac: None,
        tunsrc: None,
        lookup: None,
    }
}

fn local(action: Behavior) -> Seg6Local {
    Seg6Local::new(action)
}

#[test]
fn segments_are_in_travel_order_and_complete_in_reduced_mode() {
    let three = "fc01::1,fc02::2,fc03::3";
    let srh = "0000000006040202000000
        fc030000000000000000000000000003 fc020000000000000000000000000002 fc010000000000000000000000000001";
    let srh = srh.strip_prefix("000000").unwrap();
    for (mode, name) in [(1, EncapMode::Encap), (3, EncapMode::EncapRed)] {
        let hex = format!("40000100 0{mode}000000 {srh}");
        both_ways(SEG6, &hex, &Encap::Seg6(seg6(name, three)));
    }
    for (mode, name) in [(2, EncapMode::L2Encap), (4, EncapMode::L2EncapRed)] {
        let hex = format!(
            "30000100 0{mode}000000 0004040101000000
             fc020000000000000000000000000002 fc010000000000000000000000000001"
        );
        both_ways(SEG6, &hex, &Encap::Seg6(seg6(name, "fc01::1,fc02::2")));
    }
    both_ways(
        SEG6,
        "20000100 01000000 0002040000000000 fc010000000000000000000000000001",
        &Encap::Seg6(seg6(EncapMode::Encap, "fc01::1")),
    );
}

#[test]
fn the_placeholder_of_the_destination_is_not_a_segment() {
    both_ways(
        SEG6,
        "40000100 00000000 0006040202000000 00000000000000000000000000000000
         fc020000000000000000000000000002 fc010000000000000000000000000001",
        &Encap::Seg6(seg6(EncapMode::Inline, "fc01::1,fc02::2")),
    );
    both_ways(
        SEG6_LOCAL,
        "0800010009000000 3c000200 0006040202000000 00000000000000000000000000000000
         fc020000000000000000000000000002 fc010000000000000000000000000001",
        &Encap::Seg6Local(Seg6Local {
            segments: segments("fc01::1,fc02::2"),
            ..local(Behavior::EndB6)
        }),
    );
    both_ways(
        SEG6_LOCAL,
        "080001000a000000 2c000200 0004040101000000
         fc020000000000000000000000000002 fc010000000000000000000000000001",
        &Encap::Seg6Local(Seg6Local {
            segments: segments("fc01::1,fc02::2"),
            ..local(Behavior::EndB6Encaps)
        }),
    );
}

#[test]
fn an_hmac_tlv_gives_the_key() {
    let tlv = "05260000 00000007 0000000000000000000000000000000000000000000000000000000000000000";
    both_ways(
        SEG6,
        &format!(
            "58000100 01000000 0009040101080000
             fc020000000000000000000000000002 fc010000000000000000000000000001 {tlv}"
        ),
        &Encap::Seg6(Seg6Encap {
            hmac: Some(7),
            ..seg6(EncapMode::Encap, "fc01::1,fc02::2")
        }),
    );
    // The model has no key for a binding SID.
    let hex = format!(
        "080001000a000000 44000200 0007040000080000 fc010000000000000000000000000001 {tlv}"
    );
    assert_eq!(
        decode(SEG6_LOCAL, &bytes(&hex)),
        Encap::Unsupported("seg6local srh hmac 7".to_owned())
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn every_attribute_of_seg6local_is_kept() {
    let nh6 = Some("fc00::2".parse().unwrap());
    let table = Some(TableId(100));
    let csid = |block, psp| Flavors {
        psp,
        next_csid: Some((block, 16)),
        ..Flavors::default()
    };
    let cases = [
        ("0800010001000000", local(Behavior::End)),
        (
            "0800010001000000 28000a80 0c000200 0000000000000000 0c000300 0000000000000000
             0c000400 0000000000000000",
            Seg6Local {
                count: true,
                ..local(Behavior::End)
            },
        ),
        (
            "0800010001000000 0c000b80 0800010002000000",
            Seg6Local {
                flavors: Flavors {
                    psp: true,
                    ..Flavors::default()
                },
                ..local(Behavior::End)
            },
        ),
        (
            "0800010001000000 1c000b80 0800010010000000 0500020030000000 0500030010000000",
            Seg6Local {
                flavors: csid(48, false),
                ..local(Behavior::End)
            },
        ),
        (
            "0800010001000000 1c000b80 0800010012000000 0500020020000000 0500030010000000",
            Seg6Local {
                flavors: csid(32, true),
                ..local(Behavior::End)
            },
        ),
        (
            "0800010002000000 14000500 fc000000000000000000000000000002",
            Seg6Local {
                nh6,
                ..local(Behavior::EndX)
            },
        ),
        (
            "0800010002000000 14000500 fc000000000000000000000000000002 0800070003000000",
            Seg6Local {
                nh6,
                oif: Some(IfIndex(3)),
                ..local(Behavior::EndX)
            },
        ),
        (
            "0800010003000000 08000300fe000000",
            Seg6Local {
                table: Some(TableId::MAIN),
                ..local(Behavior::EndT)
            },
        ),
        (
            "0800010004000000 0800070003000000",
            Seg6Local {
                oif: Some(IfIndex(3)),
                ..local(Behavior::EndDx2)
            },
        ),
        (
            "0800010005000000 14000500 fc000000000000000000000000000002",
            Seg6Local {
                nh6,
                ..local(Behavior::EndDx6)
            },
        ),
        (
            "0800010006000000 080004000a000002",
            Seg6Local {
                nh4: Some("10.0.0.2".parse().unwrap()),
                ..local(Behavior::EndDx4)
            },
        ),
        (
            "0800010007000000 0800030064000000",
            Seg6Local {
                table,
                ..local(Behavior::EndDt6)
            },
        ),
        // Written by hand from seg6_local.h, because the kernel of the other samples had no VRF
        // devices.
        (
            "0800010010000000 0800090064000000",
            Seg6Local {
                vrftable: table,
                ..local(Behavior::EndDt46)
            },
        ),
        (
            "0800010008000000 0800090064000000",
            Seg6Local {
                vrftable: table,
                ..local(Behavior::EndDt4)
            },
        ),
        (
            "0800010005000000 14000500 fc000000000000000000000000000002 0800060004000000",
            Seg6Local {
                nh6,
                iif: Some(IfIndex(4)),
                ..local(Behavior::EndDx6)
            },
        ),
        (
            "0800010001000000 0c000b80 080001000e000000",
            Seg6Local {
                flavors: Flavors {
                    psp: true,
                    usp: true,
                    usd: true,
                    ..Flavors::default()
                },
                ..local(Behavior::End)
            },
        ),
    ];
    for (hex, expected) in cases {
        both_ways(SEG6_LOCAL, hex, &Encap::Seg6Local(expected));
    }
}

#[test]
fn the_source_and_table_of_newer_kernels_are_kept() {
    both_ways(
        SEG6,
        "20000100 01000000 0002040000000000 fc010000000000000000000000000001
         14000200 fc000000000000000000000000000009 0800030064000000",
        &Encap::Seg6(Seg6Encap {
            tunsrc: Some("fc00::9".parse().unwrap()),
            lookup: Some(TableId(100)),
            ..seg6(EncapMode::Encap, "fc01::1")
        }),
    );
}

#[test]
fn the_proposed_end_dt2u_of_linux_has_the_device_of_its_bridge() {
    let expected = Encap::Seg6Local(Seg6Local {
        l2dev: Some(IfIndex(7)),
        ..local(Behavior::EndDt2u)
    });
    let hex = "0800010011000000 08000c0007000000";
    assert_eq!(decode(SEG6_LOCAL, &bytes(hex)), expected);
}

#[test]
fn attributes_beyond_the_model_are_reported_as_unsupported() {
    let srh_with = |flags_and_tag: &str| {
        format!("20000100 01000000 00020400 00{flags_and_tag} fc010000000000000000000000000001")
    };
    let cases = [
        (1, String::new(), "mpls"),
        (4, String::new(), "ip6"),
        (99, String::new(), "encapsulation type 99"),
        (SEG6, String::new(), "seg6 without segments"),
        (SEG6, srh_with("100000"), "SRH flags 0x10"),
        (SEG6, srh_with("000005"), "SRH tag 5"),
        (
            SEG6,
            "20000100 07000000 0002040000000000 fc010000000000000000000000000001".into(),
            "seg6 mode 7",
        ),
        (
            SEG6,
            "20000100 01000000 0004040000000000 fc010000000000000000000000000001".into(),
            "a truncated SRH",
        ),
        (
            SEG6,
            "20000100 01000000 0002040101000000 fc010000000000000000000000000001".into(),
            "an SRH shorter",
        ),
        (
            SEG6,
            "20000100 01000000 0002040100000000 fc010000000000000000000000000001".into(),
            "SRH Segments Left 1",
        ),
        (SEG6, "08000900 00000000".into(), "seg6 attribute 9"),
        (
            SEG6_LOCAL,
            "080001000f000000".into(),
            "seg6local action End.BPF",
        ),
        (SEG6_LOCAL, "0800010063000000".into(), "seg6local action 99"),
        // An action of Ethernet services, with the device of a bridge.
        (
            SEG6_LOCAL,
            "0800010012000000 08000c0007000000".into(),
            "seg6local action 18",
        ),
        (
            SEG6_LOCAL,
            "0800010001000000 0800170001000000".into(),
            "seg6local action End with attribute 23",
        ),
        (
            SEG6_LOCAL,
            "0800010006000000 08000c0007000000 0800030064000000".into(),
            "seg6local action End.DX4 with attribute 12",
        ),
        (
            SEG6_LOCAL,
            "0800010001000000 0c000b80 0800010020000000".into(),
            "seg6local flavors 0x20",
        ),
    ];
    for (kind, hex, expected) in cases {
        let Encap::Unsupported(what) = decode(kind, &bytes(&hex)) else {
            panic!("{hex} decoded");
        };
        assert!(what.starts_with(expected), "{what} instead of {expected}");
    }
}

#[test]
fn more_segments_than_the_model_allows_are_unsupported() {
    let mut encap = seg6(EncapMode::Inline, "fc01::1");
    encap.segments = vec!["fc01::1".parse().unwrap(); SEGMENTS_MAX];
    let (kind, value) = encode(&Encap::Seg6(encap.clone())).unwrap();
    assert_eq!(decode(kind, &value), Encap::Seg6(encap.clone()));
    encap.segments.push("fc01::2".parse().unwrap());
    let (kind, value) = encode(&Encap::Seg6(encap)).unwrap();
    assert_eq!(
        decode(kind, &value),
        Encap::Unsupported("17 segments (at most 16)".to_owned())
    );
}
