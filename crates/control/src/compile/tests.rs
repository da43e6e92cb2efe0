//! Properties of the compiler that vectors do not show: what changes between two compilations, and
//! what stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sidestep_datapath::abi::{
    SIDESTEP_PORTS, SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_X,
};
use sidestep_datapath::{GroupId, Limits, Native, Verdict, ViewId};
use sidestep_model::config::File;
use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_testkit::differential::headers::bare_ipv6;
use sidestep_wire::{EtherType, Ethernet, Ipv4, Ipv6, Protocol};

use super::*;

const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64", "192.0.2.1/24"]}
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
tunsrc: "fc00::2"
routes:
- fc0a::/16 via fc01::1 dev eth1
- fc00:0:1::/128 encap seg6local action End dev eth0
- 2001:db8::/32 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth1
"#;

fn node(text: &str) -> Node {
    File::parse(text)
        .and_then(|file| file.node())
        .expect("a good node file")
}

fn compile(compiler: &mut Compiler, node: &Node) -> Compiled {
    let ports = node.links.keys().copied().collect();
    compiler.compile(node, &ports).expect("it compiles")
}

#[test]
fn the_same_node_compiles_to_the_same_indices() {
    let mut compiler = Compiler::new(Limits::default());
    let node = node(NODE);
    let first = compile(&mut compiler, &node);
    assert_eq!(compile(&mut compiler, &node), first);
}

#[test]
fn a_new_route_changes_no_existing_record() {
    let mut compiler = Compiler::new(Limits::default());
    let before = compile(&mut compiler, &node(NODE));
    let after = compile(
        &mut compiler,
        &node(&format!("{NODE}- fc0b::/16 via fc01::1 dev eth1\n")),
    );
    for (index, record) in &before.image.routes {
        assert_eq!(after.image.routes.get(index), Some(record));
    }
    assert_eq!(after.image.fib.len(), before.image.fib.len() + 1);
    assert_eq!(after.image.adjacencies, before.image.adjacencies);
}

#[test]
fn a_lost_neighbor_invalidates_its_adjacency_in_place() {
    let mut compiler = Compiler::new(Limits::default());
    let mut node = node(NODE);
    let before = compile(&mut compiler, &node);
    for neighbor in node.neighbors.values_mut() {
        neighbor.lladdr = None;
    }
    let after = compile(&mut compiler, &node);
    assert_eq!(
        before.image.adjacencies.keys().collect::<Vec<_>>(),
        after.image.adjacencies.keys().collect::<Vec<_>>()
    );
    for (index, adjacency) in &after.image.adjacencies {
        let old = &before.image.adjacencies[index];
        assert_eq!(
            u32::from(adjacency.flags) & sidestep_datapath::abi::SIDESTEP_ADJACENCY_VALID,
            0
        );
        // Only the first eight bytes may differ, because one store publishes them.
        assert_eq!(
            (old.source, old.ifindex, old.mtu),
            (adjacency.source, adjacency.ifindex, adjacency.mtu)
        );
    }
}

#[test]
fn indices_of_an_earlier_image_are_reserved_until_reclaimed() {
    let node = node(NODE);
    let earlier = compile(&mut Compiler::new(Limits::default()), &node);
    let mut compiler = Compiler::beside(Limits::default(), &earlier.image);
    let beside = compile(&mut compiler, &node);
    assert!(
        beside
            .image
            .routes
            .keys()
            .all(|index| !earlier.image.routes.contains_key(index))
    );
    assert!(
        beside
            .image
            .fib
            .keys()
            .all(|key| earlier.image.fib.keys().all(|old| old.view != key.view))
    );
    assert!(compiler.has_pending());
    compiler.reclaim();
    assert!(!compiler.has_pending());
}

#[test]
fn a_refused_node_leaves_the_compiler_usable() {
    let mut compiler = Compiler::new(Limits {
        adjacencies: 2,
        ..Limits::default()
    });
    let good = node(NODE);
    let first = compile(&mut compiler, &good);
    let too_much = node(&format!("{NODE}- fc0b::/16 via fc01::9 dev eth1\n"));
    let ports = too_much.links.keys().copied().collect();
    let refused = compiler.compile(&too_much, &ports);
    assert_eq!(
        refused,
        Err(CompileError::Full {
            table: "adjacencies",
            limit: 2
        })
    );
    assert_eq!(compile(&mut compiler, &good), first);
}

