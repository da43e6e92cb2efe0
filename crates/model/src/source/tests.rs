use super::*;
use crate::node::{Link, TableId};

const LO: IfIndex = IfIndex(1);
const CUSTOMER: IfIndex = IfIndex(2);
const CORE: IfIndex = IfIndex(3);

fn link(ifindex: IfIndex, kind: LinkKind) -> Link {
    Link {
        kind,
        ..Link::new(ifindex, &format!("eth{}", ifindex.0))
    }
}

/// A node with `lo`, a link to a customer, and a link to the core.
fn node(addresses: &[(IfIndex, &str)]) -> Node {
    let mut node = Node::default();
    for (ifindex, kind) in [
        (LO, LinkKind::Loopback),
        (CUSTOMER, LinkKind::Veth),
        (CORE, LinkKind::Veth),
    ] {
        node.links.insert(ifindex, link(ifindex, kind));
    }
    for (on, text) in addresses {
        let net = text.parse().expect("an address with its length");
        place(
            node.sources.entry(*on).or_default(),
            SourceCandidate::new(net),
        );
    }
    node
}

#[track_caller]
fn assert_source(node: &Node, dev: IfIndex, to: &str, expected: &str) {
    let to = to.parse().expect("an address");
    let expected: Ipv6Addr = expected.parse().expect("an address");
    assert_eq!(select(node, Some(dev), to), Some(expected), "to {to}");
}

fn set_state(node: &mut Node, on: IfIndex, text: &str, state: CandidateState) {
    let net: Ipv6Net = text.parse().expect("an address with its length");
    let changed = SourceCandidate {
        state,
        ..SourceCandidate::new(net)
    };
    place(node.sources.get_mut(&on).expect("candidates"), changed);
}

#[test]
fn the_loopback_comes_before_a_customer_link_on_an_unnumbered_core() {
    let node = node(&[
        (LO, "::1/128"),
        (LO, "2001:db8:cafe::1/128"),
        (CUSTOMER, "2001:db8::1/64"),
        (CORE, "fe80::1/64"),
    ]);
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:cafe::1");
    assert_source(&node, CORE, "fe80::9", "fe80::1");
}

#[test]
fn a_deprecated_address_comes_last() {
    let mut node = node(&[
        (CORE, "2001:db8:1::5/64"),
        (CORE, "2001:db8:1::1/64"),
        (CUSTOMER, "2001:db8::1/64"),
    ]);
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::1");
    set_state(
        &mut node,
        CORE,
        "2001:db8:1::1/64",
        CandidateState::Deprecated,
    );
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::5");
    set_state(
        &mut node,
        CORE,
        "2001:db8:1::5/64",
        CandidateState::Deprecated,
    );
    assert_source(&node, CORE, "fc00:9::1", "2001:db8::1");
}

#[test]
fn a_tentative_address_is_no_candidate_and_keeps_its_place() {
    let mut node = node(&[(CORE, "2001:db8:1::1/64"), (CORE, "2001:db8:1::5/64")]);
    set_state(
        &mut node,
        CORE,
        "2001:db8:1::5/64",
        CandidateState::Tentative,
    );
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::1");
    set_state(
        &mut node,
        CORE,
        "2001:db8:1::5/64",
        CandidateState::Preferred,
    );
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::5");
}

#[test]
fn the_newest_of_equal_addresses_of_an_interface_is_chosen() {
    let node = node(&[
        (CORE, "2001:db8:1::1/64"),
        (CORE, "2001:db8:1::9/64"),
        (CORE, "2001:db8:1::5/64"),
    ]);
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::5");
}

#[test]
fn the_label_comes_after_the_interface_and_before_the_prefix() {
    let node = node(&[
        (LO, "fc00:1::1/128"),
        (CUSTOMER, "2001:db8:9::1/64"),
        (CORE, "fe80::1/64"),
    ]);
    assert_source(&node, CORE, "fc00:9::1", "fc00:1::1");
    assert_source(&node, CORE, "2001:db8:9::2", "2001:db8:9::1");
    assert_source(&node, CUSTOMER, "fc00:9::1", "2001:db8:9::1");
}

#[test]
fn labels_of_the_node_replace_those_of_the_rfc() {
    let mut node = node(&[
        (LO, "fc00:1::1/128"),
        (CUSTOMER, "2001:db8:9::1/64"),
        (CORE, "fe80::1/64"),
    ]);
    let row = |text: &str, number| AddressLabel {
        prefix: text.parse().expect("a prefix"),
        dev: None,
        label: number,
    };
    node.address_labels = vec![row("fc00:9::/32", 1), row("fc00::/7", 5), row("::/0", 1)];
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:9::1");
}

#[test]
fn the_common_prefix_is_limited_to_the_prefix_of_the_address() {
    let node = node(&[
        (CORE, "2001:db8:1::1/32"),
        (CORE, "2001:db9:9::1/64"),
        (CORE, "2001:db8:1::2/32"),
    ]);
    // The addresses with a /32 have 32 bits in common at most, and the newest is the first.
    assert_source(&node, CORE, "2001:db8:1::7", "2001:db8:1::2");
    assert_source(&node, CORE, "2001:db9:9::7", "2001:db9:9::1");
}

#[test]
fn addresses_of_another_vrf_are_no_candidates() {
    const VRF: IfIndex = IfIndex(9);
    let mut node = node(&[
        (LO, "2001:db8:cafe::1/128"),
        (CUSTOMER, "fc00:9::2/64"),
        (CORE, "fe80::1/64"),
        (VRF, "fc00:a::1/128"),
    ]);
    let kind = LinkKind::Vrf {
        table: TableId(100),
    };
    node.links.insert(VRF, link(VRF, kind));
    node.links.get_mut(&CUSTOMER).expect("a link").master = Some(VRF);
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:cafe::1");
    assert_source(&node, CUSTOMER, "fc00:9::1", "fc00:9::2");
    node.sources.remove(&CUSTOMER);
    assert_source(&node, CUSTOMER, "fc00:9::1", "fc00:a::1");
}

#[test]
fn use_oif_addrs_only_restricts_candidates_to_the_egress() {
    let mut node = node(&[(LO, "2001:db8:cafe::1/128"), (CORE, "fe80::1/64")]);
    node.links
        .get_mut(&CORE)
        .expect("a link")
        .oif_addresses_only = true;
    assert_source(&node, CORE, "fc00:9::1", "fe80::1");
    node.sources.remove(&CORE);
    let to = "fc00:9::1".parse().expect("an address");
    assert_eq!(select(&node, Some(CORE), to), None);
}

#[test]
fn a_temporary_address_comes_after_a_public_one() {
    let mut node = node(&[(CORE, "2001:db8:1::1/64")]);
    let candidates = node.sources.get_mut(&CORE).expect("candidates");
    let net = |text: &str| text.parse::<Ipv6Net>().expect("an address");
    let temporary = SourceCandidate {
        temporary: true,
        ..SourceCandidate::new(net("2001:db8:1::9/64"))
    };
    place(candidates, temporary);
    assert_source(&node, CORE, "fc00:9::1", "2001:db8:1::1");
}
