//! Each check by facts. The live tests seed the faults themselves.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::Limits;
use sidestep_datapath::kernel::Target;
use sidestep_mirror::survey::{Chain, Device, Filter, Survey};
use sidestep_model::bridge::BridgePort;
use sidestep_model::config::File;
use sidestep_model::node::{IfIndex, Link, LinkKind, Node};
use sidestep_model::service::Service;

use super::facts::{Daemon, Facts, Host, Port};
use super::*;
use crate::compile::{Compiled, Compiler};
use crate::report::{Limit, Status};

const NODE: &str = r#"
ports:
  eth0: {addresses: ["fc00::2/64"], seg6_enabled: true}
  eth1: {addresses: ["fc01::2/64", "192.0.2.1/24"], seg6_enabled: true, mtu: 1600}
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
tunsrc: "fc00::2"
routes:
- fc0a::/16 via fc01::1 dev eth1
- 2001:db8::/32 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth1
"#;

/// A node with its compilation and the facts beside it.
struct Case {
    node: Node,
    kernel: Node,
    ports: Vec<Port>,
    survey: Survey,
    host: Host,
    daemon: Option<Daemon>,
    lost: BTreeMap<sidestep_model::route::RouteKey, IfIndex>,
}

impl Case {
    /// A healthy node with these further routes.
    fn new(routes: &str) -> Self {
        let text = format!("{NODE}{routes}");
        let file = File::parse(&text).and_then(|file| file.node());
        let node = file.expect("a good node file");
        let up = Device {
            up: true,
            carrier: true,
            ..Device::default()
        };
        let port = |link: &Link| Port {
            name: link.name.clone(),
            target: Some(Target::Tc),
            refused: None,
        };
        Self {
            ports: node.links.values().map(port).collect(),
            survey: Survey {
                devices: node.links.keys().map(|dev| (*dev, up.clone())).collect(),
                ..Survey::default()
            },
            host: Host {
                on_bpffs: true,
                ..Host::default()
            },
            daemon: Some(Daemon::default()),
            lost: BTreeMap::new(),
            kernel: node.clone(),
            node,
        }
    }

    fn link(&mut self, name: &str) -> &mut Link {
        let mut links = self.node.links.values_mut();
        links.find(|link| link.name == name).expect("a link")
    }

    fn xdp(mut self) -> Self {
        for port in &mut self.ports {
            port.target = Some(Target::Xdp);
        }
        self
    }

    /// Codes of the problems, without notes.
    fn codes(&self) -> Vec<String> {
        let found = self.problems().into_iter();
        found
            .filter(|problem| problem.severity != Severity::Note)
            .map(|problem| problem.code)
            .collect()
    }

    fn problems(&self) -> BTreeSet<Problem> {
        self.examine(|facts| examine(facts))
    }

