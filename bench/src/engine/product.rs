//! Runs Sidestep through its command line, in the namespace of the router.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::{env, fs};

use serde_json::{Value, json};

use super::network::{NAME, Network, ROUTER};
use sidestep_testkit::{Error, Lab, Namespace};

/// The `sidestep` program.
#[derive(Clone, Debug)]
pub struct Sidestep {
    path: PathBuf,
}

/// Sidestep on the ports of a router. Drop stops it.
#[derive(Debug)]
pub struct Running {
    sidestep: Sidestep,
    network: Arc<Network>,
}

/// Counters of an ingress port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Frames received on the port.
    pub received: u64,
    /// Packets forwarded by Sidestep.
    pub forwarded: u64,
}

impl Sidestep {
    /// Uses the program at this path.
    pub fn at(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path }
    }

    /// Uses `$SIDESTEP`, or else the program next to the running one.
    ///
    /// # Errors
    /// The program is in neither place.
    pub fn find() -> Result<Self, Error> {
        let path = crate::program::find()?;
        Ok(Self { path })
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the output of `--version`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn version(&self) -> Result<String, Error> {
        let output = Command::new(&self.path).arg("--version").output();
        let output =
            output.map_err(|source| Error::os(format!("run {}", self.path.display()), source))?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// Returns the SHA-256 of the program file in hexadecimal.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn sha256(&self) -> Result<String, Error> {
        crate::program::sha256(&self.path)
    }

    /// Starts Sidestep on the ports of the router with these Sidestep-only routes (`own`: arguments
    /// of `sidestep route add`). Returns when Sidestep forwards.
    ///
    /// # Errors
    /// Sidestep refuses to start.
    pub fn start(
        &self,
        network: &Arc<Network>,
        mode: &str,
        own: &[String],
    ) -> Result<Running, Error> {
        let (router, ports) = (network.router()?, network.ports());
        self.detach(router, mode, &json!({"ports": ports, "routes": own}))?;
        Ok(Running {
            sidestep: self.clone(),
            network: Arc::clone(network),
        })
    }

    /// Starts the daemon in a namespace, in a mode and with a node file (JSON is YAML). Returns when
    /// it forwards.
    ///
    /// # Errors
    /// Sidestep refuses to start.
    pub fn detach(&self, router: &Namespace, mode: &str, config: &Value) -> Result<(), Error> {
        let file = env::temp_dir().join(format!("{}-{}.yaml", router.name(), process::id()));
        let failed = |source| Error::os(format!("write {}", file.display()), source);
        fs::write(&file, config.to_string()).map_err(failed)?;
        let path = file.to_string_lossy();
        let words = ["run", "--mode", mode, "--detach", "--config", &path];
        let started = self.text(router, &words);
        // The daemon has read the file, or has failed to start.
        let _ = fs::remove_file(&file);
        started.map(drop)
    }

    /// Returns the command that stops the daemon in the namespace of this name.
    pub fn stops(&self, namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        command.arg(&self.path).arg("stop");
        command
    }

    /// Removes leftovers of killed runs: first the daemons with their pins and files, then the
    /// namespaces.
    pub fn clean(&self) {
        for name in Lab::leftovers_of(NAME) {
            if name.ends_with(&format!("-{ROUTER}")) {
                // Sidestep may not run there, so ignore the result.
                let _ = self.stops(&name).output();
                remove_files(&name);
            }
        }
        Lab::sweep_of(NAME);
    }

    /// Returns the output of `sidestep show counters -j` in a namespace.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn counters(&self, router: &Namespace) -> Result<String, Error> {
        // The daemon waits at most 200 ms for a request. On a busy machine the client may take
        // longer, so try again.
        let ask = || self.text(router, &["show", "counters", "-j"]);
        ask().or_else(|_| ask()).or_else(|_| ask())
    }

    fn text(&self, router: &Namespace, words: &[&str]) -> Result<String, Error> {
        let path = self.path.to_string_lossy();
        let all: Vec<&str> = [&*path].into_iter().chain(words.iter().copied()).collect();
        router.exec(&all)
    }
}

