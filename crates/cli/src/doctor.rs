//! `sidestep doctor`: checks of the configuration that decides whether packets are forwarded.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use ratatui::crossterm::terminal;
use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::daemon::former_pin_root;
use sidestep_control::doctor::{Plan, codes, other_version};
use sidestep_control::report::{Problem, Severity, Status};

use crate::run::{ModeWord, mode_of, pin_root_of, ports_of, read_config};
use crate::style::{Ink, Style};
use crate::tables::count;
use crate::{Outcome, VERSION, netns};

/// Exit status if the checks could not be made.
const FAILED: u8 = 3;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 no error and no warning, 1 warnings, 2 errors, 3 the checks failed"
)]
pub struct Args {
    /// Check the ports and routes of a node file (YAML) instead of those of the daemon
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Hook at which the named ports would attach [default: auto]
    #[arg(long, value_enum)]
    pub mode: Option<ModeWord>,
    /// Directory on a BPF file system for pins
    /// [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pin_root: Option<PathBuf>,
    /// Print the repairs of all findings with this code, one command per line
    #[arg(long, value_name = "CODE", conflicts_with_all = ["json", "config", "ports"])]
    pub repairs: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
    /// Check this interface instead of the ports of the daemon
    #[arg(value_name = "PORT")]
    pub ports: Vec<String>,
}

/// The result of `doctor`, if it is not a success.
#[derive(Debug)]
pub enum DoctorError {
    /// Number of errors, and of warnings.
    Found(usize, usize),
    /// The checks could not be made.
    Failed(Box<dyn Error + Send + Sync>),
}

impl DoctorError {
    /// Exit status.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Found(0, _) => 1,
            Self::Found(..) => 2,
            Self::Failed(_) => FAILED,
        }
    }
}

impl fmt::Display for DoctorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(errors, warnings) => {
                let (errors, warnings) = (
                    count(*errors as u64, "error"),
                    count(*warnings as u64, "warning"),
                );
                write!(f, "{errors}, {warnings}")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for DoctorError {}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(code) = &args.repairs {
        return print_repairs(code, out).map_err(|error| DoctorError::Failed(error).into());
    }
    let problems = examine(args).map_err(DoctorError::Failed)?;
    let problems = problems.into_iter().map(netns::from_outside).collect();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&problems)?)?;
    } else {
        print(&problems, out)?;
    }
    let of = |severity| problems.iter().filter(|it| it.severity == severity).count();
    match (of(Severity::Error), of(Severity::Warning)) {
        (0, 0) => Ok(()),
        (errors, warnings) => Err(DoctorError::Found(errors, warnings).into()),
    }
}

/// Space in front of what follows a severity.
const INDENT: &str = "        ";

/// Splits a text into lines of at most so many characters, between words. A longer word has a line
/// of its own.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Prints each problem with the command that repairs it.
fn print(problems: &BTreeSet<Problem>, out: &mut dyn Write) -> std::io::Result<()> {
    if problems.is_empty() {
        return writeln!(out, "no problems");
    }
    let style = Style::of_stdout();
    // A line per problem for programs.
    let columns = if std::io::stdout().is_terminal() {
        terminal::size().map_or(usize::MAX, |(columns, _)| columns.into())
    } else {
        usize::MAX
    };
    for problem in problems {
        let ink = match problem.severity {
            Severity::Error => Ink::Removed,
            Severity::Warning => Ink::Changed,
            Severity::Note => Ink::Dim,
        };
        let severity = style.paint(ink, format!("{:<7}", problem.severity.name()));
        let text = format!("{}: {}", problem.code, problem.description());
        let lines = wrap(&text, columns.saturating_sub(INDENT.len()));
        writeln!(out, "{severity} {}", lines.join(&format!("\n{INDENT}")))?;
        if let Some(repair) = &problem.repair {
            writeln!(out, "{INDENT}{repair}")?;
        }
    }
    Ok(())
}

/// Prints the repairs of all findings of a kind.
fn print_repairs(code: &str, out: &mut dyn Write) -> Outcome {
    if !codes().any(|known| known.name == code) {
        let error = format!("--repairs {code}: there is no such code (see `sidestep doctor -j`)");
        return Err(error.into());
    }
    let code = code.to_owned();
    let repairs: Vec<String> = api::ask(Request::ShowRepairs { code })?;
    for repair in repairs {
        writeln!(out, "{}", netns::command_from_outside(repair))?;
    }
    Ok(())
}

fn examine(args: &Args) -> Result<BTreeSet<Problem>, Box<dyn Error + Send + Sync>> {
    if args.ports.is_empty() && args.config.is_none() {
        match api::ask::<Status>(Request::ShowStatus) {
            Ok(status) => {
                let other = other_version(VERSION, &status);
                return Ok(status.problems.into_iter().chain(other).collect());
            }
            Err(ApiError::NotRunning) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let config = read_config(args.config.as_deref())?;
    // A dead daemon may have had a root of its own.
    let former = former_pin_root().filter(|_| config.pin_root().is_none());
    let pin_root = args.pin_root.as_deref().or(former.as_deref());
    let plan = Plan {
        ports: ports_of(&args.ports, &config)?,
        mode: mode_of(args.mode, &config),
        pin_root: pin_root_of(pin_root, &config),
        config,
    };
    Ok(plan.examine()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_between_words() {
        assert_eq!(wrap("port eth1 is down", 10), ["port eth1", "is down"]);
        assert_eq!(wrap("port eth1 is down", usize::MAX), ["port eth1 is down"]);
        assert_eq!(wrap("a unbreakable b", 5), ["a", "unbreakable", "b"]);
    }
}
