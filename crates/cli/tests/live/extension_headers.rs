//! Extension headers that a SID discards, and the ICMP errors for them.

use sidestep_testkit::Napi;

use crate::icmp::{END, SHORTLY, USD, address, ends, frame, message, outer, parts, star};
use crate::support::frames::{ROUTING, echo_request, srh, udp};
use crate::support::{begin, modes, printed};

/// Type, code and pointer of an ICMP error.
type IcmpError = (u8, u8, u32);

/// Packets with extension headers that a SID discards, with their ICMP errors.
fn discarded_packets(sid: &str) -> Vec<(&'static str, Vec<u8>, Option<IcmpError>)> {
    let [from, to] = ends("fc00:a::2", "fc00:b::2");
    let header = srh(17, &[address("fc00:b::2"), address(sid)], 1);
    let payload = [&header[..], &udp(from, to, 9, b"x")[40..]].concat();
    let behind =
        |next: u8, headers: &[&[u8]]| outer(sid, next, &[&headers.concat()[..], &payload].concat());
    let option = |kind: u8| [ROUTING, 0, kind, 4, 0, 0, 0, 0];
    let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |place: u8| [ROUTING, 0, 0, place, 0, 0, 0, 7];
    let authentication = [[ROUTING, 4, 0, 0].as_slice(), &[1; 20]].concat();
    vec![
        ("option 01", behind(60, &[&option(0x47)]), None),
        ("option 10", behind(60, &[&option(0x87)]), Some((4, 2, 42))),
        ("option 11", behind(60, &[&option(0xc7)]), Some((4, 2, 42))),
        ("Hop-by-Hop option 01", behind(0, &[&option(0x47)]), None),
        (
            "Hop-by-Hop option 11",
            behind(0, &[&option(0xc7)]),
            Some((4, 2, 42)),
        ),
        (
            "Next Header 0",
            behind(60, &[&padding(0), &padding(ROUTING)]),
            Some((4, 1, 40)),
        ),
        (
            "first fragment",
            behind(44, &[&fragment(1)]),
            Some((3, 1, 0)),
        ),
        ("later fragment", behind(44, &[&fragment(8)]), None),
        (
            "authentication header",
            behind(51, &[&authentication]),
            None,
        ),
    ]
}

#[test]
fn a_sid_reports_extension_headers_that_it_discards() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("liveicmpext");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let own = format!(
            "route add {USD}/128 encap seg6local action End.X nh6 fc00:b::2 flavors usd dev eth0"
        );
        printed(star.router(), &own.split(' ').collect::<Vec<_>>());
        let (a, b) = (star.socket("a"), star.socket("b"));
        for sid in [END, USD] {
            for (what, packet, expected) in discarded_packets(sid) {
                a.send(&frame(&star, &packet)).expect("send");
                let Some(expected) = expected else {
                    let silence = a.receive(SHORTLY).expect("receive");
                    assert_eq!(silence, None, "{mode}: {sid}: {what}");
                    continue;
                };
                let (_, error) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid}: {what}"));
                let (kind, code, word, quote) = parts(&error);
                assert_eq!((kind, code, word), expected, "{mode}: {sid}: {what}");
                assert_eq!(quote, packet, "{mode}: {sid}: {what}");
            }
            assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}: {sid}");

            // RFC 8200 4.5: offset 0 and M 0.
            let request = echo_request(address("fc00:a::2"), address(sid), 7);
            let whole = [&[58, 0, 0, 0, 0, 0, 0, 7][..], &request[40..]].concat();
            a.send(&frame(&star, &outer(sid, 44, &whole)))
                .expect("send");
            let (source, reply) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid}: no reply"));
            assert_eq!((source, reply[0]), (address(sid).into(), 129), "{mode}");
        }
    }
}
