//! BPF programs that do many lookups in one run: bpf/harness.bpf.h from this side.

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
/// LIMIT: addresses whose answers are written down. `ANSWERS` of bpf/harness.bpf.h.
pub const ANSWERS: usize = 1 << 16;

const NOTHING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nothing.bpf.o"));

/// Common part of all programs: the addresses, and the loop without a lookup.
#[derive(Debug)]
pub struct Harness {
    shared: Vec<MapHandle>,
    nothing: Programs,
}

impl Harness {
    /// Loads it.
    ///
    /// # Errors
    /// Not root, or the kernel refuses.
    pub fn new() -> Result<Self, Trouble> {
        let (nothing, shared) = load(NOTHING, &[], |_| Ok(()))?;
        Ok(Self { shared, nothing })
    }

    /// The programs of an object with the shared addresses, and handles of all its maps. `prepare` sees the other ones
    /// before they are made.
    pub fn programs(
        &self,
        object: &[u8],
        prepare: impl FnMut(&mut OpenMapMut<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<(Programs, Vec<MapHandle>), Trouble> {
        load(object, &self.shared, prepare)
    }

    /// Puts addresses in place for the runs to come.
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

    /// The empty loop, whose time is subtracted.
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

/// The programs that HARNESS makes of a lookup.
#[derive(Debug)]
pub struct Programs {
    independent: OwnedFd,
    dependent: OwnedFd,
    written: OwnedFd,
    answers: MapHandle,
    /// Interface index that packets would come from.
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
    /// One run over the addresses in these places; its time by the kernel's clock.
    fn run(&self, program: BorrowedFd<'_>, places: Range<usize>) -> Result<Duration, Trouble> {
        // `struct run`, in a frame of the least length and more.
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

/// Loads an object, with these maps in the place of its own of the same name.
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
    loaded().map_err(|error| Trouble::of("the kernel takes no BPF program", error))
}

/// The map of that name; it has to be there.
pub fn named<'a>(maps: &'a [MapHandle], name: &str) -> &'a MapHandle {
    let map = maps.iter().find(|map| map.name() == name);
    map.expect("both sides are in this repository")
}
