//! `sidestep-bench report DIR`: renders all files of a report from its `report.json` again.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::campaign::log::is_campaign;
use crate::report;

use super::Outcome;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A report.json, the folder that contains it, or the folder of a campaign
    pub from: PathBuf,
    /// Output folder [default: the folder of report.json]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let made_from = super::read(&args.from)?;
    let beside = if args.from.is_dir() {
        &args.from
    } else {
        args.from.parent().unwrap_or(Path::new(""))
    };
    match &args.output {
        Some(folder) => report::write(&made_from, folder)?,
        None if is_campaign(&args.from) => report::write(&made_from, beside)?,
        None => report::render(&made_from, beside)?,
    }
    let folder = args.output.as_deref().unwrap_or(beside);
    writeln!(out, "{}", folder.join(report::HTML).display())?;
    Ok(())
}