#[test]
fn the_headends_first_segment_is_resolved_ahead() {
    let compiled = compile(&mut Compiler::new(Limits::default()), &node(NODE));
    let policy = compiled.image.policies.values().next().expect("one policy");
    let adjacency = compiled.image.adjacencies[&policy.adjacency];
    assert_eq!(adjacency.destination, [2, 0, 0, 0, 0, 0x11]);
    assert_eq!(adjacency.ifindex, 2);
}

#[test]
fn a_link_local_next_hop_is_on_the_link_of_the_sids_route() {
    let neighbors = (1..=3).map(|n| format!("fe80::2 lladdr 02:00:00:00:00:1{n} dev eth{}", n - 1));
    let neighbors: Vec<String> = neighbors.collect();
    let actions = ["End.X nh6 fe80::2", "End.DX6 nh6 fe80::2"];
    let sids = (0..3).flat_map(|dev| actions.iter().enumerate().map(move |(n, it)| (dev, n, it)));
    let routes: Vec<String> = sids
        .clone()
        .map(|(dev, n, it)| {
            format!("fc0f::a{dev}:a{n}/128 encap seg6local action {it} dev eth{dev}")
        })
        .collect();
    let node = node(&format!(
        "ports: {{eth0: {{}}, eth1: {{}}, eth2: {{}}}}\nneighbors: {neighbors:?}\nroutes: {routes:?}"
    ));
    let compiled = compile(&mut Compiler::new(Limits::default()), &node);
    for (dev, n, _) in sids {
        let prefix = format!("fc0f::a{dev}:a{n}/128");
        let mut infos = compiled.index.routes.iter();
        let (index, _) = infos
            .find(|(_, info)| {
                let route = info.route.as_ref();
                route.is_some_and(|key| key.prefix.to_string() == prefix)
            })
            .expect("a record");
        let adjacency = compiled.image.routes[index].adjacency;
        let info = compiled.index.adjacencies[&adjacency];
        assert_eq!(
            (info.ifindex, info.valid),
            (IfIndex(dev + 1), true),
            "{prefix}"
        );
    }
}

#[test]
fn a_next_hop_is_resolved_in_advance_if_all_ports_agree() {
    let sids = [
        "- fc00:0:2::/128 encap seg6local action End.X nh6 fc01::1 dev eth0\n",
        "- fc00:0:3::/128 encap seg6local action End.DX6 nh6 fc0a::1 dev eth0\n",
        "- fc00:0:4::/128 encap seg6local action End.DX4 nh4 192.0.2.9 dev eth0\n",
    ];
    let agreeing =
        "- 2001:db8:f::/48 via fc01::1 dev eth1 table 100\n- 10.0.0.0/8 dev eth1 table 100\n";
    let rules = "rules: [\"iif eth0 lookup 100\"]\n";
    let of = |more: &str| {
        let text = format!("{NODE}{}{agreeing}{more}{rules}", sids.concat());
        compile(&mut Compiler::new(Limits::default()), &node(&text))
    };
    let compiled = of("");
    assert!(
        compiled.index.unsupported.is_empty(),
        "{:?}",
        compiled.index.unsupported
    );
    let policy = compiled.image.policies.values().next().expect("one policy");
    assert_eq!(compiled.image.adjacencies[&policy.adjacency].ifindex, 2);

    let views = |compiled: &Compiled| views_by_port(compiled).len();
    assert_eq!(views(&compiled), 0);
    // Another route to the same next hop.
    let equal = "- fc0a::1/128 via fc01::1 dev eth1 table 100\n";
    assert_eq!(views(&of(equal)), 0);
    assert_eq!(views(&of("- fc01::/64 dev eth0 table 100\n")), 1);
}

/// Views with the next hop of each port.
fn views_by_port(compiled: &Compiled) -> BTreeSet<ViewId> {
    let cross_connects = [
        SIDESTEP_ROUTE_END_X,
        SIDESTEP_ROUTE_END_DX4,
        SIDESTEP_ROUTE_END_DX6,
    ];
    let routes = compiled.image.routes.values();
    routes
        .filter(|it| it.view6.is_some() && cross_connects.contains(&it.action.into()))
        .map(|it| it.view6)
        .collect()
}

/// Ports whose rules lead to other next hops, and SIDs with such next hops.
const BY_PORT: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64", "10.1.0.2/24"]}
  eth2: {mac: "02:00:00:00:00:03", addresses: ["fc02::2/64", "10.2.0.2/24"]}
  eth3: {mac: "02:00:00:00:00:04", addresses: ["fc03::2/64"]}
