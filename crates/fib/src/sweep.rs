//! Computes all edges of a set of prefixes in one pass, to build their trees at once.

use std::collections::BTreeMap;

use crate::Prefix;
use crate::layout::Reference;
use crate::tree::lines_for;

/// Intervals that a set of prefixes defines.
#[derive(Debug)]
pub(crate) struct Swept {
    /// Intervals of upper halves: start and route. For the /64s in `below`, a tree replaces the
    /// route.
    pub above: Vec<(u64, Reference)>,
    /// Intervals of lower halves per /64, ordered by upper half.
    pub below: Vec<(u64, Vec<(u64, Reference)>)>,
}

/// Without a prefix, one interval contains all addresses.
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
        // Prefixes that contain the current address, the longest last.
        let mut open: Vec<(Prefix, u32)> = Vec::new();
        for (&prefix, &route) in prefixes {
            swept.close(&mut open, Some(prefix.address));
            swept.begin(prefix.address, route);
            open.push((prefix, route));
        }
        swept.close(&mut open, None);
        swept
    }

    /// Ends the prefixes that end before an address, or all of them.
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

    /// Starts an interval with this route. If several prefixes start at one address, the last one
    /// counts.
    fn begin(&mut self, edge: u128, route: u32) {
        let (high, low) = ((edge >> 64) as u64, edge as u64);
        let value = Reference::route(route);
        if low == 0 {
            put(&mut self.above, high, value);
            return;
        }
        if self.below.last().is_none_or(|(of, _)| *of != high) {
            // The first interval of the /64 has the route that applied before it.
            let before = self.above.last().expect("one from 0 on").1;
            put(&mut self.above, high, before);
            self.below.push((high, vec![(0, before)]));
            if let Some(next) = high.checked_add(1) {
                self.above.push((next, before));
            }
        }
        let (_, intervals) = self.below.last_mut().expect("one was pushed");
        put(intervals, low, value);
        // A route that applies up to the end of the /64 also applies after it, unless another
        // prefix starts or ends there.
        if let Some((_, behind)) = self.above.last_mut().filter(|(at, _)| *at > high) {
            *behind = value;
        }
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        let below = self.below.iter().map(|(_, it)| it.len() - 1);
        self.above.len() - 1 + below.sum::<usize>()
    }

    /// Returns the maximum number of lines that the trees need.
    pub fn lines(&self) -> usize {
        let below: usize = self.below.iter().map(|(_, it)| lines_for(it.len())).sum();
        lines_for(self.above.len()) + below
    }
}

/// Sets the value from an address on, which is not before the last one.
fn put(intervals: &mut Vec<(u64, Reference)>, at: u64, value: Reference) {
    match intervals.last_mut() {
        Some((last, known)) if *last == at => *known = value,
        _ => intervals.push((at, value)),
    }
}
