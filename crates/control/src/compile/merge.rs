//! Tables that are consulted one after the other, merged into one: the longest match in the result gives what they would
//! give.
//!
//! Why this is right: let Q be the longest prefix of any table, or of any rule's `to`, that covers an address. Every such
//! prefix that covers the address is at most as long as Q and so covers all of Q. So each table's longest match for the
//! address is its longest match for Q, a rule selects the address if it selects Q, and going through the rules with Q gives
//! the answer for the address. Where the answer depends on the source as well, the same holds of the longest source
//! prefix of any route that is in question for Q.

use std::collections::BTreeSet;

use sidestep_datapath::RouteId;
use sidestep_model::node::TableId;

use super::chain::{Does, Step};
use super::tables::{Entry, Prefix, Routing, Table, Verdict};

/// One step of a search.
pub(crate) struct Consult<'a, T> {
    /// Destinations that it is for; true: all but them. None: all.
    to: Option<(Prefix, bool)>,
    what: What<'a, T>,
}

enum What<'a, T> {
    /// A table, and the prefix length up to which its routes do not count.
    Table(&'a Routing<T>, Option<u8>),
    /// The end of the search; with an answer or without.
    End(Option<T>),
}

/// The search that a chain of tables stands for.
pub(crate) struct Search<'a, T>(Vec<Consult<'a, T>>);

/// The steps of a search by the destinations that they are for, so that those of one are found without a look at all.
struct ByTo {
    /// Places of those within a prefix.
    within: Table<Vec<usize>>,
    /// Places of the others.
    others: Vec<usize>,
}

impl ByTo {
    /// None: all steps are for all destinations.
    fn of<T>(search: &Search<'_, T>) -> Option<Self> {
        let mut by_to = Self {
            within: Table::default(),
            others: Vec::new(),
        };
        for (place, step) in search.0.iter().enumerate() {
            match step.to {
                Some((prefix, false)) => by_to.within.entry(prefix).push(place),
                _ => by_to.others.push(place),
            }
        }
        (by_to.others.len() < search.0.len()).then_some(by_to)
    }

    /// In their order: those that may be for `to`.
    fn places(&self, to: Prefix) -> Vec<usize> {
        let within = self.within.covering(to).flat_map(|(_, places)| places);
        let mut places: Vec<usize> = within.chain(&self.others).copied().collect();
        places.sort_unstable();
        places
    }
}

/// A route index; None: there is no route.
pub(crate) type Say = Option<RouteId>;

/// What a merged table says of a destination prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The same to all.
    All(Say),
    /// By the longest source prefix; that of all sources is among them.
    BySource(Vec<(Prefix, Say)>),
}

impl<'a, T: Verdict> Search<'a, T> {
    /// `table`: a table by its id, if there is one. `end`: what a rule says that ends the search.
    pub(crate) fn new(
        steps: impl IntoIterator<Item = &'a Step>,
        table: impl Fn(TableId) -> Option<&'a Routing<T>>,
        mut end: impl FnMut(&Does) -> Option<T>,
    ) -> Self {
        let consult = |step: &Step| {
            let what = match &step.does {
                Does::Lookup {
                    table: id,
                    suppress,
                } => What::Table(table(*id)?, *suppress),
                other => What::End(end(other)),
            };
            let to = step.to.map(|to| (to.prefix.into(), to.inverted));
            Some(Consult { to, what })
        };
        Self(steps.into_iter().filter_map(consult).collect())
    }

    /// Ends with this answer where nothing else does.
    pub(crate) fn or(mut self, last: Option<T>) -> Self {
        self.0.extend(last.map(|last| Consult {
            to: None,
            what: What::End(Some(last)),
        }));
        self
    }

