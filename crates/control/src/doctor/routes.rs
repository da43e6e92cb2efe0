//! Checks of routes: SIDs, headends, services, policies, rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_model::grammar::{Style, route};
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::policy::Invalid;
use sidestep_model::route::{Encap, Family as AddressFamily, Owner, Route, RouteKind, RuleAction};

use super::facts::Facts;
use super::{Code, Family};
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
    found.extend(sids(facts));
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
    lost.map(|source| {
        TUNSRC_NOT_LOCAL.problem(
            format!(
                "the tunnel source {source} is no address of this node: ICMP errors about outer \
                 packets \
                 are lost, and TCP hangs where the path MTU is too small"
            ),
            format!("ip -6 address add {source}/128 dev lo"),
        )
    })
    .collect()
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
    own.into_iter()
        .filter(|(table, prefix)| {
            let tables = [*table, TableId::MAIN, TableId::LOCAL];
            !tables
                .iter()
                .any(|table| is_covered(facts.kernel, *table, *prefix))
        })
        .map(|(_, prefix)| {
            SID_NOT_IN_KERNEL.problem(
                format!(
                    "SID {prefix} exists only in Sidestep: Linux has no route to it, so routing \
                     daemons \
                     do not announce it"
                ),
                format!("ip -6 route add blackhole {prefix}"),
            )
        })
        .collect()
}

/// Whether a table of the kernel has a route to this prefix, other than a default route.
fn is_covered(kernel: &Node, table: TableId, prefix: IpNet) -> bool {
    (1..=prefix.prefix_len()).any(|length| {
        let covering = IpNet::new(prefix.addr(), length).map(|net| net.trunc());
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

/// Routes that the packet path cannot express.
fn punted(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
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
        let words = || route::print(of, facts.node, Style::Add);
        if has_code {
            continue;
        }
        if of.owner == Owner::Sidestep {
            found.push(ROUTE_NOT_IN_EFFECT.problem(
                format!("route {} is not in effect: {why}", key.prefix),
                format!("sidestep route del {}", words()),
            ));
        } else if has_encap {
            found.push(ROUTE_PUNTED.without_command(format!(
                "Linux forwards the packets of route {}: {why}",
                key.prefix
            )));
        }
    }
    found
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
    let mut found: Vec<_> = unsigned
        .map(|(prefix, key)| {
            HMAC_KEY_MISSING.problem(
                format!("route {prefix} signs with HMAC key {key}, which does not exist"),
                format!("sidestep hmac set {key} sha256"),
            )
        })
        .collect();
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
