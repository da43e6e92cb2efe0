//! SR policies at the headend (RFC 9256): candidate paths of weighted segment lists, the prefixes
//! steered into them, and their validity.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::behavior::{Behavior, EncapMode, Seg6Encap, Seg6Local};
use crate::node::{IfIndex, Node, TableId};
use crate::route::{Encap, NextHop, NextHops, Owner, Route, RouteKey, RouteKind};

mod path;
mod validity;

pub use path::{
    ControllerPath, ControllerPaths, Originator, PathId, PathOwner, ProtocolOrigin, with_paths,
};
pub use validity::{Invalid, ListValidity, OnlyNextHop, Validity};

/// Default preference of a candidate path (RFC 9256 2.7).
pub const PREFERENCE_DEFAULT: u32 = 100;
/// LIMIT: the largest weight of a segment list.
pub const WEIGHT_MAX: u16 = u16::MAX;
/// LIMIT: segment lists of one candidate path. Each list needs a slot.
pub const LISTS_MAX: usize = 256;
/// Number of DSCP values (RFC 2474 3).
pub const DSCPS: u8 = 64;

/// Identity of a policy at its headend (RFC 9256 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId {
    /// Color: number of an intent, such as low delay.
    pub color: u32,
    /// Endpoint.
    pub endpoint: IpAddr,
}

/// An SR policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Color and endpoint.
    pub id: PolicyId,
    /// Binding SID of this node (RFC 9256 6), with End.B6.Encaps or End.B6.Encaps.Red.
    pub bsid: Option<Ipv6Addr>,
    /// Headend behavior: H.Encaps or H.Encaps.Red.
    pub mode: EncapMode,
    /// HMAC key ID of a signed SRH.
    pub hmac: Option<u32>,
    /// Source address of the outer header. `None` for the node's `tunsrc`.
    pub tunsrc: Option<Ipv6Addr>,
    /// Drop packets while the policy is invalid, instead of routing them without it (RFC 9256 8.2).
    pub drop_upon_invalid: bool,
    /// Candidate paths in descending order of preference (RFC 9256 2.9).
    pub candidates: Vec<Candidate>,
}

/// A candidate path of a policy (RFC 9256 2.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Identity.
    pub path: PathId,
    /// Preference. The valid candidate path with the highest preference is active (RFC 9256 2.9).
    pub preference: u32,
    /// Segment lists, 1 to [`LISTS_MAX`]. Flows are shared among the valid ones.
    pub lists: Vec<SegmentList>,
}

/// A segment list with its share of a candidate path's flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentList {
    /// Segments in order of travel, 1 to [`crate::behavior::SEGMENTS_MAX`].
    pub segments: Vec<Ipv6Addr>,
    /// Weight, 1 to [`WEIGHT_MAX`]. The share is the weight divided by the sum of the valid lists'
    /// weights (RFC 9256 2.11).
    pub weight: u16,
}

/// Identity of a segment list of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId {
    /// Policy.
    pub policy: PolicyId,
    /// Its candidate path.
    pub path: PathId,
    /// Position in the candidate path, from 0.
    pub number: u16,
}

/// Policies that a prefix is steered into (RFC 9256 8.4), optionally by forwarding class (8.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Steering {
    /// Policy for all DSCPs that `by_dscp` does not list. Without it, those packets follow the IP
    /// route.
    pub policy: Option<String>,
    /// Policies by DSCP.
    pub by_dscp: BTreeMap<u8, String>,
}

impl ListId {
    /// Sorts before every other list.
    pub const MIN: Self = Self {
        policy: PolicyId {
            color: 0,
            endpoint: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        },
        path: PathId::MIN,
        number: 0,
    };
    /// Sorts after every other list.
    pub const MAX: Self = Self {
        policy: PolicyId {
            color: u32::MAX,
            endpoint: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
        },
        path: PathId::MAX,
        number: u16::MAX,
    };
}

