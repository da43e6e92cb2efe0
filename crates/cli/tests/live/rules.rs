//! Policy rules that select by ingress port, and SIDs whose next hop they change.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use sidestep_testkit::{FrameSocket, Napi};

use crate::support::frames::{IPV4, IPV6, Mac, ROUTING, ethernet, ipv6, srh, udp};
use crate::support::ip::Ip;
use crate::support::{
    ROUTER, Star, begin, counters, eventually, explain, modes, reasons, target_of,
};

/// Time limit for a packet through a router on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// Destination behind all SIDs.
const FAR: &str = "2001:db8:e::1";
/// Hop limit and TTL of the packets before the router.
const HOPS: u8 = 64;

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// SIDs with one next hop. By table main, it is behind `eth1`, by table 100 behind `eth2`.
const SIDS: [&str; 3] = [
    "route add fc00:1::e/128 encap seg6local action End.X nh6 fc00:d::9 dev eth0",
    "route add fc00:1::d6/128 encap seg6local action End.DX6 nh6 fc00:d::9 dev eth0",
    "route add fc00:1::d4/128 encap seg6local action End.DX4 nh4 10.9.0.9 dev eth0",
];

/// Routes of table main to the next hops.
const MAIN: [&str; 2] = [
    "route add fc00:d::/64 via fc00:b::2 dev eth1",
    "route add 10.9.0.0/16 via 10.0.2.2 dev eth1",
];

/// Routes of table 100 that differ from those of table main.
const DIFFERENT: [&str; 2] = [
    "route replace fc00:d::/64 via fc00:c::2 dev eth2 table 100",
    "route replace 10.9.0.0/16 via 10.0.3.2 dev eth2 table 100",
];

/// Routes of table 100 that equal those of table main.
const EQUAL: [&str; 2] = [
    "route replace fc00:d::/64 via fc00:b::2 dev eth1 table 100",
    "route replace 10.9.0.0/16 via 10.0.2.2 dev eth1 table 100",
];

/// A host with its port of the router.
type Ingress = (&'static str, &'static str);

/// The ingress with the rules, and one without.
const BOTH: [Ingress; 2] = [("a", "eth0"), ("b", "eth1")];

/// Hosts that receive the packets of [`BOTH`] by different next hops, and by equal ones.
const BY_PORT: [[&str; 3]; 2] = [["c"; 3], ["b"; 3]];
const TO_B: [[&str; 3]; 2] = [["b"; 3]; 2];

/// A packet to a SID, and the packet that leaves.
struct Case {
    arrives: Vec<u8>,
    leaves: Vec<u8>,
}

/// Returns the packets from a host to [`SIDS`].
fn cases(host: &str) -> [Case; 3] {
    let from = address(&format!("fc00:{host}::2"));
    let segments = ["fc00:1::e", FAR].map(address);
    let end_x = |left: u8, hops| {
        let inner = udp(from.into(), address(FAR).into(), HOPS, b"rules");
        let payload = [srh(IPV6, &segments, left), inner].concat();
        let to = segments[1 - usize::from(left)];
        ipv6(from, to, ROUTING, hops, &payload)
    };
    let inner6 = |hops| udp(from.into(), address(FAR).into(), hops, b"rules");
    let inner4 = |hops| {
        let ends = ["192.0.2.9", "198.51.100.9"].map(|it| it.parse().expect("an address"));
        udp(ends[0], ends[1], hops, b"rules")
    };
    [
        Case {
            arrives: end_x(1, HOPS),
            leaves: end_x(0, HOPS - 1),
        },
        Case {
            arrives: ipv6(from, address("fc00:1::d6"), IPV6, HOPS, &inner6(HOPS)),
            leaves: inner6(HOPS - 1),
        },
        Case {
            arrives: ipv6(from, address("fc00:1::d4"), IPV4, HOPS, &inner4(HOPS)),
            leaves: inner4(HOPS - 1),
        },
    ]
}

