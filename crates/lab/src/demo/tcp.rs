//! A real TCP transfer between two nodes: the sender's bytes are made by a rule that the receiver knows, so that every
//! one of them is checked.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::Error;
use crate::Namespace;
use crate::program::Interrupt;

/// What came of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Bytes that arrived right.
    pub bytes: usize,
    /// From the first byte sent to the last one checked.
    pub elapsed: Duration,
    /// Segments that the receiver's host refused because of their checksum.
    pub checksum_errors: u64,
}

impl Transfer {
    /// Mebibytes per second.
    pub fn mebibytes_per_second(&self) -> f64 {
        self.bytes as f64 / MEBIBYTE as f64 / self.elapsed.as_secs_f64()
    }
}

/// One mebibyte.
pub const MEBIBYTE: usize = 1 << 20;

/// How much is sent.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Bytes.
    pub bytes: usize,
    /// After this time fewer are enough, down to [`AT_LEAST`]: a busy machine shall not keep anybody waiting.
    pub time: Duration,
}

/// Sends bytes from a node to `address` of another and checks them there. The receiver ends with the number of bytes it
/// checked, so the way back is used for data too.
///
/// # Errors
/// No connection, a byte that is not the one that was sent, or no progress for [`PATIENCE`].
pub fn transfer(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    amount: Amount,
    interrupt: &Interrupt,
) -> Result<Transfer, Error> {
    interrupt.check()?;
    let os =
        |what: &str, source| Error::Lab(crate::Error::os(format!("TCP: {what} {address}"), source));
    let errors_before = checksum_errors(to)?;
    let listener = to
        .run(|| TcpListener::bind((address, 0)))?
        .map_err(|source| os("listen on", source))?;
    let target = listener
        .local_addr()
        .map_err(|source| os("listen on", source))?;
    let sender = from
        .run(|| connect(target))?
        .map_err(|source| os("connect to", source))?;
    // The connection stands, so this does not wait.
    let (receiver, _) = listener
        .accept()
        .map_err(|source| os("accept on", source))?;
    patient(&receiver).map_err(|source| os("receive on", source))?;

    let started = Instant::now();
    let checked = thread::scope(|scope| {
        let sending = scope.spawn(|| send(sender, amount, interrupt));
        let receiving = receive(receiver, interrupt);
        let sent = sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (checked, sent) = (receiving?, sent?);
        if checked == sent {
            return Ok(checked);
        }
        Err(wrong(format!("{sent} bytes sent, {checked} arrived")))
    });
    let elapsed = started.elapsed();
    let bytes = checked.map_err(|source| match source.kind() {
        io::ErrorKind::Interrupted => Error::Interrupted,
        io::ErrorKind::InvalidData => Error::Wrong(format!("TCP to {address}: {source}")),
        _ => os("transfer to", source),
    })?;
    Ok(Transfer {
        bytes,
        elapsed,
        checksum_errors: checksum_errors(to)? - errors_before,
    })
}

fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    patient(&stream)?;
    Ok(stream)
}

