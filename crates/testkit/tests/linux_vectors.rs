//! Runs the golden cases of `vectors/` on the Linux kernel.

use std::io::{self, Write as _};
use std::path::Path;

use sidestep_testkit::capability::{skip, test_name};
use sidestep_testkit::vectors::{Expect, VectorFile};
use sidestep_testkit::{linux, root_or_skip};

/// Runs the files that `read` finds in a directory, and prints every disagreement before it fails.
fn run_all(directory: &str, read: fn(&Path) -> Result<Vec<VectorFile>, sidestep_testkit::Error>) {
    if !root_or_skip() {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let files = read(&directory).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !files.is_empty(),
        "no vector file in {}",
        directory.display()
    );
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for file in files {
        let report = linux::run(&file).unwrap_or_else(|error| panic!("{}: {error}", file.group));
        print!("{report}");
        passed += report.passed.len();
        skipped += report.skipped.len();
        failed.extend(report.failed.into_iter().map(|(name, _)| name));
    }
    // println! cannot be used, because the test harness captures it, and the number of skipped
    // cases must be visible.
    let _ = writeln!(
        io::stderr(),
        "{}: {passed} cases passed, {skipped} skipped, {} failed",
        test_name(),
        failed.len()
    );
    assert!(
        failed.is_empty(),
        "Linux has another result in these cases: {}",
        failed.join(", ")
    );
}

#[test]
fn linux_matches_the_golden_vectors() {
    run_all("../../vectors", VectorFile::read_share);
}

/// This file is small enough to check by hand. If this test fails too, check the runner first.
#[test]
fn the_runner_passes_frames_written_by_hand() {
    run_all("tests/vectors", VectorFile::read_all);
}

/// Checks that the runner detects errors; a runner that passes everything would pass the files too.
#[test]
fn wrong_bytes_wrong_ports_and_extra_frames_are_reported() {
    if !root_or_skip() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/by_hand.yaml");
    let mut file = VectorFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
    file.cases.truncate(3);
    let Expect::Forward { frame, .. } = &mut file.cases[0].expect else {
        panic!("the first case forwards")
    };
    frame[21] = 64;
    let Expect::Forward { port, .. } = &mut file.cases[1].expect else {
        panic!("the second case forwards")
    };
    *port = "eth0".to_owned();
    file.cases[2].frame = file.cases[1].frame.clone();
    let report = linux::run(&file).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.passed.is_empty(), "{report}");
    let text = report.to_string();
    assert!(
        text.contains("21 IPv6 hop limit           expected 40 found 3f"),
        "{text}"
    );
    assert!(
        text.contains("expected: 94 bytes by eth0") && text.contains("found: 94 bytes by eth1"),
        "{text}"
    );
    assert!(text.contains("expected: no frame"), "{text}");
}

#[test]
fn a_route_that_linux_refuses_is_reported_and_fails_only_cases_that_need_it() {
    if !root_or_skip() {
        return;
    }
    if std::env::var_os(linux::OLDER).is_some() {
        skip(&format!(
            "{} is set, which makes it no failure",
            linux::OLDER
        ));
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/by_hand.yaml");
    let mut file = VectorFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
    file.node.routes[1] = "fc0e::1/128 encap seg6local action End.AS dev eth0".to_owned();
    let report = linux::run(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.refused.len(), 1, "{report}");
    assert!(
        report.refused[0].line.ends_with("action End.AS dev eth0"),
        "{report}"
    );
    assert_eq!(
        report.passed,
        [
            "by_hand_a_packet_is_forwarded",
            "by_hand_end_without_srh_is_dropped"
        ],
        "{report}"
    );
}
