//! The end of a measured path: counts packets and bytes, and drops them.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, Object};

use super::{SINK, load, open, program};
use crate::attach::{Attachment, Hook};
use crate::{Error, Namespace};

/// Received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Bytes of these frames, with the Ethernet header and without the FCS.
    pub bytes: u64,
}

/// Packets received in a time span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Packets and bytes of the span.
    pub counts: Counts,
    /// The span as measured.
    pub elapsed: Duration,
}

impl Rate {
    /// Packets per second.
    pub fn packets_per_second(&self) -> f64 {
        self.counts.packets as f64 / self.elapsed.as_secs_f64()
    }
}

/// A counting sink on an interface; detached when dropped.
#[derive(Debug)]
pub struct Sink {
    object: Object,
    place: String,
    _attached: Attachment,
}

impl Sink {
    /// Attaches with [`Self::attach_at`] to [`Hook::Xdp`].
    ///
    /// # Errors
    /// As [`Self::attach_at`].
    pub fn attach(namespace: &Namespace, ifname: &str) -> Result<Self, Error> {
        Self::attach_at(namespace, ifname, Hook::Xdp)
    }

    /// Attaches to an interface. From now on, counts and drops all packets that arrive there.
    ///
    /// # Errors
    /// No such interface, another XDP program is there, the driver has no XDP, or BPF is not
    /// allowed.
    pub fn attach_at(namespace: &Namespace, ifname: &str, hook: Hook) -> Result<Self, Error> {
        let object = load(open(SINK)?)?;
        let attached = match hook {
            Hook::Xdp => Attachment::xdp(program(&object, "sink")?, namespace, ifname)?,
            Hook::Tc => Attachment::tc(program(&object, "sink_skb")?, namespace, ifname)?,
        };
        Ok(Self {
            object,
            place: format!("{ifname} of {}", namespace.name()),
            _attached: attached,
        })
    }

    /// Returns the packets received since the sink was attached, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    pub fn count(&self) -> Result<Counts, Error> {
        let what = || format!("count at {}", self.place);
        let map = self.object.maps().find(|map| map.name() == "counts");
        let map = map.ok_or_else(|| Error::Usage("sink.bpf.c has no map `counts`".into()))?;
        let values = map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::bpf(what(), source))?;
        let mut sum = Counts::default();
        for value in values.into_iter().flatten() {
            let (packets, bytes) = value.split_at(mem::size_of::<u64>());
            sum.packets += u64::from_ne_bytes(packets.try_into().unwrap_or_default());
            sum.bytes += u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(sum)
    }

    /// Measures the rate over `window`, after a warm-up. The warm-up ends when two samples in a row
    /// agree within 3 %, or after [`WARM_UP_MAX`] on a busy machine.
    ///
    /// # Errors
    /// Nothing has arrived by the end of the warm-up.
    pub fn measure(&self, window: Duration) -> Result<Rate, Error> {
        let started = Instant::now();
        let mut before = 0.0;
        loop {
            let rate = self.watch(WARM_UP_LOOK)?.packets_per_second();
            let late = started.elapsed() > WARM_UP_MAX;
            if rate > 0.0 && (late || (rate - before).abs() < 0.03 * rate) {
                return self.watch(window);
            }
            if late {
                let what = format!("traffic at {}", self.place);
                return Err(Error::Timeout {
                    what,
                    milliseconds: WARM_UP_MAX.as_millis(),
                });
            }
            before = rate;
        }
    }

    /// Counts packets for `window` from now on.
    ///
    /// # Errors
    /// As [`Self::count`].
    pub fn watch(&self, window: Duration) -> Result<Rate, Error> {
        let (first, started) = (self.count()?, Instant::now());
        thread::sleep(window);
        let (last, elapsed) = (self.count()?, started.elapsed());
        let counts = Counts {
            packets: last.packets - first.packets,
            bytes: last.bytes - first.bytes,
        };
        Ok(Rate { counts, elapsed })
    }
}

/// Duration of a sample in the warm-up.
const WARM_UP_LOOK: Duration = Duration::from_millis(100);

/// Longest time that [`Sink::measure`] waits for a steady rate.
pub const WARM_UP_MAX: Duration = Duration::from_secs(5);
