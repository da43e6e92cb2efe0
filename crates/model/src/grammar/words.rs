//! A line split into words with their places, and the operations that all parsers share.

use std::net::{IpAddr, Ipv6Addr};

use super::{Names, Word, value};
use crate::error::{ConfigError, Place, closest};
use crate::node::{IfIndex, TableId};
use crate::route::Family;

/// The words of one line and the current position.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    list: Vec<Word<'a>>,
    next: usize,
    end: Place,
}

impl<'a> Words<'a> {
    /// Returns the words of a command line. Splits each argument at blanks.
    pub fn from_args<S: AsRef<str>>(args: &'a [S]) -> Self {
        Self::numbered(args.iter().flat_map(|arg| arg.as_ref().split_whitespace()))
    }

    /// Returns the words of a line.
    pub fn from_line(line: &'a str) -> Self {
        Self::numbered(line.split_whitespace())
    }

    /// Returns the words of a line in a file. Its first character is at this line and column, both
    /// from 1.
    pub fn from_file(text: &'a str, line: u32, column: u32) -> Self {
        // Bytes and characters up to the last place: places are in order.
        let (mut bytes, mut characters) = (0, 0);
        let mut at = |byte: usize| {
            characters += text[bytes..byte].chars().count() as u32;
            bytes = byte;
            Place::File {
                line,
                column: column + characters,
            }
        };
        let words: Vec<_> = text
            .split_whitespace()
            .map(|word| Word {
                text: word,
                // Each word is a slice of the text.
                place: at(word.as_ptr() as usize - text.as_ptr() as usize),
            })
            .collect();
        Self {
            list: words,
            next: 0,
            end: at(text.trim_end().len()),
        }
    }

    /// Returns the words of a folded or escaped text. All of them have the place of the text.
    pub fn at(text: &'a str, place: Place) -> Self {
        Self {
            list: text
                .split_whitespace()
                .map(|text| Word { text, place })
                .collect(),
            next: 0,
            end: place,
        }
    }

    fn numbered(words: impl Iterator<Item = &'a str>) -> Self {
        let words: Vec<_> = words
            .enumerate()
            .map(|(index, text)| Word {
                text,
                place: Place::Word(index + 1),
            })
            .collect();
        Self {
            end: Place::Word(words.len() + 1),
            list: words,
            next: 0,
        }
    }

    /// Returns the place after the last word.
    pub fn end(&self) -> Place {
        self.end
    }

    /// Returns the place of the first word.
    pub fn start(&self) -> Place {
        self.list.first().map_or(self.end, |word| word.place)
    }

    /// Returns the place of this keyword, read or not. Without it, the place of the first word.
    pub fn place_of(&self, keyword: &str) -> Place {
        let word = self.list.iter().find(|word| word.text == keyword);
        word.map_or(self.start(), |word| word.place)
    }

    /// Returns the error that `what` is missing at the end of the line.
    pub(super) fn missing(&self, what: &str, expected: &str) -> ConfigError {
        ConfigError::new(self.end, format!("missing {what}"), "", expected)
    }

    /// Whether all words have been read.
    pub fn is_at_end(&self) -> bool {
        self.next == self.list.len()
    }

