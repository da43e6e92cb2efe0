//! Connects the YAML reader with the grammar: places of words, and errors.

use serde::de::DeserializeOwned;
use serde_saphyr::{Location, Spanned};

use crate::error::{ConfigError, Place, closest};
use crate::grammar::Words;

/// Reads a document in which every key is optional. A document without any is an error: it is more
/// often a write that failed than a wish to remove everything.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let document: Option<T> = parse_whole(text)?;
    document.filter(|_| !is_empty_map(text)).ok_or_else(|| {
        let expected = "at least one key, such as `ports: []`";
        ConfigError::new(Place::Whole, "the file has no key", "", expected)
    })
}

/// Whether a document is `{}`, beside comments.
fn is_empty_map(text: &str) -> bool {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let mut rest = lines
        .flat_map(str::split_whitespace)
        .filter(|word| *word != "---");
    matches!((rest.next(), rest.next()), (Some("{}"), None))
}

/// Reads a document.
///
/// # Errors
/// Returns the first error with its line and column.
pub fn parse_whole<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    serde_saphyr::from_str(text).map_err(|error| config_error(text, &error))
}

fn config_error(document: &str, error: &serde_saphyr::Error) -> ConfigError {
    let place = error.location().map_or(Place::Whole, place);
    if let Some(error) = unquoted(document, error, place) {
        return error;
    }
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    // serde's message is "unknown field `x`, expected one of …". The YAML reader appends the place,
    // which is redundant here.
    let message = first.split(" at line ").next().unwrap_or(first);
    let (problem, expected) = plain_words(message);
    ConfigError::new(place, problem, "", expected)
}

/// Returns the problem and the allowed values, in the words of a node file.
fn plain_words(message: &str) -> (String, String) {
    let wrong = |expected: &str| ("invalid value".to_owned(), expected.to_owned());
    if let Some(key) = message.strip_prefix("duplicate mapping key: ") {
        let key = key.split(", set ").next().unwrap_or(key);
        return (format!("duplicate key `{key}`"), "each key once".to_owned());
    }
    if let Some((key, keys)) = unknown_field(message) {
        return (format!("unknown field `{key}`"), one_of_keys(key, &keys));
    }
    if message.starts_with("multiple YAML documents") {
        return ("several documents (`---`)".to_owned(), "one".to_owned());
    }
    if message.starts_with("cannot deserialize null") {
        return (
            "no value".to_owned(),
            "one, or quotes around it if it is a text".to_owned(),
        );
    }
    match message {
        "invalid socket address syntax" => wrong("ADDRESS:PORT, such as 127.0.0.1:10143"),
        "invalid u8" => wrong("a number from 0 to 255"),
        "invalid u16" => wrong("a number from 0 to 65535"),
        "invalid u32" => wrong("a number from 0 to 4294967295"),
        "invalid i32" => wrong("a number"),
        "invalid boolean" => wrong("true or false"),
        "expected sequence start" => wrong("a list"),
        "expected mapping start" => wrong("keys with values (`KEY: VALUE`)"),
        "expected string scalar" | "externally tagged enum expected scalar or mapping" => {
            wrong("one value")
        }
        _ => {
            let (problem, expected) = message.split_once(", expected ").unwrap_or((message, ""));
            let problem = problem.replace("unknown variant", "unknown value");
            (problem, expected.to_owned())
        }
    }
}

/// Returns the field and the known fields in the message of serde, "unknown field `x`, expected one of
/// `a`, `b`".
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let (field, known) = message.split_once(", expected ")?;
    let field = field.strip_prefix("unknown field `")?.strip_suffix('`')?;
    let known = known.strip_prefix("one of ").unwrap_or(known).split(", ");
    Some((field, known.map(|key| key.trim_matches('`')).collect()))
}

/// Returns the known fields, or of many the most similar one.
fn one_of_keys(field: &str, known: &[&str]) -> String {
    const FEW: usize = 12;
    if known.len() <= FEW {
        return format!("one of {}", known.join(", "));
    }
    match closest(field, known.iter().copied()) {
        Some(similar) => format!("{similar}, perhaps"),
        None => "a key of the node file, such as `ports` and `routes`".to_owned(),
    }
}

/// The error of a text that YAML reads as a mapping, since it has a colon before a blank, as in
/// `- a3:: encap seg6 ...`.
fn unquoted(document: &str, error: &serde_saphyr::Error, place: Place) -> Option<ConfigError> {
    let Place::File { line, .. } = place else {
        return None;
    };
    let whole = document.lines().nth(line as usize - 1)?;
    // An item of a list: the values of other keys may be secrets.
    let item = whole.trim_start().strip_prefix("- ")?.trim();
    let is_text = !item.starts_with(['{', '[', '\'', '"']) && item.contains(": ");
    let wants_text = matches!(
        error.without_snippet(),
        serde_saphyr::Error::Unexpected {
            expected: "string scalar",
            ..
        }
    );
    (wants_text && is_text).then(|| {
        let problem = "YAML reads this text as a mapping, because a blank follows a colon:";
        ConfigError::new(
            place,
            problem,
            item,
            format!("quotes around it: \"{item}\""),
        )
    })
}

fn place(location: Location) -> Place {
    if location == Location::UNKNOWN {
        return Place::Whole;
    }
    Place::File {
        line: location.line() as u32,
        column: location.column() as u32,
    }
}

/// The words of a line in the file.
pub(super) fn words(line: &Spanned<String>) -> Words<'_> {
    let location = line.defined;
    let column = location.column() as u32;
    let written = location.span().len();
    let text = line.value.chars().count() as u64;
    let one_line = !line.value.contains('\n');
    match place(location) {
        // The scalar is written in the file as it is in memory, possibly quoted.
        Place::File { line: number, .. } if one_line && written == text => {
            Words::from_file(&line.value, number, column)
        }
        Place::File { line: number, .. } if one_line && written == text + 2 => {
            Words::from_file(&line.value, number, column + 1)
        }
        other => Words::at(&line.value, other),
    }
}

/// Returns an error about a value that is not a line of words.
pub fn wrong<T>(
    at: &Spanned<T>,
    problem: impl Into<String>,
    value: &str,
    expected: &str,
) -> ConfigError {
    ConfigError::new(place(at.defined), problem, value, expected)
}
