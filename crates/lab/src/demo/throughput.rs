//! Small packets over the whole path, as fast as one CPU can make, carry and count them.

use std::time::Duration;

use super::Error;
use super::topology::HOST_PORT;
use crate::program::Interrupt;
use crate::traffic::{Generator, Hook, Sink, Template};
use crate::{Lab, Namespace};

/// Bytes of a packet, Ethernet header included, FCS not.
pub const FRAME: usize = 64;

/// The rates of one data plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Packets per second counted in XDP at host b.
    pub at_xdp: f64,
    /// Packets per second counted at TC ingress of host b.
    pub at_tc: f64,
}

impl Throughput {
    /// The better of the two places: which end is cheap depends on what arrives there, an XDP frame or a socket
    /// buffer, and no data plane shall suffer from its counter.
    pub fn better(&self) -> f64 {
        self.at_xdp.max(self.at_tc)
    }
}

/// Sends from host a, counts at host b, at both hooks. Whatever else arrives at host b is dropped meanwhile.
///
/// # Errors
/// Nothing arrives, or the generator cannot run.
pub fn measure(lab: &Lab, frame: &[u8], interrupt: &Interrupt) -> Result<Throughput, Error> {
    let at = |hook| -> Result<f64, Error> {
        let sink = Sink::attach_at(lab.namespace("b")?, HOST_PORT, hook)?;
        rate(lab.namespace("a")?, frame, &sink, interrupt)
    };
    Ok(Throughput {
        at_xdp: at(Hook::Xdp)?,
        at_tc: at(Hook::Tc)?,
    })
}

/// Packets per second in the best of [`WINDOWS`] windows, after a warm-up: whatever else the machine does meanwhile
/// only takes away.
fn rate(a: &Namespace, frame: &[u8], sink: &Sink, interrupt: &Interrupt) -> Result<f64, Error> {
    let generator = Generator::start(a, HOST_PORT, &Template::one_flow(frame)?, CPU)?;
    interrupt.sleep(WARM_UP)?;
    let mut best = 0.0f64;
    for _ in 0..WINDOWS {
        interrupt.check()?;
        best = best.max(sink.watch(WINDOW)?.packets_per_second());
    }
    generator.stop()?;
    if best > 0.0 {
        return Ok(best);
    }
    Err(Error::Wrong(
        "throughput: no packet arrived at host b".into(),
    ))
}

/// `1.23 Mpps`.
pub fn mpps(packets_per_second: f64) -> String {
    format!("{:.2} Mpps", packets_per_second / 1e6)
}

/// The CPU of generator, routers and sink.
const CPU: usize = 0;
const WARM_UP: Duration = Duration::from_millis(400);
const WINDOW: Duration = Duration::from_millis(300);
const WINDOWS: u32 = 6;
