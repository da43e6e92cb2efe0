//! SR policies at the headend (RFC 9256): candidate paths of weighted segment lists, the prefixes that are steered into
//! them, and which of that is valid now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::behavior::{Behavior, EncapMode, Seg6Encap, Seg6Local};
use crate::node::{IfIndex, Node, TableId};
use crate::route::{Encap, NextHop, Owner, Route, RouteKey, RouteKind};

mod standing;

pub use standing::{Alone, Invalid, ListStanding, Standing};

/// Preference of a candidate path that was given none (RFC 9256 2.7).
pub const PREFERENCE_DEFAULT: u32 = 100;
/// LIMIT: the largest weight of a segment list.
pub const WEIGHT_MAX: u16 = u16::MAX;
/// LIMIT: segment lists of one candidate path, each of which needs a slot.
pub const LISTS_MAX: usize = 256;
/// DSCPs are below it (RFC 2474 3).
pub const DSCPS: u8 = 64;

/// What identifies a policy at its headend (RFC 9256 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId {
    /// What it is for: a number that the operator gives to an intent, such as low delay.
    pub color: u32,
    /// Where it leads.
    pub endpoint: IpAddr,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Color and endpoint.
    pub id: PolicyId,
    /// The SID of this node that steers into it (RFC 9256 6), with End.B6.Encaps or End.B6.Encaps.Red.
    pub bsid: Option<Ipv6Addr>,
    /// How the segments come into a packet: H.Encaps or H.Encaps.Red.
    pub mode: EncapMode,
    /// HMAC key id, if the SRH is to be signed.
    pub hmac: Option<u32>,
    /// Source address of the outer header, if not the node's.
    pub tunsrc: Option<Ipv6Addr>,
    /// While nothing of it is valid, packets are dropped, not routed as if there were no policy (RFC 9256 8.2).
    pub drop_upon_invalid: bool,
    /// The candidate paths, the highest preference first; each preference once.
    pub candidates: Vec<Candidate>,
}

/// A candidate path: one way to fulfil a policy (RFC 9256 2.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Of the valid candidate paths the one with the highest preference is active (RFC 9256 2.9).
    pub preference: u32,
    /// Packets are spread over the valid ones; 1 to [`LISTS_MAX`].
    pub lists: Vec<SegmentList>,
}

/// A segment list with its share of a candidate path's flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentList {
    /// In the order of travel, 1 to [`crate::behavior::SEGMENTS_MAX`].
    pub segments: Vec<Ipv6Addr>,
    /// 1 to [`WEIGHT_MAX`]; its share is this over the sum of the valid lists' (RFC 9256 2.11).
    pub weight: u16,
}

/// What identifies a segment list of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId {
    /// Its policy.
    pub policy: PolicyId,
    /// Its candidate path.
    pub preference: u32,
    /// Its place in that, from 0.
    pub number: u16,
}

/// What a prefix is steered into (RFC 9256 8.4), by forwarding classes too (8.6): names of policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Steering {
    /// Whatever the DSCP; none: those that `by_dscp` does not name go by the IP route.
    pub policy: Option<String>,
    /// For packets with these DSCPs.
    pub by_dscp: BTreeMap<u8, String>,
}

impl ListId {
    /// Before every other.
    pub const MIN: Self = Self {
        policy: PolicyId {
            color: 0,
            endpoint: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        },
        preference: 0,
        number: 0,
    };
    /// Behind every other.
    pub const MAX: Self = Self {
        policy: PolicyId {
            color: u32::MAX,
            endpoint: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
        },
        preference: u32::MAX,
        number: u16::MAX,
    };
}

impl Steering {
    /// The policies that it names.
    pub fn policies(&self) -> BTreeSet<&str> {
        let by_dscp = self.by_dscp.values();
        self.policy
            .iter()
            .chain(by_dscp)
            .map(String::as_str)
            .collect()
    }

