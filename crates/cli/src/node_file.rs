//! The YAML file that holds a node, with the name of the file in every error.

use std::io;
use std::path::{Path, PathBuf};

use sidestep_model::ConfigError;
use sidestep_model::config::File;
use sidestep_model::node::Node;
use thiserror::Error;

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
    let node = File::parse(&text).and_then(|file| file.node());
    node.map_err(|source| NodeFileError::Wrong {
        path: path.into(),
        source,
    })
}
