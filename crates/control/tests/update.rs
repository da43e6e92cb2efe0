//! A change compiled alone leads where compiling everything leads: random nodes, random changes one after the other, and
//! after each of them the tables compared, whatever the numbers of their indices are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use sidestep_control::compile::{Compiled, Compiler, NeedsFullCompile};
use sidestep_datapath::abi::{
    SIDESTEP_ROUTE_BY_DSCP, SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_X,
    SIDESTEP_ROUTE_GROUP, SIDESTEP_ROUTE_SOURCE, sidestep_adjacency, sidestep_policy,
    sidestep_route,
};
use sidestep_datapath::{
    AdjacencyId, CounterId, Delta, FibKey, GroupId, Image, Limits, Native, PolicyId, RouteId,
    TableIndex, Verdict, ViewId,
};
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, route};
use sidestep_model::node::{IfIndex, Mac, Neighbor, Node};
use sidestep_model::route::{NextHop, ObjectChange, Owner, Route, RouteKey, RouteKind, Source};
use sidestep_testkit::differential::headers::bare_ipv6;
use sidestep_testkit::random::Random;

/// Changes one after the other, for each node.
const STEPS: usize = 60;

/// SR policies whose validity depends on what changes, and prefixes that have other routes, too.
const POLICIES: &str = r#"
policies:
- "one color 1 endpoint fd00::1 bsid fc00:a::b1 segs fd00:1::1 weight 3 segs fc00:b::3"
- "two color 2 endpoint fd00::1 bsid fd00:4::1 drop-upon-invalid preference 200 segs fd00:2:1::1 segs fd00:2::1 preference 100 segs fc00:c::4"
- "three color 3 endpoint fd00::1 segs fd00:3:1::2"
routes:
- "fd00:3::/32 policy one"
- "fd00:1::/32 dscp 46 policy one dscp 8 policy three"
- "fd00:1:2::/48 dscp 0 policy three dscp 8 policy two"
- "fd00:1:2:1::/64 dscp 1-3 policy one dscp 46 policy three"
- "fcbb:1::/64 policy three dscp 0 policy two"
- "fc00:a::/64 dscp 46 policy three dscp 1 policy one"
- "fc00:b::/63 dscp 0 policy three"
- "10.1.0.0/24 dscp 8 policy three"
- "10.2.0.0/15 policy one"
- "10.0.0.0/16 dscp 0-31 policy three"
"#;

/// A node without routes but those of its addresses.
fn node(random: &mut Random) -> Node {
    let mut text = String::from(
        r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64", "10.0.0.1/24"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64", "10.1.0.1/24"], seg6_enabled: true}
  eth2: {mac: "02:00:00:00:00:03", addresses: ["fc00:c::1/64"]}
"#,
    );
    let rules: Vec<&str> = [
        (2, "iif eth2 priority 100 lookup 100"),
        (4, "priority 90 lookup 200"),
        (4, "priority 40000 blackhole"),
    ]
    .into_iter()
    .filter_map(|(times, rule)| random.one_in(times).then_some(rule))
    .collect();
    if !rules.is_empty() {
        let _ = writeln!(text, "rules: [{}]", rules.join(", "));
    }
    if random.one_in(2) {
        text.push_str("tunsrc: \"fc00:a::1\"\n");
    }
    if random.one_in(2) {
        text.push_str(POLICIES);
    }
    let file = File::parse(&text).expect("a good node file");
    file.node().expect("a good node")
}

fn address(random: &mut Random) -> String {
    let link = random.pick(&["a", "b", "c"]);
    format!("fc00:{link}::{}", random.between(2, 6))
}

fn prefix(random: &mut Random) -> String {
    let number = random.between(1, 4);
    match random.below(9) {
        0 => "::/0".into(),
        1 => "fc00::/16".into(),
        2 => format!("fc00:{}::/64", random.pick(&["a", "b", "c"])),
        3 => format!("{}/128", address(random)),
        4 => format!("fd00:{number}::/32"),
        5 => format!("fd00:{number}:{}::/48", random.between(1, 3)),
        6 => format!("fd00:{number}:1::{}/128", random.between(1, 3)),
        7 => "fd00::/8".into(),
        _ => format!("fcbb:{number}::/64"),
    }
}

