//! Packets that `explain` refuses before it asks the daemon.

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
fn a_packet_with_too_many_segments_is_refused() {
    let segments = vec!["fc00::e"; 127];
    let args = [&["explain", "fc00::1", "fc00::2"][..], &segments].concat();
    let error = refused(&args);
    assert!(
        error.contains("127 segments; expected at most 126"),
        "{error}"
    );
}
