//! A longest-prefix-match table for IPv6 and IPv4. Readers need no locks while it changes.
//!
//! A [`Fib`] keeps the prefixes of several views in a [`Memory`]: of this process ([`Heap`]), or a
//! BPF map that programs search with `datapath/table/fib6.h`. It is a search tree over the
//! addresses at which prefixes begin and end, with one cache line per level. `layout` defines its
//! format. docs/explanation/prefix-table.md gives the reasons, and compares alternatives.
//!
//! ```
//! use sidestep_fib::{Fib, Heap, Prefix};
//!
//! let mut fib = Fib::new(Heap::new(1 << 12));
//! let prefix = Prefix::new(0x2001_0db8 << 96, 32);
//! fib.insert(1, prefix, 7)?;
//! assert_eq!(fib.lookup(1, prefix.address | 1), 7);
//! fib.remove(1, prefix)?;
//! assert_eq!(fib.lookup(1, prefix.address | 1), 0);
//! # Ok::<(), sidestep_fib::Full>(())
//! ```

mod allocator;
pub mod layout;
mod line;
mod lookup;
mod memory;
mod sweep;
pub mod sync;
mod tree;
mod view;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use allocator::Allocator;
use layout::{LINE_WORDS, LINES_MAX, ROUTE_MAX, Reference, VIEWS};
pub use lookup::lookup;
pub use memory::{Heap, Memory, VIEW_LINES};
use sweep::Swept;
use sync::Ordering;
use tree::{Trees, lines_per_change};
use view::View;

/// A prefix. Ordered by address, then by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Address. Bits after the first `length` are zero. An IPv4 address is in the first 32 bits.
    pub address: u128,
    /// Length in bits, up to 128.
    pub length: u8,
}

impl Prefix {
    /// Returns the prefix of this length (up to 128) that contains an address.
    pub const fn new(address: u128, length: u8) -> Self {
        let mask = match length {
            0 => 0,
            _ => u128::MAX << (128 - length as u32),
        };
        Self {
            address: address & mask,
            length,
        }
    }

    /// Returns its last address.
    pub const fn last(self) -> u128 {
        match self.length {
            128 => self.address,
            length => self.address | (u128::MAX >> length as u32),
        }
    }

    /// Returns whether this prefix contains another one, or equals it.
    pub const fn contains(self, other: Self) -> bool {
        self.length <= other.length && Self::new(other.address, self.length).address == self.address
    }
}

/// The memory has too few free lines for a change. Nothing has changed. Lines may become free after
/// the next grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "full: {wanted} lines of 64 bytes needed, {free} of {lines} free, {held} wait for a grace period"
)]
pub struct Full {
    /// Lines that the change may need.
    pub wanted: usize,
    /// Free lines.
    pub free: usize,
    /// Lines that readers may still use.
    pub held: usize,
    /// Lines of the memory.
    pub lines: usize,
}

impl Full {
    /// LIMIT: if this number of lines, or an eighth of all lines, waits for readers, a full table
    /// waits for them instead of growing.
    const WORTH_WAITING: usize = 1 << 16;

    /// Returns whether to wait for retired lines instead of growing. A wait is a grace period, 10
    /// to 100 ms on a busy machine, and a change retires about ten lines. If fewer lines waited, a
    /// writer with 100,000 changes per second would mostly wait.
    pub fn is_worth_waiting(&self) -> bool {
        self.held >= Self::WORTH_WAITING.max(self.lines / 8)
    }
}

/// The complete content of a view for [`Fib::replace_with`]: its prefixes in order, each once with
/// the route given last, and the resulting intervals.
#[derive(Debug, Default)]
pub struct Whole {
    prefixes: BTreeMap<Prefix, u32>,
    swept: Swept,
}

impl FromIterator<(Prefix, u32)> for Whole {
    fn from_iter<I: IntoIterator<Item = (Prefix, u32)>>(prefixes: I) -> Self {
        let prefixes = prefixes.into_iter().collect();
        let swept = Swept::new(&prefixes);
        Self { prefixes, swept }
    }
}

/// Use of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Lines of 64 bytes in total.
    pub lines: usize,
    /// Lines that are reachable or wait for a grace period, including those of the views.
    pub used: usize,
    /// Lines that wait for a grace period; part of `used`.
    pub held: usize,
    /// Inner lines above a leaf, in the highest tree over upper halves.
    pub height: u32,
    /// Edges of all trees.
    pub edges: usize,
}