fn hop(random: &mut Random) -> String {
    let device = random.pick(&["eth0", "eth1", "eth2"]);
    if random.one_in(4) {
        return format!("dev {device}");
    }
    format!("via {} dev {device}", address(random))
}

/// Segments inside the prefixes that come and go.
fn segment(random: &mut Random) -> String {
    match random.below(3) {
        0 => address(random),
        1 => format!("fd00:{}:1::{}", random.between(1, 4), random.between(1, 3)),
        _ => format!("fd00:{}::1", random.between(1, 4)),
    }
}

fn target(random: &mut Random) -> String {
    let table = random.pick(&["100", "200", "300", "main"]);
    let segments = segment(random);
    match random.below(14) {
        0..=2 => hop(random),
        3 => format!(
            "nexthop {} weight {} nexthop {}",
            hop(random),
            random.between(1, 3),
            hop(random)
        ),
        4 | 5 => format!("encap seg6 mode encap segs {segments},fc00:d::1 dev eth1"),
        6 => format!("encap seg6 mode encap.red segs {segments} dev eth1"),
        7 => "encap seg6local action End dev eth0".into(),
        8 | 9 => format!("encap seg6local action End.X nh6 {segments} dev eth0"),
        10 => format!("encap seg6local action End.T table {table} dev eth0"),
        11 => format!("encap seg6local action End.DT6 table {table} dev eth0"),
        12 => format!(
            "encap seg6local action End.DX4 nh4 10.{}.0.3 dev eth0",
            random.between(1, 3)
        ),
        _ => format!("encap seg6local action End.DX6 nh6 {segments} dev eth0"),
    }
}

fn words(random: &mut Random, objects: usize) -> String {
    let table = random.weighted(&[
        (6, ""),
        (2, " table 100"),
        (2, " table 200"),
        (1, " table local"),
        (1, " table 300"),
    ]);
    let metric = random.weighted(&[(3, ""), (1, " metric 5"), (1, " metric 2000")]);
    let (prefix, target) = match random.below(12) {
        0 => (format!("blackhole {}", prefix(random)), String::new()),
        1 => (format!("unreachable {}", prefix(random)), String::new()),
        2 | 3 => (format!("throw {}", prefix(random)), String::new()),
        4 | 5 => {
            let net = random.pick(&["10.0.0.0/16", "10.2.0.0/15", "0.0.0.0/0", "10.1.0.3/32"]);
            let via = random.between(2, 5);
            (net.to_string(), format!("via 10.1.0.{via} dev eth1"))
        }
        6 => (format!("{} from fd00::/8", prefix(random)), target(random)),
        7 | 8 if objects > 0 => {
            let net = random.pick(&["10.0.0.0/16", "10.1.0.0/24"]).to_string();
            let prefix = if random.one_in(4) {
                net
            } else {
                prefix(random)
            };
            (prefix, format!("nhid {}", random.between(1, objects)))
        }
        _ => (prefix(random), target(random)),
    };
    format!("{prefix}{table}{metric} {target}")
}

/// Change of a step.
#[derive(Debug, Default)]
struct Changed {
    routes: BTreeSet<RouteKey>,
    neighbors: BTreeSet<(IfIndex, IpAddr)>,
    links: BTreeSet<IfIndex>,
}

/// Nexthop objects with their next hops; none if an object drops packets.
type Objects = BTreeMap<u32, Option<Vec<NextHop>>>;

/// Number of nexthop objects.
const OBJECTS: usize = 3;

/// Gives a route the next hops of its nexthop object.
fn resolve(route: &mut Route, objects: &Objects) {
    if let Some(id) = route.nhid {
        let hops = &objects[&id];
        route.kind = match hops {
            Some(_) => RouteKind::Unicast,
            None => RouteKind::Blackhole,
        };
        route.next_hops = hops.clone().unwrap_or_default().into();
    }
}

