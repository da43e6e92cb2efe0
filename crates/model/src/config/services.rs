//! Checks that each packet returned by a service belongs to exactly one SR proxy, and that no frame
//! loops. Proxies may share a return path if a returned packet identifies its proxy.
//!
//! The draft allows one static or dynamic proxy per traffic type on an interface, and any number of
//! masquerading proxies (draft-ietf-spring-srv6-service-programming 6.1, 6.1.2.1, 6.4).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::behavior::attribute::Attribute;
use crate::behavior::check::Wrong;
use crate::behavior::proxy::{Chain, InnerType};
use crate::behavior::{Behavior, Seg6Local};
use crate::grammar::{Names, value};
use crate::route::{Encap, Route, RouteKey};

/// Checks the proxies of `route` against those of `routes`. A route with the same key is ignored.
///
/// # Errors
/// Another SID claims the same packets, `chain fromVNF` belongs to no SID, or frames would loop.
pub fn check(
    route: &Route,
    routes: &BTreeMap<RouteKey, Route>,
    names: &dyn Names,
) -> Result<(), Wrong> {
    let others = || routes.values().filter(|other| other.key != route.key);
    for (number, local) in proxies(route).enumerate() {
        if local.proxy.chain == Some(Chain::FromVnf) {
            has_inbound(local, others(), names)?;
            continue;
        }
        let beside = proxies(route).take(number).map(|other| (route, other));
        let elsewhere = others().flat_map(|route| proxies(route).map(move |other| (route, other)));
        for (there, other) in beside.chain(elsewhere) {
            if let Some(why) = both_claim(local, other) {
                return Err(clash(route, there, local, why, names));
            }
        }
        goes_round(route, local, routes)?;
    }
    Ok(())
}

/// A frame has no hop limit, and End.AS pushes headers with a fresh one. A frame that returns to
/// the same SID would loop forever. A packet's own hop limit ends such a loop.
fn goes_round(
    route: &Route,
    local: &Seg6Local,
    routes: &BTreeMap<RouteKey, Route>,
) -> Result<(), Wrong> {
    if !encapsulates_frames(local) {
        return Ok(());
    }
    let others = routes.values().filter(|other| other.key != route.key);
    let mut others: Vec<_> = others
        .flat_map(|other| proxies(other).map(move |proxy| (other, proxy)))
        .filter(|(_, proxy)| encapsulates_frames(proxy))
        .collect();
    way_to(route, local, &mut others).map_or(Ok(()), |way| Err(round(route, &way)))
}

/// Returns the static proxies that frames pass on their way from one to the SID of `route`, or
/// `None` if they do not reach it. Removes visited proxies from the others.
fn way_to<'a>(
    route: &Route,
    from: &Seg6Local,
    others: &mut Vec<(&'a Route, &'a Seg6Local)>,
) -> Option<Vec<&'a Route>> {
    let leads_to = |to: &Route| {
        let mut segments = from.segments.iter();
        segments.any(|segment| to.key.prefix.contains(&IpAddr::from(*segment)))
    };
    if leads_to(route) {
        return Some(Vec::new());
    }
    while let Some(at) = others.iter().position(|(other, _)| leads_to(other)) {
        let (other, proxy) = others.swap_remove(at);
        if let Some(way) = way_to(route, proxy, others) {
            return Some([&[other], &way[..]].concat());
        }
    }
    None
}

fn encapsulates_frames(local: &Seg6Local) -> bool {
    local.action == Behavior::EndAs && local.sees(InnerType::L2)
}

fn round(route: &Route, by: &[&Route]) -> Wrong {
    let sid = |route: &Route| value::prefix_text(&route.key.prefix);
    let names: Vec<String> = by.iter().map(|other| sid(other)).collect();
    let by = match &names[..] {
        [] => String::new(),
        names => format!(" by {}", names.join(", ")),
    };
    Wrong {
        keyword: "segs",
        problem: format!(
            "frames of its service would come back to {}{by} again and again: they have no hop limit",
            sid(route)
        ),
        expected: "segments that do not lead back to this SID".to_owned(),
    }
}

fn proxies(route: &Route) -> impl Iterator<Item = &Seg6Local> {
    let encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
    encaps.filter_map(|encap| match encap {
        Encap::Seg6Local(local) if local.action.is_proxy() => Some(local),
        _ => None,
    })
}

/// `chain fromVNF` repeats the configuration of an inbound SID of that behavior.
fn has_inbound<'a>(
    local: &Seg6Local,
    others: impl Iterator<Item = &'a Route>,
    names: &dyn Names,
) -> Result<(), Wrong> {
    let inbound = |other: &Seg6Local| {
        other.action == local.action
            && other.proxy.chain != Some(Chain::FromVnf)
            && other.back() == local.back()
    };
    if others.flat_map(proxies).any(inbound) {
        return Ok(());
    }
    let dev = back_text(local, names);
    let name = local.action.descriptor().name;
    Err(Wrong {
        keyword: Attribute::Iif.keyword(),
        problem: format!("no inbound {name} gets packets back on {dev}"),
        expected: format!("first its SID: encap seg6local action {name} oif DEV … iif {dev}"),
    })
}

