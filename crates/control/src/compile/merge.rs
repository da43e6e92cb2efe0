//! Merging of tables that rules search one after the other. The longest match in the merged table
//! gives the same result.
//!
//! Proof: let Q be the longest prefix of any table or rule (`to`) that covers an address. Every
//! such prefix that covers the address is at most as long as Q, so it covers all of Q. Each table's
//! longest match for the address is therefore its longest match for Q. A rule selects the address
//! if it selects Q, so evaluating the rules with Q gives the result for the address. If the result
//! depends on the source, the same holds for the longest source prefix of all routes that are
//! candidates for Q.

use std::collections::BTreeSet;

use sidestep_datapath::RouteId;
use sidestep_model::node::TableId;

use super::chain::{RuleEffect, Step};
use super::tables::{Entry, Found, LookupResult, Prefix, Routing, Table};

/// One step of a search.
pub(crate) struct SearchStep<'a, T> {
    /// Selected destinations; true inverts the prefix. None: all destinations.
    to: Option<(Prefix, bool)>,
    action: StepAction<'a, T>,
}

enum StepAction<'a, T> {
    /// A table with its ID, and the prefix length up to which its routes are ignored.
    Table(TableId, &'a Routing<T>, Option<u8>),
    /// End of the search, with a result or without.
    End(Option<T>),
    /// Result for all packets from here on, unless the search finds a route of Sidestep.
    Kernel(Option<T>),
}

/// Search through the steps of a chain.
pub(crate) struct Search<'a, T>(Vec<SearchStep<'a, T>>);

/// Result of a search.
enum Answer<'s, T> {
    OfTable(TableId, Found<'s, T>),
    OfRule(&'s T),
}

impl<'s, T> Answer<'s, T> {
    fn route(&self) -> &'s T {
        match self {
            Self::OfTable(_, found) => found.route,
            Self::OfRule(route) => route,
        }
    }
}

/// Steps by destination, so that the steps for one destination are found directly.
struct ByDestination {
    /// Positions of the steps that select a prefix.
    within: Table<Vec<usize>>,
    /// Positions of the other steps.
    others: Vec<usize>,
}

impl ByDestination {
    /// Returns none if all steps select all destinations.
    fn of<T>(search: &Search<'_, T>) -> Option<Self> {
        let mut by_destination = Self {
            within: Table::default(),
            others: Vec::new(),
        };
        for (place, step) in search.0.iter().enumerate() {
            match step.to {
                Some((prefix, false)) => by_destination.within.entry(prefix).push(place),
                _ => by_destination.others.push(place),
            }
        }
        (by_destination.others.len() < search.0.len()).then_some(by_destination)
    }

    /// Positions of the steps that may select `to`, in order.
    fn places(&self, to: Prefix) -> Vec<usize> {
        let within = self.within.covering(to).flat_map(|(_, places)| places);
        let mut places: Vec<usize> = within.chain(&self.others).copied().collect();
        places.sort_unstable();
        places
    }
}

/// Result for a destination prefix of a merged table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MergedRoute {
    /// The same route for all sources.
    All(Option<RouteId>),
    /// A route per source prefix, including the default prefix.
    BySource(Vec<(Prefix, Option<RouteId>)>),
}

impl<'a, T: LookupResult> Search<'a, T> {
    /// Creates a search. `table` returns a table by its ID, `end` the result of a rule that ends
    /// the search.
    pub(crate) fn new(
        steps: impl IntoIterator<Item = &'a Step>,
        table: impl Fn(TableId) -> Option<&'a Routing<T>>,
        mut end: impl FnMut(&RuleEffect) -> Option<T>,
    ) -> Self {
        let step = |step: &Step| {
            let action = match &step.effect {
                RuleEffect::Lookup {
                    table: id,
                    suppress,
                } => StepAction::Table(*id, table(*id)?, *suppress),
                punt @ RuleEffect::Punt(_) => StepAction::Kernel(end(punt)),
                other => StepAction::End(end(other)),
            };
            let to = step.to.map(|to| (to.prefix.into(), to.inverted));
            Some(SearchStep { to, action })
        };
        Self(steps.into_iter().filter_map(step).collect())
    }

    /// Adds a final result for packets without another.
    pub(crate) fn or(mut self, last: Option<T>) -> Self {
        self.0.extend(last.map(|last| SearchStep {
            to: None,
            action: StepAction::End(Some(last)),
        }));
        self
    }

