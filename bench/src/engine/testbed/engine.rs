//! An engine on the second machine of a testbed.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::super::behavior::{self, Behavior, Kind};
use super::super::exec::{self, Commands, exported, quoted, variables};
use super::super::network::{PORTS, SYSCTLS};
use super::super::plane::Plane;
use super::super::product::check_forwarded;
use super::super::verify;
use super::super::{Case, Engine, Flows, PROGRAM_SHA256, Standing, stream};
use super::bed::{Bed, Entered};
use crate::trex::Trex;
use sidestep_testkit::Error;
use sidestep_testkit::lab::QUIET;
use sidestep_testkit::traffic::{Driver as _, Load, Trial};

/// An engine of a testbed.
#[derive(Debug)]
pub(super) struct OnTestbed {
    pub of: Of,
    pub bed: Rc<Bed>,
}

/// Kind of the engine.
#[derive(Clone, Debug)]
pub(super) enum Of {
    Plane(Plane),
    Commands(Commands),
}

impl Of {
    pub const PLANES: [Self; 3] = [
        Self::Plane(Plane::Linux),
        Self::Plane(Plane::Tc),
        Self::Plane(Plane::Xdp),
    ];

    fn plane(&self) -> Option<Plane> {
        match self {
            Self::Plane(plane) => Some(*plane),
            Self::Commands(_) => None,
        }
    }

    fn keeps_hop_limit(&self) -> bool {
        matches!(self, Self::Commands(commands) if commands.keeps_hop_limit)
    }
}

impl Engine for OnTestbed {
    fn name(&self) -> &str {
        match &self.of {
            Of::Plane(plane) => plane.engine(),
            Of::Commands(commands) => &commands.name,
        }
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.bed.facts();
        if let Of::Commands(commands) = &self.of {
            facts.extend(commands.deviation());
        }
        let mut add = |name: &str, fact: String| facts.insert(name.to_owned(), fact);
        match (&self.of, &self.bed.version) {
            (Of::Plane(plane), version) => {
                add("mode", plane.mode().to_owned());
                if let (Plane::Tc | Plane::Xdp, Ok(version)) = (plane, version) {
                    add("program", version.clone());
                    let hash = self.bed.sha256.clone();
                    add(PROGRAM_SHA256, hash.unwrap_or_else(|error| error));
                }
            }
            (Of::Commands(Commands { info: None, .. }), _) => {}
            (
                Of::Commands(Commands {
                    info: Some(info), ..
                }),
                _,
            ) => match self.command(info, &BTreeMap::new()) {
                Ok(text) => facts.extend(exec::facts(&text)),
                Err(error) => {
                    add("info", error.to_string());
                }
            },
        }
        facts
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        let kind = match behavior::kind(&case.behavior) {
            Ok(kind) => kind,
            Err(why) => return Some(why),
        };
        let made = kind
            .check(case)
            .and_then(|()| self.lacks(&kind, case).map_or(Ok(()), Err))
            .and_then(|()| self.stream(case).map_err(|error| error.to_string()));
        let made = match made {
            Ok(made) => made,
            Err(why) => return Some(why),
        };
        let frames = made
            .iter()
            .flat_map(|(made, _)| [&made.sent, &made.from_linux]);
        let longest = frames.map(Vec::len).max().unwrap_or(0);
        if longest > self.bed.mtu + ETHERNET {
            let (packet, mtu) = (longest - ETHERNET, self.bed.mtu);
            return Some(format!(
                "packets of {packet} bytes with their headers; the system's ports have an MTU of {mtu}"
            ));
        }
        let Of::Commands(Commands {
            info: Some(info), ..
        }) = &self.of
        else {
            return None;
        };
        let variables = variables(case, &made[0].0, &self.bed.macs);
        let asked = self.command(info, &variables);
        asked.err().map(exec::reason)
    }

    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error> {
        self.bed.options.check()?;
        let stream = self.stream(case)?;
        let entered = self.bed.enter()?;
        self.configure(case, &stream[0].0)?;
        self.bed.options.check()?;
        let mut standing = OnSystem {
            trex: self.bed.trex(&stream, case)?,
            _entered: entered,
            of: self,
        };
        for (behavior, _) in &stream {
            standing.verify(behavior)?;
        }
        Ok(Box::new(standing))
    }