    /// The steps that are for destinations in `to`; `among`: those that may be.
    fn steps(&self, to: Prefix, among: Option<&[usize]>) -> impl Iterator<Item = &What<'a, T>> {
        let selects = move |step: &&Consult<'a, T>| {
            step.to
                .is_none_or(|(prefix, inverted)| prefix.covers(to) != inverted)
        };
        let some = among.into_iter().flatten().map(|&place| &self.0[place]);
        let all = among.is_none().then_some(&self.0).into_iter().flatten();
        some.chain(all).filter(selects).map(|step| &step.what)
    }

    /// What is said of packets to `to` from `source`, two prefixes that nothing divides.
    pub(crate) fn find(&self, to: Prefix, source: Prefix) -> Option<&T> {
        self.find_among(to, source, None)
    }

    fn find_among(&self, to: Prefix, source: Prefix, among: Option<&[usize]>) -> Option<&T> {
        for what in self.steps(to, among) {
            match what {
                What::End(answer) => return answer.as_ref(),
                What::Table(table, suppress) => {
                    let found = table.find(to, source);
                    if let Some(found) = found.filter(|found| counts(*found, *suppress)) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// The source prefixes that the answer for `to` may depend on.
    pub(crate) fn sources(&self, to: Prefix) -> BTreeSet<Prefix> {
        self.sources_among(to, None)
    }

    fn sources_among(&self, to: Prefix, among: Option<&[usize]>) -> BTreeSet<Prefix> {
        let mut sources = BTreeSet::new();
        for what in self.steps(to, among) {
            let What::Table(table, suppress) = what else {
                break;
            };
            if table.sources(to, |found| counts(found, *suppress), &mut sources) {
                break;
            }
        }
        sources
    }

    /// All prefixes that divide destinations.
    fn prefixes(&self) -> BTreeSet<Prefix> {
        let mut prefixes = BTreeSet::new();
        for Consult { to, what } in &self.0 {
            prefixes.extend(to.map(|(prefix, _)| prefix));
            match what {
                What::Table(table, _) => prefixes.extend(table.iter().map(|(prefix, _)| *prefix)),
                What::End(_) => _ = prefixes.insert(Prefix::DEFAULT),
            }
        }
        prefixes
    }

    /// The merged table. `say`: the route of an answer.
    ///
    /// There may be a prefix without a route: where a `throw` hides shorter prefixes of its table, and no later one
    /// matches. It is there lest a shorter one of the result match instead.
    pub(crate) fn merge<'s>(
        &'s self,
        say: impl Fn(&T) -> RouteId + 's,
    ) -> impl Iterator<Item = (Prefix, Answers)> + 's {
        let by_to = ByTo::of(self);
        self.prefixes().into_iter().map(move |to| {
            let among = by_to.as_ref().map(|by_to| by_to.places(to));
            (to, self.answers(to, among.as_deref(), &say))
        })
    }

    /// What [`Search::merge`] has for one prefix; none: it does not have it.
    pub(crate) fn merged(&self, to: Prefix, say: impl Fn(&T) -> RouteId) -> Option<Answers> {
        let divides = |consult: &Consult<'_, T>| {
            let of_step = consult.to.is_some_and(|(prefix, _)| prefix == to);
            of_step
                || match &consult.what {
                    What::Table(table, _) => table.get(to).is_some(),
                    What::End(_) => to == Prefix::DEFAULT,
                }
        };
        self.0
            .iter()
            .any(divides)
            .then(|| self.answers(to, None, &say))
    }

    /// The other prefixes in `changed` whose answer may depend on what a table (`is_it`) says of all of `changed`: where a
    /// step before it goes on to it, and where a step behind it is in question.
    pub(crate) fn depending(
        &self,
        changed: Prefix,
        is_it: impl Fn(&Routing<T>) -> bool,
        into: &mut BTreeSet<Prefix>,
    ) {
        let mut is_behind = false;
        for Consult { to, what } in &self.0 {
            into.extend(
                to.map(|(prefix, _)| prefix)
                    .filter(|to| changed.covers(*to)),
            );
            let What::Table(table, suppress) = what else {
                continue;
            };
            let settles = |entry: &Entry<T>| {
                let of_all = entry.get(None).filter(|_| !entry.has_sources());
                suppress.is_none() && of_all.is_some_and(|found| !found.throws())
            };
            let below = table.below(changed);
            let matter = below.filter(|(_, entry)| is_behind || !settles(entry));
            into.extend(matter.map(|(prefix, _)| *prefix));
            is_behind |= is_it(table);
        }
    }

    fn answers(
        &self,
        to: Prefix,
        among: Option<&[usize]>,
        say: &impl Fn(&T) -> RouteId,
    ) -> Answers {
        let answer = |source| self.find_among(to, source, among).map(say);
        let mut sources = self.sources_among(to, among);
        if sources.is_empty() {
            return Answers::All(answer(Prefix::DEFAULT));
        }
        sources.insert(Prefix::DEFAULT);
        let by_source = distinct(sources.into_iter().map(|source| (source, answer(source))));
        match by_source[..] {
            [(_, only)] => Answers::All(only),
            _ => Answers::BySource(by_source),
        }
    }
}