    /// Returns the steps that select destinations in `to`, out of `among`.
    fn steps(
        &self,
        to: Prefix,
        among: Option<&[usize]>,
    ) -> impl Iterator<Item = &StepAction<'a, T>> {
        let selects = move |step: &&SearchStep<'a, T>| {
            step.to
                .is_none_or(|(prefix, inverted)| prefix.covers(to) != inverted)
        };
        let some = among.into_iter().flatten().map(|&place| &self.0[place]);
        let all = among.is_none().then_some(&self.0).into_iter().flatten();
        some.chain(all).filter(selects).map(|step| &step.action)
    }

    /// Returns the route of a table for packets to `to` from `source`, two prefixes that no longer
    /// prefix divides. Returns none if a rule has the result.
    pub(crate) fn find(&self, to: Prefix, source: Prefix) -> Option<(TableId, Found<'_, T>)> {
        match self.find_among(to, source, None)? {
            Answer::OfTable(table, found) => Some((table, found)),
            Answer::OfRule(_) => None,
        }
    }

    fn find_among(
        &self,
        to: Prefix,
        source: Prefix,
        among: Option<&[usize]>,
    ) -> Option<Answer<'_, T>> {
        let mut kernel = None;
        for action in self.steps(to, among) {
            let found = match action {
                StepAction::Kernel(end) => {
                    kernel.get_or_insert(end.as_ref().map(Answer::OfRule));
                    continue;
                }
                StepAction::End(end) => end.as_ref().map(Answer::OfRule),
                StepAction::Table(id, table, suppress) => {
                    let found = table.find(to, source);
                    let counted = found.filter(|it| counts(it.route, it.prefix, *suppress));
                    let Some(found) = counted else {
                        continue;
                    };
                    Some(Answer::OfTable(*id, found))
                }
            };
            let is_own = found.as_ref().is_some_and(|it| it.route().is_own());
            return kernel.filter(|_| !is_own).unwrap_or(found);
        }
        kernel.flatten()
    }

    /// Returns the source prefixes that the result for `to` may depend on.
    pub(crate) fn sources(&self, to: Prefix) -> BTreeSet<Prefix> {
        self.sources_among(to, None)
    }

    fn sources_among(&self, to: Prefix, among: Option<&[usize]>) -> BTreeSet<Prefix> {
        let mut sources = BTreeSet::new();
        for action in self.steps(to, among) {
            let (table, suppress) = match action {
                StepAction::Table(_, table, suppress) => (table, suppress),
                StepAction::Kernel(_) => continue,
                StepAction::End(_) => break,
            };
            let counts = |found: &T, prefix| counts(found, prefix, *suppress);
            if table.sources(to, counts, &mut sources) {
                break;
            }
        }
        sources
    }

    /// Returns all prefixes that divide destinations, each once and in order.
    fn prefixes(&self) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        for SearchStep { to, action } in &self.0 {
            prefixes.extend(to.map(|(prefix, _)| prefix));
            match action {
                StepAction::Table(_, table, _) => {
                    prefixes.extend(table.iter().map(|(prefix, _)| *prefix));
                }
                StepAction::End(_) | StepAction::Kernel(_) => prefixes.push(Prefix::DEFAULT),
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }

    /// Returns the merged table. `route_of` returns the route of a result.
    ///
    /// A prefix may have no route: a `throw` hides shorter prefixes of its table, and no later
    /// table matches. The entry keeps a shorter merged prefix from matching.
    pub(crate) fn merge<'s>(
        &'s self,
        route_of: impl Fn(&T) -> RouteId + 's,
    ) -> impl Iterator<Item = (Prefix, MergedRoute)> + 's {
        let by_destination = ByDestination::of(self);
        self.prefixes().into_iter().map(move |to| {
            let among = by_destination
                .as_ref()
                .map(|by_destination| by_destination.places(to));
            (to, self.answers(to, among.as_deref(), &route_of))
        })
    }

    /// Returns the merged result for one prefix, or none if the merged table does not have it.
    pub(crate) fn merged(
        &self,
        to: Prefix,
        route_of: impl Fn(&T) -> RouteId,
    ) -> Option<MergedRoute> {
        let divides = |step: &SearchStep<'_, T>| {
            let of_step = step.to.is_some_and(|(prefix, _)| prefix == to);
            of_step
                || match &step.action {
                    StepAction::Table(_, table, _) => table.get(to).is_some(),
                    StepAction::End(_) | StepAction::Kernel(_) => to == Prefix::DEFAULT,
                }
        };
        self.0
            .iter()
            .any(divides)
            .then(|| self.answers(to, None, &route_of))
    }

    /// Adds the other prefixes in `changed` whose result may depend on the changed table. These are
    /// prefixes where an earlier step continues to that table, and prefixes of later steps.
    pub(crate) fn depending(
        &self,
        changed: Prefix,
        is_changed_table: impl Fn(&Routing<T>) -> bool,
        into: &mut BTreeSet<Prefix>,
    ) {
        let mut is_after_changed = false;
        for SearchStep { to, action } in &self.0 {
            into.extend(
                to.map(|(prefix, _)| prefix)
                    .filter(|to| changed.covers(*to)),
            );
            let StepAction::Table(_, table, suppress) = action else {
                continue;
            };
            let settles = |entry: &Entry<T>| {
                let of_all = entry.get(None).filter(|_| !entry.has_sources());
                suppress.is_none() && of_all.is_some_and(|found| !found.is_throw())
            };
            let below = table.below(changed);
            let matter = below.filter(|(_, entry)| is_after_changed || !settles(entry));
            into.extend(matter.map(|(prefix, _)| *prefix));
            is_after_changed |= is_changed_table(table);
        }
    }

    fn answers(
        &self,
        to: Prefix,
        among: Option<&[usize]>,
        route_of: &impl Fn(&T) -> RouteId,
    ) -> MergedRoute {
        let answer = |source| {
            let found = self.find_among(to, source, among);
            found.map(|it| route_of(it.route()))
        };
        let mut sources = self.sources_among(to, among);
        if sources.is_empty() {
            return MergedRoute::All(answer(Prefix::DEFAULT));
        }
        sources.insert(Prefix::DEFAULT);
        let by_source = distinct(sources.into_iter().map(|source| (source, answer(source))));
        match by_source[..] {
            [(_, only)] => MergedRoute::All(only),
            _ => MergedRoute::BySource(by_source),
        }
    }
}

