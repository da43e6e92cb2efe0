//! SR policies (RFC 9256) as records. The valid segment lists of the active candidate path are the
//! members of a group, with slots by weight. A route that steers by DSCP has a group with one slot
//! per DSCP.
//!
//! The node determines which lists are valid (`sidestep_model::policy`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use sidestep_datapath::abi::{
    DROP_policy_invalid, PUNT_route_miss, SIDESTEP_DSCPS, SIDESTEP_ROUTE_BY_DSCP,
    SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_END_B6_ENCAPS, SIDESTEP_ROUTE_GROUP,
    SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_route,
};
use sidestep_datapath::{PolicyId, RouteId, SessionId};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::policy::{Candidate, ListValidity, Policy, SegmentList, Steering, Validity};
use sidestep_model::route::{Encap, NextHop, Route};

use super::error::Skip;
use super::headend::Headend;
use super::index::{Counted, RouteInfo};
use super::keys::Guard;
use super::record::{punt, record};
use super::resolver::by_dscp;
use super::routes::RouteCompiler;
use super::share::among_valid;
use super::tables::EntryKey;

/// A policy with its name and its validity.
#[derive(Clone, Copy)]
struct NamedPolicy<'a> {
    name: &'a str,
    policy: &'a Policy,
    validity: &'a Validity,
}

/// A valid segment list in the record of a route.
struct ListMember {
    record: sidestep_route,
    /// The list as a next hop.
    hop: NextHop,
    /// Whether the record is of this list alone, with a path or a backup.
    is_guarded: bool,
}

/// Valid segment lists of a candidate path, by position.
type ListMembers = BTreeMap<usize, ListMember>;

/// The route that takes the packets of a DSCP.
#[derive(Clone, Copy)]
struct Taker<'a> {
    route: &'a Route,
    /// Policy of the route, if it steers by DSCP.
    policy: Option<NamedPolicy<'a>>,
}

