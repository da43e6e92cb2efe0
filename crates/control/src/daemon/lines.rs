//! A client that receives one line after the other. Writing never blocks.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use serde::Serialize;

use crate::api::{Incoming, line};

/// LIMIT: bytes buffered for one client.
const PENDING_MAX: usize = 4 << 20;

/// A client with its unsent data.
pub(super) struct Lines {
    stream: UnixStream,
    pending: VecDeque<u8>,
}

impl Lines {
    /// Takes the connection of a request.
    pub fn to(client: Incoming) -> Self {
        Self {
            stream: client.into_stream(),
            pending: VecDeque::new(),
        }
    }

    /// Whether the buffer is full, so that the caller should skip the next line.
    pub fn is_full(&self) -> bool {
        self.pending.len() > PENDING_MAX
    }

    /// Whether all data has been sent.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Number of unsent bytes.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn say(&mut self, value: &impl Serialize) {
        self.answer(Ok(value));
    }

    pub fn answer(&mut self, result: Result<impl Serialize, String>) {
        self.pending.extend(line(result));
    }

    /// Sends as much as the socket accepts. Returns false if the client has disconnected.
    pub fn send(&mut self) -> bool {
        send(&mut self.pending, &self.stream)
    }

    /// Whether the client has closed its side. A client sends nothing else after its request.
    pub fn client_hung_up(&mut self) -> bool {
        let mut buffer = [0; 64];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    /// Events to poll for: writability if data is pending and, with `listens`, the end of the
    /// connection.
    pub fn poll_events(&self, listens: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, listens);
        flags.set(PollFlags::POLLOUT, !self.pending.is_empty());
        (self.stream.as_fd(), flags)
    }
}

/// Sends as much of the unsent data as the socket accepts. Returns false if the peer has
/// disconnected.
pub(super) fn send(unsent: &mut VecDeque<u8>, mut socket: impl Write) -> bool {
    while !unsent.is_empty() {
        match socket.write(unsent.as_slices().0) {
            Ok(0) => return false,
            Ok(sent) => drop(unsent.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}
