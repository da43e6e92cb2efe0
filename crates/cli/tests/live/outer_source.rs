//! The source address of encapsulated packets is that of Linux, also when addresses change.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sidestep_testkit::FrameSocket;

use crate::support::frames::{ethernet, source6, udp};
use crate::support::ip::Ip;
use crate::support::{ROUTER, Star, begin, counters, eventually};

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
