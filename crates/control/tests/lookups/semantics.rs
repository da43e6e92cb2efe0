//! Semantics of `ip route` and `ip rule`: after each command, Sidestep forwards packets as Linux
//! does.
//!
//! The tables follow the kernel as in the daemon: by notifications, with incremental compilations
//! where possible.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::{Limits, Native, Verdict};
use sidestep_mirror::{Changes, Mirror};
use sidestep_model::node::IfIndex;
use sidestep_model::route::Family;
use sidestep_testkit::netns::Namespace;
use sidestep_testkit::root_or_skip;

use super::configuration::{self, PORTS, gateway, ip, wires};
use super::linux::{Answer, Linux};
use super::succeeded;

/// Commands per family. `P` covers `Q`; `R` is outside of both; `S` are sources. `@0a` and `@0b`
/// are next hops by the two neighbors at `d0`. Linux refuses a line that begins with `!`. After a
/// line that begins with `?`, Sidestep punts some packets. A line that begins with `4` or `6` is
/// for that family only.
const COMMANDS: &str = "
    route add P @0a metric 20
    route add P @1a metric 10
    route add Q @2a metric 30
    route add Q @2b metric 29
    route del Q metric 29
    route del P metric 10
    route add P @2b metric 30
    route del P metric 20
    route del P
    route del Q

    route add P @0a
    !route add P @0a
    !route add P @1a
    !route change R @1a
    route change P @1a
    route replace P @0b
    route replace R @1b
    !route del P @2a
    route del P @0b
    route del R

    route add P @0a
    route append P @1a
    route append P @2b
    !route append P @1a
    route prepend P @0b
    route del P @0a
    route replace P @2a
    6 route append P @0b
    6 route append P @1b metric 5
    6 route del P metric 5
    route del P @2a
    6 route del P
    4 route del P @1a
    4 route del P @2b

    route add P nexthop @0a weight 1 nexthop @1a weight 3
    route replace P nexthop @0a weight 5 nexthop @1a weight 1 nexthop @2b weight 2
    6 route del P @1a
    6 route append P @0b
    route replace P nexthop @0a nexthop @0b
    route add Q nexthop @1a weight 200 nexthop @2a weight 100
    route change Q @1b
    route del Q
    route replace P @2a
    route del P

    nexthop add id 1 @0a
    nexthop add id 2 @1a
    nexthop add id 3 group 1,3/2,1
    route add P nhid 3
    route add Q nhid 2
    nexthop replace id 2 @2b
    nexthop replace id 3 group 1
    route replace Q nhid 3
    nexthop replace id 3 group 1,1/2,7
    nexthop del id 1
    route replace P @0a
    nexthop del id 3
    nexthop del id 2
    route del P

    route add P @0a
    route add blackhole Q
    route replace unreachable Q
    route replace prohibit Q
    route add blackhole P metric 5
    route del blackhole P metric 5
    route del Q
    4 route add throw Q
    4 route del throw Q
    rule add priority 100 lookup 100
    route add throw Q table 100
    route add R @1a table 100
    route add default @1b table 100
    route del default table 100
    route replace P @1b table 100
    route del throw Q table 100
    route add throw P metric 1 table 100
    route del throw P metric 1 table 100
    route del P table 100
    rule del priority 100
    route flush table 100
    route del P

    route add default @0a
    route add default @1a metric 1
    route add default @2a table 101
    route add unreachable default metric 4000 table 101
    rule add priority 200 lookup 101
    rule add priority 90 from S lookup 102
    route add default @2b onlink table 102
    route add throw P table 102
    route del default table 101
    route del unreachable default metric 4000 table 101
    rule add priority 80 to Q unreachable
    route replace default table 102 nexthop @0b onlink nexthop @1b onlink
    rule del priority 80
    rule add priority 95 iif d3 lookup 101
    route add default @0b onlink table 101
    rule del priority 90
    rule del priority 95
    rule del priority 200
    route del default metric 1
    route flush table 101
    route flush table 102
    4 route del default
    6 route del default metric 1024

    6 route add P @0a
    6 route add P from S @1a
    6 route add default from S @2a
    6 route add Q from S @2b metric 7
    6 route add Q @1b metric 3
    6 route replace P from S nexthop @0b nexthop @2a
    6 route add blackhole P from S metric 9
    6 route del blackhole P from S metric 9
    6 route del P from S
    6 route del Q metric 3
    6 route del default from S
    6 route del Q from S
    6 route del P

    4 route add P @0a
    4 ?route add P tos 0x10 @1a
    4 route del P tos 0x10
    4 route del P

    route add P nexthop @0a nexthop @1a nexthop @2a
    route add Q @1a
    route add R @2a
    ?link set peer1 down
    link set peer1 up
    link set d1 down
    link del d2
    link del d0
