//! Runs the demos of `demo/`, which verify their own output.

use std::path::Path;
use std::process::{Command, Output};

/// Exit status of a demo whose packages cannot be downloaded.
const UNAVAILABLE: i32 = 77;

/// Runs a demo with the program under test.
fn demo(script: &str, arguments: &[&str]) -> Output {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo");
    let output = Command::new(path.join(script))
        .args(arguments)
        .env("SIDESTEP", env!("CARGO_BIN_EXE_sidestep"))
        .output();
    output.expect("a demo is a script with bash")
}

/// Returns the standard output of a demo that succeeds and leaves no namespace behind.
/// Returns `None` if packages of the demo cannot be downloaded.
fn shown(script: &str, arguments: &[&str]) -> Option<String> {
    let output = demo(script, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(UNAVAILABLE) {
        let errors = String::from_utf8_lossy(&output.stderr);
        sidestep_testkit::capability::skip(errors.lines().last().unwrap_or_default());
        return None;
    }
    assert!(output.status.success(), "{script}: {text}");
    let namespaces = Command::new("ip").args(["netns", "list"]).output();
    let namespaces = namespaces.expect("ip is installed").stdout;
    let namespaces = String::from_utf8_lossy(&namespaces);
    for prefix in ["ss-demo-", "ss-failures-"] {
        assert!(!namespaces.contains(prefix), "{namespaces}");
    }
    Some(text)
}

#[test]
fn both_demos_succeed() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let text = shown("run", &[]).expect("no packages");
    assert!(
        text.contains("Linux alone: TCP a > b, 10.0.1.2: 0 bytes"),
        "{text}"
    );
    assert!(
        text.contains("TCP over a 1500-byte core: full rate"),
        "{text}"
    );
    assert!(text.contains("exactly these bytes arrived"), "{text}");
    let text = shown("sfc", &[]).expect("no packages");
    assert!(text.contains("two services without SRv6 support"), "{text}");
}

#[test]
fn frr_routes_are_forwarded_and_its_locators_lead_to_sids_of_sidestep() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let Some(text) = shown("frr", &[]) else {
        return;
    };
    for line in [
        "It punted only control traffic",
        "exactly these bytes arrived",
        "pe2: the SID with the function fe46",
        "p: the SID with the function fead",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
#[ignore = "minutes of FRR's timers: ./dev demo frr --failures"]
fn frr_failures_leave_no_stale_route_and_lose_no_packet_that_linux_does_not_lose() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let Some(text) = shown("frr", &["--failures"]) else {
        return;
    };
    let (_, table) = text.split_once("Packets lost").expect("a table");
    println!("{table}");
}

#[test]
fn an_unknown_option_is_refused_with_the_usage() {
    for arguments in [&["--fast"][..], &["--keep", "--clean"]] {
        let output = demo("run", arguments);
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("--clean"), "{error}");
    }
}
