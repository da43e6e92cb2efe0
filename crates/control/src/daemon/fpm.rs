//! FPM: the listener for zebra of FRR, its session, and the time that stale routes stay.
//!
//! A session that ends leaves its routes in effect, as stale ones. The next session sends all its
//! routes, and the routes that it did not send are swept. The protocol does not mark the end of that
//! replay. A zebra that has run without interruption has ended it after [`QUIET`] without a message.
//! A zebra that has started again first learns its routes from the routing daemons, which takes
//! longer. Its stale routes stay for the hold time, as they do without a session.
//!
//! With `--fpm-reply`, zebra learns that a route is in the tables of the packet path, or that there
//! was no room for it. BGP then advertises a route only after that.

mod results;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use sidestep_mirror::OnUrgent;
use sidestep_mirror::fpm::{Counts, FRAME_MAX, decode, frame_length};

use self::results::Results;
use super::{Instance, NodeMirror, Program, System};
use crate::report;

/// Time without a message after which the replay has ended. zebra pauses for at most one second.
const QUIET: Duration = Duration::from_secs(5);
/// Default of `--fpm-hold`, in seconds.
const HOLD: u32 = 120;
/// LIMIT: bytes that are read from the session in one round of the event loop. TCP slows the peer
/// down.
const BYTES_AT_ONCE: usize = 1 << 20;
/// LIMIT: bytes buffered for the session.
const BUFFER: usize = 4 * FRAME_MAX;
/// Minimum interval between two log lines about refused connections.
const REFUSED_PERIOD: Duration = Duration::from_secs(60);
/// Idle time and interval of TCP keepalives, in seconds, and their number.
const KEEPALIVE: (u32, u32, u32) = (10, 5, 3);

/// The listener and its session.
pub(super) struct Fpm {
    listener: TcpListener,
    address: SocketAddr,
    session: Option<Session>,
    /// End of the last session that sent routes, while they are stale.
    ended: Option<Instant>,
    /// Why the last session ended.
    end: Option<End>,
    /// Netlink port ID of the zebra of the last session.
    sender: Option<u32>,
    sessions: u64,
    refused: u64,
    refused_logged: Option<Instant>,
}

/// A connected zebra.
struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    /// Time of the last frame.
    last: Instant,
    buffer: Vec<u8>,
    /// Used bytes of the buffer.
    filled: usize,
    frames: u64,
    messages: u64,
    ignored: u64,
    sender: Option<u32>,
    results: Results,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    text: String,
    /// The peer sent something that is no valid frame, or the connection failed.
    is_error: bool,
}

impl Fpm {
    /// Listens on the address.
    pub fn listen(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            session: None,
            ended: None,
            end: None,
            sender: None,
            sessions: 0,
            refused: 0,
            refused_logged: None,
        })
    }

    /// Returns the sockets with the events to poll for.
    pub fn poll_events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let session = self.session.iter().map(|it| {
            let mut events = PollFlags::POLLIN;
            events.set(PollFlags::POLLOUT, it.results.has_unsent());
            (it.stream.as_fd(), events)
        });
        std::iter::once((self.listener.as_fd(), PollFlags::POLLIN)).chain(session)
    }

    /// Returns when the stale routes are swept.
    fn sweep_due(&self, hold: Duration) -> Option<Instant> {
        let ended = self.ended?;
        Some(match &self.session {
            None => ended + hold,
            Some(session) => {
                let latest = session.since + hold;
                let is_same = session.sender.is_some() && session.sender == self.sender;
                if is_same {
                    latest.min(session.last + QUIET)
                } else {
                    latest
                }
            }
        })
    }

    /// Accepts a connection. Returns a line for the log.
    fn accept(&mut self, now: Instant) -> Option<String> {
        // An error concerns a connection that has ended already.
        let (stream, peer) = self.listener.accept().ok()?;
        if let Some(session) = &self.session {
            self.refused += 1;
            let is_recent = |at: Instant| now.duration_since(at) < REFUSED_PERIOD;
            if self.refused_logged.is_some_and(is_recent) {
                return None;
            }
            self.refused_logged = Some(now);
            return Some(format!(
                "fpm: refused {peer}: {} has the session; one zebra can connect",
                session.peer
            ));
        }
        if let Err(error) = prepare(&stream) {
            return Some(format!("fpm: {peer}: {error}"));
        }
        self.sessions += 1;
        self.session = Some(Session {
            stream,
            peer,
            since: now,
            last: now,
            buffer: vec![0; BUFFER],
            filled: 0,
            frames: 0,
            messages: 0,
            ignored: 0,
            sender: None,
            results: Results::default(),
        });
        Some(format!("fpm: {peer} connected"))
    }

    /// Ends the session. Returns a line for the log.
    fn close(&mut self, end: End, mirror: &mut impl NodeMirror, now: Instant) -> Option<String> {
        let session = self.session.take()?;
        // A session that sent nothing does not prolong the hold time of earlier routes.
        if session.frames > 0 {
            mirror.mark_fpm_stale();
            self.ended = Some(now);
            self.sender = session.sender;
        }
        let line = format!("fpm: {} disconnected: {}", session.peer, end.text);
        self.end = Some(end);
        Some(line)
    }
}

