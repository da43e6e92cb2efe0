//! Parser and printer of SR policies: `NAME color N endpoint ADDRESS [bsid SID] [mode MODE] …
//! {[preference N] segs A,B,… [weight N] …}`, and of the words that steer routes into them.

use std::fmt::Write;
use std::net::IpAddr;

use super::words::{Once, Words, invalid, unknown};
use super::{Word, encap, value};
use crate::behavior::{EncapMode, SIGNED_MAX};
use crate::error::ConfigError;
use crate::policy::{
    Candidate, LISTS_MAX, PREFERENCE_DEFAULT, PathId, Policy, PolicyId, SegmentList, Steering,
    WEIGHT_MAX,
};

const EXPECTED: &str =
    "color, endpoint, bsid, mode, tunsrc, hmac, drop-upon-invalid, preference, segs or weight";
const MODES: [EncapMode; 2] = [EncapMode::Encap, EncapMode::EncapRed];
/// LIMIT: length of a policy's name in bytes.
const NAME_MAX: usize = 64;

/// Parses a policy and its name.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words) -> Result<(String, Policy), ConfigError> {
    let name = parse_name(words)?;
    let mut draft = Draft::default();
    while let Some(word) = words.take() {
        draft.word(word, words)?;
    }
    Ok((name, draft.finish(words)?))
}

/// Parses the name of a policy.
///
/// # Errors
/// The name is missing or invalid.
pub fn parse_name(words: &mut Words) -> Result<String, ConfigError> {
    name_of(words, "policy")
}

/// Parses the name of a policy or path (`what`).
pub(super) fn name_of(words: &mut Words, what: &str) -> Result<String, ConfigError> {
    let name = format!("the name of a {what}");
    let expected = format!("{name}: letters, digits, `-`, `_` and `.`, up to {NAME_MAX}");
    let Some(word) = words.take() else {
        return Err(words.missing(&name, &expected));
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if word.text.len() > NAME_MAX || !word.text.bytes().all(legal) {
        return Err(invalid(word, what, expected));
    }
    Ok(word.text.to_owned())
}

/// The parsed part of a policy.
#[derive(Default)]
struct Draft<'a> {
    seen: Once<'a>,
    color: Option<u32>,
    endpoint: Option<IpAddr>,
    bsid: Option<std::net::Ipv6Addr>,
    mode: Option<EncapMode>,
    tunsrc: Option<std::net::Ipv6Addr>,
    hmac: Option<u32>,
    drop_upon_invalid: bool,
    /// Candidate paths with their first word.
    candidates: Vec<(Word<'a>, Candidate)>,
    /// True if the last list has a weight.
    weighted: bool,
    /// The word before each list, and its number of segments.
    lengths: Vec<(Word<'a>, usize)>,
}

impl<'a> Draft<'a> {
    fn word(&mut self, word: Word<'a>, words: &mut Words<'a>) -> Result<(), ConfigError> {
        let name = match word.text {
            "preference" => return self.candidate(word, words),
            "segs" => return self.list(word, words),
            "weight" => return self.weight(word, words),
            "color" => "color",
            "endpoint" => "endpoint",
            "bsid" => "bsid",
            "mode" => "mode",
            "tunsrc" => "tunsrc",
            "hmac" => "hmac",
            "drop-upon-invalid" => "drop-upon-invalid",
            _ => return Err(unknown(word, EXPECTED)),
        };
        self.seen.note(name, word)?;
        match name {
            "color" => self.color = Some(words.number(name, 0, u32::MAX)?),
            "endpoint" => {
                let word = words.value(name, "an IP address")?;
                self.endpoint = Some(value::address(word, name, None)?);
            }
            "bsid" => self.bsid = Some(sid(words)?),
            "mode" => {
                let expected = MODES.map(|mode| mode.descriptor().word).join(" or ");
                let of = |text: &str| EncapMode::from_word(text).filter(|it| MODES.contains(it));
                self.mode = Some(words.parsed(name, &expected, of)?);
            }
            "tunsrc" => self.tunsrc = Some(words.address6(name)?),
            "hmac" => self.hmac = Some(words.number(name, 1, u32::MAX)?),
            _ => self.drop_upon_invalid = true,
        }
        Ok(())
    }

    fn candidate(&mut self, word: Word<'a>, words: &mut Words<'a>) -> Result<(), ConfigError> {
        self.must_have_lists()?;
        let preference = words.number("preference", 0, u32::MAX)?;
        let mut there = self.candidates.iter();
        if there.any(|(_, candidate)| candidate.preference == preference) {
            let problem =
                format!("there is a candidate path with preference {preference} already:");
            let expected = "another preference: the highest of the valid ones is active";
            return Err(ConfigError::new(word.place, problem, word.text, expected));
        }
        self.candidates.push((word, configured(preference)));
        Ok(())
    }

    fn list(&mut self, word: Word<'a>, words: &mut Words<'a>) -> Result<(), ConfigError> {
        if self.candidates.is_empty() {
            self.candidates.push((word, configured(PREFERENCE_DEFAULT)));
        }
        let segments = encap::parse_list(words, word)?;
        self.lengths.push((word, segments.len()));
        if let Some((_, candidate)) = self.candidates.last_mut() {
            if candidate.lists.len() == LISTS_MAX {
                let problem = format!("more than {LISTS_MAX} segment lists in a candidate path:");
                let expected = "the others in another one";
                return Err(ConfigError::new(word.place, problem, word.text, expected));
            }
            candidate.lists.push(SegmentList {
                segments,
                weight: 1,
            });
        }
        self.weighted = false;
        Ok(())
    }

    fn weight(&mut self, word: Word<'a>, words: &mut Words<'a>) -> Result<(), ConfigError> {
        let last = self.candidates.last_mut();
        let last = last.and_then(|(_, candidate)| candidate.lists.last_mut());
        match last {
            Some(newest) if !self.weighted => {
                newest.weight = words.number("weight", 1, WEIGHT_MAX.into())? as u16;
                self.weighted = true;
                Ok(())
            }
            _ => {
                let expected = "it once behind each `segs`";
                Err(ConfigError::new(
                    word.place,
                    "misplaced keyword",
                    word.text,
                    expected,
                ))
            }
        }
    }

    fn must_have_lists(&self) -> Result<(), ConfigError> {
        match self.candidates.last() {
            Some((word, candidate)) if candidate.lists.is_empty() => {
                let problem = "no segment list in the candidate path of";
                let expected = "segs A,B,… behind it";
                Err(ConfigError::new(word.place, problem, word.text, expected))
            }
            _ => Ok(()),
        }
    }

    /// Checks that each list fits into a signed SRH, if the policy has an HMAC key.
    fn must_be_signed(&self) -> Result<(), ConfigError> {
        // RFC 8986 5.2: the destination address alone holds the first segment.
        let left_out = usize::from(self.mode == Some(EncapMode::EncapRed));
        let most = SIGNED_MAX + left_out;
        let too_long = self.lengths.iter().find(|(_, length)| *length > most);
        match too_long.filter(|_| self.hmac.is_some()) {
            Some((word, length)) => {
                let problem = format!("too many segments to sign ({length}) after");
                let expected = format!("up to {most} with `hmac`");
                Err(ConfigError::new(word.place, problem, word.text, expected))
            }
            None => Ok(()),
        }
    }

    fn finish(self, words: &Words) -> Result<Policy, ConfigError> {
        self.must_have_lists()?;
        self.must_be_signed()?;
        let Some(color) = self.color else {
            return Err(words.missing("`color`", "color N"));
        };
        let Some(endpoint) = self.endpoint else {
            return Err(words.missing("`endpoint`", "endpoint ADDRESS"));
        };
        if self.candidates.is_empty() {
            return Err(words.missing("`segs`", "segs A,B,… [weight N]"));
        }
        let candidates = self.candidates.into_iter().map(|(_, it)| it);
        let mut candidates: Vec<Candidate> = candidates.collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.preference));
        Ok(Policy {
            id: PolicyId { color, endpoint },
            bsid: self.bsid,
            mode: self.mode.unwrap_or(EncapMode::Encap),
            hmac: self.hmac,
            tunsrc: self.tunsrc,
            drop_upon_invalid: self.drop_upon_invalid,
            candidates,
        })
    }
}

