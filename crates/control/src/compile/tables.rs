//! Routing tables by prefix, with longest prefix match.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sidestep_datapath::{FibKey, ViewId};
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, Route, RouteKey, RouteKind};

/// A prefix in the format of the prefix table: network byte order, IPv4 in the first four bytes,
/// host bits zero. Ordered by address, then by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prefix {
    pub(crate) address: [u8; 16],
    pub(crate) length: u8,
}

// PERF: trees of prefixes compare them as numbers, in half the time of arrays.
impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |prefix: &Self| (u128::from_be_bytes(prefix.address), prefix.length);
        number(self).cmp(&number(other))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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

    /// Returns the covering prefix of `length` bits.
    pub(crate) fn shortened(self, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self {
            address: (u128::from_be_bytes(self.address) & mask).to_be_bytes(),
            length,
        }
    }

    /// Returns the address of a host prefix, or none if the prefix is shorter.
    pub(crate) fn address(self, family: Family) -> Option<IpAddr> {
        match (family, self.length) {
            (Family::V4, 32) => Some(IpAddr::from(*self.address.first_chunk::<4>()?)),
            (Family::V6, 128) => Some(IpAddr::from(self.address)),
            _ => None,
        }
    }

    /// Returns the prefix as a network of this family.
    pub(crate) fn net(self, family: Family) -> IpNet {
        let [a, b, c, d, ..] = self.address;
        match family {
            Family::V4 => Ipv4Net::new_assert([a, b, c, d].into(), self.length).into(),
            Family::V6 => Ipv6Net::new_assert(self.address.into(), self.length).into(),
        }
    }

    /// Returns the first and last address. For IPv4 the unused bytes are 0 and 255.
    pub(crate) fn bounds(self) -> ([u8; 16], [u8; 16]) {
        let host = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let last = u128::from_be_bytes(self.address) | host;
        (self.address, last.to_be_bytes())
    }

    /// Returns the key of this prefix in a view.
    pub(crate) fn in_view(self, view: ViewId) -> FibKey {
        FibKey {
            view,
            address: self.address,
            length: self.length,
        }
    }

    /// Whether it covers all addresses of `other`.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.length <= other.length && other.shortened(self.length) == self
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

/// Returns the address family of a prefix.
pub(crate) fn family(net: &IpNet) -> Family {
    match net {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

/// Key of a table entry: a destination prefix of a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryKey {
    pub(crate) family: Family,
    pub(crate) table_id: TableId,
    pub(crate) prefix: Prefix,
}

impl EntryKey {
    /// Returns the key of a route's entry.
    pub(crate) fn new(key: &RouteKey) -> Self {
        Self {
            family: family(&key.prefix),
            table_id: key.table,
            prefix: key.prefix.into(),
        }
    }

    /// Returns the first and last address of the prefix.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (first, last) = self.prefix.bounds();
        let length = Prefix::host(match self.family {
            Family::V4 => IpAddr::from([0; 4]),
            Family::V6 => IpAddr::from([0; 16]),
        })
        .length;
        let host = |address| Prefix { address, length }.address(self.family);
        Some((host(first)?, host(last)?))
    }

    /// Returns the family and table ID.
    pub(crate) fn table(&self) -> (Family, TableId) {
        (self.family, self.table_id)
    }
}

/// Values by prefix, for one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T> {
    entries: BTreeMap<Prefix, T>,
    /// Number of prefixes per length.
    lengths: BTreeMap<u8, usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            lengths: BTreeMap::new(),
        }
    }
}

impl<T> FromIterator<(Prefix, T)> for Table<T> {
    fn from_iter<I: IntoIterator<Item = (Prefix, T)>>(entries: I) -> Self {
        // PERF: a tree of sorted entries has full nodes.
        let entries: BTreeMap<Prefix, T> = entries.into_iter().collect();
        let mut lengths = BTreeMap::new();
        for prefix in entries.keys() {
            *lengths.entry(prefix.length).or_insert(0) += 1;
        }
        Self { entries, lengths }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, prefix: Prefix, value: T) -> Option<T> {
        let before = self.entries.insert(prefix, value);
        if before.is_none() {
            *self.lengths.entry(prefix.length).or_insert(0) += 1;
        }
        before
    }

