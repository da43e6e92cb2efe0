//! The preload library of `sidestep exec` and its configuration in one environment variable.

use std::ffi::CStr;
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::header::{self, Header};

/// The preload library: an ELF shared object for this machine.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsidestep_exec.so"));

/// Environment variable that the library reads.
pub const VARIABLE: &str = "SIDESTEP_EXEC";

/// LIMIT: prefixes of [`Options::to`].
pub const PREFIXES_MAX: usize = 64;

/// Configuration of the library. [`Display`](fmt::Display) gives the value of [`VARIABLE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Segments in order of travel.
    pub segments: Vec<Ipv6Addr>,
    /// ID of an HMAC key (`ip sr hmac`).
    pub hmac: Option<u32>,
    /// Destinations to which packets get the header, at most [`PREFIXES_MAX`]. Empty: all.
    pub to: Vec<Ipv6Net>,
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segs={}", list(&self.segments))?;
        if let Some(key) = self.hmac {
            write!(f, " hmac={key}")?;
        }
        if !self.to.is_empty() {
            write!(f, " to={}", list(&self.to))?;
        }
        Ok(())
    }
}

fn list(words: &[impl ToString]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    words.join(",")
}

/// Configuration as the library parses it.
#[derive(Debug)]
pub struct Read(header::Options);

/// Parse error of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The text does not have the format.
    Word,
    /// The segments are invalid, or too many.
    Segments,
    /// The key ID is not a 32-bit number.
    Hmac,
    /// The prefixes are invalid, or too many.
    Prefix,
}

/// Parses a text with the parser of the library.
///
/// # Errors
/// The part of the text that is invalid.
pub fn read(text: &CStr) -> Result<Read, Wrong> {
    header::Options::parse(text).map(Read).map_err(|wrong| {
        // Order of `enum options_result`.
        [Wrong::Word, Wrong::Segments, Wrong::Hmac, Wrong::Prefix]
            .get((wrong - 1) as usize)
            .copied()
            .unwrap_or(Wrong::Word)
    })
}

impl Read {
    /// Returns the header of sockets.
    pub fn header(&self) -> Header {
        self.0.header()
    }

    /// Returns whether packets to this address get the header.
    pub fn want(&self, to: Ipv6Addr) -> bool {
        self.0.want(to)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn options(text: &str) -> Result<Read, Wrong> {
        read(&CString::new(text).expect("no zero in it"))
    }

    #[test]
    fn the_library_parses_what_options_print() {
        let segments: Vec<Ipv6Addr> = (1..=13)
            .map(|n| Ipv6Addr::from(0xfc00_u128 << 112 | n))
            .collect();
        for (hmac, to) in [
            (None, vec![]),
            (Some(u32::MAX), vec!["2001:db8::/32"]),
            (Some(0), vec!["::/0", "2001:db8::2/128"]),
        ] {
            let asked = Options {
                segments: segments.clone(),
                hmac,
                to: to
                    .iter()
                    .map(|net| net.parse().expect("a prefix"))
                    .collect(),
            };
            let read = options(&asked.to_string()).expect("it is read");
            let header = Header::new(&segments, hmac).expect("a header");
            assert_eq!(read.header().bytes(), header.bytes());
            assert!(read.want("2001:db8::2".parse().expect("an address")));
        }
    }

    #[test]
    fn a_prefix_decides_bit_by_bit() {
        let want = |to: &str, address: &str| {
            let read = options(&format!("segs=fc00::1 to={to}")).expect("it is read");
            read.want(address.parse().expect("an address"))
        };
        for (to, inside, outside) in [
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("2001:db8:8000::/33", "2001:db8:8000::", "2001:db8:7fff::"),
            ("2001:db8::/127", "2001:db8::1", "2001:db8::2"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::"),
            ("2001:db8::/32,fd00::/8", "fdff::1", "fc00::1"),
        ] {
            assert!(want(to, inside), "{inside} is in {to}");
            assert!(!want(to, outside), "{outside} is not in {to}");
        }
    }

    #[test]
    fn unroutable_and_ipv4_destinations_get_no_header() {
        let read = options("segs=fc00::1 to=::/0").expect("it is read");
        for address in [
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "ff0e::1",
            "::ffff:192.0.2.1",
        ] {
            assert!(
                !read.want(address.parse().expect("an address")),
                "{address}"
            );
        }
        assert!(read.want("2001:db8::1".parse().expect("an address")));
    }

    #[test]
    fn an_invalid_text_is_refused_with_its_invalid_part() {
        let long = vec!["fc00::1"; 127].join(",");
        let prefixes = vec!["fc00::/16"; PREFIXES_MAX + 1].join(",");
        for (text, wrong) in [
            (String::new(), Wrong::Word),
            ("segs=".into(), Wrong::Segments),
            ("segs=fc00::1,".into(), Wrong::Segments),
            ("segs=fc00::g".into(), Wrong::Segments),
            ("segs=192.0.2.1".into(), Wrong::Segments),
            ("segs=ff02::1".into(), Wrong::Segments),
            (format!("segs={long}"), Wrong::Segments),
            (
                format!("segs={} hmac=1", &long[..14 * 8 - 1]),
                Wrong::Segments,
            ),
            ("segs=fc00::1 ".into(), Wrong::Word),
            ("segs=fc00::1 hmac=".into(), Wrong::Hmac),
            ("segs=fc00::1 hmac=4294967296".into(), Wrong::Hmac),
            (
                "segs=fc00::1 hmac=99999999999999999999999".into(),
                Wrong::Hmac,
            ),
            ("segs=fc00::1 hmac=1x".into(), Wrong::Word),
            ("segs=fc00::1 to=fc00::".into(), Wrong::Prefix),
            ("segs=fc00::1 to=fc00::/129".into(), Wrong::Prefix),
            ("segs=fc00::1 to=fc00::/16,".into(), Wrong::Prefix),
            (format!("segs=fc00::1 to={prefixes}"), Wrong::Prefix),
            ("segs=fc00::1 to=fc00::/16 hmac=1".into(), Wrong::Word),
        ] {
            assert_eq!(options(&text).err(), Some(wrong), "{text:?}");
        }
        assert!(
            options(&format!(
                "segs=fc00::1 to={}",
                &prefixes[..PREFIXES_MAX * 10 - 1]
            ))
            .is_ok()
        );
        assert!(options(&format!("segs={}", &long[..126 * 8 - 1])).is_ok());
    }
}
