//! The simple list that every table's answers are compared with: one hash table per length,
//! searched from the longest.

use std::collections::{BTreeMap, HashMap};

use sidestep_fib::Prefix;

use super::routes::Route;

/// Routes by length, then by address.
#[derive(Debug)]
pub struct Oracle(BTreeMap<u8, HashMap<u128, u32>>);

impl Oracle {
    /// Returns an oracle for these routes.
    pub fn new(routes: &[Route]) -> Self {
        let mut lengths: BTreeMap<u8, HashMap<u128, u32>> = BTreeMap::new();
        for Route { prefix, hop } in routes {
            lengths
                .entry(prefix.length)
                .or_default()
                .insert(prefix.address, *hop);
        }
        Self(lengths)
    }

    /// Returns the next hop of the longest match, or 0 if there is none.
    pub fn lookup(&self, address: u128) -> u32 {
        let mut longest_first = self.0.iter().rev();
        longest_first
            .find_map(|(length, routes)| routes.get(&Prefix::new(address, *length).address))
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_match_wins_and_nothing_matches_outside() {
        let route = |address, length, hop| Route {
            prefix: Prefix::new(address, length),
            hop,
        };
        let at = 0x2001_0db8_u128 << 96;
        let oracle = Oracle::new(&[route(at, 32, 1), route(at, 48, 2), route(at | 7, 128, 3)]);
        let asked = [at | 7, at | 8, at | 1 << 90, at - 1];
        assert_eq!(asked.map(|address| oracle.lookup(address)), [3, 2, 1, 0]);
    }
}
