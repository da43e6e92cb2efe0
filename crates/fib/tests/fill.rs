//! Tests that lines stay well filled for any order of insertions and removals. Well-filled lines
//! keep the table small and flat.

use sidestep_fib::{Fib, Full, Heap, Prefix, Usage};

const VIEW: u32 = 1;
/// Number of /48 prefixes. Gaps between them give each prefix two edges.
const PREFIXES: u64 = 5_000;

fn prefix(n: u64) -> Prefix {
    Prefix::new(u128::from(n) << 82, 48)
}

/// Returns the n-th number of a permutation of 0 to [`PREFIXES`] - 1 that looks random. 7919 and
/// [`PREFIXES`] have no common factor.
fn shuffled(n: u64) -> u64 {
    n * 7919 % PREFIXES
}

fn changed(fib: &mut Fib<Heap>, changes: impl Iterator<Item = (u64, bool)>) -> Usage {
    for (n, (prefix_number, comes)) in changes.enumerate() {
        match comes {
            true => fib.insert(VIEW, prefix(prefix_number), 1).expect("room"),
            false => fib.remove(VIEW, prefix(prefix_number)).expect("room"),
        };
        if n % 16 == 0 {
            fib.begin_grace();
            fib.end_grace();
        }
    }
    fib.begin_grace();
    fib.end_grace();
    fib.usage()
}

fn bulk() -> Fib<Heap> {
    let mut fib = Fib::new(Heap::new(1 << 16));
    let all = (0..PREFIXES).map(|n| (prefix(n), 1));
    fib.replace(VIEW, all).expect("room");
    fib
}

/// Used lines per edge. Nine lines in ten are leaves with at most six intervals.
fn lines_per_edge(usage: Usage) -> f64 {
    (usage.used - sidestep_fib::VIEW_LINES) as f64 / usage.edges as f64
}

#[test]
fn a_table_built_at_once_has_full_lines() {
    assert!(lines_per_edge(bulk().usage()) < 0.20);
}

#[test]
fn lines_are_more_than_half_full_for_any_order_of_insertion() {
    let flat = bulk().usage().height;
    let orders: [fn(u64) -> u64; 3] = [|n| n, |n| PREFIXES - 1 - n, shuffled];
    for (order, number) in orders.into_iter().enumerate() {
        let mut fib = Fib::new(Heap::new(1 << 16));
        let usage = changed(&mut fib, (0..PREFIXES).map(|n| (number(n), true)));
        assert!(lines_per_edge(usage) < 0.28, "order {order}: {usage:?}");
        assert!(usage.height <= flat + 1, "order {order}: {usage:?}");
    }
}

#[test]
fn lines_stay_well_filled_after_many_changes() {
    let mut fib = bulk();
    let gone = (0..PREFIXES / 2).map(shuffled);
    for _ in 0..4 {
        let usage = changed(
            &mut fib,
            gone.clone()
                .flat_map(|n| [(n, false), (PREFIXES - 1 - n, true)]),
        );
        let back = changed(&mut fib, (0..PREFIXES).map(|n| (n, true)));
        assert!(lines_per_edge(usage) < 0.28, "{usage:?}");
        assert!(lines_per_edge(back) < 0.28, "{back:?}");
    }
}

/// Applies a change. If the table is full, tries again after a grace period.
fn patiently<T>(
    fib: &mut Fib<Heap>,
    change: impl Fn(&mut Fib<Heap>) -> Result<T, Full>,
) -> Result<T, Full> {
    change(fib).or_else(|_| {
        fib.begin_grace();
        fib.end_grace();
        change(fib)
    })
}

#[test]
fn a_full_table_can_be_emptied_and_filled_again() {
    // Prefixes of /64 to /128, scattered over the address space and two views. Scattered prefixes
    // use the most lines.
    let numbered = |n: u32| {
        let mixed = u128::from(n.wrapping_mul(0x9e37_79b1));
        let address = mixed << 96 | u128::from(n % 7) << 64 | u128::from(n);
        (1 + n % 3 / 2, Prefix::new(address, 64 + (n % 65) as u8))
    };
    let mut fib = Fib::new(Heap::new(1 << 14));
    let mut there = Vec::new();
    for n in 1.. {
        let (view, prefix) = numbered(n);
        if patiently(&mut fib, |fib| fib.insert(view, prefix, n)).is_err() {
            break;
        }
        there.push((view, prefix, n));
    }
    assert!(there.len() > 2000, "{} {:?}", there.len(), fib.usage());
    for round in 0..3 {
        for &(view, prefix, n) in &there {
            let removed = patiently(&mut fib, |fib| fib.remove(view, prefix));
            assert!(
                matches!(removed, Ok(Some(_))),
                "round {round}, {n}: {removed:?}"
            );
        }
        for &(view, prefix, n) in there.iter().rev() {
            let back = patiently(&mut fib, |fib| fib.put_back(view, prefix, Some(n)));
            assert_eq!(back, Ok(()), "round {round}, {n}");
        }
    }
}
