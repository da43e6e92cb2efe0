//! `sidestep port`: adds ports to a running daemon, and removes them. Also the ports that other
//! commands name.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::report::{AddedPort, Port, Ports};

use crate::Outcome;

/// Arguments of `port`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach to an interface; if it does not exist, as soon as it does
    Add {
        /// Interface
        #[arg(value_name = "DEV")]
        name: String,
    },
    /// Detach from an interface; the kernel alone forwards its packets
    Del {
        /// Interface
        #[arg(value_name = "DEV")]
        name: String,
    },
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Add { name } => {
            let request = Request::AddPort { name: name.clone() };
            let port: AddedPort = api::ask(request)?;
            match port.target {
                Some(target) => writeln!(out, "forwarding on {name} ({target})")?,
                None => writeln!(
                    out,
                    "waiting for {name}: there is no such interface; Sidestep attaches to it when \
                     it appears"
                )?,
            }
        }
        Command::Del { name } => {
            api::call(Request::DelPort { name: name.clone() })?;
        }
    }
    Ok(())
}

/// Returns the ports of the daemon, in the order of `run`.
pub(crate) fn ports() -> Result<Ports, ApiError> {
    api::ask(Request::ShowPorts)
}

/// Returns the attached port with this name, or the first one.
pub(crate) fn attached<'a>(ports: &'a [Port], name: Option<&str>) -> Result<&'a Port, String> {
    let mut attached = ports.iter().filter(|port| port.target != "none");
    let is_it = |port: &Port, name| port.name == name || port.alt_names.iter().any(|it| it == name);
    let found = attached.find(|port| name.is_none_or(|name| is_it(port, name)));
    found.ok_or_else(|| {
        let names = attached_names(ports);
        match name {
            Some(name) => format!("port {name}: not attached; attached ports are {names}"),
            None => "no port is attached; `sidestep port add DEV` adds one".into(),
        }
    })
}

/// Returns the names of the attached ports.
pub(crate) fn attached_names(ports: &[Port]) -> String {
    let attached = ports.iter().filter(|port| port.target != "none");
    let names: Vec<_> = attached.map(|port| port.name.as_str()).collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}