/// Returns the next hops of a random object.
fn object(node: &Node, random: &mut Random) -> Option<Vec<NextHop>> {
    if random.one_in(10) {
        return None;
    }
    let hop = |random: &mut Random| match random.below(8) {
        0 => "dev eth1".into(),
        1..4 => format!("encap seg6 mode encap segs {} dev eth1", segment(random)),
        _ => format!("via {} dev eth0", address(random)),
    };
    let hops = (0..random.between(1, 3)).map(|_| {
        let words = format!("fd00::/8 {}", hop(random));
        parse(node, &words).next_hops[0].clone()
    });
    Some(hops.collect())
}

/// Returns random nexthop objects.
fn some_objects(node: &Node, random: &mut Random) -> Objects {
    let ids = 1..=OBJECTS as u32;
    ids.map(|id| (id, object(node, random))).collect()
}

/// Changes a nexthop object. Returns whether it was one write; otherwise its routes have changed.
fn change_object(
    node: &mut Node,
    objects: &mut Objects,
    random: &mut Random,
    changed: &mut Changed,
    (compiler, tables): (&mut Compiler, &mut Compiled),
) -> bool {
    let id = random.between(1, OBJECTS) as u32;
    let after = object(node, random);
    let before = objects.insert(id, after.clone()).flatten();
    let users = node
        .routes
        .iter()
        .filter(|(_, route)| route.nhid == Some(id));
    let users: Vec<RouteKey> = users.map(|(key, _)| *key).collect();
    let change = ObjectChange {
        object: (Source::Kernel, id),
        before,
        after,
        routes: users.len(),
    };
    let was = tables.clone();
    let update = compiler.update_object(node, &change, tables);
    match &update {
        Ok(change) => {
            assert_eq!(change.delta, Delta::between(&was.image, &tables.image));
            compiler.accept();
        }
        Err(_) => assert_eq!(*tables, was),
    }
    for key in users {
        if let Some(route) = node.routes.get_mut(&key) {
            resolve(route, objects);
        }
        if update.is_err() {
            changed.routes.insert(key);
        }
    }
    update.is_ok()
}

