//! Start and end of the program on a live router: it reports when it forwards, and leaves nothing
//! behind.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sidestep_control::api::{ApiError, Request};
use sidestep_control::report;

use crate::support::frames::{ETHERNET, ethernet, to_mac, udp};
use crate::support::left::{Traces, has_tcx, run_folder, traces};
use crate::support::{
    ROUTER, Star, begin, call, counters, eventually, output, printed, report, status_field, text_of,
};

const SECOND: Duration = Duration::from_secs(1);

/// A packet from host `a` to host `b`.
fn packet(star: &Star, data: &[u8]) -> Vec<u8> {
    let ends: [IpAddr; 2] = ["fc00:a::2", "fc00:b::2"].map(|text| text.parse().expect("address"));
    let packet = udp(ends[0], ends[1], 64, data);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// Names of the pins of attached programs.
fn attachment(target: &str) -> &'static str {
    if target == "tc" && !has_tcx() {
        "filter-"
    } else {
        "link-"
    }
}

/// Number of times that the threads of a process went to sleep.
fn sleeps(pid: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |thread: fs::DirEntry| {
        let count = status_field(thread.path(), "voluntary_ctxt_switches");
        count.expect("a thread").parse::<u64>().expect("a number")
    };
    threads.map(|thread| of(thread.expect("a thread"))).sum()
}

#[test]
fn an_idle_daemon_rarely_interrupts_other_programs() {
    const SECONDS: u32 = 3;
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveidle");
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    call(star.router(), Request::ShowPorts).expect("an answer");
    let before = sleeps(daemon.pid());
    thread::sleep(SECONDS * SECOND);
    let per_second = (sleeps(daemon.pid()) - before) / u64::from(SECONDS);
    eprintln!("  {per_second} times per second");
    assert!(per_second < 50, "{per_second}");
}

/// Objects that exist while it runs.
fn check_running(star: &Star, target: &str, found: &Traces) {
    let on = |places: &[(String, u32)]| -> Vec<String> {
        places.iter().map(|(name, _)| name.clone()).collect()
    };
    let (xdp, tc) = (on(&found.xdp), on(&found.tc));
    let ports = ["eth0", "eth1"];
    match target {
        "tc" => assert!(xdp.is_empty() && tc == ports, "{found:?}"),
        // TC takes the frames that XDP defers.
        _ => assert!(tc == ports && xdp == ports, "{found:?}"),
    }
    let pinned = |name: &str| found.pins.iter().any(|pin| pin.starts_with(name));
    assert!(
        pinned("instance") && pinned("map-") && pinned(attachment(target)),
        "{found:?}"
    );
    assert!(run_folder(star.router()).join("control.sock").exists());
}

#[test]
fn ctrl_c_sigterm_and_stop_leave_nothing_on_the_interfaces_no_pin_and_no_file() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livestop");
    let everything = ["eth0", "eth1", "eth2", "lo"];
    let router = star.router();
    let before = traces(router, &everything);
    assert!(before.are_none(), "{before:?}");
    for mode in ["tc", "xdp-always"] {
        for way in ["SIGINT", "SIGTERM", "stop"] {
            let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
            check_running(&star, mode, &traces(router, &everything));
            match way {
                "SIGINT" => daemon.signal(Signal::SIGINT),
                "SIGTERM" => daemon.signal(Signal::SIGTERM),
                _ => {
                    let told = "detached from eth0, eth1; forwarding is back in the kernel\n";
                    assert_eq!(printed(router, &["stop"]), told);
                    // Gone when the command returns, not some time after it.
                    let left = traces(router, &everything);
                    assert!(left.are_none(), "{mode} {way}: {left:?}");
                }
            }
            let (status, text) = daemon.end();
            assert!(status.success(), "{mode} {way}: {status}");
            assert_eq!(text, "detached; forwarding is back in the kernel\n");
            let left = traces(router, &everything);
            assert!(left.are_none(), "{mode} {way}: {left:?}");
        }
    }
    assert!(matches!(
        call(router, Request::ShowPorts),
        Err(ApiError::NotRunning)
    ));
    let stopped = output(router, &["stop"]);
    assert_eq!(stopped.status.code(), Some(1));
    assert_eq!(
        text_of(&stopped),
        "sidestep: sidestep is not running in this network namespace (start it with `sidestep run PORT...`)"
    );
}

