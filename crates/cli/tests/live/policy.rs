//! SR policies on a live router: valid segment lists share flows by weight. Flows of a lost next
//! hop move to the others and back. An invalid policy falls back to the IP route, or drops.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::FrameSocket;
use sidestep_testkit::Napi;
use sidestep_testkit::lab::mac_text;

use crate::support::frames::{ROUTING, destination6, ethernet, flow_label, ipv6, srh, udp};
use crate::support::{ROUTER, Star, begin, eventually, modes, printed, reasons, report};

/// Number of flows, enough to measure shares.
pub(super) const FLOWS: u32 = 1200;
/// Length of a packet with a datagram.
const LENGTH: u64 = 40 + 8 + 4;
/// A destination whose packets are steered.
const FAR: &str = "2001:db8:e::1";
const BSID: &str = "fc0f::b1";
/// Time limit for a packet through a router on a busy machine.
const QUIET: Duration = Duration::from_millis(500);
/// Flows per burst, so that no queue of a veth overflows.
const BURST: u32 = 100;

const WEIGHTED: &str = "gold color 100 endpoint fc00:c::2 bsid fc0f::b1 mode encap segs fc00:b::2 weight 3 segs fc00:c::2 weight 1";

/// Host at which each flow arrived, and its destination address.
type Ways = BTreeMap<u32, (&'static str, Ipv6Addr)>;

/// A router with sockets at its hosts.
pub(super) struct Bench {
    pub(super) star: Star,
    from: FrameSocket,
    to: [(&'static str, FrameSocket); 3],
    _napi: Vec<Napi>,
}

impl Bench {
    pub(super) fn new(topic: &str) -> Self {
        let star = Star::new(topic);
        let from = star.socket("a");
        let to = ["a", "b", "c"].map(|host| (host, star.socket(host)));
        let napi = ["a", "b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        Self {
            star,
            from,
            to,
            _napi: napi.into(),
        }
    }

    /// Returns a packet of a flow with this DSCP.
    fn frame(&self, flow: u32, dscp: u8) -> Vec<u8> {
        let (host, far): (IpAddr, IpAddr) = ("fc00:a::2".parse().unwrap(), FAR.parse().unwrap());
        let mut packet = udp(host, far, 64, b"gold");
        let first = 6 << 28 | u32::from(dscp) << 22 | flow;
        packet[..4].copy_from_slice(&first.to_be_bytes());
        let (to, from) = (self.star.mac(ROUTER, "eth0"), self.star.mac("a", "eth0"));
        ethernet(to, from, &packet)
    }

    /// Sends one packet of each flow, and returns the host at which each arrived, and its
    /// destination.
    fn ways(&self, dscp: u8) -> Ways {
        let mut found = Ways::new();
        for flow in 1..=FLOWS {
            self.from
                .send(&self.frame(flow, dscp))
                .expect("a frame is sent");
            if flow % BURST == 0 {
                self.collect(&mut found, flow as usize);
            }
        }
        found
    }

    fn collect(&self, found: &mut Ways, wanted: usize) {
        let mut deadline = Instant::now() + QUIET;
        while found.len() < wanted && Instant::now() < deadline {
            for (host, socket) in &self.to {
                let wait = Duration::from_millis(1);
                while let Some(frame) = socket.receive(wait).expect("a frame is received") {
                    let sent_here = *host == "a" && frame[..6] == self.star.mac(ROUTER, "eth0");
                    let (Some(label), Some(to)) = (flow_label(&frame), destination6(&frame)) else {
                        continue;
                    };
                    if label == 0 || label > FLOWS || sent_here {
                        continue;
                    }
                    deadline = Instant::now() + QUIET;
                    assert_eq!(
                        found.insert(label, (host, to)),
                        None,
                        "flow {label} came out twice"
                    );
                }
            }
        }
    }

    /// Returns whether all flows with a DSCP arrive at this host.
    pub(super) fn all_by(&self, dscp: u8, host: &str) -> bool {
        by(&self.ways(dscp), host).len() == FLOWS as usize
    }

    pub(super) fn neighbor(&self, verb: &str, host: &str, port: &str) {
        let mac = match verb {
            "replace" => format!(
                " lladdr {} nud permanent",
                mac_text(self.star.mac(host, "eth0"))
            ),
            _ => String::new(),
        };
        let line = format!("neighbor {verb} fc00:{host}::2 dev {port}{mac}");
        self.star.ip().run(&line);
    }

    pub(super) fn policy(&self) -> report::Policy {
        let mut all: report::Policies = report(self.star.router(), Request::ShowPolicies);
        all.pop().expect("a policy")
    }

    pub(super) fn sidestep(&self, line: &str) {
        printed(self.star.router(), &line.split(' ').collect::<Vec<_>>());
    }

    fn dropped(&self) -> u64 {
        let found = reasons(self.star.router());
        let found = found
            .into_iter()
            .find(|(_, name, _)| name == "policy_invalid");
        found.map_or(0, |(_, _, packets)| packets)
    }
}

fn by(ways: &Ways, host: &str) -> BTreeSet<u32> {
    let by = ways.iter().filter(|(_, (way, _))| *way == host);
    by.map(|(flow, _)| *flow).collect()
}

#[test]
fn a_policy_shares_flows_out_over_its_valid_lists_and_falls_back_as_it_says() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let bench = Bench::new("livepolicy");
        let line = "route add 2001:db8:e::/48 via fc00:a::2 dev eth0";
        bench.star.ip().run(line);
        let _daemon = bench.star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        assert!(bench.all_by(0, "a"), "{mode}: no policy");
        bench.sidestep(&format!("policy add {WEIGHTED}"));
        bench.sidestep("route add 2001:db8:e::/48 policy gold");
        let ways = spreads_and_counts(&bench, mode);
        follows_a_next_hop(&bench, mode, &ways);
        has_a_binding_sid(&bench, mode);
        falls_back(&bench, mode);
        steers_by_dscp(&bench, mode);
        counts_anew(&bench, mode);
        bench.sidestep("route del 2001:db8:e::/48");
        bench.sidestep("policy del gold");
        assert!(bench.all_by(46, "a"), "{mode}: no policy any more");
        let shown = printed(bench.star.router(), &["policy", "show"]);
        assert_eq!(shown.trim(), "none", "{mode}");
    }
}

/// Shares follow the weights, and counters equal the sent packets.
fn spreads_and_counts(bench: &Bench, mode: &str) -> Ways {
    let router = bench.star.router();
    let ways = bench.ways(0);
    assert_eq!(ways.len(), FLOWS as usize, "{mode}: flows that came out");
    // Three quarters; for 1200 flows, four standard deviations are 5 percent.
    let share = by(&ways, "b").len() as f64 / f64::from(FLOWS);
    assert!((share - 0.75).abs() < 0.05, "{mode}: {share}");
    for (host, to) in ways.values() {
        let first = format!("fc00:{host}::2");
        assert_eq!(to.to_string(), first, "{mode}: the first segment");
    }
    assert_eq!(bench.ways(0), ways, "{mode}: each flow stays on its list");

    let policy = bench.policy();
    let lists = &policy.candidates[0].lists;
    let counted: Vec<(u64, u64)> = lists.iter().map(|it| (it.packets, it.bytes)).collect();
    let sent = ["b", "c"].map(|host| 2 * by(&ways, host).len() as u64);
    let sent = sent.map(|packets| (packets, packets * LENGTH));
    assert_eq!(counted, sent, "{mode}");
    assert_eq!(lists[0].share, Some((192, 256)), "{mode}");
    let shown: report::Routes = report(router, Request::ShowRoutes { all: false });
    let steered = shown.iter().find(|it| it.prefix == "2001:db8:e::/48");
    let steered = steered.expect("the route into the policy");
    assert_eq!(
        steered.route, "2001:db8:e::/48 policy gold metric 0",
        "{mode}"
    );
    assert_eq!(steered.packets, u64::from(2 * FLOWS), "{mode}");
    let shown = printed(router, &["policy", "show"]);
    assert!(
        shown.contains("75.0 %") && shown.contains("preference 100: active"),
        "{shown}"
    );
    ways
}

/// Other flows are unaffected by a lost next hop, and its own flows return.
fn follows_a_next_hop(bench: &Bench, mode: &str, ways: &Ways) {
    let (stay, moved) = (by(ways, "b"), by(ways, "c"));
    bench.neighbor("del", "c", "eth2");
    eventually("all flows are on the list that is left", || {
        let left = by(&bench.ways(0), "b");
        assert!(
            left.is_superset(&stay),
            "{mode}: a flow of the valid list was lost or moved"
        );
        (left.len() == FLOWS as usize).then_some(())
    });
    let lists = bench.policy().candidates.remove(0).lists;
    let why = "neighbor fc00:c::2 is not resolved";
    assert_eq!(lists[1].invalid.as_deref(), Some(why), "{mode}");
    let given = (lists[0].share, lists[1].share);
    assert_eq!(given, (Some((256, 256)), None), "{mode}");
    assert!(
        lists[1].packets >= 2 * moved.len() as u64,
        "{mode}: it keeps what it has counted"
    );
    bench.neighbor("replace", "c", "eth2");
    eventually("the flows are where they were", || {
        (bench.ways(0) == *ways).then_some(())
    });
}

fn has_a_binding_sid(bench: &Bench, mode: &str) {
    let segments: [Ipv6Addr; 2] = [BSID, "fc00:b::2"].map(|it| it.parse().expect("a SID"));
    let from = "fc00:a::2".parse().expect("an address");
    let mut packet = ipv6(from, segments[0], ROUTING, 60, &srh(59, &segments, 1));
    packet[3] = 7;
    let total = || -> u64 {
        let lists = bench.policy().candidates.remove(0).lists;
        lists.iter().map(|it| it.packets).sum()
    };
    let before = total();
    let (to, from) = (bench.star.mac(ROUTER, "eth0"), bench.star.mac("a", "eth0"));
    bench.from.send(&ethernet(to, from, &packet)).expect("send");
    let mut bound = Ways::new();
    bench.collect(&mut bound, 1);
    let (host, to) = bound.get(&7).copied().expect("by the binding SID");
    assert_eq!(to.to_string(), format!("fc00:{host}::2"), "{mode}");
    assert_eq!(total(), before + 1, "{mode}");
}

/// Without a valid list, packets take the IP route or are dropped.
fn falls_back(bench: &Bench, mode: &str) {
    bench.neighbor("del", "b", "eth1");
    bench.neighbor("del", "c", "eth2");
    eventually("the IP route has all flows", || {
        bench.all_by(0, "a").then_some(())
    });
    assert_eq!(bench.policy().active, None, "{mode}");
    let drops = WEIGHTED.replace("mode", "drop-upon-invalid mode");
    bench.sidestep(&format!("policy replace {drops}"));
    let before = bench.dropped();
    assert!(bench.ways(0).is_empty(), "{mode}: drop-upon-invalid");
    assert_eq!(bench.dropped() - before, u64::from(FLOWS), "{mode}");
    bench.neighbor("replace", "b", "eth1");
    // A round that begins earlier waits for each burst that is dropped, for more than the time limit.
    eventually("the list is valid", || bench.policy().active.map(|_| ()));
    eventually("one list takes all flows", || {
        bench.all_by(0, "b").then_some(())
    });
}

fn steers_by_dscp(bench: &Bench, mode: &str) {
    bench.sidestep("route replace 2001:db8:e::/48 dscp 46 policy gold");
    assert!(bench.all_by(46, "b"), "{mode}: DSCP 46");
    assert!(bench.all_by(0, "a"), "{mode}: DSCP 0 by the IP route");
}

/// A list that replaces another starts with fresh counters.
fn counts_anew(bench: &Bench, mode: &str) {
    let counted = || bench.policy().candidates.remove(0).lists[0].packets;
    assert!(counted() > 0, "{mode}");
    let (first, rest) = WEIGHTED.split_once(" segs ").expect("lists");
    bench.sidestep(&format!(
        "policy replace {first} segs fc00:c::7 segs {rest}"
    ));
    assert_eq!(counted(), 0, "{mode}");
    bench.sidestep(&format!("policy replace {WEIGHTED}"));
}
