//! The HTTP endpoint of `sidestep run --metrics`: `GET /metrics`, and nothing else.
//!
//! Each connection has a thread, which takes the metrics from the control socket, like any other
//! client. A slow or hostile client occupies its thread until its time is over. Other clients,
//! packets and the event loop do not wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};

use super::{Format, scrape};

/// LIMIT: connections at the same time. One more closes the oldest one whose request is incomplete.
const CONNECTIONS_MAX: usize = 128;
/// Size of a thread's stack, in bytes.
const STACK: usize = 256 << 10;
/// LIMIT: bytes of a request.
const REQUEST_MAX: usize = 8 * 1024;
/// LIMIT: headers of a request.
const HEADERS_MAX: usize = 64;
/// Time limit for reading a request.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for sending a response; the default of Prometheus for a scrape.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, as without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const PATH: &str = "/metrics";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Starts the thread that accepts connections.
///
/// # Errors
/// The thread cannot be started.
pub fn serve(listener: TcpListener) -> io::Result<()> {
    let endpoint = Arc::new(Endpoint::default());
    let work = move || {
        for number in 0.. {
            let connection = listener.accept().and_then(|(stream, _)| {
                let stream = Arc::new(stream);
                endpoint.admit(number, &stream);
                let endpoint = endpoint.clone();
                // A client that disconnects gets nothing.
                let work = move || endpoint.converse(number, &stream);
                let thread = thread::Builder::new().name("metrics".into());
                thread.stack_size(STACK).spawn(work)
            });
            if connection.is_err() {
                endpoint.forget(number);
                thread::sleep(PAUSE);
            }
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(work)?;
    Ok(())
}

/// State that the connections share.
#[derive(Default)]
struct Endpoint {
    /// One scrape at a time, so that clients cannot occupy the event loop.
    turn: Mutex<()>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// Connections whose request is incomplete, by number; the lowest is the oldest.
    reading: BTreeMap<u64, Arc<TcpStream>>,
    /// Connections that get their response.
    writing: BTreeSet<u64>,
}

impl Endpoint {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and closes the oldest one whose request is incomplete if there are too
    /// many.
    fn admit(&self, number: u64, stream: &Arc<TcpStream>) {
        let mut connections = self.connections();
        connections.reading.insert(number, stream.clone());
        if connections.reading.len() + connections.writing.len() > CONNECTIONS_MAX
            && let Some((_, oldest)) = connections.reading.pop_first()
        {
            let refusal = Response::refusal("503 Service Unavailable", "too many connections");
            // Neither waits: the socket's buffer is empty.
            let _ = (&*oldest).write(&refusal.bytes());
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }

    fn forget(&self, number: u64) {
        let mut connections = self.connections();
        connections.reading.remove(&number);
        connections.writing.remove(&number);
    }

    /// Serves one request.
    fn converse(&self, number: u64, stream: &TcpStream) {
        let parsed = read(stream, Instant::now() + READ_TIMEOUT);
        {
            let mut connections = self.connections();
            connections.reading.remove(&number);
            connections.writing.insert(number);
        }
        let _ = parsed.and_then(|parsed| self.respond(parsed, stream));
        self.forget(number);
    }

    fn respond(&self, parsed: Result<Format, Response>, stream: &TcpStream) -> io::Result<()> {
        let response = match parsed {
            Ok(format) => {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                match scrape(format) {
                    Ok(text) => Response::new("200 OK", content_type(format), text),
                    Err(error) => {
                        Response::new("503 Service Unavailable", PLAIN, format!("{error}\n"))
                    }
                }
            }
            Err(refusal) => refusal,
        };
        write(stream, &response.bytes(), Instant::now() + WRITE_TIMEOUT)?;
        // Unread bytes would make the kernel reset the connection before the client has read all.
        stream.shutdown(Shutdown::Write)?;
        let until = Instant::now() + READ_TIMEOUT;
        while read_some(stream, &mut [0; 1024], until)? > 0 {}
        Ok(())
    }
}

/// A response without its fixed headers.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn new(status: &'static str, content_type: &'static str, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type,
            body: body.into(),
        }
    }

    fn refusal(status: &'static str, body: &str) -> Self {
        Self::new(status, PLAIN, format!("{body}\n"))
    }

    fn bytes(&self) -> Vec<u8> {
        let allow = if self.status.starts_with("405") {
            "Allow: GET\r\n"
        } else {
            ""
        };
        let Self {
            status,
            content_type,
            body,
        } = self;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// Media type of a scrape.
fn content_type(format: Format) -> &'static str {
    match format {
        Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}

/// Reads a request. Returns the format to reply with, or the refusal.
fn read(stream: &TcpStream, until: Instant) -> io::Result<Result<Format, Response>> {
    let mut request = vec![0; REQUEST_MAX];
    let mut length = 0;
    loop {
        let bytes = read_some(stream, &mut request[length..], until)?;
        if bytes == 0 && length < REQUEST_MAX {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        length += bytes;
        if let Some(result) = parse(&request[..length]) {
            return Ok(result);
        }
        if length == REQUEST_MAX {
            let status = "431 Request Header Fields Too Large";
            return Ok(Err(Response::refusal(status, "the request is too long")));
        }
    }
}

/// Parses a request; none if it is incomplete.
fn parse(bytes: &[u8]) -> Option<Result<Format, Response>> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) => return None,
        Err(error) => {
            let body = format!("not an HTTP request: {error}");
            return Some(Err(Response::refusal("400 Bad Request", &body)));
        }
    }
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Some(if path != PATH {
        Err(Response::refusal(
            "404 Not Found",
            "the metrics are at /metrics",
        ))
    } else if request.method != Some("GET") {
        Err(Response::refusal(
            "405 Method Not Allowed",
            "only GET is allowed",
        ))
    } else {
        let accept = request.headers.iter();
        let accept = accept.filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let accept: Vec<_> = accept
            .map(|header| String::from_utf8_lossy(header.value))
            .collect();
        Ok(negotiate(&accept.join(",")))
    })
}

