//! `sidestep manual FOLDER`: writes the manual pages of `sidestep` and its commands, generated from
//! the command tree. The package contains them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::{Cli, Outcome};

/// Arguments of `manual`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the pages
    pub folder: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// A page cannot be written.
pub fn run(args: &Args) -> Outcome {
    fs::create_dir_all(&args.folder)?;
    let mut root = Cli::command().disable_help_subcommand(true);
    // Adds global options to the subcommands, and names them `sidestep-run` and so on.
    root.build();
    write(&root, &args.folder)
}

/// Writes the page of a command, and those of its subcommands.
fn write(command: &clap::Command, folder: &Path) -> Outcome {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut page = Vec::new();
    Man::new(command.clone())
        .title(name.to_uppercase())
        .section("8")
        .manual("Sidestep")
        .render(&mut page)?;
    fs::write(folder.join(format!("{name}.8")), page)?;
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown.into_iter().try_for_each(|it| write(it, folder))
}
