//! Runs the demos of `demo/`, which verify their own output.

use std::path::Path;
use std::process::{Command, Output};

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
fn shown(script: &str) -> String {
    let output = demo(script, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {text}");
    let namespaces = Command::new("ip").args(["netns", "list"]).output();
    let namespaces = namespaces.expect("ip is installed").stdout;
    assert!(!String::from_utf8_lossy(&namespaces).contains("ss-demo-"));
    text
}

#[test]
fn both_demos_succeed() {
    if !sidestep_testkit::root_or_skip() {
        return;
    }
    let text = shown("run");
    assert!(
        text.contains("Linux alone: TCP a > b, 10.0.1.2: 0 bytes"),
        "{text}"
    );
    assert!(
        text.contains("TCP over a 1500-byte core: full rate"),
        "{text}"
    );
    assert!(text.contains("exactly these bytes arrived"), "{text}");
    let text = shown("sfc");
    assert!(text.contains("two services without SRv6 support"), "{text}");
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