/// The writer of a table. A memory has one writer.
#[derive(Debug)]
pub struct Fib<M: Memory> {
    memory: M,
    lines: Allocator,
    views: BTreeMap<u32, View>,
    /// Views of an earlier writer, and the first lines of their blocks.
    foreign: Option<(Vec<u32>, BTreeSet<u32>)>,
    /// Upper bound of the leaves of the largest view.
    most: usize,
}

impl<M: Memory> Fib<M> {
    /// Creates the table in a memory that has no readers yet. Old content is overwritten.
    ///
    /// # Panics
    /// If the memory has fewer than [`VIEW_LINES`] lines.
    pub fn new(memory: M) -> Self {
        let lines = memory.lines();
        assert!(
            lines >= VIEW_LINES,
            "{lines} lines are too few for the views"
        );
        for word in &memory.words()[..VIEWS] {
            word.store(0, Ordering::Relaxed);
        }
        Self {
            lines: Allocator::new(VIEW_LINES as u32, lines as u32),
            memory,
            views: BTreeMap::new(),
            foreign: None,
            most: 0,
        }
    }

    /// Creates a writer for a memory with readers and the content of an earlier writer. The views
    /// of that writer remain until [`Fib::drop_foreign`], except for views that this writer
    /// replaces.
    pub fn beside(memory: M) -> Self {
        let (views, taken) = walk::survey(&memory);
        let blocks = taken
            .iter()
            .map(|line| line / layout::FANOUT as u32 * layout::FANOUT as u32)
            .collect();
        Self {
            lines: Allocator::beside(VIEW_LINES as u32, memory.lines() as u32, &taken),
            memory,
            views: BTreeMap::new(),
            foreign: Some((views, blocks)),
            most: 0,
        }
    }

    /// Returns the views of an earlier writer.
    pub fn foreign(&self) -> &[u32] {
        self.foreign.as_ref().map_or(&[], |(views, _)| views)
    }

    /// Drops the content of an earlier writer, except for views that were replaced since.
    pub fn drop_foreign(&mut self) {
        if let Some((views, blocks)) = self.foreign.take() {
            for view in views {
                if !self.views.contains_key(&view) {
                    self.publish(view, Reference::NONE);
                }
            }
            for block in blocks {
                self.lines.retire(allocator::Lines::Block(block));
            }
        }
    }

