//! The O-flag (RFC 9259 2.1.1): copied packets per SID on every target, which are forwarded
//! unchanged.

#[allow(dead_code, reason = "the other tests use the rest")]
mod common;

use std::net::Ipv6Addr;

use common::{TestRuns, compile};
use sidestep_datapath::kernel::{ReportRate, Target};
use sidestep_datapath::{Copied, Native, Verdict};
use sidestep_model::config;
use sidestep_model::node::Node;
use sidestep_testkit::root_or_skip;
use sidestep_wire::{Ipv6, Protocol, Srh};

const ETHERNET: usize = 14;
const FLAG: u8 = Srh::FLAG_OAM;

fn node(oam_rate: u32) -> Node {
    let text = format!(
        r#"
ports:
  eth0: {{mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"], seg6_enabled: true}}
  eth1: {{mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"], seg6_enabled: true}}
neighbors:
- fc01::1 lladdr 02:00:00:00:00:11 dev eth1
routes:
- fc0a::/16 via fc01::1 dev eth1
- 2001:db8::/32 via fc01::1 dev eth1
- fc0f::1/128 encap seg6local action End dev eth0
- fc0f::2/128 encap seg6local action End dev eth0
- fc0f::3/128 encap seg6local action End flavors psp dev eth0
- fc0f::d6/128 encap seg6local action End.DT6 table 254 dev eth0
oam_rate: {oam_rate}
"#
    );
    let file = config::File::parse(&text).expect("a node file");
    file.node().expect("a node")
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn ipv6(destination: &str, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    Ipv6::new(address("fc00::1"), address(destination), next_header).emit(payload)
}

/// To the first of these segments, the others behind it in the order of travel; `left` of them still to come.
fn packet(segments: &[&str], left: u8, flags: u8, in_front: &[u8]) -> Vec<u8> {
    let inner = ipv6("2001:db8::1", Protocol::NO_NEXT_HEADER, b"");
    let list = segments.iter().rev().map(|text| address(text)).collect();
    let srh = Srh {
        flags,
        ..Srh::new(Protocol::IPV6, left, list)
    };
    let active = segments[segments.len() - 1 - usize::from(left)];
    let next_header = match in_front {
        [] => Protocol::ROUTING,
        _ => Protocol::DESTINATION_OPTIONS,
    };
    ipv6(active, next_header, &[in_front, &srh.emit(&inner)].concat())
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x10, 0x86, 0xdd];
    [&head[..], packet].concat()
}

/// Destination Options with `PadN`, in front of a routing header.
const OPTIONS: [u8; 8] = [43, 0, 1, 4, 0, 0, 0, 0];

/// Name, sent packet, and the SIDs that copy it with their Segments Left.
type OamCase = (&'static str, Vec<u8>, Vec<(&'static str, u8)>);

fn cases() -> Vec<OamCase> {
    let end = ["fc0f::1", "fc0a::1"];
    vec![
        (
            "with the flag",
            packet(&end, 1, FLAG, &[]),
            vec![("fc0f::1", 1)],
        ),
        ("without", packet(&end, 1, 0, &[]), vec![]),
        ("another flag", packet(&end, 1, 0x40, &[]), vec![]),
        (
            "behind Destination Options",
            packet(&end, 1, FLAG, &OPTIONS),
            vec![("fc0f::1", 1)],
        ),
        (
            "two SIDs of this node",
            packet(&["fc0f::1", "fc0f::2", "fc0a::1"], 2, FLAG, &[]),
            vec![("fc0f::1", 2), ("fc0f::2", 1)],
        ),
        (
            "the last SID",
            packet(&["fc0a::9", "fc0f::d6"], 0, FLAG, &[]),
            vec![("fc0f::d6", 0)],
        ),
        (
            "the last SID behind one without PSP",
            packet(&["fc0f::1", "fc0f::d6"], 1, FLAG, &[]),
            vec![("fc0f::1", 1), ("fc0f::d6", 0)],
        ),
        (
            // RFC 9259 2.1.1: a penultimate segment that removes the SRH takes the flag away.
            "the last SID behind one with PSP",
            packet(&["fc0f::3", "fc0f::d6"], 1, FLAG, &[]),
            vec![("fc0f::3", 1)],
        ),
        (
            "no SID",
            packet(&["fc0a::1", "fc0a::2"], 1, FLAG, &[]),
            vec![],
        ),
        (
            "a SID that drops it, Segments Left 0",
            packet(&["fc0a::9", "fc0f::1"], 0, FLAG, &[]),
            vec![("fc0f::1", 0)],
        ),
    ]
}

fn judge(place: &str, packet: &[u8], copies: &[Copied], expected: &[(&str, u8)]) {
    let found: Vec<_> = copies
        .iter()
        .map(|it| (it.sid.octets(), it.segments_left))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(sid, left)| (address(sid).octets(), *left))
        .collect();
    assert_eq!(found, expected, "{place}");
    for copy in copies {
        assert_eq!(copy.packet, packet, "{place}: as it arrived");
        assert_eq!(copy.length as usize, packet.len(), "{place}");
    }
}

/// Natively: what each of the packets becomes.
fn natively(oam_rate: u32) -> Vec<(Verdict, Vec<u8>)> {
    let mut native = Native::new(&compile(&node(oam_rate)).image);
    let run = |(name, packet, copied): (_, Vec<u8>, Vec<_>)| {
        let verdict = native.run(1, &frame(&packet));
        let expected = if oam_rate == 0 { &[][..] } else { &copied };
        judge(name, &packet, &native.copies(), expected);
        (verdict, native.frame().to_vec())
    };
    cases().into_iter().map(run).collect()
}

#[test]
fn sids_copy_flagged_packets_where_it_is_permitted() {
    let (ignored, permitted) = (natively(0), natively(100));
    assert_eq!(ignored, permitted);
    let forwarded = permitted
        .iter()
        .filter(|(verdict, _)| matches!(verdict, Verdict::Forward { .. }));
    assert_eq!(forwarded.count(), cases().len() - 1, "{permitted:?}");
}

#[test]
fn the_kernel_targets_copy_the_same() {
    if !root_or_skip() {
        return;
    }
    let expected = natively(100);
    for target in [Target::Xdp, Target::Tc] {
        let mut runs = TestRuns::load("oam", target);
        let rate = |per_second| ReportRate {
            per_second,
            burst: 1,
        };
        runs.enter(&compile(&node(100)).image, 1);
        runs.kernel().limit_copies(rate(1_000_000_000));
        for ((name, packet, copied), natively) in cases().into_iter().zip(&expected) {
            let found = runs.run(&frame(&packet)).expect("a test run takes it");
            assert_eq!(found, *natively, "{}, {name}", target.name());
            let place = format!("{}, {name}", target.name());
            judge(&place, &packet, &runs.kernel().copies(10), &copied);
        }
        // A copy a second: of three packets, two are too many.
        let packet = packet(&["fc0f::1", "fc0a::1"], 1, FLAG, &[]);
        runs.kernel().limit_copies(rate(1));
        let before = runs.kernel().copies_suppressed(1);
        for _ in 0..3 {
            runs.run(&frame(&packet)).expect("a test run takes it");
        }
        assert_eq!(runs.kernel().copies(10).len(), 1, "{}", target.name());
        assert_eq!(runs.kernel().copies_suppressed(1) - before, 2);
        // Not permitted: whatever the rate is.
        runs.enter(&compile(&node(0)).image, 1);
        runs.kernel().limit_copies(rate(1_000_000_000));
        runs.run(&frame(&packet)).expect("a test run takes it");
        assert_eq!(runs.kernel().copies(10), [], "{}", target.name());
    }
}

#[test]
fn a_truncated_packet_is_copied_to_its_end() {
    let mut native = Native::new(&compile(&node(100)).image);
    let whole = packet(&["fc0f::1", "fc0a::1"], 1, FLAG, &OPTIONS);
    for length in ETHERNET..ETHERNET + whole.len() {
        let cut = &frame(&whole)[..length];
        native.run(1, cut);
        for copy in native.copies() {
            assert_eq!(copy.packet, cut[ETHERNET..], "{length}");
        }
    }
}
