//! A network namespace for each test, and commands in it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use sidestep_mirror::{Changes, Mirror};
use sidestep_model::node::{IfIndex, Node};

/// Runs `test` on a thread with its own network namespace, which ends with the thread. Without root
/// the test is skipped with a message.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root for a network namespace");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        // Assign link-local addresses without delay.
        sysctl("ipv6/conf/default/accept_dad", "0");
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Creates two pairs of veth with both ends in the namespace, up and with addresses: `va`-`vb` and
/// `vc`-`vd`.
pub fn two_pairs() {
    batch(
        "link add va type veth peer name vb
         link add vc type veth peer name vd
         link set va up
         link set vb up
         link set vc up
         link set vd up
         addr add 10.1.0.1/24 dev va
         addr add 10.2.0.1/24 dev vc
         -6 addr add fc00:1::1/64 dev va nodad
         -6 addr add fc00:2::1/64 dev vc nodad",
    );
}

/// Runs `ip` and expects success.
pub fn ip(arguments: &str) {
    let output = try_ip(arguments);
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `ip`.
pub fn try_ip(arguments: &str) -> Output {
    Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("iproute2")
}

/// Returns one line for each number below `count`.
pub fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    let lines: Vec<String> = (0..count).map(line).collect();
    lines.join("\n") + "\n"
}

/// Runs many `ip` commands, one per line. Lines that start with `-6` are for IPv6.
pub fn batch(commands: &str) {
    let mut last: Option<(bool, String)> = None;
    for line in commands
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (v6, line) = match line.strip_prefix("-6 ") {
            Some(line) => (true, line),
            None => (false, line),
        };
        match &mut last {
            Some((family, lines)) if *family == v6 => {
                lines.push_str(line);
                lines.push('\n');
            }
            _ => {
                if let Some((family, lines)) = last.take() {
                    run_batch(family, &lines, false);
                }
                last = Some((v6, format!("{line}\n")));
            }
        }
    }
    if let Some((family, lines)) = last {
        run_batch(family, &lines, false);
    }
}

/// Runs one batch; with `force`, failed commands are ignored.
///
/// Linux allocates a cache per CPU for each SRv6 route without waiting for memory
/// (`dst_cache_init`), which fails while caches of deleted routes are not freed yet. The batch is
/// then continued.
pub fn run_batch(v6: bool, lines: &str, force: bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut rest = lines;
    loop {
        let complaints = attempt_batch(v6, rest, force);
        let number = complaints.split("Command failed -:").nth(1);
        let number = number.and_then(|number| number.trim().parse::<usize>().ok());
        match number {
            None if complaints.is_empty() => return,
            Some(number) if is_transient(&complaints) && Instant::now() < deadline => {
                let lines = rest.split_inclusive('\n').take(number - 1);
                rest = &rest[lines.map(str::len).sum()..];
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => panic!("ip -batch: {complaints}\n{rest}"),
        }
    }
}

fn is_transient(complaints: &str) -> bool {
    complaints.contains("RTNETLINK answers: Cannot allocate memory")
}

/// Runs one batch up to the first command that fails, and returns the errors. With `force` all are
/// run, and none is returned.
fn attempt_batch(v6: bool, lines: &str, force: bool) -> String {
    let mut command = Command::new("ip");
    if v6 {
        command.arg("-6");
    }
    if force {
        command.arg("-force");
    }
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("iproute2");
    let mut input = child.stdin.take().expect("piped");
    let text = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("iproute2 runs");
    _ = writer.join();
    if force || output.status.success() {
        return String::new();
    }
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a setting below `/proc/sys/net`.
pub fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).expect(path);
}

/// Returns the index of an interface.
pub fn index(mirror: &Mirror, name: &str) -> IfIndex {
    mirror.node().link_by_name(name).expect(name).ifindex
}

/// Processes notifications until `holds` returns true, for at most twenty seconds. Returns all
/// changes.
pub fn until(mirror: &mut Mirror, what: &str, holds: impl Fn(&Node) -> bool) -> Changes {
    let end = Instant::now() + Duration::from_secs(20);
    let mut all = Changes::default();
    loop {
        let changes = mirror.process().expect("process");
        all.routes.extend(changes.routes);
        all.neighbors.extend(changes.neighbors);
        all.other |= changes.other;
        all.resynced |= changes.resynced;
        if holds(mirror.node()) {
            return all;
        }
        assert!(Instant::now() < end, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits up to a minute until the node equals a freshly read one: the kernel completes some commands
/// later, and a busy machine has many notifications in the queue.
pub fn assert_current(mirror: &mut Mirror, when: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        mirror.process().expect("process");
        mirror.poll_sysctls().expect("poll");
        let fresh = Mirror::open().expect("open");
        // Changes made meanwhile may be missing in one or both nodes.
        let still = mirror.process().expect("process").is_empty() && mirror.is_current();
        if still && mirror.node() == fresh.node() {
            return;
        }
        if Instant::now() > end {
            assert_same(mirror.node(), fresh.node(), when);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Compares two nodes part by part, so that a failure prints only the difference.
pub fn assert_same(followed: &Node, fresh: &Node, when: &str) {
    assert_eq!(followed.links, fresh.links, "links {when}");
    assert_eq!(followed.addresses, fresh.addresses, "addresses {when}");
    assert_eq!(followed.neighbors, fresh.neighbors, "neighbors {when}");
    assert_eq!(followed.rules, fresh.rules, "rules {when}");
    for (key, route) in &fresh.routes {
        assert_eq!(followed.routes.get(key), Some(route), "route {when}");
    }
    for (key, route) in &followed.routes {
        assert!(
            fresh.routes.contains_key(key),
            "a route too many {when}: {route:#?}"
        );
    }
    assert_eq!(followed, fresh, "{when}");
}