impl Session {
    /// Reads and applies frames. Returns why the session has ended, if it has. With `replies`, zebra
    /// learns the results of its routes.
    fn read(
        &mut self,
        mirror: &mut impl NodeMirror,
        urgent: &mut OnUrgent<'_>,
        (replies, now): (bool, Instant),
    ) -> Option<End> {
        self.results.send(&self.stream);
        let mut left = BYTES_AT_ONCE;
        while left > 0 {
            let space = &mut self.buffer[self.filled..];
            match self.stream.read(space) {
                Ok(0) if self.filled > 0 => {
                    let text = format!(
                        "it closed the connection within frame {}, after {} bytes",
                        self.frames + 1,
                        self.filled
                    );
                    return Some(End::error(text));
                }
                Ok(0) => {
                    return Some(End {
                        text: "it closed the connection".into(),
                        is_error: false,
                    });
                }
                Ok(bytes) => {
                    self.filled += bytes;
                    left = left.saturating_sub(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(End::error(error.to_string())),
            }
            if let Err(error) = self.apply(mirror, urgent, (replies, now)) {
                let text = format!("frame {}, {error}", self.frames + 1);
                return Some(End::error(text));
            }
        }
        self.results.overflow().map(End::error)
    }

    /// Applies the complete frames of the buffer.
    fn apply(
        &mut self,
        mirror: &mut impl NodeMirror,
        urgent: &mut OnUrgent<'_>,
        (replies, now): (bool, Instant),
    ) -> Result<(), sidestep_mirror::fpm::FpmError> {
        let mut at = 0;
        while let Some(length) = frame_length(&self.buffer[at..self.filled])? {
            let Some(bytes) = self.buffer[at..self.filled].get(..length) else {
                break;
            };
            let mut frame = decode(bytes)?;
            let routes = std::mem::take(&mut frame.routes);
            let (messages, ignored) = (frame.messages, frame.ignored);
            let sender = frame.sender;
            mirror.apply_fpm(frame, urgent)?;
            for (key, place) in routes.into_iter().filter(|_| replies) {
                self.results.expect(key, &bytes[place]);
            }
            self.frames += 1;
            self.messages += messages;
            self.ignored += ignored;
            self.sender.get_or_insert(sender);
            self.last = now;
            at += length;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

impl End {
    fn error(text: String) -> Self {
        Self {
            text,
            is_error: true,
        }
    }
}

impl<S: System> Instance<S> {
    /// Accepts zebra, applies its frames, and sweeps stale routes.
    pub(super) fn serve_fpm(&mut self, program: &mut dyn Program) {
        let hold = self.fpm_hold();
        let Some(fpm) = &mut self.clients.fpm else {
            return;
        };
        let now = self.time.now;
        let mut lines = Vec::new();
        if let Some(session) = &mut fpm.session {
            let tables = &mut self.tables;
            let mut urgent = |node: &_, change| tables.urgent(node, change);
            let end = session.read(
                &mut self.mirror,
                &mut urgent,
                (self.configured.own.fpm_reply, now),
            );
            if let Some(end) = end {
                lines.extend(fpm.close(end, &mut self.mirror, now));
            }
        }
        // After the session, so that a zebra that connects again finds the earlier session ended.
        lines.extend(fpm.accept(now));
        let counts = self.mirror.fpm_counts();
        if counts.stale_routes + counts.stale_objects == 0 {
            fpm.ended = None;
        } else if fpm.sweep_due(hold).is_some_and(|due| now >= due) {
            self.mirror.sweep_fpm();
            fpm.ended = None;
            lines.push(format!(
                "fpm: swept {} stale routes and {} stale nexthop objects",
                counts.stale_routes, counts.stale_objects
            ));
        }
        if !lines.is_empty() {
            self.clients.monitor.touch();
        }
        for line in lines {
            program.log(&line);
        }
    }

    /// Replies to zebra about the routes that it has sent. The tables have all of them, or had no room.
    pub(super) fn reply_fpm(&mut self) {
        let session = self
            .clients
            .fpm
            .as_mut()
            .and_then(|fpm| fpm.session.as_mut());
        if let Some(session) = session {
            let full = &self.tables.compiled.index.full;
            session.results.report(|key| !full.contains_key(key));
            session.results.send(&session.stream);
        }
    }

    /// Returns when to call [`Instance::serve_fpm`] although no socket is readable.
    pub(super) fn fpm_due(&self) -> Option<Instant> {
        self.clients.fpm.as_ref()?.sweep_due(self.fpm_hold())
    }

    fn fpm_hold(&self) -> Duration {
        Duration::from_secs(self.configured.own.fpm_hold.unwrap_or(HOLD).into())
    }

    pub(super) fn fpm_report(&self) -> Option<report::Fpm> {
        let fpm = self.clients.fpm.as_ref()?;
        let now = self.time.now;
        let Counts {
            routes,
            stale_routes,
            objects,
            stale_objects,
        } = self.mirror.fpm_counts();
        let session = fpm.session.as_ref();
        let hold = self.fpm_hold();
        let sweep = fpm.sweep_due(hold);
        let last_end = fpm.end.as_ref();
        Some(report::Fpm {
            address: fpm.address.to_string(),
            peer: session.map(|it| it.peer.to_string()),
            connected_for: session.map(|it| now.duration_since(it.since).as_secs()),
            routes: routes as u64,
            stale_routes: stale_routes as u64,
            nexthop_objects: objects as u64,
            stale_nexthop_objects: stale_objects as u64,
            hold: hold.as_secs(),
            sweep_within: sweep.map(|at| at.saturating_duration_since(now).as_secs()),
            messages: session.map_or(0, |it| it.messages),
            ignored: session.map_or(0, |it| it.ignored),
            reported_installed: session.map_or(0, |it| it.results.installed),
            reported_failed: session.map_or(0, |it| it.results.failed),
            sessions: fpm.sessions,
            refused: fpm.refused,
            last_end: last_end.map(|end| end.text.clone()),
            last_error: last_end
                .filter(|end| end.is_error)
                .map(|end| end.text.clone()),
        })
    }
}

/// Sets the options of an accepted connection. The keepalive detects a peer that disappeared.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let (idle, interval, count) = KEEPALIVE;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &idle)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &interval)?;
    setsockopt(stream, sockopt::TcpKeepCount, &count)?;
    Ok(())
}

/// Whether other hosts can connect to this address.
pub(crate) fn is_exposed(address: &str) -> bool {
    let address = address.parse::<SocketAddr>().map(|it| it.ip());
    !address.is_ok_and(|it: IpAddr| it.is_loopback())
}
