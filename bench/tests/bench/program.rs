//! The two programs, and a folder for the files of one test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Path of the `sidestep-bench` program.
pub const BENCH: &str = env!("CARGO_BIN_EXE_sidestep-bench");

/// Returns the path of the `sidestep` program that `sidestep-bench` measures.
///
/// # Panics
/// The program was not built.
pub fn router() -> PathBuf {
    let path = match env::var_os("SIDESTEP") {
        Some(path) => PathBuf::from(path),
        None => Path::new(BENCH).with_file_name("sidestep"),
    };
    assert!(
        path.is_file(),
        "{} is missing: cargo build -p sidestep",
        path.display()
    );
    path
}

/// Runs `sidestep-bench`.
pub fn bench(args: &[&str]) -> Output {
    Command::new(BENCH)
        .args(args)
        .output()
        .expect("the program was built")
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A temporary folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("writable");
        self.path(name)
    }
}
