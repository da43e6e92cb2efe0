//! Steps that select: a next hop or segment list by flow, a policy by DSCP; and the policy of a
//! binding SID.

use sidestep_datapath::{GroupId, RouteId};
use sidestep_model::behavior::endpoint::Descriptor;
use sidestep_model::grammar::route;
use sidestep_model::route::{Encap, Family, Route};

use super::Names;
use super::steps::{RouteName, Step, route_name};

/// Returns the step in which a flow selected a slot of a group.
pub(super) fn by_flow(names: Names<'_>, group: GroupId, route: RouteId) -> Step {
    let slots = names.index.groups.get(&group);
    let slots = slots.map_or(&[][..], |slots| slots);
    let info = names.index.routes.get(&route);
    let leads_into_policy = info.and_then(|info| encap(info.route(names.node)?));
    Step::Choice {
        next_hop: next_hop(names, route).unwrap_or_else(|| format!("route {route}")),
        slots: (
            slots.iter().filter(|&&slot| slot == route).count(),
            slots.len(),
        ),
        source: match leads_into_policy {
            Some(Encap::Policy(_) | Encap::Binding(_)) => "RFC 9256 2.11",
            _ => "RFC 6438 4",
        },
    }
}

/// Returns the step in which a DSCP selected a policy.
pub(super) fn by_dscp(names: Names<'_>, dscp: u32, route: RouteId) -> Step {
    let into = next_hop(names, route);
    Step::Class {
        dscp,
        route: match into {
            Some(words) => RouteName {
                words,
                ..route_name(names, route)
            },
            None => route_name(names, route),
        },
        source: "RFC 9256 8.6",
    }
}

/// In iproute2's words, of a record that stands for one of several.
fn next_hop(names: Names<'_>, route: RouteId) -> Option<String> {
    let info = names.index.routes.get(&route)?;
    let family = Family::of_prefix(&info.route?.prefix);
    let next_hop = info.next_hop.as_ref()?;
    Some(route::print_next_hop(next_hop, family, names.node))
}

/// Returns the behavior of a binding SID.
pub(super) fn binding<'a>(names: Names<'a>, policy: &str) -> Option<&'a Descriptor> {
    let policy = names.node.policies.defined().get(policy)?;
    Some(policy.binding().descriptor())
}

/// Returns the encapsulation of a route: that of the first next hop that has one.
pub(super) fn encap(route: &Route) -> Option<&Encap> {
    route.next_hops.iter().find_map(|hop| hop.encap.as_ref())
}
