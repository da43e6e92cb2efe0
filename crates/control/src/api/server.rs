//! Server side: a listening socket for root, and optionally for a group. The event loop serves it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, chown};
use serde::Serialize;

use super::{Reply, Request, parse_request};

/// LIMIT: bytes of one request. A node file of 100,000 routes fits.
const REQUEST_MAX: u64 = 16 << 20;
/// Time limit for reading a request, so that a silent client cannot block the event loop. Replies
/// do not block it (`daemon/replies.rs`).
const TIMEOUT: Duration = Duration::from_millis(200);

pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
}

/// A request that waits for its reply.
pub(crate) struct Incoming {
    stream: UnixStream,
    /// The request, or the error to reply with.
    pub(crate) request: Result<Request, String>,
}

impl Server {
    /// Listens at `path` for root and the members of `group`. Replaces a socket that a dead daemon
    /// left.
    pub(crate) fn listen(path: &Path, group: Option<Gid>) -> std::io::Result<Self> {
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        // Access is restricted from the start, whatever the umask is. The process has one thread.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let listener = bound?;
        if group.is_some() {
            // Group members must be able to reach the socket, whatever the umask is.
            for folder in path.ancestors().skip(1).take(2) {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
            }
            chown(path, None, group)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        }
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns the next waiting request, if any.
    pub(crate) fn accept(&self) -> Option<Incoming> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        let mut line = String::new();
        let until = Instant::now() + TIMEOUT;
        let within = DeadlineReader {
            stream: &stream,
            until,
        };
        BufReader::new(within.take(REQUEST_MAX))
            .read_line(&mut line)
            .ok()?;
        let request = parse_request(&line);
        Some(Incoming { stream, request })
    }
}

/// A stream with a deadline for all reads together.
struct DeadlineReader<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A zero timeout would mean no timeout.
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A remaining file would look like a daemon that hangs.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Incoming {
    /// Returns the stream for the reply, in non-blocking mode.
    pub(crate) fn into_stream(self) -> std::io::Result<UnixStream> {
        self.stream.set_nonblocking(true)?;
        Ok(self.stream)
    }

    /// Makes a request whose client is the peer of this socket.
    #[cfg(test)]
    pub(crate) fn from(stream: UnixStream) -> Self {
        let request = Ok(Request::ShowStatus);
        Self { stream, request }
    }
}

/// Encodes a reply as one line.
pub(crate) fn line(result: Result<impl Serialize, String>) -> Vec<u8> {
    let answer = match result {
        Ok(value) => Reply::Ok(value),
        Err(message) => Reply::Error { message },
    };
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    line
}
