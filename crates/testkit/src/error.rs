//! Errors of the testkit.

use std::io;
use std::path::PathBuf;

/// One error type for the whole testkit, because people read these errors and no code branches on
/// them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("{what}: {source}")]
    Os {
        /// The request.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A command could not be started, or exited with a code other than 0.
    #[error("`{command}` in {namespace}: {status}{}{stderr}", if stderr.is_empty() { "" } else { ": " })]
    Command {
        /// The command line.
        command: String,
        /// The namespace of the command.
        namespace: String,
        /// Exit code or signal.
        status: String,
        /// Output on stderr, without the last line end.
        stderr: String,
    },
    /// libbpf or the verifier refused a request.
    #[error("{what}: {source}")]
    Bpf {
        /// Request.
        what: String,
        /// The error, with libbpf's chain of causes.
        source: libbpf_rs::Error,
    },
    /// The caller requested something impossible, such as a missing node.
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
    /// A condition was not met in time.
    #[error("{what}: not within {milliseconds} ms")]
    Timeout {
        /// The awaited condition.
        what: String,
        /// The time limit.
        milliseconds: u128,
    },
}

impl Error {
    /// Returns the error for an error number of the kernel. `what` is the request.
    pub fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Returns the error for `errno`. `what` is the request.
    pub fn last_os(what: impl Into<String>) -> Self {
        Self::os(what, io::Error::last_os_error())
    }

    /// Returns the error for an error of libbpf. `what` is the request.
    pub fn bpf(what: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::Bpf {
            what: what.into(),
            source,
        }
    }
}
