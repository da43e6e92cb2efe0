//! One `ip` that stays: a change is made without the cost of starting a program, and the moment when the kernel has
//! carried it out is known.

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
    /// Lines written.
    lines: usize,
}

/// No object of `ip`: it complains at once, unbuffered, when all commands before are done.
const MARK: &str = "done";
/// Returns the output of an `ip` command that may succeed only after a retry.
const NO_MEMORY: &str = "RTNETLINK answers: Cannot allocate memory\n";

impl Ip {
    pub fn new(namespace: &Namespace) -> Self {
        Self::start(namespace, &[])
    }

    /// `ip -6`, for objects without an address that says the family.
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

    /// Carries out one command, without the word `ip`, and returns when the kernel has.
    pub fn run(&mut self, command: &str) {
        self.all([command]);
    }

    /// Carries out these commands, as fast as `ip` can, and returns when the kernel has.
    pub fn all<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) {
        let mut commands: Vec<&str> = commands.into_iter().collect();
        let deadline = Instant::now() + super::PATIENCE;
        while !commands.is_empty() {
            let first = self.lines + 1;
            let complaints = self.attempt(commands.iter().copied());
            // Linux allocates a cache per CPU for each SRv6 route without waiting for memory (`dst_cache_init`), which
            // fails while those of deleted routes are not free yet, or others take many.
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

    /// Carries out those of these commands that succeed, and returns what `ip` says of the others.
    pub fn attempt<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) -> String {
        let commands: Vec<&str> = commands.into_iter().collect();
        self.lines += commands.len() + 1;
        // Written from a thread: `ip` may fill the pipe of its complaints before it has read everything.
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
