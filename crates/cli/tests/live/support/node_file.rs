//! Node files of the tests.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A node file in a folder of its own.
pub struct NodeFile {
    folder: TempDir,
}

impl NodeFile {
    pub fn new(text: &str) -> Self {
        let file = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        file.write(text);
        file
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("node.yaml")
    }

    pub fn text(&self) -> String {
        self.path().to_str().expect("UTF-8").to_owned()
    }

    pub fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("written");
    }
}
