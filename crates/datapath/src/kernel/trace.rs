//! Samples packets on the live path, for `sidestep trace`.
//!
//! The plain programs know nothing of it. While a trace runs, programs compiled with
//! `SIDESTEP_TRACED` from the same source replace them on every port. One update of the link (or
//! filter) installs each program, as for the program of a new daemon, so that no packet is lost.
//! The end of the trace restores the plain programs in the same way. The maps of a trace (filter,
//! drafts, ring) have no pins. A process that loads afresh installs plain programs on all ports, so
//! nothing remains of the trace of a dead process.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};

use crate::abi::{
    Reason, SIDESTEP_FILTER_DESTINATION, SIDESTEP_FILTER_LOOKED_UP, SIDESTEP_FILTER_REASON,
    SIDESTEP_FILTER_SOURCE, SIDESTEP_FILTER_VERDICT, SIDESTEP_SAMPLE_BYTES, sidestep_filter,
    sidestep_filter_prefix, sidestep_sample,
};
use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use super::{Descriptor, Features, Kernel, KernelError, Target, fib, load};
use crate::native::{Trace, Verdict, VerdictKind};

/// Selects packets: a packet must match every field that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    /// Ingress interface.
    pub ifindex: Option<u32>,
    /// Prefix of the source, in the IP header that arrived.
    pub source: Option<IpNet>,
    /// Prefix of the destination, in the IP header that arrived.
    pub destination: Option<IpNet>,
    /// Prefix of an address that was looked up on the packet's way. An IPv4 prefix also matches
    /// IPv6 addresses that begin with its bytes, and vice versa, because the packet path does not
    /// know the family of a key here.
    pub met: Option<IpNet>,
    /// Verdict.
    pub verdict: Option<VerdictKind>,
    /// Reason of a drop, or of leaving a packet to the kernel.
    pub reason: Option<&'static Reason>,
}

/// Rate of samples and bytes per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// This many at once, and as many each second after that.
    pub rate: NonZeroU32,
    /// Bytes to copy of a frame as it arrived and as it left; at most `SIDESTEP_SAMPLE_BYTES`.
    pub bytes: u32,
}

/// The first bytes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// At most [`Sampling::bytes`] of the frame.
    pub bytes: Vec<u8>,
    /// Bytes of the whole frame.
    pub length: u32,
}

/// A packet of the live path with its verdict and steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it arrived: nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// Ingress interface.
    pub ifindex: u32,
    /// Verdict.
    pub verdict: Verdict,
    /// Frame as it arrived.
    pub arrived: Head,
    /// Frame as it left, or as the kernel received it if it was changed.
    pub left: Option<Head>,
    /// Its steps, in order.
    pub steps: Vec<Trace>,
}

/// Kernel objects of a trace: its loaded programs and its maps.
#[derive(Debug)]
pub struct Tracer {
    xdp: OnceLock<Descriptor>,
    tc: OnceLock<Descriptor>,
    behind_xdp: OnceLock<Descriptor>,
    /// In the order of [`load::TRACE_MAPS`]: the filter and the ring come first.
    maps: Vec<MapHandle>,
    /// Lines of the prefix table that the programs search.
    fib_lines: u32,
    ring: RingBuffer<'static>,
    samples: Receiver<Sample>,
}

/// Loads traced programs, on a thread of its own because the verifier takes long.
#[derive(Debug)]
pub struct TraceLoader {
    /// In the order of [`super::Table::ALL`].
    tables: Vec<MapHandle>,
    features: Features,
    /// Hooks that are in use.
    hooks: BTreeSet<Target>,
}

impl TraceLoader {
    /// Loads the programs of one trace. Nothing is put in place: see [`Kernel::trace_with`].
    ///
    /// # Errors
    /// [`KernelError::Load`].
    pub fn load(&self, filter: &TraceFilter, sampling: Sampling) -> Result<Tracer, KernelError> {
        let tracer = Tracer::new(&self.tables, &record(filter, sampling))?;
        for hook in &self.hooks {
            tracer.program(*hook, self.features, &self.tables)?;
        }
        Ok(tracer)
    }
}

