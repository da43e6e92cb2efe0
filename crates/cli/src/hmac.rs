//! `sidestep hmac`: keys that sign and verify SRHs.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use sidestep_control::api::{self, Request, SecretText};
use sidestep_control::report;
use sidestep_model::hmac::HmacAlgorithm;

use crate::number::number;
use crate::{Outcome, secret, tables};

/// Arguments of `hmac`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set a key; the secret is read from standard input or a file
    Set(Key),
    /// Remove a key added with `hmac set`
    Del {
        /// HMAC Key ID
        #[arg(value_name = "KEYID", allow_negative_numbers = true, value_parser = number(1..=u32::MAX))]
        key: u32,
    },
    /// Show all keys, including those of `ip sr hmac`, without their secrets
    Show {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
}

/// Arguments of `hmac set`.
#[derive(Debug, clap::Args)]
pub struct Key {
    /// HMAC Key ID
    #[arg(value_name = "KEYID", allow_negative_numbers = true, value_parser = number(1..=u32::MAX))]
    pub key: u32,
    /// Algorithm: sha1 or sha256
    pub algorithm: HmacAlgorithm,
    /// Read the secret from the first line of FILE (must not be world-readable)
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
