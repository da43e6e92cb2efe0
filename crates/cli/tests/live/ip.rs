//! One `ip` that stays: a change is made without the cost of starting a program, and the moment when the kernel has
//! carried it out is known.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Stdio};

use sidestep_lab::Namespace;

/// `ip -force -batch -` in a namespace.
#[derive(Debug)]
pub struct Ip {
    child: Child,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
}

/// No object of `ip`: it complains at once, unbuffered, when all commands before are done.
const MARK: &str = "done";

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
        }
    }

    /// Carries out one command, without the word `ip`, and returns when the kernel has.
    pub fn run(&mut self, command: &str) {
        self.all([command]);
    }

    /// Carries out these commands, as fast as `ip` can, and returns when the kernel has.
    pub fn all<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) {
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
        assert!(complaints.is_empty(), "ip: {complaints}");
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
