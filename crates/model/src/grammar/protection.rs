//! Parser and printer of protections: `DEV [ via ADDRESS ] by { segs A,B,… [ mode MODE ] [ lookup TABLE ] |
//! via ADDRESS dev DEV } [ path NAME ]`.

use std::fmt::Write;

use super::encap::{parse_list, print_list};
use super::words::{Once, Words, unknown};
use super::{Context, Names, policy, value};
use crate::behavior::{EncapMode, Seg6Encap};
use crate::error::ConfigError;
use crate::protection::{Backup, Protected, Protection};

const MODES: [EncapMode; 2] = [EncapMode::Encap, EncapMode::EncapRed];
const BY: &str = "by segs A,B,…, or by via ADDRESS dev DEV";

/// Parses the key of a protection: a link, or a next hop on it.
///
/// # Errors
/// The interface does not exist, or the address is invalid.
pub fn parse_key(words: &mut Words, ctx: &Context) -> Result<Protected, ConfigError> {
    let dev = link(words, "protect", ctx)?;
    let via = match words.take_if("via") {
        Some(_) => {
            let word = words.value("via", "an IP address")?;
            Some(value::address(word, "via", None)?)
        }
        None => None,
    };
    Ok(Protected { dev, via })
}

/// Takes an interface that exists, and returns its name.
fn link(words: &mut Words, keyword: &str, ctx: &Context) -> Result<String, ConfigError> {
    let ifindex = words.interface(keyword, ctx.names)?;
    Ok(value::interface_text(ifindex, ctx.names))
}

/// Parses a protection with its key.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, ctx: &Context) -> Result<(Protected, Protection), ConfigError> {
    let key = parse_key(words, ctx)?;
    match words.take() {
        Some(word) if word.text == "by" => {}
        Some(word) => return Err(unknown(word, "via ADDRESS, or by")),
        None => return Err(words.missing("`by`", BY)),
    }
    let by = match words.take() {
        Some(word) if word.text == "segs" => Backup::List(Seg6Encap {
            mode: EncapMode::Encap,
            segments: parse_list(words, word)?,
            hmac: None,
            tunsrc: None,
            lookup: None,
        }),
        Some(word) if word.text == "via" => {
            let word = words.value("via", "an IP address")?;
            let via = value::address(word, "via", None)?;
            match words.take() {
                Some(word) if word.text == "dev" => {}
                Some(word) => return Err(unknown(word, "dev DEV")),
                None => return Err(words.missing("`dev`", "dev DEV")),
            }
            let place = words.peek();
            let dev = link(words, "dev", ctx)?;
            if let Some(word) =
                place.filter(|_| dev == key.dev && key.via.is_none_or(|it| it == via))
            {
                return Err(ConfigError::new(
                    word.place,
                    "a next hop cannot protect itself:",
                    word.text,
                    "another interface",
                ));
            }
            Backup::NextHop { dev, via }
        }
        Some(word) => return Err(unknown(word, BY)),
        None => return Err(words.missing("what takes over", BY)),
    };
    let mut protection = Protection { by, path: None };
    let mut seen = Once::default();
    while let Some(word) = words.take() {
        match (word.text, &mut protection.by) {
            ("mode", Backup::List(encap)) => {
                seen.note("mode", word)?;
                let expected = MODES.map(|mode| mode.descriptor().word).join(" or ");
                let of = |text: &str| EncapMode::from_word(text).filter(|it| MODES.contains(it));
                encap.mode = words.parsed("mode", &expected, of)?;
            }
            ("lookup", Backup::List(encap)) => {
                seen.note("lookup", word)?;
                encap.lookup = Some(words.table("lookup", ctx.names)?);
            }
            ("path", _) => {
                seen.note("path", word)?;
                protection.path = Some(policy::name_of(words, "path")?);
            }
            (_, Backup::List(_)) => return Err(unknown(word, "mode, lookup or path")),
            (_, Backup::NextHop { .. }) => return Err(unknown(word, "path, or nothing more")),
        }
    }
    Ok((key, protection))
}

/// Prints a protection.
pub fn print(key: &Protected, protection: &Protection, names: &dyn Names) -> String {
    let mut text = format!(
        "{} by {}",
        print_key(key),
        print_backup(&protection.by, names)
    );
    if let Some(path) = &protection.path {
        let _ = write!(text, " path {path}");
    }
    text
}

