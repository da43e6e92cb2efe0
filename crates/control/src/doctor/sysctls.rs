//! Checks of sysctls.

use sidestep_model::behavior::{Behavior, Seg6Local};
use sidestep_model::node::Link;

use super::facts::Facts;
use super::ports::IPV6_MTU_MIN;
use super::{Code, Family, sysctl};
use crate::report::Problem;

const FORWARDING6_OFF: Code = Code::error(
    "forwarding6_off",
    "`net.ipv6.conf.all.forwarding` is 0, so Linux gets all IPv6 packets of the ports and drops \
     them",
);
const FORWARDING4_OFF: Code = Code::warning(
    "forwarding4_off",
    "`net.ipv4.conf.PORT.forwarding` is 0 on a node with IPv4 addresses",
);
const IPV6_DISABLED: Code = Code::error("ipv6_disabled", "`net.ipv6.conf.PORT.disable_ipv6` is 1");
const SEG6_OFF: Code = Code::warning(
    "seg6_off",
    "`seg6_enabled` is required, and is 0 on a port of a node with SIDs, so Linux gets the packets \
     to them",
);
const RP_FILTER_STRICT: Code = Code::warning(
    "rp_filter_strict",
    "`rp_filter` is 1 on a port of a node whose SIDs decapsulate IPv4 packets",
);
const VRF_STRICT_MODE_OFF: Code = Code::warning(
    "vrf_strict_mode_off",
    "`net.vrf.strict_mode` is 0 on a node with SIDs that use a VRF table",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        FORWARDING6_OFF,
        FORWARDING4_OFF,
        IPV6_DISABLED,
        SEG6_OFF,
        RP_FILTER_STRICT,
        VRF_STRICT_MODE_OFF,
    ],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(forwarding6(facts));
    found.extend(
        facts
            .routed()
            .filter_map(|(_, link)| forwarding4(facts, link)),
    );
    found.extend(facts.routed().filter_map(|(_, link)| disabled(link)));
    if facts.node.settings.require_seg6_enabled && !facts.sids.is_empty() {
        found.extend(facts.routed().filter_map(|(_, link)| seg6(link)));
    }
    let decapsulates = |local: &Seg6Local| {
        matches!(
            local.action,
            Behavior::EndDx4 | Behavior::EndDt4 | Behavior::EndDt46
        )
    };
    if facts.sids.iter().any(|(_, local)| decapsulates(local)) {
        found.extend(facts.routed().filter_map(|(_, link)| rp_filter(link)));
    }
    found.extend(vrf_strict_mode(facts));
    found
}

/// Whether the interface has IPv6 at all. The check of the MTU reports one without.
fn has_ipv6(link: &Link) -> bool {
    !link.ipv6_disabled && link.mtu >= IPV6_MTU_MIN
}

fn forwarding6(facts: &Facts<'_>) -> Option<Problem> {
    let off: Vec<_> = facts
        .routed()
        .filter(|(_, link)| !link.forwarding6 && has_ipv6(link))
        .map(|(port, _)| port.name.as_str())
        .collect();
    (!off.is_empty()).then(|| {
        FORWARDING6_OFF.problem(
            format!(
                "IPv6 forwarding is off: Linux gets all IPv6 packets of {} and drops them",
                off.join(", ")
            ),
            "sysctl -w net.ipv6.conf.all.forwarding=1",
        )
    })
}

fn forwarding4(facts: &Facts<'_>, link: &Link) -> Option<Problem> {
    let mut addresses = facts.node.addresses.iter();
    let has_ipv4 = addresses.any(|(_, net)| net.addr().is_ipv4() && !net.addr().is_loopback());
    (has_ipv4 && !link.forwarding4).then(|| {
        FORWARDING4_OFF.problem(
            format!(
                "IPv4 forwarding is off on {}: Linux gets all its IPv4 packets and drops them",
                link.name
            ),
            format!("sysctl -w {}=1", sysctl("ipv4", &link.name, "forwarding")),
        )
    })
}

fn disabled(link: &Link) -> Option<Problem> {
    (link.ipv6_disabled && link.mtu >= IPV6_MTU_MIN).then(|| {
        IPV6_DISABLED.problem(
            format!(
                "IPv6 is disabled on {}: Linux drops all its IPv6 packets",
                link.name
            ),
            format!("sysctl -w {}=0", sysctl("ipv6", &link.name, "disable_ipv6")),
        )
    })
}

fn seg6(link: &Link) -> Option<Problem> {
    (!link.seg6_enabled && has_ipv6(link)).then(|| {
        SEG6_OFF.problem(
            format!(
                "seg6_enabled is required and off on {}: Linux gets its packets to SIDs",
                link.name
            ),
            format!(
                "sysctl -w net.ipv6.conf.all.seg6_enabled=1 {}=1",
                sysctl("ipv6", &link.name, "seg6_enabled")
            ),
        )
    })
}

fn rp_filter(link: &Link) -> Option<Problem> {
    (link.rp_filter == 1).then(|| {
        RP_FILTER_STRICT.problem(
            format!(
                "strict reverse path filtering on {}: decapsulated IPv4 packets whose source is \
                 not \
                 routed by {} go to Linux, which drops them",
                link.name, link.name
            ),
            format!("sysctl -w {}=2", sysctl("ipv4", &link.name, "rp_filter")),
        )
    })
}

fn vrf_strict_mode(facts: &Facts<'_>) -> Option<Problem> {
    let uses_vrf = facts.sids.iter().any(|(_, local)| local.vrftable.is_some());
    (uses_vrf && facts.survey.vrf_strict_mode == Some(false)).then(|| {
        VRF_STRICT_MODE_OFF.problem(
            "net.vrf.strict_mode is off: Linux refuses new SIDs with a VRF table",
            "sysctl -w net.vrf.strict_mode=1",
        )
    })
}
