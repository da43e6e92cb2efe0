//! A running `ip` process: it saves the start of a program per change, and it shows when the kernel
//! has applied a change.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::time::Instant;

use sidestep_testkit::Namespace;

/// `ip -force -batch -` in a namespace.
#[derive(Debug)]
pub struct Ip {
    child: Child,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
    /// Number of written lines.
    lines: usize,
}

/// An unknown object of `ip`, which prints an error at once, unbuffered, after all earlier
/// commands.
const MARK: &str = "done";
/// Error of an `ip` command that may succeed after a retry.
const NO_MEMORY: &str = "RTNETLINK answers: Cannot allocate memory\n";

impl Ip {
    pub fn new(namespace: &Namespace) -> Self {
        Self::start(namespace, &[])
    }

    /// Starts `ip -6`, for objects without an address that determines the family.
    pub fn six(namespace: &Namespace) -> Self {
        Self::start(namespace, &["-6"])
    }

    fn start(namespace: &Namespace, family: &[&str]) -> Self {
        let mut child = namespace
            .command("ip")
            .args(family)
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip starts");
        let stdin = child.stdin.take().expect("piped");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Self {
            child,
            stdin,
            stderr,
            lines: 0,
        }
    }

    /// Runs one command, given without `ip`, and returns when the kernel has applied it.
    pub fn run(&mut self, command: &str) {
        self.all([command]);
    }

    /// Runs these commands as fast as `ip` can, and returns when the kernel has applied them.
    pub fn all<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) {
        let mut commands: Vec<&str> = commands.into_iter().collect();
        let deadline = Instant::now() + super::PATIENCE;
        while !commands.is_empty() {
            let first = self.lines + 1;
            let complaints = self.attempt(commands.iter().copied());
            // Linux allocates a cache per CPU for each SRv6 route without waiting for memory
            // (`dst_cache_init`). This fails while caches of deleted routes are not freed yet, or
            // if other users need much memory.
            let again = complaints.split(NO_MEMORY).skip(1).map(|text| {
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix("Command failed -:"));
                line.and_then(|number| number.parse::<usize>().ok())
            });
            let again: Option<Vec<&str>> = again
                .map(|number| commands.get(number?.checked_sub(first)?).copied())
                .collect();
            let failed = complaints.matches("Command failed").count();
            commands = match again {
                Some(again) if again.is_empty() && failed == 0 && complaints.is_empty() => again,
                Some(again) if again.len() == failed && Instant::now() < deadline => again,
                _ => panic!("ip: {complaints}"),
            };
        }
    }

    /// Runs these commands, some of which may fail, and returns the error messages of `ip`.
    pub fn attempt<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) -> String {
        let commands: Vec<&str> = commands.into_iter().collect();
        self.lines += commands.len() + 1;
        // Write from a thread, because `ip` may fill the pipe of its messages before it has read
        // all commands.
        let mut text: String = commands.into_iter().flat_map(|line| [line, "\n"]).collect();
        text += MARK;
        text += "\n";
        let (stdin, stderr) = (&mut self.stdin, &mut self.stderr);
        let mut complaints = String::new();
        std::thread::scope(|scope| {
            scope.spawn(|| stdin.write_all(text.as_bytes()).expect("ip reads"));
            loop {
                let line = line_of(stderr, &complaints);
                if line.contains(&format!("\"{MARK}\"")) {
                    // "Command failed", about the mark itself.
                    line_of(stderr, &complaints);
                    break;
                }
                complaints += &line;
            }
        });
        complaints
    }
}

fn line_of(stderr: &mut impl BufRead, before: &str) -> String {
    let mut line = String::new();
    let length = stderr.read_line(&mut line).expect("UTF-8");
    assert!(length > 0, "ip has ended: {before}");
    line
}

impl Drop for Ip {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
