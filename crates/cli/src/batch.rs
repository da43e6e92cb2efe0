//! `sidestep --batch FILE`: changes of Sidestep-only entries, all or none.

use std::io::Read;
use std::path::Path;

use sidestep_control::api::{self, BatchLine, Noun, Request, Verb};

use crate::{Outcome, ether};

const NOUNS: [(&str, Noun); 9] = [
    ("route", Noun::Route),
    ("rule", Noun::Rule),
    ("policy", Noun::Policy),
    ("vlan", Noun::Vlan),
    ("domain", Noun::Domain),
    ("ether", Noun::Ether),
    ("reflector", Noun::Reflector),
    ("path", Noun::Path),
    ("protect", Noun::Protect),
];
const VERBS: [(&str, Verb); 3] = [
    ("add", Verb::Add),
    ("replace", Verb::Replace),
    ("del", Verb::Del),
];

/// Reads the file, `-` for standard input, and changes the entries.
///
/// # Errors
/// The file cannot be read, a line is no change, or the daemon refuses one of them. Nothing changes
/// then.
pub fn run(path: &Path) -> Outcome {
    let name = path.display();
    let text = read(path).map_err(|error| format!("{name}: {error}"))?;
    let changes = parse(&text).map_err(|error| format!("{name}: {error}"))?;
    api::call(Request::Batch { changes }).map_err(|error| match error {
        api::ApiError::Refused(why) => format!("{name}: {why}").into(),
        other => Box::<dyn std::error::Error + Send + Sync>::from(other),
    })?;
    Ok(())
}

fn read(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

/// Parses lines of `NOUN VERB ARGS`. A line that begins with `#` is a comment.
fn parse(text: &str) -> Result<Vec<BatchLine>, String> {
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(number, line)| (number, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|(number, line)| {
        parse_line(number, line).map_err(|error| format!("line {number}: {error}"))
    });
    parsed.collect()
}

fn parse_line(line: u32, text: &str) -> Result<BatchLine, String> {
    let mut words = text.split_whitespace();
    let noun = one_of(&NOUNS, words.next())?;
    let verb = words.next();
    let args: Vec<String> = words.map(str::to_owned).collect();
    if args.is_empty() && verb.is_some() {
        return Err("missing the entry; expected NOUN VERB ENTRY".into());
    }
    let (verb, args) = match (noun, verb) {
        (Noun::Ether, Some("set")) => (Verb::Replace, args),
        (Noun::Ether, Some("attach")) => (Verb::Replace, ether::attached(&args)?),
        (Noun::Ether, Some("detach")) => (Verb::Replace, [&args[..], &["detach".into()]].concat()),
        (Noun::Ether, Some("replace")) => {
            return Err("invalid verb `replace`; expected add, set, attach, detach or del".into());
        }
        _ => (one_of(&VERBS, verb)?, args),
    };
    Ok(BatchLine {
        line,
        noun,
        verb,
        args,
    })
}

fn one_of<T: Copy>(all: &[(&str, T)], word: Option<&str>) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| Some(*name) == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        match word {
            Some(word) => format!("invalid word `{word}`; expected one of {names}"),
            None => format!("missing a word; expected one of {names}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_changes_and_the_rest_is_ignored() {
        let text = "# routes\n\nroute add fc00::/16 via fe80::1 dev eth0\n  ether attach eth1 vlan 4 to w\n\
                    ether detach w\nether set w red\nrule del from ::/0";
        let found = parse(text).expect("changes");
        let words: Vec<_> = found
            .iter()
            .map(|it| (it.line, it.noun, it.verb, it.args.join(" ")))
            .collect();
        let expected = [
            (3, Noun::Route, Verb::Add, "fc00::/16 via fe80::1 dev eth0"),
            (4, Noun::Ether, Verb::Replace, "w attach eth1 vlan 4"),
            (5, Noun::Ether, Verb::Replace, "w detach"),
            (6, Noun::Ether, Verb::Replace, "w red"),
            (7, Noun::Rule, Verb::Del, "from ::/0"),
        ];
        let expected =
            expected.map(|(line, noun, verb, words)| (line, noun, verb, words.to_owned()));
        assert_eq!(words, expected);
    }

    #[test]
    fn a_line_that_is_no_change_is_named() {
        for (text, expected) in [
            ("show ports", "line 1: invalid word `show`; expected one of"),
            (
                "\nroute show x",
                "line 2: invalid word `show`; expected one of add",
            ),
            ("route", "line 1: missing a word"),
            ("route add", "line 1: missing the entry"),
            (
                "ether replace w segs fc00::1",
                "line 1: invalid verb `replace`",
            ),
            ("ether attach eth1", "line 1: missing `to NAME`"),
        ] {
            let found = parse(text).expect_err(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }
}
