//! Parser and printer of paths: `NAME segs A,B,… { loopback [ return C,D,… ] | sbfd ADDRESS
//! remote-discriminator N } …`.

use std::fmt::Write;

use super::words::{Once, Words, invalid, unknown};
use super::{Context, encap, policy, value};
use crate::behavior::{EncapMode, SEGMENTS_MAX};
use crate::error::ConfigError;
use crate::liveness::{
    FLOWS_MAX, HOLD_MAX, INTERVAL_MAX, INTERVAL_MIN, Path, Probe, SIZE_MAX, SIZE_MIN,
};

const EXPECTED: &str = "segs, loopback, sbfd, mode, source, lookup, interval, multiplier, size, \
                        flows, hold, discriminator or admin-down";
const KEYWORDS: [&str; 13] = [
    "segs",
    "loopback",
    "sbfd",
    "mode",
    "source",
    "lookup",
    "interval",
    "multiplier",
    "size",
    "flows",
    "hold",
    "discriminator",
    "admin-down",
];
const MODES: [EncapMode; 2] = [EncapMode::Encap, EncapMode::EncapRed];
const INTERVAL: u32 = 100;
const MULTIPLIER: u8 = 3;
const HOLD: u32 = 1000;

/// Parses a path and its name.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, ctx: &Context) -> Result<(String, Path), ConfigError> {
    let name = parse_name(words)?;
    let mut seen = Once::default();
    let (mut segments, mut probe) = (vec![], None);
    let mut path = Path {
        segments: vec![],
        probe: Probe::Loopback(vec![]),
        mode: EncapMode::Encap,
        source: None,
        lookup: None,
        interval: INTERVAL,
        multiplier: MULTIPLIER,
        size: SIZE_MIN,
        flows: 1,
        hold: HOLD,
        discriminator: None,
        admin_down: false,
    };
    while let Some(word) = words.take() {
        let Some(&keyword) = KEYWORDS.iter().find(|it| **it == word.text) else {
            return Err(unknown(word, EXPECTED));
        };
        let once = if keyword == "sbfd" {
            "loopback"
        } else {
            keyword
        };
        seen.note(once, word)?;
        match keyword {
            "segs" => segments = encap::parse_list(words, word)?,
            "loopback" => {
                let back = match words.take_if("return") {
                    Some(word) => encap::parse_list(words, word)?,
                    None => vec![],
                };
                probe = Some(Probe::Loopback(back));
            }
            "sbfd" => probe = Some(sbfd(words)?),
            "mode" => {
                let expected = MODES.map(|mode| mode.descriptor().word).join(" or ");
                let of = |text: &str| EncapMode::from_word(text).filter(|it| MODES.contains(it));
                path.mode = words.parsed(keyword, &expected, of)?;
            }
            "source" => path.source = Some(words.address6(keyword)?),
            "lookup" => path.lookup = Some(words.table(keyword, ctx.names)?),
            "interval" => path.interval = words.number(keyword, INTERVAL_MIN, INTERVAL_MAX)?,
            "multiplier" => path.multiplier = words.number(keyword, 1, u8::MAX.into())? as u8,
            "size" => path.size = words.number(keyword, SIZE_MIN, SIZE_MAX)?,
            "flows" => path.flows = words.number(keyword, 1, FLOWS_MAX)?,
            "hold" => path.hold = words.number(keyword, 0, HOLD_MAX)?,
            "discriminator" => path.discriminator = Some(words.number(keyword, 1, u32::MAX)?),
            _ => path.admin_down = true,
        }
    }
    if segments.is_empty() {
        return Err(words.missing("`segs`", "segs A,B,…"));
    }
    let Some(probe) = probe else {
        return Err(words.missing(
            "`loopback` or `sbfd`",
            "loopback [ return A,B,… ], or sbfd ADDRESS remote-discriminator N",
        ));
    };
    if let Probe::Loopback(back) = &probe
        && segments.len() + back.len() > SEGMENTS_MAX
    {
        let all = segments.len() + back.len();
        let problem = format!("{all} segments there and back in");
        let expected = format!("at most {SEGMENTS_MAX}");
        let place = words.place_of("return");
        return Err(ConfigError::new(place, problem, "return", &expected));
    }
    (path.segments, path.probe) = (segments, probe);
    Ok((name, path))
}

/// Parses the name of a path.
///
/// # Errors
/// The name is missing or invalid.
pub fn parse_name(words: &mut Words) -> Result<String, ConfigError> {
    policy::name_of(words, "path")
}

fn sbfd(words: &mut Words) -> Result<Probe, ConfigError> {
    let address = words.address6("sbfd")?;
    let expected = "remote-discriminator N";
    match words.take() {
        Some(word) if word.text == REMOTE => Ok(Probe::Sbfd {
            address,
            discriminator: words.number(REMOTE, 1, u32::MAX)?,
        }),
        Some(word) => Err(invalid(word, "sbfd", expected)),
        None => Err(words.missing("`remote-discriminator`", expected)),
    }
}

const REMOTE: &str = "remote-discriminator";