neighbors:
- "fc01::1 lladdr 02:00:00:00:00:11 dev eth1"
- "fc02::1 lladdr 02:00:00:00:00:12 dev eth2"
- "10.1.0.1 lladdr 02:00:00:00:00:11 dev eth1"
- "10.2.0.1 lladdr 02:00:00:00:00:12 dev eth2"
rules: ["iif eth0 lookup 100", "iif eth3 lookup 101"]
routes:
- fc0a::/16 via fc01::1 dev eth1
- fc0a::/16 via fc02::1 dev eth2 table 100
- fc0a::/16 table 101 nexthop via fc02::1 dev eth2 nexthop via fc02::1 dev eth2 weight 2
- fc0b::/16 via fc02::1 dev eth2 table 100
- fc0b::/16 encap seg6 mode encap segs fc0a::1 dev eth1 table 101
- 10.9.0.0/16 via 10.1.0.1 dev eth1
- 10.9.0.0/16 via 10.2.0.1 dev eth2 table 100
- fc0f::6a/128 encap seg6local action End.DX6 nh6 fc0a::9 dev eth0
- fc0f::6b/128 encap seg6local action End.DX6 nh6 fc0b::9 dev eth0
- fc0f::4a/128 encap seg6local action End.DX4 nh4 10.9.0.9 dev eth0
"#;

/// A frame to a port, with an IPv4 or IPv6 packet for a SID that decapsulates.
fn to_sid(port: u8, sid: &str, inner: &str) -> Vec<u8> {
    let source = "fc00::9".parse().expect("an address");
    let (next, inner) = match inner.parse().expect("an address") {
        IpAddr::V4(to) => {
            let header = Ipv4::new([192, 0, 2, 9].into(), to, Protocol::UDP);
            (Protocol::IPV4, header.emit(&[]))
        }
        IpAddr::V6(to) => {
            let header = Ipv6::new(source, to, Protocol::NO_NEXT_HEADER);
            (Protocol::IPV6, header.emit(&[]))
        }
    };
    let packet = Ipv6::new(source, sid.parse().expect("an address"), next).emit(&inner);
    let frame = Ethernet {
        destination: [2, 0, 0, 0, 0, port],
        source: [2, 0, 0, 0, 0, 0x99],
        ethertype: EtherType::IPV6,
    };
    frame.emit(&packet)
}

#[test]
fn a_next_hop_that_differs_between_ports_is_that_of_the_ingress_port() {
    let compiled = compile(&mut Compiler::new(Limits::default()), &node(BY_PORT));
    assert_eq!(compiled.index.unsupported, BTreeMap::new());
    let mut native = Native::new(&compiled.image);
    let mut verdicts = |sid: &str, inner: &str| {
        [1, 2, 3, 4].map(
            |port| match native.run(port, &to_sid(port as u8, sid, inner)) {
                Verdict::Forward { ifindex } => format!("eth{}", ifindex - 1),
                Verdict::Punt(reason) | Verdict::Drop(reason) => reason.name.to_owned(),
            },
        )
    };
    // By table 100, main, main, and table 101 with a group.
    let plain = verdicts("fc0f::6a", "2001:db8::1");
    assert_eq!(plain, ["eth2", "eth1", "eth1", "eth2"]);
    let ipv4 = verdicts("fc0f::4a", "198.51.100.1");
    assert_eq!(ipv4, ["eth2", "eth1", "eth1", "eth1"]);
    // Only table 100 has a plain route: main has none, and that of table 101 encapsulates.
    let some = verdicts("fc0f::6b", "2001:db8::1");
    assert_eq!(some, ["eth2", "route_miss", "route_miss", "unsupported"]);
}

#[test]
fn a_view_by_port_holds_only_ports_that_differ_from_most() {
    let compiled = compile(&mut Compiler::new(Limits::default()), &node(BY_PORT));
    let views = views_by_port(&compiled);
    let sizes = views.iter().map(|view| {
        let prefixes = compiled.image.fib.keys();
        prefixes.filter(|key| key.view == *view).count()
    });
    // The default route, and: eth0 and eth3; eth0 and eth3; eth0.
    assert_eq!(sizes.sum::<usize>(), 3 + 3 + 2);
}

