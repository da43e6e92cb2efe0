//! A shell on the machine under test that runs scripts, and undoes everything when the connection
//! ends (`keeper.sh`).

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::super::exec::{file, quoted, text};
use super::System;
use sidestep_testkit::Error;

/// The shell. Drop waits until the shell has undone all changes.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Answer>,
    errors: File,
    place: String,
}

/// Result of a script.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Shell {
    /// Starts the shell, by ssh or on this machine, and reserves the ports. `sidestep` is the path
    /// of the program on that machine.
    ///
    /// # Errors
    /// The machine is unreachable, the user is not root, a port is missing or has an address, or
    /// another process measures.
    pub fn begin(system: &System, sidestep: &str) -> Result<Self, Error> {
        let place = system.to_string();
        let cannot = |source| Error::os(format!("a shell on {place}"), source);
        let errors = file().map_err(cannot)?;
        let mut command = match &system.ssh {
            None => Command::new("sh"),
            Some(host) => {
                let mut ssh = Command::new("ssh");
                ssh.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
                ssh.args(["-o", "ServerAliveInterval=10", "--", host, "sh"]);
                ssh
            }
        };
        // Use a separate process group: this program handles Ctrl-C and exits cleanly.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().map_err(cannot)?)
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let [port_in, port_out] = &system.ports;
        let name = system.name();
        let (sender, answers) = channel();
        let stdout = child.stdout.take();
        let begins = format!("{name}\n");
        thread::spawn(move || {
            // The thread is not joined: it ends with the shell.
            stdout.map(|stdout| read(BufReader::new(stdout), &begins, &sender))
        });
        let mut shell = Self {
            stdin: child.stdin.take(),
            child,
            answers,
            errors,
            place,
        };
        let variables = [
            ("name", name.as_str()),
            ("port_in", port_in),
            ("port_out", port_out),
            ("sidestep", sidestep),
        ];
        let variables =
            variables.map(|(variable, value)| format!("{variable}={}\n", quoted(value)));
        let script = variables.concat() + KEEPER;
        shell.write(&script)?;
        shell.answer("claim its ports")?;
        Ok(shell)
    }

    /// Runs a script in the keeper's language and returns its output. `what` describes the script
    /// in error messages.
    ///
    /// # Errors
    /// The exit code is not 0, or the connection is lost.
    pub fn run(&mut self, what: &str, script: &str) -> Result<String, Error> {
        self.write(&format!("answer {}\n", quoted(script)))?;
        self.answer(what)
    }

    /// Returns whether the shell is still running.
    pub fn is_there(&mut self) -> bool {
        self.stdin.is_some() && matches!(self.child.try_wait(), Ok(None))
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        let written = match &mut self.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        // A terminated shell has given the reason in its last output or on stderr.
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::os(format!("ask {}", self.place), error))
            }
            _ => Ok(()),
        }
    }

    fn answer(&mut self, what: &str) -> Result<String, Error> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(Answer { code: 0, out, .. }) => Ok(out),
            Ok(answer) => Err(Error::Command {
                command: what.to_owned(),
                namespace: self.place.clone(),
                status: format!("exit code {}", answer.code),
                stderr: answer.err.trim_end().to_owned(),
            }),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                Err(Error::Timeout {
                    what: format!("{}: {what}", self.place),
                    milliseconds: PATIENCE.as_millis(),
                })
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.end();
                let printed = text(&self.errors).unwrap_or_default();
                let printed = if printed.is_empty() {
                    "no shell, or the connection is lost".to_owned()
                } else {
                    printed
                };
                Err(Error::Wrong(format!("{}: {printed}", self.place)))
            }
        }
    }

    /// Closes stdin, so that the shell undoes all changes and exits, and waits for its exit.
    fn end(&mut self) {
        self.stdin = None;
        let begun = Instant::now();
        while begun.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        // A terminated shell needs no kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end();
    }
}

/// Forwards replies until the shell exits or the receiver is dropped.
fn read(mut from: impl io::BufRead, begins: &str, to: &Sender<Answer>) -> Option<()> {
    let mut line = String::new();
    while line != begins {
        line.clear();
        (from.read_line(&mut line).ok()? > 0).then_some(())?;
    }
    loop {
        let mut head = String::new();
        from.read_line(&mut head).ok()?;
        let mut numbers = head.split_whitespace();
        let code = numbers.next()?.parse().ok()?;
        let mut part = || -> Option<String> {
            let length: usize = numbers.next()?.parse().ok()?;
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (out, err) = (part()?, part()?);
        to.send(Answer { code, out, err }).ok()?;
    }
}

const KEEPER: &str = include_str!("keeper.sh");
/// Time limit of a script: `up` may take a minute, and link negotiation 20 s.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit for undoing all changes.
const END: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use sidestep_testkit::{Lab, Namespace, root_or_skip};

    /// Starts a shell in a namespace that represents the machine.
    fn begin(machine: &Namespace, system: &System) -> Result<Shell, Error> {
        machine.run(|| Shell::begin(system, "sidestep"))?
    }

    fn links(machine: &Namespace) -> String {
        machine.exec(&["ip", "-br", "link"]).expect("links")
    }

    #[test]
    fn leftovers_of_a_killed_shell_are_undone_by_the_next_one() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("keeper").expect("lab");
        let ports = ["i", "o"].map(|end| format!("kp{}{end}", std::process::id()));
        lab.node("dut")
            .and_then(|lab| lab.node("far"))
            .and_then(|lab| lab.link("dut", &ports[0], "far", "eth0"))
            .and_then(|lab| lab.link("dut", &ports[1], "far", "eth1"))
            .expect("two links");
        let machine = lab.namespace("dut").expect("dut");
        let system = System {
            ssh: None,
            ports: ports.clone(),
            sidestep: None,
        };
        let name = system.name();
        let enter = "enter net/ipv6/conf/default/accept_dad=0";
        let is_there = |folder: &str| Path::new(folder).join(&name).exists();

        let mut killed = begin(machine, &system).expect("a shell");
        killed.run("take its ports", enter).expect("taken");
        assert!(is_there("/run/netns") && !links(machine).contains(&ports[0]));
        let others = begin(machine, &system).expect_err("one at a time");
        assert!(
            others.to_string().contains("measures there already"),
            "{others}"
        );
        kill(Pid::from_raw(killed.child.id() as i32), Signal::SIGKILL).expect("it runs");
        let lost = killed.run("say something", "echo").expect_err("killed");
        assert!(lost.to_string().starts_with("this machine: "), "{lost}");
        assert!(!killed.is_there() && is_there("/run/netns"));

        let mut next = begin(machine, &system).expect("the next");
        assert!(!is_there("/run/netns") && links(machine).contains(&ports[1]));
        next.run("take its ports", enter).expect("taken again");
        let error = next.run("fail", "echo out; echo err >&2; false");
        let error = error.expect_err("it fails").to_string();
        assert_eq!(error, "`fail` in this machine: exit code 1: err");
        drop(next);
        assert!(!is_there("/run/netns") && !is_there("/run"));
        let back = links(machine);
        let is_up =
            |line: &str| line.contains(",UP,") && ports.iter().any(|port| line.starts_with(port));
        assert_eq!(back.lines().filter(|line| is_up(line)).count(), 2, "{back}");
    }
}
