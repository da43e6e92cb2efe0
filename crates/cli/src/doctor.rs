//! `sidestep doctor`: checks of the configuration that decides whether packets are forwarded.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::doctor::{Plan, other_version};
use sidestep_control::report::{Problem, Severity, Status};

use crate::run::{ModeWord, mode_of, pin_root_of, ports_of, read_config};
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

/// Prints each problem with the command that repairs it.
fn print(problems: &BTreeSet<Problem>, out: &mut dyn Write) -> std::io::Result<()> {
    if problems.is_empty() {
        return writeln!(out, "no problems");
    }
    for problem in problems {
        let severity = problem.severity.name();
        writeln!(out, "{severity:<7} {}: {}", problem.code, problem.sentence)?;
        if let Some(repair) = &problem.repair {
            writeln!(out, "        {repair}")?;
        }
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
    let plan = Plan {
        ports: ports_of(&args.ports, &config)?,
        mode: mode_of(args.mode, &config),
        pin_root: pin_root_of(args.pin_root.as_deref(), &config),
        config,
    };
    Ok(plan.examine()?)
}
