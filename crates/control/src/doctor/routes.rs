//! Checks of routes: SIDs, headends, services, policies, rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use sidestep_model::behavior::Seg6Local;
use sidestep_model::grammar::{Style, route};
use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_model::policy::Invalid;
use sidestep_model::route::{Encap, Family as AddressFamily, Owner, Route, RouteKind, RuleAction};
use sidestep_model::source::CandidateState;

use super::facts::Facts;
use super::{Code, Family, Group};
use crate::report::Problem;

const TUNSRC_NOT_LOCAL: Code = Code::error(
    "tunsrc_not_local",
    "the tunnel source is no address of this node: ICMP errors about outer packets are lost, and \
     TCP hangs",
);
const SID_NOT_IN_KERNEL: Code = Code::warning(
    "sid_not_in_kernel",
    "a Sidestep-only SID has no route in the kernel: routing daemons do not announce it",
);
const SID_HIDDEN: Code = Code::warning(
    "sid_hidden",
    "an address of the node is also a SID, so packets to it are local and the SID is not executed",
);
const SIDS_LOST: Code = Code::warning(
    "sids_lost",
    "the kernel removed SIDs of a routing daemon when their interface went down, and the daemon did \
     not install them again",
);
const SOURCE_UNCLEAR: Code = Code::warning(
    "source_unclear",
    "without `tunsrc`, encapsulated packets have a link-local or deprecated source, or the address \
     of another link",
);
const DOMAIN_WITHOUT_INSIDE: Code = Code::error(
    "domain_without_inside",
    "the SR domain has a SID block and no inside port: all packets to these SIDs are dropped",
);
const SERVICE_PORT_NOT_ATTACHED: Code = Code::error(
    "service_port_not_attached",
    "the interface of an SR proxy's service is no port: packets to the SID are dropped or punted",
);
const SERVICE_DOWN: Code = Code::error("service_down", "the service of an SR proxy is down");
const POLICY_INVALID: Code =
    Code::error("policy_invalid", "an SR policy has no valid candidate path");
const LIST_INVALID: Code = Code::warning(
    "list_invalid",
    "a segment list of a valid SR policy is invalid",
);
const RULE_PUNTS: Code = Code::warning(
    "rule_punts",
    "a policy rule has a selector that Sidestep does not support: Linux forwards the packets",
);
const ROUTE_PUNTED: Code = Code::note(
    "route_punted",
    "Linux forwards the packets of an SRv6 route that Sidestep does not support",
);
const ROUTE_NOT_IN_EFFECT: Code = Code::error(
    "route_not_in_effect",
    "a Sidestep-only route cannot be applied: its packets are dropped",
);
const HMAC_KEY_MISSING: Code = Code::error(
    "hmac_key_missing",
    "a headend signs with an HMAC key that does not exist",
);
const HMAC_NO_KEYS: Code = Code::error(
    "hmac_no_keys",
    "a port requires an HMAC (`seg6_require_hmac` 1), and the node has no key",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        TUNSRC_NOT_LOCAL,
        SID_NOT_IN_KERNEL,
        SID_HIDDEN,
        SIDS_LOST,
        SOURCE_UNCLEAR,
        DOMAIN_WITHOUT_INSIDE,
        SERVICE_PORT_NOT_ATTACHED,
        SERVICE_DOWN,
        POLICY_INVALID,
        LIST_INVALID,
        RULE_PUNTS,
        ROUTE_PUNTED,
        ROUTE_NOT_IN_EFFECT,
        HMAC_KEY_MISSING,
        HMAC_NO_KEYS,
    ],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(tunsrc(facts));
    found.extend(unclear_source(facts));
    found.extend(sids(facts));
    found.extend(hidden(facts));
    found.extend(lost(facts));
    found.extend(domain(facts));
    found.extend(services(facts));
    found.extend(policies(facts));
    found.extend(rules(facts));
    found.extend(punted(facts));
    found.extend(hmac(facts));
    found
}

