//! Runs vector files on the Linux kernel: `cargo run -p sidestep-testkit --example linux_vectors --
//! vectors/end.yaml`.

use std::path::Path;
use std::process::ExitCode;

use sidestep_testkit::vectors::VectorFile;
use sidestep_testkit::{linux, root_or_skip};

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        eprintln!("usage: linux_vectors FILE.yaml...");
        return ExitCode::from(2);
    }
    if !root_or_skip() {
        return ExitCode::FAILURE;
    }
    let mut right = true;
    for path in paths {
        match VectorFile::read(Path::new(&path)).and_then(|file| linux::run(&file)) {
            Ok(report) => {
                print!("{report}");
                right &= report.failed.is_empty();
            }
            Err(error) => {
                eprintln!("{error}");
                right = false;
            }
        }
    }
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
