//! A running `sidestep trace`: its packets one by one, and its end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sidestep_testkit::Namespace;

use super::{PATIENCE, sidestep, wait};

/// A running `sidestep trace`, killed on drop.
pub struct Tracer {
    /// The program.
    pub child: Child,
    /// Output lines. A thread reads them, so that a test can wait for a line with a time limit.
    /// After this is dropped, the output is no longer read.
    pub out: Option<Receiver<String>>,
    err: BufReader<ChildStderr>,
    /// Its start message.
    pub began: String,
}

impl Tracer {
    /// Starts a trace with these arguments, and waits until it has started.
    pub fn start(namespace: &Namespace, words: &[&str]) -> Self {
        let words: Vec<&str> = ["trace"].iter().chain(words).copied().collect();
        let mut child = sidestep(namespace, &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut err = BufReader::new(child.stderr.take().expect("piped"));
        let mut began = String::new();
        err.read_line(&mut began).expect("UTF-8");
        assert!(began.starts_with("tracing on "), "{words:?}: {began}");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, out) = sync_channel(0);
        thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line.expect("UTF-8")).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            out: Some(out),
            err,
            began,
        }
    }

    /// Returns the next packet's title and its lines.
    pub fn packet(&mut self) -> (String, String) {
        let (title, mut text) = (self.line(), String::new());
        loop {
            match self.line() {
                end if end.is_empty() => return (title, text),
                more => text += &(more + "\n"),
            }
        }
    }

    fn line(&mut self) -> String {
        let lines = self.out.as_ref().expect("it is read");
        lines.recv_timeout(PATIENCE).expect("a packet in time")
    }

    /// Returns the next line of `-j`.
    pub fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("a line of JSON")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Waits for its end. Returns further output and the final message.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let out = self.out.take().expect("it is read");
        let rest = thread::spawn(move || out.into_iter().collect::<Vec<_>>());
        let status = wait(&mut self.child).expect("it ends in time");
        let rest = rest.join().expect("its lines");
        let mut err = String::new();
        self.err.read_to_string(&mut err).expect("UTF-8");
        (status, rest.join("\n"), err.trim_end().to_owned())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