    pub(crate) fn remove(&mut self, prefix: Prefix) -> Option<T> {
        let before = self.entries.remove(&prefix)?;
        if let Some(count) = self.lengths.get_mut(&prefix.length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.length);
            }
        }
        Some(before)
    }

    /// Returns the entry of exactly this prefix, and adds it if it is missing.
    pub(crate) fn entry(&mut self, prefix: Prefix) -> &mut T
    where
        T: Default,
    {
        self.entries.entry(prefix).or_insert_with(|| {
            *self.lengths.entry(prefix.length).or_insert(0) += 1;
            T::default()
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry of exactly this prefix.
    pub(crate) fn get(&self, prefix: Prefix) -> Option<&T> {
        self.entries.get(&prefix)
    }

    /// Returns the entries that cover `prefix`, the longest first.
    pub(crate) fn covering(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, &T)> {
        let lengths = self.lengths.range(..=prefix.length).rev();
        lengths.filter_map(move |(&length, _)| {
            let shortened = prefix.shortened(length);
            self.entries.get(&shortened).map(|value| (shortened, value))
        })
    }

    /// Returns the longest entry that covers `prefix`.
    pub(crate) fn longest_match(&self, prefix: Prefix) -> Option<(Prefix, &T)> {
        self.covering(prefix).next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.entries.iter()
    }

    /// Returns the entries after this one, in address order.
    pub(crate) fn after(&self, prefix: Prefix) -> impl Iterator<Item = (&Prefix, &T)> {
        let from = self.entries.range(prefix..);
        from.skip_while(move |it| *it.0 == prefix)
    }

    /// Returns the entries within this prefix, except for itself.
    pub(crate) fn below(&self, prefix: Prefix) -> impl Iterator<Item = (&Prefix, &T)> {
        let (_, last) = prefix.bounds();
        self.after(prefix)
            .take_while(move |it| it.0.address <= last)
    }
}

/// Routes of a table for one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<T> {
    any: Option<T>,
    from: Option<Box<Table<T>>>,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self {
            any: None,
            from: None,
        }
    }
}

impl<T> Entry<T> {
    /// Sets the route for a source prefix (`from PREFIX`), or for all other sources.
    pub(crate) fn set(&mut self, from: Option<Prefix>, value: T) {
        match from {
            None => self.any = Some(value),
            Some(from) => _ = self.from.get_or_insert_default().insert(from, value),
        }
    }

    /// Returns the route for exactly this source prefix, or for all other sources.
    pub(crate) fn get(&self, from: Option<Prefix>) -> Option<&T> {
        match from {
            None => self.any.as_ref(),
            Some(from) => self.from.as_ref()?.get(from),
        }
    }

    /// Whether the route depends on the source.
    pub(crate) fn has_sources(&self) -> bool {
        self.from.is_some()
    }

    /// Whether there is no route.
    pub(crate) fn is_empty(&self) -> bool {
        self.any.is_none() && self.from.is_none()
    }

    /// All routes with their source prefixes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<Prefix>, &T)> {
        let from = self.from.iter().flat_map(|from| from.iter());
        let from = from.map(|(prefix, value)| (Some(*prefix), value));
        self.any.iter().map(|value| (None, value)).chain(from)
    }
}

/// Properties of a route that a search depends on.
pub(crate) trait LookupResult {
    /// Whether the search continues with the next rule (`throw`).
    fn is_throw(&self) -> bool;
    /// Whether a rule that requires a longer prefix ignores it (`suppress_prefixlength`).
    fn may_be_suppressed(&self) -> bool;
    /// Whether the kernel does not have the route.
    fn is_own(&self) -> bool;
}

/// The winning route of an entry, as far as a search needs it. Its entry has the rest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Winner {
    pub(crate) metric: u32,
    pub(crate) tos: u8,
    /// The key has a source prefix that covers all sources (`from ::/0`).
    from_all: bool,
    kind: WinnerKind,
    own: bool,
}

/// Effect of a route on a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WinnerKind {
    Throw,
    /// The kernel handles refusing routes as errors, which are not suppressed (`fib_rules_lookup`).
    Refuses,
    Other,
}

impl Winner {
    /// Returns the key of the route, whose entry has this key and this source prefix.
    pub(crate) fn key(self, entry: &EntryKey, from: Option<Prefix>) -> RouteKey {
        let all = self.from_all.then_some(Prefix::DEFAULT);
        RouteKey {
            table: entry.table_id,
            prefix: entry.prefix.net(entry.family),
            from: from.or(all).map(|from| from.net(entry.family)),
            tos: self.tos,
            metric: self.metric,
        }
    }
}

