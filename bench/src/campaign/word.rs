//! Values of a campaign file that are a number or a keyword.

use std::fmt;

use crate::engine::{Flows, Size};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A size in a campaign file: bytes, or `imix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeWord(pub Size);

/// Flows in a campaign file: a number, or `zipf NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowsWord(pub Flows);

impl<'de> Deserialize<'de> for SizeWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word(
            deserializer,
            "a size: 1 to 65535 bytes, or imix",
            |word| match word {
                Word::Number(bytes @ 1..=65_535) => Some(Self(Size::Bytes(bytes as u32))),
                Word::Text("imix") => Some(Self(Size::Imix)),
                _ => None,
            },
        )
    }
}

impl<'de> Deserialize<'de> for FlowsWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word(
            deserializer,
            "flows: a number from 1 on, or zipf and a number",
            |word| match word {
                Word::Number(flows) if flows > 0 => {
                    Some(Self(Flows::Uniform(flows.try_into().ok()?)))
                }
                Word::Text(text) => {
                    let flows = text.strip_prefix("zipf ")?.trim().parse().ok()?;
                    (flows > 0).then_some(Self(Flows::Zipf(flows)))
                }
                Word::Number(_) => None,
            },
        )
    }
}

/// A number or a text.
enum Word<'a> {
    Number(u64),
    Text(&'a str),
}

fn word<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    read: impl Fn(Word) -> Option<T>,
) -> Result<T, D::Error> {
    struct Reader<F>(&'static str, F);

    impl<T, F: Fn(Word) -> Option<T>> Visitor<'_> for Reader<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            let found = (self.1)(Word::Number(number));
            found.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
            match u64::try_from(number) {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
            }
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            // The YAML reader may give a plain number as text.
            let word = text.parse().map_or(Word::Text(text), Word::Number);
            let found = (self.1)(word);
            found.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Reader(expected, read))
}
