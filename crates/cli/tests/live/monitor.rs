//! `sidestep monitor`: an event for each change, and the same problems in the journal.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::{fs, thread};

use sidestep_control::report::Event;

use crate::common::program;
use crate::support::{PATIENCE, Star, begin, eventually, printed, sidestep};

/// A running `sidestep monitor -j`.
struct Monitor {
    child: Child,
    events: BufReader<ChildStdout>,
    /// Open, because the program prints an error at the end of the daemon.
    _stderr: BufReader<ChildStderr>,
}

impl Monitor {
    /// Starts it, and returns when it gets events.
    fn start(star: &Star, args: &[&str]) -> Self {
        let args: Vec<&str> = ["monitor", "-j"].iter().chain(args).copied().collect();
        let mut child = sidestep(star.router(), &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut begun = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut begun).expect("UTF-8");
        assert_eq!(begun, "waiting for events; Ctrl-C ends it\n");
        // A failure ends the wait for an event.
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        thread::spawn(move || {
            thread::sleep(3 * PATIENCE);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        });
        let events = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            events,
            _stderr: stderr,
        }
    }

    /// Reads events until one of this kind, event, and beginning of its subject.
    fn expect(&mut self, kind: &str, event: &str, subject: &str) -> Event {
        let mut read = String::new();
        loop {
            let mut line = String::new();
            let bytes = self.events.read_line(&mut line).expect("UTF-8");
            assert!(bytes > 0, "no {kind} {event} {subject} in:\n{read}");
            read += &line;
            let found: Event = serde_json::from_str(&line).expect("an event");
            let change = &found.change;
            if change.kind == kind && change.event == event && change.subject.starts_with(subject) {
                return found;
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const POLICY: &str = "policy add gold color 100 endpoint fc00:c::2 segs fc00:c::2";

#[test]
fn every_change_is_an_event() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livemonitor");
    let ip = &mut star.ip();
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    let mut monitor = Monitor::start(&star, &[]);
    let mut ports = Monitor::start(&star, &["--count", "2", "port"]);

    ip.run("route add fc00:5:e:: encap seg6local action End dev eth0");
    monitor.expect("route", "added", "fc00:5:e:: encap seg6local action End");
    ip.run("route replace fc00:5:e:: encap seg6local action End dev eth1");
    monitor.expect("route", "changed", "fc00:5:e:: ");
    ip.run("route del fc00:5:e::/128");
    monitor.expect("route", "removed", "fc00:5:e:: ");

    printed(star.router(), &POLICY.split(' ').collect::<Vec<_>>());
    monitor.expect("policy", "valid", "gold");
    ip.run("neighbor del fc00:c::2 dev eth2");
    let invalid = monitor.expect("policy", "invalid", "gold").change.detail;
    let expected = "a segment list is invalid: neighbor fc00:c::2 is not resolved";
    assert_eq!(invalid.as_deref(), Some(expected));
    let begun = monitor.expect("problem", "begun", "policy_invalid");
    assert!(begun.change.severity.is_some());
    printed(star.router(), &["policy", "del", "gold"]);
    monitor.expect("policy", "removed", "gold");
    monitor.expect("problem", "resolved", "policy_invalid");

    ip.run("link set dev eth1 down");
    monitor.expect("port", "down", "eth1");
    monitor.expect("problem", "begun", "port_down");
    ip.run("link set dev eth1 up");
    monitor.expect("port", "up", "eth1");
    monitor.expect("problem", "resolved", "port_down");
    ip.run("link del dev eth1");
    monitor.expect("port", "detached", "eth1");

    // The other client gets the events of ports only, and ends after two.
    ports.expect("port", "down", "eth1");
    ports.expect("port", "up", "eth1");
    assert!(ports.child.wait().expect("it ends").success());
    // The end of the daemon ends the stream.
    drop(daemon);
    assert_eq!(monitor.child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn problems_have_priorities_in_the_journal() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livejournal");
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("journal");
    // The journal of systemd is recognized by the device and inode of standard error.
    let script = format!(
        "exec 2>{0}; export JOURNAL_STREAM=$(stat -c %d:%i {0}); exec {1} run --mode tc eth0 eth2",
        journal.display(),
        program()
    );
    let mut daemon = star
        .router()
        .spawn(&["sh", "-c", &script])
        .expect("sh starts");
    let add = || {
        let added = sidestep(star.router(), &POLICY.split(' ').collect::<Vec<_>>()).output();
        added.expect("it starts").status.success().then_some(())
    };
    eventually("it runs", add);
    star.ip().run("neighbor del fc00:c::2 dev eth2");
    eventually("it is logged", || {
        let log = fs::read_to_string(&journal).expect("the log");
        let line = log
            .lines()
            .find(|line| line.contains(": policy_invalid: "))?;
        assert!(line.starts_with("<3>sidestep: error: "), "{log}");
        Some(())
    });
    printed(star.router(), &["stop"]);
    daemon.child().wait().expect("it ends");
}