impl Kernel {
    /// Returns a loader for the programs of a trace.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn trace_loader(&self) -> Result<TraceLoader, KernelError> {
        Ok(TraceLoader {
            tables: self.maps.duplicates()?,
            features: self.features,
            hooks: self.attached.keys().map(|(_, hook)| *hook).collect(),
        })
    }

    /// Loads the programs of a trace, and puts them in place.
    ///
    /// # Errors
    /// As [`TraceLoader::load`] and [`Kernel::trace_with`].
    pub fn trace_start(
        &mut self,
        filter: &TraceFilter,
        sampling: Sampling,
    ) -> Result<(), KernelError> {
        let tracer = self.trace_loader()?.load(filter, sampling)?;
        self.trace_with(tracer)
    }

    /// Puts traced programs on all ports, in the place of the plain ones or of those of another
    /// trace.
    ///
    /// # Errors
    /// [`KernelError::Grown`] if the prefix table has grown since the programs were loaded;
    /// [`KernelError::Attach`] where a port refused; then the plain programs run everywhere.
    pub fn trace_with(&mut self, tracer: Tracer) -> Result<(), KernelError> {
        if tracer.fib_lines != fib::lines(self.maps.handle(super::Table::Fib)) {
            return Err(KernelError::Grown);
        }
        self.tracer = Some(tracer);
        self.switch().inspect_err(|_| {
            let _ = self.trace_stop();
        })
    }

    /// Puts the plain programs back. Samples that were not read are gone. Nothing happens if no
    /// trace runs.
    ///
    /// # Errors
    /// [`KernelError::Attach`]: the first that came up; the rest is done nevertheless.
    pub fn trace_stop(&mut self) -> Result<(), KernelError> {
        match self.tracer.take() {
            Some(_) => self.switch(),
            None => Ok(()),
        }
    }

    /// Readable when there are samples. None if no trace runs.
    pub fn trace_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tracer.as_ref().map(|tracer| tracer.maps[1].as_fd())
    }

    /// The next samples, `max` or fewer, without waiting.
    pub fn trace_samples(&self, max: usize) -> Vec<Sample> {
        let Some(tracer) = &self.tracer else {
            return Vec::new();
        };
        // An error is only that of the callback, which gives none.
        let _ = tracer.ring.consume_raw_n(max);
        tracer.samples.try_iter().collect()
    }

    /// Samples of this trace that the ring had no room for.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn trace_lost(&self) -> Result<u64, KernelError> {
        let Some(tracer) = &self.tracer else {
            return Ok(0);
        };
        let value = tracer.maps[0].lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = value.map_err(failed("read the filter of a trace"))?;
        Ok(bytes
            .and_then(|bytes| from_bytes::<sidestep_filter>(&bytes))
            .map_or(0, |filter| filter.lost))
    }

    /// Puts on all ports the programs that belong there now.
    pub(super) fn switch(&self) -> Result<(), KernelError> {
        let hooks = self.attached.keys();
        let switched = hooks.map(|&(ifindex, hook)| self.update(ifindex, hook).map(drop));
        switched.fold(Ok(()), Result::and)
    }
}

impl Tracer {
    fn new(tables: &[MapHandle], filter: &sidestep_filter) -> Result<Self, KernelError> {
        let maps = load::new_trace_maps(tables)?;
        maps[0]
            .update(&0u32.to_ne_bytes(), bytes_of(filter), MapFlags::ANY)
            .map_err(failed("write the filter of a trace"))?;
        let (sender, samples) = channel();
        let mut builder = RingBufferBuilder::new();
        let ring = builder
            .add(&maps[1], move |bytes| {
                if let Some(sample) = from_bytes(bytes).and_then(|raw| sample(&raw)) {
                    // The receiver is in the same structure.
                    let _ = sender.send(sample);
                }
                0
            })
            .map(drop);
        let ring = ring.and_then(|()| builder.build());
        Ok(Self {
            fib_lines: fib::lines(&tables[super::Table::Fib as usize]),
            xdp: OnceLock::new(),
            tc: OnceLock::new(),
            behind_xdp: OnceLock::new(),
            ring: ring.map_err(failed("open the ring of a trace"))?,
            maps,
            samples,
        })
    }

    /// Returns the traced program of a target. The first call for a hook loads it on these tables.
    pub(super) fn program(
        &self,
        target: Target,
        features: Features,
        tables: &[MapHandle],
    ) -> Result<BorrowedFd<'_>, KernelError> {
        let program = match target {
            Target::Xdp => &self.xdp,
            Target::Tc => &self.tc,
            Target::BehindXdp => &self.behind_xdp,
        };
        if program.get().is_none() {
            let object = load::load_hook(target, true, features, tables, &self.maps)?;
            let _ = program.set(load::program(&object, load::program_name(target))?);
        }
        Ok(program.get().expect("it is loaded").as_fd())
    }
}

