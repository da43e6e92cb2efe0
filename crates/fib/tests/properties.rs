//! Compares the table with the simplest implementation: a list of all prefixes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use sidestep_fib::{Fib, Heap, Prefix, VIEW_LINES, Whole, walk};

const VIEW: u32 = 3;

/// Returns the route of the longest prefix in a list that contains an address.
fn slow(prefixes: &BTreeMap<Prefix, u32>, address: u128) -> u32 {
    prefixes
        .iter()
        .filter(|(prefix, _)| prefix.contains(Prefix::new(address, 128)))
        .max_by_key(|(prefix, _)| prefix.length)
        .map_or(0, |(_, route)| *route)
}

/// Returns addresses where the route may change: the ends of each prefix, and their neighbors.
fn boundaries<'a>(prefixes: impl Iterator<Item = &'a Prefix>) -> Vec<u128> {
    let mut all = vec![0, u128::MAX];
    for prefix in prefixes {
        for edge in [prefix.address, prefix.last()] {
            all.extend([edge.wrapping_sub(1), edge, edge.wrapping_add(1)]);
        }
    }
    all
}

fn agree(fib: &Fib<Heap>, list: &BTreeMap<Prefix, u32>, addresses: &[u128]) {
    for &address in addresses {
        assert_eq!(
            fib.lookup(VIEW, address),
            slow(list, address),
            "{address:032x} among {list:x?}"
        );
    }
}

/// Addresses that are often equal, close together, or at the ends of the address space.
fn address() -> impl Strategy<Value = u128> {
    prop_oneof![
        (0u128..64).prop_map(|low| low),
        (0u128..64).prop_map(|high| high << 64),
        (0u128..64, 0u128..64).prop_map(|(high, low)| (0x2001_0db8 << 96) | high << 64 | low),
        (0u128..64).prop_map(|low| u128::MAX - low),
        (0u128..64).prop_map(|high| u128::MAX - (high << 64)),
        any::<u128>(),
    ]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    let length = prop_oneof![
        0u8..=128,
        Just(0),
        Just(128),
        Just(127),
        62u8..=66,
        Just(48)
    ];
    (address(), length).prop_map(|(address, length)| Prefix::new(address, length))
}

#[derive(Clone, Debug)]
enum Change {
    Insert(Prefix, u32),
    Remove(prop::sample::Index),
    Grace,
    Rebuild,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (prefix(), 1u32..9).prop_map(|(prefix, route)| Change::Insert(prefix, route)),
        4 => any::<prop::sample::Index>().prop_map(Change::Remove),
        1 => Just(Change::Grace),
        1 => Just(Change::Rebuild),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_table_built_at_once_matches_a_list(
        list in prop::collection::btree_map(prefix(), 1u32..9, 0..200),
        addresses in prop::collection::vec(address(), 50),
    ) {
        let mut fib = Fib::new(Heap::new(1 << 14));
        fib.replace(VIEW, list.clone()).expect("room");
        agree(&fib, &list, &addresses);
        agree(&fib, &list, &boundaries(list.keys()));
    }

    #[test]
    fn prefixes_that_do_not_fit_are_kept_for_a_longer_memory(
        list in prop::collection::btree_map(prefix(), 1u32..9, 1..100),
        addresses in prop::collection::vec(address(), 50),
    ) {
        let mut fib = Fib::new(Heap::new(VIEW_LINES));
        let mut whole: Whole = list.clone().into_iter().collect();
        prop_assert!(fib.replace_with(VIEW, &mut whole).is_err());
        prop_assert_eq!(fib.len(VIEW), 0);
        fib.move_to(Heap::new(1 << 13));
        fib.replace_with(VIEW, &mut whole).expect("room");
        agree(&fib, &list, &addresses);
        // The call has taken the prefixes out of the map.
        fib.replace_with(VIEW, &mut whole).expect("room");
        prop_assert_eq!(fib.views().next(), None);
        agree(&fib, &BTreeMap::new(), &addresses);
    }

    #[test]
    fn a_table_has_the_same_content_in_a_longer_memory(
        list in prop::collection::btree_map(prefix(), 1u32..9, 0..100),
        later in prop::collection::btree_map(prefix(), 1u32..9, 0..100),
    ) {
        let mut fib = Fib::new(Arc::new(Heap::new(1 << 13)));
        fib.replace(VIEW, list.clone()).expect("room");
        let before = walk::intervals(fib.memory(), VIEW);
        let longer = Arc::new(Heap::new(1 << 14));
        fib.copy_to(&longer);
        prop_assert_eq!(&walk::intervals(&longer, VIEW), &before);
        let old = fib.move_to(longer);
        let mut all = list;
        for (prefix, route) in later {
            fib.insert(VIEW, prefix, route).expect("room");
            all.insert(prefix, route);
        }
        prop_assert_eq!(&walk::intervals(&old, VIEW), &before);
        for (begin, route) in walk::intervals(fib.memory(), VIEW) {
            prop_assert_eq!(slow(&all, begin), route);
        }
    }