impl<'a> RouteCompiler<'a> {
    /// Returns the record of a route into policies. `neighbor` narrows the IP route that takes the
    /// packets that are not steered.
    pub(super) fn steered(
        &mut self,
        route: &Route,
        steering: &Steering,
        neighbor: Option<IpAddr>,
    ) -> Result<sidestep_route, Skip> {
        if steering.by_dscp.is_empty() {
            return self.steered_first(route, steering.policy.iter().map(String::as_str));
        }
        let mut known = BTreeMap::new();
        let mut slots = Vec::new();
        for dscp in 0..SIDESTEP_DSCPS as u8 {
            let taker = self.taker(route, dscp);
            let name = taker.map(|it| (it.route.key, it.policy.map(|policy| policy.name)));
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

    /// Returns the record of a route into the first policy that takes packets. Without one, the
    /// route is not in effect.
    pub(super) fn steered_first<'n>(
        &mut self,
        route: &Route,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<sidestep_route, Skip> {
        match self.first_that_takes(names) {
            Some(policy) => self.steered_into(route, policy),
            None => Ok(punt(PUNT_route_miss)),
        }
    }

    /// Returns the first policy that is valid, or that drops packets while it is invalid.
    fn first_that_takes<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<NamedPolicy<'a>> {
        let policies = &self.node.policies;
        let mut found = names.filter_map(|name| {
            let (name, _) = policies.defined().get_key_value(name)?;
            let (policy, validity) = policies.get(name)?;
            Some(NamedPolicy {
                name,
                policy,
                validity,
            })
        });
        found.find(|it| it.validity.active.is_some() || it.policy.drop_upon_invalid)
    }

    /// Returns the record of a route into one policy: onto its only valid list, or a group of
    /// lists.
    fn steered_into(
        &mut self,
        route: &Route,
        named: NamedPolicy<'_>,
    ) -> Result<sidestep_route, Skip> {
        let NamedPolicy {
            policy, validity, ..
        } = named;
        let Some(active) = validity.active else {
            return Ok(sidestep_route {
                reason: DROP_policy_invalid as u8,
                ..record(SIDESTEP_ROUTE_DROP)
            });
        };
        let candidate = &policy.candidates[active];
        let mut members = ListMembers::new();
        for number in valid(&validity.lists[active]) {
            let guard = self.guard(named, (active, number));
            let mut member = self.onto_list(route, named, (active, number), guard)?;
            let list = policy.list_id(candidate, number);
            member.record.counter = self.store.counter(Counted::List(route.key, list));
            members.insert(number, member);
        }
        self.protect(route, named, active, &members);
        if let (1, Some(only)) = (members.len(), members.values().next()) {
            return Ok(only.record);
        }
        let owners = shares(candidate, &validity.lists[active]);
        match self.spread(route, &members, &owners) {
            Err(Skip::Full(full)) => {
                // Use one list, since the kernel could not forward the packets.
                let weight = |number: usize| candidate.lists[number].weight;
                let heaviest = members.into_iter().rev().max_by_key(|it| weight(it.0));
                let Some((_, heaviest)) = heaviest else {
                    return Err(full.into());
                };
                self.store
                    .report_full(route, full, "; all packets go by the heaviest valid list");
                Ok(heaviest.record)
            }
            spread => spread,
        }
    }

    /// Returns the record of a route onto a segment list, at this place among the candidate paths
    /// and their lists. It has no counter.
    fn onto_list(
        &mut self,
        route: &Route,
        named: NamedPolicy<'_>,
        (candidate, number): (usize, usize),
        guard: Option<Guard>,
    ) -> Result<ListMember, Skip> {
        let NamedPolicy {
            policy, validity, ..
        } = named;
        let list = &policy.candidates[candidate].lists[number];
        let validity = &validity.lists[candidate][number];
        let encap = self.encap(route, policy, list);
        let hop = onto(route, policy, encap.clone(), list, validity);
        let mut record = self.headend(Headend {
            table: route.key.table,
            family: route.family(),
            next_hop: &hop,
            encap: &encap,
            alone: validity.alone,
            guard,
        })?;
        if matches!(hop.encap, Some(Encap::Seg6Local(_))) {
            record.action = SIDESTEP_ROUTE_END_B6_ENCAPS as u8;
        }
        record.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
        Ok(ListMember {
            record,
            hop,
            is_guarded: guard.is_some(),
        })
    }

    /// Returns the guard of a list with a path or with a backup.
    fn guard(&self, named: NamedPolicy<'_>, place: (usize, usize)) -> Option<Guard> {
        let policy = named.policy;
        let candidate = &policy.candidates[place.0];
        let watched = &self.node.watched.lists;
        let watched = watched.get(&candidate.lists[place.1].segments);
        let is_guarded = watched.is_some() || backup_of(named.validity, place).is_some();
        is_guarded.then(|| Guard {
            list: Some(policy.list_id(candidate, place.1)),
            session: watched.map_or(SessionId::NONE, |list| SessionId(list.session)),
        })
    }

    /// Gives lists their backups.
    fn protect(
        &mut self,
        route: &Route,
        named: NamedPolicy<'_>,
        active: usize,
        members: &ListMembers,
    ) {
        for (&number, member) in members.iter().filter(|(_, it)| it.is_guarded) {
            let place = backup_of(named.validity, (active, number));
            // Without room for it, the list has no backup until the tables follow.
            let backup = place.and_then(|place| self.onto_list(route, named, place, None).ok());
            let backup = backup.map_or(PolicyId::NONE, |backup| backup.record.policy_id());
            self.store.set_backup(member.record.policy_id(), backup);
        }
    }

    /// Returns the encapsulation that a list applies to the packets of a route, or to the frames of
    /// an ether device.
    fn encap(&self, route: &Route, policy: &Policy, list: &SegmentList) -> Seg6Encap {
        let encap = policy.encap(list);
        match self.node.ether_of_table(route.key.table) {
            Some(ether) => Seg6Encap {
                mode: ether.mode(),
                tunsrc: ether.tunsrc.or(encap.tunsrc),
                ..encap
            },
            None => encap,
        }
    }

    /// Returns the record of a route into several lists. `owners` is the list of each slot.
    fn spread(
        &mut self,
        route: &Route,
        lists: &ListMembers,
        owners: &[usize],
    ) -> Result<sidestep_route, Skip> {
        let mut members = BTreeMap::new();
        for (number, list) in lists {
            let index = self.member_of_policy(route, &list.hop, list.record)?;
            members.insert(*number, index);
        }
        let slots = owners.iter().map(|number| members[number]).collect();
        Ok(sidestep_route {
            group: self.group_of(self.node.multipath_hash_seed, slots)?,
            ..record(SIDESTEP_ROUTE_GROUP)
        })
    }

    /// Returns the index of the record into a policy for some DSCPs of a route.
    fn member_into(&mut self, route: &Route, policy: NamedPolicy<'_>) -> Result<RouteId, Skip> {
        let mut into = self.steered_into(route, policy)?;
        into.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
        if into.counter.is_none() {
            into.counter = self.store.counter(Counted::Route(route.key));
        }
        let steering = Steering {
            policy: Some(policy.name.to_owned()),
            ..Steering::default()
        };
        let hop = NextHop {
            encap: Some(Encap::Policy(steering)),
            ..NextHop::new()
        };
        self.member_of_policy(route, &hop, into)
    }

    /// Returns the index of a record that is one member of a route into policies. No other route
    /// shares its counter. If the record stood for the whole route before, it is a member now.
    fn member_of_policy(
        &mut self,
        route: &Route,
        hop: &NextHop,
        record: sidestep_route,
    ) -> Result<RouteId, Skip> {
        let index = self.member(route, hop, record)?;
        if record.counter.is_some() {
            let part = RouteInfo {
                route: Some(route.key),
                is_beneath: self.store.is_beneath(route),
                neighbor: None,
                next_hop: Some(Box::new(hop.clone())),
                counter: record.counter,
            };
            self.store.set_route(index, part);
        }
        Ok(index)
    }

    /// Returns what takes the packets of a DSCP: a policy of the route, otherwise the next best
    /// route, which may steer by DSCP itself. A group by DSCP therefore never leads to another one.
    fn taker<'r>(&self, mut route: &'r Route, dscp: u8) -> Option<Taker<'r>>
    where
        'a: 'r,
    {
        while let Some(steering) = by_dscp(route) {
            if let Some(policy) = self.first_that_takes(steering.for_dscp(dscp)) {
                return Some(Taker {
                    route,
                    policy: Some(policy),
                });
            }
            // An IP route, or a route to a shorter prefix.
            route = self.resolver.next_best(self.node, &route.key)?;
        }
        Some(Taker {
            route,
            policy: None,
        })
    }