";

/// Destinations and sources to look up: in each prefix, and next to it.
const DESTINATIONS: [[&str; 4]; 2] = [
    ["fd01::1", "fd01:2::1", "fd09::1", "fd0a::1"],
    ["10.1.0.1", "10.1.2.1", "10.9.0.1", "10.10.0.1"],
];
const PREFIXES: [[(char, &str); 4]; 2] = [
    [
        ('P', "fd01::/32"),
        ('Q', "fd01:2::/48"),
        ('R', "fd09::/32"),
        ('S', "fd05::/32"),
    ],
    [
        ('P', "10.1.0.0/16"),
        ('Q', "10.1.2.0/24"),
        ('R', "10.9.0.0/16"),
        ('S', "10.5.0.0/16"),
    ],
];
const SOURCES: [[&str; 2]; 2] = [["fd05::", "fd06::"], ["10.5.0.0", "10.6.0.0"]];

/// Numbers of flows to look up: a few to find several next hops, and many to compare their shares.
const FLOWS: [u32; 2] = [8, 800];
/// Five standard deviations of a share of half of 800 flows, on both sides.
const SHARE: f64 = 0.125;
/// Time limit for the consequences of a command in the kernel: a work queue takes links down.
const PATIENCE: Duration = Duration::from_secs(5);

/// Result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Forwarded to this neighbor.
    To([u8; 6]),
    Dropped,
    /// The sender gets an ICMP error.
    Refused,
    /// Punted: the kernel decides.
    Left,
}

/// Results, with the number of flows for each.
type Ways = BTreeMap<Way, u32>;

#[test]
fn ipv6_packets_follow_linux_after_each_command() {
    run(Family::V6);
}

#[test]
fn ipv4_packets_follow_linux_after_each_command() {
    run(Family::V4);
}

fn run(family: Family) {
    if !root_or_skip() {
        return;
    }
    let name = format!("semantics{}_{}", of(family), std::process::id());
    let namespace = Namespace::create(&name).expect("a namespace");
    let lines = wires(&namespace, family);
    succeeded(&ip(&namespace, Some(family), &lines));
    let done = namespace.run(|| {
        let mut follower = Follower::new(family);
        for (number, line) in COMMANDS.lines().enumerate() {
            let (only, line) = match line.trim().split_once(' ') {
                Some(("4", line)) => (Family::V4, line),
                Some(("6", line)) => (Family::V6, line),
                _ => (family, line.trim()),
            };
            if line.is_empty() || only != family {
                continue;
            }
            let (refused, may_leave) = (line.starts_with('!'), line.starts_with('?'));
            let line = line.trim_start_matches(['!', '?']);
            let command = words(line, family);
            let when = format!("line {number}, {line}: ip {command}");
            let of = Some(family).filter(|_| !line.starts_with("nexthop"));
            if refused {
                follower.settle();
            }
            let before = refused.then(|| follower.compiled.clone());
            let output = ip(&namespace, of, &command);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), !refused, "{when}: {text}");
            follower.agree(may_leave, &when);
            if let Some(before) = before {
                assert!(follower.compiled == before, "{when} changed something");
            }
        }
        println!(
            "{} of {} changes were compiled alone; {} packets of several ways",
            follower.alone, follower.changes, follower.spread
        );
        assert!(follower.alone * 2 > follower.changes && follower.spread > 0);
    });
    done.expect("the namespace can be entered");
}

