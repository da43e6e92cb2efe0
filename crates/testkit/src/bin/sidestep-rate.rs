//! Packet rate and loss of a path between two network namespaces, for `./dev demo`.
//!
//! `sidestep-rate FROM TO FRAME [VIA]` prints one line per hook: its name and packets per second.
//! `sidestep-rate --lost PPS SECONDS FROM TO FRAME` prints the packets that were sent and lost, and
//! the time in seconds that it took.

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

const USAGE: &str = "usage: sidestep-rate [--lost PPS SECONDS] FROM TO FRAME [VIA]
  FROM   interface that sends, NETNS:DEV
  TO     interface at which packets are counted, NETNS:DEV
  FRAME  UDP over IPv6 frame to send, in hexadecimal, with 16 bytes of payload
  VIA    peer of the sending veth, NETNS:DEV, if it does not accept XDP redirects yet
  --lost PPS SECONDS
         send at this rate for this time, and count what is lost";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut fixed = None;
    if let ["--lost", pps, seconds, ..] = words[..]
        && let (Ok(pps), Ok(seconds)) = (pps.parse::<u32>(), seconds.parse::<u16>())
    {
        fixed = Some((Load::Rate(pps.into()), Duration::from_secs(seconds.into())));
        words.drain(..3);
    }
    let (places, via) = match words[..] {
        [from, to, frame] => ([from, to, frame], None),
        [from, to, frame, via] => ([from, to, frame], Some(via)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = Setup::new(places, via).and_then(|setup| match fixed {
        Some((load, duration)) => setup.lost(load, duration),
        None => setup.rates(),
    });
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

/// A generator and the places that it needs.
struct Setup<'a> {
    from: Place<'a>,
    to: Place<'a>,
    stream: Stream,
    interrupted: Arc<AtomicBool>,
    _via: Option<Napi>,
}

impl<'a> Setup<'a> {
    fn new([from, to, frame]: [&'a str; 3], via: Option<&'a str>) -> Result<Self> {
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
        let via = via.map(Place::open).transpose()?;
        let via = via.map(|via| Napi::attach(&via.namespace, via.device));
        Ok(Self {
            stream: Stream::of(Template::new(&frame, flow)?)?,
            from: Place::open(from)?,
            to: Place::open(to)?,
            interrupted,
            _via: via.transpose()?,
        })
    }

    /// Returns a driver whose packets are counted at this hook.
    fn driver(&self, hook: Hook) -> Result<Local> {
        let receiver = Receiver::attach(&self.to.namespace, self.to.device, hook)?;
        let from = &self.from;
        let source = LiveFrames::open(&from.namespace, from.device, &self.stream, CPU)?;
        let interrupted = Arc::clone(&self.interrupted);
        Ok(Local::new(source, receiver).interrupted_by(interrupted.into()))
    }

    /// Prints the highest rate at each hook.
    fn rates(&self) -> Result<()> {
        for (name, hook) in [("xdp", Hook::Xdp), ("tc", Hook::Tc)] {
            let mut local = self.driver(hook)?;
            local.trial(Load::Maximum, WARM_UP, false)?;
            // Use the best of several trials, because other load on the machine can only lower the
            // rate.
            let mut best = 0.0_f64;
            for _ in 0..TRIALS {
                let trial = local.trial(Load::Maximum, TRIAL, false)?;
                best = best.max(trial.received_rate());
            }
            if best == 0.0 {
                return Err(format!("no packet arrived at {}", self.to.device).into());
            }
            println!("{name} {best:.0}");
        }
        Ok(())
    }

    /// Prints how many packets were sent and lost, and the time that it took.
    fn lost(&self, load: Load, duration: Duration) -> Result<()> {
        let trial = self.driver(Hook::Xdp)?.trial(load, duration, false)?;
        let lost = trial.sent.saturating_sub(trial.received);
        println!("{} {lost} {:.3}", trial.sent, trial.seconds);
        Ok(())
    }
}

/// CPU that runs the generator, the path and the receiver.
const CPU: usize = 0;
const WARM_UP: Duration = Duration::from_millis(400);
const TRIAL: Duration = Duration::from_millis(300);
const TRIALS: u32 = 6;
/// Offset of the UDP checksum, after Ethernet and IPv6.
const UDP_CHECKSUM: usize = 14 + 40 + 6;
