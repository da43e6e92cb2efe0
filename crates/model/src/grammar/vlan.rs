//! Parser and printer of VLAN table entries: `table TABLE { vid VID [ inner VID ] | untagged } dev
//! DEV`.

use super::words::{Once, Words, unknown};
use super::{Context, Names, value};
use crate::error::ConfigError;
use crate::node::IfIndex;
use crate::vlan::{VID_MAX, Vids, VlanKey, VlanTableId};

/// Parses an entry.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, ctx: &Context) -> Result<(VlanKey, IfIndex), ConfigError> {
    let (key, dev) = read(words, ctx)?;
    match dev {
        Some(dev) => Ok((key, dev)),
        None => Err(words.missing("`dev`", "dev DEV")),
    }
}

/// Parses the identity of an entry. `dev` is optional.
///
/// # Errors
/// See [`parse`].
pub fn parse_key(words: &mut Words, ctx: &Context) -> Result<VlanKey, ConfigError> {
    read(words, ctx).map(|(key, _)| key)
}

fn read(words: &mut Words, ctx: &Context) -> Result<(VlanKey, Option<IfIndex>), ConfigError> {
    let mut seen = Once::default();
    let (mut table, mut outer, mut inner, mut dev) = (None, None, None, None);
    while let Some(word) = words.take() {
        let name = match word.text {
            "table" => "table",
            "vid" => "vid",
            "inner" => "inner",
            "untagged" => "untagged",
            "dev" => "dev",
            _ => {
                let expected = "table, vid, inner, untagged or dev";
                return Err(unknown(word, expected));
            }
        };
        seen.note(name, word)?;
        match name {
            "table" => table = Some(VlanTableId(words.number(name, 1, u32::MAX)?)),
            "vid" => outer = Some(words.number(name, 1, VID_MAX.into())? as u16),
            "inner" => inner = Some(words.number(name, 1, VID_MAX.into())? as u16),
            "dev" => dev = Some(words.interface(name, ctx.names)?),
            _ => {}
        }
    }
    let table = table.ok_or_else(|| words.missing("`table`", "table TABLE"))?;
    let vids = match (seen.word("untagged"), outer, inner) {
        (Some(_), None, None) => Vids::Untagged,
        (Some(word), ..) => {
            let problem = "a frame with a VLAN is not";
            let expected = "either vid VID or untagged";
            return Err(ConfigError::new(word.place, problem, word.text, expected));
        }
        (None, Some(outer), None) => Vids::Outer(outer),
        (None, Some(outer), Some(inner)) => Vids::OuterInner(outer, inner),
        (None, None, _) => return Err(words.missing("`vid`", "vid VID [ inner VID ], or untagged")),
    };
    Ok((VlanKey { table, vids }, dev))
}

/// Returns the words that may follow these words on the line of an entry, for shell completion.
/// Numbers and interfaces have no candidates.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    let there = |word: &str| words.contains(&word);
    if let Some(&("table" | "vid" | "inner" | "dev")) = words.last() {
        return vec![];
    }
    let fits = |word: &&str| match *word {
        "vid" => !there("untagged"),
        "untagged" => !there("vid"),
        "inner" => there("vid"),
        _ => true,
    };
    let all = ["table", "vid", "inner", "untagged", "dev"].into_iter();
    all.filter(|word| !there(word) && fits(word)).collect()
}

/// Prints an entry.
pub fn print(key: &VlanKey, dev: IfIndex, names: &dyn Names) -> String {
    let VlanTableId(table) = key.table;
    let vids = match key.vids {
        Vids::Untagged => "untagged".to_owned(),
        Vids::Outer(outer) => format!("vid {outer}"),
        Vids::OuterInner(outer, inner) => format!("vid {outer} inner {inner}"),
    };
    let dev = value::interface_text(dev, names);
    format!("table {table} {vids} dev {dev}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ctx, names};
    use super::*;

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for line in [
            "table 10 vid 100 dev eth1",
            "table 10 vid 100 inner 4094 dev eth2",
            "table 4294967295 untagged dev eth0",
        ] {
            let (key, dev) = parse(&mut Words::from_line(line), &ctx()).expect(line);
            assert_eq!(print(&key, dev, &names()), line);
        }
        let key = parse_key(&mut Words::from_line("vid 7 table 1"), &ctx()).expect("no dev");
        assert_eq!(key.vids, Vids::Outer(7));
    }

    #[test]
    fn completion_offers_what_may_still_come() {
        let after = |line: &str| completions(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(after(""), ["table", "vid", "untagged", "dev"]);
        assert_eq!(after("table"), [""; 0]);
        assert_eq!(after("table 10 untagged"), ["dev"]);
        assert_eq!(after("table 10 vid 100"), ["inner", "dev"]);
        assert_eq!(after("table 10 vid 100 inner 7 dev eth1"), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("table 10 vid 100", "word 5: missing `dev`"),
            ("vid 100 dev eth1", "word 5: missing `table`"),
            ("table 10 dev eth1", "word 5: missing `vid`"),
            ("table 10 inner 7 dev eth1", "word 7: missing `vid`"),
            ("table 10 vid 4095 dev eth1", "word 4: invalid `vid`"),
            ("table 10 vid 0 dev eth1", "word 4: invalid `vid`"),
            ("table 0 vid 1 dev eth1", "word 2: invalid `table`"),
            ("table 10 vid 1 vid 2 dev eth1", "word 5: duplicate"),
            ("table 10 vid 1 untagged dev eth1", "word 5: a frame with"),
            ("table 10 vid 1 dev eth9", "word 6:"),
            ("table 10 vlan 1 dev eth1", "word 3: unknown keyword"),
        ] {
            let found = parse(&mut Words::from_line(line), &ctx()).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