    fn recipe(&self, case: &Case) -> Vec<String> {
        let Ok(stream) = self.stream(case) else {
            return Vec::new();
        };
        let (namespace, behavior) = (self.bed.namespace(), &stream[0].0);
        let mut commands = vec![
            format!("ip netns add {namespace}"),
            format!("ip -n {namespace} link set lo up"),
        ];
        let sysctls = QUIET.into_iter().chain(SYSCTLS);
        commands.extend(
            sysctls.map(|(path, value)| {
                format!("ip netns exec {namespace} sysctl -qw {path}={value}")
            }),
        );
        for (port, inside) in self.bed.ports().iter().zip(PORTS) {
            commands.push(format!(
                "ip link set {port} netns {namespace} name {inside}"
            ));
            commands.push(format!("ip -n {namespace} link set {inside} up"));
        }
        commands.extend(self.commands(behavior));
        if let Of::Commands(of) = &self.of {
            commands.extend(exported(&self.variables(case, behavior)));
            commands.push(of.up.clone());
        }
        commands
    }
}

impl OnTestbed {
    /// Returns the case as behaviors of one packet length each, between the ports of the testbed,
    /// with their shares of the packets.
    fn stream(&self, case: &Case) -> Result<Vec<(Behavior, u32)>, Error> {
        let made = stream(case)?.into_iter().map(|(made, share)| {
            let made = match self.of {
                Of::Plane(Plane::Tc | Plane::Xdp) => made.without_devices(),
                Of::Plane(Plane::Linux) | Of::Commands(_) => made,
            };
            (made.between(&self.bed.macs), share)
        });
        Ok(made.collect())
    }