    fn examine<T>(&self, examine: impl FnOnce(&mut Facts<'_>) -> T) -> T {
        let named = |port: &Port| Some(self.node.link_by_name(&port.name)?.ifindex);
        let ports = self.ports.iter().filter_map(named).collect();
        let compiled: Compiled = Compiler::new(Limits::default())
            .compile(&self.node, &ports)
            .expect("it compiles");
        examine(&mut Facts {
            lost_sids: &self.lost,
            ports: self.ports.clone(),
            survey: self.survey.clone(),
            host: self.host.clone(),
            daemon: self.daemon.clone(),
            ..Facts::new(&self.node, &self.kernel, &compiled)
        })
    }
}

#[test]
fn codes_are_unique_and_the_page_lists_them() {
    let names: BTreeSet<_> = codes().map(|code| code.name).collect();
    assert_eq!(names.len(), codes().count());
    let page = include_str!("../../../../docs/reference/doctor.md");
    let (_, page) = page.split_once("## Codes").expect("a table");
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let row = |code: &Code| {
        let severity = code.severity.name();
        format!("| `{}` | {severity} | {} |", code.name, code.meaning)
    };
    let expected: Vec<_> = codes().map(row).collect();
    assert_eq!(rows, expected, "expected rows:\n{}", expected.join("\n"));
}

#[test]
fn a_healthy_node_has_no_problems() {
    assert_eq!(Case::new("").problems(), BTreeSet::new());
}

#[test]
fn sysctls_that_keep_packets_from_being_forwarded() {
    let mut case =
        Case::new("- fc00:e::/128 encap seg6local action End.DX4 nh4 192.0.2.2 dev eth1\n");
    let link = case.link("eth0");
    (
        link.forwarding6,
        link.forwarding4,
        link.seg6_enabled,
        link.rp_filter,
    ) = (false, false, false, 1);
    case.survey.vrf_strict_mode = Some(false);
    case.node.settings.require_seg6_enabled = true;
    let expected = [
        "forwarding6_off",
        "forwarding4_off",
        "rp_filter_strict",
        "seg6_off",
    ];
    assert_eq!(case.codes(), expected, "no SID uses a VRF table");
    let of_bridge = BridgePort {
        bridge: IfIndex(9),
        isolated: false,
        obstacle: None,
    };
    let port = case.link("eth0").ifindex;
    case.node.bridge_ports.insert(port, of_bridge);
    assert_eq!(case.codes(), [""; 0], "a port of a bridge does not route");
    case.node.bridge_ports.clear();
    case.link("eth0").ipv6_disabled = true;
    let codes = case.codes();
    assert!(codes.contains(&"ipv6_disabled".to_owned()), "{codes:?}");
    assert!(
        !codes.contains(&"forwarding6_off".to_owned()),
        "one problem has one code"
    );
}

#[test]
fn a_sid_with_a_vrf_table_needs_strict_mode() {
    let mut case = Case::new("");
    let mut route = case.node.routes.values().next().expect("a route").clone();
    let mut local =
        sidestep_model::behavior::Seg6Local::new(sidestep_model::behavior::Behavior::EndDt46);
    local.vrftable = Some(sidestep_model::node::TableId(10));
    let encap = sidestep_model::route::Encap::Seg6Local(local);
    route.next_hops = vec![sidestep_model::route::NextHop {
        encap: Some(encap),
        ..sidestep_model::route::NextHop::new()
    }]
    .into();
    case.node.routes.insert(route.key, route);
    case.survey.vrf_strict_mode = Some(false);
    assert!(case.codes().contains(&"vrf_strict_mode_off".to_owned()));
    case.survey.vrf_strict_mode = Some(true);
    assert!(!case.codes().contains(&"vrf_strict_mode_off".to_owned()));
}

#[test]
fn a_repair_names_an_interface_with_a_dot_as_sysctl_takes_it() {
    assert_eq!(
        sysctl("ipv6", "eth0", "seg6_enabled"),
        "net.ipv6.conf.eth0.seg6_enabled"
    );
    assert_eq!(
        sysctl("ipv6", "eth0.7", "seg6_enabled"),
        "net/ipv6/conf/eth0.7/seg6_enabled"
    );
}

#[test]
fn packet_filters_are_reported_if_forwarded_packets_bypass_them() {
    let chain = |hook, rules, drops| Chain {
        family: "inet",
        table: "f".into(),
        name: "c".into(),
        hook,
        kind: "filter".into(),
        drops,
        rules,
        devices: Vec::new(),
    };
    for (hook, rules, drops, found) in [
        ("forward", 0, true, true),
        ("forward", 1, false, true),
        ("forward", 0, false, false),
        ("prerouting", 2, false, true),
        ("input", 2, true, false),
        ("output", 2, true, false),
        ("egress", 2, true, false),
    ] {
        let mut case = Case::new("");
        case.survey.chains.push(chain(hook, rules, drops));
        let expected: &[&str] = if found { &["nftables_bypassed"] } else { &[] };
        assert_eq!(case.codes(), expected, "{hook} {rules} {drops}");
        case.ports.clear();
        assert!(case.codes().is_empty(), "nothing is forwarded");
    }
    let mut case = Case::new("").xdp();
    case.survey.chains.push(chain("egress", 2, true));
    assert!(case.codes().contains(&"nftables_bypassed".into()));
    let mut case = Case::new("");
    let nat = Chain {
        kind: "nat".into(),
        ..chain("postrouting", 1, false)
    };
    case.survey.chains.push(nat);
    case.survey.legacy_tables.push("iptables filter".into());
    assert_eq!(case.codes(), ["iptables_bypassed", "nat_bypassed"]);
}

#[test]
fn xdp_bypasses_queueing_disciplines_and_filters_that_tc_passes() {
    for xdp in [false, true] {
        let mut case = Case::new("");
        let eth1 = case.link("eth1").ifindex;
        case.link("eth1").xdp_transmit = true;
        case.survey.devices.get_mut(&eth1).expect("eth1").qdisc = "tbf".into();
        case.survey.filters.push(Filter {
            port: eth1,
            egress: true,
        });
        if xdp {
            let case = case.xdp();
            let codes = case.codes();
            assert!(codes.contains(&"qdisc_bypassed".into()), "{codes:?}");
            assert!(codes.contains(&"tc_filter_bypassed".into()), "{codes:?}");
        } else {
            assert!(case.codes().is_empty());
        }
    }
    let mut case = Case::new("");
    let eth1 = case.link("eth1").ifindex;
    case.survey.filters.push(Filter {
        port: eth1,
        egress: false,
    });
    assert_eq!(case.codes(), ["tc_filter_bypassed"]);
}

#[test]
fn a_veth_in_xdp_and_an_egress_without_redirects_are_reported() {
    let mut case = Case::new("").xdp();
    case.link("eth0").kind = LinkKind::Veth;
    case.link("eth1").xdp_transmit = false;
    let found = case.problems();
    for code in ["xdp_on_veth", "no_xdp_transmit"] {
        assert!(found.iter().any(|it| it.code == code), "{code}");
    }
}

#[test]
fn the_encapsulation_must_fit_the_egress() {
    let mut case = Case::new("");
    // H.Encaps with two segments adds 40 + 8 + 32 bytes.
    case.link("eth1").mtu = 1280 + 80;
    assert!(case.codes().is_empty());
    let note = case.problems().pop_first().expect("a note");
    assert_eq!(note.code, "mtu_headroom");
    assert_eq!(
        note.repair.as_deref(),
        Some("ip link set dev eth1 mtu 1580")
    );
    case.link("eth1").mtu -= 1;
    assert_eq!(case.codes(), ["mtu_below_1280"]);
    case.link("eth1").mtu = 1580;
    assert!(case.problems().is_empty());
}

#[test]
fn findings_with_one_cause_are_one_problem() {
    let sids = |count: u32| {
        let line =
            |number| format!("- fc00:5::{number:x}/128 encap seg6local action End dev eth0\n");
        (1..=count).map(line).collect::<String>()
    };
    let case = |count| {
        let mut case = Case::new(&sids(count));
        for route in case.node.routes.values_mut() {
            let is_sid = route.next_hops.iter().any(|hop| hop.encap.is_some());
            if is_sid && route.key.prefix.prefix_len() == 128 {
                route.owner = sidestep_model::route::Owner::Sidestep;
                case.kernel.routes.remove(&route.key);
            }
        }
        case
    };
    let found = case(3).problems();
    assert_eq!(found.len(), 3);
    let one = found.first().expect("a problem");
    assert_eq!((one.count, &one.examples[..]), (1, &[][..]));

    let mut found = case(10_000).problems();
    let all = found.pop_first().expect("a problem");
    assert_eq!((found.len(), all.code.as_str()), (0, "sid_not_in_kernel"));
    assert_eq!(all.count, 10_000);
    assert_eq!(
        all.examples,
        ["fc00:5::1/128", "fc00:5::2/128", "fc00:5::3/128"]
    );
    let repair = "sidestep doctor --repairs sid_not_in_kernel | sh";
    assert_eq!(all.repair.as_deref(), Some(repair));
    let end = "(10000: fc00:5::1/128, fc00:5::2/128, fc00:5::3/128, …)";
    assert!(all.description().ends_with(end), "{}", all.description());
    // Its kind stays the same when the number changes.
    let fewer = case(9_999).problems().pop_first().expect("a problem");
    assert_ne!(all, fewer);
    assert_eq!(all.kind(), fewer.kind());

    let case = case(10_000);
    let repairs = case.examine(|facts| {
        facts.separate = true;
        repairs(facts, "sid_not_in_kernel")
    });
    assert_eq!(repairs.len(), 10_000);
    assert_eq!(repairs[1], "ip -6 route add blackhole fc00:5::2/128");
}

#[test]
fn findings_of_one_kind_are_bounded() {
    let mut case = Case::new("");
    for number in 10..16 {
        let link = Link::new(
            sidestep_model::node::IfIndex(number),
            &format!("eth{number}"),
        );
        case.ports.push(Port {
            name: link.name.clone(),
            target: Some(Target::Tc),
            refused: None,
        });
        case.survey.devices.insert(link.ifindex, Device::default());
        let net = "fe80::1/64".parse().expect("an address");
        let candidate = sidestep_model::source::SourceCandidate::new(net);
        case.node.sources.insert(link.ifindex, vec![candidate]);
        case.node.links.insert(link.ifindex, link);
    }
    let problems = case.problems();
    let down: Vec<_> = problems
        .iter()
        .filter(|it| it.code == "port_down")
        .collect();
    assert_eq!(down.len(), 1, "{problems:?}");
    assert_eq!(
        (down[0].count, down[0].sentence.as_str()),
        (6, "a port is down")
    );
    assert_eq!(down[0].examples[0], "port eth10 is down");
}

#[test]
fn a_sid_that_is_an_address_of_the_node_is_reported() {
    // Each port has the subnet-router anycast address of its prefix.
    for (sid, what) in [
        ("fc00::2/128", "an address of eth0"),
        (
            "fc00::/64",
            "the subnet-router anycast address of a prefix of eth0",
        ),
        (
            "fc00::/128",
            "the subnet-router anycast address of a prefix of eth0",
        ),
    ] {
        let route = format!("- {sid} encap seg6local action End dev eth1 metric 7\n");
        let mut problems = Case::new(&route).problems();
        let problem = problems.pop_first().expect(sid);
        assert_eq!(problem.code, "sid_hidden", "{sid}");
        let begin = format!("SID {sid} is also {what}: ");
        assert!(problem.sentence.starts_with(&begin), "{}", problem.sentence);
    }
    let other = Case::new("- fc00::9/128 encap seg6local action End dev eth1\n");
    assert!(other.problems().is_empty());
}

#[test]
fn a_source_that_the_rules_choose_by_chance_is_reported() {
    use sidestep_model::source::CandidateState;
    let unset = || {
        let mut case = Case::new("");
        case.node.tunsrc = None;
        case
    };
    // The address of the egress.
    assert!(unset().codes().is_empty());
    let sentence = |case: &Case| {
        let problem = case
            .problems()
            .into_iter()
            .find(|it| it.code == "source_unclear");
        problem.map(|problem| problem.sentence).unwrap_or_default()
    };
    let mut case = unset();
    let eth1 = case.link("eth1").ifindex;
    case.node.sources.get_mut(&eth1).expect("addresses")[0].state = CandidateState::Deprecated;
    assert!(sentence(&case).ends_with("fc00::2 is the address of another link, eth0"));
    case.node.sources.retain(|dev, _| *dev == eth1);
    assert!(sentence(&case).ends_with("fc01::2 is deprecated"));
    let net = "fe80::1/64".parse().expect("an address");
    let link_local = sidestep_model::source::SourceCandidate::new(net);
    case.node.sources.insert(eth1, vec![link_local]);
    assert!(sentence(&case).contains("fe80::1 is link-local"));
    case.node.vrf_tunsrc.insert(
        sidestep_model::node::TableId::MAIN,
        "fc00::2".parse().unwrap(),
    );
    assert_eq!(sentence(&case), "");
}

#[test]
fn a_domain_without_an_inside_port_is_reported() {
    let mut case = Case::new("");
    case.node
        .domain
        .sid_blocks
        .insert("fc00::/16".parse().expect("a prefix"));
    assert_eq!(case.codes(), ["domain_without_inside"]);
    case.node.domain.inside.insert("eth1".into());
    assert!(case.codes().is_empty());
}

#[test]
fn sids_that_went_with_their_link_are_reported_when_it_is_back() {
    let mut case = Case::new("");
    let eth1 = case.link("eth1").ifindex;
    let key = sidestep_model::route::RouteKey::new("fc00:2::d6/128".parse().unwrap());
    case.lost.insert(key, eth1);
    assert_eq!(case.codes(), ["sids_lost"]);
    case.link("eth1").up = false;
    assert!(case.codes().is_empty());
}

#[test]
fn ports_with_big_tcp_without_addresses_and_without_headroom_are_reported() {
    let mut case = Case::new("");
    let eth0 = case.link("eth0").ifindex;
    case.survey.devices.get_mut(&eth0).expect("eth0").big_sizes =
        vec![("gso_max_size", 196_608), ("gro_max_size", 70_000)];
    let problem = case.problems().pop_first().expect("a problem");
    assert_eq!(problem.code, "big_tcp");
    let repair = "ip link set dev eth0 gso_max_size 65536 gro_max_size 65536";
    assert_eq!(problem.repair.as_deref(), Some(repair));

    let mut case = Case::new("");
    case.node.sources.get_mut(&eth0).expect("addresses")[0].permanent = false;
    assert_eq!(case.codes(), ["port_without_address"]);
    case.link("eth0").up = false;
    assert!(case.codes().is_empty());

    let segments = |count: u32| {
        let segments: Vec<_> = (1..=count).map(|it| format!("fc0a::{it:x}")).collect();
        let segments = segments.join(",");
        format!("- 2001:db9::/32 encap seg6 mode encap segs {segments} dev eth1\n")
    };
    for (count, expected) in [(10, false), (11, true)] {
        let mut case = Case::new(&segments(count)).xdp();
        case.link("eth1").mtu = 2000;
        let problems = case.problems();
        let found = problems.iter().any(|it| it.code == "xdp_headroom");
        assert_eq!(found, expected, "{count}");
    }
    assert!(
        Case::new(&segments(16))
            .problems()
            .iter()
            .all(|it| it.code != "xdp_headroom")
    );
}

#[test]
fn services_that_are_down_or_at_no_port_are_reported() {
    let sid = "- fc00:ad::/128 encap seg6local action End.AD oif eth1 nh6 fc01::1 liveness icmp \
        dev eth1\n";
    let mut case = Case::new(sid);
    let services: Vec<Service> = {
        let hops = case.node.routes.values().flat_map(|route| &route.next_hops);
        hops.filter_map(|hop| match &hop.encap {
            Some(sidestep_model::route::Encap::Seg6Local(local)) => local.service(),
            _ => None,
        })
        .collect()
    };
    case.node.services_down.extend(services);
    assert!(case.codes().contains(&"service_down".into()));
    let mut case = Case::new(sid);
    case.ports.retain(|port| port.name != "eth1");
    assert!(case.codes().contains(&"service_port_not_attached".into()));
}

#[test]
fn tables_are_reported_from_nine_tenths_on() {
    for (used, found) in [(89, false), (90, true)] {
        let mut case = Case::new("");
        case.daemon = Some(Daemon {
            limits: vec![Limit {
                name: "prefixes".into(),
                limit: 100,
                used: Some(used),
                left_out: 0,
                beyond: String::new(),
            }],
            arguments: [
                "--config",
                "n.yaml",
                "--limit",
                "prefixes=100",
                "--limit=routes=7",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Daemon::default()
        });
        let problem = case.problems().pop_first();
        let repair = problem.and_then(|problem| problem.repair);
        let expected = "sidestep stop --keep && sidestep run --detach --config n.yaml \
                        --limit=routes=7 --limit prefixes=200 eth0 eth1";
        assert_eq!(repair.as_deref(), found.then_some(expected));
    }
}

#[test]
fn the_state_of_daemon_and_host_is_reported() {
    let mut case = Case::new("");
    case.daemon = Some(Daemon {
        metrics: Some("0.0.0.0:10143".parse().expect("an address")),
        failed: Some("no memory".into()),
        icmp: Some("no socket".into()),
        liveness: Some("no socket".into()),
        full: vec![("views".into(), "the table of views is full".into())],
        replaced: true,
        pid: 7,
        ..Daemon::default()
    });
    let expected = [
        "change_failed",
        "icmp_not_sent",
        "services_not_probed",
        "table_full",
        "metrics_exposed",
        "program_replaced",
    ];
    assert_eq!(case.codes(), expected);
    case.daemon = None;
    case.host = Host {
        refused: Some("missing CAP_BPF".into()),
        left: Some("/sys/fs/bpf/sidestep/net-1".into()),
        read_only: true,
        private: Some(1),
        ..Host::default()
    };
    let expected = [
        "bpffs_missing",
        "bpffs_read_only",
        "cannot_load",
        "dead_instance",
        "bpffs_private",
    ];
    assert_eq!(case.codes(), expected);
    let status = |start: Option<&str>| Status {
        version: "1".into(),
        pid: 7,
        start: start.map(str::to_owned),
        ..Status::default()
    };
    assert!(other_version("1", &status(None)).is_none());
    let other = |start| other_version("2", &status(start)).expect("another version");
    assert_eq!(other(None).code, "other_version");
    assert_eq!(other(None).repair, None);
    let start = "sidestep run --detach eth0";
    let repair = "kill -KILL 7 && sidestep run --detach eth0";
    assert_eq!(other(Some(start)).repair.as_deref(), Some(repair));
}
