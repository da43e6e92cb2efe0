//! An engine that three commands of a campaign drive: up, down, info.
//!
//! `sh -c` runs each of them outside the namespaces, with the case in the environment
//! ([`variables`]). `up` makes an engine forward from the first port of the router to the second
//! one, and returns. `down` undoes it. It also runs before `up`, to remove leftovers of a killed
//! run. `info` prints `name: value` lines for the report. If the engine does not support the case,
//! `info` prints the reason on stderr and exits with a code other than 0. The commands may be `ssh
//! host ...` and configure another machine, but the traffic uses the namespaces of this machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::behavior::{self, Behavior};
use super::measured::{Measured, Path};
use super::network::{Macs, Network, PORT, PORTS};
use super::plane;
use super::verify::{exchange, same};
use super::{Case, Engine, Options, Standing, stream};
use sidestep_testkit::Error;
use sidestep_testkit::Napi;
use sidestep_testkit::hexdiff::diff;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::traffic::{Hook, Load, Trial};
use sidestep_wire::field::{ipv4, ipv6};
use sidestep_wire::{Header, Headers};

/// The commands, as a campaign gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Name of the engine.
    pub name: String,
    /// Command that makes the engine forward.
    pub up: String,
    /// Command that undoes `up`.
    pub down: String,
    /// Command that describes the engine, and states whether it supports a case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// Whether the engine forwards without decrementing the hop limit. The comparison then ignores
    /// hop limits and TTLs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_hop_limit: bool,
}

impl Commands {
    /// Returns the name and value of a deviation that the comparison ignores, for the report.
    pub(super) fn deviation(&self) -> Option<(String, String)> {
        let deviation = (
            "hop limit".to_owned(),
            "not decremented, so not compared".to_owned(),
        );
        self.keeps_hop_limit.then_some(deviation)
    }
}

/// An engine that is driven by commands.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) commands: Commands,
    pub(super) options: Options,
}

impl Engine for Exec {
    fn name(&self) -> &str {
        &self.commands.name
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::from([("CPUs".to_owned(), self.options.cpus())]);
        facts.extend(super::port::of_veth());
        facts.extend(self.commands.deviation());
        let Some(info) = &self.commands.info else {
            return facts;
        };
        match self.run(info, BTreeMap::new()) {
            Ok(text) => facts.extend(self::facts(&text)),
            Err(error) => {
                facts.insert("info".to_owned(), error.to_string());
            }
        }
        facts
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        let made = behavior::kind(&case.behavior).and_then(|kind| {
            if kind.limit {
                return Err(format!("{} is of engine none", kind.name));
            }
            kind.check(case)?;
            self.options.cores(case)?;
            stream(case).map_err(|error| error.to_string())
        });
        let made = match made {
            Ok(made) => made,
            Err(why) => return Some(why),
        };
        let info = self.commands.info.as_ref()?;
        let asked = self.run(info, variables(case, &made[0].0, &Macs::LAB));
        asked.err().map(reason)
    }

    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error> {
        self.options.check()?;
        let stream = stream(case)?;
        let behavior = &stream[0].0;
        // Only the service is connected here. The commands configure everything else.
        let network = Arc::new(Network::routed(&Behavior {
            service: behavior.service,
            queues: behavior.queues,
            ..Behavior::default()
        })?);
        let mut variables = variables(case, behavior, &Macs::LAB);
        let names = [
            ("GENERATOR", network.generator()?),
            ("ROUTER", network.router()?),
            ("SINK", network.sink()?),
        ];
        variables.extend(names.map(|(name, it)| (name.to_owned(), it.name().to_owned())));
        // Remove leftovers of a killed run. The command may fail if there are none.
        let _ = self.run(&self.commands.down, variables.clone());
        let up = Up {
            exec: self,
            variables,
        };
        self.run(&self.commands.up, up.variables.clone())?;
        let standing = plane::Standing::others(&network, behavior)?;
        for (behavior, _) in &stream {
            self.options.check()?;
            verify(&network, behavior, self.commands.keeps_hop_limit)?;
        }
        let path = Path::Other(standing);
        let measured = Measured::new(path, stream, case, &self.options)?;
        Ok(Box::new(Commanded { _up: up, measured }))
    }

