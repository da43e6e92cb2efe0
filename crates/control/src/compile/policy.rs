//! SR policies (RFC 9256) as records: the valid segment lists of the active candidate path are the members of a group, each
//! with as many slots as its weight; a route that steers by DSCP has a group whose slots are the DSCPs.
//!
//! Which lists are valid is in the node (`sidestep_model::policy`); nothing of it is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sidestep_datapath::RouteId;
use sidestep_datapath::abi::{
    DROP_policy_invalid, PUNT_route_miss, SIDESTEP_DSCPS, SIDESTEP_ROUTE_BY_DSCP,
    SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_END_B6_ENCAPS, SIDESTEP_ROUTE_FORWARD,
    SIDESTEP_ROUTE_GROUP, SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_route,
};
use sidestep_model::policy::{
    Candidate, ListStanding, Policy, SegmentList, Standing, Steering, named,
};
use sidestep_model::route::{Encap, NextHop, Route};

use super::ids::Full;
use super::index::{Counted, RouteInfo};
use super::routes::{Outcome, Unsupported, Via, punt, record, room};
use super::share::among_valid;
use super::tables::Place;
use super::{CompileError, Pass};

/// A policy, how it stands, and its name.
type Named<'a> = (&'a str, &'a Policy, &'a Standing);
/// The record of each valid list, and what it does as a next hop, by their places.
type Ways = BTreeMap<usize, (sidestep_route, NextHop)>;
/// A route that takes packets, and the policy of it that does, if it steers by DSCP.
type Taker<'a> = (&'a Route, Option<Named<'a>>);

impl<'a> Pass<'a> {
    /// The record of a route into policies. `neighbor`: the host that it is for, on the link of the IP route that takes what
    /// it does not steer.
    pub(super) fn steered(
        &mut self,
        route: &Route,
        steering: &Steering,
        neighbor: Option<IpAddr>,
    ) -> Outcome<sidestep_route> {
        if steering.by_dscp.is_empty() {
            return self.steered_first(route, steering.policy.iter().map(String::as_str));
        }
        let mut known = BTreeMap::new();
        let mut slots = Vec::new();
        for dscp in 0..SIDESTEP_DSCPS as u8 {
            let taker = self.taker(route, dscp);
            let name = taker.map(|(route, policy)| (route.key, policy.map(|(name, ..)| name)));
            let index = match known.get(&name) {
                Some(&index) => index,
                None => self.member_by(taker, neighbor)?,
            };
            known.insert(name, index);
            slots.push(index);
        }
        Ok(sidestep_route {
            flags: SIDESTEP_ROUTE_BY_DSCP as u8,
            group: self.group_of(0, slots)?,
            ..record(SIDESTEP_ROUTE_GROUP)
        })
    }

