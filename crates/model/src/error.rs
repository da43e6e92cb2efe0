//! Errors in operator input: place, problem, and what is allowed.
//!
//! A function that returns one of these has applied nothing.

use std::fmt;

use thiserror::Error;

/// Invalid operator input. `Display` prints one line with place, problem and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}{}{}", Quoted(value), Expected(expected))]
pub struct ConfigError {
    /// Place in the input.
    pub place: Place,
    /// The problem, as a phrase: "unknown behavior", "duplicate keyword".
    pub problem: String,
    /// The offending word as written. Empty if a word is missing.
    pub value: String,
    /// Accepted input, as a phrase. Empty if the problem states it.
    pub expected: String,
}

impl ConfigError {
    pub(crate) fn new(
        place: Place,
        problem: impl Into<String>,
        value: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            place,
            problem: problem.into(),
            value: value.into(),
            expected: expected.into(),
        }
    }
}

/// Similarity from which on a word may be a misspelled one, from 0 to 1.
const SIMILAR: f64 = 0.8;
/// Difference of similarities up to which both words are likely.
const EQUALLY: f64 = 0.01;
/// LIMIT: similar words in an error.
const SIMILAR_MAX: usize = 3;

/// Returns the most similar words as a phrase, if any is similar.
pub(crate) fn closest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<String> {
    let word = word.to_lowercase();
    let similarity = |other: &str| strsim::jaro_winkler(&word, &other.to_lowercase());
    let rated = words.map(|other| (similarity(other), other));
    let rated: Vec<_> = rated
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .collect();
    let best = rated.iter().map(|it| it.0).max_by(f64::total_cmp)?;
    let likely = rated
        .iter()
        .filter(|(similarity, _)| best - similarity <= EQUALLY);
    let likely: Vec<_> = likely.take(SIMILAR_MAX).map(|(_, word)| *word).collect();
    Some(likely.join(" or "))
}

/// Place in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Word number in a command line, from 1. One past the last word is the end of the line.
    Word(usize),
    /// Position in a file, both from 1. Columns count characters.
    File {
        /// Line.
        line: u32,
        /// Column.
        column: u32,
    },
    /// The input as a whole.
    Whole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(number) => write!(f, "word {number}"),
            Self::File { line, column } => write!(f, "line {line}, column {column}"),
            Self::Whole => f.write_str("configuration"),
        }
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escape control characters: pasted text must not reach the operator's terminal raw.
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, " {:?}", self.0)
        }
    }
}

struct Expected<'a>(&'a str);

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "; expected {}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_place_problem_and_what_is_allowed() {
        let place = Place::File {
            line: 3,
            column: 14,
        };
        let error = ConfigError::new(place, "unknown behavior", "End.DT5", "End or End.X");
        assert_eq!(
            error.to_string(),
            "line 3, column 14: unknown behavior \"End.DT5\"; expected End or End.X"
        );
        let error = ConfigError::new(Place::Word(5), "missing attribute", "", "");
        assert_eq!(error.to_string(), "word 5: missing attribute");
    }
}
