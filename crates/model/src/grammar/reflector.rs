//! Parser and printer of S-BFD reflectors: `DISCRIMINATOR [ admin-down ]`.

use super::words::{Words, unknown};
use crate::error::ConfigError;
use crate::liveness::Reflector;

const WHAT: &str = "discriminator";

/// Parses a reflector and its discriminator.
///
/// # Errors
/// Returns the first unknown, invalid, missing or surplus word.
pub fn parse(words: &mut Words) -> Result<(u32, Reflector), ConfigError> {
    let discriminator = words.number(WHAT, 1, u32::MAX)?;
    let admin_down = words.take_if(ADMIN_DOWN).is_some();
    match words.take() {
        Some(more) => Err(unknown(more, "admin-down, or nothing more")),
        None => Ok((discriminator, Reflector { admin_down })),
    }
}

const ADMIN_DOWN: &str = "admin-down";

/// Returns the words that may follow these words on the line of a reflector, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    if words.len() == 1 {
        vec![ADMIN_DOWN]
    } else {
        vec![]
    }
}

/// Prints a reflector.
pub fn print(discriminator: u32, reflector: Reflector) -> String {
    let Reflector { admin_down } = reflector;
    let state = if admin_down { " admin-down" } else { "" };
    format!("{discriminator}{state}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflector_is_written_as_it_is_read() {
        for line in ["1", "4294967295", "1001 admin-down"] {
            let (discriminator, reflector) = parse(&mut Words::from_line(line)).expect(line);
            assert_eq!(print(discriminator, reflector), line);
        }
    }

    #[test]
    fn completion_offers_what_may_still_come() {
        assert_eq!(completions(&[]), [""; 0]);
        assert_eq!(completions(&["1001"]), ["admin-down"]);
        assert_eq!(completions(&["1001", "admin-down"]), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        for (line, expected) in [
            ("", "word 1: `discriminator` needs a value"),
            ("0", "word 1: invalid `discriminator`"),
            ("4294967296", "word 1: invalid `discriminator`"),
            ("one", "word 1: invalid `discriminator`"),
            ("1001 down", "word 2: unknown keyword"),
            ("1001 admin-down up", "word 3: unknown keyword"),
        ] {
            let found = parse(&mut Words::from_line(line)).expect_err(line);
            assert!(found.to_string().starts_with(expected), "{line}: {found}");
        }
    }
}
