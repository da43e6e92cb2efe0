//! Several next hops, as routes and as nexthop objects of the kernel. Weights determine the shares
//! of flows, each flow keeps its next hop, and the flows of a lost next hop move to the others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sidestep_testkit::FrameSocket;

use crate::support::frames::{destination6, ethernet, flow_label, udp};
use crate::support::{ROUTER, Star, begin, counters, eventually, output, printed};

/// Number of flows, enough to measure shares.
const FLOWS: u32 = 1200;
/// A host behind the next hops.
const FAR: &str = "2001:db8:e::1";
/// Time limit for a packet through a router on a busy machine.
const QUIET: Duration = Duration::from_millis(500);
/// Flows per burst, so that no queue of a veth overflows.
const BURST: u32 = 100;

/// A router with the program on its ports, and sockets at its hosts.
struct Bench {
    star: Star,
    from: FrameSocket,
    to: [(&'static str, FrameSocket); 2],
}

impl Bench {
    fn new(topic: &str) -> Self {
        let star = Star::new(topic);
        let from = star.socket("a");
        let to = ["b", "c"].map(|host| (host, star.socket(host)));
        Self { star, from, to }
    }

    /// Sends one packet of each flow, and returns the host at which each arrived. None may be lost.
    fn ways(&self) -> BTreeMap<u32, &'static str> {
        let found = self.ways_while_changing();
        assert_eq!(found.len(), FLOWS as usize, "flows that came out");
        found
    }

    /// As [`Self::ways`], without lost flows: packets to a link at the moment of its failure are
    /// lost.
    fn ways_while_changing(&self) -> BTreeMap<u32, &'static str> {
        let (to, from) = (self.star.mac(ROUTER, "eth0"), self.star.mac("a", "eth0"));
        let (host, far): (IpAddr, IpAddr) = ("fc00:a::2".parse().unwrap(), FAR.parse().unwrap());
        let mut found = BTreeMap::new();
        for flow in 1..=FLOWS {
            let mut packet = udp(host, far, 64, b"one of many");
            packet[1..4].copy_from_slice(&flow.to_be_bytes()[1..]);
            self.from
                .send(&ethernet(to, from, &packet))
                .expect("a frame is sent");
            if flow % BURST == 0 {
                self.collect(&mut found, flow as usize);
            }
        }
        found
    }

    fn collect(&self, found: &mut BTreeMap<u32, &'static str>, wanted: usize) {
        let mut deadline = Instant::now() + QUIET;
        while found.len() < wanted && Instant::now() < deadline {
            for (host, socket) in &self.to {
                while let Some(frame) = socket
                    .receive(Duration::from_millis(1))
                    .expect("a frame is received")
                {
                    if destination6(&frame) == FAR.parse().ok() {
                        deadline = Instant::now() + QUIET;
                        let flow = flow_label(&frame).expect("IPv6");
                        assert_eq!(found.insert(flow, host), None, "flow {flow} came out twice");
                    }
                }
            }
        }
    }

    /// Waits until all flows leave by `host`.
    fn all_leave_by(&self, host: &str) {
        eventually(&format!("all flows leave by {host}"), || {
            let ways = self.ways_while_changing();
            let all = ways.len() == FLOWS as usize && ways.values().all(|way| *way == host);
            all.then_some(())
        });
    }
}

fn share(ways: &BTreeMap<u32, &'static str>, host: &str) -> f64 {
    ways.values().filter(|way| **way == host).count() as f64 / ways.len() as f64
}

#[test]
fn a_nexthop_group_spreads_flows_by_weight_and_follows_its_objects() {
    if begin().is_none() {
        return;
    }
    let bench = Bench::new("livenexthop");
    bench.star.ip().all([
        "nexthop add id 1 via fc00:b::2 dev eth1",
        "nexthop add id 2 via fc00:c::2 dev eth2",
        "nexthop add id 10 group 1,3/2,1",
        "route add 2001:db8:e::/48 nhid 10",
    ]);
    let daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let ways = bench.ways();
    // Three quarters; for 1200 flows, four standard deviations are 5 percent.
    assert!(
        (share(&ways, "b") - 0.75).abs() < 0.05,
        "{}",
        share(&ways, "b")
    );
    assert_eq!(bench.ways(), ways, "each flow stays on its way");

    let seen = counters(bench.star.router(), "eth0");
    assert!(
        seen.forwarded >= u64::from(2 * FLOWS),
        "the packet path did it: {seen:?}"
    );
    let shown = printed(bench.star.router(), &["route", "show", "-a"]);
    assert!(shown.contains("2001:db8:e::/48 nhid 10"), "{shown}");

    bench.star.ip().all(["nexthop replace id 10 group 2"]);
    bench.all_leave_by("c");
    bench.star.ip().all(["nexthop replace id 10 group 1,1/2,1"]);
    eventually("the flows are spread again", || {
        ((share(&bench.ways_while_changing(), "b") - 0.5).abs() < 0.06).then_some(())
    });
    drop(daemon);
}

#[test]
fn next_hops_whose_link_goes_down_give_their_flows_to_the_others() {
    if begin().is_none() {
        return;
    }
    let bench = Bench::new("livemultipath");
    bench.star.ip().all([
        "route add 2001:db8:e::/48 nexthop via fc00:b::2 dev eth1 weight 1 nexthop via fc00:c::2 dev eth2 weight 1",
    ]);
    let daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let ways = bench.ways();
    assert!(
        (share(&ways, "b") - 0.5).abs() < 0.06,
        "{}",
        share(&ways, "b")
    );

    bench.star.ip().all(["link set eth2 down"]);
    bench.all_leave_by("b");

    // The seed belongs to the machine, so a restarted daemon moves no flow.
    bench.star.ip().all([
        "link set eth2 up",
        "address replace fc00:c::1/64 dev eth2 nodad",
    ]);
    let mac = sidestep_testkit::lab::mac_text(bench.star.mac("c", "eth0"));
    let lines = [
        format!("neighbor replace fc00:c::2 lladdr {mac} dev eth2 nud permanent"),
        "route replace 2001:db8:e::/48 nexthop via fc00:b::2 dev eth1 nexthop via fc00:c::2 dev eth2".to_owned(),
    ];
    bench.star.ip().all(lines.iter().map(String::as_str));
    eventually("the flows are where they were", || {
        (bench.ways_while_changing() == ways).then_some(())
    });
    drop(daemon);
    let daemon = bench.star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    assert_eq!(bench.ways(), ways, "after a restart");

    let text = output(
        bench.star.router(),
        &[
            "route",
            "replace",
            "2001:db8:e::/48",
            "via",
            "fc00:b::2",
            "dev",
            "eth1",
        ],
    );
    assert!(text.status.success(), "{text:?}");
    bench.all_leave_by("b");
    drop(daemon);
}
