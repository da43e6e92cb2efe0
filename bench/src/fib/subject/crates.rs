//! Tables of this process with one address per call: the loops that time them, the Rust crates, and
//! the standard library's hash table.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

use ip_network_table_deps_treebitmap::IpLookupTable;
use ipnet::Ipv6Net;
use iptrie::map::{LCTrieMap, RTrieMap};
use poptrie::Poptrie;
use prefix_trie::PrefixMap;
use sidestep_fib::Prefix;

use super::{Order, Reader, Stop, Subject, Trouble, Way};
use crate::fib::routes::Route;
use crate::fib::traffic::Addresses;

/// Number of routes inserted between two checks for an interrupt.
const STEP: usize = 4096;

/// Times lookups that are independent, or each dependent on the previous one.
pub fn time(numbers: &[u128], order: Order, lookup: impl Fn(u128) -> u32) -> Duration {
    let zero = black_box(0);
    let begun = Instant::now();
    let (mut sum, mut last) = (0_u32, 0_u32);
    if order == Order::Dependent {
        for number in numbers {
            // Always 0, but the processor must wait for the last result to know it.
            let nothing = u128::from(last & zero);
            last = lookup(number ^ (nothing << 64 | nothing));
            sum = sum.wrapping_add(last);
        }
    } else {
        for number in numbers {
            sum = sum.wrapping_add(lookup(*number));
        }
    }
    black_box(sum);
    begun.elapsed()
}

/// The empty loop, whose time is subtracted.
pub fn time_nothing(addresses: &Addresses, range: Range<usize>, order: Order) -> Duration {
    time(&addresses.numbers[range], order, |number| {
        (number >> 64) as u32 ^ number as u32
    })
}

/// The map type of a crate.
trait Map: Send + Sync {
    fn insert(&mut self, prefix: Prefix, hop: u32);
    fn remove(&mut self, prefix: Prefix);
    fn lookup(&self, address: u128) -> u32;
}

/// Adapts a map to [`Subject`].
struct Plain<M>(M);

impl<M: Map> Reader for Plain<M> {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        let numbers = addresses.numbers.iter();
        Ok(numbers.map(|number| self.0.lookup(*number)).collect())
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        let numbers = &addresses.numbers[range];
        Ok(time(numbers, way.order, |number| self.0.lookup(number)))
    }
}

impl<M: Map> Subject for Plain<M> {
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble> {
        for some in routes.chunks(STEP) {
            stop.check()?;
            for route in some {
                self.0.insert(route.prefix, route.hop);
            }
        }
        Ok(())
    }

    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble> {
        self.0.insert(prefix, hop);
        Ok(())
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        self.0.remove(prefix);
        Ok(())
    }
}

pub fn prefix_trie() -> impl Subject {
    Plain(PrefixMap::<(u128, u8), u32>::new())
}

impl Map for PrefixMap<(u128, u8), u32> {
    fn insert(&mut self, prefix: Prefix, hop: u32) {
        self.insert((prefix.address, prefix.length), hop);
    }

    fn remove(&mut self, prefix: Prefix) {
        self.remove(&(prefix.address, prefix.length));
    }

    fn lookup(&self, address: u128) -> u32 {
        self.get_lpm(&(address, 128)).map_or(0, |(_, hop)| *hop)
    }
}

pub fn treebitmap() -> impl Subject {
    Plain(IpLookupTable::<Ipv6Addr, u32>::new())
}

impl Map for IpLookupTable<Ipv6Addr, u32> {
    fn insert(&mut self, prefix: Prefix, hop: u32) {
        self.insert(
            Ipv6Addr::from_bits(prefix.address),
            prefix.length.into(),
            hop,
        );
    }

    fn remove(&mut self, prefix: Prefix) {
        self.remove(Ipv6Addr::from_bits(prefix.address), prefix.length.into());
    }

    fn lookup(&self, address: u128) -> u32 {
        self.longest_match(Ipv6Addr::from_bits(address))
            .map_or(0, |(_, _, hop)| *hop)
    }
}

pub fn poptrie() -> impl Subject {
    Plain(Poptrie::<(u128, u8), u32>::new())
}

impl Map for Poptrie<(u128, u8), u32> {
    fn insert(&mut self, prefix: Prefix, hop: u32) {
        self.insert((prefix.address, prefix.length), hop);
    }

    fn remove(&mut self, prefix: Prefix) {
        self.remove((prefix.address, prefix.length));
    }

    fn lookup(&self, address: u128) -> u32 {
        self.lookup(address).copied().unwrap_or(0)
    }
}

/// One hash table per length, searched from the longest.
#[derive(Default)]
struct Hashes(BTreeMap<Reverse<u8>, HashMap<u128, u32>>);

pub fn hashes() -> impl Subject {
    Plain(Hashes::default())
}

impl Map for Hashes {
    fn insert(&mut self, prefix: Prefix, hop: u32) {
        let of_length = self.0.entry(Reverse(prefix.length)).or_default();
        of_length.insert(prefix.address, hop);
    }

    fn remove(&mut self, prefix: Prefix) {
        if let Some(of_length) = self.0.get_mut(&Reverse(prefix.length)) {
            of_length.remove(&prefix.address);
        }
    }

    fn lookup(&self, address: u128) -> u32 {
        let mut tables = self.0.iter();
        let hop = tables.find_map(|(length, table)| {
            let prefix = Prefix::new(address, length.0);
            table.get(&prefix.address).copied()
        });
        hop.unwrap_or(0)
    }
}

/// The fastest structure of the crate, which is immutable.
pub struct Iptrie(LCTrieMap<Ipv6Net, u32>);

impl Iptrie {
    pub fn new() -> Self {
        Self(RTrieMap::with_root(0).compress())
    }

    fn lookup(&self, address: u128) -> u32 {
        *self.0.lookup(&Ipv6Addr::from_bits(address)).1
    }
}

impl Reader for Iptrie {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        let numbers = addresses.numbers.iter();
        Ok(numbers.map(|number| self.lookup(*number)).collect())
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        let numbers = &addresses.numbers[range];
        Ok(time(numbers, way.order, |number| self.lookup(number)))
    }
}

impl Subject for Iptrie {
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble> {
        let mut trie = RTrieMap::with_root_and_capacity(0, routes.len());
        for some in routes.chunks(STEP) {
            stop.check()?;
            trie.extend(some.iter().map(|route| {
                let Prefix { address, length } = route.prefix;
                let net = Ipv6Net::new(Ipv6Addr::from_bits(address), length);
                (net.expect("a prefix has up to 128 bits"), route.hop)
            }));
        }
        self.0 = trie.compress();
        Ok(())
    }

    fn insert(&mut self, _: Prefix, _: u32) -> Result<(), Trouble> {
        Err(Trouble::Refused(
            "a level-compressed trie cannot be changed".into(),
        ))
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        self.insert(prefix, 0)
    }
}
