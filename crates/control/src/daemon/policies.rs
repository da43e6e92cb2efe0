//! Reports and counters of SR policies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use sidestep_datapath::CounterId;
use sidestep_datapath::abi::sidestep_route_counters;
use sidestep_model::grammar::{Style, policy, route};
use sidestep_model::policy::{Candidate, ListId, Policy, Validity, named};
use sidestep_model::route::RouteKey;

use super::{Instance, PacketPath, System};
use crate::compile::{Counted, shares};
use crate::report;

impl<S: System> Instance<S> {
    pub(super) fn policies_report(&self) -> Result<report::Policies, String> {
        let sent = self.sent()?;
        let policies = self.node().policies.iter();
        Ok(policies
            .map(|(name, policy, validity)| self.policy_report(name, policy, validity, &sent))
            .collect())
    }

    fn policy_report(
        &self,
        name: &str,
        policy: &Policy,
        validity: &Validity,
        sent: &Sent,
    ) -> report::Policy {
        let node = self.node();
        let configured = self.configured.own.policies.get(name);
        let own = self.configured.own.routes.values();
        let leading = own.filter(|route| named(route).contains(name));
        let candidates = (0..policy.candidates.len())
            .map(|place| candidate_report(policy, validity, place, sent))
            .collect();
        report::Policy {
            name: name.to_owned(),
            policy: configured.map(|it| policy::print(name, it)),
            color: policy.id.color,
            endpoint: policy.id.endpoint.to_string(),
            bsid: policy.bsid.map(|sid| sid.to_string()),
            active: validity.active.map(|it| policy.candidates[it].preference),
            drop_upon_invalid: policy.drop_upon_invalid,
            candidates,
            routes: leading
                .map(|it| route::print(it, node, Style::Add))
                .collect(),
        }
    }

    /// Packets and bytes sent by each segment list, for all routes.
    fn sent(&self) -> Result<Sent, String> {
        let counters = self.tables.compiled.index.counters.iter();
        let lists = counters.filter_map(|(of, &slot)| match of {
            Counted::List(_, list) => Some((list, slot)),
            _ => None,
        });
        let counts = self.counts(lists.clone().map(|(_, slot)| slot))?;
        let mut sent = Sent::new();
        for (&list, slot) in lists {
            let counters = counts[&slot];
            let (packets, bytes) = sent.entry(list).or_default();
            *packets += counters.packets;
            *bytes += counters.bytes;
        }
        Ok(sent)
    }

    /// Counters of these routes.
    pub(super) fn counts_of_routes<'a>(
        &self,
        keys: impl Iterator<Item = &'a RouteKey>,
    ) -> Result<Counts, String> {
        let index = &self.tables.compiled.index;
        self.counts(keys.flat_map(|key| index.counters_of(*key)))
    }

    fn counts(&self, slots: impl Iterator<Item = CounterId>) -> Result<Counts, String> {
        let counts = self.tables.kernel.all_route_counters(&slots.collect());
        counts.map_err(|error| error.to_string())
    }

    /// Counters of a route, with those of the segment lists of its policies.
    pub(super) fn counted_by_route(
        &self,
        key: &RouteKey,
        counts: &Counts,
    ) -> sidestep_route_counters {
        let mut all = sidestep_route_counters::default();
        for slot in self.tables.compiled.index.counters_of(*key) {
            let counters = counts[&slot];
            all.packets += counters.packets;
            all.bytes += counters.bytes;
            all.errors += counters.errors;
        }
        all
    }
}

/// Counters by slot.
pub(super) type Counts = BTreeMap<CounterId, sidestep_route_counters>;

type Sent = BTreeMap<ListId, (u64, u64)>;

/// Returns the segment lists that replace lists of other segments. The counters of the old lists
/// are not theirs.
pub(super) fn replaced(
    before: &BTreeMap<String, Policy>,
    now: &BTreeMap<String, Policy>,
) -> BTreeSet<ListId> {
    fn segments(policies: &BTreeMap<String, Policy>) -> BTreeMap<ListId, &[Ipv6Addr]> {
        let lists = policies.values().flat_map(Policy::lists);
        lists.map(|(id, list)| (id, &list.segments[..])).collect()
    }
    let before = segments(before);
    let mut lists = segments(now);
    lists.retain(|id, segments| before.get(id).is_some_and(|before| before != segments));
    lists.into_keys().collect()
}

fn candidate_report(
    policy: &Policy,
    validity: &Validity,
    place: usize,
    sent: &Sent,
) -> report::Candidate {
    let candidate: &Candidate = &policy.candidates[place];
    let active = validity.active == Some(place);
    let stands = &validity.lists[place];
    let owners = if active {
        shares(candidate, stands)
    } else {
        vec![]
    };
    let mut lists = Vec::new();
    for (number, (list, stands)) in candidate.lists.iter().zip(stands).enumerate() {
        let own = owners.iter().filter(|owner| **owner == number).count();
        let takes = active && stands.invalid.is_none();
        let sent = sent.get(&policy.list_id(candidate, number)).copied();
        let (packets, bytes) = sent.unwrap_or_default();
        lists.push(report::SegmentList {
            segments: list.segments.iter().map(ToString::to_string).collect(),
            weight: list.weight,
            share: takes.then_some((own as u32, owners.len() as u32)),
            invalid: stands.invalid.as_ref().map(ToString::to_string),
            packets,
            bytes,
        });
    }
    report::Candidate {
        path: report::Path::from((policy.id, candidate.path)),
        preference: candidate.preference,
        active,
        lists,
    }
}

#[cfg(test)]
mod tests {
    use sidestep_model::grammar::Words;

    use super::*;

    #[test]
    fn a_list_with_other_segments_is_another_list() {
        let defined = |lists: &str| {
            let line = format!("p color 1 endpoint ::1 {lists}");
            BTreeMap::from([policy::parse(&mut Words::from_line(&line)).expect("well-formed")])
        };
        let numbers = |before: &str, now: &str| -> Vec<(u32, u16)> {
            let replaced = replaced(&defined(before), &defined(now)).into_iter();
            replaced
                .map(|list| (list.path.discriminator, list.number))
                .collect()
        };
        let two = "segs fc00::a weight 3 segs fc00::b";
        assert_eq!(numbers(two, two), []);
        assert_eq!(
            numbers(two, "drop-upon-invalid segs fc00::a segs fc00::b"),
            []
        );
        assert_eq!(
            numbers(two, "segs fc00::a,fc00::b segs fc00::b"),
            [(100, 0)]
        );
        let one_in_front = "segs fc00::c segs fc00::a segs fc00::b";
        assert_eq!(numbers(two, one_in_front), [(100, 0), (100, 1)]);
        assert_eq!(numbers(two, "preference 7 segs fc00::b"), []);
    }
}
