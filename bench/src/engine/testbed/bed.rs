//! The two machines of a testbed, and facts about them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::behavior::Behavior;
use super::super::network::{Macs, PORTS, SYSCTLS};
use super::super::plane::Plane;
use super::super::port;
use super::super::product::{Sidestep, Tally, tallies};
use super::super::recipe::Router;
use super::super::{Case, Options};
use super::Testbed;
use super::shell::Shell;
use crate::trex::{About, Trex};
use sidestep_testkit::Error;
use sidestep_testkit::lab::{QUIET, mac_of};
use sidestep_testkit::traffic::Interrupt;
use sidestep_testkit::traffic::{self, Distribution, Template};

/// A testbed with connections to both machines.
#[derive(Debug)]
pub(super) struct Bed {
    testbed: Testbed,
    pub options: Options,
    shell: RefCell<Shell>,
    about: About,
    /// MAC addresses of the ports.
    pub macs: Macs,
    /// The smaller MTU of the system's ports in bytes, without the Ethernet header.
    pub mtu: usize,
    sidestep: String,
    /// Version of Sidestep on the system, or the error.
    pub version: Result<String, String>,
    /// SHA-256 of the Sidestep program on the system, or the error.
    pub sha256: Result<String, String>,
    facts: BTreeMap<String, String>,
}

impl Bed {
    /// Connects to both machines and reads their facts.
    ///
    /// # Errors
    /// A machine is unreachable, lacks the ports, or another process uses them.
    pub fn connect(testbed: &Testbed, options: &Options) -> Result<Self, Error> {
        let (generator, system) = (&testbed.trex, &testbed.system);
        let about = About::ask(&generator.address())?;
        let sidestep = match (&system.sidestep, &system.ssh) {
            (Some(program), _) => program.clone(),
            (None, Some(_)) => PROGRAM.to_owned(),
            (None, None) => Sidestep::find().map_or_else(
                |_| PROGRAM.to_owned(),
                |it| it.path().to_string_lossy().into_owned(),
            ),
        };
        let [send, receive] = ports_of(testbed, &about)?;
        let mut shell = Shell::begin(system, &sidestep)?;
        let mut router = [[0; 6]; 2];
        let mut mtu = usize::MAX;
        for (mac, (variable, port)) in router
            .iter_mut()
            .zip(["$port_in", "$port_out"].into_iter().zip(&system.ports))
        {
            let shown = shell.run("its ports", &format!("ip -j link show dev \"{variable}\""))?;
            let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
            let wrong = |what: &str| Error::Wrong(format!("{system}: {port} has no {what}"));
            let address = shown[0]["address"].as_str().and_then(mac_of);
            *mac = address.ok_or_else(|| wrong("Ethernet address"))?;
            let its = shown[0]["mtu"].as_u64().ok_or_else(|| wrong("MTU"))?;
            mtu = mtu.min(its as usize);
        }
        let mut cards = BTreeMap::new();
        for (variable, name) in ["port_in", "port_out"].into_iter().zip(&system.ports) {
            let script = format!("set -- \"${variable}\"\n{}", port::SCRIPT);
            // Missing facts about a card do not prevent measurements.
            let text = shell.run("its network cards", &script);
            cards.extend(port::facts(name, &text.unwrap_or_default()));
        }
        let kernel = shell.run("its kernel", "uname -r")?;
        let processor = "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1";
        let processor = shell.run("its processor", processor)?;
        let version = shell.run("its Sidestep", "\"$sidestep\" --version");
        let hash = "file=$(command -v \"$sidestep\") && sha256sum <\"$file\"";
        let hash = shell.run("its Sidestep's SHA-256", hash);
        let verified = if about.captures {
            "compared byte by byte, as captured by TRex"
        } else {
            "counted only: this TRex captures none, so bytes were not compared"
        };
        let (transmit, address) = (generator.transmit, generator.address());
        let facts = [
            (
                "generator",
                format!(
                    "TRex {} at {address}: port {transmit} sends, port {} counts",
                    about.version, generator.receive
                ),
            ),
            (
                "system",
                format!("{system}, {} to {}", system.ports[0], system.ports[1]),
            ),
            ("kernel", format!("Linux {}", kernel.trim_end())),
            ("processor", processor.trim_end().to_owned()),
            ("one packet", verified.to_owned()),
        ];
        Ok(Self {
            testbed: testbed.clone(),
            options: options.clone(),
            shell: RefCell::new(shell),
            about,
            macs: Macs {
                generator: send,
                router,
                sink: receive,
            },
            mtu,
            sidestep,
            version: version
                .map(|text| text.trim_end().to_owned())
                .map_err(|error| error.to_string()),
            sha256: hash
                .map(|text| {
                    text.split_whitespace()
                        .next()
                        .unwrap_or_default()
                        .to_owned()
                })
                .map_err(|error| error.to_string()),
            facts: facts
                .map(|(name, fact)| (name.to_owned(), fact))
                .into_iter()
                .chain(cards)
                .collect(),
        })
    }