const fn of(family: Family) -> usize {
    match family {
        Family::V6 => 0,
        Family::V4 => 1,
    }
}

/// Converts a line of [`COMMANDS`] to arguments of `ip`.
fn words(line: &str, family: Family) -> String {
    let words = line.split(' ').map(|word| {
        if let Some(way) = word.strip_prefix('@') {
            let (port, host) = way.split_at(1);
            let port: usize = port.parse().expect("a port");
            let host = if host == "a" { 1 } else { 3 };
            return format!("via {} dev {}", gateway(family, port, host), PORTS[port]);
        }
        let prefix = PREFIXES[of(family)]
            .iter()
            .find(|(letter, _)| word == letter.to_string());
        prefix.map_or(word, |(_, prefix)| prefix).to_owned()
    });
    let words: Vec<String> = words.collect();
    words.join(" ")
}

/// The kernel, and tables that follow it.
struct Follower {
    family: Family,
    mirror: Mirror,
    compiler: Compiler,
    compiled: Compiled,
    linux: Linux,
    /// Number of route changes that were compiled incrementally.
    alone: usize,
    changes: usize,
    /// Number of lookups with several results.
    spread: usize,
    /// Whether some packets were punted in the last comparison.
    left: bool,
}

impl Follower {
    fn new(family: Family) -> Self {
        let mut follower = Self {
            family,
            mirror: Mirror::open().expect("the kernel's configuration"),
            compiler: Compiler::new(Limits::default()),
            compiled: Compiled::default(),
            linux: Linux::open(),
            alone: 0,
            changes: 0,
            spread: 0,
            left: false,
        };
        follower.compile();
        follower
    }

    fn compile(&mut self) {
        let node = self.mirror.node();
        let ports: BTreeSet<IfIndex> = PORTS
            .iter()
            .filter_map(|name| Some(node.link_by_name(name)?.ifindex))
            .collect();
        let compiled = self.compiler.compile(node, &ports);
        self.compiled = compiled.expect("tables");
    }

    /// Applies the kernel's notifications.
    fn follow(&mut self) {
        let changes = self.mirror.process().expect("notifications");
        if changes.other {
            return self.compile();
        }
        if changes.is_empty() {
            return;
        }
        self.changes += 1;
        let node = self.mirror.node();
        let Changes {
            routes,
            neighbors,
            links,
            ..
        } = &changes;
        let compiled = &mut self.compiled;
        let update = self
            .compiler
            .update(node, routes, neighbors, links, compiled);
        if update.is_ok() {
            self.compiler.accept();
            self.alone += 1;
        } else {
            self.compile();
        }
        self.compiler.reclaim();
    }

    /// Follows until nothing changes for a while. The kernel notifies of some effects of a command
    /// later, and these need not change a result.
    fn settle(&mut self) {
        let mut before = None;
        while before.as_ref() != Some(&self.compiled) {
            before = Some(self.compiled.clone());
            thread::sleep(Duration::from_millis(50));
            self.follow();
        }
    }