/// Nothing waits for longer than [`PATIENCE`].
fn patient(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Returns the number of bytes sent.
fn send(mut stream: TcpStream, amount: Amount, interrupt: &Interrupt) -> io::Result<usize> {
    let mut rule = Rule::new();
    let mut chunk = vec![0; CHUNK];
    let (started, mut sent) = (Instant::now(), 0);
    while sent < amount.bytes && (sent < AT_LEAST || started.elapsed() < amount.time) {
        wanted(interrupt)?;
        let part = &mut chunk[..(amount.bytes - sent).min(CHUNK)];
        rule.fill(part);
        stream.write_all(part)?;
        sent += part.len();
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let checked = u64::from_be_bytes(answer);
    if checked == sent as u64 {
        return Ok(sent);
    }
    Err(wrong(format!("{sent} bytes sent, {checked} reported back")))
}

/// Returns the number of bytes that were right, until the sender's end.
fn receive(mut stream: TcpStream, interrupt: &Interrupt) -> io::Result<usize> {
    let mut rule = Rule::new();
    let (mut chunk, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut checked = 0;
    loop {
        wanted(interrupt)?;
        let length = fill(&mut stream, &mut chunk)?;
        let (part, expected) = (&chunk[..length], &mut expected[..length]);
        rule.fill(expected);
        if let Some(at) = part.iter().zip(&*expected).position(|(a, b)| a != b) {
            return Err(wrong(format!("byte {} changed on the way", checked + at)));
        }
        checked += length;
        if length < CHUNK {
            stream.write_all(&(checked as u64).to_be_bytes())?;
            return Ok(checked);
        }
    }
}

/// Reads until the chunk is full or the sender has ended.
fn fill(stream: &mut TcpStream, chunk: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < chunk.len() {
        match stream.read(&mut chunk[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

fn wanted(interrupt: &Interrupt) -> io::Result<()> {
    interrupt
        .check()
        .map_err(|_| io::ErrorKind::Interrupted.into())
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Bytes that do not repeat within a transfer: xorshift64 (Marsaglia, 2003).
struct Rule(u64);

impl Rule {
    fn new() -> Self {
        Self(0x5349_4453_5445_5021)
    }

    fn fill(&mut self, part: &mut [u8]) {
        for word in part.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_ne_bytes()[..word.len()]);
        }
    }
}

/// Segments that a host refused because of their checksum so far, of both families.
fn checksum_errors(host: &Namespace) -> Result<u64, Error> {
    tcp_counter(host, "InCsumErrors")
}

/// A counter of the `Tcp:` lines of `/proc/net/snmp`.
fn tcp_counter(namespace: &Namespace, name: &str) -> Result<u64, Error> {
    // Not /proc/net: that is the namespace of the process' first thread.
    let read = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))?;
    let text = read.map_err(|source| {
        crate::Error::os(format!("{}: /proc/net/snmp", namespace.name()), source)
    })?;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs
        .find(|(found, _)| *found == name)
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| Error::Wrong(format!("/proc/net/snmp has no Tcp {name}")))
}

/// How long a step of a transfer may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the shortest transfer.
pub const AT_LEAST: usize = 4 * MEBIBYTE;

/// A multiple of 8, so that both ends cut the rule's words alike.
const CHUNK: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lab, root_or_skip};

    #[test]
    fn bytes_arrive_as_they_were_sent_and_are_counted() {
        if !root_or_skip("bytes_arrive_as_they_were_sent_and_are_counted") {
            return;
        }
        let mut lab = Lab::new("demotcp").expect("lab");
        lab.node("a")
            .and_then(|lab| lab.node("b"))
            .and_then(|lab| lab.link("a", "eth0", "b", "eth0"))
            .expect("a link");
        let (a, b) = (
            lab.namespace("a").expect("a"),
            lab.namespace("b").expect("b"),
        );
        let add = |node: &Namespace, address| {
            node.exec(&["ip", "address", "add", address, "dev", "eth0"])
                .expect("address");
        };
        add(a, "10.0.0.1/24");
        add(b, "10.0.0.2/24");
        let address = IpAddr::from([10, 0, 0, 2]);
        // Not a multiple of a chunk, nor of a word.
        let bytes = 3 * CHUNK + 4099;
        let amount = Amount {
            bytes,
            time: Duration::ZERO,
        };
        let done = transfer(a, b, address, amount, &Interrupt::pulled(false)).expect("transfer");
        assert_eq!((done.bytes, done.checksum_errors), (bytes, 0));
        let interrupted = transfer(a, b, address, amount, &Interrupt::pulled(true));
        assert!(matches!(interrupted, Err(Error::Interrupted)));
    }

    #[test]
    fn a_changed_byte_is_found_and_its_place_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let mut stream =
            TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (receiver, _) = listener.accept().expect("accept");
        let mut sent = vec![0; 100];
        Rule::new().fill(&mut sent);
        sent[77] ^= 1;
        stream.write_all(&sent).expect("write");
        drop(stream);
        let error = receive(receiver, &Interrupt::pulled(false)).expect_err("byte 77");
        assert_eq!(error.to_string(), "byte 77 changed on the way");
    }
}
