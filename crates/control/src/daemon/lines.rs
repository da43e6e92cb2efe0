//! A client that is answered line by line, as long as it listens. Nothing waits for it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use serde::Serialize;
use serde_json::Value;

use crate::api::{Incoming, line};

/// LIMIT: bytes that wait for the client to read.
const PENDING_MAX: usize = 4 << 20;

/// The client, and what it has not read yet.
pub(super) struct Lines {
    stream: UnixStream,
    pending: VecDeque<u8>,
}

impl Lines {
    /// Of the client that asked. Fails if it has gone.
    pub fn to(client: Incoming) -> std::io::Result<Self> {
        Ok(Self {
            stream: client.into_stream()?,
            pending: VecDeque::new(),
        })
    }

    /// So much is not read yet that the next line had better be left out.
    pub fn is_full(&self) -> bool {
        self.pending.len() > PENDING_MAX
    }

    /// Everything that was said has been handed over.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes that wait for the client to read.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn say(&mut self, said: &impl Serialize) {
        self.answer(serde_json::to_value(said).map_err(|e| e.to_string()));
    }

    pub fn answer(&mut self, result: Result<Value, String>) {
        self.pending.extend(line(result));
    }

    /// Hands the socket as much as it takes. False: nobody reads any more.
    pub fn send(&mut self) -> bool {
        while !self.pending.is_empty() {
            match self.stream.write(self.pending.as_slices().0) {
                Ok(0) => return false,
                Ok(sent) => drop(self.pending.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The client closes its side when it wants no more. It has nothing else to say.
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

    /// What the event loop waits for on its behalf: that the client takes more and, with `listens`, that it hangs up.
    pub fn waits_for(&self, listens: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, listens);
        flags.set(PollFlags::POLLOUT, !self.pending.is_empty());
        (self.stream.as_fd(), flags)
    }
}
