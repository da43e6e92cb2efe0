//! Parser and printer of the SR domain: `sid-block PREFIX`, `inside DEV`.

use super::words::{Words, unknown};
use super::{Context, value};
use crate::domain::Entry;
use crate::error::ConfigError;
use crate::route::Family;

/// Parses an entry.
///
/// # Errors
/// Returns the first unknown, invalid, missing or surplus word.
pub fn parse(words: &mut Words, ctx: &Context) -> Result<Entry, ConfigError> {
    let expected = "sid-block PREFIX or inside DEV";
    let Some(word) = words.take() else {
        return Err(words.missing("what is of the domain", expected));
    };
    let entry = match word.text {
        "sid-block" => Entry::SidBlock(sid_block(words)?),
        "inside" => Entry::Inside(port(words, ctx)?),
        _ => return Err(unknown(word, expected)),
    };
    match words.take() {
        Some(more) => Err(unknown(more, "one entry at a time")),
        None => Ok(entry),
    }
}

fn sid_block(words: &mut Words) -> Result<ipnet::Ipv6Net, ConfigError> {
    let expected = "an IPv6 prefix such as fc00::/16";
    let word = words.value("sid-block", expected)?;
    match value::prefix(word, "sid-block", Some(Family::V6))? {
        ipnet::IpNet::V6(block) if !block.addr().is_multicast() => Ok(block),
        _ => Err(super::words::invalid(word, "sid-block", expected)),
    }
}

/// Checks that the interface exists: a misspelled name would silently be an outside port.
fn port(words: &mut Words, ctx: &Context) -> Result<String, ConfigError> {
    let ifindex = words.interface("inside", ctx.names)?;
    Ok(value::interface_text(ifindex, ctx.names))
}

/// Returns the words that may follow these words on the line of an entry, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    if words.is_empty() {
        vec!["sid-block", "inside"]
    } else {
        vec![]
    }
}

/// Prints an entry.
pub fn print(entry: &Entry) -> String {
    match entry {
        Entry::SidBlock(block) => format!("sid-block {block}"),
        Entry::Inside(port) => format!("inside {port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ctx;
    use super::*;

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for line in ["sid-block fc00::/16", "sid-block ::/0", "inside eth1"] {
            let entry = parse(&mut Words::from_line(line), &ctx()).expect(line);
            assert_eq!(print(&entry), line);
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("", "word 1: missing what is of the domain"),
            ("sid-block", "word 2: `sid-block` needs a value"),
            ("sid-block 10.0.0.0/8", "word 2:"),
            ("sid-block fc00::/129", "word 2:"),
            ("inside eth9", "word 2:"),
            ("outside eth1", "word 1: unknown keyword"),
            ("inside eth1 eth2", "word 3: unknown keyword"),
        ] {
            let found = parse(&mut Words::from_line(line), &ctx()).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