#[test]
fn a_sid_decapsulates_on_the_vrf_of_its_port() {
    let vrf = "- 10.9.0.0/16 via 10.2.0.1 dev eth2 table 7\n";
    let rule = "rules: [\"iif eth3 lookup 7\", ";
    let text = format!("{}{vrf}", BY_PORT.replace("rules: [", rule));
    let mut node = node(&text);
    let table = TableId(7);
    node.links.get_mut(&IfIndex(4)).expect("eth3").kind = LinkKind::Vrf { table };
    node.links.get_mut(&IfIndex(3)).expect("eth2").master = Some(IfIndex(4));
    let compiled = compile(&mut Compiler::new(Limits::default()), &node);
    let mut native = Native::new(&compiled.image);
    // An IPv4 packet of eth2 depends on the kernel's version (`Source::port`), a SID's does not.
    let verdict = native.run(3, &to_sid(3, "fc0f::4a", "198.51.100.1"));
    assert_eq!(verdict, Verdict::Forward { ifindex: 3 });
}

#[test]
fn encapsulated_packets_are_looked_up_in_table_main_if_set() {
    let customer = "- fc0a::/16 via fc00::1 dev eth0 table 100\nrules: [\"iif eth0 lookup 100\"]\n";
    let of = |more: &str| {
        let text = format!("{NODE}{customer}{more}");
        compile(&mut Compiler::new(Limits::default()), &node(&text))
    };
    let compiled = of("");
    let policy = compiled.image.policies.values().next().expect("one policy");
    assert!(!policy.adjacency.is_some() && !policy.view.is_some());
    let compiled = of("encap_lookup_main: true\n");
    let policy = compiled.image.policies.values().next().expect("one policy");
    assert_eq!(compiled.image.adjacencies[&policy.adjacency].ifindex, 2);
    assert!(policy.view.is_some());
}

#[test]
fn two_ports_with_one_table_slot_are_refused_by_name() {
    let mut node = node(NODE);
    let mut far = node.links[&IfIndex(1)].clone();
    far.ifindex = IfIndex(1 + SIDESTEP_PORTS);
    far.name = "far".into();
    node.links.insert(far.ifindex, far);
    let ports = node.links.keys().copied().collect();
    let error = Compiler::new(Limits::default())
        .compile(&node, &ports)
        .expect_err("they share a slot");
    assert!(
        error.to_string().contains("eth0") && error.to_string().contains("far"),
        "{error}"
    );
}

/// A packet to this address, in a frame to eth0.
fn frame(destination: &str) -> Vec<u8> {
    let [from, to] = ["fc00::1", destination].map(|text| text.parse().expect("an address"));
    bare_ipv6([2, 0, 0, 0, 0, 1], from, to)
}

#[test]
fn routes_with_equal_next_hops_share_a_group_not_counters() {
    const ROUTES: u32 = 5000;
    let lines = (0..ROUTES).map(|number| {
        let weight = 1 + number % 2;
        format!(
            "- 2001:db8:{number:x}::/48 nexthop via fc01::1 dev eth1 nexthop via fc01::3 dev eth1 weight {weight}\n"
        )
    });
    let neighbors = "neighbors: [\"fc01::3 lladdr 02:00:00:00:00:13 dev eth1\", ";
    let text = NODE.replace("neighbors: [", neighbors) + &lines.collect::<String>();
    let node = node(&text);
    let compiled = compile(&mut Compiler::new(Limits::default()), &node);
    let groups: BTreeSet<GroupId> = compiled.image.routes.values().map(|it| it.group).collect();
    // No group, that of fe80::/64 on both links, and one for each pair of weights.
    assert_eq!(groups.len(), 4);
    assert!(
        compiled.index.unsupported.is_empty(),
        "{:?}",
        compiled.index.unsupported
    );
    let mut native = Native::new(&compiled.image);
    let frames = [(0, 3), (2, 1), (4999, 2)];
    for (number, packets) in frames {
        for _ in 0..packets {
            let _ = native.run(1, &frame(&format!("2001:db8:{number:x}::1")));
        }
    }
    let counted: Vec<(u32, u64)> = (0..ROUTES)
        .filter_map(|number| {
            let prefix = format!("2001:db8:{number:x}::/48").parse().unwrap();
            let routes = node.routes.keys();
            let key = *routes.clone().find(|key| key.prefix == prefix)?;
            let slot = compiled.index.counters[&Counted::Route(key)];
            let packets = native.route_counters(slot).packets;
            (packets > 0).then_some((number, packets))
        })
        .collect();
    assert_eq!(counted, frames);
}