/// Removes the node files of a router whose run was killed while its daemon started.
fn remove_files(router: &str) {
    for entry in fs::read_dir(env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&format!("{router}-")) && name.ends_with(".yaml") {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Running {
    /// Returns the counters of these ports since the start.
    ///
    /// # Errors
    /// The answer has no such counters.
    pub fn tally(&self, ports: &[&str]) -> Result<Vec<Tally>, Error> {
        tallies(&self.sidestep.counters(self.network.router()?)?, ports)
    }

    /// Returns the reasons of drops and punts, for an error message.
    pub fn reasons(&self) -> String {
        let drops = self.text(&["show", "drops"]);
        drops.unwrap_or_else(|error| error.to_string())
    }

    fn text(&self, words: &[&str]) -> Result<String, Error> {
        self.sidestep.text(self.network.router()?, words)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has exited already, removing the namespace is enough.
        let _ = self.text(&["stop"]);
    }
}

/// Checks that Sidestep, not the kernel, forwarded the packets that these ports received between
/// two readings of the counters.
///
/// # Errors
/// Another data plane forwarded more than [`STRANGERS`] of them.
pub(super) fn check_forwarded(
    ports: &[&str],
    before: &[Tally],
    after: &[Tally],
) -> Result<(), Error> {
    for ((before, after), port) in before.iter().zip(after).zip(ports) {
        let received = after.received.saturating_sub(before.received);
        let forwarded = after.forwarded.saturating_sub(before.forwarded);
        if ((forwarded + STRANGERS_FEW) as f64) < received as f64 * (1.0 - STRANGERS) {
            return Err(Error::Wrong(format!(
                "of {received} packets received by {port}, Sidestep forwarded {forwarded}"
            )));
        }
    }
    Ok(())
}

/// Returns the counters of these ports, from the output of `sidestep show counters -j`.
///
/// # Errors
/// The output lacks these counters.
pub(super) fn tallies(text: &str, ports: &[&str]) -> Result<Vec<Tally>, Error> {
    let tallies: Option<Vec<Tally>> = ports.iter().map(|port| tally(text, port)).collect();
    tallies.ok_or_else(|| {
        Error::Wrong(format!(
            "`sidestep show counters -j` has no counters of {}: {}",
            ports.join(" and "),
            text.trim_end()
        ))
    })
}

/// Returns the number of packets of a port that Sidestep left to Linux.
///
/// # Errors
/// The output lacks this counter.
pub fn punted(text: &str, port: &str) -> Result<u64, Error> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let mut ports = value["ports"].as_array().into_iter().flatten();
    let port = ports.find(|it| it["name"] == port);
    let punted = port.and_then(|port| port["punted"].as_u64());
    punted.ok_or_else(|| Error::Wrong(format!("no counters: {}", text.trim_end())))
}

fn tally(text: &str, port: &str) -> Option<Tally> {
    let value: Value = serde_json::from_str(text).ok()?;
    let ports = value["ports"].as_array()?;
    let port = ports.iter().find(|it| it["name"] == port)?;
    Some(Tally {
        received: port["received_packets"].as_u64()?,
        forwarded: port["forwarded"].as_u64()?,
    })
}

/// Share of the packets that Sidestep may punt, such as neighbor discovery.
const STRANGERS: f64 = 0.001;
/// Number of packets that it may always punt.
const STRANGERS_FEW: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_port_are_read_and_no_others() {
        let text = r#"{"ports": [
            {"name": "eth1", "received_packets": 1, "forwarded": 1},
            {"name": "eth0", "received_packets": 5, "forwarded": 4}], "routes": []}"#;
        let expected = Tally {
            received: 5,
            forwarded: 4,
        };
        assert_eq!(tally(text, "eth0"), Some(expected));
        assert_eq!(tally(r#"{"ports": [{"name": "eth0"}]}"#, "eth0"), None);
        assert_eq!(tally("sidestep: not running", "eth0"), None);
    }
}
