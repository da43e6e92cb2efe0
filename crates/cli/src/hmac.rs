//! `sidestep hmac`: keys that sign SRHs and verify them.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use sidestep_control::api::{self, Request, SecretText};
use sidestep_control::report;
use sidestep_model::hmac::HmacAlgorithm;

use crate::{Outcome, secret, tables};

/// Arguments of `hmac`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set a key; the secret comes from standard input or a file
    Set(Key),
    /// Remove a key that was set so
    Del {
        /// HMAC Key ID
        #[arg(value_name = "KEYID", value_parser = clap::value_parser!(u32).range(1..))]
        key: u32,
    },
    /// Show the keys, those of `ip sr hmac` too; no secret is shown
    Show {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
}

/// A key to set.
#[derive(Debug, clap::Args)]
pub struct Key {
    /// HMAC Key ID
    #[arg(value_name = "KEYID", value_parser = clap::value_parser!(u32).range(1..))]
    pub key: u32,
    /// sha1 or sha256
    pub algorithm: HmacAlgorithm,
    /// Take the secret from the first line of this file, which not everybody may read
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Set(key) => {
            let secret = match &key.secret_file {
                Some(path) => secret::read_file(path)
                    .map_err(|error| format!("{}: {error}", path.display()))?,
                None => secret::read_stdin().map_err(|error| format!("standard input: {error}"))?,
            };
            api::call(Request::SetHmac {
                key: key.key,
                algorithm: key.algorithm,
                secret: SecretText(secret),
            })?;
            Ok(())
        }
        Command::Del { key } => {
            api::call(Request::DelHmac { key: *key })?;
            Ok(())
        }
        Command::Show { json } => {
            crate::show::show(Request::ShowHmac, *json, out, |keys: &report::HmacKeys| {
                vec![tables::hmac_keys(keys)]
            })
        }
    }
}
