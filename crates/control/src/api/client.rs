//! The client's side: one request, one answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
    /// The answer is no answer.
    #[error("the daemon's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// The daemon refused.
    #[error("{0}")]
    Refused(String),
}

/// Asks the daemon of this network namespace.
pub fn call(request: Request) -> Result<Value, ApiError> {
    let path = run_directory().join("control.sock");
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            ApiError::NotRunning
        }
        _ => ApiError::Socket {
            path: path.display().to_string(),
            source,
        },
    };
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = serde_json::to_vec(&Envelope {
        version: VERSION,
        request,
    })?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(failed)?;
    match serde_json::from_str(&answer)? {
        Answer::Ok(value) => Ok(value),
        Answer::Error { message } => Err(ApiError::Refused(message)),
    }
}