/// Returns the words that may follow these words on the line of a path, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    let there = |word: &str| words.contains(&word);
    let probes = there("loopback") || there("sbfd");
    match words {
        [] => return vec![],
        [_] => {}
        [.., "mode"] => return MODES.map(|mode| mode.descriptor().word).to_vec(),
        [.., "sbfd", _] => return vec![REMOTE],
        [.., "loopback" | "admin-down"] => {}
        [.., last] if KEYWORDS.contains(last) || ["return", REMOTE].contains(last) => return vec![],
        _ => {}
    }
    let mut next = vec![];
    if words.last() == Some(&"loopback") {
        next.push("return");
    }
    let is_probe = |word: &str| ["loopback", "sbfd"].contains(&word);
    let fits = |word: &&str| !there(word) && (!is_probe(word) || !probes);
    next.extend(KEYWORDS.into_iter().filter(fits));
    next
}

/// Prints a path.
pub fn print(name: &str, path: &Path, names: &dyn super::Names) -> String {
    let mut text = format!("{name} segs {}", encap::print_list(&path.segments));
    match &path.probe {
        Probe::Loopback(back) if back.is_empty() => text.push_str(" loopback"),
        Probe::Loopback(back) => {
            let _ = write!(text, " loopback return {}", encap::print_list(back));
        }
        Probe::Sbfd {
            address,
            discriminator,
        } => {
            let _ = write!(text, " sbfd {address} {REMOTE} {discriminator}");
        }
    }
    if path.mode != EncapMode::Encap {
        let _ = write!(text, " mode {}", path.mode.descriptor().word);
    }
    if let Some(source) = path.source {
        let _ = write!(text, " source {source}");
    }
    if let Some(table) = path.lookup {
        let _ = write!(text, " lookup {}", value::table_text(table, names));
    }
    let _ = write!(
        text,
        " interval {} multiplier {}",
        path.interval, path.multiplier
    );
    let numbers = [
        ("size", path.size, SIZE_MIN),
        ("flows", path.flows, 1),
        ("hold", path.hold, HOLD),
        ("discriminator", path.discriminator.unwrap_or(0), 0),
    ];
    for (keyword, number, default) in numbers {
        if number != default {
            let _ = write!(text, " {keyword} {number}");
        }
    }
    if path.admin_down {
        text.push_str(" admin-down");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ctx, names};
    use super::*;

    #[test]
    fn a_path_is_written_as_it_is_read() {
        for line in [
            "p segs fc00::1 loopback interval 100 multiplier 3",
            "p segs fc00::1,fc00::2 loopback return fc00::3,fc00::9 interval 3 multiplier 255",
            "p segs fc00::1 sbfd fc00::b remote-discriminator 1001 interval 10 multiplier 3",
            "p segs fc00::1 loopback mode encap.red source fc00::7 lookup 100 interval 60000 \
             multiplier 1 size 1400 flows 8 hold 0 discriminator 4294967295 admin-down",
        ] {
            let (name, path) = parse(&mut Words::from_line(line), &ctx()).expect(line);
            assert_eq!(print(&name, &path, &names()), line);
        }
    }

    #[test]
    fn completion_offers_what_may_still_come() {
        let after = |line: &str| completions(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(after(""), [""; 0]);
        assert_eq!(after("p")[..3], ["segs", "loopback", "sbfd"]);
        assert_eq!(after("p segs"), [""; 0]);
        assert_eq!(
            after("p segs fc00::1 sbfd fc00::2"),
            ["remote-discriminator"]
        );
        assert_eq!(after("p segs fc00::1 loopback")[..2], ["return", "mode"]);
        assert_eq!(after("p mode"), ["encap", "encap.red"]);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        let all: Vec<_> = (0..17).map(|n| format!("fc00::{n:x}")).collect();
        let long = format!("p segs {} loopback", all.join(","));
        let back = format!("p segs fc00::1 loopback return {}", all[..16].join(","));
        for (line, expected) in [
            ("", "word 1: missing the name of a path"),
            ("p loopback", "word 3: missing `segs`"),
            ("p segs fc00::1", "word 4: missing `loopback` or `sbfd`"),
            ("p segs fc00::1 loopback sbfd ::1", "word 5: duplicate"),
            (
                "p segs fc00::1 sbfd ::1",
                "word 6: missing `remote-discriminator`",
            ),
            (
                "p segs fc00::1 sbfd ::1 discriminator 7",
                "word 6: invalid `sbfd`",
            ),
            (
                "p segs fc00::1 loopback interval 0",
                "word 6: invalid `interval` \"0\"; expected a number from 3 to 60000",
            ),
            (
                "p segs fc00::1 loopback interval 1us",
                "word 6: invalid `interval`",
            ),
            (
                "p segs fc00::1 loopback multiplier 0",
                "word 6: invalid `multiplier` \"0\"; expected a number from 1 to 255",
            ),
            ("p segs fc00::1 loopback size 71", "word 6: invalid `size`"),
            ("p segs fc00::1 loopback flows 9", "word 6: invalid `flows`"),
            (
                "p segs fc00::1 loopback mode inline",
                "word 6: invalid `mode`",
            ),
            ("p segs fc00::1 loopback up", "word 5: unknown keyword"),
            (long.as_str(), "word 2: too many segments (17)"),
            (back.as_str(), "word 5: 17 segments there and back"),
        ] {
            let found = parse(&mut Words::from_line(line), &ctx()).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