fn failed(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> KernelError {
    move |source| KernelError::System {
        operation,
        source: std::io::Error::other(source),
    }
}

/// The filter as the packet path has it.
fn record(filter: &TraceFilter, sampling: Sampling) -> sidestep_filter {
    const SECOND: u64 = 1_000_000_000;
    let interval = (SECOND / u64::from(sampling.rate.get())).max(1);
    let flags = [
        (filter.source.is_some(), SIDESTEP_FILTER_SOURCE),
        (filter.destination.is_some(), SIDESTEP_FILTER_DESTINATION),
        (filter.met.is_some(), SIDESTEP_FILTER_LOOKED_UP),
        (filter.verdict.is_some(), SIDESTEP_FILTER_VERDICT),
        (filter.reason.is_some(), SIDESTEP_FILTER_REASON),
    ];
    let set = flags.into_iter().filter(|(set, _)| *set);
    sidestep_filter {
        source: filter.source.map(prefix).unwrap_or_default(),
        destination: filter.destination.map(prefix).unwrap_or_default(),
        looked_up: filter.met.map(prefix).unwrap_or_default(),
        flags: set.fold(0, |flags, (_, flag)| flags | flag),
        ifindex: filter.ifindex.unwrap_or(0),
        verdict: filter.verdict.map_or(0, VerdictKind::number),
        reason: filter.reason.map_or(0, |reason| reason.number),
        bytes: sampling.bytes.min(SIDESTEP_SAMPLE_BYTES),
        reserved: 0,
        interval,
        credit: SECOND - interval,
        next: 0,
        lost: 0,
    }
}

/// IEEE 802 `EtherTypes`.
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

fn prefix(net: IpNet) -> sidestep_filter_prefix {
    let octets = |address: IpAddr| match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
    };
    // Words as they lie in memory.
    let words = |octets: [u8; 16]| {
        let number = u128::from_ne_bytes(octets).to_le();
        [number as u64, (number >> 64) as u64]
    };
    let ethertype = match net {
        IpNet::V4(_) => ETHERTYPE_IPV4,
        IpNet::V6(_) => ETHERTYPE_IPV6,
    };
    sidestep_filter_prefix {
        address: words(octets(net.network())),
        mask: words(octets(net.netmask())),
        ethertype: ethertype.to_be().into(),
        reserved: 0,
    }
}

/// None: no sample of this version's.
fn sample(raw: &sidestep_sample) -> Option<Sample> {
    let left = raw.left.get(..raw.left_bytes as usize)?;
    Some(Sample {
        time: raw.time,
        ifindex: raw.ifindex,
        verdict: Verdict::from_numbers(raw.outcome, raw.egress, raw.reason)?,
        arrived: Head {
            bytes: raw.arrived.get(..raw.arrived_bytes as usize)?.to_vec(),
            length: raw.length,
        },
        left: (raw.left_length > 0).then(|| Head {
            bytes: left.to_vec(),
            length: raw.left_length,
        }),
        steps: raw.step.get(..raw.steps as usize)?.to_vec(),
    })
}

/// A structure of `datapath/sample.h`.
///
/// # Safety
/// `repr(C)` of integers without padding, for which every bit pattern is a value.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: sample.h asserts that its size is the sum of its fields, which are integers and arrays of
// them.
unsafe impl Plain for sidestep_filter {}
// SAFETY: as above.
unsafe impl Plain for sidestep_sample {}

fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: no padding, so every byte is initialized; the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// None: too few bytes.
pub(super) fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: as many bytes as T has, every pattern of which is a T; no alignment is assumed.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_compared_as_its_bytes_lie_in_memory() {
        let found = prefix("2001:db8:ff00::/40".parse().expect("a prefix"));
        let bytes = |words: [u64; 2]| words.map(u64::to_ne_bytes).concat();
        assert_eq!(bytes(found.address)[..6], [0x20, 0x01, 0x0d, 0xb8, 0xff, 0]);
        assert_eq!(bytes(found.mask)[..6], [0xff, 0xff, 0xff, 0xff, 0xff, 0]);
        assert_eq!(found.ethertype.to_ne_bytes()[..2], [0x86, 0xdd]);
        let found = prefix("10.1.2.3/16".parse().expect("a prefix"));
        assert_eq!(bytes(found.address)[..4], [10, 1, 0, 0], "host bits go");
        assert_eq!(bytes(found.mask)[..5], [0xff, 0xff, 0, 0, 0]);
        assert_eq!(found.ethertype.to_ne_bytes()[..2], [0x08, 0x00]);
    }

    #[test]
    fn a_rate_becomes_an_interval_and_a_credit_of_almost_a_second() {
        for (rate, interval, credit) in [
            (1, 1_000_000_000, 0),
            (10, 100_000_000, 900_000_000),
            (u32::MAX, 1, 999_999_999),
        ] {
            let sampling = Sampling {
                rate: NonZeroU32::new(rate).expect("not 0"),
                bytes: 64,
            };
            let found = record(&TraceFilter::default(), sampling);
            assert_eq!((found.interval, found.credit), (interval, credit));
        }
    }
}
