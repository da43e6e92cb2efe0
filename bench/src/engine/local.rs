//! Engines on this machine: a router in a namespace, between a generator and a sink. A veth pair
//! processes a frame in the sender's loop, unless a thread of its own polls the receiving port.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use super::behavior::{self, Behavior, Kind};
use super::exec::Exec;
use super::measured::{Measured, Path};
use super::network::Network;
use super::plane::{self, Plane};
use super::port;
use super::product::Sidestep;
use super::verify::verify;
use super::vpp::Vpp;
use super::{Case, Engine, Options, PROGRAM_SHA256, Standing, recipe};
use sidestep_testkit::Error;

/// Returns all engines, also those that cannot be set up here ([`Engine::refuses`] gives the reason
/// per case). Engines driven by commands come last.
pub fn all(options: &Options) -> Vec<Box<dyn Engine>> {
    let driven = options.commands.iter().map(|commands| {
        Box::new(Exec {
            commands: commands.clone(),
            options: options.clone(),
        }) as Box<dyn Engine>
    });
    let planes = [
        Who::Plane(Plane::Linux),
        Who::Plane(Plane::Tc),
        Who::Plane(Plane::Xdp),
        Who::Unrouted,
    ];
    let planes = planes.map(|who| Local {
        who,
        sidestep: match &options.sidestep {
            Some(path) => Ok(Sidestep::at(path)),
            None => Sidestep::find().map_err(|error| error.to_string()),
        },
        options: options.clone(),
    });
    planes
        .into_iter()
        .map(|local| Box::new(local) as Box<dyn Engine>)
        .chain([Box::new(Vpp::of(options)) as Box<dyn Engine>])
        .chain(driven)
        .collect()
}

/// An engine in a namespace of this machine.
#[derive(Debug)]
struct Local {
    who: Who,
    sidestep: Result<Sidestep, String>,
    options: Options,
}

/// The forwarder under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Plane(Plane),
    /// No router: measures the limits of the test setup.
    Unrouted,
}

impl Engine for Local {
    fn name(&self) -> &str {
        match self.who {
            Who::Plane(plane) => plane.engine(),
            Who::Unrouted => "none",
        }
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::from([("CPUs".to_owned(), self.options.cpus())]);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        facts.insert("kernel".to_owned(), format!("Linux {}", kernel.trim_end()));
        if let (Who::Plane(Plane::Tc | Plane::Xdp), Ok(sidestep)) = (self.who, &self.sidestep) {
            let version = sidestep.version();
            let version = version.unwrap_or_else(|error| error.to_string());
            facts.insert("program".to_owned(), version);
            // Builds of one commit with different uncommitted changes have the same version.
            let hash = sidestep.sha256();
            let hash = hash.unwrap_or_else(|error| error.to_string());
            facts.insert(PROGRAM_SHA256.to_owned(), hash);
        }
        let mode = match self.who {
            Who::Plane(plane) => plane.mode(),
            Who::Unrouted => "no system under test",
        };
        facts.insert("mode".to_owned(), mode.to_owned());
        facts.extend(port::of_veth());
        facts
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        let kind = match behavior::kind(&case.behavior) {
            Ok(kind) => kind,
            Err(why) => return Some(why),
        };
        let cores = || self.options.cores(case).err();
        kind.check(case)
            .err()
            .or_else(|| self.lacks(&kind))
            .or_else(cores)
    }

    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error> {
        if let Some(why) = self.refuses(case) {
            return Err(Error::Usage(format!("{}: {case}: {why}", self.name())));
        }
        self.options.check()?;
        if let Ok(sidestep) = &self.sidestep {
            sidestep.clean();
        }
        let stream = self.stream(case)?;
        let path = match self.who {
            Who::Plane(plane) => self.forwarding(plane, &stream)?,
            Who::Unrouted => Path::limit(case, &stream[0].0)?,
        };
        let measured = Measured::new(path, stream, case, &self.options)?;
        Ok(Box::new(measured))
    }

    fn recipe(&self, case: &Case) -> Vec<String> {
        let Ok(stream) = self.stream(case) else {
            return Vec::new();
        };
        match self.who {
            Who::Plane(plane) => recipe::of(plane, &stream[0].0),
            Who::Unrouted => Vec::new(),
        }
    }
}

impl Local {
    /// Returns the case as behaviors of one packet length each, with their shares of the packets.
    fn stream(&self, case: &Case) -> Result<Vec<(Behavior, u32)>, Error> {
        let stream = super::stream(case)?.into_iter();
        let own = |(made, share): (Behavior, u32)| (made.without_devices(), share);
        Ok(match self.who {
            Who::Plane(Plane::Tc | Plane::Xdp) => stream.map(own).collect(),
            Who::Plane(Plane::Linux) | Who::Unrouted => stream.collect(),
        })
    }

    /// Returns why the engine cannot run this behavior here, if so.
    fn lacks(&self, kind: &Kind) -> Option<String> {
        let name = self.name();
        match (self.who, &self.sidestep) {
            (Who::Unrouted, _) if !kind.limit => {
                Some("nothing is set up between generator and sink".into())
            }
            (Who::Plane(_), _) if kind.limit => Some(format!("{} is of engine none", kind.name)),
            (Who::Plane(Plane::Linux), _) if kind.not_in_linux.is_some() => {
                kind.not_in_linux.map(str::to_owned)
            }
            (Who::Plane(Plane::Linux), _) if kind.needs_vrf => {
                sidestep_testkit::capability::without_vrf()
            }
            (Who::Plane(Plane::Tc | Plane::Xdp), Err(why)) => Some(format!("{name}: {why}")),
            _ => sidestep_testkit::capability::missing(),
        }
    }

    /// Returns a forwarding router. One packet of each length has been compared.
    fn forwarding(&self, plane: Plane, stream: &[(Behavior, u32)]) -> Result<Path, Error> {
        let behavior = &stream[0].0;
        let network = Arc::new(Network::routed(behavior)?);
        self.options.check()?;
        let standing = match &self.sidestep {
            Ok(sidestep) => plane.set_up(&network, sidestep, behavior)?,
            // Earlier checks have refused this wherever BPF is needed.
            Err(_) => plane::Standing::linux(&network, behavior)?,
        };
        for (behavior, _) in stream {
            self.options.check()?;
            verify(plane, &standing, behavior)?;
        }
        Ok(Path::Router(plane, standing))
    }
}