fn tunsrc(facts: &Facts<'_>) -> Vec<Problem> {
    let of_headends = facts.compiled.index.policies.values();
    let sources: BTreeSet<_> = of_headends
        .filter(|policy| !policy.encap.mode.inserts())
        .map(|policy| policy.source)
        .collect();
    let local = |address: IpAddr| {
        let routed =
            |route: &Route| route.kind == RouteKind::Local && route.key.prefix.contains(&address);
        facts
            .node
            .addresses
            .iter()
            .any(|(_, net)| net.addr() == address)
            || facts.node.routes.values().any(routed)
    };
    let lost = sources
        .into_iter()
        .filter(|source| !local(IpAddr::from(*source)));
    let sentence = |which: &str| {
        format!(
            "{which} of this node: ICMP errors about outer packets are lost, and TCP hangs where the \
             path MTU is too small"
        )
    };
    Group::of(lost, facts).problems(
        facts,
        TUNSRC_NOT_LOCAL,
        sentence("tunnel sources are no addresses"),
        ToString::to_string,
        |source| {
            TUNSRC_NOT_LOCAL.problem(
                sentence(&format!("the tunnel source {source} is no address")),
                format!("ip -6 address add {source}/128 dev lo"),
            )
        },
    )
}

/// Sources that the kernel's rules choose, and an operator would not.
fn unclear_source(facts: &Facts<'_>) -> Vec<Problem> {
    let index = &facts.compiled.index;
    let mut unclear = BTreeMap::new();
    for (id, policy) in &index.policies {
        let is_chosen = policy.encap.tunsrc.is_none() && facts.node.tunsrc.is_none();
        if policy.encap.mode.inserts() || !is_chosen || is_of_vrf(facts.node, policy.source) {
            continue;
        }
        let record = facts.compiled.image.policies.get(id);
        let adjacency = record.and_then(|record| index.adjacencies.get(&record.adjacency));
        let egress = adjacency.map(|adjacency| adjacency.ifindex);
        if let Some(why) = why_unclear(facts.node, policy.source, egress) {
            unclear.insert(policy.source, why);
        }
    }
    let problem = |(source, why): (Ipv6Addr, String)| {
        let sentence = format!("`ip sr tunsrc` is not set, and the tunnel source {source} {why}");
        match clear_source(facts.node) {
            Some(clear) => SOURCE_UNCLEAR.problem(sentence, format!("ip sr tunsrc set {clear}")),
            None => SOURCE_UNCLEAR.without_command(sentence),
        }
    };
    unclear.into_iter().map(problem).collect()
}

fn is_of_vrf(node: &Node, source: Ipv6Addr) -> bool {
    node.vrf_tunsrc.values().any(|it| *it == source)
}

/// Returns why an operator would not choose this source.
fn why_unclear(node: &Node, source: Ipv6Addr, egress: Option<IfIndex>) -> Option<String> {
    if source.is_unicast_link_local() {
        return Some("is link-local: no other link has a route to it".into());
    }
    let mut candidates = node
        .sources
        .iter()
        .flat_map(|(dev, all)| all.iter().map(|it| (*dev, it)));
    let (dev, candidate) = candidates.find(|(_, it)| it.net.addr() == source)?;
    let link = node.links.get(&dev)?;
    if link.kind == LinkKind::Loopback {
        return source
            .is_loopback()
            .then(|| "is the loopback address".into());
    }
    if candidate.state == CandidateState::Deprecated {
        return Some("is deprecated".into());
    }
    let is_other = egress.is_some_and(|egress| egress != dev);
    is_other.then(|| format!("is the address of another link, {}", link.name))
}

/// Returns a preferred global address of `lo`.
fn clear_source(node: &Node) -> Option<Ipv6Addr> {
    let loopback = node
        .links
        .values()
        .find(|link| link.kind == LinkKind::Loopback)?;
    let candidates = node.sources.get(&loopback.ifindex)?.iter();
    let mut preferred = candidates.filter(|it| it.state == CandidateState::Preferred);
    let is_global = |address: &Ipv6Addr| !address.is_loopback() && !address.is_unicast_link_local();
    preferred.find_map(|it| Some(it.net.addr()).filter(is_global))
}

