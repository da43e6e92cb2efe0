//! Readers in separate threads look up addresses without locks, while a writer changes the table as
//! fast as it can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use sidestep_fib::{Fib, Heap, Prefix, lookup};

const VIEW: u32 = 1;
const READERS: usize = 2;
/// Number of changes; smaller in debug builds.
const CHANGES: u64 = if cfg!(debug_assertions) {
    200_000
} else {
    1_000_000
};
/// Number of /48 prefixes that never change. Longer prefixes fit between any two of them.
const CONSTANT: u64 = 200_000;
/// Addresses that a reader looks up between two quiescent states.
const BATCH: usize = 77;

/// Grace period in user space: readers report when they are between lookups and hold no references.
struct Quiescence([AtomicU64; READERS]);

impl Quiescence {
    /// Waits until every reader has been between lookups once.
    fn wait(&self, done: &AtomicBool) {
        let before: Vec<u64> = self.0.iter().map(|it| it.load(Ordering::SeqCst)).collect();
        for (reader, before) in self.0.iter().zip(before) {
            while reader.load(Ordering::SeqCst) == before && !done.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
    }
}

/// A sequence of numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 24
    }
}

fn constant(n: u64) -> Prefix {
    Prefix::new(u128::from(0x2001_0000_0000 + 2 * n) << 80, 48)
}

fn constant_route(n: u64) -> u32 {
    n as u32 % 1000 + 1
}

/// Returns a prefix of one of several lengths inside the n-th constant prefix. Its addresses have
/// the route of the constant prefix, or [`FLAPPING`].
fn flapping(n: u64, kind: u64) -> Prefix {
    let length = [49, 56, 63, 64, 65, 96, 127, 128][kind as usize % 8];
    Prefix::new(constant(n).address | 0xffff << 64 | 0xffff, length)
}

const FLAPPING: u32 = 5000;

/// Returns an address with a constant route, in the half of a constant prefix that never changes.
fn constant_address(n: u64, random: u64) -> u128 {
    constant(n).address | u128::from(random & 0x7fff) << 64 | u128::from(random)
}

fn read(heap: &Heap, seed: usize, quiescent: &AtomicU64, done: &AtomicBool) -> u64 {
    let mut random = Random(seed as u64);
    let (mut addresses, mut wanted) = ([0; BATCH], [0; BATCH]);
    let mut lookups = 0;
    while !done.load(Ordering::SeqCst) {
        for (n, (address, wanted)) in addresses.iter_mut().zip(&mut wanted).enumerate() {
            let number = random.next() % CONSTANT;
            *wanted = constant_route(number);
            *address = match n % 2 {
                0 => constant_address(number, random.next()),
                _ => flapping(number, 7).address,
            };
        }
        let routes = addresses.map(|address| lookup(heap, VIEW, address));
        for (n, (route, wanted)) in routes.iter().zip(wanted).enumerate() {
            let flaps = n % 2 == 1 && *route == FLAPPING;
            assert!(
                flaps || *route == wanted,
                "{:032x}: {route}, not {wanted}",
                addresses[n]
            );
        }
        lookups += 1;
        quiescent.fetch_add(1, Ordering::SeqCst);
    }
    lookups
}

#[test]
fn readers_find_the_old_or_the_new_route_during_changes() {
    let heap = Arc::new(Heap::new(1 << 19));
    let mut fib = Fib::new(heap.clone());
    let all = (0..CONSTANT).map(|n| (constant(n), constant_route(n)));
    fib.replace(VIEW, all).expect("room");
    let quiescence = Quiescence(std::array::from_fn(|_| AtomicU64::new(0)));
    let done = AtomicBool::new(false);
    let mut there = BTreeMap::new();
    thread::scope(|scope| {
        let (heap, done, quiescence) = (&*heap, &done, &quiescence);
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let quiescent = &quiescence.0[reader];
                scope.spawn(move || {
                    // If this thread fails, end all other threads.
                    let _last = OnDrop(done);
                    read(heap, reader + 1, quiescent, done)
                })
            })
            .collect();
        {
            let _last = OnDrop(done);
            write(&mut fib, &mut there, || quiescence.wait(done));
        }
        for reader in readers {
            let lookups = reader.join().expect("it found what it should");
            assert!(lookups > 10, "{lookups}");
        }
    });
    // The remaining content equals the changes, and all other lines become free.
    let left: BTreeMap<_, _> = fib.prefixes(VIEW).filter(|it| it.1 == FLAPPING).collect();
    assert_eq!(left, there);
    fib.replace(VIEW, []).expect("room");
    fib.begin_grace();
    fib.end_grace();
    assert_eq!(fib.usage().used, sidestep_fib::VIEW_LINES);
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Inserts absent prefixes and removes present ones. Waits for readers when a quarter of the memory
/// waits for them.
fn write(fib: &mut Fib<Arc<Heap>>, there: &mut BTreeMap<Prefix, u32>, grace: impl Fn()) {
    let mut random = Random(99);
    for _ in 0..CHANGES {
        let prefix = flapping(random.next() % CONSTANT, random.next());
        if there.remove(&prefix).is_some() {
            fib.remove(VIEW, prefix).expect("room");
        } else {
            fib.insert(VIEW, prefix, FLAPPING).expect("room");
            there.insert(prefix, FLAPPING);
        }
        let usage = fib.usage();
        if usage.held > usage.lines / 4 {
            fib.begin_grace();
            grace();
            fib.end_grace();
        }
    }
}