fn counts<T: LookupResult>(found: &T, prefix: Prefix, suppress: Option<u8>) -> bool {
    let is_suppressed = |bits| found.may_be_suppressed() && prefix.length <= bits;
    !found.is_throw() && !suppress.is_some_and(is_suppressed)
}

/// Removes prefixes with the same route as the next shorter one. A prefix comes after those that
/// cover it.
fn distinct(
    all: impl Iterator<Item = (Prefix, Option<RouteId>)>,
) -> Vec<(Prefix, Option<RouteId>)> {
    let mut kept = Table::default();
    for (prefix, route_of) in all {
        if kept.longest_match(prefix).map(|(_, route_of)| *route_of) != Some(route_of) {
            kept.insert(prefix, route_of);
        }
    }
    kept.iter()
        .map(|(prefix, route_of)| (*prefix, *route_of))
        .collect()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::super::chain::Destinations;
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse::<IpNet>().unwrap().into()
    }

    /// Destination, source, route (0: throw).
    type Route<'a> = (&'a str, Option<&'a str>, u32);

    fn table(entries: &[Route<'_>]) -> Routing<u32> {
        let mut table = Routing::default();
        for &(to, from, route) in entries {
            table.entry(prefix(to)).set(from.map(prefix), route);
        }
        table
    }

    fn lookup(id: u32) -> Step {
        Step::lookup(TableId(id))
    }

    fn to(net: &str, inverted: bool, step: Step) -> Step {
        let prefix = net.parse().unwrap();
        Step {
            to: Some(Destinations { prefix, inverted }),
            ..step
        }
    }

    /// Merges the tables, numbered from 0, and returns a lookup function.
    fn merged(
        steps: &[Step],
        tables: &[Routing<u32>],
        last: Option<u32>,
    ) -> impl Fn(&str, &str) -> Option<u32> + use<> {
        let search = Search::new(steps, |id| tables.get(id.0 as usize), |_| Some(99));
        let merged: Table<MergedRoute> = search.or(last).merge(|route| RouteId(*route)).collect();
        move |address, source| {
            let (_, answers) = merged.longest_match(prefix(address))?;
            let route = match answers {
                MergedRoute::All(route) => *route,
                MergedRoute::BySource(by_source) => {
                    let by_source: Table<Option<RouteId>> = by_source.iter().copied().collect();
                    *by_source.longest_match(prefix(source)).unwrap().1
                }
            };
            route.map(|route| route.0)
        }
    }

    #[test]
    fn an_earlier_table_wins_even_with_a_shorter_prefix() {
        let tables = [
            table(&[("fc00::/16", None, 1)]),
            table(&[("fc00:1::/32", None, 2), ("::/0", None, 3)]),
        ];
        let find = merged(&[lookup(0), lookup(1)], &tables, None);
        assert_eq!(find("fc00:1::5/128", "::/0"), Some(1));
        assert_eq!(find("fd00::5/128", "::/0"), Some(3));
    }

    #[test]
    fn throw_hides_shorter_prefixes_of_its_table() {
        let tables = [
            table(&[("fc00::/16", None, 1), ("fc00:9::/32", None, 0)]),
            table(&[("fc00:9:8::/48", None, 2)]),
        ];
        for last in [None, Some(9)] {
            let find = merged(&[lookup(0), lookup(1)], &tables, last);
            assert_eq!(find("fc00:8::1/128", "::/0"), Some(1));
            assert_eq!(find("fc00:9:8::1/128", "::/0"), Some(2));
            assert_eq!(find("fc00:9:7::1/128", "::/0"), last);
            assert_eq!(find("2001::1/128", "::/0"), last);
        }
    }

    #[test]
    fn a_rule_with_to_selects_its_destinations_or_the_others() {
        let tables = [
            table(&[("::/0", None, 1)]),
            table(&[("fc00::/8", None, 2), ("::/0", None, 3)]),
        ];
        let find = merged(
            &[to("fc01::/16", false, lookup(0)), lookup(1)],
            &tables,
            None,
        );
        assert_eq!(find("fc01::1/128", "::/0"), Some(1));
        assert_eq!(find("fc02::1/128", "::/0"), Some(2));
        let find = merged(
            &[to("fc01::/16", true, lookup(0)), lookup(1)],
            &tables,
            None,
        );
        assert_eq!(find("fc01::1/128", "::/0"), Some(2));
        assert_eq!(find("fc02::1/128", "::/0"), Some(1));
        let refuse = Step {
            to: None,
            effect: RuleEffect::Punt(String::new()),
        };
        let find = merged(&[to("fc01::/16", false, refuse), lookup(1)], &tables, None);
        assert_eq!(find("fc01::1/128", "::/0"), Some(99));
        assert_eq!(find("fc02::1/128", "::/0"), Some(2));
    }

    #[test]
    fn the_merge_time_does_not_depend_on_rules_with_to() {
        let mut routes = Routing::default();
        for n in 0..20_000 {
            let net = format!("fc00:0:{n:x}::/48");
            routes.entry(prefix(&net)).set(None, 1 + n);
        }
        let merge = |rules: u32| {
            let of_rule = |n| Destinations {
                prefix: format!("fc00:0:{n:x}::/48").parse().unwrap(),
                inverted: false,
            };
            let steps = (0..rules).map(|n| Step {
                to: Some(of_rule(n)),
                effect: RuleEffect::Punt(String::new()),
            });
            let steps: Vec<Step> = steps.chain([lookup(0)]).collect();
            let begun = std::time::Instant::now();
            let search = Search::new(&steps, |_| Some(&routes), |_| Some(30_000));
            let merged: Vec<_> = search.merge(|route| RouteId(*route)).collect();
            let left = merged
                .iter()
                .filter(|(_, it)| *it == MergedRoute::All(Some(RouteId(30_000))));
            assert_eq!((left.count(), merged.len()), (rules as usize, 20_001));
            begun.elapsed()
        };
        let (few, many) = (merge(10), merge(10_000));
        assert!(many < few * 20, "{few:?} and {many:?}");
    }

    #[test]
    fn after_a_throw_the_sources_of_the_next_table_count() {
        let tables = [
            table(&[("fc01::/16", Some("fc05::/16"), 0), ("::/0", None, 1)]),
            table(&[("fc01::/16", Some("fc05:1::/32"), 2), ("::/0", None, 3)]),
        ];
        let find = merged(&[lookup(0), lookup(1)], &tables, None);
        assert_eq!(find("fc01::1/128", "fc05:1::1/128"), Some(2));
        assert_eq!(find("fc01::1/128", "fc05:2::1/128"), Some(3));
        assert_eq!(find("fc01::1/128", "fc06::1/128"), Some(1));
    }

    #[test]
    fn only_routes_with_from_depend_on_the_source() {
        let tables = [
            table(&[
                ("fc01::/16", Some("fc05::/16"), 1),
                ("fc01:1::/32", None, 2),
                ("::/0", Some("fc05:1::/32"), 0),
            ]),
            table(&[("::/0", None, 3), ("::/0", Some("fc05::/16"), 4)]),
        ];
        let steps = [lookup(0), lookup(1)];
        let find = merged(&steps, &tables, None);
        assert_eq!(find("fc01::1/128", "fc05::1/128"), Some(1));
        assert_eq!(find("fc01::1/128", "fc06::1/128"), Some(3));
        assert_eq!(find("fc02::1/128", "fc05:1::1/128"), Some(4));
        let search = Search::new(&steps, |id| tables.get(id.0 as usize), |_| None);
        let plain = search
            .merge(|route| RouteId(*route))
            .filter(|(_, it)| matches!(it, MergedRoute::All(_)));
        assert_eq!(
            plain.map(|(to, _)| to).collect::<Vec<_>>(),
            [prefix("fc01:1::/32")]
        );
    }
}