    fn recipe(&self, case: &Case) -> Vec<String> {
        let Ok(stream) = stream(case) else {
            return Vec::new();
        };
        let exports = variables(case, &stream[0].0, &Macs::LAB);
        exported(&exports)
            .chain([self.commands.up.clone()])
            .collect()
    }
}

impl Exec {
    /// Returns the output of the command if it exits with 0.
    fn run(&self, command: &str, variables: BTreeMap<String, String>) -> Result<String, Error> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).envs(variables);
        output(shell, command, &self.commands.name)
    }
}

/// Returns the output of an engine's command if it exits with 0 within a minute. `called` is its
/// name in errors.
///
/// # Errors
/// Contains its stderr.
pub(crate) fn output(mut command: Command, called: &str, engine: &str) -> Result<String, Error> {
    let failed = |status: String, stderr: String| Error::Command {
        command: called.to_owned(),
        namespace: format!("engine {engine}"),
        status,
        stderr,
    };
    let cannot = |source: io::Error| failed("cannot be run".into(), source.to_string());
    // Use files instead of pipes: background processes of the command may keep pipes open.
    let [out, err] = [file().map_err(cannot)?, file().map_err(cannot)?];
    // Use a separate process group: this program handles Ctrl-C and cleans up.
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(cannot)?)
        .stderr(err.try_clone().map_err(cannot)?)
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    let status = wait(&mut child).map_err(cannot)?;
    match status {
        Some(status) if status.success() => text(&out).map_err(cannot),
        Some(status) => Err(failed(status.to_string(), text(&err).map_err(cannot)?)),
        None => Err(failed(
            format!("not done within {PATIENCE:?}"),
            text(&err).map_err(cannot)?,
        )),
    }
}

/// Returns the `name: value` lines in the output of `info`.
pub(crate) fn facts(text: &str) -> impl Iterator<Item = (String, String)> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns the reason why an engine does not support a case: the output of `info`, if any.
pub(super) fn reason(error: Error) -> String {
    match error {
        Error::Command { stderr, .. } if !stderr.is_empty() => stderr,
        other => other.to_string(),
    }
}

/// An unnamed file for the output of a command.
pub(super) fn file() -> io::Result<File> {
    let file = memfd_create(c"sidestep-exec", MFdFlags::MFD_CLOEXEC)?;
    Ok(file.into())
}

/// Returns the content of such a file without the last newline. Writers of the file are not
/// affected.
pub(super) fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns shell lines that export variables.
pub(super) fn exported(variables: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    let variables = variables.iter();
    variables.map(|(name, value)| format!("export {name}={}", quoted(value)))
}

/// Waits for a process and returns its exit status, or `None` if the process had to be killed.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(LOOK);
    }
    // Kill its child processes too.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    child.wait()?;
    Ok(None)
}

