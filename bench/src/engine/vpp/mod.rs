//! FD.io VPP on the router's ports through `AF_PACKET`: a process of its own, with one thread.
//!
//! - [`commands`]: translates a case into commands of its CLI.
//! - [`daemon`]: starts, configures and stops the process.

mod commands;
mod daemon;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::behavior::{self, Behavior};
use super::measured::{Measured, Path};
use super::network::{NAME, Network, PORT, ROUTER};
use super::verify::{exchange, same};
use super::{Case, Engine, Options, Standing, plane, recipe, stream};
use daemon::{Programs, Running, SOCKET, Startup};
use sidestep_testkit::Napi;
use sidestep_testkit::hexdiff::diff;
use sidestep_testkit::traffic::{Load, Trial};
use sidestep_testkit::{Error, Lab};

/// The engine.
#[derive(Debug)]
pub(super) struct Vpp {
    programs: Result<Programs, String>,
    options: Options,
}

impl Vpp {
    /// Uses the programs of the options, or those in `PATH`.
    pub fn of(options: &Options) -> Self {
        Self {
            programs: Programs::find(options.vpp.as_deref()),
            options: options.clone(),
        }
    }

    fn programs(&self) -> Result<&Programs, Error> {
        self.programs
            .as_ref()
            .map_err(|why| Error::Usage(format!("vpp: {why}")))
    }

    fn startup(&self, case: &Case) -> Startup {
        Startup {
            cpu: self.options.placement.system,
            routes: case.routes,
        }
    }

    /// Returns the version that VPP reports.
    fn version(&self) -> Result<String, Error> {
        let mut lab = Lab::new(NAME)?;
        let router = lab.node(ROUTER)?.namespace(ROUTER)?;
        let startup = Startup {
            cpu: self.options.placement.system,
            routes: 0,
        };
        let running = self.programs()?.start(router, startup, &self.options)?;
        running.ask("show version")
    }
}

impl Engine for Vpp {
    fn name(&self) -> &'static str {
        "vpp"
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let version = self.version().unwrap_or_else(|error| error.to_string());
        let buffers = match daemon::pages() {
            "default" => "ordinary pages",
            _ => "huge pages",
        };
        let own = [
            ("CPUs", self.options.cpus()),
            ("program", version),
            ("mode", "AF_PACKET, one thread".to_owned()),
            ("buffers", buffers.to_owned()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        own.into_iter().chain(super::port::of_veth()).collect()
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        let asked = || {
            let kind = behavior::kind(&case.behavior)?;
            if kind.limit {
                return Err(format!("{} is of engine none", kind.name));
            }
            kind.check(case)?;
            self.programs.as_ref().map_err(String::clone)?;
            if case.cores > 1 {
                return Err("VPP is set up with one thread".into());
            }
            for (behavior, _) in stream(case).map_err(|error| error.to_string())? {
                commands::of(&behavior)?;
            }
            sidestep_testkit::capability::missing().map_or(Ok(()), Err)
        };
        asked().err()
    }

    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error> {
        if let Some(why) = self.refuses(case) {
            return Err(Error::Usage(format!("vpp: {case}: {why}")));
        }
        self.options.check()?;
        let stream = stream(case)?;
        let behavior = &stream[0].0;
        let commands = commands::of(behavior).map_err(Error::Usage)?;
        let network = Arc::new(Network::bypassed(behavior.queues)?);
        let programs = self.programs()?;
        let mut running = programs.start(network.router()?, self.startup(case), &self.options)?;
        running.configure(&commands)?;
        let standing = plane::Standing::others(&network, behavior)?;
        for (behavior, _) in &stream {
            self.options.check()?;
            verify(&network, behavior).or_else(|error| running.check().and(Err(error)))?;
        }
        let measured = Measured::new(Path::Other(standing), stream, case, &self.options)?;
        Ok(Box::new(Up { running, measured }))
    }

    fn recipe(&self, case: &Case) -> Vec<String> {
        let Ok(stream) = stream(case) else {
            return Vec::new();
        };
        let behavior = &stream[0].0;
        let Ok(commands) = commands::of(behavior) else {
            return Vec::new();
        };
        let words = self.startup(case).words(DIRECTORY).join(" ");
        let mut recipe = recipe::bypassed(behavior.queues);
        recipe.push(format!("ip netns exec {ROUTER} vpp {words} &"));
        let commands = commands.iter();
        recipe.extend(commands.map(|command| format!("vppctl -s {DIRECTORY}/{SOCKET} {command}")));
        recipe
    }
}

/// Verifies VPP with one packet, byte for byte.
fn verify(network: &Network, behavior: &Behavior) -> Result<(), Error> {
    let _napi = Napi::attach(network.sink()?, PORT)?;
    let wrong = |what: &str| Error::Wrong(format!("{} on VPP: {what}", behavior.name));
    let Some(found) = exchange(network, &behavior.sent)? else {
        return Err(wrong("the router sent no packet"));
    };
    let expected = expected(behavior);
    if same(&expected, &found, behavior.computed_label) {
        return Ok(());
    }
    let difference = diff(&expected, &found);
    Err(wrong(&format!(
        "the router sent another packet\n{difference}"
    )))
}

/// Returns the frame that VPP has to send, as the RFCs require. The exception is H.Insert: VPP
/// decrements the Hop Limit when it inserts the SRH, and again when it forwards the packet.
fn expected(behavior: &Behavior) -> Vec<u8> {
    let mut frame = behavior.from_sidestep.clone();
    if behavior
        .routes
        .iter()
        .any(|it| it.contains(" mode inline "))
    {
        frame[HOP_LIMIT] -= 1;
    }
    frame
}

/// A running VPP, ready for trials.
struct Up {
    // The first field, so that VPP exits before its ports are removed.
    running: Running,
    measured: Measured,
}

impl Standing for Up {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        let trial = self.measured.trial(load, duration, latency);
        self.running.check()?;
        trial
    }
}

/// Directory of VPP's sockets in a recipe.
const DIRECTORY: &str = "/run/vpp";
/// Offset of the Hop Limit in a frame.
const HOP_LIMIT: usize = 14 + 7;