/// Returns the format with the highest quality in the header `Accept` (RFC 9110 12.5.1). The text
/// format wins a tie, and is sent to a client that accepts neither.
fn negotiate(accept: &str) -> Format {
    let mut qualities = [0.0f32; 2];
    for range in accept.split(',') {
        let mut words = range.split(';').map(str::trim);
        let media = words.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0f32, None);
        for word in words {
            match word.split_once('=') {
                Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                Some(("version", value)) => version = Some(value.trim_matches('"')),
                _ => {}
            }
        }
        let place = match media.as_str() {
            "application/openmetrics-text"
                if version.is_none_or(|it| ["0.0.1", "1.0.0"].contains(&it)) =>
            {
                1
            }
            "text/plain" | "text/*" | "*/*" => 0,
            _ => continue,
        };
        qualities[place] = quality.max(qualities[place]);
    }
    if qualities[1] > qualities[0] {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

/// Returns the time left. A zero timeout would mean no timeout, so it is an error.
fn left(until: Instant) -> io::Result<Option<Duration>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(Some(left))
}

fn read_some(mut stream: &TcpStream, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
    stream.set_read_timeout(left(until)?)?;
    stream.read(buffer)
}

fn write(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(left(until)?)?;
        let sent = stream.write(bytes)?;
        if sent == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        bytes = &bytes[sent..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        match parse(request.as_bytes()) {
            None => "incomplete".into(),
            Some(Ok(format)) => format!("{format:?}"),
            Some(Err(refusal)) => refusal.status[..3].into(),
        }
    }

    #[test]
    fn only_get_of_the_path_is_served() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "Text"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "Text"),
            ("GET /metrics?name[]=a HTTP/1.1\r\n\r\n", "Text"),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", "incomplete"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\u{16}\u{3}\u{1}", "400"),
            ("GET /metrics HTTP/3.7\r\n\r\n", "400"),
        ] {
            assert_eq!(status(request), expected, "{request}");
        }
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(
            status(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")),
            "400"
        );
    }

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain", Format::Text),
            ("application/json", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "Application/OpenMetrics-Text; version=\"1.0.0\"",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            (
                "application/openmetrics-text;q=0.3, */*;q=0.9",
                Format::Text,
            ),
            ("application/openmetrics-text, text/plain", Format::Text),
        ] {
            assert_eq!(negotiate(accept), expected, "{accept}");
        }
    }
}