    /// The record of a route into the first of these policies that takes packets. Without one it is not in effect.
    pub(super) fn steered_first<'n>(
        &mut self,
        route: &Route,
        names: impl Iterator<Item = &'n str>,
    ) -> Outcome<sidestep_route> {
        match self.first_that_takes(names) {
            Some(policy) => self.steered_into(route, policy),
            None => Ok(punt(PUNT_route_miss)),
        }
    }

    /// The first of these policies that is valid, or drops what it cannot send.
    fn first_that_takes<'n>(&self, names: impl Iterator<Item = &'n str>) -> Option<Named<'a>> {
        let policies = &self.node.policies;
        let mut found = names.filter_map(|name| {
            let (name, _) = policies.defined().get_key_value(name)?;
            let (policy, standing) = policies.get(name)?;
            Some((name.as_str(), policy, standing))
        });
        found.find(|(_, policy, standing)| standing.active.is_some() || policy.drop_upon_invalid)
    }

    /// The record of a route into one policy: onto its only valid list, or a group of them.
    fn steered_into(
        &mut self,
        route: &Route,
        (_, policy, standing): Named,
    ) -> Outcome<sidestep_route> {
        let Some(active) = standing.active else {
            return Ok(sidestep_route {
                reason: DROP_policy_invalid as u8,
                ..record(SIDESTEP_ROUTE_DROP)
            });
        };
        let candidate = &policy.candidates[active];
        let mut ways = Ways::new();
        for (number, (list, standing)) in candidate
            .lists
            .iter()
            .zip(&standing.lists[active])
            .enumerate()
        {
            if standing.invalid.is_some() {
                continue;
            }
            let hop = onto(route, policy, list, standing);
            let (family, encap) = (route.family(), policy.encap(list));
            let mut member = self.headend_by(family, &hop, &encap, standing.alone)?;
            if matches!(hop.encap, Some(Encap::Seg6Local(_))) {
                member.action = SIDESTEP_ROUTE_END_B6_ENCAPS as u8;
            }
            member.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
            let list = policy.list_id(candidate, number);
            member.counter = self.counter(Counted::List(route.key, list));
            ways.insert(number, (member, hop));
        }
        if let (1, Some((member, _))) = (ways.len(), ways.values().next()) {
            return Ok(*member);
        }
        match self.spread(route, &ways, &shares(candidate, &standing.lists[active])) {
            Err(Ok(Unsupported::Full(full))) => {
                // Better than no list: the kernel could do nothing with the packets.
                let weight = |number: usize| candidate.lists[number].weight;
                let heaviest = ways.into_iter().rev().max_by_key(|way| weight(way.0));
                let Some((_, (member, _))) = heaviest else {
                    return room(Err(full));
                };
                self.name_full(route, full, "; all packets go by the heaviest valid list");
                Ok(member)
            }
            spread => spread,
        }
    }

    /// The record of a route into several lists. `owners`: the list of each slot.
    fn spread(&mut self, route: &Route, ways: &Ways, owners: &[usize]) -> Outcome<sidestep_route> {
        let mut members = BTreeMap::new();
        for (number, (member, hop)) in ways {
            members.insert(*number, self.member_of_policy(route, hop, *member)?);
        }
        let slots = owners.iter().map(|number| members[number]).collect();
        Ok(sidestep_route {
            group: self.group_of(self.node.multipath_hash_seed, slots)?,
            ..record(SIDESTEP_ROUTE_GROUP)
        })
    }

    /// The index of the record into a policy for some DSCPs of a route.
    fn member_into(&mut self, route: &Route, policy: Named) -> Outcome<RouteId> {
        let mut into = self.steered_into(route, policy)?;
        into.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
        if into.counter.is_none() {
            into.counter = self.counter(Counted::Route(route.key));
        }
        let steering = Steering {
            policy: Some(policy.0.to_owned()),
            ..Steering::default()
        };
        let hop = NextHop {
            encap: Some(Encap::Policy(steering)),
            ..NextHop::new()
        };
        self.member_of_policy(route, &hop, into)
    }

    /// The index of a record that is one of several of a route into policies. What is counted for that route is no other
    /// one's, and if it was all of the route before, it is a part of it now.
    fn member_of_policy(
        &mut self,
        route: &Route,
        hop: &NextHop,
        record: sidestep_route,
    ) -> Outcome<RouteId> {
        let index = self.member(route, hop, record)?;
        if record.counter.is_some() {
            let part = RouteInfo {
                route: Some(route.clone()),
                neighbor: None,
                next_hop: Some(hop.clone()),
                counter: record.counter,
            };
            self.name_route(index, part);
        }
        Ok(index)
    }

    /// What takes packets with a DSCP, by a route that steers by it: a policy of that route, else the route that is next
    /// best, which may steer by DSCP itself. So a group by DSCP never leads to another one: packets choose by it once.
    fn taker<'r>(&self, mut route: &'r Route, dscp: u8) -> Option<Taker<'r>>
    where
        'a: 'r,
    {
        while let Some(steering) = by_dscp(route) {
            if let Some(policy) = self.first_that_takes(steering.for_dscp(dscp)) {
                return Some((route, Some(policy)));
            }
            // An IP route, or one to a shorter prefix.
            route = self.known.next_best(self.node, &route.key)?;
        }
        Some((route, None))
    }

    /// The index of the record for what takes the packets of some DSCPs. None: the kernel finds it.
    fn member_by(&mut self, taker: Option<Taker>, neighbor: Option<IpAddr>) -> Outcome<RouteId> {
        let Some((route, policy)) = taker else {
            return room(self.bare(punt(PUNT_route_miss)));
        };
        if let Some(policy) = policy {
            return self.member_into(route, policy);
        }
        // Why the kernel has to do it is said where it stands itself.
        let (record, _) = room(self.record_of(route, neighbor).map_err(Err)?)?;
        let hop = route.next_hops.first().cloned().unwrap_or_default();
        self.member(route, &hop, record)
    }

    /// Routes that steer some DSCPs alone, and so depend on the route to a prefix around theirs.
    pub(super) fn depending_on(&self, changed: &Place) -> Vec<Place> {
        let routes = self.node.policies.routes().values();
        let places = routes
            .filter(|it| by_dscp(it).is_some())
            .map(|it| Place::new(&it.key));
        let within = places
            .filter(|place| place.of() == changed.of() && changed.prefix.covers(place.prefix));
        within.collect()
    }

    /// Keeps what lists have also while they are not valid, by records that no packet meets: next hops, and counters, which go
    /// on when a list is valid again. What there is no room for is not kept.
    pub(super) fn keep_lists(&mut self) -> Result<(), CompileError> {
        self.keep_next_hops()?;
        let node = self.node;
        let mut kept = BTreeSet::new();
        for route in node.policies.routes().values() {
            let policies = named(route).into_iter();
            let policies = policies.filter_map(|name| node.policies.defined().get(name));
            for (list, _) in policies.flat_map(Policy::lists) {
                let counter = self.counter(Counted::List(route.key, list));
                kept.extend(self.kept(sidestep_route {
                    counter,
                    ..punt(PUNT_route_miss)
                }));
            }
        }
        self.hold_all(&kept);
        let before = std::mem::replace(&mut self.known.kept_counters, kept);
        self.let_all_go(&before);
        Ok(())
    }

    /// Keeps the next hops of lists, which are asked for until they answer. Of what lists have they alone change while the
    /// policies and the routes into them are the same.
    pub(super) fn keep_next_hops(&mut self) -> Result<(), CompileError> {
        let next_hops = self.node.policies.next_hops();
        if next_hops == self.known.kept_next_hops.0 {
            return Ok(());
        }
        let mut kept = BTreeSet::new();
        for &(dev, via) in &next_hops {
            match self.adjacency(dev, Via::Address(via), None) {
                Ok(adjacency) => kept.extend(self.kept(sidestep_route {
                    adjacency,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                })),
                Err(Err(error)) => return Err(error),
                Err(Ok(_)) => {}
            }
        }
        self.hold_all(&kept);
        let (_, before) = std::mem::replace(&mut self.known.kept_next_hops, (next_hops, kept));
        self.let_all_go(&before);
        Ok(())
    }

    /// The index of a record that is kept. What shares it with a route has the name of that.
    fn kept(&mut self, record: sidestep_route) -> Result<RouteId, Full> {
        let index = self.intern(record)?;
        if self.out.index.routes.contains_key(&index) {
            return Ok(index);
        }
        self.bare(record)
    }

    fn hold_all(&mut self, routes: &BTreeSet<RouteId>) {
        for &index in routes {
            self.stock.routes.hold(index);
        }
    }

    fn let_all_go(&mut self, routes: &BTreeSet<RouteId>) {
        for &index in routes {
            self.stock.routes.let_go(index);
        }
    }
}

