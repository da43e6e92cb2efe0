//! Privileges of the running daemon, and access to its socket: only root, unless a group is
//! configured.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::common::program;
use crate::support::left::{run_folder, traces};
use crate::support::{
    Daemon, PORTS, ROUTER, Star, begin, eventually, printed, report, target_of, text_of,
};

/// `CAP_NET_ADMIN` 12, `CAP_NET_RAW` 13, `CAP_PERFMON` 38, `CAP_BPF` 39.
const KEPT: &str = "000000c000003000";
const NONE: &str = "0000000000000000";
/// A group that Debian defines, and a user who is not a member.
const GROUP: (&str, u32) = ("games", 60);
const NOBODY: &str = "65534";
/// The systemd unit.
const UNIT: &str = include_str!("../../../../packaging/sidestep.service");

/// Returns the credentials of every thread of a process.
fn credentials(pid: Pid) -> Vec<Vec<(String, String)>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |path: std::path::PathBuf| {
        let status = fs::read_to_string(path.join("status")).expect("a thread");
        let pairs = status.lines().filter_map(|line| line.split_once(":\t"));
        pairs
            .filter(|(name, _)| name.starts_with("Cap") || *name == "NoNewPrivs")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    threads
        .map(|thread| of(thread.expect("a thread").path()))
        .collect()
}

