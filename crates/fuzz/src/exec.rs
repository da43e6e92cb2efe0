//! Fuzz target for `sidestep exec`: the environment variable of the preload library, and the ELF
//! headers of a program.
//!
//! A header that the library accepts is valid for the kernel. Reading a program's headers takes
//! bounded memory and time.

use std::ffi::CString;
use std::fs;

use sidestep_cli::exec::kind;
use sidestep_socket::exec::{Options, read};

use crate::Target;
use crate::text::Vocabulary;

/// Fuzz target for `sidestep exec`. An input that begins with `\x7fELF` or `#!` is a program. Any
/// other input is the text of the variable.
pub struct Exec {
    vocabulary: Vocabulary,
}

const TEXTS: [&str; 5] = [
    "segs=fc00::1",
    "segs=fc00:1::e,fc00:2::e hmac=7",
    "segs=fc00:1::e to=2001:db8::/32",
    "segs=1:2:3:4:5:6:7:8,::1.2.3.4 hmac=4294967295 to=::/0,2001:db8::1/128,fe80::/10",
    "segs=fc00::1,fc00::2,fc00::3,fc00::4,fc00::5,fc00::6,fc00::7,fc00::8,fc00::9,fc00::a,fc00::b,fc00::c,fc00::d hmac=1",
];

impl Target for Exec {
    const NAME: &'static str = "exec";

    fn new() -> Self {
        Self {
            vocabulary: Vocabulary::of(TEXTS),
        }
    }

    fn run(&mut self, input: &[u8]) {
        if input.starts_with(b"\x7fELF") || input.starts_with(b"#!") {
            // Check only that the call returns, because there is no reference to compare with.
            let _ = kind(input);
            return;
        }
        let Ok(text) = CString::new(input) else {
            return;
        };
        let Ok(read) = read(&text) else { return };
        let header = read.header();
        let bytes = header.bytes();
        // RFC 8754 2, and the checks of seg6_validate_srh in Linux.
        assert_eq!(bytes.len(), 8 * (usize::from(bytes[1]) + 1));
        assert!(bytes.len() <= 2040, "the kernel takes no more");
        let (left, last) = (usize::from(bytes[3]), usize::from(bytes[4]));
        assert!(bytes[2] == 4 && left == last && left > 0, "{bytes:?}");
        let tlvs = &bytes[8 + 16 * (last + 1)..];
        assert!(
            (tlvs.is_empty() && bytes[5] == 0)
                || (tlvs.len() == 40 && tlvs[..2] == [5, 38] && bytes[5] == 8),
            "{bytes:?}"
        );
        // The text that [`Options`] prints is parsed to equal options.
        let segments = (1..=last).rev().map(|at| {
            let octets: [u8; 16] = bytes[8 + 16 * at..][..16].try_into().expect("16 of them");
            octets.into()
        });
        let key = (!tlvs.is_empty())
            .then(|| u32::from_be_bytes(tlvs[4..8].try_into().expect("four of them")));
        let options = Options {
            segments: segments.collect(),
            hmac: key,
            to: Vec::new(),
        };
        let again = CString::new(options.to_string()).expect("no zero in it");
        let again = sidestep_socket::exec::read(&again).expect("what is written is read");
        assert_eq!(again.header().bytes(), bytes);
        for address in ["::", "::1", "fe80::1", "ff02::1", "::ffff:192.0.2.1"] {
            assert!(
                !read.want(address.parse().expect("an address")),
                "{address}"
            );
        }
        read.want("2001:db8::1".parse().expect("an address"));
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        let texts = TEXTS.iter().map(|text| text.as_bytes().to_vec());
        // The first bytes of this program and of a smaller one: headers, dynamic linker, notes.
        let programs = ["/proc/self/exe", "/bin/true"].iter().filter_map(|path| {
            let mut bytes = fs::read(path).ok()?;
            bytes.truncate(1024);
            Some(bytes)
        });
        let scripts = [&b"#!/bin/sh -e\n"[..], b"#! \t/usr/bin/env python3\n"].map(<[u8]>::to_vec);
        let all = texts.chain(programs).chain(scripts);
        all.enumerate()
            .map(|(number, input)| (format!("seed-{number}"), input))
            .collect()
    }

    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut sidestep_testkit::random::Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        if input.starts_with(b"\x7fELF") {
            engine(input, limit);
        } else {
            self.vocabulary.mutate(input, limit, random, engine);
        }
    }
}
