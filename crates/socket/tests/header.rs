//! The header of a socket, byte by byte: set from Rust and from C, and as the kernel returns it.

use std::fmt::Write as _;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use sidestep_socket::{
    Header, SEGMENTS_MAX, SIGNED_MAX, SegmentsError, clear_segments, set_segments,
};

/// RFC 8754 2: Next Header, Hdr Ext Len, Routing Type 4, Segments Left, Last Entry, Flags, Tag;
/// space for the destination; the segments, the last one first.
const TWO: &str = "0006040202000000\
    00000000000000000000000000000000\
    fc000002000000000000000000000e0e\
    fc000001000000000000000000000e0e";
/// RFC 8754 2.1.2 after one segment: type 5, length 38, D bit and reserved bits, key 0x01020304, 32
/// bytes of HMAC.
const SIGNED: &str = "0009040101080000\
    00000000000000000000000000000000\
    fc000001000000000000000000000e0e\
    0526000001020304\
    0000000000000000000000000000000000000000000000000000000000000000";
const KEY: u32 = 0x0102_0304;

/// Returns the segments `fc00:1::e0e`, `fc00:2::e0e`, and so on.
fn segments(count: usize) -> Vec<Ipv6Addr> {
    (1..=count)
        .map(|node| Ipv6Addr::new(0xfc00, node as u16, 0, 0, 0, 0, 0, 0x0e0e))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

/// Returns the routing header of a socket, as the kernel reports it.
fn of_socket(socket: impl AsFd) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: a buffer of that length.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RTHDR,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    bytes.truncate(length as usize);
    bytes
}

#[test]
fn the_header_matches_the_rfc_and_the_kernel_accepts_it() {
    for (count, hmac, expected) in [(2, None, TWO), (1, Some(KEY), SIGNED)] {
        let segments = segments(count);
        let header = Header::new(&segments, hmac).expect("a header");
        assert_eq!(hex(header.bytes()), expected);
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        set_segments(&socket, &segments, hmac).expect("the kernel takes it");
        assert_eq!(hex(&of_socket(&socket)), expected);
        // Replace the header, and then remove it.
        set_segments(&socket, &segments[..1], None).expect("the kernel takes it");
        assert_ne!(hex(&of_socket(&socket)), expected);
        clear_segments(&socket).expect("the kernel takes it");
        assert!(of_socket(&socket).is_empty());
    }
}

#[test]
fn the_kernel_accepts_the_longest_headers() {
    let socket = UdpSocket::bind("[::]:0").expect("a socket");
    for (count, hmac, bytes) in [(SEGMENTS_MAX, None, 2040), (SIGNED_MAX, Some(KEY), 272)] {
        set_segments(&socket, &segments(count), hmac).expect("the kernel takes it");
        assert_eq!(of_socket(&socket).len(), bytes);
    }
}

#[test]
fn invalid_segments_are_refused_and_the_socket_is_unchanged() {
    let socket = UdpSocket::bind("[::]:0").expect("a socket");
    set_segments(&socket, &segments(2), None).expect("the kernel takes it");
    let with = |address: &str| {
        let mut all = segments(2);
        all.push(address.parse().expect("an address"));
        all
    };
    for (segments, hmac, message) in [
        (vec![], None, "no segment: at least one is needed"),
        (
            segments(SEGMENTS_MAX + 1),
            None,
            "127 segments: at most 126",
        ),
        (
            segments(SIGNED_MAX + 1),
            Some(KEY),
            "14 segments: at most 13 with an HMAC",
        ),
        (
            with("ff02::1"),
            None,
            "segment ff02::1: not an IPv6 unicast address",
        ),
        (with("::"), None, "segment ::: not an IPv6 unicast address"),
        (
            with("::ffff:192.0.2.1"),
            None,
            "segment ::ffff:192.0.2.1: not an IPv6 unicast address",
        ),
    ] {
        let error = set_segments(&socket, &segments, hmac).expect_err("refused");
        assert_eq!(error.to_string(), message);
        assert_eq!(hex(&of_socket(&socket)), TWO, "{message}");
    }
    let four = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let error = set_segments(&four, &segments(1), None).expect_err("refused");
    assert!(matches!(error, SegmentsError::Socket(_)), "{error:?}");
}

/// A program that prints the header for the segments in its arguments. A leading number is the key
/// ID.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include "sidestep_srh.h"

int main(int argc, char **argv)
{
	struct in6_addr segments[8];
	struct sidestep_srh srh;
	uint32_t key = (uint32_t)strtoul(argv[1], NULL, 0);
	int at, fd = socket(AF_INET6, SOCK_STREAM, 0);

	for (at = 2; at < argc; at++)
		inet_pton(AF_INET6, argv[at], &segments[at - 2]);
	if (sidestep_srh_set(fd, segments, (size_t)argc - 2, key ? &key : NULL) != 0 || sidestep_srh_get(fd, &srh) != 0) {
		perror("sidestep_srh_set");
		return 1;
	}
	for (at = 0; at < (int)srh.length; at++)
		printf("%02x", srh.bytes[at]);
	return sidestep_srh_clear(fd) != 0 || sidestep_srh_get(fd, &srh) != 0 || srh.length != 0;
}
"#;

#[test]
fn a_c_program_sets_the_same_header() {
    let folder = std::env::temp_dir().join(format!("sidestep-srh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, PROGRAM).expect("a file");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    // Use strict options, as other projects may.
    let compiled = Command::new("cc")
        .args([
            "-std=gnu99",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Wpedantic",
            "-Werror",
            "-I",
            include,
            "-o",
        ])
        .args([&program, &source])
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    let run = |words: &[&str]| {
        Command::new(&program)
            .args(words)
            .output()
            .expect("it starts")
    };
    let two = run(&["0", "fc00:1::e0e", "fc00:2::e0e"]);
    assert_eq!(String::from_utf8_lossy(&two.stdout), TWO);
    assert!(two.status.success());
    let signed = run(&["0x01020304", "fc00:1::e0e"]);
    assert_eq!(String::from_utf8_lossy(&signed.stdout), SIGNED);
    let wrong = run(&["0", "ff02::1"]);
    assert_eq!(
        String::from_utf8_lossy(&wrong.stderr),
        "sidestep_srh_set: Invalid argument\n"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}
