//! The tables that packets are looked up in, one after the other, and what rules do in between.

use std::sync::Arc;

use ipnet::IpNet;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, RouteKind};

/// What rules do with a packet, in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Chain {
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// What each rule does.
    pub(crate) steps: Vec<Step>,
    /// What follows where no step has an answer: the chain of other packets, whose view is not to be built twice.
    pub(crate) then: Option<Arc<Chain>>,
}

/// What one rule does, with which destinations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    /// None: with all of them.
    pub(crate) to: Option<Destinations>,
    pub(crate) effect: RuleEffect,
}

/// Destinations that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Destinations {
    pub(crate) prefix: IpNet,
    /// All but those of `prefix`.
    pub(crate) inverted: bool,
}

/// What a rule does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RuleEffect {
    /// Looks it up.
    Lookup {
        table: TableId,
        /// A route whose prefix has up to so many bits does not count (`suppress_prefixlength`).
        suppress: Option<u8>,
    },
    /// Ends the search: blackhole, unreachable or prohibit.
    Refuse(RouteKind),
    /// Something that only the kernel can do: in words.
    Punt(String),
}

impl Step {
    /// `lookup TABLE` and nothing else.
    pub(crate) const fn lookup(table: TableId) -> Self {
        Self {
            to: None,
            effect: RuleEffect::Lookup {
                table,
                suppress: None,
            },
        }
    }

    /// The table of a rule that says nothing but `lookup TABLE`.
    pub(crate) fn plain(&self) -> Option<TableId> {
        match *self {
            Self {
                to: None,
                effect:
                    RuleEffect::Lookup {
                        table,
                        suppress: None,
                    },
            } => Some(table),
            _ => None,
        }
    }
}

impl Chain {
    /// These tables.
    pub(crate) fn of_tables(family: Family, tables: &[TableId]) -> Self {
        Self {
            family,
            steps: tables.iter().copied().map(Step::lookup).collect(),
            then: None,
        }
    }

    /// One table alone, as End.T and the like use it.
    pub(crate) fn table(family: Family, table: TableId) -> Self {
        Self::of_tables(family, &[table])
    }

    /// All steps, with those of the chains that follow.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::successors(Some(self), |chain| chain.then.as_deref())
            .flat_map(|chain| &chain.steps)
    }

    /// The tables of all steps, in their order; one may come twice.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        self.all_steps().filter_map(|step| match step.effect {
            RuleEffect::Lookup { table, .. } => Some(table),
            _ => None,
        })
    }

    /// Whether its own steps look anything up in the table.
    pub(crate) fn asks(&self, (family, table): (Family, TableId)) -> bool {
        let mut steps = self.steps.iter();
        let asked = |effect: &RuleEffect| matches!(effect, RuleEffect::Lookup { table: it, .. } if *it == table);
        self.family == family && steps.any(|step| asked(&step.effect))
    }

    /// Adds what a rule does. False: no later rule can have a say.
    pub(crate) fn push(&mut self, step: &Step) -> bool {
        // Asked again, a table has no other answer.
        let asked = step.plain().is_some_and(|_| self.steps.contains(step));
        if !asked {
            self.steps.push(step.clone());
        }
        step.to.is_some() || matches!(step.effect, RuleEffect::Lookup { .. })
    }

    /// This chain so that it goes on with `other` where it only says the same in other words: it begins like `other`,
    /// does something of its own, and ends like `other`. (What it began with had no answer, and has none again.)
    pub(crate) fn leading_into(mut self, other: &Arc<Self>) -> Self {
        let (own, theirs) = (&self.steps, &other.steps);
        let begin = own.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let end = &theirs[begin..];
        if !end.is_empty() && begin + end.len() < own.len() && own.ends_with(end) {
            self.steps.truncate(self.steps.len() - end.len());
            self.then = Some(Arc::clone(other));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_only_inserts_a_step_goes_on_with_the_other() {
        let chain = |tables: &[u32]| {
            let tables: Vec<_> = tables.iter().copied().map(TableId).collect();
            Chain::of_tables(Family::V6, &tables)
        };
        let other = Arc::new(chain(&[255, 254, 253]));
        let inserted = chain(&[255, 7, 254, 253]).leading_into(&other);
        assert_eq!(inserted.steps, chain(&[255, 7]).steps);
        assert_eq!(inserted.then, Some(Arc::clone(&other)));
        for alone in [&[255, 7][..], &[255, 253], &[255, 7, 253], &[7, 254, 253]] {
            assert_eq!(chain(alone).leading_into(&other), chain(alone));
        }
    }
}