/// Which list of a candidate path each slot is of, by their places; at least one is valid.
pub(crate) fn shares(candidate: &Candidate, standing: &[ListStanding]) -> Vec<usize> {
    let weights: Vec<u16> = candidate.lists.iter().map(|list| list.weight).collect();
    let valid: Vec<bool> = standing.iter().map(|it| it.invalid.is_none()).collect();
    among_valid(&weights, &valid)
}

/// What a list of a policy does with the packets of a route, as a next hop.
fn onto(route: &Route, policy: &Policy, list: &SegmentList, standing: &ListStanding) -> NextHop {
    let is_binding = |hop: &NextHop| matches!(hop.encap, Some(Encap::Binding(_)));
    let encap = if route.next_hops.iter().any(is_binding) {
        Encap::Seg6Local(policy.bound(list))
    } else {
        Encap::Seg6(policy.encap(list))
    };
    NextHop {
        // For the source address and the hop limit, as Linux chooses them.
        dev: standing.next_hops.first().map(|(dev, _)| *dev),
        weight: list.weight,
        encap: Some(encap),
        ..NextHop::new()
    }
}

/// What a route steers into, if it does so by DSCP.
pub(super) fn by_dscp(route: &Route) -> Option<&Steering> {
    let mut encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
    encaps.find_map(|encap| match encap {
        Encap::Policy(steering) if !steering.by_dscp.is_empty() => Some(steering),
        _ => None,
    })
}