fn parse(node: &Node, words: &str) -> Route {
    let context = Context {
        names: node,
        family: None,
        owner: Owner::Kernel,
    };
    route::parse_line(words, &context).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// One change of the node, as the kernel notifies it.
fn change(node: &mut Node, objects: &Objects, random: &mut Random, changed: &mut Changed) {
    match random.below(9) {
        // The validity of policies depends on links, so their nodes are compiled as a whole.
        8 if node.policies.is_empty() => {
            let dev = IfIndex(random.between(1, 3) as u32);
            let link = node.links.get_mut(&dev).expect("three links");
            link.up = !link.up;
            changed.links.insert(dev);
        }
        0 | 1 => {
            let key = (IfIndex(random.between(1, 3) as u32), {
                let text = address(random);
                let v4 = format!("10.1.0.{}", random.between(2, 5));
                let text = if random.one_in(4) { v4 } else { text };
                text.parse().expect("an address")
            });
            let mac = Mac([2, 0, 0, 0, 1, random.below(3) as u8]);
            if random.one_in(3) {
                node.neighbors.remove(&key);
            } else {
                let neighbor = Neighbor {
                    lladdr: Some(mac),
                    permanent: false,
                };
                node.neighbors.insert(key, neighbor);
            }
            changed.neighbors.insert(key);
        }
        2 | 3 if !node.routes.is_empty() => {
            let keys: Vec<RouteKey> = node.routes.keys().copied().collect();
            let key = *random.pick(&keys);
            node.set_route(key, None);
            changed.routes.insert(key);
        }
        _ => {
            let words = words(random, objects.len());
            let mut route = parse(node, &words);
            resolve(&mut route, objects);
            changed.routes.insert(route.key);
            node.set_route(route.key, Some(route));
        }
    }
}

fn ports(node: &Node) -> BTreeSet<IfIndex> {
    node.links.keys().copied().collect()
}

/// Walks two compilations at once: each index of one corresponds to one index of the other.
struct Walk<'a> {
    left: &'a Compiled,
    right: &'a Compiled,
    /// Every route has its counters. Else it depends on the past which routes have some, and which share a record.
    counted: bool,
    pairs: BTreeMap<(&'static str, u32), u32>,
    views: VecDeque<(ViewId, ViewId)>,
}

impl Walk<'_> {
    /// Whether it is the first time that these two are met.
    fn pair<I: TableIndex>(&mut self, table: &'static str, left: I, right: I) -> bool {
        let (left, right): (u32, u32) = (left.into(), right.into());
        assert_eq!(left == 0, right == 0, "{table} {left} and {right}");
        let known = self.pairs.insert((table, left), right);
        if self.counted || !["route", "group"].contains(&table) {
            assert!(known.is_none_or(|it| it == right), "{table} {left}");
        }
        known != Some(right) && left != 0
    }

    fn view(&mut self, left: ViewId, right: ViewId) {
        if self.pair("view", left, right) {
            let views = |it: &Compiled, view| it.index.views.get(&view).cloned();
            assert_eq!(views(self.left, left), views(self.right, right));
            self.views.push_back((left, right));
        }
    }

    fn adjacency(&mut self, left: AdjacencyId, right: AdjacencyId) {
        if self.pair("adjacency", left, right) {
            let (a, b) = (self.left, self.right);
            let (one, other) = (a.image.adjacencies[&left], b.image.adjacencies[&right]);
            let bare = |adjacency| sidestep_adjacency {
                backup: RouteId::NONE,
                ..adjacency
            };
            assert_eq!(bare(one), bare(other));
            self.route(one.backup, other.backup);
            assert_eq!(a.index.adjacencies[&left], b.index.adjacencies[&right]);
        }
    }

    fn policy(&mut self, left: PolicyId, right: PolicyId) {
        if !self.pair("policy", left, right) {
            return;
        }
        let (a, b) = (self.left, self.right);
        assert_eq!(a.index.policies[&left], b.index.policies[&right]);
        let (a, b) = (a.image.policies[&left], b.image.policies[&right]);
        self.adjacency(a.adjacency, b.adjacency);
        self.view(a.view, b.view);
        self.policy(a.backup, b.backup);
        let bare = |policy| sidestep_policy {
            adjacency: AdjacencyId::NONE,
            view: ViewId::NONE,
            backup: PolicyId::NONE,
            ..policy
        };
        assert_eq!(bare(a), bare(b));
    }

    fn group(&mut self, left: GroupId, right: GroupId) {
        if !self.pair("group", left, right) {
            return;
        }
        let slots = |it: &Compiled, index| it.index.groups[&index].clone();
        let (a, b) = (slots(self.left, left), slots(self.right, right));
        assert_eq!(a.len(), b.len());
        for (a, b) in a.into_iter().zip(b) {
            self.route(a, b);
        }
    }

    fn route(&mut self, left: RouteId, right: RouteId) {
        if !self.pair("route", left, right) {
            return;
        }
        let (a, b) = (self.left, self.right);
        let (info_a, info_b) = (&a.index.routes[&left], &b.index.routes[&right]);
        let (a, b) = (a.image.routes[&left], b.image.routes[&right]);
        let by_source = |it: &sidestep_route| u32::from(it.action) == SIDESTEP_ROUTE_SOURCE;
        if !self.counted && by_source(&a) != by_source(&b) {
            // Routes for several sources that do the same are one record, unless one of them alone is counted.
            return;
        }
        if self.counted {
            self.pair("counter", a.counter, b.counter);
            if a.counter.is_some() {
                assert_eq!(info_a.route, info_b.route);
                assert_eq!(info_a.neighbor, info_b.neighbor);
                assert_eq!(info_a.next_hop, info_b.next_hop);
            }
        }
        self.adjacency(a.adjacency, b.adjacency);
        self.policy(a.policy_id(), b.policy_id());
        self.group(a.group, b.group);
        self.view(a.view6, b.view6);
        self.view(a.view4, b.view4);
        let bare = |route| sidestep_route {
            counter: CounterId::NONE,
            adjacency: AdjacencyId::NONE,
            policy: 0,
            group: GroupId::NONE,
            view6: ViewId::NONE,
            view4: ViewId::NONE,
            ..route
        };
        assert_eq!(bare(a), bare(b));
    }

    fn all(mut self) {
        let (a, b) = (&self.left.image, &self.right.image);
        assert!(a.ports.keys().eq(b.ports.keys()));
        for (left, right) in a.ports.values().zip(b.ports.values()) {
            assert_eq!(
                (left.ifindex, left.flags, left.mac),
                (right.ifindex, right.flags, right.mac)
            );
            self.view(left.view6, right.view6);
            self.view(left.view4, right.view4);
        }
        while let Some((left, right)) = self.views.pop_front() {
            let prefixes = |image: &Image, view: ViewId| -> Vec<(FibKey, RouteId)> {
                let of_view = image.fib.iter().filter(|(key, _)| key.view == view);
                let bare = of_view.map(|(key, route)| {
                    (
                        FibKey {
                            view: ViewId::NONE,
                            ..*key
                        },
                        *route,
                    )
                });
                bare.collect()
            };
            let (left, right) = (prefixes(a, left), prefixes(b, right));
            let keys = |it: &[(FibKey, RouteId)]| it.iter().map(|it| it.0).collect::<Vec<_>>();
            assert_eq!(keys(&left), keys(&right));
            for ((_, left), (_, right)) in left.into_iter().zip(right) {
                self.route(left, right);
            }
        }
        // Nothing is there that nothing refers to.
        let sizes = |image: &Image| {
            (
                image.fib.len(),
                image.groups.len(),
                image.adjacencies.len(),
                image.policies.len(),
            )
        };
        if self.counted {
            assert_eq!(sizes(a), sizes(b));
            assert_eq!(a.views().len(), b.views().len());
        }
        let (a, b) = (&self.left.index, &self.right.index);
        assert_eq!(a.unsupported, b.unsupported);
        assert_eq!(a.punt_reasons, b.punt_reasons);
        if self.counted {
            assert!(a.counters.keys().eq(b.counters.keys()));
            assert_eq!(self.left.image.routes.len(), self.right.image.routes.len());
        }
    }
}

