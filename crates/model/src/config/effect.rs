//! Checks that a Sidestep-only route or rule can have an effect. Otherwise it is refused where it is
//! written: by a command, `check`, a start, and `config apply`.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::behavior::{Behavior, Seg6Local};
use crate::error::ConfigError;
use crate::grammar::Words;
use crate::node::Node;
use crate::route::{Encap, Family, Route, Rule, RuleAction};

/// RFC 791: a link has at least this MTU for IPv4.
const MTU_MIN_V4: u32 = 68;
/// RFC 8200 5: a link has at least this MTU for IPv6.
const MTU_MIN_V6: u32 = 1280;

/// Checks a route, parsed from these words, for a node with these addresses.
///
/// # Errors
/// Returns the first word that prevents an effect.
pub fn check_route(route: &Route, words: &Words, live: &Node) -> Result<(), ConfigError> {
    let least = match route.family() {
        Family::V4 => MTU_MIN_V4,
        Family::V6 => MTU_MIN_V6,
    };
    if let Some(mtu) = route.mtu.filter(|mtu| *mtu < least) {
        let expected = format!("{least} to 65535");
        return Err(wrong(words, "mtu", "invalid `mtu`", &mtu, &expected));
    }
    for hop in &route.next_hops {
        if let Some(via) = hop.via.filter(|via| !is_host(*via)) {
            let expected = "an address of a neighbor";
            return Err(wrong(words, "via", "invalid `via`", &via, expected));
        }
        if let Some(Encap::Seg6Local(local)) = &hop.encap {
            check_sid(&route.key.prefix, words, live)?;
            check_next_hop(local, words)?;
        }
    }
    Ok(())
}

/// Checks the prefix of a SID.
fn check_sid(prefix: &IpNet, words: &Words, live: &Node) -> Result<(), ConfigError> {
    let address = prefix.addr();
    let is_zero = address.is_unspecified() && prefix.prefix_len() > 0;
    let problem = if address.is_multicast() {
        "a multicast address cannot be a SID:"
    } else if address.is_loopback() || is_zero {
        "packets to this address never arrive:"
    } else if live.addresses.iter().any(|(_, net)| net.addr() == address) {
        "the node has this address, so packets to it are local and not to a SID:"
    } else {
        return Ok(());
    };
    let expected = "an IPv6 unicast prefix that is no address of the node";
    Err(ConfigError::new(
        words.start(),
        problem,
        prefix.to_string(),
        expected,
    ))
}

/// Checks the next hop of a SID.
fn check_next_hop(local: &Seg6Local, words: &Words) -> Result<(), ConfigError> {
    let is_taken = |address: IpAddr| is_host(address) || address.is_unspecified();
    if let Some(nh6) = local.nh6.filter(|nh6| !is_taken((*nh6).into())) {
        return Err(wrong(
            words,
            "nh6",
            "invalid `nh6`",
            &nh6,
            "an IPv6 unicast address",
        ));
    }
    if let Some(nh4) = local.nh4.filter(|nh4| !is_taken((*nh4).into())) {
        return Err(wrong(
            words,
            "nh4",
            "invalid `nh4`",
            &nh4,
            "an IPv4 unicast address",
        ));
    }
    let link_local = local.nh6.filter(Ipv6Addr::is_unicast_link_local);
    if let Some(nh6) = link_local.filter(|_| local.oif.is_none()) {
        let expected = match local.action {
            Behavior::EndX => "`oif DEV` behind it, or a global address",
            _ => "a global address",
        };
        let problem = "every link has this address:";
        return Err(wrong(words, "nh6", problem, &nh6, expected));
    }
    Ok(())
}

/// Checks a rule, parsed from these words.
///
/// # Errors
/// The rule has a selector or an action that Sidestep leaves to Linux, with all packets of the
/// family.
pub fn check_rule(rule: &Rule, words: &Words) -> Result<(), ConfigError> {
    let is_unknown = !rule.unsupported.is_empty() || rule.action == RuleAction::Other;
    if !is_unknown {
        return Ok(());
    }
    let selector = rule.unsupported.first().map_or("goto", String::as_str);
    let keyword = selector.split(' ').next().unwrap_or_default();
    let problem = "Linux would get all packets of the family, because Sidestep has no selector";
    let expected = "a rule without it; `ip rule add` adds one to the kernel";
    Err(ConfigError::new(
        words.place_of(keyword),
        problem,
        selector,
        expected,
    ))
}

/// Whether an address may be that of one host of a link.
fn is_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
    !address.is_multicast() && !address.is_loopback() && !address.is_unspecified() && !is_broadcast
}

fn wrong(
    words: &Words,
    keyword: &str,
    problem: &str,
    value: &dyn ToString,
    expected: &str,
) -> ConfigError {
    ConfigError::new(
        words.place_of(keyword),
        problem,
        value.to_string(),
        expected,
    )
}

