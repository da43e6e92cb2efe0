//! A minimal ZeroMQ client: a REQ socket over TCP, ZMTP 3.0 with the NULL mechanism (ZeroMQ RFC
//! 23). A library would require an async runtime or a C library for these two kinds of frames.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A connection to a REP socket.
#[derive(Debug)]
pub struct Requester {
    stream: TcpStream,
}

impl Requester {
    /// Connects and exchanges greetings.
    ///
    /// # Errors
    /// The peer does not respond, or not in ZMTP 3 without authentication.
    pub fn connect(address: impl ToSocketAddrs, patience: Duration) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(patience))?;
                    stream.set_nodelay(true)?;
                    let mut requester = Self { stream };
                    requester.greet()?;
                    return Ok(requester);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn greet(&mut self) -> io::Result<()> {
        self.stream.write_all(&greeting())?;
        let mut theirs = [0; GREETING];
        self.stream.read_exact(&mut theirs)?;
        if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 {
            return Err(unexpected("no greeting of ZMTP 3"));
        }
        if theirs[12..32] != greeting()[12..32] {
            return Err(unexpected("another security mechanism than NULL"));
        }
        write_frame(&mut self.stream, COMMAND, &ready("REQ"))?;
        let (flags, body) = read_frame(&mut self.stream)?;
        if flags & COMMAND == 0 || !body.starts_with(b"\x05READY") {
            return Err(unexpected("no READY"));
        }
        Ok(())
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// The connection breaks, or the reply is late or malformed.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        // An empty frame separates the (absent) addresses from the message (ZeroMQ RFC 28).
        write_frame(&mut self.stream, MORE, &[])?;
        write_frame(&mut self.stream, 0, request)?;
        let mut delimited = false;
        loop {
            let (flags, body) = read_frame(&mut self.stream)?;
            if flags & COMMAND != 0 {
                if body.starts_with(b"\x05ERROR") {
                    return Err(unexpected("the peer reports an error"));
                }
            } else if !delimited && flags & MORE != 0 && body.is_empty() {
                delimited = true;
            } else if delimited && flags & MORE == 0 {
                return Ok(body);
            } else {
                return Err(unexpected("a reply that does not have exactly one frame"));
            }
        }
    }
}

/// Returns the greeting, the same in both directions: signature, version 3.0, mechanism, as-server
/// 0, filler.
pub fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Returns the command that states the socket type.
pub fn ready(socket_type: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend((socket_type.len() as u32).to_be_bytes());
    body.extend(socket_type.as_bytes());
    body
}

/// Writes one frame: flags, length, body.
pub fn write_frame(to: &mut impl Write, flags: u8, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(body.len() + 9);
    if let Ok(length) = u8::try_from(body.len()) {
        frame.extend([flags, length]);
    } else {
        frame.push(flags | LONG);
        frame.extend((body.len() as u64).to_be_bytes());
    }
    frame.extend(body);
    to.write_all(&frame)
}

/// Reads the next frame: flags and body.
pub fn read_frame(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut flags = [0];
    from.read_exact(&mut flags)?;
    let length = if flags[0] & LONG == 0 {
        let mut length = [0];
        from.read_exact(&mut length)?;
        length[0].into()
    } else {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        u64::from_be_bytes(length)
    };
    if length > BODY_MAX {
        return Err(unexpected("a frame of more than 16 MiB"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok((flags[0], body))
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Bytes of a greeting.
pub const GREETING: usize = 64;
/// Flag: another frame of this message follows.
pub const MORE: u8 = 1;
/// Flag: the length has eight bytes.
const LONG: u8 = 2;
/// Flag: a command, not a message.
pub const COMMAND: u8 = 4;
/// LIMIT: bytes of a reply.
const BODY_MAX: u64 = 16 << 20;
