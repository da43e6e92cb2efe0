//! A shell on the machine under test that does what it is asked, and undoes all of it when the connection ends (`keeper.sh`).

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::super::exec::{file, quoted, text};
use super::System;
use crate::Error;

/// The shell. Dropping it waits until all is undone.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Answer>,
    errors: File,
    place: String,
}

/// What became of a script.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Shell {
    /// Begins, by ssh or on this machine, and makes the ports ours. `sidestep` is the program there.
    ///
    /// # Errors
    /// The machine cannot be reached, we are not root there, a port is missing or has an address, or somebody else measures.
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
        // A group of its own: a Ctrl-C is for this program, which then ends in order.
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
            // Without an end nobody waits for a thread: it ends with the shell.
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

    /// Runs a script of the keeper's language, and returns what it prints. `what` it does is for messages.
    ///
    /// # Errors
    /// It ends with another exit code than 0, or the connection is lost.
    pub fn run(&mut self, what: &str, script: &str) -> Result<String, Error> {
        self.write(&format!("answer {}\n", quoted(script)))?;
        self.answer(what)
    }

    /// Whether it is there still.
    pub fn is_there(&mut self) -> bool {
        self.stdin.is_some() && matches!(self.child.try_wait(), Ok(None))
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        let written = match &mut self.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        // Who has gone has said why in an answer or among its errors.
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
                let said = text(&self.errors).unwrap_or_default();
                let said = if said.is_empty() {
                    "no shell, or the connection is lost".to_owned()
                } else {
                    said
                };
                Err(Error::Wrong(format!("{}: {said}", self.place)))
            }
        }
    }

    /// Closes stdin, with which the shell undoes all and ends, and waits for that.
    fn end(&mut self) {
        self.stdin = None;
        let begun = Instant::now();
        while begun.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        // Of one that has ended there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end();
    }
}

/// Hands on answers until the shell ends, or nobody wants them.
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
/// How long a script may take: `up` has a minute, a card 20 s to negotiate.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long undoing may take.
const END: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(5);
