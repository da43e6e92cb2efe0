//! The walk of the packet path in Rust: for one address, or for many whose loads from memory
//! overlap.

mod search;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod x86;

use crate::layout::{LINE_WORDS, Reference, VIEWS};
use crate::memory::Memory;
use crate::sync::Ordering;
use search::{Line, Search, Walk};

/// Walks that take turns, level by level, so that while one waits for its line others are compared:
/// as many as a burst of packets has, and fewer where there are not that many left.
const GROUP: usize = if cfg!(loom) { 2 } else { 64 };
const FEW: usize = if cfg!(loom) { 1 } else { 8 };

/// The route index for an address in a view; 0: none.
pub fn lookup<M: Memory + ?Sized>(memory: &M, view: u32, address: u128) -> u32 {
    search::best(One {
        lines: memory.words().as_chunks().0,
        view,
        address,
    })
}

/// The route index for each of some addresses, as [`lookup`] finds it: several at a time, so that
/// one waits for memory while another is compared. Each finds what holds at some moment of the
/// call.
///
/// # Panics
/// If there are not as many places for routes as addresses.
pub fn lookup_batch<M: Memory + ?Sized>(
    memory: &M,
    view: u32,
    addresses: &[u128],
    routes: &mut [u32],
) {
    assert_eq!(addresses.len(), routes.len(), "a route for each address");
    search::best(Many {
        lines: &memory.words().as_chunks().0[..memory.lines()],
        view,
        addresses,
        routes,
    });
}

/// The value of a number in a tree.
pub(crate) fn value<M: Memory + ?Sized>(memory: &M, tree: Reference, number: u64) -> Reference {
    Reference(search::best(InTree {
        lines: memory.words().as_chunks().0,
        tree,
        number,
    }))
}

struct InTree<'a> {
    lines: &'a [Line],
    tree: Reference,
    number: u64,
}

impl Walk for InTree<'_> {
    type Found = u32;

    #[inline(always)]
    fn walk<S: Search>(self, search: S) -> u32 {
        let mut value = 0;
        let found = std::array::from_mut(&mut value);
        descend(search, self.lines, self.tree, &[self.number], found);
        value
    }
}

struct One<'a> {
    lines: &'a [Line],
    view: u32,
    address: u128,
}

impl Walk for One<'_> {
    type Found = u32;

    #[inline(always)]
    fn walk<S: Search>(self, search: S) -> u32 {
        let mut route = 0;
        let routes = std::array::from_mut(&mut route);
        below(search, self.lines, self.view, &[self.address], routes);
        route
    }
}

struct Many<'a> {
    lines: &'a [Line],
    view: u32,
    addresses: &'a [u128],
    routes: &'a mut [u32],
}

impl Walk for Many<'_> {
    type Found = ();

    #[inline(always)]
    fn walk<S: Search>(self, search: S) {
        let (groups, few) = self.addresses.as_chunks::<GROUP>();
        let (routes, routes_of_few) = self.routes.as_chunks_mut::<GROUP>();
        for (addresses, routes) in groups.iter().zip(routes) {
            below(search, self.lines, self.view, addresses, routes);
        }
        let (groups, rest) = few.as_chunks::<FEW>();
        let (routes, routes_of_rest) = routes_of_few.as_chunks_mut::<FEW>();
        for (addresses, routes) in groups.iter().zip(routes) {
            below(search, self.lines, self.view, addresses, routes);
        }
        for (address, route) in rest.iter().zip(routes_of_rest) {
            let routes = std::array::from_mut(route);
            below(search, self.lines, self.view, &[*address], routes);
        }
    }
}

/// Looks addresses up in a view: its root, then their upper halves, then their lower halves where
/// these lead to trees.
// PERF: each result is written directly to its destination, because arrays of this length are not
// returned in registers.
#[inline(always)]
fn below<S: Search, const N: usize>(
    search: S,
    lines: &[Line],
    view: u32,
    addresses: &[u128; N],
    found: &mut [u32; N],
) {
    let view = view as usize % VIEWS;
    let root =
        Reference(lines[view / LINE_WORDS][view % LINE_WORDS].load(Ordering::Acquire) as u32);
    if !root.is_tree() {
        *found = [root.0; N];
        return;
    }
    let mut numbers = [0; N];
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = (address >> 64) as u64;
    }
    descend(search, lines, root, &numbers, found);
    let trees = found.iter().fold(0, |all, it| all | *it);
    if !Reference(trees).is_tree() {
        return;
    }
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = *address as u64;
    }
    // Hosts of one /64 stay together. Others lie in small trees each of its own, if in any.
    let first = Reference(found[0]);
    if first.is_tree() && found.iter().all(|it| *it == first.0) {
        descend(search, lines, first, &numbers, found);
        return;
    }
    for (found, number) in found.iter_mut().zip(numbers) {
        if Reference(*found).is_tree() {
            let tree = Reference(*found);
            descend(search, lines, tree, &[number], std::array::from_mut(found));
        }
    }
}

/// The values of numbers in one tree, level by level for all of them.
#[inline(always)]
fn descend<S: Search, const N: usize>(
    search: S,
    lines: &[Line],
    tree: Reference,
    numbers: &[u64; N],
    found: &mut [u32; N],
) {
    // PERF: shorter for many, sooner for one.
    let place = |at: u32| match N {
        1 => checked(lines, at),
        _ => search.place(lines, at),
    };
    let mut halves = [0; N];
    for (half, number) in halves.iter_mut().zip(numbers) {
        *half = number >> 1;
    }
    let mut places = [checked(lines, tree.line()); N];
    if tree.height() > 0 {
        // SAFETY: the place of a line.
        unsafe { search.children(lines, places[0], &halves, found) };
        each(&mut places, found, |at, child| *at = place(*child));
    }
    for _ in 1..tree.height() {
        each(&mut places, &halves, |at, half| {
            // SAFETY: the place of a line.
            *at = place(unsafe { search.child(lines, *at, *half) });
        });
    }
    let mut starts = places.iter();
    each(found, numbers, |found, number| {
        let at = starts.next().expect("as many places as numbers");
        // SAFETY: the place of a line.
        *found = unsafe { search.value(lines, *at, *number) };
    });
}

/// The place of a line.
///
/// # Panics
/// If the line does not exist.
#[inline(always)]
fn checked(lines: &[Line], at: u32) -> usize {
    assert!((at as usize) < lines.len(), "line {at} of {}", lines.len());
    at as usize * size_of::<Line>()
}

/// Does something for each pair.
// PERF: eight at a time, since a long loop is not unrolled, and its own instructions are a third of
// all.
#[inline(always)]
fn each<A, B, const N: usize>(these: &mut [A; N], those: &[B; N], mut it: impl FnMut(&mut A, &B)) {
    let (eights, rest) = these.as_chunks_mut::<8>();
    let (other_eights, other_rest) = those.as_chunks::<8>();
    for (these, those) in eights.iter_mut().zip(other_eights) {
        for (this, that) in these.iter_mut().zip(those) {
            it(this, that);
        }
    }
    for (this, that) in rest.iter_mut().zip(other_rest) {
        it(this, that);
    }
}
