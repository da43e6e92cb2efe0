//! Lookups of first segments and of next hops of cross-connects: the route that each resolved to,
//! and the records that depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sidestep_datapath::PolicyId;
use sidestep_model::route::RouteKey;

use super::rules::Chains;
use super::tables::EntryKey;

/// Result of resolving an address with rule chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resolution {
    /// This route.
    Route(RouteKey),
    /// There is no route.
    #[default]
    NoRoute,
    /// The result depends on the source.
    Depends,
}

/// A lookup of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    address: IpAddr,
    /// Position of the rule chains in [`Lookups::chains`].
    chains: usize,
    /// Source of the packets, if it is known.
    source: Option<IpAddr>,
}

impl Question {
    /// Returns the first lookup of an address in the order of the map.
    fn first(address: IpAddr) -> Self {
        Self {
            address,
            chains: 0,
            source: None,
        }
    }
}

/// An object that depends on a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependent {
    /// The entry of a table, which is compiled again.
    Entry(EntryKey),
    /// The path of a segment list, which many entries share.
    Policy(PolicyId),
}

/// Lookups, and what depends on them.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    chains: Vec<Chains>,
    questions: BTreeMap<Question, Answer>,
    by_dependent: BTreeMap<Dependent, BTreeSet<Question>>,
}

#[derive(Debug, Default)]
struct Answer {
    resolution: Resolution,
    dependents: BTreeSet<Dependent>,
}

impl Lookups {
    /// Records a lookup.
    pub fn note(
        &mut self,
        dependent: Dependent,
        chains: &Chains,
        (address, source): (IpAddr, Option<IpAddr>),
        resolution: Resolution,
    ) {
        let known = self.chains.iter().position(|known| known == chains);
        let number = known.unwrap_or_else(|| {
            self.chains.push(chains.clone());
            self.chains.len() - 1
        });
        let question = Question {
            address,
            chains: number,
            source,
        };
        let answer = self.questions.entry(question).or_default();
        answer.resolution = resolution;
        answer.dependents.insert(dependent);
        let questions = self.by_dependent.entry(dependent).or_default();
        questions.insert(question);
    }

    /// Removes the lookups of an entry or a path.
    pub fn forget(&mut self, dependent: &Dependent) {
        for question in self.by_dependent.remove(dependent).unwrap_or_default() {
            if let Some(answer) = self.questions.get_mut(&question) {
                answer.dependents.remove(dependent);
                if answer.dependents.is_empty() {
                    self.questions.remove(&question);
                }
            }
        }
    }

    /// Adds the entries and paths whose lookups resolved to one of these routes.
    pub fn resolved_to(&self, is: impl Fn(&RouteKey) -> bool, into: &mut BTreeSet<Dependent>) {
        for answer in self.questions.values() {
            if matches!(&answer.resolution, Resolution::Route(key) if is(key)) {
                into.extend(answer.dependents.iter().copied());
            }
        }
    }

    /// Adds the entries and paths whose lookups have another result after the change of an entry.
    pub fn affected(
        &self,
        changed: &EntryKey,
        resolve: impl Fn(&Chains, IpAddr, Option<IpAddr>) -> Resolution,
        into: &mut BTreeSet<Dependent>,
    ) {
        let Some((first, last)) = changed.addresses() else {
            return;
        };
        let below = self.questions.range(Question::first(first)..);
        for (question, answer) in below.take_while(|(it, _)| it.address <= last) {
            let chains = &self.chains[question.chains];
            if chains.family() != changed.family || !chains.ask(changed.table_id) {
                continue;
            }
            let resolution = resolve(chains, question.address, question.source);
            let is_changed = |key: &RouteKey| EntryKey::new(key) == *changed;
            if resolution != answer.resolution
                || matches!(&resolution, Resolution::Route(key) if is_changed(key))
            {
                into.extend(answer.dependents.iter().copied());
            }
        }
    }
}
