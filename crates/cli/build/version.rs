//! The version that a program prints. For the build scripts of this crate and of the benchmark.

use std::env;
use std::process::Command;

/// Sets `SIDESTEP_GIT` to the commit that is built, and `SIDESTEP_VERSION` to version and commit.
/// `sources` are the folders whose changes make the commit `-dirty`.
pub fn set(sources: &[&str]) {
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it for build scripts");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
    };
    let commit = git(&[
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=12",
        "--dirty",
    ]);
    if let (Some(commit), Some(log)) = (commit, git(&["rev-parse", "--git-path", "logs/HEAD"])) {
        println!("cargo:rerun-if-changed={log}");
        for folder in sources {
            println!("cargo:rerun-if-changed={folder}");
        }
        println!("cargo:rustc-env=SIDESTEP_GIT={commit}");
        println!("cargo:rustc-env=SIDESTEP_VERSION={version} ({commit})");
    } else {
        println!("cargo:rustc-env=SIDESTEP_VERSION={version}");
    }
}