#[test]
fn sighup_without_a_file_changes_nothing_and_netns_selects_the_namespace() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livehangup");
    let (router, host) = (star.router(), star.host("a"));
    // From another namespace.
    let inside = ["-n", router.name()];
    let with = |words: &[&str]| output(host, &[&inside[..], words].concat());
    let run = with(&["run", "--detach", "--mode", "tc", "eth0", "eth1"]);
    assert!(run.status.success(), "{}", text_of(&run));
    let status: report::Status = report(router, Request::ShowStatus);
    let pid = nix::unistd::Pid::from_raw(status.pid as i32);
    nix::sys::signal::kill(pid, Signal::SIGHUP).expect("it runs");
    let log = run_folder(router).join("log");
    eventually("it is logged", || {
        let log = std::fs::read_to_string(&log).expect("a log");
        log.contains("reload: the daemon was started without `--config FILE`")
            .then_some(())
    });
    let after: report::Status = report(router, Request::ShowStatus);
    assert_eq!(after.pid, status.pid);
    assert_eq!(traces(router, &["eth0", "eth1"]).tc.len(), 2);
    assert!(with(&["stop"]).status.success());
    assert!(traces(router, &["eth0", "eth1"]).are_none());
    let unknown = output(host, &["-n", "nowhere", "show", "status"]);
    assert_eq!(
        text_of(&unknown),
        "sidestep: network namespace nowhere: does not exist (see `ip netns list`)"
    );
    // For monitoring, 1 would be a warning.
    let unknown = output(host, &["-n", "nowhere", "doctor"]);
    assert_eq!(unknown.status.code(), Some(3));
}

#[test]
fn detach_returns_when_it_forwards_and_the_daemon_is_its_own() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livedetach");
    let router = star.router();
    for mode in crate::support::modes(&["auto", "xdp-always"]) {
        let _napi = sidestep_testkit::Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let text = printed(router, &["run", "--mode", mode, "--detach", "eth0", "eth1"]);
        assert!(text.starts_with("forwarding on eth0 ("), "{text}");
        assert!(
            text.trim_end().ends_with(')') && text.contains(" (pid "),
            "{text}"
        );

        assert!(!text.contains("Ctrl-C"), "{text}");
        let status: report::Status = report(router, Request::ShowStatus);
        let name = std::fs::read_to_string(format!("/proc/{}/comm", status.pid));
        assert_eq!(name.expect("a process"), "sidestep\n");

        // It forwards from now on: the very next packet is its own.
        let (a, b) = (star.socket("a"), star.socket("b"));
        a.send(&packet(&star, b"the first one")).expect("send");
        let out = b.receive(SECOND).expect("receive").expect("a packet at b");
        assert_eq!(to_mac(&out), star.mac("b", "eth0"));
        assert_eq!(out[ETHERNET + 7], 63, "hop limit");
        let at = counters(router, "eth0");
        assert_eq!(
            (at.received_packets, at.forwarded),
            (1, 1),
            "{mode}: {at:?}"
        );

        // A second one is refused while it runs, in either way, and the first is not disturbed.
        let pid: i32 = text
            .rsplit("(pid ")
            .next()
            .and_then(|rest| rest.trim_end().strip_suffix(')')?.parse().ok())
            .expect("a process id");
        for words in [&["run", "eth2"][..], &["run", "--detach", "eth2"]] {
            let second = output(router, words);
            assert_eq!(second.status.code(), Some(1));
            assert_eq!(
                crate::support::text_of(&second),
                format!(
                    "sidestep: sidestep runs in this network namespace already (pid {pid}); `sidestep stop` ends it"
                )
            );
        }
        let ports: report::Ports = report(router, Request::ShowPorts);
        assert_eq!(ports.len(), 2);

        printed(router, &["stop"]);
        let left = traces(router, &["eth0", "eth1", "eth2"]);
        assert!(left.are_none(), "{left:?}");
    }
}

#[test]
fn detach_reports_why_it_cannot_start_with_exit_code_1_and_leaves_nothing() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livedetachno");
    let router = star.router();
    for (words, reason) in [
        (
            &["run", "--detach", "."][..],
            "sidestep: port .: no name of an interface; expected 1 to 15 bytes, or up to 127 for an altname, without blanks, slashes and colons",
        ),
        (
            &["run", "--detach"],
            "sidestep: no port: name at least one interface",
        ),
        (
            &["run", "--detach", "eth0", "lo"],
            "sidestep: port lo: it is the loopback device",
        ),
    ] {
        let refused = output(router, words);
        assert_eq!(text_of(&refused), reason);
        assert_eq!(refused.status.code(), Some(1));
        let left = traces(router, &["eth0", "eth1", "eth2", "lo"]);
        assert!(left.are_none(), "{words:?}: {left:?}");
    }
}

#[test]
fn a_port_that_is_not_there_any_more_does_not_hinder_the_end() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livegone");
    let router = star.router();
    let daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1"]);
    star.ip().run("link delete eth0");
    daemon.signal(Signal::SIGTERM);
    let (status, text) = daemon.end();
    assert!(status.success(), "{text}");
    let left = traces(router, &["eth1"]);
    assert!(left.are_none(), "{left:?}");
}
