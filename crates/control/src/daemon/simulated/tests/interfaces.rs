//! Interfaces that are renamed, named otherwise, resized or given another address.

use sidestep_datapath::kernel::Target;
use sidestep_model::node::{Link, LinkKind, Mac};

use super::{ask_ports, refused};
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

fn change(node: &mut Simulation, name: &str, change: impl FnOnce(&mut Link)) {
    let dev = node.dev(name);
    node.instance
        .mirror
        .change(|node| change(node.links.get_mut(&dev).expect("a link")));
    node.turn();
}

fn targets(node: &mut Simulation) -> Vec<(String, String)> {
    let ports = ask_ports(node).into_iter();
    ports.map(|port| (port.name, port.target)).collect()
}

fn named(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let expected = expected.iter();
    expected
        .map(|(name, target)| ((*name).to_owned(), (*target).to_owned()))
        .collect()
}

#[test]
fn a_renamed_port_is_none_until_it_or_another_interface_has_the_name() {
    let mut node = Simulation::new();
    let index = node.dev("eth0");
    change(&mut node, "eth0", |link| link.name = "wan0".into());
    let ports = ask_ports(&mut node);
    assert_eq!(
        ports[0].why,
        "waits for its interface, which does not exist"
    );
    assert_eq!(node.attached().into_keys().collect::<Vec<_>>(), ["eth1"]);
    change(&mut node, "wan0", |link| link.name = "eth0".into());
    assert_eq!(ask_ports(&mut node)[0].ifindex, Some(index.0));
    assert_eq!(node.attached().len(), 2);
    // Another interface takes the name at once.
    let other = node.dev("eth2");
    node.instance.mirror.change(|node| {
        node.links.get_mut(&index).expect("a link").name = "old0".into();
        node.links.get_mut(&other).expect("a link").name = "eth0".into();
    });
    node.turn();
    assert_eq!(ask_ports(&mut node)[0].ifindex, Some(other.0));
    assert_eq!(
        node.attached().into_keys().collect::<Vec<_>>(),
        ["eth0", "eth1"]
    );
}

#[test]
fn an_altname_is_a_name_in_every_command() {
    const LONG: &str = "enp0s5-with-more-than-15-bytes";
    let mut node = Simulation::with(STAR, &[], "ports: [eth2]\n");
    change(&mut node, "eth0", |link| {
        link.alt_names = vec!["enp0s5".into()];
    });
    change(&mut node, "eth1", |link| link.alt_names = vec![LONG.into()]);
    node.all(["port add enp0s5", &format!("port add {LONG}")]);
    let xdp = Target::Xdp.name();
    assert_eq!(
        targets(&mut node),
        named(&[("eth2", xdp), ("eth0", xdp), ("eth1", xdp)])
    );
    node.all([
        "route add 2001:db8:77::/64 encap seg6 mode encap segs fc00:b::2 dev enp0s5",
        "route add fc00:1::d2/128 encap seg6local action End.DX2 oif enp0s5 dev enp0s5",
        "vlan add table 10 vid 100 dev enp0s5",
        "domain add inside enp0s5",
        "rule add iif enp0s5 table 100",
        "port del enp0s5",
        "port add enp0s5",
    ]);
    assert_eq!(
        refused(&mut node, "port add eth0"),
        "port eth0: exists already"
    );
    let shown: report::Rules = node.report(Request::ShowRules);
    assert!(
        shown.iter().all(|rule| rule.contains("iif eth0")),
        "{shown:?}"
    );
    node.all(["rule del iif eth0 table 100", "domain del inside enp0s5"]);
}

