//! The client's side: one request; one answer, or to a trace many.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Group};
use serde_json::Value;
use thiserror::Error;

use super::{Answer, Envelope, Request, VERSION, run_directory};

/// A daemon that does not answer by then is taken for hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a request was not answered.
#[derive(Debug, Error)]
pub enum ApiError {
    /// No daemon runs in this network namespace.
    #[error(
        "sidestep is not running in this network namespace (start it with `sidestep run PORT...`)"
    )]
    NotRunning,
    /// The socket cannot be used.
    #[error("control socket {path}: {source}")]
    Socket {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else's.
    #[error("control socket {path}: permission denied: {whose}")]
    Denied {
        /// Its path.
        path: String,
        /// Who may use it, and what helps.
        whose: String,
    },
    /// The answer is no answer.
    #[error("the daemon's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// The daemon refused.
    #[error("{0}")]
    Refused(String),
}

/// Asks the daemon of this network namespace.
pub fn call(request: Request) -> Result<Value, ApiError> {
    let mut answers = Answers::of(request)?;
    // A daemon that breaks off has not answered: that is what an empty line fails as.
    let answer = answers.read()?.unwrap_or_default();
    value(&answer)
}

/// Asks for what is answered by many lines, a trace say: returns when it has begun, with the first of them.
pub fn stream(request: Request) -> Result<(Value, Answers), ApiError> {
    let mut answers = Answers::of(request)?;
    let begun = value(&answers.read()?.unwrap_or_default())?;
    // From here on it lasts as long as it lasts.
    answers
        .stream
        .get_ref()
        .set_read_timeout(None)
        .map_err(socket_error)?;
    Ok((begun, answers))
}

/// The answers to one request, one after the other, until the daemon closes.
pub struct Answers {
    stream: BufReader<UnixStream>,
}

impl Answers {
    fn of(request: Request) -> Result<Self, ApiError> {
        let mut stream = UnixStream::connect(path()).map_err(socket_error)?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(socket_error)?;
        let mut line = serde_json::to_vec(&Envelope {
            version: VERSION,
            request,
        })?;
        line.push(b'\n');
        stream.write_all(&line).map_err(socket_error)?;
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    /// Says, when called, that no more is wanted. The daemon then comes to its end, and closes.
    pub fn closer(&self) -> Result<impl Fn() + Send + 'static, ApiError> {
        let stream = self.stream.get_ref().try_clone().map_err(socket_error)?;
        // It may have closed already, which is what was wanted.
        Ok(move || drop(stream.shutdown(Shutdown::Write)))
    }

    fn read(&mut self) -> Result<Option<String>, ApiError> {
        let mut line = String::new();
        let bytes = self.stream.read_line(&mut line).map_err(socket_error)?;
        Ok((bytes > 0).then_some(line))
    }
}

impl Iterator for Answers {
    type Item = Result<Value, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.read().transpose()?;
        Some(line.and_then(|line| value(&line)))
    }
}

fn value(answer: &str) -> Result<Value, ApiError> {
    match serde_json::from_str(answer)? {
        Answer::Ok(value) => Ok(value),
        Answer::Error { message } => Err(ApiError::Refused(message)),
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
            whose: whose(&path()),
        },
        _ => ApiError::Socket {
            path: path().display().to_string(),
            source,
        },
    }
}

/// Who may use a socket, in words.
fn whose(path: &Path) -> String {
    let group = std::fs::metadata(path)
        .ok()
        .filter(|data| data.mode() & 0o060 == 0o060)
        .map(|data| Gid::from_raw(data.gid()));
    match group {
        Some(group) => {
            let name = Group::from_gid(group).ok().flatten();
            let name = name.map_or_else(|| group.to_string(), |group| group.name);
            format!("it is for root and the group {name}")
        }
        None => "it is for root alone (`sidestep run --group GROUP` lets a group use it)".into(),
    }
}
