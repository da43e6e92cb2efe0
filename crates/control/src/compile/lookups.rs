//! Lookups that entries depend on: addresses of first segments and of cross-connects, with the
//! route that each resolved to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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

/// Lookups, and the entries that depend on them.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    chains: Vec<Chains>,
    questions: BTreeMap<Question, Answer>,
    by_entry: BTreeMap<EntryKey, BTreeSet<Question>>,
}

#[derive(Debug, Default)]
struct Answer {
    resolution: Resolution,
    entries: BTreeSet<EntryKey>,
}

impl Lookups {
    /// Records a lookup for an entry.
    pub fn note(
        &mut self,
        entry: EntryKey,
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
        answer.entries.insert(entry);
        self.by_entry.entry(entry).or_default().insert(question);
    }

    /// Removes the lookups of an entry that is rebuilt or removed.
    pub fn forget(&mut self, entry: &EntryKey) {
        for question in self.by_entry.remove(entry).unwrap_or_default() {
            if let Some(answer) = self.questions.get_mut(&question) {
                answer.entries.remove(entry);
                if answer.entries.is_empty() {
                    self.questions.remove(&question);
                }
            }
        }
    }

    /// Adds the entries whose lookups have another result after the change of an entry.
    pub fn affected(
        &self,
        changed: &EntryKey,
        resolve: impl Fn(&Chains, IpAddr, Option<IpAddr>) -> Resolution,
        into: &mut BTreeSet<EntryKey>,
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
                into.extend(answer.entries.iter().copied());
            }
        }
    }
}