/// SIDs whose packets are local, since table local comes first. Neither Linux nor Sidestep executes
/// them: the node answers to its own addresses, and RFC 8754 4.3.2 applies to an SRH there.
fn hidden(facts: &Facts<'_>) -> Vec<Problem> {
    let mut hosts = BTreeMap::new();
    let mut nets = Vec::new();
    let local = facts.node.routes.values().filter(|route| {
        let is_local = matches!(route.kind, RouteKind::Local | RouteKind::Anycast);
        is_local && route.key.table == TableId::LOCAL
    });
    for route in local {
        match route.key.prefix {
            IpNet::V6(net) if net.prefix_len() == 128 => _ = hosts.insert(net.addr(), route),
            IpNet::V6(net) => nets.push((net, route)),
            IpNet::V4(_) => {}
        }
    }
    let by = |(route, _): &(&Route, &Seg6Local)| {
        let IpNet::V6(sid) = route.key.prefix else {
            return None;
        };
        let in_net = || nets.iter().find(|(net, _)| net.contains(&sid.addr()));
        let local = hosts.get(&sid.addr()).copied();
        let local = local.or_else(|| in_net().map(|it| it.1));
        local
            .filter(|_| route.key.table != TableId::LOCAL)
            .map(|local| (sid, local))
    };
    let found = facts.sids.iter().filter_map(by);
    let advice = "packets to it are local; give the address another value, or the length 128";
    Group::of(found, facts).problems(
        facts,
        SID_HIDDEN,
        format!("SIDs are addresses of this node as well: {advice}"),
        |(sid, _)| sid.to_string(),
        |(sid, local)| {
            let dev = local.next_hops.first().and_then(|hop| hop.dev);
            let link = dev.and_then(|dev| facts.node.links.get(&dev));
            let name = link.map_or("lo", |link| &link.name);
            let what = match local.kind {
                RouteKind::Anycast => "the subnet-router anycast address of a prefix",
                _ => "an address",
            };
            let sentence = format!("SID {sid} is also {what} of {name}: {advice}");
            SID_HIDDEN.without_command(sentence)
        },
    )
}

/// SIDs that the kernel removed with their interface and that are missing since.
fn lost(facts: &Facts<'_>) -> Vec<Problem> {
    let mut by_link: BTreeMap<&str, Group<IpNet>> = BTreeMap::new();
    for (key, dev) in facts.lost_sids {
        let link = facts.node.links.get(dev).filter(|link| link.up);
        if let Some(link) = link.filter(|_| !facts.node.routes.contains_key(key)) {
            let group = by_link.entry(&link.name);
            let group = group.or_insert_with(|| Group::of(std::iter::empty(), facts));
            group.add(key.prefix, facts);
        }
    }
    let problems = |(link, group): (&str, Group<IpNet>)| {
        let all = format!(
            "the kernel removed SIDs when {link} went down, and their routing daemon did not install \
             them again; restart the daemon, or configure its locator again"
        );
        group.problems(facts, SIDS_LOST, all, ToString::to_string, |sid| {
            SIDS_LOST.without_command(format!(
                "the kernel removed SID {sid} when {link} went down, and its routing daemon did not \
                 install it again; restart the daemon, or configure its locator again"
            ))
        })
    };
    by_link.into_iter().flat_map(problems).collect()
}

fn domain(facts: &Facts<'_>) -> Option<Problem> {
    let domain = &facts.node.domain;
    let blocks = &domain.sid_blocks;
    let mut ports = facts.links();
    let all_outside = ports.all(|(_, link)| domain.is_outside(link));
    (!blocks.is_empty() && !facts.ports.is_empty() && all_outside).then(|| {
        let blocks: Vec<_> = blocks.iter().map(ToString::to_string).collect();
        DOMAIN_WITHOUT_INSIDE.without_command(format!(
            "the SR domain has no inside port: packets to SIDs in {} are dropped on every port; add \
             one with `sidestep domain add inside PORT`",
            blocks.join(", ")
        ))
    })
}

fn sids(facts: &Facts<'_>) -> Vec<Problem> {
    let own = facts
        .sids
        .iter()
        .filter(|(route, _)| route.owner == Owner::Sidestep);
    let own: BTreeSet<_> = own
        .map(|(route, _)| (route.key.table, route.key.prefix))
        .filter(|(_, prefix)| prefix.addr().is_ipv6())
        .collect();
    let lengths = lengths(facts.kernel);
    let unknown = own.into_iter().filter(|(table, prefix)| {
        let tables = [*table, TableId::MAIN, TableId::LOCAL];
        !tables
            .iter()
            .any(|table| is_covered(facts.kernel, &lengths, *table, *prefix))
    });
    let unknown = unknown.map(|(_, prefix)| prefix);
    Group::of(unknown, facts).problems(
        facts,
        SID_NOT_IN_KERNEL,
        "SIDs exist only in Sidestep: Linux has no routes to them, so routing daemons do not \
         announce them",
        ToString::to_string,
        |prefix| {
            SID_NOT_IN_KERNEL.problem(
                format!(
                    "SID {prefix} exists only in Sidestep: Linux has no route to it, so routing \
                     daemons do not announce it"
                ),
                format!("ip -6 route add blackhole {prefix}"),
            )
        },
    )
}

