//! `sidestep-bench completion SHELL`: a completion script, generated from the command tree.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::{Cli, Outcome};

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell that reads the script
    pub shell: Shell,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let mut script = Vec::new();
    generate(
        args.shell,
        &mut Cli::command(),
        "sidestep-bench",
        &mut script,
    );
    // clap_complete 4.6 joins the parts of a name with a hyphen by `__subcmd__` in the labels of
    // bash's `case`, and by `__` in the values that select them.
    let script = String::from_utf8_lossy(&script);
    out.write_all(
        script
            .replace("sidestep__subcmd__bench", "sidestep__bench")
            .as_bytes(),
    )?;
    Ok(())
}