impl Steering {
    /// Returns the policies that it refers to.
    pub fn policies(&self) -> BTreeSet<&str> {
        let by_dscp = self.by_dscp.values();
        self.policy
            .iter()
            .chain(by_dscp)
            .map(String::as_str)
            .collect()
    }

    /// Returns the policies for packets with this DSCP; the first usable one takes them.
    pub fn for_dscp(&self, dscp: u8) -> impl Iterator<Item = &str> {
        let own = self.by_dscp.get(&dscp);
        own.into_iter().chain(&self.policy).map(String::as_str)
    }
}

impl Policy {
    /// Returns each list with its identity and its candidate path.
    pub fn lists(&self) -> impl Iterator<Item = (ListId, &SegmentList)> {
        self.candidates.iter().flat_map(move |candidate| {
            let lists = candidate.lists.iter().enumerate();
            lists.map(move |(number, list)| (self.list_id(candidate, number), list))
        })
    }

    /// Returns the identity of the list at this position of a candidate path.
    pub fn list_id(&self, candidate: &Candidate, number: usize) -> ListId {
        ListId {
            policy: self.id,
            path: candidate.path,
            number: number as u16,
        }
    }

    /// Returns the encapsulation that a list applies.
    pub fn encap(&self, list: &SegmentList) -> Seg6Encap {
        Seg6Encap {
            mode: self.mode,
            segments: list.segments.clone(),
            hmac: self.hmac,
            tunsrc: self.tunsrc,
            lookup: None,
        }
    }

    /// Returns the endpoint behavior that the binding SID applies with this list.
    pub fn bound(&self, list: &SegmentList) -> Seg6Local {
        Seg6Local {
            segments: list.segments.clone(),
            ..Seg6Local::new(self.binding())
        }
    }

    /// Returns the behavior of the binding SID.
    pub fn binding(&self) -> Behavior {
        match self.mode {
            EncapMode::EncapRed => Behavior::EndB6EncapsRed,
            _ => Behavior::EndB6Encaps,
        }
    }
}

/// The policies of a node, the routes steered into them, and their validity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Policies by name.
    defined: BTreeMap<String, Policy>,
    /// Routes that steer into policies, and those of binding SIDs.
    routes: BTreeMap<RouteKey, Route>,
    /// Validity of each policy.
    validity: BTreeMap<String, Validity>,
    /// Routes in effect: those of `routes` that are part of the node's.
    in_effect: BTreeSet<RouteKey>,
    /// Routes of the node that they replace, which have the same key.
    beneath: BTreeMap<RouteKey, Route>,
}

impl Policies {
    /// Returns these policies with the routes into them. They take effect with [`Node::steer`].
    pub fn new(
        defined: BTreeMap<String, Policy>,
        steering: impl IntoIterator<Item = Route>,
    ) -> Self {
        let bound = defined.iter().filter_map(|(name, policy)| {
            let sid = binding_route(name, policy.bsid?);
            Some((sid.key, sid))
        });
        let mut routes: BTreeMap<_, _> = bound.collect();
        routes.extend(steering.into_iter().map(|route| (route.key, route)));
        for route in routes.values_mut() {
            resolve_names(route, &defined);
        }
        Self {
            defined,
            routes,
            ..Self::default()
        }
    }

    /// Returns true if there is no policy.
    pub fn is_empty(&self) -> bool {
        self.defined.is_empty()
    }

    /// Policies by name.
    pub fn defined(&self) -> &BTreeMap<String, Policy> {
        &self.defined
    }

    /// Returns the policy with this name, and its validity.
    pub fn get(&self, name: &str) -> Option<(&Policy, &Validity)> {
        Some((self.defined.get(name)?, self.validity.get(name)?))
    }

