//! Requests and their answers: one message, or a dump. Dumps use a socket of their own, so that
//! replies never mix with notifications and are never lost: the kernel continues a dump when the
//! socket has space for it.

use std::io;

use crate::error::MirrorError;
use crate::socket::{Received, Socket};
use crate::wire::{Message, frame, messages, u32_at};

/// LIMIT: how often a dump is repeated that changes interrupted. The last one is taken as it is:
/// what changed meanwhile comes as a notification.
const ATTEMPTS: usize = 8;

/// Kernel object to dump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// In words, for errors.
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

    /// Everything that the kernel has of one kind: `decode` of every message, in the kernel's
    /// order, the messages that decode to nothing left out.
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

    /// Asks for one object.
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

    /// Makes one object, or changes the one that there is.
    pub fn create(&mut self, request: Request<'_>) -> Result<(), MirrorError> {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16;
        self.exchange(request, flags, |_| ()).map(|_| ())
    }

    /// Sends a request and hands every message of the answer to `each`.
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

/// An answer as it comes in.
struct Answer {
    sequence: u32,
    outcome: Outcome,
}

impl Answer {
    /// Hands the messages of a datagram to `each`. Gives how the answer ended, if it did.
    fn take(
        &mut self,
        datagram: &[u8],
        mut each: impl FnMut(&Message<'_>),
    ) -> Option<io::Result<Outcome>> {
        // Others are left of an exchange that failed half way.
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

/// Whether an answer is consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is.
    Whole,
    /// The kernel changed the objects during the dump (`NLM_F_DUMP_INTR`): entries may be missing
    /// or repeated.
    Interrupted,
}

/// Whether `message` ends an answer, and how: `NLMSG_DONE` and `NLMSG_ERROR` carry zero or a
/// negated error number.
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
    fn an_interrupted_dump_is_known_by_any_of_its_messages() {
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
            "what is left of another exchange is no part of it"
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