/// A router with sockets at its hosts.
struct Bench {
    star: Star,
    sockets: [(&'static str, FrameSocket); 3],
    /// Makes the ports accept XDP redirects.
    _napi: [Napi; 3],
}

impl Bench {
    fn new(topic: &str) -> Self {
        let star = Star::new(topic);
        let lines = [&SIDS[..], &MAIN, &DIFFERENT].concat();
        star.ip().all(lines);
        let sockets = ["a", "b", "c"].map(|host| (host, star.socket(host)));
        let napi = ["a", "b", "c"];
        let napi = napi.map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        Self {
            star,
            sockets,
            _napi: napi,
        }
    }

    fn socket(&self, host: &str) -> &FrameSocket {
        let mut sockets = self.sockets.iter();
        &sockets.find(|it| it.0 == host).expect("a host").1
    }

    /// Returns a frame from a host to its port of the router.
    fn frame(&self, (host, port): Ingress, packet: &[u8]) -> Vec<u8> {
        let (to, from) = (self.star.mac(ROUTER, port), self.star.mac(host, "eth0"));
        ethernet(to, from, packet)
    }

    /// Sends the packets of all SIDs from each host of [`BOTH`]. Returns the hosts that received
    /// them.
    fn receivers(&self) -> [[&'static str; 3]; 2] {
        BOTH.map(|from| cases(from.0).map(|case| self.receiver(from, &case)))
    }

    /// Sends a packet, compares the frame that leaves, and returns the host that received it.
    fn receiver(&self, from: Ingress, case: &Case) -> &'static str {
        let frame = self.frame(from, &case.arrives);
        self.socket(from.0).send(&frame).expect("send");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for (host, socket) in &self.sockets {
                let found = socket.receive(Duration::from_millis(5)).expect("receive");
                if let Some(found) = found.filter(|it| it[14..] == case.leaves[..]) {
                    assert_eq!(found[..12], self.macs(host), "the addresses at {host}");
                    return host;
                }
            }
        }
        panic!("no packet left for that of {from:?}");
    }

    /// MAC addresses of a frame from the router to a host.
    fn macs(&self, host: &str) -> [u8; 12] {
        let port = format!("eth{}", host.as_bytes()[0] - b'a');
        let ends: [Mac; 2] = [self.star.mac(host, "eth0"), self.star.mac(ROUTER, &port)];
        ends.concat().try_into().expect("two addresses")
    }

    /// Adds or deletes the rules that select table 100 for packets of `eth0`.
    fn rules(&self, command: &str) {
        let line = format!("rule {command} iif eth0 lookup 100 priority 100");
        self.star.ip().run(&line);
        Ip::six(self.star.router()).run(&line);
    }

    /// Verdict, egress and frame of the packets to all SIDs, by the tables in use.
    fn explained(&self, from: Ingress) -> [(String, String, String); 3] {
        cases(from.0)
            .map(|case| explain(self.star.router(), from.1, &self.frame(from, &case.arrives)))
    }

    /// Waits until the packets from `a` leave by this port, then sends packets from both ports.
    fn settled(&self, egress: &str) -> [[&'static str; 3]; 2] {
        eventually(egress, || {
            let found = self.explained(BOTH[0]);
            found.iter().all(|it| it.1 == egress).then_some(())
        });
        self.receivers()
    }

    /// Forwarded and punted packets at the ports of [`BOTH`].
    fn counted(&self) -> [(u64, u64); 2] {
        let counted = BOTH.map(|(_, port)| counters(self.star.router(), port));
        counted.map(|it| (it.forwarded, it.punted))
    }
}

#[test]
fn a_port_with_a_rule_of_its_own_has_its_own_next_hops_or_leaves_packets_to_linux() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let bench = Bench::new(&format!("liverules{}", target_of(mode)));
        let all = |lines: &[&str]| bench.star.ip().all(lines.iter().copied());

        // Linux alone.
        bench.rules("add");
        assert_eq!(bench.receivers(), BY_PORT);
        all(&EQUAL);
        assert_eq!(bench.receivers(), TO_B);

        let _daemon = bench.star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        assert_eq!(bench.receivers(), TO_B);
        all(&DIFFERENT);
        assert_eq!(bench.settled("eth2"), BY_PORT);
        bench.rules("del");
        assert_eq!(bench.settled("eth1"), TO_B);
        bench.rules("add");
        assert_eq!(bench.settled("eth2"), BY_PORT);
        all(&EQUAL);
        assert_eq!(bench.settled("eth1"), TO_B);
        assert_eq!(bench.counted(), [(15, 0); 2]);
    }
    without_a_route_to_a_next_hop_linux_gets_the_packets();
}

fn without_a_route_to_a_next_hop_linux_gets_the_packets() {
    let bench = Bench::new("liverulesmiss");
    bench.rules("add");
    bench.star.ip().run("route del fc00:d::/64 table main");
    let _daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let [(verdict, egress, _), ..] = bench.explained(BOTH[0]);
    assert_eq!((verdict.as_str(), egress.as_str()), ("forward", "eth2"));
    let [end_x, ..] = cases("b");
    let frame = bench.frame(BOTH[1], &end_x.arrives);
    bench.socket("b").send(&frame).expect("send");
    let punted = ("punt".to_owned(), "route_miss".to_owned(), 1);
    eventually("a punted packet", || {
        reasons(bench.star.router()).contains(&punted).then_some(())
    });
}