    /// Returns all policies with name and validity.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Policy, &Validity)> {
        let validity = |name: &String| self.validity.get(name);
        let all = self.defined.iter();
        all.filter_map(move |(name, policy)| Some((name.as_str(), policy, validity(name)?)))
    }

    /// Returns links and addresses of the next hops toward the first segments of all lists.
    pub fn next_hops(&self) -> BTreeSet<(IfIndex, IpAddr)> {
        let lists = self
            .validity
            .values()
            .flat_map(|it| it.lists.iter().flatten());
        lists
            .flat_map(|list| list.next_hops.iter().copied())
            .collect()
    }

    /// Returns all routes into policies, in effect or not.
    pub fn routes(&self) -> &BTreeMap<RouteKey, Route> {
        &self.routes
    }

    /// Returns true if this route into a policy is in effect.
    pub fn is_in_effect(&self, key: &RouteKey) -> bool {
        self.in_effect.contains(key)
    }

    /// Returns the route that a route into a policy with the same key replaces.
    pub fn beneath(&self, key: &RouteKey) -> Option<&Route> {
        self.beneath.get(key)
    }

    /// Returns true if a policy takes packets now, including to drop them.
    fn takes(&self, name: &str) -> bool {
        let found = self.get(name);
        found
            .is_some_and(|(policy, validity)| validity.active.is_some() || policy.drop_upon_invalid)
    }

    fn should_be_in_effect(&self, route: &Route) -> bool {
        let mut named = named(route).into_iter();
        named.any(|name| self.takes(name))
    }
}

/// Returns the policies that a route steers into.
pub fn named(route: &Route) -> BTreeSet<&str> {
    let encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
    encaps
        .flat_map(|encap| match encap {
            Encap::Policy(steering) => steering.policies(),
            Encap::Binding(policy) => BTreeSet::from([policy.as_str()]),
            _ => BTreeSet::new(),
        })
        .collect()
}

/// Replaces names that stand for color and endpoint by the names of the policies with these.
fn resolve_names(route: &mut Route, defined: &BTreeMap<String, Policy>) {
    for hop in route.next_hops.make_mut() {
        let Some(Encap::Policy(steering)) = &mut hop.encap else {
            continue;
        };
        for name in steering
            .policy
            .iter_mut()
            .chain(steering.by_dscp.values_mut())
        {
            if defined.contains_key(name) {
                continue;
            }
            let id = PolicyId::from_name(name);
            let found = id.and_then(|id| defined.iter().find(|(_, policy)| policy.id == id));
            if let Some((found, _)) = found {
                name.clone_from(found);
            }
        }
    }
}

/// Returns true if an operator configured this route to steer into policies.
pub fn is_steering(route: &Route) -> bool {
    let mut hops = route.next_hops.iter();
    hops.any(|hop| matches!(hop.encap, Some(Encap::Policy(_))))
}

/// Returns the route of a binding SID.
fn binding_route(name: &str, sid: Ipv6Addr) -> Route {
    let key = RouteKey {
        metric: METRIC,
        ..RouteKey::new(Ipv6Net::from(sid).into())
    };
    own_route(key, Encap::Binding(name.to_owned()))
}

/// Returns a Sidestep-only route with this encapsulation.
pub(crate) fn own_route(key: RouteKey, encap: Encap) -> Route {
    Route {
        key,
        kind: RouteKind::Unicast,
        next_hops: NextHops::from(vec![NextHop {
            encap: Some(encap),
            ..NextHop::new()
        }]),
        prefsrc: None,
        mtu: None,
        nhid: None,
        protocol: PROTOCOL_STATIC,
        owner: Owner::Sidestep,
    }
}

/// Returns the key range of all routes of a table to a prefix, for any source and TOS.
fn any_metric(table: TableId, prefix: IpNet) -> RangeInclusive<RouteKey> {
    let first = RouteKey {
        table,
        prefix,
        from: None,
        tos: 0,
        metric: 0,
    };
    let last = RouteKey {
        metric: u32::MAX,
        ..first
    };
    first..=last
}