impl From<&Route> for Winner {
    fn from(route: &Route) -> Self {
        Self {
            metric: route.key.metric,
            tos: route.key.tos,
            from_all: route.key.from.is_some_and(|from| from.prefix_len() == 0),
            kind: match route.kind {
                RouteKind::Throw => WinnerKind::Throw,
                RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
                    WinnerKind::Refuses
                }
                _ => WinnerKind::Other,
            },
            own: !route.owner.in_kernel(),
        }
    }
}

impl LookupResult for Winner {
    fn is_throw(&self) -> bool {
        self.kind == WinnerKind::Throw
    }

    fn may_be_suppressed(&self) -> bool {
        self.kind != WinnerKind::Refuses
    }

    fn is_own(&self) -> bool {
        self.own
    }
}

/// A route that a search found, and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a, T> {
    pub(crate) route: &'a T,
    pub(crate) prefix: Prefix,
    pub(crate) from: Option<Prefix>,
}

/// A routing table with entries of type `T`.
pub(crate) type Routing<T> = Table<Entry<T>>;

impl<T: LookupResult> Routing<T> {
    /// Returns the route for packets to `to` from `source`, two prefixes that no prefix of the
    /// table divides. The longest destination prefix applies, then the longest source prefix. If no
    /// source prefix matches, the kernel skips the entry's other route as well, except for the
    /// default route (`fib6_node_lookup_1`).
    pub(crate) fn find(&self, to: Prefix, source: Prefix) -> Option<Found<'_, T>> {
        self.covering(to).find_map(|(prefix, entry)| {
            let any = || entry.any.as_ref().map(|route| (None, route));
            let (from, route) = match &entry.from {
                None => any()?,
                Some(from) => {
                    let found = from.longest_match(source);
                    let found = found.map(|(from, route)| (Some(from), route));
                    found.or_else(|| any().filter(|_| prefix.length == 0))?
                }
            };
            Some(Found {
                route,
                prefix,
                from,
            })
        })
    }

    /// Adds the source prefixes that the route for `to` may depend on. `counts` determines whether a
    /// route ends the search. Returns true if the search ends for every source.
    pub(crate) fn sources(
        &self,
        to: Prefix,
        counts: impl Fn(&T, Prefix) -> bool,
        sources: &mut BTreeSet<Prefix>,
    ) -> bool {
        let mut all_count = true;
        for (prefix, entry) in self.covering(to) {
            if let Some(from) = &entry.from {
                for (source, value) in from.iter() {
                    sources.insert(*source);
                    all_count &= counts(value, prefix);
                }
            }
            if (entry.from.is_none() || prefix.length == 0)
                && let Some(value) = &entry.any
            {
                return all_count && counts(value, prefix);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse::<IpNet>().unwrap().into()
    }

    impl LookupResult for u32 {
        fn is_throw(&self) -> bool {
            *self == 0
        }

        fn may_be_suppressed(&self) -> bool {
            false
        }

        /// In tests, Sidestep has the routes from a million on.
        fn is_own(&self) -> bool {
            *self >= 1_000_000
        }
    }

    #[test]
    fn the_longest_source_prefix_wins_or_a_shorter_destination() {
        let mut table = Routing::<u32>::default();
        for (to, from, value) in [
            ("fc00::/16", None, 1),
            ("fc00:1::/32", None, 2),
            ("fc00:1::/32", Some("fc05::/16"), 3),
            ("fc00:1::/32", Some("fc05:1::/32"), 4),
            ("::/0", None, 5),
            ("::/0", Some("fc05::/16"), 6),
        ] {
            table.entry(prefix(to)).set(from.map(prefix), value);
        }
        let find = |to: &str, source: &str| {
            let found = table.find(prefix(to), prefix(source));
            found.map(|found| *found.route)
        };
        assert_eq!(find("fc00:1::5/128", "fc05:1::1/128"), Some(4));
        assert_eq!(find("fc00:1::5/128", "fc05:2::1/128"), Some(3));
        assert_eq!(
            find("fc00:1::5/128", "fc06::1/128"),
            Some(1),
            "not 2, as the kernel has it"
        );
        assert_eq!(find("fc01::1/128", "fc05::1/128"), Some(6));
        assert_eq!(find("fc01::1/128", "fc06::1/128"), Some(5));
        let sources = |to: &str| {
            let mut sources = BTreeSet::new();
            table.sources(prefix(to), |_, _| true, &mut sources);
            sources.len()
        };
        assert_eq!(
            (
                sources("fc00:1::/32"),
                sources("fc00:2::/32"),
                sources("::/0")
            ),
            (2, 0, 1)
        );
    }
}
