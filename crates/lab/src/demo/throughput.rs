//! Small packets over the whole path, as fast as one CPU can make, carry and count them.

use std::time::Duration;

use super::Error;
use super::topology::HOST_PORT;
use crate::Lab;
use crate::program::Interrupt;
use crate::traffic::{
    Driver as _, Flows, Hook, LiveFrames, Load, Local, Receiver, Stream, Template,
};

/// Bytes of a packet, Ethernet header included, FCS not: of UDP over IPv6 with room for the stamp by which it is counted.
pub const FRAME: usize = 78;

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

/// Sends from host a, counts at host b, at both hooks.
///
/// # Errors
/// Nothing arrives, the generator cannot run, or somebody wants it to end.
pub fn measure(lab: &Lab, frame: &[u8], interrupt: &Interrupt) -> Result<Throughput, Error> {
    let checksum = Some(UDP_CHECKSUM);
    let flow = Flows {
        checksum,
        ..Flows::ONE
    };
    let stream = Stream::of(Template::new(frame, flow)?)?;
    let at = |hook| -> Result<f64, Error> {
        let receiver = Receiver::attach(lab.namespace("b")?, HOST_PORT, hook)?;
        let source = LiveFrames::open(lab.namespace("a")?, HOST_PORT, &stream, CPU)?;
        rate(&mut Local::new(source, receiver).interrupted_by(interrupt.clone()))
    };
    Ok(Throughput {
        at_xdp: at(Hook::Xdp)?,
        at_tc: at(Hook::Tc)?,
    })
}

/// Packets per second in the best of [`TRIALS`], after a warm-up: whatever else the machine does meanwhile only takes away.
fn rate(local: &mut Local) -> Result<f64, Error> {
    local.trial(Load::Maximum, WARM_UP, false)?;
    let mut best = 0.0f64;
    for _ in 0..TRIALS {
        let trial = local.trial(Load::Maximum, TRIAL, false)?;
        best = best.max(trial.received_rate());
    }
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
const TRIAL: Duration = Duration::from_millis(300);
const TRIALS: u32 = 6;
/// Behind Ethernet, IPv6 and the ports and the length of UDP.
const UDP_CHECKSUM: usize = 14 + 40 + 6;