fn assert_same(left: &Compiled, right: &Compiled, counted: bool) {
    Walk {
        left,
        right,
        counted,
        pairs: BTreeMap::new(),
        views: VecDeque::new(),
    }
    .all();
}

/// Checks that a slot selected by DSCP does not select by DSCP again, since packets do so once.
fn by_dscp_once(compiled: &Compiled) -> bool {
    let chooses = |record: &sidestep_route| {
        u32::from(record.action) == SIDESTEP_ROUTE_GROUP
            && u32::from(record.flags) & SIDESTEP_ROUTE_BY_DSCP != 0
    };
    let routes = &compiled.image.routes;
    let mut groups = routes.values().filter(|record| chooses(record));
    groups.all(|record| {
        let mut slots = compiled.index.groups[&record.group].iter();
        slots.all(|slot| !chooses(&routes[slot]))
    })
}

/// Returns the number of SIDs whose next hop differs between ports.
fn by_port(compiled: &Compiled) -> usize {
    let cross_connects = [
        SIDESTEP_ROUTE_END_X,
        SIDESTEP_ROUTE_END_DX4,
        SIDESTEP_ROUTE_END_DX6,
    ];
    let routes = compiled.image.routes.values();
    routes
        .filter(|it| it.view6.is_some() && cross_connects.contains(&it.action.into()))
        .count()
}

/// Counts of what happened to a random node.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    /// Steps that were compiled alone.
    alone: usize,
    /// SIDs with a next hop that differs between ports.
    differing: usize,
    /// Changes of nexthop objects that were one write.
    in_place: usize,
    /// Changes of nexthop objects.
    of_objects: usize,
}