    #[test]
    fn a_second_writer_keeps_the_old_content_until_it_drops_it(
        old in prop::collection::btree_map(prefix(), 1u32..9, 0..100),
        new in prop::collection::btree_map(prefix(), 1u32..9, 0..100),
    ) {
        let heap = Arc::new(Heap::new(1 << 14));
        let mut first = Fib::new(heap.clone());
        first.replace(VIEW, old.clone()).expect("room");
        drop(first);
        let mut second = Fib::beside(heap.clone());
        let views: &[u32] = if old.is_empty() { &[] } else { &[VIEW] };
        prop_assert_eq!(second.foreign(), views);
        let before = walk::intervals(&heap, VIEW);
        second.replace(VIEW + 1, new.clone()).expect("room");
        prop_assert_eq!(&walk::intervals(&heap, VIEW), &before);
        second.drop_foreign();
        prop_assert_eq!(walk::intervals(&heap, VIEW), vec![(0, 0)]);
        second.begin_grace();
        second.end_grace();
        for (prefix, route) in &old {
            second.insert(VIEW, *prefix, *route).expect("room");
        }
        prop_assert_eq!(&walk::intervals(&heap, VIEW), &before);
        for (begin, route) in walk::intervals(&heap, VIEW + 1) {
            prop_assert_eq!(slow(&new, begin), route);
        }
    }

    #[test]
    fn a_view_that_replaced_an_earlier_writers_view_remains(
        old in prop::collection::btree_map(prefix(), 1u32..9, 1..100),
        new in prop::collection::btree_map(prefix(), 1u32..9, 1..100),
    ) {
        let heap = Arc::new(Heap::new(1 << 14));
        let mut first = Fib::new(heap.clone());
        first.replace(VIEW, old).expect("room");
        drop(first);
        let mut second = Fib::beside(heap.clone());
        second.replace(VIEW, new.clone()).expect("room");
        let written = walk::intervals(&heap, VIEW);
        for (begin, route) in &written {
            prop_assert_eq!(slow(&new, *begin), *route);
        }
        second.drop_foreign();
        second.begin_grace();
        second.end_grace();
        prop_assert_eq!(walk::intervals(&heap, VIEW), written);
    }

    #[test]
    fn a_changing_table_matches_a_list(
        changes in prop::collection::vec(change(), 1..250),
        addresses in prop::collection::vec(address(), 20),
    ) {
        let mut fib = Fib::new(Heap::new(1 << 15));
        let mut list = BTreeMap::new();
        for change in changes {
            match change {
                Change::Insert(prefix, route) => {
                    let old = fib.insert(VIEW, prefix, route).expect("room");
                    prop_assert_eq!(old, list.insert(prefix, route));
                    agree(&fib, &list, &boundaries([prefix].iter()));
                }
                Change::Remove(index) => {
                    let Some(prefix) = (!list.is_empty()).then(|| *index.get(&list.keys().collect::<Vec<_>>()).to_owned()) else {
                        continue;
                    };
                    let old = fib.remove(VIEW, prefix).expect("room");
                    prop_assert_eq!(old, list.remove(&prefix));
                    agree(&fib, &list, &boundaries([prefix].iter()));
                }
                Change::Grace => {
                    fib.begin_grace();
                    fib.end_grace();
                }
                Change::Rebuild => {
                    let all: Vec<_> = fib.prefixes(VIEW).collect();
                    fib.replace(VIEW, all).expect("room");
                }
            }
        }
        agree(&fib, &list, &addresses);
        agree(&fib, &list, &boundaries(list.keys()));
        for (begin, route) in walk::intervals(fib.memory(), VIEW) {
            prop_assert_eq!(slow(&list, begin), route);
        }
        prop_assert!(fib.prefixes(VIEW).eq(list.iter().map(|(prefix, route)| (*prefix, *route))));
        let mut anew = Fib::new(Heap::new(1 << 15));
        anew.replace(VIEW, list.clone()).expect("room");
        prop_assert_eq!(fib.usage().edges, anew.usage().edges);
        // Removing all prefixes frees all lines.
        for prefix in list.keys() {
            fib.remove(VIEW, *prefix).expect("room");
        }
        agree(&fib, &BTreeMap::new(), &addresses);
        fib.begin_grace();
        fib.end_grace();
        let usage = fib.usage();
        prop_assert_eq!((usage.used, usage.edges), (sidestep_fib::VIEW_LINES, 0));
    }
}