    /// What packets with this DSCP are steered into: the first of these that can take them.
    pub fn for_dscp(&self, dscp: u8) -> impl Iterator<Item = &str> {
        let own = self.by_dscp.get(&dscp);
        own.into_iter().chain(&self.policy).map(String::as_str)
    }
}

impl Policy {
    /// Each list with what identifies it and the candidate path that it is of.
    pub fn lists(&self) -> impl Iterator<Item = (ListId, &SegmentList)> {
        self.candidates.iter().flat_map(move |candidate| {
            let lists = candidate.lists.iter().enumerate();
            lists.map(move |(number, list)| (self.list_id(candidate, number), list))
        })
    }

    /// What identifies the list at that place of a candidate path.
    pub fn list_id(&self, candidate: &Candidate, number: usize) -> ListId {
        ListId {
            policy: self.id,
            preference: candidate.preference,
            number: number as u16,
        }
    }

    /// What a list does with a packet.
    pub fn encap(&self, list: &SegmentList) -> Seg6Encap {
        Seg6Encap {
            mode: self.mode,
            segments: list.segments.clone(),
            hmac: self.hmac,
            tunsrc: self.tunsrc,
            lookup: None,
        }
    }

    /// What the binding SID does with a packet if that list takes it.
    pub fn bound(&self, list: &SegmentList) -> Seg6Local {
        Seg6Local {
            segments: list.segments.clone(),
            ..Seg6Local::new(self.binding())
        }
    }

    /// The behavior of its binding SID.
    pub fn binding(&self) -> Behavior {
        match self.mode {
            EncapMode::EncapRed => Behavior::EndB6EncapsRed,
            _ => Behavior::EndB6Encaps,
        }
    }
}

/// The policies of a node, what is steered into them, and how they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// By name.
    defined: BTreeMap<String, Policy>,
    /// Routes into them, and those of their binding SIDs.
    routes: BTreeMap<RouteKey, Route>,
    /// How each of them stands.
    standing: BTreeMap<String, Standing>,
    /// Those of `routes` that are in the node's.
    in_effect: BTreeSet<RouteKey>,
    /// What they hide there: routes with the same key.
    beneath: BTreeMap<RouteKey, Route>,
}

impl Policies {
    /// These policies, with these routes into them. Nothing of it is in effect before [`Node::steer`].
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
        Self {
            defined,
            routes,
            ..Self::default()
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.defined.is_empty()
    }

    /// By name.
    pub fn defined(&self) -> &BTreeMap<String, Policy> {
        &self.defined
    }

    /// The policy of that name, and how it stands.
    pub fn get(&self, name: &str) -> Option<(&Policy, &Standing)> {
        Some((self.defined.get(name)?, self.standing.get(name)?))
    }

    /// Every policy with its name and how it stands.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Policy, &Standing)> {
        let standing = |name: &String| self.standing.get(name);
        let all = self.defined.iter();
        all.filter_map(move |(name, policy)| Some((name.as_str(), policy, standing(name)?)))
    }

    /// Links and addresses of the next hops toward the first segments of all lists.
    pub fn next_hops(&self) -> BTreeSet<(IfIndex, IpAddr)> {
        let lists = self
            .standing
            .values()
            .flat_map(|it| it.lists.iter().flatten());
        lists
            .flat_map(|list| list.next_hops.iter().copied())
            .collect()
    }

    /// Routes into the policies, in effect or not.
    pub fn routes(&self) -> &BTreeMap<RouteKey, Route> {
        &self.routes
    }

    /// Whether this route into a policy is in effect.
    pub fn is_in_effect(&self, key: &RouteKey) -> bool {
        self.in_effect.contains(key)
    }

    /// The route that is hidden by one into a policy, which has the same key.
    pub fn beneath(&self, key: &RouteKey) -> Option<&Route> {
        self.beneath.get(key)
    }

    /// Whether a policy takes packets now, if only to drop them.
    fn takes(&self, name: &str) -> bool {
        let found = self.get(name);
        found
            .is_some_and(|(policy, standing)| standing.active.is_some() || policy.drop_upon_invalid)
    }

    fn should_be_in_effect(&self, route: &Route) -> bool {
        let mut named = named(route).into_iter();
        named.any(|name| self.takes(name))
    }
}

