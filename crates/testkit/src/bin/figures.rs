//! How many packets a second, behavior by behavior, beside Linux: see `sidestep_testkit::figures`.

use std::process::ExitCode;

use sidestep_testkit::figures::{Error, Options, run};

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| run(&options));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            match error {
                Error::Interrupted => ExitCode::from(130),
                Error::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
