//! Parser and printer of settings of a VRF's table: `table TABLE tunsrc IPV6`.

use std::net::Ipv6Addr;

use super::words::{Once, Words, invalid, unknown};
use super::{Names, value};
use crate::error::ConfigError;
use crate::node::TableId;

/// Parses the tunnel source of a table.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, names: &dyn Names) -> Result<(TableId, Ipv6Addr), ConfigError> {
    let mut seen = Once::default();
    let (mut table, mut tunsrc) = (None, None);
    while let Some(word) = words.take() {
        match word.text {
            "table" => {
                seen.note("table", word)?;
                table = Some(words.table("table", names)?);
            }
            "tunsrc" => {
                seen.note("tunsrc", word)?;
                let word = words.value("tunsrc", SOURCE)?;
                let address = word.text.parse().ok().filter(is_source);
                tunsrc = Some(address.ok_or_else(|| invalid(word, "tunsrc", SOURCE))?);
            }
            _ => return Err(unknown(word, "table or tunsrc")),
        }
    }
    let table = table.ok_or_else(|| words.missing("`table`", "table TABLE"))?;
    let tunsrc = tunsrc.ok_or_else(|| words.missing("`tunsrc`", "tunsrc IPV6"))?;
    Ok((table, tunsrc))
}

/// Prints the tunnel source of a table.
pub fn print(table: TableId, tunsrc: Ipv6Addr, names: &dyn Names) -> String {
    format!("table {} tunsrc {tunsrc}", value::table_text(table, names))
}

const SOURCE: &str = "an IPv6 unicast address";

fn is_source(address: &Ipv6Addr) -> bool {
    !address.is_multicast() && !address.is_loopback() && !address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn a_line_is_written_as_it_is_read() {
        for line in [
            "table 100 tunsrc fc00:1::100",
            "table main tunsrc fc00:1::1",
        ] {
            let parsed = parse(&mut Words::from_line(line), &names()).expect(line);
            assert_eq!(print(parsed.0, parsed.1, &names()), line);
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("table 100", "word 3: missing `tunsrc`"),
            ("tunsrc fc00::1", "word 3: missing `table`"),
            ("table 100 tunsrc ff02::1", "word 4: invalid `tunsrc`"),
            ("table 100 tunsrc ::1", "word 4: invalid `tunsrc`"),
            ("table 100 tunsrc ::", "word 4: invalid `tunsrc`"),
            ("table 100 tunsrc 10.0.0.1", "word 4: invalid `tunsrc`"),
            ("table 100 table 101 tunsrc fc00::1", "word 3: duplicate"),
            ("vrf red tunsrc fc00::1", "word 1: unknown keyword"),
        ] {
            let found = parse(&mut Words::from_line(line), &names()).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
