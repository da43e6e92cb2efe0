//! `sidestep stop`: ends the daemon, or removes the programs and pins of a dead one.

use std::io::Write;
use std::path::PathBuf;

use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::daemon::remove_left;

use crate::Outcome;

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the pins that a dead daemon left [default: that of the last daemon]
    #[arg(long, value_name = "DIR")]
    pub pin_root: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    match api::call(Request::Stop) {
        Ok(_) => Ok(()),
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
