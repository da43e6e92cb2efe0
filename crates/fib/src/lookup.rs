//! The walk of the packet path in Rust: for one address, or for many whose loads from memory overlap.

mod search;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod x86;

use crate::layout::{LINE_WORDS, Reference, VIEWS};
use crate::line::place;
use crate::memory::Memory;
use crate::sync::Ordering;
use search::{Line, Search, Walk};

/// Walks that take turns, level by level: as many as have their places in registers.
#[cfg(not(loom))]
const GROUP: usize = 8;
/// As few as a model needs.
#[cfg(loom)]
const GROUP: usize = 2;

/// The route index for an address in a view; 0: none.
pub fn lookup<M: Memory + ?Sized>(memory: &M, view: u32, address: u128) -> u32 {
    search::best(One {
        lines: lines(memory),
        view,
        address,
    })
}

/// The route index for each of some addresses, as [`lookup`] finds it: several at a time, so that one waits for memory
/// while another is compared. Each finds what holds at some moment of the call.
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
        lines: lines(memory),
        view,
        addresses,
        routes,
    });
}

fn lines<M: Memory + ?Sized>(memory: &M) -> &[Line] {
    memory.words().as_chunks().0
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
        let root = root(self.lines, self.view);
        below(search, self.lines, root, &[self.address])[0].0
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
        let (groups, rest) = self.addresses.as_chunks::<GROUP>();
        let (routes, routes_of_rest) = self.routes.as_chunks_mut::<GROUP>();
        for (group, routes) in groups.iter().zip(routes) {
            let found = below(search, self.lines, root(self.lines, self.view), group);
            for (route, found) in routes.iter_mut().zip(found) {
                *route = found.0;
            }
        }
        for (address, route) in rest.iter().zip(routes_of_rest) {
            let root = root(self.lines, self.view);
            *route = below(search, self.lines, root, &[*address])[0].0;
        }
    }
}

#[inline(always)]
fn root(lines: &[Line], view: u32) -> Reference {
    let view = view as usize % VIEWS;
    Reference(lines[view / LINE_WORDS][view % LINE_WORDS].load(Ordering::Acquire) as u32)
}

/// What a view says of addresses: its root, then their upper halves, then, where these lead to trees, their lower ones.
#[inline(always)]
fn below<S: Search, const N: usize>(
    search: S,
    lines: &[Line],
    root: Reference,
    addresses: &[u128; N],
) -> [Reference; N] {
    if !root.is_tree() {
        return [root; N];
    }
    let mut numbers = [0; N];
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = (address >> 64) as u64;
    }
    let mut found = descend(search, lines, root, &numbers);
    if !found.iter().any(|it| it.is_tree()) {
        return found;
    }
    for (number, address) in numbers.iter_mut().zip(addresses) {
        *number = *address as u64;
    }
    // Hosts of one /64 stay together. Others lie in small trees each of its own, if in any.
    if found.iter().all(|it| *it == found[0]) {
        return descend(search, lines, found[0], &numbers);
    }
    for (found, number) in found.iter_mut().zip(numbers) {
        if found.is_tree() {
            [*found] = descend(search, lines, *found, &[number]);
        }
    }
    found
}

/// The values of numbers in one tree, level by level for all of them.
// PERF: loops over arrays, since `map` on arrays of this length is a call each time.
#[inline(always)]
fn descend<S: Search, const N: usize>(
    search: S,
    lines: &[Line],
    tree: Reference,
    numbers: &[u64; N],
) -> [Reference; N] {
    let mut places = [tree.line() as usize; N];
    for _ in 0..tree.height() {
        for (at, number) in places.iter_mut().zip(numbers) {
            let children = lines[*at][0].load(Ordering::Acquire) as u32;
            *at = children as usize + search.child(lines, *at, *number) as usize;
        }
    }
    let mut values = [Reference::NONE; N];
    for (n, at) in places.iter().enumerate() {
        let (word, shift) = place(search.interval(lines, *at, numbers[n]) as usize);
        values[n] = Reference((lines[*at][word].load(Ordering::Acquire) >> shift) as u32);
    }
    values
}
