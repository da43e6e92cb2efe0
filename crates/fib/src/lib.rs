//! A longest-prefix-match table for IPv6 and IPv4 that is read without locks while it changes.
//!
//! A [`Fib`] keeps the prefixes of several views in a [`Memory`]: of this process ([`Heap`]), or a
//! BPF map that programs walk with `datapath/table/fib6.h`. The form is a search tree over the
//! places where prefixes begin and end, one cache line a level; `layout` says it word by word,
//! docs/explanation/prefix-table.md why, and what else was tried.
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

/// A prefix. Ordered by address, the shorter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Bits after the first `length` are zero. An IPv4 address is the first 32 bits.
    pub address: u128,
    /// Bits, up to 128.
    pub length: u8,
}

impl Prefix {
    /// The prefix of that length (up to 128) that an address lies in.
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

    /// Its last address.
    pub const fn last(self) -> u128 {
        match self.length {
            128 => self.address,
            length => self.address | (u128::MAX >> length as u32),
        }
    }

    /// Whether another prefix, or the same, lies in this one.
    pub const fn contains(self, other: Self) -> bool {
        self.length <= other.length && Self::new(other.address, self.length).address == self.address
    }
}

/// The memory has no room for that; nothing has changed. Lines may come free with the next grace
/// period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "no room: {wanted} lines of 64 bytes wanted, {free} of {lines} free, {held} wait for a grace period"
)]
pub struct Full {
    /// Lines that the change may take.
    pub wanted: usize,
    /// Lines that are free.
    pub free: usize,
    /// Lines that readers may still be on.
    pub held: usize,
    /// Lines of the memory.
    pub lines: usize,
}

impl Full {
    /// LIMIT: lines that a table holds back, or an eighth of all, before it waits for them rather
    /// than grows.
    const WORTH_WAITING: usize = 1 << 16;

    /// Whether to wait for the lines that are held back rather than to move to a longer memory. A
    /// wait is a grace period, 10 to 100 ms on a busy machine, and a change retires about ten
    /// lines. With fewer lines to gain, 100,000 changes per second would mostly wait.
    pub fn is_worth_waiting(&self) -> bool {
        self.held >= Self::WORTH_WAITING.max(self.lines / 8)
    }
}

/// All prefixes that a view is to have, each once (the last route given for it), for
/// [`Fib::replace_with`]: in order, and with the intervals of addresses that they make.
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

/// How much of the memory is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Lines of 64 bytes, all in all.
    pub lines: usize,
    /// Lines that are reachable or wait for a grace period; the views' own included.
    pub used: usize,
    /// Lines among these that wait for a grace period.
    pub held: usize,
    /// Inner lines on the way to the leaf of an address: of the highest tree over upper halves.
    pub height: u32,
    /// Edges of all trees.
    pub edges: usize,
}

/// The writer of a table. One for each memory.
#[derive(Debug)]
pub struct Fib<M: Memory> {
    memory: M,
    lines: Allocator,
    views: BTreeMap<u32, View>,
    /// Views that an earlier writer left, and the first lines of the blocks that they have.
    foreign: Option<(Vec<u32>, BTreeSet<u32>)>,
    /// Leaves of the largest view, or more.
    most: usize,
}

impl<M: Memory> Fib<M> {
    /// The table is created in a memory that has no readers yet. Old content is overwritten.
    ///
    /// # Panics
    /// If it is too small for the views, of [`VIEW_LINES`].
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

    /// In a memory that readers are on, which an earlier writer left: what that one wrote stays
    /// until [`Fib::drop_foreign`], but for views that are written here.
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

    /// The views that an earlier writer left.
    pub fn foreign(&self) -> &[u32] {
        self.foreign.as_ref().map_or(&[], |(views, _)| views)
    }

    /// Drops the content of an earlier writer. A view that has been written since stays.
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