fn check_credentials(pid: Pid, when: &str) {
    let expected = [
        ("CapInh", NONE),
        ("CapPrm", KEPT),
        ("CapEff", KEPT),
        ("CapBnd", KEPT),
        ("CapAmb", NONE),
        ("NoNewPrivs", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let threads = credentials(pid);
    assert!(!threads.is_empty());
    for thread in threads {
        assert_eq!(thread, expected, "{when}");
    }
}

/// Runs the program as another user, from a folder in which everybody can run it.
fn as_user(star: &Star, binary: &str, group: &str, args: &[&str]) -> Output {
    let mut command: Command = star.router().command("setpriv");
    command.args([
        "--reuid",
        NOBODY,
        "--regid",
        group,
        "--clear-groups",
        binary,
    ]);
    command
        .args(args)
        .output()
        .expect("setpriv (Debian package util-linux)")
}

fn binary_for_all() -> (tempfile::TempDir, String) {
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("a folder");
    let binary = folder.path().join("sidestep");
    fs::copy(program(), &binary).expect("a copy");
    let binary = binary.to_str().expect("UTF-8").to_owned();
    (folder, binary)
}

#[test]
fn the_daemon_keeps_four_capabilities_in_every_thread_and_does_all_its_work_with_them() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("livecaps");
        let router = star.router();
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        check_credentials(daemon.pid(), mode);
        // The daemon handles kernel and Sidestep-only routes, a grace period in another thread, a
        // trace, and a port that has to be attached again.
        star.ip()
            .run("route add fc0f::1/128 encap seg6local action End dev eth0");
        let own = "fc0f::46/128 encap seg6local action End.DT46 table 254 dev eth0";
        printed(
            router,
            &[&["route", "add"][..], &own.split(' ').collect::<Vec<_>>()].concat(),
        );
        printed(router, &["route", "del", "fc0f::46/128"]);
        eventually("the route of the kernel", || {
            let shown: report::Routes = report(router, Request::ShowRoutes { all: false });
            (shown.len() == 1).then_some(())
        });
        let mut trace = crate::support::sidestep(router, &["trace", "--count", "1"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        eventually("a traced program", || {
            let frame = crate::support::frames::ethernet(
                star.mac(ROUTER, "eth0"),
                star.mac("a", "eth0"),
                &crate::support::frames::ipv6(
                    "fc00:a::2".parse().ok()?,
                    "fc00:b::2".parse().ok()?,
                    59,
                    64,
                    &[0; 8],
                ),
            );
            star.socket("a").send(&frame).expect("a frame");
            trace.try_wait().expect("it is our child")
        });
        star.ip().all([
            "link set eth1 down",
            "link set eth1 name other",
            "link set other name eth1",
            "link set eth1 up",
        ]);
        eventually("both ports", || {
            let ports: report::Ports = report(router, Request::ShowPorts);
            ports
                .iter()
                .all(|port| port.target == target_of(mode))
                .then_some(())
        });
        check_credentials(daemon.pid(), "afterwards");
        let (status, _) = {
            daemon.signal(nix::sys::signal::Signal::SIGTERM);
            daemon.end()
        };
        assert!(status.success());
        let left = traces(router, &PORTS);
        assert!(left.are_none(), "it removes what it has made: {left:?}");
    }
}

#[test]
fn the_socket_is_roots_alone_unless_a_group_is_named_whose_members_may_use_it() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livegroup");
    let (_folder, binary) = binary_for_all();
    let socket = run_folder(star.router()).join("control.sock");
    let place = socket.display();
    let (name, number) = GROUP;
    let group = number.to_string();
    let alone = format!(
        "sidestep: control socket {place}: permission denied: it is for root alone (`sidestep run --group GROUP` lets a group use it)"
    );
    let others = format!(
        "sidestep: control socket {place}: permission denied: it is for root and the group {name}"
    );
    // The permissions do not depend on the umask.
    for umask in ["022", "000", "077"] {
        for (args, mode, of, refused) in [
            (&[][..], 0o600, 0, [Some(&alone), Some(&alone)]),
            (&["--group", name], 0o660, number, [None, Some(&others)]),
            (&["--group", &group], 0o660, number, [None, Some(&others)]),
        ] {
            // The daemon inherits the umask of the shell.
            let start = format!("umask {umask}; exec \"$@\"");
            let words = [
                &["-c", &start, "sh", &binary, "run", "--mode", "tc"],
                args,
                &["eth0"],
            ]
            .concat();
            let mut command = star.router().command("sh");
            let mut child = command
                .args(words)
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("it starts");
            eventually("an answer", || star.call(Request::ShowPorts).ok());
            let data = fs::metadata(&socket).expect("the socket");
            assert_eq!(
                (data.mode() & 0o7777, data.uid(), data.gid()),
                (mode, 0, of),
                "{umask} {args:?}"
            );
            // Without access to the folder, no more details are available.
            for (of_user, refused) in [&*group, NOBODY].iter().zip(refused) {
                let asked = as_user(&star, &binary, of_user, &["show", "ports"]);
                match refused {
                    None => assert!(
                        asked.status.success(),
                        "{umask} {args:?}: {}",
                        text_of(&asked)
                    ),
                    Some(refused) => {
                        assert_eq!(text_of(&asked), **refused, "{umask} {args:?}");
                        assert_eq!(asked.status.code(), Some(1));
                    }
                }
            }
            printed(star.router(), &["stop"]);
            assert!(crate::support::wait(&mut child).expect("it ends").success());
        }
    }
    let unknown =
        crate::support::output(star.router(), &["run", "--group", "no-such-group", "eth0"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text_of(&unknown).contains("no such group"),
        "{}",
        text_of(&unknown)
    );
}

#[test]
fn with_the_capabilities_of_the_systemd_unit_it_starts_and_gives_its_socket_to_a_group() {
    let Some(_turn) = begin() else {
        return;
    };
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("the unit's line");
    let set = line
        .split(' ')
        .map(|name| format!(",+{}", name.to_lowercase().trim_start_matches("cap_")));
    let set = format!("-all{}", set.collect::<String>());
    let star = Star::new("liveunit");
    let (name, number) = GROUP;
    let words = [
        "setpriv",
        "--bounding-set",
        &set,
        "--inh-caps=-all",
        "--groups",
        &format!("0,{number}"),
        "--no-new-privs",
        program(),
        "run",
        "--mode",
        "tc",
        "--group",
        name,
        "eth0",
        "eth1",
    ];
    let mut child = star
        .router()
        .spawn(&words)
        .expect("setpriv (Debian package util-linux)");
    eventually("an answer", || star.call(Request::ShowPorts).ok());
    let pid = Pid::from_raw(child.child().id() as i32);
    check_credentials(pid, "of the unit");
    let data = fs::metadata(run_folder(star.router()).join("control.sock")).expect("the socket");
    assert_eq!((data.mode() & 0o7777, data.gid()), (0o660, number));
    printed(star.router(), &["stop"]);
    assert!(
        crate::support::wait(child.child())
            .expect("it ends")
            .success()
    );
    let left = traces(star.router(), &PORTS);
    assert!(left.are_none(), "{left:?}");
    // Another daemon can start afterwards.
    let _daemon: Daemon = star.run(&["--mode", "tc", "eth0"]);
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_holds_nobody_up() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livedrip");
    let _daemon = star.run(&["--mode", "tc", "eth0"]);
    let socket = run_folder(star.router()).join("control.sock");
    let mut dripping = UnixStream::connect(&socket).expect("a connection");
    // The slow client is first in the queue, and its time is not over.
    for _ in 0..20 {
        dripping.write_all(b" ").expect("open");
        let begun = Instant::now();
        let _: report::Ports = report(star.router(), Request::ShowPorts);
        assert!(
            begun.elapsed() < Duration::from_millis(200),
            "it waits for the slow one"
        );
        thread::sleep(Duration::from_millis(50));
    }
}
