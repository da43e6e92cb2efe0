//! Trials: offer a load, wait for late packets, count. Rate searches and campaigns use only
//! [`Driver`].

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::interrupt::Interrupt;
use super::receiver::{Arrivals, Receiver};
use super::source::{LiveFrames, Offer, check};
use super::trial::{Disorder, Load, Trial};
use crate::Error;

/// A generator and a receiver, with an engine or a link between them.
pub trait Driver: fmt::Debug {
    /// Offers `load` for `duration`, waits for late packets, and counts. With `latency`, also
    /// measures how long packets took.
    ///
    /// # Errors
    /// The load cannot be offered, packets cannot be counted, or the trial was interrupted.
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error>;
}

/// Driver on this machine, with [`LiveFrames`] and a [`Receiver`].
#[derive(Debug)]
pub struct Local {
    source: LiveFrames,
    receiver: Receiver,
    interrupt: Option<Interrupt>,
    arrivals: Arrivals,
}

impl Local {
    /// Returns a driver for source and receiver, which stay set up between trials.
    pub fn new(source: LiveFrames, receiver: Receiver) -> Self {
        Self {
            source,
            receiver,
            interrupt: None,
            arrivals: Arrivals::default(),
        }
    }

    /// Makes trials end early when the program is interrupted.
    #[must_use]
    pub fn interrupted_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Returns the packets that arrived in the last trial, including reordered, duplicated and
    /// foreign packets.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Waits for late packets. RFC 2544 26.1 waits two seconds. This wait ends early once all
    /// packets have arrived, or none has arrived for [`SILENCE`].
    fn wait_for_late(&self, sent: u64) -> Result<Arrivals, Error> {
        let ended = Instant::now();
        let (mut arrivals, mut last_came) = (self.receiver.arrivals()?, Instant::now());
        while arrivals.packets < sent && last_came.elapsed() < SILENCE && ended.elapsed() < LATE_MAX
        {
            thread::sleep(LOOK);
            check(self.interrupt.as_ref())?;
            let now = self.receiver.arrivals()?;
            if now.packets != arrivals.packets {
                last_came = Instant::now();
            }
            arrivals = now;
        }
        Ok(arrivals)
    }
}

impl Driver for Local {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        let offer = Offer {
            trial: self.receiver.begin(self.source.generators(), latency)?,
            load,
            duration,
            timed: latency,
        };
        let offered = self.source.offer(&offer, self.interrupt.as_ref())?;
        self.arrivals = self.wait_for_late(offered.sent)?;
        Ok(Trial {
            load,
            seconds: offered.seconds,
            sent: offered.sent,
            received: self.arrivals.packets,
            disorder: Disorder {
                reordered: self.arrivals.reordered,
                duplicated: self.arrivals.duplicated,
                late: self.arrivals.late,
            },
            latency: self.arrivals.latency.clone(),
        })
    }
}

/// Time without arrivals after which missing packets count as lost.
pub const SILENCE: Duration = Duration::from_millis(50);
/// Longest wait for late packets (RFC 2544 26.1).
pub const LATE_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);
