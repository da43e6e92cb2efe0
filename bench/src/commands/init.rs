//! `sidestep-bench init`: writes a campaign template.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::campaign::file::TEMPLATE;

use super::Outcome;

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to write; an existing file is not overwritten
    #[arg(default_value = "campaign.yaml")]
    pub file: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let name = args.file.display();
    let failed = |error| format!("{name}: {error}");
    let mut file = File::create_new(&args.file).map_err(failed)?;
    file.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    writeln!(out, "{name}")?;
    Ok(())
}
