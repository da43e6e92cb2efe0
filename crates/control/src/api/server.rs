//! Server side: a listening socket for root, and optionally for a group. The event loop serves it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
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
const REQUEST_MAX: usize = 16 << 20;
/// LIMIT: connections whose request is incomplete. One more closes the oldest.
const CONNECTIONS_MAX: usize = 256;
/// LIMIT: bytes of all incomplete requests together. More close the oldest.
const PENDING_MAX: usize = 64 << 20;
/// Time limit for a complete request; the client waits as long for the reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The listening socket, with the connections whose request is incomplete. No call waits for a
/// client.
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    group: Option<Gid>,
    /// Oldest first.
    connections: VecDeque<Connection>,
}

/// A connection whose request is incomplete.
struct Connection {
    stream: UnixStream,
    line: Vec<u8>,
    until: Instant,
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
        Ok(Self {
            listener: bind(path, group)?,
            path: path.to_owned(),
            group,
            connections: VecDeque::new(),
        })
    }

    /// Listens again if the file of the socket was removed. Returns true if it was.
    pub(crate) fn renew(&mut self) -> std::io::Result<bool> {
        if self.path.exists() {
            return Ok(false);
        }
        self.listener = bind(&self.path, self.group)?;
        Ok(true)
    }

    /// Returns the sockets to poll for reading.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let connections = self.connections.iter();
        let connections = connections.map(|connection| connection.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(connections)
    }

    /// Returns the complete requests. A connection that is over its time or beyond a bound gets an
    /// error.
    pub(crate) fn requests(&mut self, now: Instant) -> Vec<Incoming> {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.connections.push_back(Connection {
                    stream,
                    line: Vec::new(),
                    until: now + TIMEOUT,
                });
            }
        }
        let mut complete = Vec::new();
        for mut connection in std::mem::take(&mut self.connections) {
            match connection.read() {
                Progress::Incomplete if connection.until <= now => {
                    let seconds = TIMEOUT.as_secs();
                    connection.refuse(format!("no complete request within {seconds} s"));
                }
                Progress::Incomplete => self.connections.push_back(connection),
                Progress::Complete(request) => complete.push(Incoming {
                    stream: connection.stream,
                    request,
                }),
                Progress::Closed => {}
            }
        }
        while self.are_too_many() {
            let oldest = self.connections.pop_front().expect("there is one");
            oldest.refuse(format!(
                "the daemon has more than {CONNECTIONS_MAX} connections, or more than {} MiB, of \
                 incomplete requests, and closes the oldest",
                PENDING_MAX >> 20
            ));
        }
        complete
    }

    fn are_too_many(&self) -> bool {
        let lengths = self.connections.iter().map(|it| it.line.len());
        self.connections.len() > CONNECTIONS_MAX || lengths.sum::<usize>() > PENDING_MAX
    }
}

fn bind(path: &Path, group: Option<Gid>) -> std::io::Result<UnixListener> {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    // Access is restricted from the start, whatever the umask is. No other thread makes files.
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
    Ok(listener)
}

/// Result of reading from a connection.
enum Progress {
    Incomplete,
    /// The request, or the error to reply with.
    Complete(Result<Request, String>),
    /// The client disconnected without a request.
    Closed,
}

