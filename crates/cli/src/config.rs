//! `sidestep config`: shows, compares, changes, saves and reloads the running configuration.

mod save;

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use sidestep_control::api::{self, ApiError, ConfigText, Request, SecretText};
use sidestep_control::report::{Config, Difference};
use sidestep_model::config::File;
use sidestep_model::config::entries::yaml;

use crate::number::number;
use crate::tables::count;
use crate::{Outcome, check, node_file};

/// Exit status of `diff` if there is no result, as of diff(1).
const FAILED: u8 = 2;

/// Arguments of `config`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the running configuration as a node file; HMAC keys have no secret in it
    Show(Json),
    /// Validate a node file
    Check(check::Args),
    /// Print what `apply` would change
    #[command(after_help = "Exit status: 0 no difference, 1 differences, 2 the comparison failed")]
    Diff(Against),
    /// Make a node file the running configuration, all or nothing, and print what changed
    #[command(
        after_help = "Entries of the running configuration that the file lacks are removed. \
        Without the key `ports`, the ports stay. An HMAC key without a secret keeps the running \
        one."
    )]
    Apply(Apply),
    /// Write the running configuration to a node file
    #[command(
        after_help = "The previous file is kept as FILE.bak. The saved file has the running \
        configuration only: comments, routes with `owner kernel` and settings of ports for `replay` \
        are not in it."
    )]
    Save(save::Args),
    /// Keep the configuration of `apply --confirm`
    Confirm,
    /// Read the node file of `sidestep run` again and apply it, as SIGHUP does
    Reload(Json),
}

/// Output options.
#[derive(Debug, clap::Args)]
pub struct Json {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Arguments of `config diff`.
#[derive(Debug, clap::Args)]
pub struct Against {
    /// Node file (YAML)
    pub file: PathBuf,
    /// Output options.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `config apply`.
#[derive(Debug, clap::Args)]
pub struct Apply {
    /// Node file (YAML)
    pub file: PathBuf,
    /// Return to the previous configuration unless `sidestep config confirm` follows within this
    /// time
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = number(1..=86_400u32))]
    pub confirm: Option<u32>,
    /// Output options.
    #[command(flatten)]
    pub json: Json,
}

/// The result of `config diff`, if the configurations differ or cannot be compared.
#[derive(Debug)]
pub enum DiffError {
    /// Number of differences.
    Differs(usize),
    /// The comparison failed.
    Failed(Box<dyn Error + Send + Sync>),
}

impl DiffError {
    /// Exit status.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Differs(_) => 1,
            Self::Failed(_) => FAILED,
        }
    }
}

impl fmt::Display for DiffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(entries) => f.write_str(&count(*entries as u64, "difference")),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for DiffError {}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Show(json) => show(json, out),
        Command::Check(args) => check::run(args, out),
        Command::Diff(args) => {
            let difference = diff(&args.file).map_err(DiffError::Failed)?;
            print(&difference, &args.json, out)?;
            match difference.removed.len() + difference.added.len() {
                0 => Ok(()),
                entries => Err(DiffError::Differs(entries).into()),
            }
        }
        Command::Apply(args) => apply(args, out),
        Command::Save(args) => save::run(args, out),
        Command::Confirm => {
            api::call(Request::ConfirmConfig)?;
            Ok(())
        }
        Command::Reload(json) => print(&api::ask(Request::ReloadConfig)?, json, out),
    }
}

fn show(json: &Json, out: &mut dyn Write) -> Outcome {
    let entries: Config = api::ask(Request::ShowConfig)?;
    if json.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&entries)?)?;
    } else {
        write!(out, "{}", yaml(&entries))?;
    }
    Ok(())
}

fn diff(path: &Path) -> Result<Difference, Box<dyn Error + Send + Sync>> {
    let config = read(path)?;
    api::ask(Request::DiffConfig { config }).map_err(|error| in_file(path, error))
}

fn apply(args: &Apply, out: &mut dyn Write) -> Outcome {
    let request = Request::ApplyConfig {
        config: read(&args.file)?,
        confirm: args.confirm,
    };
    let difference: Difference = api::ask(request).map_err(|error| in_file(&args.file, error))?;
    print(&difference, &args.json, out)?;
    if let Some(seconds) = args.confirm.filter(|_| !difference.is_empty()) {
        eprintln!(
            "sidestep: the previous configuration returns in {seconds} s unless `sidestep config \
             confirm` follows"
        );
    }
    Ok(())
}

/// Reads a node file, with the secrets of the files that it names. Errors in the file appear here,
/// as in `sidestep check`.
fn read(path: &Path) -> Result<ConfigText, Box<dyn Error + Send + Sync>> {
    let (text, file) = node_file::read_text(path)?;
    Ok(with_secrets(text, &file))
}

fn with_secrets(text: String, file: &File) -> ConfigText {
    let secrets = file.secrets();
    let secrets = secrets.map(|(id, secret)| (id, SecretText(secret.clone())));
    ConfigText {
        text,
        secrets: secrets.collect(),
    }
}

/// The daemon's refusals are about the file.
fn in_file(path: &Path, error: ApiError) -> Box<dyn Error + Send + Sync> {
    match error {
        ApiError::Refused(why) => format!("{}: {why}", path.display()).into(),
        error => error.into(),
    }
}

fn print(difference: &Difference, json: &Json, out: &mut dyn Write) -> Outcome {
    if json.json {
        writeln!(out, "{}", serde_json::to_string_pretty(difference)?)?;
    } else {
        for line in difference.lines() {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