/// The lengths of the IPv6 prefixes in each table.
type Lengths = BTreeMap<TableId, BTreeSet<u8>>;

fn lengths(node: &Node) -> Lengths {
    let mut lengths = Lengths::new();
    for key in node.routes.keys().filter(|key| key.prefix.addr().is_ipv6()) {
        lengths
            .entry(key.table)
            .or_default()
            .insert(key.prefix.prefix_len());
    }
    lengths
}

/// Whether a table of the kernel has a route to this prefix, other than a default route.
fn is_covered(kernel: &Node, lengths: &Lengths, table: TableId, prefix: IpNet) -> bool {
    let lengths = lengths.get(&table).into_iter().flatten();
    let mut shorter = lengths.filter(|length| (1..=prefix.prefix_len()).contains(*length));
    shorter.any(|length| {
        let covering = IpNet::new(prefix.addr(), *length).map(|net| net.trunc());
        covering.is_ok_and(|prefix| kernel.plain_routes(table, prefix).next().is_some())
    })
}

/// Ports of SR proxies, and services that are down.
fn services(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    let name = |dev: IfIndex| {
        let link = facts.node.links.get(&dev).map(|link| &link.name);
        let name = link.or_else(|| facts.node.former_names.get(&dev));
        name.cloned().unwrap_or_else(|| dev.0.to_string())
    };
    // A port that is missing or refused has a code of its own.
    let is_requested = |name: &String| facts.ports.iter().any(|port| port.name == *name);
    for (route, local) in &facts.sids {
        let sid = route.key.prefix;
        let action = local.action.descriptor().name;
        let port = local.back().map(name);
        if let Some(port) = port.filter(|port| !is_requested(port)) {
            found.push(SERVICE_PORT_NOT_ATTACHED.problem(
                format!("{action} {sid}: its service returns packets by {port}, which is no port"),
                facts.add_port(&port),
            ));
        }
        let Some(dev) = local.oif.filter(|_| facts.node.on_down(local).is_some()) else {
            continue;
        };
        let sentence = format!("the service of {action} {sid} at {} is down", name(dev));
        found.push(match facts.survey.devices.get(&dev) {
            Some(device) if !device.up => {
                SERVICE_DOWN.problem(sentence, format!("ip link set dev {} up", name(dev)))
            }
            _ => SERVICE_DOWN.without_command(sentence),
        });
    }
    found
}

fn policies(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    for (name, policy, validity) in facts.node.policies.iter() {
        let code = if validity.active.is_some() {
            LIST_INVALID
        } else {
            POLICY_INVALID
        };
        for (candidate, lists) in policy.candidates.iter().zip(&validity.lists) {
            for invalid in lists.iter().filter_map(|list| list.invalid.as_ref()) {
                let sentence = format!(
                    "policy {name}, candidate path {}: {invalid}",
                    candidate.preference
                );
                found.push(match invalid {
                    Invalid::NoKey(key) => {
                        code.problem(sentence, format!("sidestep hmac set {key} sha256"))
                    }
                    Invalid::NoNeighbor(_, via) => {
                        code.problem(sentence, format!("ping -c 1 {via}"))
                    }
                    _ => code.without_command(sentence),
                });
            }
        }
    }
    found
}

fn rules(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    for ((port, family), why) in &facts.compiled.index.punt_reasons {
        let Some(link) = facts.node.links.get(port) else {
            continue;
        };
        let (word, option) = match family {
            AddressFamily::V4 => ("IPv4", "-4"),
            AddressFamily::V6 => ("IPv6", "-6"),
        };
        let concerns = |iif: Option<&String>| iif.is_none_or(|iif| *iif == link.name);
        let rules = facts.node.rules.range((*family, 0)..=(*family, u32::MAX));
        let named = rules
            .flat_map(|(_, rules)| rules)
            .find(|rule| {
                let unknown = !rule.unsupported.is_empty() || rule.action == RuleAction::Other;
                unknown && concerns(rule.iif.as_ref())
            })
            .map(|rule| (rule.priority, rule.owner));
        let sentence = format!("{word} packets of {} go to Linux: {why}", link.name);
        found.push(match named {
            Some((priority, Owner::Kernel)) => RULE_PUNTS.problem(
                sentence,
                format!("ip {option} rule del priority {priority}"),
            ),
            _ => RULE_PUNTS.without_command(sentence),
        });
    }
    found
}