/// Prints what takes over.
pub fn print_backup(backup: &Backup, names: &dyn Names) -> String {
    let mut text = String::new();
    match backup {
        Backup::List(encap) => {
            let _ = write!(text, "segs {}", print_list(&encap.segments));
            if encap.mode != EncapMode::Encap {
                let _ = write!(text, " mode {}", encap.mode.descriptor().word);
            }
            if let Some(table) = encap.lookup {
                let _ = write!(text, " lookup {}", value::table_text(table, names));
            }
        }
        Backup::NextHop { dev, via } => {
            let _ = write!(text, "via {via} dev {dev}");
        }
    }
    text
}

/// Prints the key of a protection.
pub fn print_key(key: &Protected) -> String {
    let mut text = key.dev.clone();
    if let Some(via) = key.via {
        let _ = write!(text, " via {via}");
    }
    text
}

/// Returns the words that may follow these words on the line of a protection, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    let by = words.iter().position(|word| *word == "by");
    let after = by.map(|by| &words[by + 1..]);
    match (words, after) {
        (_, None) if words.len() == 1 => vec!["via", "by"],
        (_, None) if words.len() == 3 => vec!["by"],
        (_, Some([])) => vec!["segs", "via"],
        (_, Some(["via", _])) => vec!["dev"],
        (_, Some(["via", _, "dev", _])) => vec!["path"],
        (_, Some([.., "mode"])) => MODES.map(|mode| mode.descriptor().word).to_vec(),
        (_, Some([.., "segs" | "lookup" | "path"])) => vec![],
        (_, Some(["segs", _, rest @ ..])) => {
            let all = ["mode", "lookup", "path"].into_iter();
            all.filter(|word| !rest.contains(word)).collect()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ctx, names};
    use super::*;

    #[test]
    fn a_protection_is_written_as_it_is_read() {
        for line in [
            "eth0 by segs fc00::1",
            "eth0 via fe80::1 by segs fc00::1,fc00::2 mode encap.red lookup 100 path west",
            "eth0 via 192.0.2.1 by via 192.0.2.9 dev eth1",
            "eth0 by via fe80::9 dev eth1 path west",
        ] {
            let (key, it) = parse(&mut Words::from_line(line), &ctx()).expect(line);
            assert_eq!(print(&key, &it, &names()), line);
        }
    }

    #[test]
    fn completion_offers_what_may_still_come() {
        for (line, expected) in [
            ("", &[][..]),
            ("eth0", &["via", "by"]),
            ("eth0 via", &[]),
            ("eth0 via fe80::1", &["by"]),
            ("eth0 by", &["segs", "via"]),
            ("eth0 by via fe80::1", &["dev"]),
            ("eth0 by via fe80::1 dev eth1", &["path"]),
            ("eth0 by segs", &[]),
            ("eth0 by segs fc00::1", &["mode", "lookup", "path"]),
            ("eth0 by segs fc00::1 mode", &["encap", "encap.red"]),
            ("eth0 by segs fc00::1 mode encap", &["lookup", "path"]),
        ] {
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(completions(&words), expected, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("", "word 1: `protect` needs a value"),
            ("eth7", "word 1: no such interface"),
            ("eth0", "word 2: missing `by`"),
            ("eth0 segs fc00::1", "word 2: unknown keyword"),
            ("eth0 via fe80", "word 3:"),
            ("eth0 by", "word 3: missing what takes over"),
            ("eth0 by fc00::1", "word 3: unknown keyword"),
            ("eth0 by segs", "word 4:"),
            ("eth0 by segs fc00::1 mode inline", "word 6: invalid `mode`"),
            ("eth0 by segs fc00::1 path a path b", "word 7:"),
            ("eth0 by segs fc00::1 up", "word 5: unknown keyword"),
            ("eth0 by via fe80::1", "word 5: missing `dev`"),
            (
                "eth0 by via fe80::1 dev eth0",
                "word 6: a next hop cannot protect itself",
            ),
            (
                "eth0 via fe80::1 by via fe80::1 dev eth0",
                "word 8: a next hop cannot",
            ),
            (
                "eth0 by via fe80::1 dev eth1 mode encap",
                "word 7: unknown keyword",
            ),
        ] {
            let found = parse(&mut Words::from_line(line), &ctx()).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
