//! The daemon's side: a listening socket that only root can reach, and a group if that was asked for, answered between two
//! rounds of the event loop.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, chown};
use serde_json::Value;

use super::{Answer, Request, parse_request};

/// LIMIT: bytes of one request.
const REQUEST_MAX: u64 = 1 << 20;
/// A client gets this long for its line, so that a silent one cannot stop the event loop. For reading its answer it gets as long
/// as it takes, almost: nothing waits for that (`daemon/replies.rs`).
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
}

/// A request that waits for its answer.
pub(crate) struct Incoming {
    stream: UnixStream,
    /// Or what to answer, as it is none.
    pub(crate) request: Result<Request, String>,
}

impl Server {
    /// Listens at `path`, in the place of a socket that nobody answers any more, for root and the members of `group`.
    pub(crate) fn listen(path: &Path, group: Option<Gid>) -> std::io::Result<Self> {
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        // Nobody else's from its first moment on, whatever the umask is. There is one thread.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let listener = bound?;
        if group.is_some() {
            // Its members have to get there, whatever the umask is.
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

    /// The next request that waits, if there is one.
    pub(crate) fn accept(&self) -> Option<Incoming> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        let mut line = String::new();
        let until = Instant::now() + PATIENCE;
        let within = Within {
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

/// A stream that is read until then, however little comes at a time.
struct Within<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A timeout of zero would be none.
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The daemon ends: a file left behind would only look like a daemon that hangs.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Incoming {
    /// For the answers: neither reading nor writing waits.
    pub(crate) fn into_stream(self) -> std::io::Result<UnixStream> {
        self.stream.set_nonblocking(true)?;
        Ok(self.stream)
    }

    /// At the other end of that socket, as if it had asked.
    #[cfg(test)]
    pub(crate) fn from(stream: UnixStream) -> Self {
        let request = Ok(Request::ShowStatus);
        Self { stream, request }
    }
}

/// An answer as it goes over the socket.
pub(crate) fn line(result: Result<Value, String>) -> Vec<u8> {
    let answer = match result {
        Ok(value) => Answer::Ok(value),
        Err(message) => Answer::Error { message },
    };
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    line
}