/// Changes a random node.
fn run(seed: u64, limits: Limits, with_objects: bool) -> Ran {
    let mut random = Random::new(seed);
    let mut node = node(&mut random);
    let mut objects = Objects::new();
    if with_objects {
        objects = some_objects(&node, &mut random);
    }
    let ports = ports(&node);
    let mut under_test = Compiler::new(limits);
    let mut compiled = under_test.compile(&node, &ports).expect("it compiles");
    let counted = limits.route_counters > 1000;
    let mut ran = Ran::default();
    for step in 0..STEPS {
        let mut changed = Changed::default();
        for _ in 0..random.between(1, 4) {
            if with_objects && node.policies.is_empty() && random.one_in(3) {
                let tables = (&mut under_test, &mut compiled);
                let is_one =
                    change_object(&mut node, &mut objects, &mut random, &mut changed, tables);
                ran.in_place += usize::from(is_one);
                ran.of_objects += 1;
            } else {
                change(&mut node, &objects, &mut random, &mut changed);
            }
        }
        let before = compiled.clone();
        let mut routes: Vec<_> = changed.routes.iter().copied().collect();
        let neighbors: Vec<_> = changed.neighbors.iter().copied().collect();
        let links: Vec<_> = changed.links.iter().copied().collect();
        let steered = node.steer_after(&routes, &neighbors);
        assert!(
            node.steer().is_empty(),
            "seed {seed}: a policy stands otherwise"
        );
        routes.extend(steered);
        match under_test.update(&node, &routes, &neighbors, &links, &mut compiled) {
            Ok(change) => {
                ran.alone += 1;
                ran.differing += by_port(&compiled);
                assert_eq!(change.delta, Delta::between(&before.image, &compiled.image));
                let mut back = compiled.clone();
                change.revert(&mut back);
                assert_eq!(back, before, "seed {seed}, step {step}");
            }
            Err(why) => {
                assert!(
                    matches!(why, NeedsFullCompile::Table(_) | NeedsFullCompile::View)
                        || with_objects && why == NeedsFullCompile::Unknown,
                    "seed {seed}: {why}"
                );
                assert_eq!(compiled, before, "seed {seed}, step {step}: {why}");
                compiled = under_test
                    .attempt(&node, &ports, &BTreeMap::new())
                    .expect("it compiles");
            }
        }
        under_test.accept();
        if random.one_in(5) {
            under_test.reclaim();
        }
        let fresh = Compiler::new(limits)
            .compile(&node, &ports)
            .expect("it compiles");
        assert!(by_dscp_once(&compiled), "seed {seed}, step {step}");
        let same = std::panic::catch_unwind(|| assert_same(&compiled, &fresh, counted));
        assert!(same.is_ok(), "seed {seed}, step {step}: {changed:#?}");
        for info in compiled.index.routes.values() {
            if let (Some(key), None) = (&info.route, &info.next_hop) {
                assert!(info.route(&node).is_some(), "seed {seed}: {key:?}");
            }
        }
    }
    ran
}

#[test]
fn incremental_compilations_equal_full_ones() {
    let runs = (0..40).map(|seed| run(seed, Limits::default(), false));
    let runs: Vec<_> = runs.collect();
    let alone: usize = runs.iter().map(|run| run.alone).sum();
    assert!(alone > 40 * STEPS * 3 / 4, "only {alone} were");
    let differing: usize = runs.iter().map(|run| run.differing).sum();
    assert!(differing > STEPS, "{differing} next hops by port");
}

#[test]
fn a_changed_nexthop_object_equals_a_full_compilation() {
    let runs = (3000..3040).map(|seed| run(seed, Limits::default(), true));
    let runs: Vec<_> = runs.collect();
    let in_place: usize = runs.iter().map(|run| run.in_place).sum();
    let all: usize = runs.iter().map(|run| run.of_objects).sum();
    assert!(in_place > all / 3, "{in_place} of {all}");
}

#[test]
fn a_shared_record_is_named_after_an_existing_route() {
    let limits = Limits {
        route_counters: 4,
        ..Limits::default()
    };
    for seed in 1000..1015 {
        run(seed, limits, false);
    }
}

