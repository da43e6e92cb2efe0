//! Liveness of paths between live nodes.

use std::net::UdpSocket;
use std::time::Duration;

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::ip::Ip;
use crate::support::{Star, begin, modes, output, printed, text_of};

/// A probe for discriminator 1001 from discriminator 7, in state Down (RFC 5880 4.1).
const PROBE: [u8; 24] = [
    0x20, 0x42, 3, 24, 0, 0, 0, 7, 0, 0, 3, 0xe9, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Sends the probe from the kernel of a host to the router. Returns the answer.
fn asks(star: &Star, host: &str, probe: &[u8]) -> Option<Vec<u8>> {
    let address = format!("fc00:{host}::1");
    let answer = star.host(host).run(|| {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        socket.connect((address.as_str(), 7784)).expect("connected");
        let timeout = Some(Duration::from_millis(300));
        socket.set_read_timeout(timeout).expect("a timeout");
        socket.send(probe).expect("send");
        let mut answer = [0; 1500];
        let length = socket.recv(&mut answer).ok()?;
        Some(answer[..length].to_vec())
    });
    answer.expect("the namespace")
}

#[test]
fn a_reflector_answers_hosts_of_the_domain_also_without_a_daemon() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livereflector");
        let router = star.router();
        // XDP gets packets of a veth without their checksum.
        for host in ["a", "b"] {
            star.host(host)
                .sysctl("net/ipv6/conf/eth0/disable_ipv6", "0")
                .expect("IPv6");
            let address = format!("address add fc00:{host}::2/64 dev eth0 nodad");
            Ip::six(star.host(host)).run(&address);
            let turn_off = ["-K", "eth0", "tx", "off"];
            let done = star.host(host).command("ethtool").args(turn_off).output();
            assert!(mode == "tc" || done.expect("ethtool").status.success());
        }
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        // The kernels of the hosts and of the router resolve each other.
        assert_eq!(asks(&star, "a", &PROBE), None, "{mode}: no reflector");
        printed(router, &["reflector", "add", "1001"]);
        let again = output(router, &["reflector", "add", "1001"]);
        assert!(text_of(&again).contains("exists already: 1001 (use `replace`)"));

        let answer = asks(&star, "a", &PROBE).expect("an answer");
        let mut expected = PROBE;
        expected[1] = 0xc0;
        expected[4..12].copy_from_slice(&[0, 0, 3, 0xe9, 0, 0, 0, 7]);
        expected[16..20].copy_from_slice(&1000_u32.to_be_bytes());
        assert_eq!(answer, expected, "{mode}");
        let long = [&PROBE[..], &[0xa5; 1000]].concat();
        let answer = asks(&star, "a", &long).expect("an answer");
        assert_eq!(answer[..24], expected, "{mode}");
        assert_eq!(answer[24..], long[24..], "{mode}");

        printed(router, &["domain", "add", "inside", "eth1"]);
        printed(router, &["domain", "add", "sid-block", "fc0f::/16"]);
        assert_eq!(asks(&star, "a", &PROBE), None, "{mode}: from outside");
        printed(router, &["reflector", "replace", "1001", "admin-down"]);
        let answer = asks(&star, "b", &PROBE).expect("from inside");
        assert_eq!(answer[..2], [0x27, 0], "{mode}: AdminDown, with its reason");

        let shown: report::Reflectors =
            serde_json::from_value(star.call(Request::ShowReflectors).expect("a report"))
                .expect("reflectors");
        assert_eq!(shown.len(), 1, "{mode}");
        assert_eq!(
            (shown[0].discriminator, shown[0].answers),
            (1001, 3),
            "{mode}"
        );
        assert!(printed(router, &["reflector", "show"]).contains("admin-down"));

        daemon.signal(Signal::SIGKILL);
        assert!(asks(&star, "b", &PROBE).is_some(), "{mode}: no daemon");
        drop(daemon);
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        printed(router, &["reflector", "del", "1001"]);
        assert_eq!(asks(&star, "b", &PROBE), None, "{mode}: removed");
        drop(daemon);
    }
}
