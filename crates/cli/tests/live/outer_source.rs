//! The source address of encapsulated packets: that of Linux, also when addresses change, and the
//! one of the route, the policy or the VRF.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sidestep_testkit::FrameSocket;

use crate::support::frames::{ethernet, source6, udp};
use crate::support::ip::Ip;
use crate::support::node_file::NodeFile;
use crate::support::{ROUTER, Star, begin, counters, eventually, output, printed, text_of};

/// Time limit for a packet through a router on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// A router with a headend for IPv6 and one for IPv4, and sockets at the customer and the core.
struct Bench {
    star: Star,
    from: FrameSocket,
    to: FrameSocket,
}

impl Bench {
    fn new(topic: &str) -> Self {
        let star = Star::new(topic);
        let router = star.router();
        star.ip().all([
            "sr tunsrc set ::",
            "route add fc0c::/16 via fc00:b::2 dev eth1",
            "route add 2001:db8:e::/48 encap seg6 mode encap segs fc0c::1 dev eth1",
            "route add 198.51.100.0/24 encap seg6 mode encap.red segs fc0c::1 dev eth1",
        ]);
        let sysctl = |path, value| router.sysctl(path, value).expect("a sysctl");
        sysctl("net/ipv6/conf/eth1/accept_dad", "0");
        let (from, to) = (star.socket("a"), star.socket("b"));
        Self { star, from, to }
    }

    /// Returns the outer source of a packet of each family.
    fn sources(&self) -> [Ipv6Addr; 2] {
        let macs = [self.star.mac(ROUTER, "eth0"), self.star.mac("a", "eth0")];
        [("fc00:a::2", "2001:db8:e::1"), ("10.0.1.2", "198.51.100.1")].map(|(from, to)| {
            let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
            self.from
                .send(&ethernet(macs[0], macs[1], &udp(from, to, 64, b"x")))
                .expect("send");
            let frame = self.to.receive(PATIENCE).expect("receive");
            let frame = frame.unwrap_or_else(|| panic!("nothing came out for {to}"));
            source6(&frame).expect("an outer header")
        })
    }
}

/// Changes of addresses, one after the other.
const CHANGES: [&str; 12] = [
    "address add 2001:db8:1::1/64 dev eth1 nodad",
    "address add 2001:db8:1::5/64 dev eth1 nodad",
    "address change 2001:db8:1::5/64 dev eth1 preferred_lft 0 valid_lft forever",
    "address add 2001:db8:cafe::1/128 dev lo",
    "address del fc00:b::1/64 dev eth1",
    "address del 2001:db8:1::1/64 dev eth1",
    "address del 2001:db8:1::5/64 dev eth1",
    "address add fc00:cafe::1/128 dev lo",
    "addrlabel add prefix fc0c::/16 label 1",
    "address add 2001:db8:cafe::9/128 dev lo preferred_lft 0 valid_lft forever",
    "address del 2001:db8:cafe::1/128 dev lo",
    "address del fc00:cafe::1/128 dev lo",
];

#[test]
fn the_outer_source_is_that_of_linux_after_each_change_of_an_address() {
    let Some(_turn) = begin() else { return };
    let linux = Bench::new("livesourcel");
    let bench = Bench::new("livesource");
    let _daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    assert_eq!(bench.sources(), linux.sources());
    for change in CHANGES {
        for star in [&linux.star, &bench.star] {
            let words: Vec<&str> = ["ip", "-6"].into_iter().chain(change.split(' ')).collect();
            star.router().exec(&words).expect(change);
        }
        // The next hop keeps its route when the address of its prefix goes.
        for star in [&linux.star, &bench.star] {
            Ip::six(star.router()).all(["route replace fc00:b::/64 dev eth1 metric 512"]);
        }
        let expected = linux.sources();
        eventually(change, || (bench.sources() == expected).then_some(()));
    }
    let counters = counters(bench.star.router(), "eth0");
    assert_eq!(counters.punted, 0, "Sidestep encapsulated all of them");
}

#[test]
fn a_route_a_policy_and_a_vrf_have_their_own_sources() {
    let Some(_turn) = begin() else { return };
    let bench = Bench::new("livesourcevrf");
    let router = bench.star.router();
    bench.star.ip().all([
        "rule add iif eth0 lookup 100",
        "route del 2001:db8:e::/48",
        "route del 198.51.100.0/24",
        "address add fc00:5::100/128 dev lo",
        "address add fc00:5::1/128 dev lo",
        "address add fc00:5::7/128 dev lo",
        "address add fc00:5::9/128 dev lo",
    ]);
    Ip::six(router).all(["rule add iif eth0 lookup 100"]);
    let file = NodeFile::new(
        "tunsrc: fc00:5::1
vrfs: [table 100 tunsrc fc00:5::100]
policies: [gold color 1 endpoint fc00:b::2 mode encap segs fc0c::1]
routes:
- 2001:db8:e::/48 encap seg6 mode encap segs fc0c::1 dev eth1 table 100
- 198.51.100.0/24 encap seg6 mode encap.red segs fc0c::1 dev eth1 table 100
",
    );
    let config = [
        "--mode",
        "tc",
        "--config",
        &file.text(),
        "eth0",
        "eth1",
        "eth2",
    ];
    let _daemon = bench.star.run(&config);
    let are = |expected: [&str; 2]| {
        let expected = expected.map(|text| text.parse::<Ipv6Addr>().expect("an address"));
        assert_eq!(bench.sources(), expected);
    };
    are(["fc00:5::100"; 2]);
    let shown = printed(router, &["config", "show"]);
    assert!(shown.contains("table 100 tunsrc fc00:5::100"), "{shown}");

    printed(
        router,
        &[
            "route",
            "replace",
            "2001:db8:e::/48",
            "encap",
            "seg6",
            "mode",
            "encap",
            "segs",
        ]
        .into_iter()
        .chain([
            "fc0c::1",
            "tunsrc",
            "fc00:5::7",
            "dev",
            "eth1",
            "table",
            "100",
        ])
        .collect::<Vec<_>>(),
    );
    are(["fc00:5::7", "fc00:5::100"]);
    let words = "route replace 198.51.100.0/24 policy gold table 100";
    printed(router, &words.split(' ').collect::<Vec<_>>());
    are(["fc00:5::7", "fc00:5::100"]);
    let words =
        "policy replace gold color 1 endpoint fc00:b::2 mode encap tunsrc fc00:5::9 segs fc0c::1";
    printed(router, &words.split(' ').collect::<Vec<_>>());
    are(["fc00:5::7", "fc00:5::9"]);

    // An address that the node has lost.
    bench.star.ip().all(["address del fc00:5::9/128 dev lo"]);
    eventually("the finding", || {
        let doctor = output(router, &["doctor"]);
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        (text.contains("tunsrc_not_local") && text.contains("fc00:5::9")).then_some(())
    });

    file.write("ports: [eth0, eth1, eth2]\nvrfs: [table 100 tunsrc ff02::1]\n");
    let refused = output(router, &["config", "apply", &file.text()]);
    assert!(!refused.status.success());
    let message = "invalid `tunsrc` \"ff02::1\"; expected an IPv6 unicast address";
    assert!(text_of(&refused).contains(message), "{}", text_of(&refused));
}
