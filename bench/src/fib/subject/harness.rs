//! BPF programs that make many lookups in one run: the user-space side of bpf/harness.bpf.h.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{MapCore, MapHandle, ObjectBuilder, OpenMapMut};
use sidestep_datapath::kernel::Mapping;
use sidestep_fib::Memory as _;

use super::{Order, Reader, Trouble, Way};
use crate::fib::traffic::Addresses;

/// LIMIT: addresses. `ADDRESSES` of bpf/harness.bpf.h.
pub const ADDRESSES: usize = 1 << 17;
/// LIMIT: addresses whose answers are stored. `ANSWERS` of bpf/harness.bpf.h.
pub const ANSWERS: usize = 1 << 16;

const NOTHING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nothing.bpf.o"));

/// Common part of all programs: the addresses, and the loop without a lookup.
#[derive(Debug)]
pub struct Harness {
    shared: Vec<MapHandle>,
    nothing: Programs,
}

impl Harness {
    /// Loads the harness.
    ///
    /// # Errors
    /// The process is not root, or the kernel refuses.
    pub fn new() -> Result<Self, Trouble> {
        let (nothing, shared) = load(NOTHING, &[], |_| Ok(()))?;
        Ok(Self { shared, nothing })
    }

    /// Loads the programs of an object with the shared addresses, and returns them with handles of
    /// all its maps. `prepare` is called for each other map before it is created.
    pub fn programs(
        &self,
        object: &[u8],
        prepare: impl FnMut(&mut OpenMapMut<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<(Programs, Vec<MapHandle>), Trouble> {
        load(object, &self.shared, prepare)
    }

    /// Stores the addresses for the next runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn put(&self, addresses: &Addresses) -> Result<(), Trouble> {
        let words = Mapping::of_value(named(&self.shared, "addresses"))
            .map_err(|error| Trouble::of("BPF", error))?;
        let places = words.words()[addresses.place * 2..].chunks_exact(2);
        for (place, address) in places.zip(&addresses.wire) {
            let [high, low] = [&address[..8], &address[8..]]
                .map(|half| u64::from_ne_bytes(half.try_into().expect("eight bytes")));
            place[0].store(high, Ordering::Relaxed);
            place[1].store(low, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Times the empty loop, whose time is subtracted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn time_nothing(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        order: Order,
    ) -> Result<Duration, Trouble> {
        self.nothing.time(addresses, range, Way::plain(order))
    }
}

/// The programs that the macro HARNESS defines for a lookup function.
#[derive(Debug)]
pub struct Programs {
    independent: OwnedFd,
    dependent: OwnedFd,
    written: OwnedFd,
    answers: MapHandle,
    /// Interface index of the ingress that lookups assume.
    pub ingress: u32,
}

impl Reader for Programs {
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble> {
        assert!(addresses.len() <= ANSWERS, "no room for the answers");
        self.run(
            self.written.as_fd(),
            addresses.place..addresses.place + addresses.len(),
        )?;
        let words = Mapping::of_value(&self.answers).map_err(|error| Trouble::of("BPF", error))?;
        let halves = words.words().iter().flat_map(|word| {
            let word = word.load(Ordering::Relaxed);
            [word as u32, (word >> 32) as u32]
        });
        Ok(halves.take(addresses.len()).collect())
    }

    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble> {
        let program = match way.order {
            Order::Dependent => &self.dependent,
            Order::Independent | Order::Batch => &self.independent,
        };
        let places = addresses.place + range.start..addresses.place + range.end;
        self.run(program.as_fd(), places)
    }
}

impl Programs {
    /// Runs a program over the addresses at these positions, and returns the time that the kernel
    /// measured.
    fn run(&self, program: BorrowedFd<'_>, places: Range<usize>) -> Result<Duration, Trouble> {
        // `struct run`, in a frame that exceeds the minimum length.
        let mut frame = [0_u8; 64];
        let numbers = [places.start as u32, places.len() as u32, self.ingress];
        for (bytes, number) in frame[8..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: a frame and options that live for the call, an open descriptor.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            return Err(Trouble::of("BPF_PROG_TEST_RUN", error));
        }
        Ok(Duration::from_nanos(options.duration.into()))
    }
}

/// Loads an object. These maps replace its own ones of the same name.
fn load(
    object: &[u8],
    shared: &[MapHandle],
    mut prepare: impl FnMut(&mut OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<(Programs, Vec<MapHandle>), Trouble> {
    let mut loaded = || -> libbpf_rs::Result<_> {
        let mut open = ObjectBuilder::default().open_memory(object)?;
        for mut map in open.maps_mut() {
            match shared.iter().find(|it| it.name() == map.name()) {
                Some(shared) => map.reuse_fd(shared.as_fd())?,
                None => prepare(&mut map)?,
            }
        }
        let object = open.load()?;
        let maps: Vec<_> = object
            .maps()
            .map(|map| MapHandle::try_from(&map))
            .collect::<libbpf_rs::Result<_>>()?;
        let program = |name: &str| {
            let program = object.progs().find(|program| program.name() == name);
            let program = program.expect("HARNESS makes it");
            program.as_fd().try_clone_to_owned()
        };
        let programs = Programs {
            independent: program("independent")?,
            dependent: program("dependent")?,
            written: program("written")?,
            answers: MapHandle::try_from(named(&maps, "answers"))?,
            ingress: 0,
        };
        Ok((programs, maps))
    };
    loaded().map_err(|error| Trouble::of("the kernel refuses the BPF program", error))
}

/// Returns the map with this name, which must exist.
pub fn named<'a>(maps: &'a [MapHandle], name: &str) -> &'a MapHandle {
    let map = maps.iter().find(|map| map.name() == name);
    map.expect("both sides are in this repository")
}