    /// Returns the facts about both machines for the report.
    pub fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }

    /// Whether TRex captures packets, so that bytes can be compared.
    pub fn captures(&self) -> bool {
        self.about.captures
    }

    /// Runs a script on the system. `what` describes the script in error messages.
    ///
    /// # Errors
    /// The exit code is not 0, or the connection is lost.
    pub fn run(&self, what: &str, script: &str) -> Result<String, Error> {
        self.shell.borrow_mut().run(what, script)
    }

    /// Returns the router on the system.
    pub fn router<'a>(&'a self, namespace: &'a str) -> Router<'a> {
        Router {
            namespace,
            sink: self.macs.sink,
            sidestep: &self.sidestep,
        }
    }

    /// The system's ports, outside the namespace.
    pub fn ports(&self) -> &[String; 2] {
        &self.testbed.system.ports
    }

    /// The namespace of the router.
    pub fn namespace(&self) -> String {
        self.testbed.system.name()
    }

    /// Moves the ports into their namespace. Reconnects if the connection was lost.
    ///
    /// # Errors
    /// The system is unreachable, or a command fails.
    pub fn enter(&self) -> Result<Entered<'_>, Error> {
        let mut shell = self.shell.borrow_mut();
        if !shell.is_there() {
            *shell = Shell::begin(&self.testbed.system, &self.sidestep)?;
        }
        drop(shell);
        let entered = Entered { bed: self };
        let sysctls = QUIET.into_iter().chain(SYSCTLS);
        let sysctls: Vec<String> = sysctls
            .map(|(path, value)| format!("{path}={value}"))
            .collect();
        self.run("take its ports", &format!("enter {}", sysctls.join(" ")))?;
        Ok(entered)
    }

    /// Connects to TRex and its two ports, with a stream of these behaviors and their shares.
    ///
    /// # Errors
    /// It does not respond, or another owner holds a port.
    pub fn trex(&self, stream: &[(Behavior, u32)], case: &Case) -> Result<Trex, Error> {
        let templates = stream.iter().map(|(behavior, share)| {
            let flows = traffic::Flows {
                count: case.flows.count(),
                offset: behavior.udp_at,
                checksum: Some(behavior.udp_at + 6),
            };
            Ok((Template::new(&behavior.sent, flows)?, *share))
        });
        let templates = templates.collect::<Result<Vec<_>, Error>>()?;
        let generator = &self.testbed.trex;
        let ports = [generator.transmit, generator.receive];
        let address = generator.address();
        let trex = Trex::connect(&address, ports, &templates, Distribution::Uniform)?;
        let interrupted = Arc::clone(&self.options.interrupted);
        Ok(trex.interrupted_by(Interrupt::from(interrupted)))
    }

    /// Returns Sidestep's counters of the ingress port, or `None` if it does not run.
    ///
    /// # Errors
    /// The output lacks these counters, or the connection is lost. If the connection is lost, the
    /// keeper on the system removes the router, and the counts are invalid.
    pub fn tallies(&self, plane: Option<Plane>) -> Result<Vec<Tally>, Error> {
        if !matches!(plane, Some(Plane::Tc | Plane::Xdp)) {
            self.run("check that the router is still there", ":")?;
            return Ok(Vec::new());
        }
        let show = "ip netns exec \"$name\" \"$sidestep\" show counters -j";
        // The daemon waits at most 200 ms for a request. On a busy machine the client may take
        // longer, so try again.
        let ask = || self.run("read Sidestep's counters", show);
        let text = ask().or_else(|_| ask()).or_else(|_| ask())?;
        tallies(&text, &PORTS[..1])
    }

    /// Returns the reasons of Sidestep's drops and punts, for an error message.
    pub fn reasons(&self) -> String {
        let show = "ip netns exec \"$name\" \"$sidestep\" show drops";
        let drops = self.run("read Sidestep's drops", show);
        drops.unwrap_or_else(|error| error.to_string())
    }
}

/// The ports in their namespace, with its configuration. Drop removes the configuration and moves
/// the ports back.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    bed: &'a Bed,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.bed.run("undo the setup", "leave") {
            eprintln!("warning: {error}");
        }
    }
}

/// Returns the Ethernet addresses of TRex's ports.
fn ports_of(testbed: &Testbed, about: &About) -> Result<[[u8; 6]; 2], Error> {
    let generator = &testbed.trex;
    let mut macs = [[0; 6]; 2];
    for (at, number) in [generator.transmit, generator.receive]
        .into_iter()
        .enumerate()
    {
        let Some(its) = about.macs.get(number as usize) else {
            let (address, count) = (generator.address(), about.macs.len());
            return Err(Error::Usage(format!(
                "TRex at {address} has no port {number}; it has {count}, counted from 0"
            )));
        };
        let given = generator.macs.map(|macs| macs[at].0);
        macs[at] = given.or(*its).ok_or_else(|| {
            let address = generator.address();
            Error::Usage(format!(
                "TRex at {address} does not report the Ethernet address of port {number}; set both as `macs` of `trex`"
            ))
        })?;
    }
    Ok(macs)
}

/// Default path of Sidestep.
const PROGRAM: &str = "sidestep";
