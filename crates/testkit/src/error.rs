//! Errors of the testkit.

use std::io;
use std::path::PathBuf;

/// One error type for the whole lab: it is met by people who read it, not by code that branches on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused something.
    #[error("{what}: {source}")]
    Os {
        /// Request and its names.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A command could not be started or did not end with 0.
    #[error("`{command}` in {namespace}: {status}{}{stderr}", if stderr.is_empty() { "" } else { ": " })]
    Command {
        /// The words.
        command: String,
        /// The namespace it ran in.
        namespace: String,
        /// Exit code or signal.
        status: String,
        /// Its output, without the last line end.
        stderr: String,
    },
    /// libbpf or the verifier refused something.
    #[error("{what}: {source}")]
    Bpf {
        /// Request.
        what: String,
        /// The answer, with libbpf's chain of reasons.
        source: libbpf_rs::Error,
    },
    /// The lab was asked for something that it does not have or cannot make.
    #[error("{0}")]
    Usage(String),
    /// The result is not the expected one: other bytes, another path, or no packet.
    #[error("{0}")]
    Wrong(String),
    /// The program was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A vector file that cannot be read.
    #[error("{path}: {reason}", path = path.display())]
    Vectors {
        /// The file.
        path: PathBuf,
        /// Line and column if known, problem, and allowed values.
        reason: String,
    },
    /// Something that had to happen did not.
    #[error("{what}: not within {milliseconds} ms")]
    Timeout {
        /// The awaited condition.
        what: String,
        /// How long.
        milliseconds: u128,
    },
}

impl Error {
    /// The kernel's answer to `what`.
    pub fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os {
            what: what.into(),
            source: source.into(),
        }
    }

    /// `errno`, as the answer to `what`.
    pub fn last_os(what: impl Into<String>) -> Self {
        Self::os(what, io::Error::last_os_error())
    }

    /// libbpf's answer to `what`.
    pub fn bpf(what: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::Bpf {
            what: what.into(),
            source,
        }
    }
}