/// Routes that the packet path cannot express, by their owner and the cause.
fn punted(facts: &Facts<'_>) -> Vec<Problem> {
    let mut groups: BTreeMap<(bool, String), Group<&Route>> = BTreeMap::new();
    for (key, why) in &facts.compiled.index.unsupported {
        let Some(of) = facts.node.routes.get(key) else {
            continue;
        };
        // These have codes of their own.
        let has_code = of.next_hops.iter().any(|hop| match &hop.encap {
            Some(Encap::Seg6Local(local)) => local.back().is_some_and(|port| !facts.is_port(port)),
            _ => false,
        }) || missing_key(facts.node, of).is_some();
        let has_encap = of.next_hops.iter().any(|hop| hop.encap.is_some());
        let is_own = of.owner == Owner::Sidestep;
        if !has_code && (is_own || has_encap) {
            let group = groups.entry((is_own, why.clone()));
            let group = group.or_insert_with(|| Group::of(std::iter::empty(), facts));
            group.add(of, facts);
        }
    }
    let prefix = |route: &&Route| route.key.prefix.to_string();
    let problems = |((is_own, why), group): ((bool, String), Group<&Route>)| {
        if is_own {
            let all = format!("routes are not in effect: {why}");
            return group.problems(facts, ROUTE_NOT_IN_EFFECT, all, prefix, |route| {
                let words = route::print(route, facts.node, Style::Add);
                ROUTE_NOT_IN_EFFECT.problem(
                    format!("route {} is not in effect: {why}", route.key.prefix),
                    format!("sidestep route del {words}"),
                )
            });
        }
        let all = format!("Linux forwards the packets of routes: {why}");
        group.problems(facts, ROUTE_PUNTED, all, prefix, |route| {
            ROUTE_PUNTED.without_command(format!(
                "Linux forwards the packets of route {}: {why}",
                route.key.prefix
            ))
        })
    };
    groups.into_iter().flat_map(problems).collect()
}

/// Returns the missing key that a headend of this route signs with.
fn missing_key(node: &Node, route: &Route) -> Option<u32> {
    let keys = route.next_hops.iter().filter_map(|hop| match &hop.encap {
        Some(Encap::Seg6(encap)) => encap.hmac,
        _ => None,
    });
    keys.into_iter()
        .find(|key| !node.hmac_keys.contains_key(key))
}

fn hmac(facts: &Facts<'_>) -> Vec<Problem> {
    let unsupported = facts.compiled.index.unsupported.keys();
    let unsigned = unsupported.filter_map(|key| {
        let missing = missing_key(facts.node, facts.node.routes.get(key)?)?;
        Some((key.prefix, missing))
    });
    let mut by_key: BTreeMap<u32, Group<IpNet>> = BTreeMap::new();
    for (prefix, key) in unsigned {
        let group = by_key.entry(key);
        let group = group.or_insert_with(|| Group::of(std::iter::empty(), facts));
        group.add(prefix, facts);
    }
    let mut found = Vec::new();
    for (key, group) in by_key {
        let repair = format!("sidestep hmac set {key} sha256");
        let all = format!("routes sign with HMAC key {key}, which does not exist");
        let mut problems = group.problems(
            facts,
            HMAC_KEY_MISSING,
            all,
            ToString::to_string,
            |prefix| {
                let sentence =
                    format!("route {prefix} signs with HMAC key {key}, which does not exist");
                HMAC_KEY_MISSING.problem(sentence, &repair)
            },
        );
        for problem in &mut problems {
            problem.repair = Some(repair.clone());
        }
        found.extend(problems);
    }
    let has_keys = !facts.node.hmac_keys.is_empty();
    let requiring = facts
        .links()
        .filter(|(_, link)| link.seg6_require_hmac > 0 && !has_keys);
    found.extend(requiring.map(|(_, link)| {
        HMAC_NO_KEYS.problem(
            format!(
                "{} requires an HMAC of every SRH, and the node has no key",
                link.name
            ),
            format!(
                "sysctl -w {}=0",
                super::sysctl("ipv6", &link.name, "seg6_require_hmac")
            ),
        )
    }));
    found
}