    pub(super) fn peek(&self) -> Option<Word<'a>> {
        self.list.get(self.next).copied()
    }

    pub(super) fn take(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the next word if it is this one.
    pub(super) fn take_if(&mut self, text: &str) -> Option<Word<'a>> {
        self.peek().filter(|word| word.text == text)?;
        self.take()
    }

    /// Removes `keyword VALUE` from the end of the line, and returns the value.
    pub(crate) fn take_last(&mut self, keyword: &str) -> Option<Word<'a>> {
        let [.., found, value] = self.list.as_slice() else {
            return None;
        };
        if found.text != keyword {
            return None;
        }
        let (start, value) = (found.place, *value);
        self.list.truncate(self.list.len() - 2);
        self.end = start;
        Some(value)
    }

    /// Takes the value of a keyword.
    pub(super) fn value(&mut self, keyword: &str, expected: &str) -> Result<Word<'a>, ConfigError> {
        let end = self.end;
        self.take().ok_or_else(|| {
            ConfigError::new(end, format!("`{keyword}` needs a value"), "", expected)
        })
    }

    pub(super) fn number(&mut self, keyword: &str, from: u32, to: u32) -> Result<u32, ConfigError> {
        let expected = format!("a number from {from} to {to}");
        let word = self.value(keyword, &expected)?;
        value::number(word.text)
            .filter(|number| (from..=to).contains(number))
            .ok_or_else(|| invalid(word, keyword, expected))
    }

    pub(super) fn parsed<T>(
        &mut self,
        keyword: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let word = self.value(keyword, expected)?;
        parse(word.text).ok_or_else(|| invalid(word, keyword, expected))
    }

    pub(super) fn interface(
        &mut self,
        keyword: &str,
        names: &dyn Names,
    ) -> Result<IfIndex, ConfigError> {
        let word = self.value(keyword, "the name of an interface")?;
        names.ifindex(word.text).ok_or_else(|| {
            let known = names.interfaces();
            let expected = match known.len() {
                0 => "an interface of this node (it has none)".to_owned(),
                1..=32 => format!("one of {}", known.join(", ")),
                more => format!("one of the {more} interfaces of this node"),
            };
            ConfigError::new(word.place, "no such interface", word.text, expected)
        })
    }

    pub(super) fn address6(&mut self, keyword: &str) -> Result<Ipv6Addr, ConfigError> {
        let word = self.value(keyword, "an IPv6 address")?;
        match value::address(word, keyword, Some(Family::V6))? {
            IpAddr::V6(address) => Ok(address),
            IpAddr::V4(_) => Err(invalid(word, keyword, "an IPv6 address")),
        }
    }

    pub(super) fn table(
        &mut self,
        keyword: &str,
        names: &dyn Names,
    ) -> Result<TableId, ConfigError> {
        // In rtnetlink, table 0 means "no table".
        let expected = "main, local, default or a number from 1 to 4294967295";
        self.parsed(keyword, expected, |text| value::table(text, names))
    }
}

/// Returns the error about an unknown keyword.
pub(super) fn unknown(word: Word, expected: &str) -> ConfigError {
    unknown_word(word, "unknown keyword", expected)
}

/// Length of a list of words up to which an error has all of them.
const SHORT: usize = 120;

/// Returns the error about an unknown word. Of a long list, it names the similar words.
pub(super) fn unknown_word(word: Word, problem: &str, expected: &str) -> ConfigError {
    let words = expected
        .split([',', ' '])
        .filter(|it| it.len() > 1 && *it != "or");
    let expected = match closest(word.text, words).filter(|_| expected.len() > SHORT) {
        Some(similar) => format!("{similar}, perhaps"),
        None => expected.to_owned(),
    };
    ConfigError::new(word.place, problem, word.text, expected)
}

pub(super) fn invalid(word: Word, keyword: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::new(
        word.place,
        format!("invalid `{keyword}`"),
        word.text,
        expected,
    )
}

/// Keywords seen so far. A repeated keyword is an error.
#[derive(Debug, Default)]
pub(super) struct Once<'a>(Vec<(&'static str, Word<'a>)>);

impl<'a> Once<'a> {
    /// Records a keyword under its canonical name.
    pub(super) fn note(&mut self, name: &'static str, word: Word<'a>) -> Result<(), ConfigError> {
        if self.word(name).is_some() {
            let expected = format!("`{name}` only once");
            return Err(ConfigError::new(
                word.place,
                "duplicate keyword",
                word.text,
                expected,
            ));
        }
        self.0.push((name, word));
        Ok(())
    }

    /// Returns the word recorded under this name.
    pub(super) fn word(&self, name: &str) -> Option<Word<'a>> {
        self.0
            .iter()
            .find(|(noted, _)| *noted == name)
            .map(|(_, word)| *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_file_has_its_line_and_column_in_characters() {
        let mut words = Words::from_file("  é  dev\teth0 ", 7, 10);
        let mut places = vec![];
        while let Some(word) = words.take() {
            places.push((word.text, word.place));
        }
        let at = |column| Place::File { line: 7, column };
        assert_eq!(places, [("é", at(12)), ("dev", at(15)), ("eth0", at(19))]);
        assert_eq!(words.end(), at(23));
    }

    #[test]
    fn a_keyword_with_its_value_is_removed_from_the_end_only() {
        let mut words = Words::from_line("dev owner owner kernel");
        assert_eq!(
            words.take_last("owner").map(|word| word.text),
            Some("kernel")
        );
        assert_eq!(words.end(), Place::Word(3));
        assert_eq!(words.take_last("dev").map(|word| word.text), Some("owner"));
        assert_eq!(words.take_last("dev"), None);
    }

    #[test]
    fn arguments_are_split_at_blanks_and_numbered_from_one() {
        let args = ["fc00::/64", "dev eth0"];
        let mut words = Words::from_args(&args);
        words.take();
        words.take();
        let last = words.take().expect("three words");
        assert_eq!(
            (last.text, last.place, words.end()),
            ("eth0", Place::Word(3), Place::Word(4))
        );
    }
}
