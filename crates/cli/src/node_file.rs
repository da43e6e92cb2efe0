//! Reading of node files. Every error names the file.

use std::io;
use std::path::{Path, PathBuf};

use sidestep_control::api;
use sidestep_datapath::Limits;
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
    /// The file has a secret that everybody can read.
    #[error("{}: {why}", .path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Description.
        why: String,
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

/// Reads the node of a file for `replay`. Its secrets may be world-readable, as in an example.
pub fn read(path: &Path) -> Result<Node, NodeFileError> {
    let (_, file) = read_with(path, |_| Ok(()))?;
    node(&file, path)
}

/// Returns the node that a file describes.
pub fn node(file: &File, path: &Path) -> Result<Node, NodeFileError> {
    file.node().map_err(|source| wrong(path, source))
}

/// Reads a node file with its secrets. A world-readable file with secrets is refused. Returns its
/// text, too.
pub fn read_text(path: &Path) -> Result<(String, File), NodeFileError> {
    read_with(path, secret::check_mode)
}

fn read_with(
    path: &Path,
    check: impl Fn(&std::fs::Metadata) -> Result<(), String>,
) -> Result<(String, File), NodeFileError> {
    let read = |source| NodeFileError::Read {
        path: path.into(),
        source,
    };
    let text = text(path).map_err(read)?;
    let mut file = File::parse(&text).map_err(|source| wrong(path, source))?;
    file.limits(|table, size| Limits::default().set(table, size))
        .map_err(|source| wrong(path, source))?;
    file.group(api::gid).map_err(|source| wrong(path, source))?;
    if file.holds_secrets() && path != Path::new(STDIN) {
        check(&std::fs::metadata(path).map_err(read)?).map_err(|why| NodeFileError::Readable {
            path: path.into(),
            why,
        })?;
    }
    read_secrets(&mut file, path)?;
    Ok((text, file))
}

/// Name of standard input.
pub const STDIN: &str = "-";

fn text(path: &Path) -> io::Result<String> {
    if path == Path::new(STDIN) {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    }
}

/// Checks that a file can be read more than once. A pipe would block its second reader.
///
/// # Errors
/// The file is no regular file.
pub fn check_regular(path: &Path) -> Result<(), String> {
    let is_other = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if !is_other {
        return Ok(());
    }
    let path = path.display();
    Err(format!(
        "{path}: no regular file, and the daemon reads it again; expected one"
    ))
}

/// Reads the secrets of the files that a node file at this path names.
pub fn read_secrets(file: &mut File, path: &Path) -> Result<(), NodeFileError> {
    let folder = path.parent().unwrap_or(path);
    file.read_secrets(|name| secret::read_file(&folder.join(name)))
        .map_err(|source| wrong(path, source))
}

fn wrong(path: &Path, source: ConfigError) -> NodeFileError {
    NodeFileError::Wrong {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_world_readable_file_with_a_secret_is_for_replay_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("node.yaml");
        let keys = "hmac: {7: {algorithm: sha256, secret: \"hush\"}}";
        fs::write(&path, keys).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        assert_eq!(read(&path).expect("legal").hmac_keys.len(), 1);
        let refused = read_text(&path).expect_err("readable").to_string();
        assert!(refused.contains("world-readable"), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        assert_eq!(read_text(&path).expect("legal").0, keys);
    }
}
