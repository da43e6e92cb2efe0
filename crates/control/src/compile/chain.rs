//! Rule chains: the tables that a packet is looked up in, in order, and the other effects of rules.

use std::sync::Arc;

use ipnet::IpNet;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, RouteKind};

/// Effects of the rules on a packet, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Chain {
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// Effects of the rules.
    pub(crate) steps: Vec<Step>,
    /// Chain that follows if no step has an answer. It is the chain of other packets, whose view is
    /// shared.
    pub(crate) then: Option<Arc<Chain>>,
}

/// Effect of one rule, and the destinations that it selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    /// None: all destinations.
    pub(crate) to: Option<Destinations>,
    pub(crate) effect: RuleEffect,
}

/// Destinations that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Destinations {
    pub(crate) prefix: IpNet,
    /// Select all destinations except `prefix`.
    pub(crate) inverted: bool,
}

/// Effect of a rule on a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RuleEffect {
    /// Looks the packet up in a table.
    Lookup {
        table: TableId,
        /// Ignores routes whose prefix has at most this many bits (`suppress_prefixlength`).
        suppress: Option<u8>,
    },
    /// Ends the lookup: blackhole, unreachable or prohibit.
    Refuse(RouteKind),
    /// Requires the kernel, for this reason. Only Sidestep's own routes of the later tables remain:
    /// the kernel has no route instead of them.
    Punt(String),
}

impl Step {
    /// `lookup TABLE` without selectors.
    pub(crate) const fn lookup(table: TableId) -> Self {
        Self {
            to: None,
            effect: RuleEffect::Lookup {
                table,
                suppress: None,
            },
        }
    }

    /// Returns the table of a rule that is just `lookup TABLE`.
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
    /// Returns a chain of these tables.
    pub(crate) fn of_tables(family: Family, tables: &[TableId]) -> Self {
        Self {
            family,
            steps: tables.iter().copied().map(Step::lookup).collect(),
            then: None,
        }
    }

    /// Returns a chain of one table, as End.T and others use it.
    pub(crate) fn table(family: Family, table: TableId) -> Self {
        Self::of_tables(family, &[table])
    }

    /// All steps, including those of the chains that follow.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::successors(Some(self), |chain| chain.then.as_deref())
            .flat_map(|chain| &chain.steps)
    }

    /// Tables of all steps, in order; a table may occur twice.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        self.all_steps().filter_map(|step| match step.effect {
            RuleEffect::Lookup { table, .. } => Some(table),
            _ => None,
        })
    }

    /// Whether one of the chain's own steps searches the table.
    pub(crate) fn asks(&self, (family, table): (Family, TableId)) -> bool {
        let mut steps = self.steps.iter();
        let asked = |effect: &RuleEffect| match effect {
            RuleEffect::Lookup { table: it, .. } => *it == table,
            _ => false,
        };
        self.family == family && steps.any(|step| asked(&step.effect))
    }

    /// Adds a step. Returns false if no later rule can have an effect.
    pub(crate) fn push(&mut self, step: &Step) -> bool {
        // A second lookup in the same table has the same result.
        let asked = step.plain().is_some_and(|_| self.steps.contains(step));
        if !asked {
            self.steps.push(step.clone());
        }
        step.to.is_some() || !matches!(step.effect, RuleEffect::Refuse(_))
    }

    /// Puts a step in front that leaves all packets to the kernel, except for those with routes of
    /// Sidestep.
    pub(crate) fn after_punt(&self, why: &str) -> Self {
        let punt = Step {
            to: None,
            effect: RuleEffect::Punt(why.to_owned()),
        };
        Self {
            family: self.family,
            steps: std::iter::once(punt)
                .chain(self.all_steps().cloned())
                .collect(),
            then: None,
        }
    }

    /// Shortens this chain if it begins like `other`, inserts steps, and ends like `other`: it then
    /// continues with `other`. The common first steps are searched twice, and fail both times. A
    /// chain whose first steps leave packets to the kernel stays whole.
    pub(crate) fn leading_into(mut self, other: &Arc<Self>) -> Self {
        let (own, theirs) = (&self.steps, &other.steps);
        let begin = own.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let end = &theirs[begin..];
        let first = &own[..own.len().saturating_sub(end.len())];
        let punts = |step: &Step| matches!(step.effect, RuleEffect::Punt(_));
        if !end.is_empty()
            && begin + end.len() < own.len()
            && own.ends_with(end)
            && !first.iter().any(punts)
        {
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
    fn a_chain_that_inserts_a_step_continues_with_the_other() {
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
