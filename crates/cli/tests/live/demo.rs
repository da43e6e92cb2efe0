//! Runs the demos as a reader does, `./dev demo`, with the program that ships. The demos verify their
//! own output.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Exit status of a demo whose packages cannot be downloaded.
const UNAVAILABLE: i32 = 77;

/// Returns the command `./dev demo`.
fn demo(arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("dev"));
    command
        .arg("demo")
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null());
    command
}

/// Reports a demo whose packages cannot be downloaded as skipped, and returns true for it.
fn is_unavailable(output: &Output) -> bool {
    let unavailable = output.status.code() == Some(UNAVAILABLE);
    if unavailable {
        let errors = String::from_utf8_lossy(&output.stderr);
        sidestep_testkit::capability::skip(errors.lines().last().unwrap_or_default());
    }
    unavailable
}

/// Asserts that no namespace and no file of a demo exists.
fn assert_nothing_is_left() {
    let namespaces = Command::new("ip").args(["netns", "list"]).output();
    let namespaces = namespaces.expect("ip is installed").stdout;
    let namespaces = String::from_utf8_lossy(&namespaces);
    for prefix in [
        "ss-demo-",
        "ss-lan-",
        "ss-vxlan-",
        "ss-paths-",
        "ss-evpn-",
        "ss-failures-",
        "ss-dead-",
    ] {
        assert!(!namespaces.contains(prefix), "{namespaces}");
    }
    for file in [
        "/run/ss-demo",
        "/run/ss-demo.lock",
        "/run/ss-lan",
        "/run/ss-vxlan",
        "/run/ss-paths",
        "/run/ss-paths.lock",
        "/run/ss-evpn",
    ] {
        assert!(!Path::new(file).exists(), "{file}");
    }
}

/// Returns the standard output of a demo that succeeds and leaves nothing behind. Returns `None` if
/// packages of the demo cannot be downloaded.
fn shown(arguments: &[&str]) -> Option<String> {
    let output = demo(arguments).output().expect("./dev is a script");
    if is_unavailable(&output) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    assert_nothing_is_left();
    Some(text)
}

/// Presses Ctrl-C when the demo prints a line that contains `heading`: the signal goes to all its
/// processes, as from a terminal.
fn interrupt(arguments: &[&str], heading: &str) {
    let mut command = demo(arguments);
    command.process_group(0).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let mut running = command.spawn().expect("./dev is a script");
    let group = Pid::from_raw(running.id() as i32);
    let output = BufReader::new(running.stdout.take().expect("piped"));
    let (mut text, mut interrupted) = (String::new(), false);
    for line in output.lines() {
        let line = line.expect("UTF-8");
        text += &(line.clone() + "\n");
        if !interrupted && line.contains(heading) {
            killpg(group, Signal::SIGINT).expect("it runs");
            interrupted = true;
        }
    }
    let output = running.wait_with_output().expect("it has ended");
    if is_unavailable(&output) {
        return;
    }
    assert!(interrupted, "no line {heading:?} in:\n{text}");
    let status = output.status;
    assert!(
        status.code() == Some(130) || status.signal() == Some(Signal::SIGINT as i32),
        "{arguments:?}: {status}\n{text}"
    );
    assert!(text.contains("the network has been removed"), "{text}");
    assert_nothing_is_left();
}

#[test]
fn the_demo_shows_linux_and_sidestep_side_by_side() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let text = shown(&[]).expect("no packages");
    for line in [
        "Linux alone: TCP a > b, 10.0.1.2: 0 bytes",
        "TCP over a 1500-byte core: full rate",
        "exactly these bytes arrived",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_service_chain_demo_passes_services_without_srv6_support() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let text = shown(&["sfc"]).expect("no packages");
    assert!(text.contains("two services without SRv6 support"), "{text}");
}

#[test]
fn the_lan_demo_joins_the_bridges_of_three_sites() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let text = shown(&["lan"]).expect("no packages");
    for line in [
        "a jumbo frame",
        "no frame twice",
        "a killed daemon lost nothing",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_vxlan_and_paths_demos_measure_sidestep_beside_others() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    if let Some(text) = shown(&["paths"]) {
        for line in ["a cut before 200000 routes", "with Linux and FRR for"] {
            assert!(text.contains(line), "{text}");
        }
    }
    let text = shown(&["vxlan"]).expect("no packages");
    for line in ["round 3", "times VXLAN in XDP frames"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn bgp_evpn_joins_the_bridges_of_three_sites_and_a_wire() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let Some(text) = shown(&["lan", "--evpn"]) else {
        return;
    };
    for line in [
        "extern_learn",
        "ping w1 > 10.0.0.13: 10 of 10",
        "pe1 has forgotten pe2",
        "FDB entries are gone",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// Runs the demo of FRR with these options. Its output must contain these lines.
fn assert_frr_shows(options: &[&str], lines: &[&str]) {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let Some(text) = shown(&[&["frr"], options].concat()) else {
        return;
    };
    for line in lines {
        assert!(text.contains(line), "{text}");
    }
    if let Some((_, table)) = text.split_once("Packets lost") {
        println!("{table}");
    }
}

#[test]
fn frr_routes_are_forwarded_and_its_locators_lead_to_sids_of_sidestep() {
    let lines = [
        "It punted only control traffic",
        "exactly these bytes arrived",
        "p: the SID fcbb:bbbb:a2:: processed",
        "p: the SID fcbb:bbbb:a2:fe02:: processed",
        "FRR's routes by FPM",
        "pe2: the SID fcbb:bbbb:a3:fe46:: processed",
        "p: the SID fcbb:bbbb:a2:fead:: processed",
    ];
    assert_frr_shows(&[], &lines);
}

#[test]
fn sidestep_forwards_by_the_routes_of_frr_and_linux_does_not() {
    let lines = [
        "iBGP between the loopback addresses",
        "Linux does not forward",
    ];
    assert_frr_shows(&["--fpm"], &lines);
}

#[test]
#[ignore = "minutes of FRR's timers: ./dev demo frr --failures"]
fn frr_failures_leave_no_stale_route_and_lose_no_packet_that_linux_does_not_lose() {
    assert_frr_shows(&["--failures"], &["Packets lost"]);
}

#[test]
fn customer_routes_survive_a_core_router_as_with_linux() {
    assert_frr_shows(&["--dead-node=5000"], &["Packets lost"]);
}

#[test]
fn demos_that_are_interrupted_leave_nothing_behind() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    // In the middle: the network is there, and Sidestep runs or starts.
    interrupt(&[], "-- Sidestep on the three routers");
    interrupt(&[], "-- The path of one packet");
    interrupt(&["sfc"], "sidestep run");
    interrupt(&["lan"], "A virtual machine moves");
    interrupt(&["frr"], "sidestep run");
}

#[test]
fn an_unknown_option_is_refused_with_the_usage() {
    for arguments in [&["--fast"][..], &["--keep", "--clean"]] {
        let output = demo(arguments).output().expect("./dev is a script");
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("--clean"), "{error}");
    }
}
