//! Errors between the mirror and the kernel.

use std::io;

/// An operation on the kernel's side that failed.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A socket could not be opened, configured, written or read.
    #[error("netlink: cannot {operation}: {source}{}", needs(source))]
    Socket {
        /// Operation that failed.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("netlink: the kernel refused to {request}: {source}{}", needs(source))]
    Refused {
        /// Requested object.
        request: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel's answer is not of the form that the request asks for.
    #[error("netlink: the answer to '{request}' has no {missing}")]
    Answer {
        /// Requested object.
        request: &'static str,
        /// Missing part of the reply.
        missing: &'static str,
    },
    /// A file below `/proc/sys/net` is there but cannot be read.
    #[error("cannot read {path}: {source}{}", needs(source))]
    Sysctl {
        /// The file.
        path: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl MirrorError {
    /// The error number, where the kernel gave one.
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
            request: "give the tunnel source",
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        assert_eq!(error.errno(), Some(libc::EPERM));
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}
