//! Routing tables by prefix, with longest prefix match, and their merge into a view.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_model::route::Family;

/// A prefix in the form of the FIB: network order, IPv4 in the first four bytes, host bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Prefix {
    pub(crate) address: [u8; 16],
    pub(crate) length: u8,
}

impl Prefix {
    pub(crate) const DEFAULT: Self = Self {
        address: [0; 16],
        length: 0,
    };

    pub(crate) fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&a.octets());
                Self {
                    address: bytes,
                    length: 32,
                }
            }
            IpAddr::V6(a) => Self {
                address: a.octets(),
                length: 128,
            },
        }
    }

    /// The prefix of `length` bits that covers this one.
    pub(crate) fn shortened(self, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self {
            address: (u128::from_be_bytes(self.address) & mask).to_be_bytes(),
            length,
        }
    }
}

impl From<IpNet> for Prefix {
    fn from(net: IpNet) -> Self {
        Self {
            length: net.prefix_len(),
            ..Self::host(net.network())
        }
    }
}

/// The family of an IP prefix.
pub(crate) fn family(net: &IpNet) -> Family {
    match net {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

/// One routing table of one family.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<Prefix, T>,
    lengths: BTreeSet<u8>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, prefix: Prefix, value: T) {
        self.lengths.insert(prefix.length);
        self.entries.insert(prefix, value);
    }

    /// The entry of this prefix itself.
    pub(crate) fn get(&self, prefix: Prefix) -> Option<&T> {
        self.entries.get(&prefix)
    }

    /// The longest entry that covers all of `prefix`.
    pub(crate) fn longest_match(&self, prefix: Prefix) -> Option<(Prefix, &T)> {
        self.lengths
            .range(..=prefix.length)
            .rev()
            .find_map(|&length| {
                let shortened = prefix.shortened(length);
                self.entries.get(&shortened).map(|value| (shortened, value))
            })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.entries.iter()
    }
}

/// What a table says of a prefix: a route, or to go on with the next rule (`throw`).
pub(crate) type Say = Option<u32>;

/// Merges tables that are consulted one after the other into one: the longest match in the result gives what the
/// tables would give. `last`: what stands behind all of them (a rule that ends the search).
///
/// Why this is right: let Q be the longest prefix of any table that covers an address. Every prefix of any table that
/// covers the address is at most as long as Q and so covers all of Q. So each table's longest match for the address is
/// its longest match for Q, and walking the tables with Q gives the answer for the address.
///
/// That answer may be that no table has a route: where a `throw` hides shorter prefixes of its table, and no later one
/// matches. Then the prefix is there without a route, lest a shorter one of the result match instead.
pub(crate) fn merge<'a>(
    tables: &(impl Iterator<Item = &'a Table<Say>> + Clone),
    last: Option<u32>,
) -> impl Iterator<Item = (Prefix, Say)> {
    let mut merged = BTreeMap::new();
    let prefixes = tables
        .clone()
        .flat_map(|table| table.iter().map(|(&prefix, _)| prefix));
    for prefix in prefixes.chain(last.map(|_| Prefix::DEFAULT)) {
        merged.entry(prefix).or_insert_with(|| {
            tables
                .clone()
                .find_map(|table| table.longest_match(prefix).and_then(|(_, entry)| *entry))
                .or(last)
        });
    }
    merged.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse::<IpNet>().unwrap().into()
    }

    fn table(entries: &[(&str, Say)]) -> Table<Say> {
        let mut table = Table::default();
        for (text, entry) in entries {
            table.insert(prefix(text), *entry);
        }
        table
    }

    fn lookup(merged: &[(Prefix, Say)], address: &str) -> Say {
        let mut table = Table::default();
        for &(prefix, route) in merged {
            table.insert(prefix, route);
        }
        table
            .longest_match(Prefix::host(address.parse().unwrap()))
            .and_then(|(_, &route)| route)
    }

    #[test]
    fn an_earlier_table_wins_even_with_a_shorter_prefix() {
        let first = table(&[("fc00::/16", Some(1))]);
        let second = table(&[("fc00:1::/32", Some(2)), ("::/0", Some(3))]);
        let merged: Vec<_> = merge(&[&first, &second].into_iter(), None).collect();
        assert_eq!(lookup(&merged, "fc00:1::5"), Some(1));
        assert_eq!(lookup(&merged, "fd00::5"), Some(3));
    }

    #[test]
    fn throw_goes_on_with_the_next_table_and_a_last_rule_ends_the_search() {
        let first = table(&[("fc00::/16", Some(1)), ("fc00:9::/32", None)]);
        let second = table(&[("fc00:9:8::/48", Some(2))]);
        let merged: Vec<_> = merge(&[&first, &second].into_iter(), Some(9)).collect();
        assert_eq!(lookup(&merged, "fc00:8::1"), Some(1));
        assert_eq!(lookup(&merged, "fc00:9:8::1"), Some(2));
        assert_eq!(lookup(&merged, "fc00:9:7::1"), Some(9));
        assert_eq!(lookup(&merged, "2001::1"), Some(9));
    }

    #[test]
    fn throw_hides_shorter_prefixes_of_its_table_even_if_no_other_table_matches() {
        let first = table(&[("fc00::/16", Some(1)), ("fc00:9::/32", None)]);
        let second = table(&[("fc00:9:8::/48", Some(2))]);
        let merged: Vec<_> = merge(&[&first, &second].into_iter(), None).collect();
        assert_eq!(lookup(&merged, "fc00:9:7::1"), None);
        assert_eq!(lookup(&merged, "fc00:9:8::1"), Some(2));
        assert_eq!(lookup(&merged, "fc00:8::1"), Some(1));
    }
}