    /// Returns the index of the record that takes the packets of some DSCPs. None: the kernel looks
    /// up the route.
    fn member_by(
        &mut self,
        taker: Option<Taker<'_>>,
        neighbor: Option<IpAddr>,
    ) -> Result<RouteId, Skip> {
        let Some(Taker { route, policy }) = taker else {
            return Ok(self.store.unowned(punt(PUNT_route_miss))?);
        };
        if let Some(policy) = policy {
            return self.member_into(route, policy);
        }
        // The entry of that route itself reports why it is punted.
        let compiled = self.record_of(route, neighbor)?;
        let hop = route.next_hops.first().cloned().unwrap_or_default();
        self.member(route, &hop, compiled.record)
    }

    /// Returns routes that steer only some DSCPs, and so depend on the route to a covering prefix.
    pub(super) fn depending_on(&self, changed: &EntryKey) -> Vec<EntryKey> {
        let routes = self.node.policies.routes().values();
        let places = routes
            .filter(|it| by_dscp(it).is_some())
            .map(|it| EntryKey::new(&it.key));
        let within = places.filter(|place| {
            place.table() == changed.table() && changed.prefix.covers(place.prefix)
        });
        within.collect()
    }
}

/// Returns the place of the list that takes over from another one: the next list of its candidate
/// path, otherwise the first one of the protecting candidate path (RFC 9256 9.3). A backup has no backup
/// itself.
fn backup_of(validity: &Validity, (active, number): (usize, usize)) -> Option<(usize, usize)> {
    let lists = &validity.lists;
    let mut others = valid(&lists[active]).filter(|other| *other != number);
    let next = others.clone().find(|other| *other > number);
    let beside = next.or_else(|| others.next()).map(|other| (active, other));
    beside.or_else(|| {
        let mut behind = lists.iter().enumerate().skip(active + 1);
        behind.find_map(|(candidate, lists)| Some((candidate, valid(lists).next()?)))
    })
}

/// Returns the positions of the valid lists of a candidate path.
fn valid(lists: &[ListValidity]) -> impl Iterator<Item = usize> + Clone + '_ {
    let lists = lists.iter().enumerate();
    lists
        .filter(|(_, list)| list.invalid.is_none())
        .map(|(number, _)| number)
}

/// Returns the position of the list that owns each slot; at least one list must be valid.
pub(crate) fn shares(candidate: &Candidate, validity: &[ListValidity]) -> Vec<usize> {
    let weights: Vec<u16> = candidate.lists.iter().map(|list| list.weight).collect();
    let valid: Vec<bool> = validity.iter().map(|it| it.invalid.is_none()).collect();
    among_valid(&weights, &valid)
}

/// Returns a segment list, with its encapsulation, as a next hop of a route.
fn onto(
    route: &Route,
    policy: &Policy,
    encap: Seg6Encap,
    list: &SegmentList,
    validity: &ListValidity,
) -> NextHop {
    let is_binding = |hop: &NextHop| matches!(hop.encap, Some(Encap::Binding(_)));
    let encap = if route.next_hops.iter().any(is_binding) {
        Encap::Seg6Local(policy.bound(list))
    } else {
        Encap::Seg6(encap)
    };
    NextHop {
        // Linux chooses source address and hop limit by this device.
        dev: validity.next_hops.first().map(|(dev, _)| *dev),
        weight: list.weight,
        encap: Some(encap),
        ..NextHop::new()
    }
}