    /// Copies the table into a longer memory, so that readers can switch to it before
    /// [`Fib::move_to`].
    ///
    /// # Panics
    /// If the memory is shorter.
    pub fn copy_to(&self, memory: &M) {
        let (to, from) = (memory.words(), self.memory.words());
        assert!(to.len() >= from.len(), "the memory is shorter");
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Continues in a memory that [`Fib::copy_to`] copied the table to. The table must not have
    /// changed since. Readers of the old memory keep reading it. Returns the old memory.
    ///
    /// # Panics
    /// If the memory is shorter.
    pub fn move_to(&mut self, memory: M) -> M {
        assert!(
            memory.lines() >= self.memory.lines(),
            "the memory is shorter"
        );
        self.lines.extend(memory.lines() as u32);
        std::mem::replace(&mut self.memory, memory)
    }

    /// Sets the route (1 to [`ROUTE_MAX`]) of a prefix in a view (below [`VIEWS`]). Returns the old
    /// route. Packets see the change at once.
    ///
    /// # Errors
    /// The memory is full.
    ///
    /// # Panics
    /// If view or route are out of range.
    pub fn insert(&mut self, view: u32, prefix: Prefix, route: u32) -> Result<Option<u32>, Full> {
        assert!((1..=ROUTE_MAX).contains(&route), "route {route}");
        let reserve = self.reserve(0);
        self.change(view, reserve, |it, trees| it.insert(trees, prefix, route))
    }

    /// Removes a prefix. Returns its route, if it existed.
    ///
    /// # Errors
    /// The memory is full: a removal also needs new lines before the old ones become free. After a
    /// grace period a removal always succeeds, because insertions leave a reserve.
    ///
    /// # Panics
    /// If the view is out of range.
    pub fn remove(&mut self, view: u32, prefix: Prefix) -> Result<Option<u32>, Full> {
        self.change(view, 0, |it, trees| it.remove(trees, prefix))
    }

    /// Restores the route that a prefix had before other changes, or removes the prefix again
    /// (`None`). Works as [`Fib::insert`] and [`Fib::remove`], but may also use the lines reserved
    /// for removals, and needs no line if nothing changes.
    ///
    /// # Errors
    /// The memory is full.
    ///
    /// # Panics
    /// If view or route are out of range.
    pub fn put_back(&mut self, view: u32, prefix: Prefix, route: Option<u32>) -> Result<(), Full> {
        let now = self
            .views
            .get(&view)
            .and_then(|it| it.prefixes().get(&prefix));
        if now.copied() == route {
            return Ok(());
        }
        self.change(view, 0, |it, trees| match route {
            Some(route) => it.insert(trees, prefix, route),
            None => it.remove(trees, prefix),
        })?;
        Ok(())
    }

    /// Replaces all prefixes of a view, atomically for packets. Without prefixes, the view is
    /// removed.
    ///
    /// # Errors
    /// The memory is full.
    ///
    /// # Panics
    /// If the view is out of range.
    pub fn replace(
        &mut self,
        view: u32,
        prefixes: impl IntoIterator<Item = (Prefix, u32)>,
    ) -> Result<(), Full> {
        self.replace_with(view, &mut prefixes.into_iter().collect())
    }

    /// As [`Fib::replace`], with prefixes that are already sorted, in time linear in their number.
    /// Takes the prefixes out of `whole`. If the memory is full, they remain there, so that they
    /// need not be sorted again for a longer memory.
    ///
    /// # Errors
    /// The memory is full.
    ///
    /// # Panics
    /// If the view is out of range.
    pub fn replace_with(&mut self, view: u32, whole: &mut Whole) -> Result<(), Full> {
        let lines = whole.swept.lines();
        // An empty view needs no lines.
        self.has_room(match whole.prefixes.is_empty() {
            true => 0,
            false => lines + self.reserve(lines),
        })?;
        let Whole { prefixes, swept } = std::mem::take(whole);
        let new = View::of(prefixes, swept, &mut self.trees());
        self.publish(view, new.root());
        let old = self.views.remove(&view);
        if !new.prefixes().is_empty() {
            self.views.insert(view, new);
        }
        if let Some(old) = old {
            old.retire(&mut self.trees());
        }
        self.most = self.views.values().map(View::leaves).max().unwrap_or(0);
        Ok(())
    }

    /// Returns the route index of an address in a view, or 0 if no prefix covers it.
    pub fn lookup(&self, view: u32, address: u128) -> u32 {
        lookup(&self.memory, view, address)
    }

    /// Returns the prefixes of a view in order, with their routes.
    pub fn prefixes(&self, view: u32) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        let view = self.views.get(&view);
        view.into_iter().flat_map(|view| {
            view.prefixes()
                .iter()
                .map(|(prefix, route)| (*prefix, *route))
        })
    }

    /// Returns the number of prefixes of a view.
    pub fn len(&self, view: u32) -> usize {
        self.views.get(&view).map_or(0, |it| it.prefixes().len())
    }

    /// Returns the views that have prefixes.
    pub fn views(&self) -> impl Iterator<Item = u32> + '_ {
        self.views.keys().copied()
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Begins a grace period. Call it, wait until all current readers have ended, and call
    /// [`Fib::end_grace`]. Lines retired before this call can then be reused.
    pub fn begin_grace(&mut self) {
        self.lines.begin_grace();
    }

    /// Ends a grace period; see [`Fib::begin_grace`].
    pub fn end_grace(&mut self) {
        self.lines.end_grace();
    }

    /// Returns whether lines wait for a grace period.
    pub fn has_pending(&self) -> bool {
        self.lines.held() > 0
    }

    /// Returns the use of the memory.
    pub fn usage(&self) -> Usage {
        Usage {
            lines: self.memory.lines(),
            used: VIEW_LINES + self.lines.in_use(),
            held: self.lines.held(),
            height: self
                .views
                .values()
                .map(|view| view.root())
                .filter(|root| root.is_tree())
                .map(Reference::height)
                .max()
                .unwrap_or(0),
            edges: self.views.values().map(View::edges).sum(),
        }
    }