    /// Copies the table into a longer memory, so that readers can be led there before
    /// [`Fib::move_to`].
    ///
    /// # Panics
    /// If it is shorter.
    pub fn copy_to(&self, memory: &M) {
        let (to, from) = (memory.words(), self.memory.words());
        assert!(to.len() >= from.len(), "the memory is shorter");
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Continues in a memory that the table was copied to ([`Fib::copy_to`]); the table must not
    /// have changed since. Readers of the old memory keep reading it. Returns the old memory.
    ///
    /// # Panics
    /// If it is shorter.
    pub fn move_to(&mut self, memory: M) -> M {
        assert!(
            memory.lines() >= self.memory.lines(),
            "the memory is shorter"
        );
        self.lines.extend(memory.lines() as u32);
        std::mem::replace(&mut self.memory, memory)
    }

    /// Sets the route (1 to [`ROUTE_MAX`]) of a prefix in a view (below [`VIEWS`]). Returns the old
    /// route. Packets see it at once.
    ///
    /// # Errors
    /// No room.
    ///
    /// # Panics
    /// If view or route are out of range.
    pub fn insert(&mut self, view: u32, prefix: Prefix, route: u32) -> Result<Option<u32>, Full> {
        assert!((1..=ROUTE_MAX).contains(&route), "route {route}");
        let reserve = self.reserve(0);
        self.change(view, reserve, |it, trees| it.insert(trees, prefix, route))
    }

    /// Takes a prefix out; its route, if it was there.
    ///
    /// # Errors
    /// No room: also less needs new lines, before the old ones come free. After a grace period
    /// there is: what puts prefixes in leaves it.
    ///
    /// # Panics
    /// If the view is out of range.
    pub fn remove(&mut self, view: u32, prefix: Prefix) -> Result<Option<u32>, Full> {
        self.change(view, 0, |it, trees| it.remove(trees, prefix))
    }

    /// Restores the route that a prefix had before other changes, or removes the prefix again
    /// (`None`). Works as [`Fib::insert`] and [`Fib::remove`], but may also use the lines reserved
    /// for removing prefixes, and needs no line if nothing changes.
    ///
    /// # Errors
    /// No room.
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

    /// Puts these prefixes in the place of all that a view has: at once for the packets. None of
    /// them: the view is gone.
    ///
    /// # Errors
    /// No room.
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

    /// The same with prefixes that are sorted out already, in time linear in their number. They are
    /// taken, and none are left; without room all stay, so that they need not be sorted out again
    /// for a longer memory.
    ///
    /// # Errors
    /// No room.
    ///
    /// # Panics
    /// If the view is out of range.
    pub fn replace_with(&mut self, view: u32, whole: &mut Whole) -> Result<(), Full> {
        let lines = whole.swept.lines();
        // Nothing takes nothing.
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

    /// The prefixes of a view, in order.
    pub fn prefixes(&self, view: u32) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        let view = self.views.get(&view);
        view.into_iter().flat_map(|view| {
            view.prefixes()
                .iter()
                .map(|(prefix, route)| (*prefix, *route))
        })
    }

    /// How many prefixes a view has.
    pub fn len(&self, view: u32) -> usize {
        self.views.get(&view).map_or(0, |it| it.prefixes().len())
    }

    /// The views that have prefixes.
    pub fn views(&self) -> impl Iterator<Item = u32> + '_ {
        self.views.keys().copied()
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Call it, wait until every current reader has ended, then call [`Fib::end_grace`]: lines
    /// retired before this call can then be used again.
    pub fn begin_grace(&mut self) {
        self.lines.begin_grace();
    }

    /// See [`Fib::begin_grace`].
    pub fn end_grace(&mut self) {
        self.lines.end_grace();
    }

    /// Whether lines wait for a grace period.
    pub fn has_pending(&self) -> bool {
        self.lines.held() > 0
    }

    /// How much is taken.
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
                // Not this time, if there is no room for it.
                let _ = self.rebuild(view);
            }
        } else if it.root() != Reference::NONE {
            self.publish(view, Reference::NONE);
            it.retire(&mut self.trees());
        }
        Ok(done)
    }

    /// Sees to it that a view can be changed without a tree becoming higher than readers go.
    fn lower(&mut self, view: u32) -> Result<(), Full> {
        let is_tall = |fib: &Self| fib.views.get(&view).is_some_and(View::is_tall);
        if is_tall(self) {
            self.rebuild(view)?;
        }
        // More than any memory has.
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

    /// From now on readers begin here.
    fn publish(&self, view: u32, root: Reference) {
        assert!((view as usize) < VIEWS, "view {view}");
        self.memory.words()[view as usize].store(root.0.into(), Ordering::Release);
    }
}

/// A change has two edges, each perhaps with a tree below and the two edges around it.
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
        // A root of two children over full lines.
        let full = 2 * 8u32.pow(layout::HEIGHT_MAX - 1) * (layout::EDGES as u32 + 1);
        assert!(refused > full / 2, "{refused} of {full}");
        assert!(
            fib.usage().used < fib.usage().lines / 2,
            "it was not for want of lines"
        );
        for n in 1..refused {
            assert_eq!(fib.lookup(1, host(n).last()), n);
        }
        assert_eq!(fib.lookup(1, host(refused).address), 0);
        let error = fib.insert(1, host(refused), 1).expect_err("as before");
        assert_eq!(error.wanted, layout::LINES_MAX);
    }
}
