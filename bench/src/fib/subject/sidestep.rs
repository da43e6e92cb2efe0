//! Sidestep's own table, natively and in its BPF map.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sidestep_datapath::kernel::{GracePeriod, Mapping};
use sidestep_fib::layout::LINE_WORDS;
use sidestep_fib::{Fib, Full, Heap, Memory, Prefix, lookup, walk};

use super::crates::time;
use super::harness::{self, Harness, Programs};
use super::{Reader, Stop, Subject, Trouble, Way};
use crate::fib::routes::Route;
use crate::fib::traffic::Addresses;

/// The view of all lookups, also in bpf/sidestep.bpf.c.
const VIEW: u32 = 1;
/// Initial number of lines, as in the product.
const LINES: usize = 1 << 14;
/// Bytes of a line.
const LINE: usize = LINE_WORDS * 8;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sidestep.bpf.o"));

/// Memory of a table, and its reader.
pub trait Home: Send + Sync {
    /// Its memory.
    type Memory: Memory + Send + Sync;

    /// Returns memory for this number of lines. Readers use it from now on.
    fn make(&mut self, lines: usize) -> Result<Self::Memory, Trouble>;

    /// Waits until all readers that are in progress have ended.
    fn wait(&self) -> Result<(), Trouble>;

    /// Returns the supported ways of lookups.
    fn ways(&self) -> Vec<Way>;

    /// Returns a reader of the memory that was created last.
    fn reader(&self) -> Arc<dyn Reader>;

    /// Size of memory for this number of lines outside this process' heap, in bytes.
    fn outside_heap(&self, lines: usize) -> u64;
}

/// A table in its memory.
pub struct Table<H: Home> {
    home: H,
    fib: Fib<H::Memory>,
}

impl<H: Home> Table<H> {
    fn at(mut home: H) -> Result<Self, Trouble> {
        let fib = Fib::new(home.make(LINES)?);
        Ok(Self { home, fib })
    }

    /// Changes the table. If it is full, reclaims or enlarges the memory and tries again, as the
    /// product does.
    fn change<T>(
        &mut self,
        mut change: impl FnMut(&mut Fib<H::Memory>) -> Result<T, Full>,
    ) -> Result<T, Trouble> {
        loop {
            match change(&mut self.fib) {
                Ok(done) => return Ok(done),
                Err(full) if full.is_worth_waiting() => self.reclaim()?,
                Err(full) => {
                    let lines = (full.lines + full.wanted).next_power_of_two();
                    let longer = self.home.make(lines)?;
                    self.fib.copy_to(&longer);
                    self.fib.move_to(longer);
                }
            }
        }
    }

    fn reclaim(&mut self) -> Result<(), Trouble> {
        self.fib.begin_grace();
        self.home.wait()?;
        self.fib.end_grace();
        Ok(())
    }
}

impl<H: Home> Reader for Table<H> {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        self.home.reader().answers(addresses)
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        self.home.reader().time(addresses, range, way)
    }
}

impl<H: Home> Subject for Table<H> {
    fn ways(&self) -> Vec<Way> {
        self.home.ways()
    }

    fn load(&mut self, routes: &[Route], _: &Stop) -> Result<(), Trouble> {
        let routes = routes.iter().map(|route| (route.prefix, route.hop));
        let mut whole = routes.collect();
        self.change(|fib| fib.replace_with(VIEW, &mut whole))
    }

    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble> {
        self.change(|fib| fib.insert(VIEW, prefix, hop)).map(|_| ())
    }

    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble> {
        self.change(|fib| fib.remove(VIEW, prefix)).map(|_| ())
    }

    fn apart(&self) -> Option<Arc<dyn Reader>> {
        Some(self.home.reader())
    }

    fn outside_heap(&self) -> u64 {
        self.home.outside_heap(self.fib.usage().lines)
    }

    fn walked(&self) -> Option<u64> {
        Some((self.fib.usage().used * LINE) as u64)
    }

    fn depth(&self, address: u128) -> Option<u32> {
        Some(walk::depth(self.fib.memory(), VIEW, address))
    }
}

/// A table on the heap, with its readers in this process.
pub struct Native {
    memory: Arc<Heap>,
    /// Readers hold it during lookups.
    gate: Arc<RwLock<()>>,
}

/// The table on this process' heap.
pub fn native() -> Result<Table<Native>, Trouble> {
    Table::at(Native {
        memory: Arc::new(Heap::new(0)),
        gate: Arc::default(),
    })
}

impl Home for Native {
    type Memory = Arc<Heap>;

    fn make(&mut self, lines: usize) -> Result<Arc<Heap>, Trouble> {
        self.memory = Arc::new(Heap::new(lines));
        Ok(Arc::clone(&self.memory))
    }

    fn wait(&self) -> Result<(), Trouble> {
        drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn ways(&self) -> Vec<Way> {
        Way::SINGLE.to_vec()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        let (memory, gate) = (Arc::clone(&self.memory), Arc::clone(&self.gate));
        Arc::new(NativeReader { memory, gate })
    }

    fn outside_heap(&self, _: usize) -> u64 {
        0
    }
}

struct NativeReader {
    memory: Arc<Heap>,
    gate: Arc<RwLock<()>>,
}

impl Reader for NativeReader {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        let numbers = addresses.numbers.iter();
        Ok(numbers
            .map(|number| lookup(&self.memory, VIEW, *number))
            .collect())
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (memory, numbers): (&Heap, _) = (&self.memory, &addresses.numbers[range]);
        Ok(time(numbers, way.order, |number| {
            lookup(memory, VIEW, number)
        }))
    }
}

/// A table in a BPF map, as in the product.
pub struct Xdp {
    harness: Arc<Harness>,
    programs: Option<Arc<Programs>>,
    grace_period: GracePeriod,
}

/// The table in its BPF map, walked by XDP programs.
pub fn xdp(harness: Arc<Harness>) -> Result<Table<Xdp>, Trouble> {
    let failed = |error| Trouble::of("BPF", error);
    Table::at(Xdp {
        harness,
        programs: None,
        grace_period: GracePeriod::new().map_err(failed)?,
    })
}

impl Home for Xdp {
    type Memory = Mapping;

    fn make(&mut self, lines: usize) -> Result<Mapping, Trouble> {
        let (programs, maps) = self.harness.programs(OBJECT, |map| {
            let name = map.name().to_string_lossy().into_owned();
            if name == "fib" {
                map.set_value_size((lines * LINE) as u32)
            } else if name.ends_with(".rodata") {
                map.set_initial_value(&(lines as u32).to_ne_bytes())
            } else {
                Ok(())
            }
        })?;
        self.programs = Some(Arc::new(programs));
        let map = harness::named(&maps, "fib");
        Mapping::of_value(map).map_err(|error| Trouble::of("BPF", error))
    }

    fn wait(&self) -> Result<(), Trouble> {
        self.grace_period
            .wait()
            .map_err(|error| Trouble::of("BPF", error))
    }

    fn ways(&self) -> Vec<Way> {
        Way::SINGLE.to_vec()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        let programs = self.programs.as_ref().expect("made with the first memory");
        Arc::clone(programs) as Arc<dyn Reader>
    }

    fn outside_heap(&self, lines: usize) -> u64 {
        (lines * LINE) as u64
    }
}