#[cfg(test)]
mod tests {
    use super::super::read_own_route;
    use super::*;
    use crate::grammar::{Context, rule};
    use crate::node::{IfIndex, Link};
    use crate::route::Owner;

    fn node() -> Node {
        let mut node = Node::default();
        for (number, name) in (1..).zip(["eth0", "eth1"]) {
            let link = Link::new(IfIndex(number), name);
            node.links.insert(link.ifindex, link);
        }
        let own = "fc00:5::1/64".parse().expect("an address");
        node.addresses.insert((IfIndex(1), own));
        node
    }

    fn context(node: &Node) -> Context<'_> {
        Context {
            names: node,
            family: None,
            owner: Owner::Sidestep,
        }
    }

    fn of_route(line: &str) -> Result<Route, String> {
        let node = node();
        let mut words = Words::from_line(line);
        read_own_route(&mut words, &context(&node), &node).map_err(|error| error.to_string())
    }

    #[test]
    fn routes_without_an_effect_are_refused_at_their_word() {
        for (line, expected) in [
            (
                "ff02::1 encap seg6local action End dev eth0",
                "word 1: a multicast address cannot be",
            ),
            (
                "::1 encap seg6local action End dev eth0",
                "word 1: packets to this address never",
            ),
            (
                "::/8 encap seg6local action End dev eth0",
                "word 1: packets to this address never",
            ),
            (
                "fc00:5::1 encap seg6local action End dev eth0",
                "word 1: the node has this address",
            ),
            (
                "fc00:1::e encap seg6local action End.DX6 nh6 ff02::1 dev eth0",
                "word 6: invalid `nh6` \"ff02::1\"",
            ),
            (
                "fc00:1::e encap seg6local action End.DX4 nh4 224.0.0.1 dev eth0",
                "word 6: invalid `nh4` \"224.0.0.1\"",
            ),
            (
                "fc00:1::e encap seg6local action End.X nh6 fe80::1 dev eth0",
                "word 6: every link has this address: \"fe80::1\"; expected `oif DEV`",
            ),
            (
                "fc00:1::e encap seg6local action End.DX6 nh6 fe80::1 dev eth0",
                "word 6: every link has this address: \"fe80::1\"; expected a global address",
            ),
            (
                "2001:db8::/32 via fc00::2 dev eth0 mtu 10",
                "word 6: invalid `mtu` \"10\"",
            ),
            (
                "2001:db8::/32 via fc00::2 dev eth0 mtu 1279",
                "word 6: invalid `mtu` \"1279\"",
            ),
            (
                "192.0.2.0/24 via 10.0.0.2 dev eth0 mtu 67",
                "word 6: invalid `mtu` \"67\"",
            ),
            (
                "2001:db8::/32 via ff02::1 dev eth0",
                "word 2: invalid `via` \"ff02::1\"",
            ),
            (
                "192.0.2.0/24 via 255.255.255.255 dev eth0",
                "word 2: invalid `via`",
            ),
            (
                "default encap seg6 mode encap segs fc00::1 dev eth0",
                "word 1: ambiguous `default`",
            ),
            ("default dev eth0", "word 1: ambiguous `default`"),
        ] {
            let found = of_route(line).expect_err(line);
            assert!(found.starts_with(expected), "{line}: {found}");
        }
        for line in [
            "fc00:5::2 encap seg6local action End dev eth0",
            "::/0 encap seg6local action End dev eth0",
            "fc00:1::e encap seg6local action End.X nh6 fe80::1 oif eth1 dev eth0",
            "fc00:1::e encap seg6local action End.DX6 nh6 :: dev eth0",
            "2001:db8::/32 via fc00::2 dev eth0 mtu 1280",
            "192.0.2.0/24 via 10.0.0.2 dev eth0 mtu 68",
            "default via fc00::2 dev eth0",
            "::/0 encap seg6 mode encap segs fc00::1 dev eth0",
            "0.0.0.0/0 encap seg6 mode encap segs fc00::1 dev eth0",
            "default encap seg6 mode inline segs fc00::1 dev eth0",
        ] {
            of_route(line).expect(line);
        }
    }

    #[test]
    fn rules_that_leave_everything_to_linux_are_refused() {
        let node = node();
        let check = |line: &str| {
            let mut words = Words::from_line(line);
            let rules = rule::parse(&mut words, &context(&node), &node.rules).expect(line);
            let checked = rules.iter().try_for_each(|rule| check_rule(rule, &words));
            checked.map_err(|error| error.to_string())
        };
        for (line, expected) in [
            ("fwmark 5 table 5", "word 1: Linux would get all packets"),
            (
                "from fc00::/16 ipproto tcp table 5",
                "word 3: Linux would get all packets",
            ),
            ("iif eth0 goto 7", "word 3: Linux would get all packets"),
        ] {
            let found = check(line).expect_err(line);
            assert!(found.starts_with(expected), "{line}: {found}");
        }
        check("iif eth0 from fc00::/16 table 5").expect("a rule");
    }
}
