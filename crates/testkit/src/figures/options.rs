//! The command line.

use std::time::Duration;

use super::Error;
use crate::engine::behavior::Behavior;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Length of one window.
    pub window: Duration,
    /// Rounds.
    pub rounds: usize,
    /// Parts of names; none: everything.
    pub only: Vec<String>,
    /// How it is printed.
    pub form: Form,
    /// Only say how it is called.
    pub help: bool,
}

/// How the figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table for a terminal of 100 columns.
    Text,
    /// Everything, each round.
    Json,
    /// A table for a page.
    Markdown,
}

/// How it is called.
pub const USAGE: &str = "\
usage: figures [--seconds N] [--rounds N] [--only NAME]... [-j | --markdown]
  --seconds N  length of one measuring window, 0.1 to 60 (default 1)
  --rounds N   windows per behavior and data plane, 1 to 100; the median counts (default 5)
  --only NAME  only behaviors whose name has NAME in it (\"limits\": the limits); may be given again
  -j, --json   print JSON, with the rate of each round
  --markdown   print a table for the documentation
$SIDESTEP names the sidestep program; without it the one next to this program is used.";

impl Options {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// An argument is not one of [`USAGE`], or has no value that is allowed.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self {
            window: Duration::from_secs(1),
            rounds: 5,
            only: Vec::new(),
            form: Form::Text,
            help: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let refused = |what: &str| Error::Usage(format!("{argument}: {what}\n{USAGE}"));
            let mut value = || arguments.next().ok_or_else(|| refused("needs a value"));
            match argument.as_str() {
                "--seconds" => {
                    let seconds = value()?.parse().ok().filter(|n| (0.1..=60.0).contains(n));
                    let seconds = seconds.ok_or_else(|| refused("allowed are 0.1 to 60"))?;
                    options.window = Duration::from_secs_f64(seconds);
                }
                "--rounds" => {
                    let rounds = value()?.parse().ok().filter(|n| (1..=100).contains(n));
                    options.rounds = rounds.ok_or_else(|| refused("allowed are 1 to 100"))?;
                }
                "--only" => options.only.push(value()?),
                "-j" | "--json" | "--markdown" if options.form != Form::Text => {
                    return Err(refused("only one form"));
                }
                "-j" | "--json" => options.form = Form::Json,
                "--markdown" => options.form = Form::Markdown,
                "-h" | "--help" => options.help = true,
                _ => return Err(refused("not an option")),
            }
        }
        Ok(options)
    }

    /// The behaviors that are asked for, and whether the limits are.
    ///
    /// # Errors
    /// A name that nothing has; the message lists those there are.
    pub fn choose(&self, behaviors: &[Behavior]) -> Result<(Vec<Behavior>, bool), Error> {
        let matches = |name: &str, part: &str| name.to_lowercase().contains(&part.to_lowercase());
        let names: Vec<&str> = behaviors
            .iter()
            .map(|one| one.name.as_str())
            .chain([LIMITS])
            .collect();
        for part in &self.only {
            if !names.iter().any(|name| matches(name, part)) {
                let names = names.join("\n  ");
                return Err(Error::Usage(format!(
                    "--only {part}: no such name; there are\n  {names}"
                )));
            }
        }
        let asked =
            |name: &str| self.only.is_empty() || self.only.iter().any(|part| matches(name, part));
        let chosen = behaviors
            .iter()
            .filter(|one| asked(&one.name))
            .cloned()
            .collect();
        Ok((chosen, asked(LIMITS)))
    }
}

/// The name of what is no behavior.
const LIMITS: &str = "limits";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_what_is_not_allowed_is_refused_with_what_is() {
        let options =
            parse(&["--seconds", "0.5", "--rounds", "3", "--only", "End", "-j"]).expect("valid");
        assert_eq!(options.window, Duration::from_millis(500));
        assert_eq!((options.rounds, options.form), (3, Form::Json));
        for (words, said) in [
            (&["--seconds"][..], "needs a value"),
            (&["--seconds", "0"], "0.1 to 60"),
            (&["--seconds", "NaN"], "0.1 to 60"),
            (&["--rounds", "0"], "1 to 100"),
            (&["-j", "--markdown"], "only one form"),
            (&["--fast"], "not an option"),
        ] {
            let error = parse(words).expect_err("not allowed");
            assert!(
                error.contains(said) && error.contains("usage:"),
                "{words:?}: {error}"
            );
        }
    }

    #[test]
    fn a_part_of_a_name_in_any_case_chooses_and_an_unknown_one_lists_the_names() {
        let all = rows::all();
        let chosen = |words: &[&str]| {
            let (chosen, limits) = parse(words).expect("options").choose(&all).expect("names");
            (
                chosen
                    .iter()
                    .map(|one| one.name.clone())
                    .collect::<Vec<_>>(),
                limits,
            )
        };
        assert_eq!(
            chosen(&["--only", "end.t"]),
            (vec!["End.T".to_owned()], false)
        );
        assert_eq!(chosen(&["--only", "limits"]), (vec![], true));
        assert_eq!(chosen(&[]).0.len(), all.len());
        let error = parse(&["--only", "End.AN"])
            .expect("options")
            .choose(&all)
            .expect_err("no End.AN");
        assert!(
            error.to_string().contains("H.Encaps, 2 segments"),
            "{error}"
        );
    }
}