/// Returns a candidate path of the configuration, without segment lists yet.
fn configured(preference: u32) -> Candidate {
    Candidate {
        path: PathId::configured(preference),
        preference,
        lists: vec![],
    }
}

fn sid(words: &mut Words) -> Result<std::net::Ipv6Addr, ConfigError> {
    let expected = "an IPv6 unicast address: a SID of this node";
    let legal = |sid: &std::net::Ipv6Addr| is_binding_sid(*sid);
    words.parsed("bsid", expected, |text| text.parse().ok().filter(legal))
}

/// Returns true if this address can be a binding SID.
pub fn is_binding_sid(sid: std::net::Ipv6Addr) -> bool {
    !(sid.is_multicast() || sid.is_unspecified() || sid.is_loopback())
}

/// Prints a policy.
pub fn print(name: &str, policy: &Policy) -> String {
    let PolicyId { color, endpoint } = policy.id;
    let mut text = format!("{name} color {color} endpoint {endpoint}");
    if let Some(bsid) = policy.bsid {
        let _ = write!(text, " bsid {bsid}");
    }
    let _ = write!(text, " mode {}", policy.mode.descriptor().word);
    if let Some(tunsrc) = policy.tunsrc {
        let _ = write!(text, " tunsrc {tunsrc}");
    }
    if let Some(hmac) = policy.hmac {
        let _ = write!(text, " hmac {hmac}");
    }
    if policy.drop_upon_invalid {
        text.push_str(" drop-upon-invalid");
    }
    for candidate in &policy.candidates {
        let _ = write!(text, " preference {}", candidate.preference);
        for list in &candidate.lists {
            let segments = encap::print_list(&list.segments);
            let _ = write!(text, " segs {segments} weight {}", list.weight);
        }
    }
    text
}

