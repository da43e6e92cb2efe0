//! `sidestep stop`: ends the daemon, or removes the programs and pins of a dead one.

use std::io::Write;
use std::path::PathBuf;

use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::daemon::remove_left;
use sidestep_control::report::Stopped;

use crate::Outcome;
use crate::tables::count;

/// Number of changes that are printed.
const CHANGES_MAX: usize = 10;

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the pins that a dead daemon left [default: that of the last daemon]
    #[arg(long, value_name = "DIR")]
    pub pin_root: Option<PathBuf>,
    /// Leave programs, tables and changes by commands to the next `sidestep run`; packets are
    /// forwarded meanwhile
    #[arg(long, conflicts_with = "pin_root")]
    pub keep: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    match api::ask::<Stopped>(Request::Stop { keep: args.keep }) {
        Ok(stopped) => print(&stopped, args.keep, out),
        Err(ApiError::NotRunning) if args.keep => {
            Err("there is no daemon to stop; what a dead one left stays".into())
        }
        Err(ApiError::NotRunning) if remove_left(args.pin_root.as_deref())? => {
            writeln!(
                out,
                "removed the programs and pins of a dead daemon; forwarding is back in the kernel"
            )?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints what ended.
fn print(stopped: &Stopped, keep: bool, out: &mut dyn Write) -> Outcome {
    let ports = match &stopped.ports[..] {
        [] => "no port".to_owned(),
        ports => ports.join(", "),
    };
    let lines = stopped.changes.lines();
    let changes = count(lines.len() as u64, "change");
    if keep {
        writeln!(
            out,
            "the daemon ended; programs stay attached to {ports}, and the next `sidestep run` takes \
             them over with {changes} by commands"
        )?;
        return Ok(());
    }
    writeln!(
        out,
        "detached from {ports}; forwarding is back in the kernel"
    )?;
    if !lines.is_empty() {
        writeln!(
            out,
            "removed {changes} by commands, which no node file has:"
        )?;
    }
    for line in lines.iter().take(CHANGES_MAX) {
        writeln!(out, "  {line}")?;
    }
    if lines.len() > CHANGES_MAX {
        writeln!(out, "  ... and {} more", lines.len() - CHANGES_MAX)?;
    }
    Ok(())
}