    fn change<T>(
        &mut self,
        view: u32,
        reserve: usize,
        change: impl FnOnce(&mut View, &mut Trees<'_, M>) -> T,
    ) -> Result<T, Full> {
        self.lower(view)?;
        let leaves = self.views.get(&view).map_or(0, View::leaves);
        let wanted = EDGES_PER_CHANGE * lines_per_change(leaves) + reserve;
        self.has_room(wanted)?;
        let spare = self.lines.free() - wanted;
        let mut it = self.views.remove(&view).unwrap_or_default();
        let before = it.root();
        let mut trees = self.trees();
        trees.spare = spare;
        let done = change(&mut it, &mut trees);
        it.settle(&mut trees);
        self.most = self.most.max(it.leaves());
        if it.root() != before {
            self.publish(view, it.root());
        }
        if !it.prefixes().is_empty() {
            let sparse = it.take_sparse();
            self.views.insert(view, it);
            if sparse {
                // Skip the rebuild if the memory has no space for it.
                let _ = self.rebuild(view);
            }
        } else if it.root() != Reference::NONE {
            self.publish(view, Reference::NONE);
            it.retire(&mut self.trees());
        }
        Ok(done)
    }

    /// Ensures that a change of a view does not make a tree higher than readers can follow.
    fn lower(&mut self, view: u32) -> Result<(), Full> {
        let is_tall = |fib: &Self| fib.views.get(&view).is_some_and(View::is_tall);
        if is_tall(self) {
            self.rebuild(view)?;
        }
        // If the tree is still too high, report that no memory is large enough.
        let wanted = if is_tall(self) { LINES_MAX } else { 0 };
        self.has_room(wanted)
    }

    /// Rewrites a view without its removed prefixes.
    fn rebuild(&mut self, view: u32) -> Result<(), Full> {
        let prefixes: Vec<_> = self.prefixes(view).collect();
        self.replace(view, prefixes)
    }

    /// One in this many lines is reserved for removing prefixes from any view: a removal must not
    /// fail for lack of lines.
    fn reserve(&self, lines: usize) -> usize {
        EDGES_PER_CHANGE * lines_per_change(self.most.max(lines))
    }

    fn has_room(&self, wanted: usize) -> Result<(), Full> {
        let free = self.lines.free();
        if wanted <= free {
            return Ok(());
        }
        Err(Full {
            wanted,
            free,
            held: self.lines.held(),
            lines: self.memory.lines(),
        })
    }

    fn trees(&mut self) -> Trees<'_, M> {
        Trees {
            memory: &self.memory,
            lines: &mut self.lines,
            leaves: 0,
            spare: 0,
            tall: false,
        }
    }

    /// Publishes a root, at which new readers of the view start.
    fn publish(&self, view: u32, root: Reference) {
        assert!((view as usize) < VIEWS, "view {view}");
        self.memory.words()[view as usize].store(root.0.into(), Ordering::Release);
    }
}

/// A change has two edges. Each may need a tree below with two further edges around it.
const EDGES_PER_CHANGE: usize = 6;

const _: () = assert!(VIEW_LINES * LINE_WORDS == VIEWS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_maximum_height_is_rebuilt_until_it_is_full() {
        let mut fib = Fib::new(Heap::new(1 << 14));
        let host = |n: u32| Prefix::new(u128::from(n) << 66, 64);
        let refused = (1..).find(|n| {
            fib.begin_grace();
            fib.end_grace();
            fib.insert(1, host(*n), *n).is_err()
        });
        let refused = refused.expect("some time");
        // The size of a tree whose root has two children and whose lines are full.
        let full = 2 * 8u32.pow(layout::HEIGHT_MAX - 1) * (layout::EDGES as u32 + 1);
        assert!(refused > full / 2, "{refused} of {full}");
        assert!(
            fib.usage().used < fib.usage().lines / 2,
            "the failure was not due to a lack of lines"
        );
        for n in 1..refused {
            assert_eq!(fib.lookup(1, host(n).last()), n);
        }
        assert_eq!(fib.lookup(1, host(refused).address), 0);
        let error = fib.insert(1, host(refused), 1).expect_err("as before");
        assert_eq!(error.wanted, layout::LINES_MAX);
    }
}
