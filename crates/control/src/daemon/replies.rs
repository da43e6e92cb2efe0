//! Replies that clients have not read yet. Slow clients do not block the daemon.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use serde::Serialize;

use super::lines::Lines;
use crate::api::Incoming;

/// LIMIT: unread replies. One more closes the oldest.
const WAITING: usize = 16;
/// LIMIT: bytes of unread replies. A single reply may be longer, since a report of all routes has
/// no bound.
const WAITING_BYTES: usize = 64 << 20;
/// Time limit for reading a reply; the client gives up on the daemon after the same time.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Unread replies, oldest first.
#[derive(Default)]
pub(super) struct Replies(VecDeque<Reply>);

struct Reply {
    lines: Lines,
    until: Instant,
}

impl Replies {
    /// Replies to a request. [`Replies::flush`] sends what the socket does not accept at once.
    pub fn answer(
        &mut self,
        client: Incoming,
        result: Result<impl Serialize, String>,
        now: Instant,
    ) {
        let mut lines = Lines::to(client);
        lines.answer(result);
        if !lines.send() || lines.is_empty() {
            return;
        }
        let until = now + TIMEOUT;
        self.0.push_back(Reply { lines, until });
        while self.are_too_many() {
            self.0.pop_front();
        }
    }

    fn are_too_many(&self) -> bool {
        let bytes: usize = self.0.iter().map(|reply| reply.lines.pending()).sum();
        self.0.len() > WAITING || (self.0.len() > 1 && bytes > WAITING_BYTES)
    }

    /// Sends more data, and removes replies that are complete, timed out or whose client
    /// disconnected.
    pub fn flush(&mut self, now: Instant) {
        self.0
            .retain_mut(|it| now < it.until && it.lines.send() && !it.lines.is_empty());
    }

    /// Events to poll for on behalf of the clients.
    pub fn poll_events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.0.iter().map(|reply| reply.lines.poll_events(false))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use serde_json::Value;

    use super::*;
    use crate::api::line;

    /// Longer than a socket buffer.
    const LONG: usize = 1 << 20;

    fn long(letter: &str) -> Value {
        Value::String(letter.repeat(LONG))
    }

    /// Replies to a client that has not read yet, and returns the client's socket.
    fn asked(replies: &mut Replies, answer: Result<Value, String>) -> UnixStream {
        let (client, daemon) = UnixStream::pair().expect("sockets");
        replies.answer(Incoming::from(daemon), answer, Instant::now());
        client
    }

    #[test]
    fn a_slow_client_gets_a_long_reply_completely() {
        let mut replies = Replies::default();
        let mut client = asked(&mut replies, Ok(long("a")));
        assert_eq!(replies.poll_events().count(), 1);
        let (mut read, mut piece) = (Vec::<u8>::new(), vec![0; 10_000]);
        loop {
            replies.flush(Instant::now());
            let bytes = client.read(&mut piece).expect("it is open");
            if bytes == 0 {
                break;
            }
            read.extend(&piece[..bytes]);
        }
        assert_eq!(read, line(Ok(long("a"))));
        assert_eq!(replies.poll_events().count(), 0);
    }

    #[test]
    fn a_client_that_does_not_read_is_dropped() {
        let mut replies = Replies::default();
        let _silent = asked(&mut replies, Ok(long("a")));
        drop(asked(&mut replies, Ok(long("b"))));
        replies.flush(Instant::now());
        assert_eq!(replies.poll_events().count(), 1);
        replies.flush(Instant::now() + TIMEOUT);
        assert_eq!(replies.poll_events().count(), 0);
    }

    #[test]
    fn the_oldest_of_too_many_replies_is_closed() {
        let mut replies = Replies::default();
        let mut clients: Vec<_> = (0..=WAITING)
            .map(|_| asked(&mut replies, Ok(long("a"))))
            .collect();
        assert_eq!(replies.poll_events().count(), WAITING);
        let mut begun = Vec::new();
        clients[0].read_to_end(&mut begun).expect("it is closed");
        assert!(!begun.is_empty() && begun.len() < LONG);
        // A single reply beyond the total limit.
        let longest = Value::String("b".repeat(WAITING_BYTES));
        let _last = asked(&mut replies, Ok(longest));
        assert_eq!(replies.poll_events().count(), 1);
    }

    #[test]
    fn a_short_reply_is_sent_at_once() {
        let mut replies = Replies::default();
        let mut client = asked(&mut replies, Err("no".into()));
        assert_eq!(replies.poll_events().count(), 0);
        let mut read = Vec::new();
        client.read_to_end(&mut read).expect("it is closed");
        assert_eq!(read, line(Err::<(), _>("no".into())));
    }
}
