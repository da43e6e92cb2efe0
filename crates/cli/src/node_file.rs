//! The YAML file that holds a node, with the name of the file in every error.

use std::io;
use std::path::{Path, PathBuf};

use sidestep_model::ConfigError;
use sidestep_model::config::File;
use sidestep_model::node::Node;
use thiserror::Error;

use crate::secret;

/// A node file cannot be used.
#[derive(Debug, Error)]
pub enum NodeFileError {
    /// It was not read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{}: {source}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What, with line and column.
        source: ConfigError,
    },
}

/// Reads the node that a file describes.
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

/// Reads the secrets that a file at `path` names files for: relative to the folder that it is in.
pub fn read_secrets(file: &mut File, path: &Path) -> Result<(), ConfigError> {
    let folder = path.parent().unwrap_or(path);
    file.read_secrets(|name| secret::read_file(&folder.join(name)))
}
