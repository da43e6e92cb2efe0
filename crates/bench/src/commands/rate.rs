//! `sidestep-bench rate`: the packet rate of a path between two network namespaces.

use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidestep_testkit::{Namespace, Napi};

use crate::traffic::{
    Driver as _, Flows, Hook, LiveFrames, Load, Local, Receiver, Stream, Template,
};

use super::{Outcome, take_signals};

/// Arguments of `rate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interface that sends
    #[arg(long, value_name = "NETNS:DEV")]
    pub from: Place,
    /// Interface at which packets are counted
    #[arg(long, value_name = "NETNS:DEV")]
    pub to: Place,
    /// Peer of the sending veth, if it does not accept XDP redirects yet
    #[arg(long, value_name = "NETNS:DEV")]
    pub via: Option<Place>,
    /// UDP over IPv6 frame to send, in hexadecimal, with 16 bytes of payload
    #[arg(long, value_name = "HEX")]
    pub frame: String,
}

/// An interface in a named network namespace.
#[derive(Clone, Debug)]
pub struct Place {
    namespace: String,
    device: String,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, device) = text.split_once(':').ok_or("expected NETNS:DEV")?;
        Ok(Self {
            namespace: namespace.to_owned(),
            device: device.to_owned(),
        })
    }
}

/// Runs the command. Prints one line per hook: its name and packets per second.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let interrupted = Arc::new(AtomicBool::new(false));
    take_signals(&interrupted)?;
    let frame = hex::decode(&args.frame).map_err(|error| format!("--frame: {error}"))?;
    let flow = Flows {
        checksum: Some(UDP_CHECKSUM),
        ..Flows::ONE
    };
    let stream = Stream::of(Template::new(&frame, flow)?)?;
    let open = |place: &Place| Namespace::open(&place.namespace);
    let (from, to) = (open(&args.from)?, open(&args.to)?);
    let via = args
        .via
        .as_ref()
        .map(|via| Napi::attach(&open(via)?, &via.device));
    let _via = via.transpose()?;
    for (name, hook) in [("xdp", Hook::Xdp), ("tc", Hook::Tc)] {
        let receiver = Receiver::attach(&to, &args.to.device, hook)?;
        let source = LiveFrames::open(&from, &args.from.device, &stream, CPU)?;
        let mut local =
            Local::new(source, receiver).interrupted_by(Arc::clone(&interrupted).into());
        local.trial(Load::Maximum, WARM_UP, false)?;
        // Use the best of several trials, because other load on the machine can only lower the
        // rate.
        let mut best = 0.0_f64;
        for _ in 0..TRIALS {
            let trial = local.trial(Load::Maximum, TRIAL, false)?;
            best = best.max(trial.received_rate());
        }
        if best == 0.0 {
            return Err(format!("no packet arrived at {}", args.to.device).into());
        }
        writeln!(out, "{name} {best:.0}")?;
    }
    Ok(())
}

/// CPU that runs the generator, the path and the receiver.
const CPU: usize = 0;
const WARM_UP: Duration = Duration::from_millis(400);
const TRIAL: Duration = Duration::from_millis(300);
const TRIALS: u32 = 6;
/// Offset of the UDP checksum, after Ethernet and IPv6.
const UDP_CHECKSUM: usize = 14 + 40 + 6;
