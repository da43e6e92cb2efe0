//! A testbed of two machines. TRex sends and counts on one; the system under test forwards on the
//! other, which is reached by ssh or is this machine.
//!
//! - [`Testbed`]: its description in a campaign.
//! - [`engines`]: the engines there, after querying both machines.
//!
//! A shell on the machine under test tracks all changes (`keeper.sh`). It moves the two ports into
//! a network namespace, in which the engine is set up as on a single machine. To undo the changes,
//! it moves the ports back and removes the namespace. It also does this when its connection ends
//! for any reason.

mod bed;
mod engine;
mod shell;

use std::fmt;
use std::rc::Rc;

use serde::Deserialize;

use super::{Engine, Options};
use crate::trex;
use sidestep_testkit::Error;
use sidestep_testkit::lab::mac_of;

use bed::Bed;
use engine::{Of, OnTestbed};

/// The machines of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// The packet generator, which also counts.
    pub trex: Generator,
    /// The system that forwards.
    pub system: System,
}

/// A TRex server, and two of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Its host name or address.
    pub host: String,
    /// The TCP port that it listens on.
    #[serde(default = "port")]
    pub port: u16,
    /// Number of the port that sends.
    pub transmit: u32,
    /// Number of the port that receives.
    pub receive: u32,
    /// Ethernet addresses of these two ports, for servers that do not report them.
    #[serde(default)]
    pub macs: Option<[Mac; 2]>,
}

/// The machine under test.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Destination for `ssh`, as root. Without it, the system is this machine.
    #[serde(default)]
    pub ssh: Option<String>,
    /// Ingress and egress port. They must have no addresses and no other user.
    pub ports: [String; 2],
    /// Path of the `sidestep` program on that machine. The default with ssh is `sidestep` in its
    /// `PATH`, and otherwise the program next to the running one.
    #[serde(default)]
    pub sidestep: Option<String>,
}

/// An Ethernet address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused =
            || format!("{text:?}; an Ethernet address is six bytes such as 02:00:00:00:00:01");
        mac_of(&text).map(Self).ok_or_else(refused)
    }
}

impl Testbed {
    /// Checks the configuration without a connection to the machines.
    ///
    /// # Errors
    /// Returns the problem, the value, and the allowed values.
    pub fn check(&self) -> Result<(), [String; 3]> {
        let Self { trex, system } = self;
        let host = |host: &str| {
            let wrong = |it: char| it.is_whitespace() || it.is_control();
            !host.is_empty() && !host.starts_with('-') && !host.contains(wrong)
        };
        let ifname = |name: &str| {
            let wrong = |it: char| it.is_whitespace() || it.is_control() || "/:'\"".contains(it);
            (1..=IFNAME_MAX).contains(&name.len())
                && !["lo", ".", ".."].contains(&name)
                && !name.starts_with('-')
                && !name.contains(wrong)
        };
        let wrong =
            |what: &str, value: &str, allowed: &str| Err([what, value, allowed].map(str::to_owned));
        if !host(&trex.host) {
            return wrong("host of trex", &trex.host, "a name or an address");
        }
        if trex.transmit == trex.receive {
            let both = trex.receive.to_string();
            return wrong(
                "receive of trex",
                &both,
                "another port than the one that transmits",
            );
        }
        if let Some(ssh) = system.ssh.as_ref().filter(|ssh| !host(ssh)) {
            return wrong(
                "ssh of system",
                ssh,
                "a destination of ssh, such as root@192.0.2.2",
            );
        }
        if let Some(port) = system.ports.iter().find(|port| !ifname(port)) {
            return wrong("port of system", port, "the name of an interface");
        }
        if system.ports[0] == system.ports[1] {
            return wrong("ports of system", &system.ports[1], "two: ingress, egress");
        }
        Ok(())
    }
}

impl Generator {
    /// `host:port`.
    fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl System {
    /// Name of the namespace, and of the directory in `/run`, during a measurement. It is the same
    /// for both orders of the ports.
    fn name(&self) -> String {
        let [one, other] = &self.ports;
        format!("sidestep-bench-{}", one.min(other))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ssh.as_deref().unwrap_or("this machine"))
    }
}

/// Returns the engines of a testbed after querying both machines. Nothing changes there, except
/// that the ports stay locked while an engine exists.
///
/// # Errors
/// A machine is unreachable, lacks the ports, or another process uses them.
pub fn engines(testbed: &Testbed, options: &Options) -> Result<Vec<Box<dyn Engine>>, Error> {
    let bed = Rc::new(Bed::connect(testbed, options)?);
    let commands = options.commands.iter().cloned().map(Of::Commands);
    let all = Of::PLANES.into_iter().chain(commands);
    let all = all.map(|of| {
        let bed = Rc::clone(&bed);
        Box::new(OnTestbed { of, bed }) as Box<dyn Engine>
    });
    Ok(all.collect())
}

fn port() -> u16 {
    trex::PORT
}

/// LIMIT: length of an interface name in bytes (`IFNAMSIZ` includes a terminating zero).
const IFNAME_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn testbed(text: &str) -> Result<Testbed, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_testbed_is_parsed_and_errors_name_the_key() {
        let text =
            "{trex: {host: '2001:db8::1', transmit: 0, receive: 1}, system: {ports: [eth2, eth1]}}";
        let right = testbed(text).expect("a testbed");
        assert_eq!(right.check(), Ok(()));
        assert_eq!(right.trex.address(), "[2001:db8::1]:4501");
        assert_eq!(right.system.name(), "sidestep-bench-eth1");
        assert_eq!(right.system.to_string(), "this machine");
        for (from, to, what) in [
            ("receive: 1", "receive: 0", "receive of trex"),
            ("'2001:db8::1'", "''", "host of trex"),
            ("[eth2, eth1]", "[eth2, eth2]", "ports of system"),
            ("[eth2, eth1]", "[eth2, a/b]", "port of system"),
            ("{ports", "{ssh: -oProxyCommand=x, ports", "ssh of system"),
        ] {
            let wrong = testbed(&text.replace(from, to)).expect("it can be read");
            assert_eq!(wrong.check().expect_err(to)[0], what);
        }
        for (from, to) in [
            (
                "receive: 1",
                "receive: 1, macs: ['02:00:00:00:00:01', '2:0:0:0:0:1']",
            ),
            ("receive: 1", "recieve: 1"),
            ("[eth2, eth1]", "[eth2]"),
        ] {
            assert!(testbed(&text.replace(from, to)).is_err(), "{to}");
        }
    }
}
