//! Model check with loom of every order in which a reader's loads and a writer's stores can meet. A
//! reader finds the old or the new route, never a mixture, also when lines are reused after a grace
//! period.
//!
//! Run by `./dev test --all`: `RUSTFLAGS='--cfg loom' cargo test --release -p sidestep-fib --test
//! model`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sidestep_fib::{Fib, Heap, Prefix, lookup};

const VIEW: u32 = 1;

/// Lines of the memory: enough for the few prefixes here.
const LINES: usize = 1 << 10;

fn prefix(high: u64, length: u8) -> Prefix {
    Prefix::new(u128::from(high) << 64, length)
}

fn insert(fib: &mut Fib<std::sync::Arc<Heap>>, prefix: Prefix, route: u32) {
    fib.insert(VIEW, prefix, route).expect("room");
}

fn remove(fib: &mut Fib<std::sync::Arc<Heap>>, prefix: Prefix) {
    fib.remove(VIEW, prefix).expect("room");
}

/// Runs `change` beside a reader that looks `address` up. The result must be in `allowed`.
/// `prepare` runs first.
fn model(
    prepare: fn(&mut Fib<std::sync::Arc<Heap>>),
    change: fn(&mut Fib<std::sync::Arc<Heap>>),
    address: u128,
    allowed: &'static [u32],
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    // Each word of a line that a writer reads counts as a branch.
    builder.max_branches = 4_000;
    builder.check(move || {
        let heap = std::sync::Arc::new(Heap::new(LINES));
        let mut fib = Fib::new(heap.clone());
        prepare(&mut fib);
        let reader = thread::spawn(move || lookup(&heap, VIEW, address));
        change(&mut fib);
        let found = reader.join().expect("the reader ends");
        assert!(allowed.contains(&found), "{found}");
    });
}

#[test]
fn a_new_prefix_is_visible_or_not_yet() {
    model(
        |fib| insert(fib, prefix(0x10, 60), 1),
        |fib| insert(fib, prefix(0x10, 64), 2),
        0x10 << 64,
        &[1, 2],
    );
}

#[test]
fn an_address_keeps_its_route_while_its_leaf_is_divided() {
    model(
        |fib| {
            for high in [2, 4, 6] {
                insert(fib, prefix(high, 64), 7);
            }
        },
        |fib| {
            for high in [8, 10] {
                insert(fib, prefix(high, 64), 9);
            }
        },
        4 << 64,
        &[7],
    );
}

#[test]
fn a_longer_prefix_in_a_lower_tree_is_added_and_removed() {
    model(
        |fib| insert(fib, prefix(0x10, 64), 1),
        |fib| {
            let host = Prefix::new((0x10 << 64) | 5, 128);
            insert(fib, host, 2);
            remove(fib, host);
        },
        (0x10 << 64) | 5,
        &[1, 2],
    );
}

/// Lines become free when all earlier readers have ended, and are then reused while later readers
/// run.
#[test]
fn reused_lines_do_not_mislead_a_reader() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let heap = std::sync::Arc::new(Heap::new(LINES));
        let mut fib = Fib::new(heap.clone());
        insert(&mut fib, prefix(2, 64), 7);
        let reading = Arc::new(AtomicUsize::new(0));
        let reader = {
            let reading = reading.clone();
            thread::spawn(move || {
                reading.store(1, Ordering::SeqCst);
                loom::sync::atomic::fence(Ordering::SeqCst);
                let found = lookup(&heap, VIEW, 2 << 64);
                reading.store(2, Ordering::SeqCst);
                found
            })
        };
        insert(&mut fib, prefix(4, 64), 8);
        // Grace period: all earlier readers have ended. Later readers find the new lines.
        fib.begin_grace();
        loom::sync::atomic::fence(Ordering::SeqCst);
        while reading.load(Ordering::SeqCst) == 1 {
            thread::yield_now();
        }
        fib.end_grace();
        insert(&mut fib, prefix(6, 64), 9);
        remove(&mut fib, prefix(4, 64));
        assert_eq!(reader.join().expect("the reader ends"), 7);
    });
}
