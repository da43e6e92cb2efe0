//! Selection of prefixes if there are more than the prefix table holds. Prefixes that it held stay,
//! and new Sidestep-only routes come before new kernel routes. Packets to omitted prefixes are
//! punted.
//!
//! A shorter prefix must not match packets to an omitted prefix. The longest prefix that covers it
//! is therefore punted, too.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::abi::SIDESTEP_ROUTE_PUNT;
use sidestep_datapath::{FibKey, RouteId, ViewId};

use super::builder::ViewBuilder;
use super::error::CompileError;
use super::index::PREFIXES;
use super::resolver::key_of;
use super::tables::Prefix;

impl ViewBuilder<'_> {
    /// Omits prefixes beyond the limit. `held` is the present content of the prefix table.
    pub(super) fn fit(&mut self, limit: u32, held: &BTreeMap<FibKey, RouteId>) {
        let fib = &self.routes.store.out.image.fib;
        if fib.len() <= limit as usize {
            return;
        }
        let kept = keep(fib, limit as usize, held, |key, route| {
            self.is_internal(key.view) || self.routes.store.is_sidestep_only(route)
        });
        let (fib, left_out): (BTreeMap<_, _>, BTreeMap<_, _>) = fib
            .clone()
            .into_iter()
            .partition(|(key, _)| kept.contains(key));
        let mut lengths: BTreeMap<ViewId, BTreeSet<u8>> = BTreeMap::new();
        for key in fib.keys() {
            lengths.entry(key.view).or_default().insert(key.length);
        }
        let words = CompileError::Full {
            table: PREFIXES,
            limit,
        }
        .to_string();
        for key in left_out.keys() {
            self.left_out(*key, PREFIXES, &words);
            self.routes.store.put_prefix(*key, None);
            let Some(cover) = cover(&fib, &lengths, *key) else {
                // Without a covering route the lookup fails and the packet is punted.
                continue;
            };
            let route = self.routes.store.out.image.fib[&cover];
            let action = self.routes.store.out.image.routes[&route].action;
            if u32::from(action) != SIDESTEP_ROUTE_PUNT {
                let own = self.routes.store.is_sidestep_only(route);
                let full = self.routes.store.full(own);
                self.routes.store.put_prefix(cover, Some(full));
                self.left_out(cover, PREFIXES, "a more specific route did not fit");
            }
        }
    }

    /// Whether a view holds no routes, but VLAN IDs, keys or sources.
    fn is_internal(&self, view: ViewId) -> bool {
        let views = &self.routes.store.out.index.views;
        views.get(&view).is_none_or(|view| view.tables.is_empty())
    }

    /// Reports that the route of a prefix in a view is punted.
    fn left_out(&mut self, key: FibKey, table: &'static str, words: &str) {
        let Some(view) = self.routes.store.out.index.views.get(&key.view) else {
            return;
        };
        let (family, tables) = (view.family, view.tables.clone());
        let prefix = Prefix {
            address: key.address,
            length: key.length,
        };
        let winner = tables.iter().find_map(|&table| {
            let table = (family, table);
            let winners = self.routes.resolver.winners.get(&table)?;
            let found = winners.find(prefix, Prefix::DEFAULT)?;
            Some(key_of(table, found))
        });
        if let Some(route) = winner {
            self.routes
                .store
                .set_unsupported(route, Some(words.to_owned()));
            self.routes.store.set_full_table(route, Some(table));
        }
    }
}

