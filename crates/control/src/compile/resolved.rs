//! Addresses that records were made for (first segments, next hops of cross-connects): which route they have, and whose
//! records depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sidestep_model::route::RouteKey;

use super::rules::Chains;
use super::tables::{Place, Prefix};

/// Where chains send an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sent {
    /// By this route.
    By(RouteKey),
    /// There is no route.
    #[default]
    Nowhere,
    /// That depends on the source.
    Depends,
}

/// An address, the number of the chains that it is looked up by, and where packets to it come from, if that is known.
type Question = (IpAddr, usize, Option<IpAddr>);

/// What was looked up, for which entries.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    chains: Vec<Chains>,
    questions: BTreeMap<Question, Answer>,
    of: BTreeMap<Place, BTreeSet<Question>>,
}

#[derive(Debug, Default)]
struct Answer {
    sent: Sent,
    asked_for: BTreeSet<Place>,
}

impl Resolved {
    /// An address was looked up for an entry.
    pub fn note(
        &mut self,
        place: Place,
        chains: &Chains,
        (address, source): (IpAddr, Option<IpAddr>),
        sent: Sent,
    ) {
        let known = self.chains.iter().position(|known| known == chains);
        let number = known.unwrap_or_else(|| {
            self.chains.push(chains.clone());
            self.chains.len() - 1
        });
        let question = (address, number, source);
        let answer = self.questions.entry(question).or_default();
        answer.sent = sent;
        answer.asked_for.insert(place);
        self.of.entry(place).or_default().insert(question);
    }

    /// An entry is made anew, or not there any more.
    pub fn forget(&mut self, place: &Place) {
        for question in self.of.remove(place).unwrap_or_default() {
            if let Some(answer) = self.questions.get_mut(&question) {
                answer.asked_for.remove(place);
                if answer.asked_for.is_empty() {
                    self.questions.remove(&question);
                }
            }
        }
    }

    /// The entries for which an address was looked up that has another route now: that of a prefix was changed.
    pub fn affected(
        &self,
        changed: &Place,
        resolve: impl Fn(&Chains, IpAddr, Option<IpAddr>) -> Sent,
        into: &mut BTreeSet<Place>,
    ) {
        let Some((first, last)) = changed.addresses() else {
            return;
        };
        let below = self.questions.range((first, 0, None)..);
        for (&(address, number, source), answer) in below.take_while(|(it, _)| it.0 <= last) {
            let chains = &self.chains[number];
            if chains.family() != changed.family || !chains.ask(changed.table) {
                continue;
            }
            let sent = resolve(chains, address, source);
            let is_changed = |key: &RouteKey| Place::new(key) == *changed;
            if sent != answer.sent || matches!(&sent, Sent::By(key) if is_changed(key)) {
                into.extend(answer.asked_for.iter().copied());
            }
        }
    }
}

impl Place {
    /// The first and the last address of its prefix.
    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (first, last) = self.prefix.bounds();
        let length = Prefix::host(match self.family {
            sidestep_model::route::Family::V4 => IpAddr::from([0; 4]),
            sidestep_model::route::Family::V6 => IpAddr::from([0; 16]),
        })
        .length;
        let host = |address| Prefix { address, length }.address(self.family);
        Some((host(first)?, host(last)?))
    }
}