/// Default metric of a route into a policy. It precedes every IP route (RFC 9256 8.4).
pub const METRIC: u32 = 0;
/// `RTPROT_STATIC`.
const PROTOCOL_STATIC: u8 = 4;

impl Node {
    /// Evaluates the validity of all policies and applies or withdraws the routes into them. Routes
    /// into policies replace routes with the same key. Returns the keys of the routes that changed.
    pub fn steer(&mut self) -> BTreeSet<RouteKey> {
        if self.policies.is_empty() && self.policies.in_effect.is_empty() {
            return BTreeSet::new();
        }
        let validity: BTreeMap<_, _> = self
            .policies
            .defined
            .iter()
            .map(|(name, policy)| (name.clone(), validity::of(self, policy)))
            .collect();
        let before = std::mem::replace(&mut self.policies.validity, validity);
        let differs = |name: &&str| before.get(*name) != self.policies.validity.get(*name);
        let all: Vec<RouteKey> = self.policies.routes.keys().copied().collect();
        let mut changed = BTreeSet::new();
        for key in all {
            let route = &self.policies.routes[&key];
            let is = self.policies.in_effect.contains(&key);
            let should = self.policies.should_be_in_effect(route);
            if is != should || should && named(route).iter().any(differs) {
                changed.insert(key);
            }
            match (is, should) {
                (false, true) => {
                    let hidden = self.routes.insert(key, route.clone());
                    self.policies.in_effect.insert(key);
                    if let Some(hidden) = hidden {
                        self.policies.beneath.insert(key, hidden);
                    }
                }
                (true, false) => {
                    self.policies.in_effect.remove(&key);
                    match self.policies.beneath.remove(&key) {
                        Some(hidden) => self.routes.insert(key, hidden),
                        None => self.routes.remove(&key),
                    };
                }
                _ => {}
            }
        }
        changed
    }

    /// Like [`Node::steer`], after a change of only these routes and neighbors. Evaluates the
    /// policies only if one may depend on them.
    pub fn steer_after(
        &mut self,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
    ) -> BTreeSet<RouteKey> {
        let leads = |validity: &Validity, key: &RouteKey| {
            let mut addresses = validity.lists.iter().flatten().flat_map(|it| &it.looked_up);
            addresses.any(|address| key.prefix.contains(&IpAddr::V6(*address)))
        };
        let needs = |validity: &Validity, neighbor| {
            let mut lists = validity.lists.iter().flatten();
            lists.any(|list| list.next_hops.contains(neighbor))
        };
        let mut policies = self.policies.iter();
        let depends = policies.any(|(_, _, validity)| {
            routes.iter().any(|key| leads(validity, key))
                || neighbors.iter().any(|it| needs(validity, it))
        });
        drop(policies);
        if depends {
            self.steer()
        } else {
            BTreeSet::new()
        }
    }

    /// Sets or removes a route that steers into no policy, even if a route into a policy replaces
    /// it.
    pub fn set_route(&mut self, key: RouteKey, route: Option<Route>) {
        let routes = if self.policies.is_in_effect(&key) {
            &mut self.policies.beneath
        } else {
            &mut self.routes
        };
        match route {
            Some(route) => routes.insert(key, route),
            None => routes.remove(&key),
        };
    }

    /// Returns the route with this key that steers into no policy.
    fn plain_route(&self, key: &RouteKey) -> Option<&Route> {
        if self.policies.is_in_effect(key) {
            self.policies.beneath(key)
        } else {
            self.routes.get(key)
        }
    }

    /// Returns the routes of a table to a prefix that steer into no policy, for any source and TOS,
    /// in ascending order of metric.
    pub fn plain_routes(&self, table: TableId, prefix: IpNet) -> impl Iterator<Item = &Route> {
        let keys = self.routes.range(any_metric(table, prefix)).map(|it| it.0);
        keys.filter_map(|key| self.plain_route(key))
    }
}
