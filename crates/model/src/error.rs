//! What an operator asked for and cannot have: where, what, and what is allowed instead.
//!
//! Nothing is applied when one of these is returned.

use std::fmt;

use thiserror::Error;

/// Somebody asked for something illegal. The `Display` form is one line that says where, what and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}{}{}", Quoted(value), Expected(expected))]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What is wrong with the value, as a phrase: "unknown behavior", "duplicate keyword".
    pub problem: String,
    /// The offending word as it was written; empty if something is missing.
    pub value: String,
    /// What would have been accepted, as a phrase; empty if the problem already says so.
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

/// Where in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The word of that number in a command line, from 1; one more than there are words is its end.
    Word(usize),
    /// A position in a file, both from 1; the column counts characters.
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
        // A pasted control character must not reach the operator's terminal as such.
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
    fn an_error_says_where_what_and_what_is_allowed() {
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
