//! The kernel's BPF LPM trie map.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidestep_fib::Prefix;

use super::harness::{self, Harness, Programs};
use super::{Reader, Stop, Subject, Trouble, Way};
use crate::fib::routes::Route;
use crate::fib::traffic::Addresses;
use crate::memory::kernel_bytes;

/// Routes per system call.
const BATCH: usize = 4096;
/// Routes that may be added to a full table.
const SPARE: usize = 1024;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lpm_trie.bpf.o"));

pub struct LpmTrie {
    programs: Arc<Programs>,
    routes: MapHandle,
    bytes: u64,
}

impl LpmTrie {
    pub fn new(harness: &Harness, routes: usize) -> Result<Self, Trouble> {
        let (programs, maps) =
            harness.programs(OBJECT, |map| map.set_max_entries((routes + SPARE) as u32))?;
        let routes = MapHandle::try_from(harness::named(&maps, "routes"));
        Ok(Self {
            programs: Arc::new(programs),
            routes: routes.map_err(refused)?,
            bytes: 0,
        })
    }
}

impl Reader for LpmTrie {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        self.programs.answers(addresses)
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        self.programs.time(addresses, range, way)
    }
}

impl Subject for LpmTrie {
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble> {
        let before = kernel_bytes();
        for some in routes.chunks(BATCH) {
            stop.check()?;
            let keys: Vec<u8> = some.iter().flat_map(|route| key(route.prefix)).collect();
            let values: Vec<u8> = some
                .iter()
                .flat_map(|route| route.hop.to_ne_bytes())
                .collect();
            let flags = (MapFlags::ANY, MapFlags::ANY);
            self.routes
                .update_batch(&keys, &values, some.len() as u32, flags.0, flags.1)
                .map_err(refused)?;
        }
        self.bytes = kernel_bytes().saturating_sub(before);
        Ok(())
    }

    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble> {
        self.routes
            .update(&key(prefix), &hop.to_ne_bytes(), MapFlags::ANY)
            .map_err(refused)
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        self.routes.delete(&key(prefix)).map_err(refused)
    }

    fn apart(&self) -> Option<Arc<dyn Reader>> {
        Some(Arc::clone(&self.programs) as Arc<dyn Reader>)
    }

    fn outside_heap(&self) -> u64 {
        self.bytes
    }
}

/// `struct lpm_key` of `bpf/lpm_trie.bpf.c`.
fn key(prefix: Prefix) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(prefix.length).to_ne_bytes());
    key[4..].copy_from_slice(&prefix.address.to_be_bytes());
    key
}

fn refused(error: libbpf_rs::Error) -> Trouble {
    Trouble::of("LPM trie map", error)
}