fn counts<T: Verdict>(found: &T, suppress: Option<u8>) -> bool {
    !found.throws() && !suppress.is_some_and(|bits| found.is_suppressed(bits))
}

/// Without the prefixes that say what a shorter one says. In order, so that a prefix comes behind those that cover it.
fn distinct(all: impl Iterator<Item = (Prefix, Say)>) -> Vec<(Prefix, Say)> {
    let mut kept = Table::default();
    for (prefix, say) in all {
        if kept.longest_match(prefix).map(|(_, say)| *say) != Some(say) {
            kept.insert(prefix, say);
        }
    }
    kept.iter().map(|(prefix, say)| (*prefix, *say)).collect()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::super::chain::To;
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
            to: Some(To { prefix, inverted }),
            ..step
        }
    }

    /// The merged tables (numbered from 0), and the answer for an address.
    fn merged(
        steps: &[Step],
        tables: &[Routing<u32>],
        last: Option<u32>,
    ) -> impl Fn(&str, &str) -> Option<u32> + use<> {
        let search = Search::new(steps, |id| tables.get(id.0 as usize), |_| Some(99));
        let merged: Table<Answers> = search.or(last).merge(|route| RouteId(*route)).collect();
        move |address, source| {
            let (_, answers) = merged.longest_match(prefix(address))?;
            let route = match answers {
                Answers::All(say) => *say,
                Answers::BySource(by_source) => {
                    let by_source: Table<Say> = by_source.iter().copied().collect();
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
    fn throw_hides_shorter_prefixes_of_its_table_and_goes_on_with_the_next_one_or_nothing() {
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
    fn a_rule_with_to_is_for_its_destinations_alone_and_inverted_for_all_others() {
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
            does: Does::Leave(String::new()),
        };
        let find = merged(&[to("fc01::/16", false, refuse), lookup(1)], &tables, None);
        assert_eq!(find("fc01::1/128", "::/0"), Some(99));
        assert_eq!(find("fc02::1/128", "::/0"), Some(2));
    }

    #[test]
    fn many_rules_with_to_cost_a_route_no_look_at_each_of_them() {
        let mut routes = Routing::default();
        for n in 0..20_000 {
            let net = format!("fc00:0:{n:x}::/48");
            routes.entry(prefix(&net)).set(None, 1 + n);
        }
        let merge = |rules: u32| {
            let of_rule = |n| To {
                prefix: format!("fc00:0:{n:x}::/48").parse().unwrap(),
                inverted: false,
            };
            let steps = (0..rules).map(|n| Step {
                to: Some(of_rule(n)),
                does: Does::Leave(String::new()),
            });
            let steps: Vec<Step> = steps.chain([lookup(0)]).collect();
            let begun = std::time::Instant::now();
            let search = Search::new(&steps, |_| Some(&routes), |_| Some(30_000));
            let merged: Vec<_> = search.merge(|route| RouteId(*route)).collect();
            let left = merged
                .iter()
                .filter(|(_, it)| *it == Answers::All(Some(RouteId(30_000))));
            assert_eq!((left.count(), merged.len()), (rules as usize, 20_001));
            begun.elapsed()
        };
        let (few, many) = (merge(10), merge(10_000));
        assert!(many < few * 20, "{few:?} and {many:?}");
    }

    #[test]
    fn where_a_route_of_some_sources_throws_the_sources_of_the_next_table_count() {
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
    fn the_answer_depends_on_the_source_only_where_routes_with_from_are_in_question() {
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
            .filter(|(_, it)| matches!(it, Answers::All(_)));
        assert_eq!(
            plain.map(|(to, _)| to).collect::<Vec<_>>(),
            [prefix("fc01:1::/32")]
        );
    }
}