/// The policies that a route leads into.
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

/// Whether a route leads into policies by an operator's word.
pub fn is_steering(route: &Route) -> bool {
    let mut hops = route.next_hops.iter();
    hops.any(|hop| matches!(hop.encap, Some(Encap::Policy(_))))
}

/// The route of a binding SID.
fn binding_route(name: &str, sid: Ipv6Addr) -> Route {
    Route {
        key: RouteKey {
            metric: METRIC,
            ..RouteKey::new(Ipv6Net::from(sid).into())
        },
        kind: RouteKind::Unicast,
        next_hops: vec![NextHop {
            encap: Some(Encap::Binding(name.to_owned())),
            ..NextHop::new()
        }],
        prefsrc: None,
        mtu: None,
        nhid: None,
        protocol: PROTOCOL_STATIC,
        owner: Owner::Sidestep,
    }
}

/// The keys of all routes of a table to a prefix, from any source and for any TOS.
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

/// Metric of a route into a policy that was given none: before every IP route (RFC 9256 8.4).
pub const METRIC: u32 = 0;
/// `RTPROT_STATIC`.
const PROTOCOL_STATIC: u8 = 4;

impl Node {
    /// Looks how the policies stand, and puts the routes into them in effect, in the place of those with the same key, or
    /// takes them out. The keys of the routes that are others now, or lead elsewhere.
    pub fn steer(&mut self) -> BTreeSet<RouteKey> {
        if self.policies.is_empty() && self.policies.in_effect.is_empty() {
            return BTreeSet::new();
        }
        let standing: BTreeMap<_, _> = self
            .policies
            .defined
            .iter()
            .map(|(name, policy)| (name.clone(), standing::of(self, policy)))
            .collect();
        let before = std::mem::replace(&mut self.policies.standing, standing);
        let differs = |name: &&str| before.get(*name) != self.policies.standing.get(*name);
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

    /// As [`Node::steer`], after these routes and neighbors changed and nothing else did: looks only if a policy may depend
    /// on one of them.
    pub fn steer_after(
        &mut self,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
    ) -> BTreeSet<RouteKey> {
        let leads = |standing: &Standing, key: &RouteKey| {
            let mut addresses = standing.lists.iter().flatten().flat_map(|it| &it.looked_up);
            addresses.any(|address| key.prefix.contains(&IpAddr::V6(*address)))
        };
        let needs = |standing: &Standing, neighbor| {
            let mut lists = standing.lists.iter().flatten();
            lists.any(|list| list.next_hops.contains(neighbor))
        };
        let mut policies = self.policies.iter();
        let depends = policies.any(|(_, _, standing)| {
            routes.iter().any(|key| leads(standing, key))
                || neighbors.iter().any(|it| needs(standing, it))
        });
        drop(policies);
        if depends {
            self.steer()
        } else {
            BTreeSet::new()
        }
    }

    /// Sets or removes a route that leads into no policy, whatever hides it.
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

    /// The route with that key that leads into no policy.
    fn plain_route(&self, key: &RouteKey) -> Option<&Route> {
        if self.policies.is_in_effect(key) {
            self.policies.beneath(key)
        } else {
            self.routes.get(key)
        }
    }

    /// The routes of a table to a prefix that lead into no policy, from any source and for any TOS; the lowest metric first.
    pub fn plain_routes(&self, table: TableId, prefix: IpNet) -> impl Iterator<Item = &Route> {
        let keys = self.routes.range(any_metric(table, prefix)).map(|it| it.0);
        keys.filter_map(|key| self.plain_route(key))
    }
}
