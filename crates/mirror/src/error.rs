//! Errors of the communication with the kernel.

use std::io;

/// A failed operation.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A socket could not be opened, configured, written or read.
    #[error("netlink: cannot {operation}: {source}{}", needs(source))]
    Socket {
        /// Operation that failed.
        operation: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("netlink: the kernel refused to {request}: {source}{}", needs(source))]
    Refused {
        /// Requested object.
        request: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel's reply lacks a part that the request needs.
    #[error("netlink: the reply to '{request}' has no {missing}")]
    Answer {
        /// Requested object.
        request: &'static str,
        /// Missing part of the reply.
        missing: &'static str,
    },
    /// A file below `/proc/sys/net` exists but cannot be read.
    #[error("cannot read {path}: {source}{}", needs(source))]
    Sysctl {
        /// The file.
        path: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl MirrorError {
    /// Returns the error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. }
            | Self::Refused { source, .. }
            | Self::Sysctl { source, .. } => source.raw_os_error(),
            Self::Answer { .. } => None,
        }
    }
}

/// Corrective action for the operator.
fn needs(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (needs CAP_NET_ADMIN in the user namespace that owns the network namespace)"
        }
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => {
            " (needs a kernel with netlink sockets of this kind)"
        }
        Some(libc::EMFILE | libc::ENFILE) => " (needs a higher limit of open files)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named() {
        let error = MirrorError::Refused {
            request: "get the tunnel source",
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        assert_eq!(error.errno(), Some(libc::EPERM));
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}