impl Connection {
    /// Reads all available bytes of the request.
    fn read(&mut self) -> Progress {
        let mut piece = [0; 8192];
        loop {
            let ended = match self.stream.read(&mut piece) {
                Ok(0) if self.line.is_empty() => return Progress::Closed,
                Ok(0) => true,
                Ok(bytes) => {
                    let piece = &piece[..bytes];
                    let end = piece.iter().position(|byte| *byte == b'\n');
                    self.line.extend(&piece[..end.unwrap_or(bytes)]);
                    end.is_some()
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Incomplete,
                Err(_) => return Progress::Closed,
            };
            if self.line.len() > REQUEST_MAX {
                let error = format!("not a request: more than {} MiB", REQUEST_MAX >> 20);
                return Progress::Complete(Err(error));
            }
            if ended {
                let text = str::from_utf8(&self.line);
                let text = text.map_err(|error| format!("not a request: {error}"));
                return Progress::Complete(text.and_then(parse_request));
            }
        }
    }

    /// Sends an error and closes the connection. A client that does not read does not get it.
    fn refuse(mut self, message: String) {
        let _ = self.stream.write(&line(Err::<(), _>(message)));
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
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Makes a request whose client is the peer of this socket.
    #[cfg(test)]
    pub(crate) fn from(stream: UnixStream) -> Self {
        Self::with(stream, Request::ShowStatus)
    }

    /// As [`Self::from`], with this request.
    #[cfg(test)]
    pub(crate) fn with(stream: UnixStream, request: Request) -> Self {
        stream.set_nonblocking(true).expect("a socket");
        let request = Ok(request);
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::api::Envelope;

    struct Bench {
        server: Server,
        _folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let server = Server::listen(&folder.path().join("s"), None).expect("a socket");
            Self {
                server,
                _folder: folder,
            }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(&self.server.path).expect("a connection")
        }

        fn requests(&mut self) -> Vec<Result<Request, String>> {
            let incoming = self.server.requests(Instant::now());
            incoming.into_iter().map(|it| it.request).collect()
        }
    }

    fn request() -> Vec<u8> {
        let envelope = Envelope {
            version: super::super::VERSION,
            request: Request::ShowPorts,
        };
        let mut line = serde_json::to_vec(&envelope).expect("JSON");
        line.push(b'\n');
        line
    }

    fn answer(client: UnixStream) -> String {
        let mut answer = String::new();
        BufReader::new(client)
            .read_line(&mut answer)
            .expect("UTF-8");
        answer
    }

    #[test]
    fn idle_and_half_written_connections_delay_no_request() {
        let mut bench = Bench::new();
        let half = &request()[..9];
        let mut waiting: Vec<_> = (0..100).map(|_| bench.connect()).collect();
        for client in &mut waiting[..50] {
            client.write_all(half).expect("sent");
        }
        let mut client = bench.connect();
        client.write_all(&request()).expect("sent");
        let begun = Instant::now();
        assert_eq!(bench.requests(), [Ok(Request::ShowPorts)]);
        assert!(begun.elapsed() < Duration::from_millis(100));
        // A request in two parts.
        waiting[7].write_all(&request()[9..]).expect("sent");
        assert_eq!(bench.requests(), [Ok(Request::ShowPorts)]);
        assert_eq!(bench.server.fds().count(), 1 + 99);
    }

    #[test]
    fn the_oldest_of_too_many_connections_gets_an_error() {
        let mut bench = Bench::new();
        let mut clients: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let client = bench.connect();
                bench.requests();
                client
            })
            .collect();
        clients.push(bench.connect());
        bench.requests();
        assert_eq!(bench.server.fds().count(), 1 + CONNECTIONS_MAX);
        let oldest = answer(clients.remove(0));
        assert!(oldest.contains("more than 256 connections"), "{oldest}");
        let last = clients.last_mut().expect("a client");
        last.write_all(&request()).expect("sent");
        assert_eq!(bench.requests(), [Ok(Request::ShowPorts)]);
    }

    #[test]
    fn a_connection_without_a_request_ends_after_a_while() {
        let mut bench = Bench::new();
        let client = bench.connect();
        bench.requests();
        assert_eq!(bench.server.requests(Instant::now() + TIMEOUT).len(), 0);
        assert_eq!(bench.server.fds().count(), 1);
        let text = answer(client);
        assert!(text.contains("no complete request within 20 s"), "{text}");
    }

    #[test]
    fn bytes_that_are_no_text_and_too_many_bytes_are_errors() {
        let mut bench = Bench::new();
        let mut client = bench.connect();
        client.write_all(b"\xff\n").expect("sent");
        let [Err(error)] = &bench.requests()[..] else {
            panic!("an error");
        };
        assert!(error.starts_with("not a request: invalid utf-8"), "{error}");
        let client = bench.connect();
        let sender = std::thread::spawn(move || {
            let _ = (&client).write_all(&vec![b' '; REQUEST_MAX + (1 << 20)]);
        });
        let until = Instant::now() + TIMEOUT;
        let error = loop {
            match bench.requests().pop() {
                Some(request) => break request.expect_err("too long"),
                None => assert!(Instant::now() < until, "no error"),
            }
        };
        assert_eq!(error, "not a request: more than 16 MiB");
        sender.join().expect("the client ends");
    }
}