#[test]
fn an_altname_in_a_node_file_is_waited_for() {
    let text = "ports: [enp0s5, eth1]\n";
    let mut node = Simulation::with(STAR, &[], text);
    let xdp = Target::Xdp.name();
    for _ in 0..2 {
        assert_eq!(
            targets(&mut node),
            named(&[("enp0s5", "none"), ("eth1", xdp)])
        );
        change(&mut node, "eth0", |link| {
            link.alt_names = vec!["enp0s5".into()];
        });
        assert_eq!(targets(&mut node), named(&[("eth0", xdp), ("eth1", xdp)]));
        node.console.file = Some((Vec::new(), text.into()));
        node.all(["config reload"]);
        assert_eq!(targets(&mut node), named(&[("eth0", xdp), ("eth1", xdp)]));
        change(&mut node, "eth0", |link| link.alt_names.clear());
    }
}

#[test]
fn another_mtu_and_other_macs_are_followed() {
    let mut node = Simulation::new();
    let is_short = |node: &Simulation| node.verdict("fc00:bb::1");
    assert_eq!(is_short(&node), "forward eth1");
    change(&mut node, "eth1", |link| link.mtu = 30);
    assert_eq!(is_short(&node).split(' ').next(), Some("punt"));
    assert_eq!(ask_ports(&mut node)[1].mtu, 30);
    change(&mut node, "eth1", |link| link.mtu = 1500);
    let mac = [2, 0x5e, 0, 0, 0, 1];
    change(&mut node, "eth1", |link| link.mac = Mac(mac));
    assert_eq!(node.packet("eth0", "fc00:bb::1").1[6..12], mac);
    change(&mut node, "eth0", |link| {
        link.mac = Mac([2, 0x5e, 0, 0, 0, 2]);
    });
    assert_eq!(
        is_short(&node),
        "forward eth1",
        "to the new address of the port"
    );
}

#[test]
fn an_interface_that_cannot_be_a_port_is_refused_with_the_reason() {
    let mut node = Simulation::new();
    for (kind, why) in [
        (LinkKind::Loopback, "it is the loopback device"),
        (
            LinkKind::NotEthernet("tun".into()),
            "it has no Ethernet frames (tun)",
        ),
        (
            LinkKind::Vrf {
                table: sidestep_model::node::TableId(10),
            },
            "it is a VRF device; attach the interfaces in it",
        ),
    ] {
        change(&mut node, "eth2", |link| link.kind = kind);
        assert_eq!(
            refused(&mut node, "port add eth2"),
            format!("port eth2: {why}")
        );
    }
    let bond = node.dev("eth2");
    change(&mut node, "eth2", |link| link.kind = LinkKind::Bond);
    node.add_link("eth1", "eth3", 30);
    change(&mut node, "eth3", |link| link.master = Some(bond));
    let found = refused(&mut node, "port add eth3");
    assert_eq!(
        found,
        "port eth3: it belongs to eth2, which gets its frames first; attach eth2 instead"
    );
}

#[test]
fn a_port_that_can_no_longer_be_one_is_detached_until_it_can() {
    let mut node = Simulation::new();
    let bond = node.dev("eth2");
    change(&mut node, "eth2", |link| link.kind = LinkKind::Bond);
    change(&mut node, "eth1", |link| link.master = Some(bond));
    assert_eq!(node.attached().into_keys().collect::<Vec<_>>(), ["eth0"]);
    assert!(ask_ports(&mut node)[1].why.contains("it belongs to eth2"));
    change(&mut node, "eth1", |link| link.master = None);
    assert_eq!(node.attached().len(), 2);
}

#[test]
fn a_port_whose_attachment_fails_is_tried_again_at_the_next_change() {
    let mut node = Simulation::new();
    let eth1 = node.dev("eth1").0;
    node.instance.tables.kernel.refusing.insert(eth1);
    change(&mut node, "eth1", |link| link.name = "old1".into());
    change(&mut node, "old1", |link| link.name = "eth1".into());
    assert_eq!(node.attached().into_keys().collect::<Vec<_>>(), ["eth0"]);
    assert!(
        node.problems().contains("port_not_attached"),
        "{:?}",
        node.problems()
    );
    node.instance.tables.kernel.refusing.clear();
    change(&mut node, "eth2", |link| link.mtu = 1400);
    assert_eq!(node.attached().len(), 2);
    assert!(!node.problems().contains("port_not_attached"));
}
