//! All edges of a set of prefixes in one pass, to build trees of them at once.

use std::collections::BTreeMap;

use crate::Prefix;
use crate::layout::Reference;
use crate::tree::lines_for;

/// Intervals that a set of prefixes defines.
#[derive(Debug)]
pub(crate) struct Swept {
    /// Intervals of upper halves: where they begin, and their route. Intervals of the /64s in
    /// `below` have a tree instead.
    pub above: Vec<(u64, Reference)>,
    /// Intervals of lower halves in a /64, in the order of the upper halves.
    pub below: Vec<(u64, Vec<(u64, Reference)>)>,
}

/// Without a prefix, one interval has all addresses.
impl Default for Swept {
    fn default() -> Self {
        Self {
            above: vec![(0, Reference::NONE)],
            below: Vec::new(),
        }
    }
}

impl Swept {
    pub fn new(prefixes: &BTreeMap<Prefix, u32>) -> Self {
        let mut swept = Self::default();
        // Prefixes that the sweep is in: the longest last.
        let mut open: Vec<(Prefix, u32)> = Vec::new();
        for (&prefix, &route) in prefixes {
            swept.close(&mut open, Some(prefix.address));
            swept.begin(prefix.address, route);
            open.push((prefix, route));
        }
        swept.close(&mut open, None);
        swept
    }

    /// Ends the prefixes that lie before an address; all of them, without one.
    fn close(&mut self, open: &mut Vec<(Prefix, u32)>, address: Option<u128>) {
        while let Some((prefix, _)) = open.last() {
            if address.is_some_and(|address| address <= prefix.last()) {
                return;
            }
            let end = prefix.last().checked_add(1);
            open.pop();
            if let Some(end) = end {
                self.begin(end, open.last().map_or(0, |(_, route)| *route));
            }
        }
    }

    /// From here on another route holds. If several prefixes begin at one place, the last one
    /// counts.
    fn begin(&mut self, edge: u128, route: u32) {
        let (high, low) = ((edge >> 64) as u64, edge as u64);
        let value = Reference::route(route);
        if low == 0 {
            put(&mut self.above, high, value);
            return;
        }
        if self.below.last().is_none_or(|(of, _)| *of != high) {
            // The /64 as a whole has what held before it was divided.
            let before = self.above.last().expect("one from 0 on").1;
            put(&mut self.above, high, before);
            self.below.push((high, vec![(0, before)]));
            if let Some(next) = high.checked_add(1) {
                self.above.push((next, before));
            }
        }
        let (_, intervals) = self.below.last_mut().expect("one was pushed");
        put(intervals, low, value);
        // A route that holds to the end of the /64 also holds behind it, unless another prefix
        // begins or ends there.
        if let Some((_, behind)) = self.above.last_mut().filter(|(at, _)| *at > high) {
            *behind = value;
        }
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        let below = self.below.iter().map(|(_, it)| it.len() - 1);
        self.above.len() - 1 + below.sum::<usize>()
    }

    /// Lines that the trees take at most.
    pub fn lines(&self) -> usize {
        let below: usize = self.below.iter().map(|(_, it)| lines_for(it.len())).sum();
        lines_for(self.above.len()) + below
    }
}

/// Sets what holds from a place on, which is not before the last one.
fn put(intervals: &mut Vec<(u64, Reference)>, at: u64, value: Reference) {
    match intervals.last_mut() {
        Some((last, known)) if *last == at => *known = value,
        _ => intervals.push((at, value)),
    }
}
