//! Checks for Linux features that forwarded packets do not pass.

use sidestep_mirror::survey::Chain;

use super::facts::Facts;
use super::{Code, Family};
use crate::report::Problem;

const NFTABLES_BYPASSED: Code = Code::warning(
    "nftables_bypassed",
    "nftables has a chain with rules, or with the policy drop, that forwarded packets do not pass",
);
const IPTABLES_BYPASSED: Code = Code::warning(
    "iptables_bypassed",
    "tables of the legacy iptables have rules or policies; forwarded packets do not pass them",
);
const NAT_BYPASSED: Code = Code::warning(
    "nat_bypassed",
    "nftables translates addresses; forwarded packets are not translated",
);
const CONNTRACK_BYPASSED: Code = Code::note(
    "conntrack_bypassed",
    "conntrack tracks connections; it does not see forwarded packets",
);
const QDISC_BYPASSED: Code = Code::warning(
    "qdisc_bypassed",
    "an egress has a queueing discipline; packets of XDP ports do not pass it",
);
const TC_FILTER_BYPASSED: Code = Code::warning(
    "tc_filter_bypassed",
    "a port has TC filters that forwarded packets do not pass",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        NFTABLES_BYPASSED,
        IPTABLES_BYPASSED,
        NAT_BYPASSED,
        CONNTRACK_BYPASSED,
        QDISC_BYPASSED,
        TC_FILTER_BYPASSED,
    ],
    check,
};

/// Queueing disciplines that Linux gives to devices by itself, or that hold no packets.
const DEFAULT_QDISCS: [&str; 6] = ["noqueue", "mq", "pfifo_fast", "fq_codel", "noop", ""];

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    // Without a port nothing is bypassed.
    if facts.links().next().is_none() {
        return Vec::new();
    }
    let mut found: Vec<_> = facts
        .survey
        .chains
        .iter()
        .filter_map(|it| chain(facts, it))
        .collect();
    found.extend(legacy(facts));
    found.extend(conntrack(facts));
    found.extend(qdiscs(facts));
    found.extend(filters(facts));
    found
}

fn chain(facts: &Facts<'_>, chain: &Chain) -> Option<Problem> {
    // Frames of a port of a bridge pass the bridge, and so its filters.
    let on_port = |name: &String| facts.routed().any(|(port, _)| port.name == *name);
    let is_bypassed = match chain.hook {
        // Frames of bridges pass these hooks as soon as they have rules.
        _ if chain.family == "bridge" => false,
        "prerouting" | "forward" | "postrouting" => true,
        "ingress" => chain.devices.iter().any(on_port),
        // TC passes the egress hook, XDP does not.
        "egress" => facts.has_xdp(),
        _ => false,
    };
    if !is_bypassed || (chain.rules == 0 && !chain.drops) {
        return None;
    }
    let Chain {
        family,
        table,
        name,
        hook,
        ..
    } = chain;
    let content = match (chain.rules, chain.drops) {
        (0, _) => "the policy drop",
        (_, true) => "rules and the policy drop",
        (_, false) => "rules",
    };
    let (code, effect) = if chain.kind == "nat" {
        (NAT_BYPASSED, "are not translated")
    } else {
        (NFTABLES_BYPASSED, "do not pass it")
    };
    // No command removes an operator's filter or ends forwarding by Sidestep.
    Some(code.without_command(format!(
        "nftables chain {family} {table} {name} at hook {hook} has {content}: packets that Sidestep \
         forwards {effect}"
    )))
}

fn legacy(facts: &Facts<'_>) -> Option<Problem> {
    let tables = &facts.survey.legacy_tables;
    (!tables.is_empty()).then(|| {
        let sentence = format!(
            "legacy tables are in use ({}): packets that Sidestep forwards do not pass them",
            tables.join(", ")
        );
        IPTABLES_BYPASSED.without_command(sentence)
    })
}

fn conntrack(facts: &Facts<'_>) -> Option<Problem> {
    (facts.survey.connections > 0).then(|| {
        CONNTRACK_BYPASSED.without_command(
            "conntrack tracks connections: it does not see the packets that Sidestep forwards",
        )
    })
}

fn qdiscs(facts: &Facts<'_>) -> Vec<Problem> {
    if !facts.has_xdp() {
        return Vec::new();
    }
    let of = |link: &sidestep_model::node::Link| {
        let qdisc = &facts.survey.devices.get(&link.ifindex)?.qdisc;
        (!DEFAULT_QDISCS.contains(&qdisc.as_str())).then(|| {
            QDISC_BYPASSED.problem(
                format!(
                    "queueing discipline {qdisc} on {}: packets of XDP ports do not pass it",
                    link.name
                ),
                facts.restart("--mode tc"),
            )
        })
    };
    facts.egresses().filter_map(of).collect()
}

fn filters(facts: &Facts<'_>) -> Vec<Problem> {
    let of = |filter: &sidestep_mirror::survey::Filter| {
        let is_of_bridge = facts.node.bridge_ports.contains_key(&filter.port);
        if is_of_bridge || (filter.egress && !facts.has_xdp()) {
            return None;
        }
        let name = &facts.node.links.get(&filter.port)?.name;
        let hook = if filter.egress { "egress" } else { "ingress" };
        let sentence = format!(
            "TC filters at {hook} of {name}: packets that Sidestep forwards do not pass them"
        );
        Some(TC_FILTER_BYPASSED.without_command(sentence))
    };
    facts.survey.filters.iter().filter_map(of).collect()
}
