//! Compares the table with another crate for longest prefix match, with many prefixes: IPv6 in one
//! view, IPv4 in another.

use prefix_trie::PrefixMap;
use proptest::prelude::*;

use sidestep_fib::{Fib, Heap, Prefix};

/// The views of IPv6 and IPv4.
const VIEWS: [u32; 2] = [6, 4];

type Trie = PrefixMap<(u128, u8), u32>;

/// Prefixes of all lengths in a few parts of the address space, so that many are nested.
fn prefix(longest: u8) -> impl Strategy<Value = Prefix> {
    let place = prop_oneof![
        Just(0u128),
        Just(0x2001_0db8 << 96),
        Just(0xc0a8 << 112),
        Just(u128::MAX)
    ];
    (place, any::<u128>(), 0..=longest, 0..=longest).prop_map(|(place, bits, common, length)| {
        let random = bits.checked_shr(common.into()).unwrap_or(0);
        Prefix::new(place ^ random, length)
    })
}

fn agree(fib: &Fib<Heap>, trie: &Trie, view: u32, addresses: &[u128]) -> Result<(), TestCaseError> {
    for address in addresses {
        let wanted = trie
            .get_lpm(&(*address, 128))
            .map_or(0, |(_, route)| *route);
        prop_assert_eq!(fib.lookup(view, *address), wanted, "{:032x}", address);
    }
    Ok(())
}

fn around(prefix: Prefix) -> [u128; 4] {
    let (first, last) = (prefix.address, prefix.last());
    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_table_of_many_prefixes_matches_a_trie(
        six in prop::collection::vec((prefix(128), 1u32..1000), 0..3000),
        four in prop::collection::vec((prefix(32), 1u32..1000), 0..1000),
        at_once in any::<prop::sample::Index>(),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..1000),
        random in prop::collection::vec(any::<u128>(), 100),
    ) {
        let mut fib = Fib::new(Heap::new(1 << 17));
        for (view, list) in VIEWS.into_iter().zip([six, four]) {
            let (bulk, single) = list.split_at(if list.is_empty() { 0 } else { at_once.index(list.len()) });
            let mut trie: Trie = bulk.iter().map(|(it, route)| ((it.address, it.length), *route)).collect();
            fib.replace(view, bulk.iter().copied()).expect("room");
            for (prefix, route) in single {
                let old = fib.insert(view, *prefix, *route).expect("room");
                prop_assert_eq!(old, trie.insert((prefix.address, prefix.length), *route));
            }
            for index in &gone {
                let Some((prefix, _)) = (!list.is_empty()).then(|| index.get(&list)) else { continue };
                let old = fib.remove(view, *prefix).expect("room");
                prop_assert_eq!(old, trie.remove(&(prefix.address, prefix.length)));
                agree(&fib, &trie, view, &around(*prefix))?;
            }
            let edges: Vec<u128> = list.iter().flat_map(|(prefix, _)| around(*prefix)).collect();
            agree(&fib, &trie, view, &edges)?;
            agree(&fib, &trie, view, &random)?;
        }
    }
}
