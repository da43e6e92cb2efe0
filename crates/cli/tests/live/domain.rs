//! The edge of an SR domain on a live router: its SIDs are kept from packets that come from outside.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sidestep_testkit::Napi;

use crate::support::frames::{ETHERNET, ROUTING, destination6, ethernet, ipv6, srh, udp};
use crate::support::{ROUTER, Star, begin, modes, output, printed, reasons, text_of};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(100);
const END: &str = "fc0f::1";

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// From a host by End to host `b`.
fn steered(star: &Star, host: &str, port: &str) -> Vec<u8> {
    let header = srh(59, &[address(END), address("fc00:b::2")], 1);
    let from = address(&format!("fc00:{host}::2"));
    let packet = ipv6(from, address(END), ROUTING, 60, &header);
    ethernet(star.mac(ROUTER, port), star.mac(host, "eth0"), &packet)
}

fn kept_out(star: &Star) -> u64 {
    let found = reasons(star.router());
    let found = found.into_iter().find(|(_, name, _)| name == "sid_block");
    found.map_or(0, |(_, _, packets)| packets)
}

#[test]
fn sids_are_kept_from_ports_outside_until_a_port_is_named_inside() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livedomain");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().run(&format!(
            "route add {END}/128 encap seg6local action End dev eth0"
        ));
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        let (a, b, c) = (star.socket("a"), star.socket("b"), star.socket("c"));
        let arrives = |socket: &sidestep_testkit::FrameSocket, frame: &[u8], wait: Duration| {
            socket.send(frame).expect("send");
            b.receive(wait).expect("receive")
        };
        let (from_a, from_c) = (steered(&star, "a", "eth0"), steered(&star, "c", "eth2"));
        assert!(arrives(&a, &from_a, SECOND).is_some(), "{mode}: no domain");

        printed(router, &["domain", "add", "inside", "eth2"]);
        assert!(arrives(&a, &from_a, SECOND).is_some(), "{mode}: no block");
        printed(router, &["domain", "add", "sid-block", "fc0f::/16"]);
        assert_eq!(arrives(&a, &from_a, SHORTLY), None, "{mode}: from outside");
        let out = arrives(&c, &from_c, SECOND).expect("from inside");
        assert_eq!(destination6(&out), Some(address("fc00:b::2")), "{mode}");
        assert_eq!(kept_out(&star), 1, "{mode}");
        // Packets to other destinations are forwarded.
        let ends: [IpAddr; 2] =
            ["fc00:a::2", "fc00:b::2"].map(|it| it.parse().expect("an address"));
        let plain = udp(ends[0], ends[1], 9, b"plain");
        let plain = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &plain);
        let out = arrives(&a, &plain, SECOND).expect("a plain packet");
        assert_eq!(out[ETHERNET + 7], 8, "{mode}: one hop");

        let shown = printed(router, &["domain", "show"]);
        assert!(
            shown.contains("sid-block fc0f::/16") && shown.contains("inside eth2"),
            "{shown}"
        );
        for (words, why) in [
            (["domain", "add", "inside", "eth9"], "no such interface"),
            (["domain", "add", "inside", "eth2"], "already"),
            (["domain", "del", "sid-block", "fc0e::/16"], "no such entry"),
            (["domain", "add", "sid-block", "fc0f::1/16"], "prefix"),
        ] {
            let refused = output(router, &words);
            assert!(
                !refused.status.success() && text_of(&refused).contains(why),
                "{words:?}: {}",
                text_of(&refused)
            );
        }

        printed(router, &["domain", "add", "inside", "eth0"]);
        assert!(arrives(&a, &from_a, SECOND).is_some(), "{mode}: inside now");
        printed(router, &["domain", "del", "inside", "eth0"]);
        assert_eq!(arrives(&a, &from_a, SHORTLY), None, "{mode}: outside again");
        printed(router, &["domain", "del", "sid-block", "fc0f::/16"]);
        assert!(
            arrives(&a, &from_a, SECOND).is_some(),
            "{mode}: no block any more"
        );
        assert_eq!(kept_out(&star), 2, "{mode}");
    }
}