/// Returns why a returned packet could belong to either proxy, or `None` if it identifies one.
fn both_claim(one: &Seg6Local, other: &Seg6Local) -> Option<&'static str> {
    let from_vnf = |local: &Seg6Local| local.proxy.chain == Some(Chain::FromVnf);
    if one.back() != other.back() || from_vnf(one) || from_vnf(other) {
        return None;
    }
    let either = |inner| one.sees(inner) || other.sees(inner);
    let both = |inner| one.sees(inner) && other.sees(inner);
    let masquerades = |local: &Seg6Local| local.action == Behavior::EndAm;
    let by_flow = |local: &Seg6Local| {
        local
            .proxy
            .flows
            .map(|flows| (flows, local.proxy.age.unwrap_or(0)))
    };
    match (masquerades(one), masquerades(other)) {
        // Broadcasts of an IP service to its neighbors are punted. Broadcasts in a frame of a chain
        // belong to the chain.
        _ if either(InnerType::L2) => Some("a service that sees frames may send any"),
        (true, true) if one.flavors == other.flavors => None,
        (true, true) => Some("both take IPv6 packets with an SRH, by different flavors"),
        // A flow identifies the proxy of its packets.
        (false, false) if by_flow(one).is_some() && by_flow(one) == by_flow(other) => None,
        (false, false) if both(InnerType::Ipv6) => Some("both take IPv6 packets"),
        (false, false) if both(InnerType::Ipv4) => Some("both take IPv4 packets"),
        (false, false) => None,
        _ if either(InnerType::Ipv6) => Some("both take IPv6 packets with an SRH"),
        _ => None,
    }
}

fn clash(route: &Route, there: &Route, local: &Seg6Local, why: &str, names: &dyn Names) -> Wrong {
    let sid = |route: &Route| value::prefix_text(&route.key.prefix);
    let keyword = match local.iif {
        Some(_) => Attribute::Iif,
        None => Attribute::Oif,
    };
    Wrong {
        keyword: keyword.keyword(),
        problem: format!(
            "packets that return on {} could belong to {} or to {}: {why}",
            back_text(local, names),
            sid(there),
            sid(route),
        ),
        expected:
            "an iif of its own, an inner type of its own, or End.AD with equal `flows` and `age` for all of them"
                .to_owned(),
    }
}

