//! Packets that `explain` refuses before it asks the daemon.

use std::process::Command;

use crate::common::{Folder, pcapng, sidestep, stderr};

/// Returns the error of a command that fails with status 1.
fn refused(args: &[&str]) -> String {
    let output = sidestep(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    stderr(&output)
}

#[test]
fn a_packet_that_the_capture_lacks_is_named() {
    let folder = Folder::new();
    let frame = vec![2; 60];
    let file = folder.write(
        "two.pcapng",
        pcapng(&[("eth0", 1, frame.clone()), ("eth0", 2, frame)]),
    );
    let text = folder.write("text.pcap", "not a capture");
    let missing = folder.path("missing.pcap");
    for (file, number, expected) in [
        (
            &file,
            "3",
            "two.pcapng: packet 3: the capture has 2 packets, counted from 1",
        ),
        (&text, "1", "text.pcap: not a pcap or pcapng capture: "),
        (&missing, "1", "missing.pcap: No such file or directory"),
    ] {
        let error = refused(&["explain", "--in", file, "--packet", number]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_capture_without_a_matching_packet_is_refused() {
    let folder = Folder::new();
    let file = folder.write("one.pcapng", pcapng(&[("eth0", 1, vec![2; 60])]));
    for (expression, from, expected) in [
        (
            "ip6",
            "1",
            "one.pcapng: no packet that arrived matches the filter, from packet 1 on; \
             the capture has 1 packet",
        ),
        (
            "ip6",
            "2",
            "one.pcapng: packet 2: the capture has 1 packet, counted from 1",
        ),
        ("ip6 and hots", "1", "--pcap \"ip6 and hots\": tcpdump: "),
        // Not an option of tcpdump.
        ("-h", "1", "--pcap \"-h\": tcpdump: "),
    ] {
        let error = refused(&[
            "explain",
            "--in",
            &file,
            "--packet",
            from,
            &format!("--pcap={expression}"),
        ]);
        assert!(error.contains(expected), "{expression}: {error}");
    }
}

#[test]
fn a_missing_tcpdump_is_named_with_its_repair() {
    let folder = Folder::new();
    let file = folder.write("one.pcapng", pcapng(&[("eth0", 1, vec![2; 60])]));
    let output = Command::new(crate::common::program())
        .args(["explain", "--in", &file, "--pcap", "ip6"])
        .env("PATH", folder.path("empty"))
        .output()
        .expect("the program was built");
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    let expected = "--pcap \"ip6\": tcpdump, which compiles the expression, is not installed; \
                    run `apt install tcpdump`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_packet_with_too_many_segments_is_refused() {
    let segments = vec!["fc00::e"; 127];
    let args = [&["explain", "fc00::1", "fc00::2"][..], &segments].concat();
    let error = refused(&args);
    assert!(
        error.contains("127 segments; expected at most 126"),
        "{error}"
    );
}
