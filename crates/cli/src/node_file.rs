//! Reading of node files. Every error names the file.

use std::io;
use std::path::{Path, PathBuf};

use sidestep_model::ConfigError;
use sidestep_model::config::File;
use sidestep_model::node::Node;
use thiserror::Error;

use crate::secret;

/// Error in a node file.
#[derive(Debug, Error)]
pub enum NodeFileError {
    /// The file was not read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("{}: {source}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        source: ConfigError,
    },
}

/// Reads a node file.
pub fn read(path: &Path) -> Result<Node, NodeFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| NodeFileError::Read {
        path: path.into(),
        source,
    })?;
    let node = File::parse(&text).and_then(|mut file| {
        read_secrets(&mut file, path)?;
        file.node()
    });
    node.map_err(|source| NodeFileError::Wrong {
        path: path.into(),
        source,
    })
}

/// Reads the secrets from the files that the node file names, relative to the directory of `path`.
pub fn read_secrets(file: &mut File, path: &Path) -> Result<(), ConfigError> {
    let folder = path.parent().unwrap_or(path);
    file.read_secrets(|name| secret::read_file(&folder.join(name)))
}