fn back_text(local: &Seg6Local, names: &dyn Names) -> String {
    local
        .back()
        .map_or_else(String::new, |dev| value::interface_text(dev, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::route;
    use crate::grammar::tests::{ctx, names};

    /// Returns the messages after adding these lines one by one.
    fn added(lines: &[&str]) -> Result<(), String> {
        let mut routes = BTreeMap::new();
        for line in lines {
            let route = route::parse_line(line, &ctx()).unwrap_or_else(|e| panic!("{line}: {e}"));
            check(&route, &routes, &names()).map_err(|wrong| wrong.to_string())?;
            routes.insert(route.key, route);
        }
        Ok(())
    }

    fn sid(number: u32, words: &str) -> String {
        format!("fdf1::{number} encap seg6local action {words} dev eth0")
    }

    fn two(one: &str, other: &str) -> Result<(), String> {
        added(&[&sid(1, one), &sid(2, other)])
    }

    #[test]
    fn sids_share_a_port_if_packets_identify_their_sid() {
        for (one, other) in [
            (
                "End.AD oif eth1 nh6 fd00::1",
                "End.AD oif eth1 nh4 10.0.0.1",
            ),
            (
                "End.AS oif eth1 nh4 10.0.0.1 segs fc00::1 src fc00::2",
                "End.AD oif eth1 nh6 fd00::1",
            ),
            ("End.AM oif eth1 nh6 fd00::1", "End.AM oif eth1 nh6 fd00::2"),
            (
                "End.AM oif eth1 nh6 fd00::1",
                "End.AD oif eth1 nh4 10.0.0.1",
            ),
            // Both directions of a chain through a service with two interfaces.
            (
                "End.AD oif eth1 iif eth2 nh6 fd00::1",
                "End.AD oif eth2 iif eth1 nh6 fd00::2",
            ),
            ("End.AD oif eth1", "End.AD oif eth2"),
            ("End.X nh6 fd00::1 oif eth1", "End.AD oif eth1"),
            // Many chains through one service.
            (
                "End.AD oif eth1 nh6 fd00::1 age 5 flows",
                "End.AD oif eth1 nh6 fd00::1 age 5 flows 8192",
            ),
            (
                "End.AD oif eth1 nh6 fd00::1 flows 64",
                "End.AD oif eth2 iif eth1 nh4 10.0.0.1 flows 64 age 0",
            ),
        ] {
            assert_eq!(two(one, other), Ok(()), "{one}, {other}");
            assert_eq!(two(other, one), Ok(()), "{other}, {one}");
        }
    }

    #[test]
    fn sids_that_claim_the_same_packets_are_refused() {
        for (one, other, why) in [
            (
                "End.AD oif eth1 nh6 fd00::1",
                "End.AD oif eth1 nh6 fd00::2",
                "both take IPv6 packets",
            ),
            (
                "End.AD oif eth1 nh4 10.0.0.1",
                "End.AS oif eth1 nh4 10.0.0.1 segs fc00::1 src fc00::2",
                "both take IPv4 packets",
            ),
            (
                "End.AD oif eth1 nh6 fd00::1 flows",
                "End.AD oif eth2 iif eth1 nh6 fd00::1",
                "both take IPv6 packets",
            ),
            (
                "End.AD oif eth1 nh6 fd00::1 flows",
                "End.AD oif eth1 nh6 fd00::1 flows 64",
                "both take IPv6 packets",
            ),
            (
                "End.AD oif eth1 nh4 10.0.0.1 flows",
                "End.AD oif eth1 nh4 10.0.0.1 flows age 5",
                "both take IPv4 packets",
            ),
            (
                "End.AM oif eth1 nh6 fd00::1",
                "End.AD oif eth1 nh6 fd00::1",
                "both take IPv6 packets with an SRH",
            ),
            (
                "End.AM oif eth1 nh6 fd00::1",
                "End.AM oif eth1 nh6 fd00::1 flavors nat",
                "both take IPv6 packets with an SRH, by different flavors",
            ),
            (
                "End.AD oif eth1",
                "End.AD oif eth1 nh4 10.0.0.1",
                "a service that sees frames may send any",
            ),
            (
                "End.AD oif eth1 inner l2",
                "End.AM oif eth1 nh6 fd00::1",
                "a service that sees frames may send any",
            ),
        ] {
            let error = two(one, other).expect_err(one);
            let want = format!(
                "packets that return on eth1 could belong to fdf1::1 or to fdf1::2: {why};"
            );
            assert!(error.contains(&want), "{one}, {other}: {error}");
            assert!(two(other, one).is_err(), "{other}, {one}");
        }
    }

    #[test]
    fn frame_loops_through_static_proxies_are_refused() {
        let frames = |number: u32, dev: &str, segs: &str| {
            sid(
                number,
                &format!("End.AS oif {dev} inner l2 segs {segs} src fc00::9"),
            )
        };
        let error = added(&[&frames(1, "eth1", "fc00::1,fdf1::1,fc00::2")]).expect_err("itself");
        assert!(
            error.starts_with("segs: frames of its service would come back to fdf1::1 again"),
            "{error}"
        );
        let others = [
            frames(2, "eth1", "fdf1::3,fc00::1"),
            frames(3, "eth2", "fc00::1,fdf1::1"),
        ];
        let first = frames(1, "eth0", "fdf1::2");
        let error = added(&[&others[0], &others[1], &first]).expect_err("by the others");
        assert!(
            error.contains("come back to fdf1::1 by fdf1::2, fdf1::3 again"),
            "{error}"
        );
        let elsewhere = frames(1, "eth0", "fc00::7");
        assert_eq!(
            added(&[&others[0], &others[1], &elsewhere, &elsewhere]),
            Ok(())
        );
        // The packet's own hop limit ends the loop.
        let packets = sid(1, "End.AS oif eth1 nh6 fd00::1 segs fdf1::1 src fc00::9");
        assert_eq!(added(&[&packets]), Ok(()));
    }

    #[test]
    fn replacing_a_sid_does_not_conflict_with_itself() {
        let line = sid(1, "End.AD oif eth1 nh6 fd00::1");
        assert_eq!(added(&[&line, &line.replace("fd00::1", "fd00::2")]), Ok(()));
    }

    #[test]
    fn next_hops_of_one_sid_are_compared_too() {
        let hop = |dev, nh6| {
            format!("nexthop encap seg6local action End.AD oif {dev} nh6 {nh6} dev {dev}")
        };
        let route = |one: &str, other: &str| format!("fdf1::1 {one} {other}");
        let spread = route(&hop("eth1", "fd00::1"), &hop("eth2", "fd00::2"));
        assert_eq!(added(&[&spread]), Ok(()));
        let same = route(&hop("eth1", "fd00::1"), &hop("eth1", "fd00::2"));
        assert!(added(&[&same]).is_err());
    }

    #[test]
    fn a_return_path_needs_an_inbound_sid_on_its_interface() {
        let inbound = sid(1, "End.AD chain inbound oif eth1 nh6 fd00::1 age 5");
        let back =
            "default encap seg6local action End.AD chain fromVNF iif eth1 dev eth1 table 100";
        assert_eq!(added(&[&inbound, back]), Ok(()));
        let other_port = back.replace("eth1", "eth2");
        for lines in [&[back][..], &[&inbound, &other_port]] {
            let error = added(lines).expect_err("no inbound SID");
            assert!(
                error.starts_with("iif: no inbound End.AD gets packets back on eth"),
                "{error}"
            );
        }
    }
}