/// Prints the words that steer a route's packets into policies.
pub(super) fn print_steering(steering: &Steering) -> String {
    let mut parts = vec![];
    parts.extend(steering.policy.iter().map(|it| format!("policy {it}")));
    let mut by_policy: Vec<(&str, Vec<u8>)> = vec![];
    for (dscp, name) in &steering.by_dscp {
        match by_policy.iter_mut().find(|(of, _)| of == name) {
            Some((_, all)) => all.push(*dscp),
            None => by_policy.push((name, vec![*dscp])),
        }
    }
    for (name, all) in by_policy {
        parts.push(format!("dscp {} policy {name}", ranges(&all)));
    }
    parts.join(" ")
}

/// Prints DSCPs as ranges: `10,12-14`.
fn ranges(ascending: &[u8]) -> String {
    let mut ranges: Vec<(u8, u8)> = vec![];
    for &dscp in ascending {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == dscp => *last = dscp,
            _ => ranges.push((dscp, dscp)),
        }
    }
    let text = ranges.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// Returns the words that may follow these words on the line of a policy, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    match words.last().copied() {
        None
        | Some(
            "color" | "endpoint" | "bsid" | "tunsrc" | "hmac" | "preference" | "segs" | "weight",
        ) => {
            return vec![];
        }
        Some("mode") => return MODES.map(|mode| mode.descriptor().word).to_vec(),
        Some(_) => {}
    }
    let again = ["preference", "segs", "weight"];
    let once = [
        "color",
        "endpoint",
        "bsid",
        "mode",
        "tunsrc",
        "hmac",
        "drop-upon-invalid",
    ];
    let once = once.into_iter().filter(|word| !words[1..].contains(word));
    once.chain(again).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "gold color 100 endpoint fc00:3::1 bsid fc00:1::b100 mode encap.red tunsrc fc00:1::1 hmac 7 \
         drop-upon-invalid preference 200 segs fc00:2::e,fc00:3::d6 weight 3 segs fc00:4::e weight 1 preference 50 segs \
         fc00:5::e weight 65535";

    fn read(line: &str) -> Result<(String, Policy), ConfigError> {
        parse(&mut Words::from_line(line))
    }

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        let (name, policy) = read(WHOLE).expect("well-formed");
        assert_eq!(print(&name, &policy), WHOLE);
        let (name, policy) = read("p endpoint 192.0.2.1 color 0 segs fc00::1").expect("short");
        assert_eq!(
            print(&name, &policy),
            "p color 0 endpoint 192.0.2.1 mode encap preference 100 segs fc00::1 weight 1"
        );
    }

    #[test]
    fn candidate_paths_are_ordered_by_preference() {
        let line = "p color 1 endpoint ::1 segs fc00::1 preference 300 segs fc00::3 preference 200 segs fc00::2";
        let (_, policy) = read(line).expect("well-formed");
        let preferences: Vec<u32> = policy.candidates.iter().map(|it| it.preference).collect();
        assert_eq!(preferences, [300, 200, 100]);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("", "word 1: missing the name of a policy"),
            ("a/b", "word 1: invalid `policy`"),
            ("p endpoint ::1 segs fc00::1", "word 6: missing `color`"),
            ("p color 1 segs fc00::1", "word 6: missing `endpoint`"),
            ("p color 1 endpoint ::1", "word 6: missing `segs`"),
            ("p color 1 color 2", "word 4: duplicate keyword"),
            ("p color 4294967296", "word 3: invalid `color`"),
            ("p bsid ff02::1", "word 3: invalid `bsid`"),
            ("p mode inline", "word 3: invalid `mode`"),
            ("p weight 2", "word 2: misplaced keyword"),
            ("p segs fc00::1 weight 0", "word 5: invalid `weight`"),
            (
                "p segs fc00::1 weight 2 weight 3",
                "word 6: misplaced keyword",
            ),
            ("p segs ff02::1", "word 2:"),
            ("p preference 1 preference 2", "word 2: no segment list"),
            (
                "p preference 1 segs fc00::1 preference 1",
                "word 6: there is a candidate path",
            ),
            (
                "p segs fc00::1 preference 100",
                "word 4: there is a candidate path",
            ),
            ("p metric 5", "word 2: unknown keyword"),
        ] {
            let found = read(line).expect_err(line).to_string();
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_signed_is_refused_with_hmac() {
        let line = |segments: usize, words: &str| {
            let list = vec!["fc00::1"; segments].join(",");
            format!("p color 1 endpoint ::1 segs fc00::1 preference 7 segs {list} {words}")
        };
        for (good, bad, mode) in [(14, 15, "mode encap"), (15, 16, "mode encap.red")] {
            read(&line(good, &format!("{mode} hmac 7"))).expect("short enough");
            read(&line(16, mode)).expect("not signed");
            let long = line(bad, &format!("hmac 7 {mode}"));
            let found = read(&long).expect_err(&long).to_string();
            let expected = format!(
                "word 10: too many segments to sign ({bad}) after \"segs\"; expected up to {good} with `hmac`"
            );
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn dscps_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 10, 12, 13, 63]), "0-2,10,12-13,63");
    }
}
