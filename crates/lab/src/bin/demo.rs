//! `./dev demo`: see `sidestep_lab::demo`.

use std::process::ExitCode;

use sidestep_lab::demo::{Error, Request, run, tell_failure};

fn main() -> ExitCode {
    let told = Request::parse(std::env::args().skip(1)).and_then(run);
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell_failure(&error);
            match error {
                Error::Interrupted => ExitCode::from(130),
                Error::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
