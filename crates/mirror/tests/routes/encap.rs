//! Routes with an encapsulation.

use sidestep_mirror::Mirror;
use sidestep_model::behavior::{Behavior, EncapMode, Flavors, Seg6Encap, Seg6Local};
use sidestep_model::node::TableId;
use sidestep_model::route::Encap;

use crate::common::{assert_current, in_namespace, index, ip, sysctl, try_ip, two_pairs, until};
use crate::{the, to};

#[test]
fn every_form_of_encap_seg6_is_mirrored() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let forms = [
            ("encap", "fc01::1,fc02::2,fc03::3", EncapMode::Encap, None),
            ("encap", "fc01::1", EncapMode::Encap, None),
            (
                "encap.red",
                "fc01::1,fc02::2,fc03::3",
                EncapMode::EncapRed,
                None,
            ),
            ("encap.red", "fc01::1", EncapMode::EncapRed, None),
            ("inline", "fc01::1,fc02::2", EncapMode::Inline, None),
            ("l2encap", "fc01::1,fc02::2", EncapMode::L2Encap, None),
            ("l2encap.red", "fc01::1", EncapMode::L2EncapRed, None),
            ("encap", "fc01::1,fc02::2", EncapMode::Encap, Some(7)),
        ];
        for (mode, segs, expected, hmac) in forms {
            let expected = Encap::Seg6(Seg6Encap {
                mode: expected,
                segments: segs.split(',').map(|it| it.parse().unwrap()).collect(),
                hmac,
                tunsrc: None,
                lookup: None,
            });
            let key = hmac.map(|key| format!("hmac {key}")).unwrap_or_default();
            for prefix in ["fd00::/64", "198.51.100.0/24"] {
                if mode == "inline" && prefix.contains('.') {
                    continue;
                }
                let form = format!("{prefix} encap seg6 mode {mode} segs {segs} {key} dev va");
                ip(&format!("route add {form}"));
                let changes = until(&mut mirror, &form, |node| !to(node, prefix).is_empty());
                let route = the(mirror.node(), prefix);
                assert!(changes.routes.contains(&route.key));
                assert_eq!(route.next_hops[0].encap.as_ref(), Some(&expected), "{form}");
                assert_eq!(route.next_hops[0].dev, Some(index(&mirror, "va")));
                assert_current(&mut mirror, &form);
                ip(&format!("route del {prefix}"));
                until(&mut mirror, "deletion", |node| to(node, prefix).is_empty());
            }
        }
    });
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn every_form_of_encap_seg6local_is_mirrored() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let blank = Seg6Local::new(Behavior::End);
        let nh6 = Some("fc00:1::2".parse().unwrap());
        let oif = Some(index(&mirror, "vc"));
        let segments = vec!["fc01::1".parse().unwrap(), "fc02::2".parse().unwrap()];
        let psp = Flavors {
            psp: true,
            ..Flavors::default()
        };
        let next_csid = |block| Flavors {
            next_csid: Some((block, 16)),
            ..Flavors::default()
        };
        let b = || blank.clone();
        let forms: Vec<(&str, Seg6Local)> = vec![
            ("End", b()),
            ("End count", Seg6Local { count: true, ..b() }),
            (
                "End flavors psp",
                Seg6Local {
                    flavors: psp,
                    ..b()
                },
            ),
            (
                "End flavors usp",
                Seg6Local {
                    flavors: Flavors {
                        usp: true,
                        ..Flavors::default()
                    },
                    ..b()
                },
            ),
            (
                "End flavors usd",
                Seg6Local {
                    flavors: Flavors {
                        usd: true,
                        ..Flavors::default()
                    },
                    ..b()
                },
            ),
            (
                "End flavors next-csid",
                Seg6Local {
                    flavors: next_csid(32),
                    ..b()
                },
            ),
            (
                "End flavors next-csid lblen 48 nflen 16",
                Seg6Local {
                    flavors: next_csid(48),
                    ..b()
                },
            ),
            (
                "End.X nh6 fc00:1::2",
                Seg6Local {
                    action: Behavior::EndX,
                    nh6,
                    ..b()
                },
            ),
            (
                "End.X nh6 fc00:1::2 oif vc",
                Seg6Local {
                    action: Behavior::EndX,
                    nh6,
                    oif,
                    ..b()
                },
            ),
            (
                "End.X nh6 fc00:1::2 flavors psp",
                Seg6Local {
                    action: Behavior::EndX,
                    nh6,
                    flavors: psp,
                    ..b()
                },
            ),
            (
                "End.X nh6 fc00:1::2 flavors next-csid",
                Seg6Local {
                    action: Behavior::EndX,
                    nh6,
                    flavors: next_csid(32),
                    ..b()
                },
            ),
            (
                "End.T table 100",
                Seg6Local {
                    action: Behavior::EndT,
                    table: Some(TableId(100)),
                    ..b()
                },
            ),
            (
                "End.DX2 oif vc",
                Seg6Local {
                    action: Behavior::EndDx2,
                    oif,
                    ..b()
                },
            ),
            (
                "End.DX4 nh4 10.1.0.2",
                Seg6Local {
                    action: Behavior::EndDx4,
                    nh4: Some("10.1.0.2".parse().unwrap()),
                    ..b()
                },
            ),
            (
                "End.DX6 nh6 fc00:1::2",
                Seg6Local {
                    action: Behavior::EndDx6,
                    nh6,
                    ..b()
                },
            ),
            (
                "End.DX6 nh6 :: count",
                Seg6Local {
                    action: Behavior::EndDx6,
                    nh6: Some("::".parse().unwrap()),
                    count: true,
                    ..b()
                },
            ),
            (
                "End.DT6 table 100",
                Seg6Local {
                    action: Behavior::EndDt6,
                    table: Some(TableId(100)),
                    ..b()
                },
            ),
            (
                "End.DT6 vrftable 100",
                Seg6Local {
                    action: Behavior::EndDt6,
                    vrftable: Some(TableId(100)),
                    ..b()
                },
            ),
            (
                "End.DT4 vrftable 100",
                Seg6Local {
                    action: Behavior::EndDt4,
                    vrftable: Some(TableId(100)),
                    ..b()
                },
            ),
            (
                "End.DT46 vrftable 100",
                Seg6Local {
                    action: Behavior::EndDt46,
                    vrftable: Some(TableId(100)),
                    ..b()
                },
            ),
            (
                "End.B6 srh segs fc01::1,fc02::2",
                Seg6Local {
                    action: Behavior::EndB6,
                    segments: segments.clone(),
                    ..b()
                },
            ),
            (
                "End.B6.Encaps srh segs fc01::1,fc02::2",
                Seg6Local {
                    action: Behavior::EndB6Encaps,
                    segments,
                    ..b()
                },
            ),
        ];
        let vrf = try_ip("link add red type vrf table 100").status.success();
        if vrf {
            ip("link set red up");
            sysctl("vrf/strict_mode", "1");
        }
        let mut skipped = Vec::new();
        for (form, expected) in forms {
            let output = try_ip(&format!(
                "-6 route add fd00::1 encap seg6local action {form} dev va"
            ));
            if !output.status.success() {
                let vrftable = form.contains("vrftable") && !vrf;
                // Flavors need different kernels: End PSP 6.3, End.X NEXT-C-SID 6.6. Some are not
                // supported yet.
                let flavors = String::from_utf8_lossy(&output.stderr).contains("Flavor");
                assert!(
                    vrftable || flavors,
                    "{form}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                skipped.push(form);
                continue;
            }
            until(&mut mirror, form, |node| {
                !to(node, "fd00::1/128").is_empty()
            });
            let route = the(mirror.node(), "fd00::1/128");
            let shown = try_ip("-6 route show fd00::1");
            let shown = String::from_utf8_lossy(&shown.stdout);
            let passed_over = |word| form.contains(word) && !shown.contains(word);
            if passed_over(" oif ") || passed_over(" flavors ") {
                // Older kernels accept the attribute and ignore it.
                skipped.push(form);
            } else {
                assert_eq!(
                    route.next_hops[0].encap,
                    Some(Encap::Seg6Local(expected)),
                    "{form}"
                );
            }
            assert_current(&mut mirror, form);
            ip("-6 route del fd00::1");
            until(&mut mirror, "deletion", |node| {
                to(node, "fd00::1/128").is_empty()
            });
        }
        eprintln!("skipped, because this kernel lacks a VRF device or the flavor: {skipped:?}");
    });
}

#[test]
fn other_encapsulations_are_named() {
    in_namespace(|| {
        two_pairs();
        ip("-6 route add fd00::/64 encap ip6 id 5 dst fc00:1::9 dev va");
        let mirror = Mirror::open().unwrap();
        let route = the(mirror.node(), "fd00::/64");
        assert_eq!(
            route.next_hops[0].encap,
            Some(Encap::Unsupported("ip6".to_owned()))
        );
    });
}