/// Results for a packet to an address of each routed IPv6 prefix.
fn verdicts(node: &Node, compiled: &Compiled) -> Vec<(RouteKey, Verdict)> {
    let mut native = Native::new(&compiled.image);
    let keys = node.routes.keys().filter_map(|key| match key.prefix {
        IpNet::V6(net) => Some((*key, Ipv6Addr::from(u128::from(net.network()) | 1))),
        IpNet::V4(_) => None,
    });
    let mut verdict = |to: Ipv6Addr| {
        let from = "fc00:a::9".parse().expect("an address");
        native.run(1, &bare_ipv6([2, 0, 0, 0, 0, 1], from, to))
    };
    keys.map(|(key, to)| (key, verdict(to))).collect()
}

#[test]
fn with_a_full_table_changes_stay_incremental() {
    let limits = Limits {
        adjacencies: 9,
        groups: 3,
        policies: 5,
        ..Limits::default()
    };
    let (mut alone, mut short) = (0, 0);
    for seed in 2000..2030 {
        let mut random = Random::new(seed);
        let mut node = node(&mut random);
        let ports = ports(&node);
        let mut under_test = Compiler::new(limits);
        let attempt = |compiler: &mut Compiler, node: &Node| {
            let compiled = compiler.attempt(node, &ports, &BTreeMap::new());
            compiler.accept();
            compiled.expect("it compiles as far as it fits")
        };
        let mut compiled = attempt(&mut under_test, &node);
        let mut objects = Objects::new();
        if random.one_in(2) {
            objects = some_objects(&node, &mut random);
        }
        for step in 0..STEPS {
            let mut changed = Changed::default();
            if !objects.is_empty() && node.policies.is_empty() && random.one_in(3) {
                let tables = (&mut under_test, &mut compiled);
                change_object(&mut node, &mut objects, &mut random, &mut changed, tables);
            } else {
                change(&mut node, &objects, &mut random, &mut changed);
            }
            let before = compiled.clone();
            let mut routes: Vec<_> = changed.routes.iter().copied().collect();
            let neighbors: Vec<_> = changed.neighbors.iter().copied().collect();
            let links: Vec<_> = changed.links.iter().copied().collect();
            routes.extend(node.steer_after(&routes, &neighbors));
            let was_full = before.index.is_full();
            let update = under_test.update(&node, &routes, &neighbors, &links, &mut compiled);
            if let Ok(change) = update {
                alone += usize::from(was_full);
                let mut back = compiled.clone();
                change.revert(&mut back);
                assert_eq!(back, before, "seed {seed}, step {step}");
                under_test.accept();
            } else {
                assert_eq!(compiled, before, "seed {seed}, step {step}");
                compiled = attempt(&mut under_test, &node);
            }
            short += usize::from(was_full);
            let index = &compiled.index;
            for key in index.full.keys() {
                let there =
                    node.routes.contains_key(key) || node.policies.routes().contains_key(key);
                assert!(
                    there && index.unsupported.contains_key(key),
                    "seed {seed}, step {step}: {key:?}"
                );
            }
            if node.policies.defined().is_empty() {
                let all = Compiler::new(Limits::default()).compile(&node, &ports);
                let all = verdicts(&node, &all.expect("it compiles"));
                for ((key, is), (_, should)) in verdicts(&node, &compiled).iter().zip(&all) {
                    // The kernel forwards: only the SID or the headend fits.
                    let names = ["table_full", "rewritten"];
                    let left = matches!(is, Verdict::Punt(why) if names.contains(&why.name));
                    assert!(
                        is == should || left && index.is_full(),
                        "seed {seed}, step {step}: {key:?}: {is:?} instead of {should:?}"
                    );
                }
            }
            if random.one_in(4) {
                under_test.reclaim();
                compiled = attempt(&mut under_test, &node);
            }
        }
    }
    assert!(alone > short * 3 / 4 && short > 500, "{alone} of {short}");
}