/// Returns the environment of a command: `BEHAVIOR` (as in a campaign), `SIDS`, `SIZE` (bytes of
/// the customer's longest packet), `FLOWS`, `RULES`, `ROUTES`. `ROUTER_ROUTES`, `ROUTER_RULES` and
/// `ROUTER_DEVICES` have the configuration of Linux (arguments of `ip route add`, `ip rule add`,
/// `ip`), one per line. `PORT_IN` and `PORT_OUT` are the router's ports, `PORT_IN_MAC` and
/// `PORT_OUT_MAC` their Ethernet addresses, and `SINK_MAC` is that of the next hops. After setup,
/// `GENERATOR`, `ROUTER` and `SINK` name the namespaces.
pub(super) fn variables(case: &Case, behavior: &Behavior, macs: &Macs) -> BTreeMap<String, String> {
    let longest = case.size.packets(0).into_iter().map(|(length, _)| length);
    [
        ("BEHAVIOR", case.behavior.clone()),
        ("SIDS", case.sids.to_string()),
        ("SIZE", longest.max().unwrap_or(0).to_string()),
        ("FLOWS", case.flows.count().to_string()),
        ("RULES", case.rules.to_string()),
        ("ROUTES", case.routes.to_string()),
        ("CORES", case.cores.to_string()),
        ("ROUTER_ROUTES", behavior.routes.join("\n")),
        ("ROUTER_RULES", behavior.rules.join("\n")),
        ("ROUTER_DEVICES", behavior.devices.join("\n")),
        ("PORT_IN", PORTS[0].to_owned()),
        ("PORT_OUT", PORTS[1].to_owned()),
        ("PORT_IN_MAC", mac_text(macs.router[0])),
        ("PORT_OUT_MAC", mac_text(macs.router[1])),
        ("SINK_MAC", mac_text(macs.sink)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Verifies the engine with one packet.
fn verify(network: &Network, behavior: &Behavior, keeps_hop_limit: bool) -> Result<(), Error> {
    let _napi = Napi::attach(network.sink()?, PORT)?;
    let found = exchange(network, &behavior.sent)?;
    compare(behavior, found, keeps_hop_limit)
}

/// Checks that the engine sent the expected frame. `found` is `None` if it sent no frame. A headend
/// decrements the inner hop limit by RFC 8986 5.1, and the outer one in Linux, so either is
/// accepted. `keeps_hop_limit` ignores hop limits.
pub(super) fn compare(
    behavior: &Behavior,
    found: Option<Vec<u8>>,
    keeps_hop_limit: bool,
) -> Result<(), Error> {
    let wrong = |what: &str| Error::Wrong(format!("{}: {what}", behavior.name));
    let Some(found) = found else {
        return Err(wrong("the router sent no packet"));
    };
    let rfc = &behavior.from_sidestep;
    let compared = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        if keeps_hop_limit {
            clear_hop_limits(&mut frame);
        }
        frame
    };
    let sent = compared(&found);
    let right = sent == compared(rfc)
        || sent == compared(&behavior.from_linux)
        || behavior.computed_label && same(&compared(rfc), &sent, true);
    if right {
        return Ok(());
    }
    Err(wrong(&format!(
        "the router sent another packet\n{}",
        diff(rfc, &found)
    )))
}

/// Sets all hop limits and TTLs of a frame to 0, with the IPv4 checksums.
fn clear_hop_limits(frame: &mut [u8]) {
    let layers: Vec<_> = Headers::frame(frame)
        .ignore_lengths()
        .filter_map(|layer| match layer.header {
            Header::Ipv6(_) => Some(vec![layer.offset + ipv6::HOP_LIMIT]),
            Header::Ipv4(_) => {
                let fields = [ipv4::TTL, ipv4::CHECKSUM, ipv4::CHECKSUM + 1];
                Some(fields.map(|field| layer.offset + field).to_vec())
            }
            _ => None,
        })
        .collect();
    for offset in layers.into_iter().flatten() {
        frame[offset] = 0;
    }
}

/// Runs `down` on drop, even if `up` failed halfway.
struct Up<'a> {
    exec: &'a Exec,
    variables: BTreeMap<String, String>,
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let undone = self
            .exec
            .run(&self.exec.commands.down, self.variables.clone());
        if let Err(error) = undone {
            eprintln!("warning: {error}");
        }
    }
}

/// An engine that commands have set up, ready for trials.
struct Commanded<'a> {
    // The first field, so that `down` runs before the namespaces are removed.
    _up: Up<'a>,
    measured: Measured,
}

impl Standing for Commanded<'_> {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        self.measured.trial(load, duration, latency)
    }

    fn sink(&self) -> Option<Hook> {
        self.measured.sink()
    }
}

/// Time limit of a command.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Flows, Size};

    #[test]
    fn only_the_hop_limit_may_differ_of_an_engine_that_keeps_it() {
        for name in ["h.encaps", "h.encaps.v4"] {
            let case = Case {
                behavior: name.to_owned(),
                sids: 2,
                size: Size::Bytes(64),
                flows: Flows::Uniform(1),
                rules: 0,
                routes: 0,
                cores: 1,
            };
            let behavior = Behavior::of(&case, 64).expect("a behavior");
            let mut kept = behavior.from_sidestep.clone();
            let offsets: Vec<_> = Headers::frame(&kept)
                .filter(|layer| matches!(layer.header, Header::Ipv4(_) | Header::Ipv6(_)))
                .map(|layer| layer.offset)
                .collect();
            assert_eq!(offsets.len(), 2, "{name}");
            kept[offsets[1]
                + if name == "h.encaps" {
                    ipv6::HOP_LIMIT
                } else {
                    ipv4::TTL
                }] += 1;
            compare(&behavior, Some(kept.clone()), false).expect_err("it differs");
            compare(&behavior, Some(kept.clone()), true).expect("it may differ");
            *kept.last_mut().expect("a frame") ^= 1;
            compare(&behavior, Some(kept), true).expect_err("the payload differs");
        }
    }
}
