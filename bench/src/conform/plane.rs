//! The engines of a conformance run, and how they take over the ports of a router.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};
use sidestep_testkit::Error;
use sidestep_testkit::linux::Sut;
use sidestep_testkit::vectors::{Case, Linux, Node, VectorFile};

use super::judge::prefix_of;
use crate::engine::exec::{self, output};
use crate::engine::product::Sidestep;

/// An engine.
pub trait Plane: Sync {
    /// Its name in the results.
    fn name(&self) -> &str;

    /// Its version, and what else makes a difference.
    ///
    /// # Errors
    /// It cannot be asked.
    fn facts(&self) -> Result<BTreeMap<String, String>, Error>;

    /// Why it cannot process this case, if that is known before.
    fn lacks(&self, _case: &Case) -> Option<String> {
        None
    }

    /// Makes it the router of this file. The namespace has the ports, and what Linux took of the
    /// node.
    ///
    /// # Errors
    /// It does not start.
    fn up(&self, file: &VectorFile, sut: &Sut) -> Result<Up, Error>;
}

/// An engine at work. Drop takes it down.
#[derive(Debug)]
pub struct Up {
    /// The routes that it does not support, as in the node, with reasons.
    unsupported: Vec<(String, String)>,
    /// Takes it down.
    down: Option<Command>,
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(down) = self.down.take() {
            // The namespace goes anyway.
            let _ = output(down, "down", "of this run");
        }
    }
}

impl Up {
    /// Why it cannot process this frame: it lacks the route of its destination.
    pub fn lacks(&self, node: &Node, frame: &[u8]) -> Option<String> {
        let destination = destination(frame)?;
        let covers = |line: &&String| prefix_of(line).is_some_and(|it| it.contains(&destination));
        let longest = |line: &&String| prefix_of(line).map_or(0, |it| it.prefix_len());
        let route = node.routes.iter().filter(covers).max_by_key(longest)?;
        let mut all = self.unsupported.iter();
        all.find(|(line, _)| line == route)
            .map(|(_, why)| why.clone())
    }
}

/// Destination of the outer packet.
fn destination(frame: &[u8]) -> Option<std::net::IpAddr> {
    match frame.get(12..14)? {
        [0x86, 0xdd] => Some(<[u8; 16]>::try_from(frame.get(38..54)?).ok()?.into()),
        [0x08, 0x00] => Some(<[u8; 4]>::try_from(frame.get(30..34)?).ok()?.into()),
        _ => None,
    }
}

/// The kernel of this machine, alone.
#[derive(Debug)]
pub struct LinuxAlone;

fn kernel() -> BTreeMap<String, String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    BTreeMap::from([("kernel".to_owned(), release.trim().to_owned())])
}

impl Plane for LinuxAlone {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn facts(&self) -> Result<BTreeMap<String, String>, Error> {
        Ok(kernel())
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        match &case.linux {
            Linux::Skip(why) => Some(why.clone()),
            _ => None,
        }
    }

    fn up(&self, file: &VectorFile, sut: &Sut) -> Result<Up, Error> {
        Ok(Up {
            unsupported: sut.not_in_linux(&file.node)?,
            down: None,
        })
    }
}

/// Sidestep in a mode, with its own daemon.
#[derive(Debug)]
pub struct OfSidestep {
    sidestep: Sidestep,
    mode: &'static str,
    name: String,
}

impl OfSidestep {
    /// The program next to this one, or `$SIDESTEP`, in this mode.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str, mode: &'static str) -> Result<Self, Error> {
        Ok(Self {
            sidestep: Sidestep::find()?,
            mode,
            name: name.to_owned(),
        })
    }
}

impl Plane for OfSidestep {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut facts = kernel();
        facts.insert("version".into(), self.sidestep.version()?);
        Ok(facts)
    }

    fn up(&self, file: &VectorFile, sut: &Sut) -> Result<Up, Error> {
        let namespace = sut.namespace()?;
        // A VRF device is the kernel's: without one, Sidestep has no such SID either.
        let (unsupported, own) = sut
            .not_in_linux(&file.node)?
            .into_iter()
            .partition(|(line, _)| line.contains(" vrftable "));
        let config = node_file(&file.node, own);
        let up = Up {
            unsupported,
            down: Some(self.sidestep.stops(namespace.name())),
        };
        self.sidestep.detach(namespace, self.mode, &config)?;
        Ok(up)
    }
}

/// What Sidestep does not read from the kernel, as a node file.
fn node_file(node: &Node, own: Vec<(String, String)>) -> Value {
    let ports: Vec<&str> = node.ports.iter().map(|(name, _)| name.as_str()).collect();
    let own: Vec<String> = own.into_iter().map(|(line, _)| line).collect();
    let mut config = json!({"ports": ports, "routes": own});
    let mut set = |key: &str, value: Value| {
        let is_default = value.is_null() || value == json!([]) || value == json!(false);
        if !is_default {
            config[key] = value;
        }
    };
    set("vlans", json!(node.vlans));
    set("domain", json!(node.domain));
    set("policies", json!(node.policies));
    set("multipath_hash_seed", json!(node.multipath_hash_seed));
    set("local_srh", json!(node.local_srh));
    set("require_seg6_enabled", json!(node.require_seg6_enabled));
    set("ipv4_too_big", json!(node.ipv4_too_big));
    if node.oam_rate > 0 {
        set("oam_rate", json!(node.oam_rate));
    }
    config
}

/// An engine that commands configure, from a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Name in the results.
    pub name: String,
    /// Makes the engine the router. Prints a line `unsupported: ROUTE` for each route that it lacks.
    pub up: String,
    /// Undoes `up`, however far it came.
    pub down: String,
    /// Prints lines `name: value` about the engine.
    #[serde(default)]
    pub info: Option<String>,
    /// Whether it forwards in the kernel, before the frame that follows: no packet needs time.
    #[serde(default)]
    pub in_kernel: bool,
}

fn shell(command: &str, with: &[(&'static str, String)]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell.envs(with.iter().map(|(key, value)| (key, value)));
    shell
}

impl Plane for Commands {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut facts = kernel();
        if let Some(info) = &self.info {
            let text = output(shell(info, &[]), info, &self.name)?;
            facts.extend(exec::facts(&text));
        }
        Ok(facts)
    }

    fn up(&self, file: &VectorFile, sut: &Sut) -> Result<Up, Error> {
        let node = &file.node;
        let lines = |lines: &[String]| lines.join("\n");
        let ports = node.ports.iter().map(|(name, port)| {
            let addresses = port.addresses.join(",");
            format!("{name} mtu {} addresses {addresses}", port.mtu)
        });
        let variables = vec![
            ("ROUTER", sut.namespace()?.name().to_owned()),
            ("GROUP", file.group.clone()),
            ("PORTS", ports.collect::<Vec<_>>().join("\n")),
            ("NEIGHBORS", lines(&node.neighbors)),
            ("ROUTES", lines(&node.routes)),
            ("RULES", lines(&node.rules)),
            ("TUNSRC", node.tunsrc.clone().unwrap_or_default()),
            ("NODE", file.node_text.trim().to_owned()),
        ];
        let mut up = Up {
            unsupported: vec![],
            down: Some(shell(&self.down, &variables)),
        };
        let text = output(shell(&self.up, &variables), &self.up, &self.name)?;
        let refused = text
            .lines()
            .filter_map(|line| line.strip_prefix("unsupported: "));
        let why = format!("{} does not support the route", self.name);
        up.unsupported = refused.map(|line| (line.to_owned(), why.clone())).collect();
        Ok(up)
    }
}
