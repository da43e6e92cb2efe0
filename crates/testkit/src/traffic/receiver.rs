//! Receiver of a trial: counts only the packets of the trial, each once, and detects reordering and
//! duplicates.

use std::time::{SystemTime, UNIX_EPOCH};

use libbpf_rs::{Map, MapCore as _, MapFlags, Object};

use super::histogram::{CLASSES, Histogram};
use super::trial::Latency;
use super::{RECEIVER, load, open, program};
use crate::attach::{Attachment, Hook};
use crate::{Error, Namespace};

/// A receiver on an interface; detached when dropped.
///
/// Packets of past trials are dropped; packets without a [`super::Stamp`] pass to the stack.
#[derive(Debug)]
pub struct Receiver {
    object: Object,
    place: String,
    trial: u16,
    sources: u16,
    _attached: Attachment,
}

/// Received packets of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Packets of this trial, each counted once.
    pub packets: u64,
    /// Bytes of these packets, with the Ethernet header and without the FCS.
    pub bytes: u64,
    /// Reordered packets: those that arrived after a later one (RFC 4737 3.3).
    pub reordered: u64,
    /// Duplicates; not in `packets`.
    pub duplicated: u64,
    /// Packets more than 65,536 positions late, which may be duplicates; not in `packets`.
    pub late: u64,
    /// Packets without a stamp of this program.
    pub strangers: u64,
    /// Latency of the packets, if requested and if packets arrived.
    pub latency: Option<Latency>,
}

impl Receiver {
    /// LIMIT: generators of a trial. `SOURCES_MAX` of bpf/receiver.bpf.c.
    pub const SOURCES_MAX: u16 = 8;

    /// Attaches to an interface. No packet counts for a trial before [`Self::begin`].
    ///
    /// # Errors
    /// No such interface, another XDP program is there, the driver has no XDP, or BPF is not
    /// allowed.
    pub fn attach(namespace: &Namespace, ifname: &str, hook: Hook) -> Result<Self, Error> {
        let object = load(open(RECEIVER)?)?;
        let attached = match hook {
            Hook::Xdp => Attachment::xdp(program(&object, "receiver")?, namespace, ifname)?,
            Hook::Tc => Attachment::tc(program(&object, "receiver_skb")?, namespace, ifname)?,
        };
        // Packets in flight from another receiver's trials must not count.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut receiver = Self {
            object,
            place: format!("{ifname} of {}", namespace.name()),
            trial: clock.map_or(0, |time| time.subsec_micros() as u16),
            sources: 1,
            _attached: attached,
        };
        receiver.begin(1, false)?;
        Ok(receiver)
    }

    /// Starts a trial with this number of generators. Returns the trial number of the first one's
    /// stamps; the others follow it. All counts are reset to 0. `timed`: measure the latency by the
    /// time in the stamps.
    ///
    /// # Errors
    /// No generator, or more than [`Self::SOURCES_MAX`], or the kernel refuses to write the maps.
    pub fn begin(&mut self, sources: u16, timed: bool) -> Result<u16, Error> {
        let most = Self::SOURCES_MAX;
        if !(1..=most).contains(&sources) {
            return Err(Error::Usage(format!(
                "{sources} generators; allowed are 1 to {most}"
            )));
        }
        self.trial = self.trial.wrapping_add(self.sources);
        self.sources = sources;
        let refused = |source| Error::bpf(format!("begin a trial at {}", self.place), source);
        let mut order = vec![0; ORDER];
        let head = [self.trial, timed.into(), sources].map(|word| u32::from(word).to_ne_bytes());
        order[..head.as_flattened().len()].copy_from_slice(head.as_flattened());
        // This order matters. Before the first number is set, no packet belongs to this trial.
        // After the counts are reset, no packet of the last trial counts.
        for source in (0..u32::from(sources)).rev() {
            self.map("orders")?
                .update(&source.to_ne_bytes(), &order, MapFlags::ANY)
                .map_err(refused)?;
        }
        let cpus = libbpf_rs::num_possible_cpus().map_err(refused)?;
        let zeros = vec![vec![0; TALLY]; cpus];
        self.map("tallies")?
            .update_percpu(&FIRST, &zeros, MapFlags::ANY)
            .map_err(refused)?;
        Ok(self.trial)
    }

    /// Packets received since the start of the trial, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    pub fn arrivals(&self) -> Result<Arrivals, Error> {
        let tallies = self
            .map("tallies")?
            .lookup_percpu(&FIRST, MapFlags::ANY)
            .map_err(|source| Error::bpf(format!("count at {}", self.place), source))?;
        let mut arrivals = Arrivals::default();
        let mut times = Histogram::default();
        let (mut variation, mut differences) = (0, 0);
        for tally in tallies.into_iter().flatten() {
            let (words, _) = tally.as_chunks::<8>();
            let word = |at: usize| words.get(at).map_or(0, |it| u64::from_ne_bytes(*it));
            arrivals.packets += word(0);
            arrivals.bytes += word(1);
            arrivals.reordered += word(2);
            arrivals.duplicated += word(3);
            arrivals.late += word(4);
            arrivals.strangers += word(5);
            times.add_classes((0..CLASSES).map(|class| word(COUNTS + class)), word(6));
            variation += word(7);
            differences += word(0).saturating_sub(1);
        }
        arrivals.latency = (times.samples() > 0).then(|| Latency {
            samples: times.samples(),
            p50: times.percentile(0.5) as f64,
            p99: times.percentile(0.99) as f64,
            p999: times.percentile(0.999) as f64,
            max: times.longest() as f64,
            jitter: variation as f64 / differences.max(1) as f64,
            histogram: times.cumulative(),
        });
        Ok(arrivals)
    }

    fn map(&self, name: &str) -> Result<Map<'_>, Error> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| Error::Usage(format!("receiver.bpf.c has no map `{name}`")))
    }
}

/// The only key of the tallies.
const FIRST: [u8; 4] = [0; 4];
/// Words of `struct tally` of bpf/receiver.bpf.c before its classes.
const COUNTS: usize = 9;
/// Bytes of `struct tally`.
const TALLY: usize = (COUNTS + CLASSES) * 8;
/// Bytes of `struct order`: trial, timed, sources, next, and the window of 65,536 sequence numbers.
const ORDER: usize = 24 + 65536 * 8;
