//! Requests and their replies: one message, or a dump. Dumps use a separate socket, so that replies
//! never mix with notifications and are never lost: the kernel continues a dump when the socket has
//! space.

use std::io;

use crate::error::MirrorError;
use crate::socket::{Received, Socket};
use crate::wire::{Message, frame, messages, u32_at};

/// LIMIT: number of times that a dump is repeated after changes interrupted it. The last one is
/// used as it is, because later changes arrive as notifications.
const ATTEMPTS: usize = 8;

/// Kernel object to dump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Description for error messages.
    pub name: &'static str,
    /// Message type.
    pub kind: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// A socket for requests.
pub(crate) struct Requester {
    socket: Socket,
    sequence: u32,
}

impl Requester {
    /// Opens the socket.
    pub fn open(protocol: isize) -> Result<Self, MirrorError> {
        Ok(Self {
            socket: Socket::open(protocol)?.strict()?,
            sequence: 0,
        })
    }

    /// Dumps all objects of one kind: calls `decode` for every message in the kernel's order, and
    /// omits messages for which it returns `None`.
    pub fn dump<T>(
        &mut self,
        request: Request<'_>,
        mut decode: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, MirrorError> {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found.clear();
            let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
            if self.exchange(request, flags, |message| found.extend(decode(message)))?
                == Outcome::Whole
            {
                break;
            }
        }
        Ok(found)
    }

    /// Requests one object.
    pub fn one<T>(
        &mut self,
        request: Request<'_>,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, MirrorError> {
        let mut found = None;
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        self.exchange(request, flags, |message| {
            found = decode(message).or(found.take());
        })?;
        Ok(found)
    }

    /// Creates an object, or changes an existing one.
    pub fn create(&mut self, request: Request<'_>) -> Result<(), MirrorError> {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16;
        self.exchange(request, flags, |_| ()).map(|_| ())
    }

    /// Creates an object, which must not exist.
    pub fn create_new(&mut self, request: Request<'_>) -> Result<(), MirrorError> {
        let new = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | new) as u16;
        self.exchange(request, flags, |_| ()).map(|_| ())
    }

    /// Sends a request and calls `each` for every message of the reply.
    fn exchange(
        &mut self,
        request: Request<'_>,
        flags: u16,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<Outcome, MirrorError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket
            .send(&frame(request.kind, flags, self.sequence, request.body))?;
        let mut answer = Answer {
            sequence: self.sequence,
            outcome: Outcome::Whole,
        };
        loop {
            match self.socket.receive()? {
                Received::Datagram(datagram) => {
                    if let Some(end) = answer.take(datagram, &mut each) {
                        return end.map_err(|source| MirrorError::Refused {
                            request: request.name,
                            source,
                        });
                    }
                }
                Received::Lost => {
                    return Err(MirrorError::Answer {
                        request: request.name,
                        missing: "message that fits the receive buffer",
                    });
                }
                // The socket blocks.
                Received::Empty => {}
            }
        }
    }
}

/// A reply that is being received.
struct Answer {
    sequence: u32,
    outcome: Outcome,
}

impl Answer {
    /// Calls `each` for the messages of a datagram. Returns how the reply ended, if it has ended.
    fn take(
        &mut self,
        datagram: &[u8],
        mut each: impl FnMut(&Message<'_>),
    ) -> Option<io::Result<Outcome>> {
        // Other messages belong to an earlier exchange that failed.
        for message in messages(datagram).filter(|it| it.sequence == self.sequence) {
            if i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0 {
                self.outcome = Outcome::Interrupted;
            }
            match end(&message) {
                None => each(&message),
                Some(end) => return Some(end.map(|()| self.outcome)),
            }
        }
        None
    }
}

/// Whether a reply is consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The reply is consistent.
    Whole,
    /// The kernel changed the objects during the dump (`NLM_F_DUMP_INTR`): entries may be missing
    /// or repeated.
    Interrupted,
}

/// Returns whether `message` ends a reply, and its result. `NLMSG_DONE` and `NLMSG_ERROR` contain
/// zero or a negated error number.
fn end(message: &Message<'_>) -> Option<io::Result<()>> {
    match i32::from(message.kind) {
        libc::NLMSG_DONE | libc::NLMSG_ERROR => {
            let code = u32_at(message.body, 0).unwrap_or_default() as i32;
            Some(match code {
                0.. => Ok(()),
                code => Err(io::Error::from_raw_os_error(-code)),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_message_of_a_dump_may_mark_it_as_interrupted() {
        let done = frame(libc::NLMSG_DONE as u16, 0, 7, &0i32.to_ne_bytes());
        let whole = [
            frame(16, 0, 7, b"abcd"),
            frame(16, 0, 6, b"old."),
            done.clone(),
        ]
        .concat();
        let interrupted = frame(16, libc::NLM_F_DUMP_INTR as u16, 7, b"abcd");
        let answer = || Answer {
            sequence: 7,
            outcome: Outcome::Whole,
        };

        let mut bodies = Vec::new();
        let end = answer().take(&whole, |message| bodies.push(message.body.to_vec()));
        assert_eq!(end.unwrap().unwrap(), Outcome::Whole);
        assert_eq!(
            bodies,
            [b"abcd"],
            "messages of another exchange are ignored"
        );

        let mut answer = answer();
        assert!(answer.take(&interrupted, |_| ()).is_none());
        let end = answer.take(&done, |_| ());
        assert_eq!(end.unwrap().unwrap(), Outcome::Interrupted);
    }

    fn message(kind: i32, body: &[u8]) -> Message<'_> {
        Message {
            kind: kind as u16,
            flags: 0,
            sequence: 1,
            body,
        }
    }

    #[test]
    fn an_answer_ends_with_done_or_an_error_number() {
        assert!(end(&message(16, &[])).is_none());
        assert!(
            end(&message(libc::NLMSG_DONE, &0i32.to_ne_bytes()))
                .unwrap()
                .is_ok()
        );
        assert!(
            end(&message(libc::NLMSG_ERROR, &0i32.to_ne_bytes()))
                .unwrap()
                .is_ok()
        );
        let refused = end(&message(libc::NLMSG_DONE, &(-libc::EINVAL).to_ne_bytes())).unwrap();
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