    /// Returns why the engine cannot run a case here, if so.
    fn lacks(&self, kind: &Kind, case: &Case) -> Option<String> {
        if kind.limit {
            let name = kind.name;
            return Some(format!(
                "{name} is of engine none, which a testbed does not have"
            ));
        }
        if kind.needs_service() {
            return Some("a testbed has no service behind its system".into());
        }
        if case.cores > 1 {
            let cores = case.cores;
            return Some(format!(
                "{cores} cores; a testbed has the CPUs that its system has"
            ));
        }
        if matches!(case.flows, Flows::Zipf(_)) {
            return Some("TRex sends flows round robin, not by Zipf".into());
        }
        match (&self.of, &self.bed.version) {
            (Of::Plane(Plane::Linux), _) => kind.not_in_linux.map(str::to_owned),
            (Of::Plane(Plane::Tc | Plane::Xdp), Err(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Returns the commands that configure the namespace with the ports as a router.
    fn commands(&self, behavior: &Behavior) -> Vec<String> {
        let namespace = self.bed.namespace();
        let router = self.bed.router(&namespace);
        match &self.of {
            Of::Plane(plane) => {
                let configured = router.configured(behavior, &PORTS).into_iter();
                configured
                    .chain(router.started(*plane, behavior, &PORTS))
                    .collect()
            }
            // The commands of the campaign configure everything else.
            Of::Commands(_) => router.configured(&Behavior::default(), &PORTS),
        }
    }

    fn configure(&self, case: &Case, behavior: &Behavior) -> Result<(), Error> {
        let script = format!("set -e\n{}", self.commands(behavior).join("\n"));
        self.bed.run("configure the router", &script)?;
        if let Of::Commands(commands) = &self.of {
            let variables = self.variables(case, behavior);
            let lines: Vec<String> = exported(&variables).collect();
            let down = quoted(&format!("{}\n{}", lines.join("\n"), commands.down));
            // Store `down`, so that it runs at the end in any case. Run it once before `up`, to
            // remove leftovers of a killed run.
            let script = format!(
                "printf '%s\\n' {down} >\"$home/down\"\ntimeout -k 5 60 sh \"$home/down\" || true"
            );
            self.bed.run(&commands.down, &script)?;
            self.command(&commands.up, &variables)?;
        }
        Ok(())
    }

    /// Returns the environment of the commands.
    fn variables(&self, case: &Case, behavior: &Behavior) -> BTreeMap<String, String> {
        let mut variables = variables(case, behavior, &self.bed.macs);
        variables.insert("ROUTER".to_owned(), self.bed.namespace());
        variables
    }

    /// Returns the output of a command if it exits with 0.
    fn command(
        &self,
        command: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<String, Error> {
        let lines: Vec<String> = exported(variables).collect();
        let script = quoted(&format!("{}\n{command}", lines.join("\n")));
        self.bed
            .run(command, &format!("timeout -k 5 60 sh -c {script}"))
    }
}

/// An engine that forwards on the system, and TRex at its ports.
struct OnSystem<'a> {
    // Rust drops fields in this order: TRex stops before the ports are released.
    trex: Trex,
    _entered: Entered<'a>,
    of: &'a OnTestbed,
}

impl OnSystem<'_> {
    /// Verifies that the expected engine forwards one packet correctly; Sidestep may first have to
    /// learn neighbors and links.
    fn verify(&mut self, behavior: &Behavior) -> Result<(), Error> {
        let bed = &self.of.bed;
        let plane = self.of.of.plane();
        let begun = Instant::now();
        loop {
            bed.options.check()?;
            let before = bed.tallies(plane)?;
            let found = self.exchange(behavior)?;
            let after = bed.tallies(plane)?;
            let mut ports = before.iter().zip(&after);
            let forwarded = ports.all(|(before, after)| after.forwarded > before.forwarded);
            let came = !matches!(found, Found::Nothing);
            if !(came && forwarded) && begun.elapsed() < PATIENCE {
                continue;
            }
            if came && !forwarded {
                let (name, reasons) = (&behavior.name, bed.reasons());
                return Err(Error::Wrong(format!(
                    "{name}: it is not Sidestep that forwards the frame\n{reasons}"
                )));
            }
            let frame = match found {
                Found::Counted => return Ok(()),
                Found::Nothing => None,
                Found::Frame(frame) => Some(frame),
            };
            return match plane {
                Some(plane) => verify::compare(plane, behavior, frame),
                None => exec::compare(behavior, frame, self.of.of.keeps_hop_limit()),
            };
        }
    }

    fn exchange(&mut self, behavior: &Behavior) -> Result<Found, Error> {
        if self.of.bed.captures() {
            let frame = self.trex.exchange(&behavior.sent, ANSWER)?;
            return Ok(frame.map_or(Found::Nothing, Found::Frame));
        }
        let trial = self.trex.trial(COUNTED, COUNTED_FOR, false)?;
        // Up to a tenth may be foreign packets, or lost while links come up.
        let came = trial.received > 0 && trial.received * 10 >= trial.sent * 9;
        Ok(if came { Found::Counted } else { Found::Nothing })
    }
}

/// Result for a packet.
enum Found {
    Nothing,
    /// All packets arrived, but their bytes were not captured.
    Counted,
    Frame(Vec<u8>),
}

impl Standing for OnSystem<'_> {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        let bed = &self.of.bed;
        bed.options.check()?;
        let plane = self.of.of.plane();
        let before = bed.tallies(plane)?;
        let trial = self.trex.trial(load, duration, latency)?;
        check_forwarded(&PORTS[..1], &before, &bed.tallies(plane)?)?;
        Ok(trial)
    }
}

/// Time to wait for a packet, and time to repeat it.
const ANSWER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets to send if capture is not possible.
const COUNTED: Load = Load::Rate(1_000.0);
const COUNTED_FOR: Duration = Duration::from_millis(200);

const ETHERNET: usize = 14;
