//! Client side of the control socket: one request with one reply, or with a stream of replies.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Gid;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::{Envelope, Reply, Request, VERSION, group_name, run_directory};

/// Time limit for a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why a request failed.
#[derive(Debug, Error)]
pub enum ApiError {
    /// No daemon runs in this network namespace.
    #[error(
        "sidestep is not running in this network namespace (start it with `sidestep run PORT...`)"
    )]
    NotRunning,
    /// A socket operation failed.
    #[error("control socket {path}: {source}")]
    Socket {
        /// Path of the socket.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The socket belongs to other users.
    #[error("control socket {path}: permission denied: {allowed}")]
    Denied {
        /// Path of the socket.
        path: String,
        /// Users of the socket, with advice.
        allowed: String,
    },
    /// The daemon did not reply in time.
    #[error(
        "the daemon did not answer within {} s; it is stopped (SIGSTOP), or has much to do",
        TIMEOUT.as_secs()
    )]
    Silent,
    /// The reply is invalid.
    #[error("the daemon's answer cannot be read: {0}")]
    Reply(#[from] serde_json::Error),
    /// The daemon rejected the request.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the daemon of this network namespace and returns the reply.
pub fn call(request: Request) -> Result<Value, ApiError> {
    ask(request)
}

/// As [`call`], with the reply as a typed report. A long reply takes less time.
pub fn ask<T: DeserializeOwned>(request: Request) -> Result<T, ApiError> {
    let mut answers = ReplyStream::of(request)?;
    // A closed connection without a reply yields an empty line, which is invalid.
    let answer = answers.read()?.unwrap_or_default();
    value(&answer)
}

/// Sends a request with many replies, such as a trace. Returns the first reply, and the stream of
/// the others.
pub fn stream(request: Request) -> Result<(Value, ReplyStream), ApiError> {
    let mut answers = ReplyStream::of(request)?;
    let begun = value(&answers.read()?.unwrap_or_default())?;
    // A stream has no time limit.
    answers
        .stream
        .get_ref()
        .set_read_timeout(None)
        .map_err(socket_error)?;
    Ok((begun, answers))
}

/// Replies to one request, until the daemon closes the connection.
pub struct ReplyStream {
    stream: BufReader<UnixStream>,
}

impl ReplyStream {
    fn of(request: Request) -> Result<Self, ApiError> {
        let mut stream = UnixStream::connect(path()).map_err(socket_error)?;
        let limited = stream.set_read_timeout(Some(TIMEOUT));
        limited
            .and(stream.set_write_timeout(Some(TIMEOUT)))
            .map_err(socket_error)?;
        let mut line = serde_json::to_vec(&Envelope {
            version: VERSION,
            request,
        })?;
        line.push(b'\n');
        match stream.write_all(&line) {
            // The daemon reads no more of it, and its reply says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(socket_error)?,
        }
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    /// Returns a function that ends the stream: it closes this side, and the daemon then closes the
    /// other.
    pub fn closer(&self) -> Result<impl Fn() + Send + 'static, ApiError> {
        let stream = self.stream.get_ref().try_clone().map_err(socket_error)?;
        // An error means that the daemon has closed it already.
        Ok(move || drop(stream.shutdown(Shutdown::Write)))
    }

    fn read(&mut self) -> Result<Option<String>, ApiError> {
        let mut line = String::new();
        let bytes = self.stream.read_line(&mut line).map_err(socket_error)?;
        Ok((bytes > 0).then_some(line))
    }
}

impl Iterator for ReplyStream {
    type Item = Result<Value, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.read().transpose()?;
        Some(line.and_then(|line| value(&line)))
    }
}

fn value<T: DeserializeOwned>(answer: &str) -> Result<T, ApiError> {
    match serde_json::from_str(answer)? {
        Reply::Ok(value) => Ok(value),
        Reply::Error { message } => Err(ApiError::Refused(message)),
    }
}

fn path() -> PathBuf {
    run_directory().join("control.sock")
}

fn socket_error(source: std::io::Error) -> ApiError {
    match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            ApiError::NotRunning
        }
        std::io::ErrorKind::PermissionDenied => ApiError::Denied {
            path: path().display().to_string(),
            allowed: allowed(&path()),
        },
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => ApiError::Silent,
        _ => ApiError::Socket {
            path: path().display().to_string(),
            source,
        },
    }
}

/// Describes who may use a socket.
fn allowed(path: &Path) -> String {
    let group = std::fs::metadata(path)
        .ok()
        .filter(|data| data.mode() & 0o060 == 0o060)
        .map(|data| Gid::from_raw(data.gid()));
    match group {
        Some(group) => format!("it is for root and the group {}", group_name(group)),
        None => "it is for root alone (`sidestep run --group GROUP` lets a group use it)".into(),
    }
}