    /// Waits until both have equal results for every destination, from each port and source, and
    /// some packets are punted if `left`, none otherwise.
    fn agree(&mut self, left: bool, when: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.follow();
            self.left = false;
            match self.compare() {
                Ok(()) if self.left == left => return,
                result => {
                    let what = result
                        .err()
                        .unwrap_or_else(|| format!("punted: {}", self.left));
                    assert!(Instant::now() < deadline, "{when}\n{what}");
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        let mut native = Native::new(&self.compiled.image);
        let ports: Vec<_> = ["d3", "d1"]
            .iter()
            .filter_map(|name| self.mirror.node().link_by_name(name))
            .filter(|link| link.up)
            .map(|link| (link.ifindex.0, link.mac.0))
            .collect();
        for port in ports {
            for to in DESTINATIONS[of(self.family)] {
                for source in SOURCES[of(self.family)] {
                    let to = to.parse().expect("an address");
                    let from = source.parse().expect("an address");
                    self.compare_ways(&mut native, port, to, from)
                        .map_err(|what| format!("{to} from {from}, port {}: {what}", port.0))?;
                }
            }
        }
        Ok(())
    }

    fn compare_ways(
        &mut self,
        native: &mut Native,
        port: (u32, [u8; 6]),
        to: IpAddr,
        from: IpAddr,
    ) -> Result<(), String> {
        for flows in FLOWS {
            let (mut ours, mut theirs) = (Ways::new(), Ways::new());
            for flow in 1..=flows {
                let from = plus(from, flow);
                let frame = configuration::frame(port.1, to, from);
                let way = our_way(native, port.0, &frame);
                assert_eq!(way, our_way(native, port.0, &frame), "of one flow");
                *ours.entry(way).or_default() += 1;
                let answer = self.linux.lookup(to, from, port.0);
                *theirs.entry(self.their_way(to, answer)).or_default() += 1;
            }
            self.without_dead_links(flows, &mut theirs);
            // For punted packets, the result of the kernel is always right.
            if let Some(left) = ours.remove(&Way::Left) {
                self.left = true;
                if left == flows || ours.keys().all(|way| theirs.contains_key(way)) {
                    return Ok(());
                }
            }
            if !ours.keys().eq(theirs.keys()) {
                // All of a few flows may take the same one of several next hops.
                if flows == FLOWS[0] && ours.len() + theirs.len() > 2 {
                    continue;
                }
                return Err(format!("{ours:?}, Linux {theirs:?}"));
            }
            if ours.len() == 1 {
                return Ok(());
            }
            if flows == FLOWS[1] {
                self.spread += 1;
                let mut differences = ours.values().zip(theirs.values());
                let allowed = f64::from(flows) * SHARE;
                if differences.any(|(ours, theirs)| f64::from(ours.abs_diff(*theirs)) > allowed) {
                    return Err(format!("{ours:?}, Linux {theirs:?}"));
                }
            }
        }
        Ok(())
    }

    /// Linux loses the packets of next hops whose link has no carrier. Here the other next hops of the
    /// group take over, by their weights.
    fn without_dead_links(&self, flows: u32, ways: &mut Ways) {
        let node = self.mirror.node();
        let is_dead = |way: &Way| {
            let mut all = node.neighbors.iter();
            all.any(|((dev, _), neighbor)| {
                neighbor.lladdr.map(|mac| Way::To(mac.0)).as_ref() == Some(way)
                    && node.links.get(dev).is_some_and(|link| !link.up)
            })
        };
        if ways.keys().all(is_dead) {
            return;
        }
        ways.retain(|way, _| !is_dead(way));
        let left: u32 = ways.values().sum();
        for count in ways.values_mut() {
            *count = *count * flows / left;
        }
    }

    fn their_way(&self, to: IpAddr, answer: Answer) -> Way {
        match answer {
            Answer::Forward { ifindex, gateway } => {
                let key = (IfIndex(ifindex), gateway.unwrap_or(to));
                let neighbor = self.mirror.node().neighbors.get(&key);
                let mac = neighbor.and_then(|neighbor| neighbor.lladdr);
                mac.map_or(Way::Left, |mac| Way::To(mac.0))
            }
            Answer::Error(super::EINVAL) => Way::Dropped,
            Answer::Error(_) => Way::Refused,
            Answer::Local => panic!("{to} is an address of the node"),
        }
    }
}

fn our_way(native: &mut Native, ifindex: u32, frame: &[u8]) -> Way {
    match native.run(ifindex, frame) {
        Verdict::Forward { .. } => {
            let mac = native.frame().first_chunk();
            Way::To(*mac.expect("an Ethernet header"))
        }
        Verdict::Punt(reason) | Verdict::Drop(reason) => match reason.name {
            "blackhole" => Way::Dropped,
            "route_miss" | "route_type" => Way::Refused,
            "unsupported" | "neighbor" => Way::Left,
            other => panic!("{other}"),
        },
    }
}

fn plus(address: IpAddr, number: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => (u32::from(address) + number).to_be_bytes().into(),
        IpAddr::V6(address) => (u128::from(address) + u128::from(number))
            .to_be_bytes()
            .into(),
    }
}
