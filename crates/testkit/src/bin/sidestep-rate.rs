//! Packet rate of a path between two network namespaces, for `./dev demo`.
//!
//! `sidestep-rate FROM TO FRAME [VIA]` prints one line per hook: its name and packets per second.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use sidestep_testkit::traffic::{
    Driver as _, Flows, Hook, LiveFrames, Load, Local, Receiver, Stream, Template,
};
use sidestep_testkit::{Namespace, Napi};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: sidestep-rate FROM TO FRAME [VIA]
  FROM   interface that sends, NETNS:DEV
  TO     interface at which packets are counted, NETNS:DEV
  FRAME  UDP over IPv6 frame to send, in hexadecimal, with 16 bytes of payload
  VIA    peer of the sending veth, NETNS:DEV, if it does not accept XDP redirects yet";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [from, to, frame] => measure(from, to, frame, None),
        [from, to, frame, via] => measure(from, to, frame, Some(via)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-rate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An interface in a named network namespace.
struct Place<'a> {
    namespace: Namespace,
    device: &'a str,
}

impl<'a> Place<'a> {
    fn open(text: &'a str) -> Result<Self> {
        let (namespace, device) = text
            .split_once(':')
            .ok_or_else(|| format!("{text}: expected NETNS:DEV"))?;
        let namespace = Namespace::open(namespace)?;
        Ok(Self { namespace, device })
    }
}

fn measure(from: &str, to: &str, frame: &str, via: Option<&str>) -> Result<()> {
    // Programs are detached before the end, also at a signal.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let frame = hex::decode(frame).map_err(|error| format!("FRAME: {error}"))?;
    let flow = Flows {
        checksum: Some(UDP_CHECKSUM),
        ..Flows::ONE
    };
    let stream = Stream::of(Template::new(&frame, flow)?)?;
    let (from, to) = (Place::open(from)?, Place::open(to)?);
    let via = via.map(Place::open).transpose()?;
    let via = via.map(|via| Napi::attach(&via.namespace, via.device));
    let _via = via.transpose()?;
    for (name, hook) in [("xdp", Hook::Xdp), ("tc", Hook::Tc)] {
        let receiver = Receiver::attach(&to.namespace, to.device, hook)?;
        let source = LiveFrames::open(&from.namespace, from.device, &stream, CPU)?;
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
            return Err(format!("no packet arrived at {}", to.device).into());
        }
        println!("{name} {best:.0}");
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