/// Selects the prefixes to hold. First come held Sidestep-only prefixes with all longer prefixes
/// below them, which the kernel could not forward. Then come other held prefixes, then new
/// Sidestep-only ones, then other new ones.
fn keep(
    fib: &BTreeMap<FibKey, RouteId>,
    limit: usize,
    held: &BTreeMap<FibKey, RouteId>,
    is_sidestep_only: impl Fn(&FibKey, RouteId) -> bool,
) -> BTreeSet<FibKey> {
    // In key order (view, address, length), the prefixes below another one follow it.
    let mut above: Option<FibKey> = None;
    let mut rank = |key: &FibKey, route: RouteId| {
        above = above.filter(|above| covers(*above, *key));
        if above.is_none() && is_sidestep_only(key, route) {
            above = Some(*key);
        }
        match above {
            Some(ours) if held.contains_key(&ours) => 0,
            _ if held.contains_key(key) => 1,
            Some(_) => 2,
            None => 3,
        }
    };
    let mut ranked: Vec<(u8, FibKey)> = fib
        .iter()
        .map(|(key, route)| (rank(key, *route), *key))
        .collect();
    ranked.sort_unstable();
    ranked.truncate(limit);
    ranked.into_iter().map(|(_, key)| key).collect()
}

/// Returns the longest prefix in `fib` that covers `key`.
fn cover(
    fib: &BTreeMap<FibKey, RouteId>,
    lengths: &BTreeMap<ViewId, BTreeSet<u8>>,
    key: FibKey,
) -> Option<FibKey> {
    let lengths = lengths.get(&key.view)?.range(..key.length).rev();
    lengths
        .map(|&length| shortened(key, length))
        .find(|shorter| fib.contains_key(shorter))
}

fn covers(shorter: FibKey, key: FibKey) -> bool {
    shorter.view == key.view
        && shorter.length <= key.length
        && shortened(key, shorter.length).address == shorter.address
}

fn shortened(key: FibKey, length: u8) -> FibKey {
    let prefix = Prefix {
        address: key.address,
        length: key.length,
    };
    FibKey {
        address: prefix.shortened(length).address,
        length,
        ..key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> FibKey {
        let net: ipnet::IpNet = text.parse().expect("a prefix");
        let prefix = Prefix::host(net.addr());
        FibKey {
            view: ViewId(1),
            address: prefix.address,
            length: net.prefix_len(),
        }
    }

    fn fib(prefixes: &[(&str, u32)]) -> BTreeMap<FibKey, RouteId> {
        prefixes
            .iter()
            .map(|(text, route)| (key(text), RouteId(*route)))
            .collect()
    }

    #[test]
    fn held_prefixes_stay_then_sidestep_only_ones_come() {
        let all = fib(&[
            ("fc00::/16", 1),
            ("fc01::/16", 2),
            ("fc01:1::/32", 1),
            ("fc02::/16", 1),
            ("fc03::/16", 1),
        ]);
        let kept = |limit, held: &[(&str, u32)]| {
            keep(&all, limit, &fib(held), |_, route| route == RouteId(2))
        };
        assert_eq!(
            kept(3, &[("fc03::/16", 1), ("fcff::/16", 1)]),
            BTreeSet::from(["fc01::/16", "fc01:1::/32", "fc03::/16"].map(key))
        );
        assert_eq!(
            kept(2, &[("fc02::/16", 1), ("fc03::/16", 1)]),
            BTreeSet::from(["fc02::/16", "fc03::/16"].map(key)),
            "a new one, even of Sidestep, replaces none"
        );
        assert_eq!(
            kept(2, &[("fc01::/16", 2), ("fc03::/16", 1)]),
            BTreeSet::from(["fc01::/16", "fc01:1::/32"].map(key)),
            "what lies below one of our own does"
        );
    }

    #[test]
    fn the_longest_prefix_above_is_found() {
        let held = fib(&[("::/0", 1), ("fc00::/16", 1), ("fc01::/16", 1)]);
        let lengths = BTreeMap::from([(ViewId(1), BTreeSet::from([0, 16]))]);
        let above = |text| cover(&held, &lengths, key(text));
        assert_eq!(above("fc00:1::/32"), Some(key("fc00::/16")));
        assert_eq!(above("fd00::/16"), Some(key("::/0")));
        assert_eq!(above("::/0"), None);
    }
}
