//! `sidestep bench report DIR`: everything that is made of a `report.json`, made again.

use std::io::Write;
use std::path::{Path, PathBuf};

use sidestep_bench::report;

use crate::Outcome;

/// Arguments of `bench report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A report.json, or the folder that holds it
    pub from: PathBuf,
    /// Where to put what is made [default: beside the report.json]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let made_from = report::read(&args.from)?;
    let beside = if args.from.is_dir() {
        &args.from
    } else {
        args.from.parent().unwrap_or(Path::new(""))
    };
    match &args.output {
        Some(folder) => report::write(&made_from, folder)?,
        None => report::render(&made_from, beside)?,
    }
    let folder = args.output.as_deref().unwrap_or(beside);
    writeln!(out, "{}", folder.join(report::HTML).display())?;
    Ok(())
}
