//! The thread that probes paths. It needs nothing from the event loop while it runs, so that a long
//! compilation delays no probe.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, sendmmsg, setsockopt,
    socket, sockopt,
};
use nix::time::ClockId;
use sidestep_datapath::kernel::{self, NextHops, Sender, Sessions};
use sidestep_datapath::{AdjacencyId, Kernel, RouteId, SessionId};
use sidestep_model::node::{IfIndex, Mac};

use super::engine::{Engine, Event, Io, Snapshot, Spec};
use super::session::Nanos;
use crate::daemon::nanoseconds;
use crate::link_address::link_address;

/// Probes paths, and says which of them are out of use.
pub(in crate::daemon) trait PathProber {
    /// Packet path that carries the probes.
    type Path;

    /// As [`Engine::configure`].
    fn configure(&mut self, specs: BTreeMap<String, Spec>);
    /// The tables may be elsewhere now.
    fn refresh(&mut self, path: &Self::Path);
    /// Returns the events since the last call.
    fn take_events(&mut self) -> Vec<Event>;
    /// As [`Engine::snapshot`].
    fn snapshot(&self, name: &str) -> Option<Snapshot>;
    /// When to call [`Self::take_events`] although no descriptor is readable.
    fn due(&self) -> Option<Instant>;
}

/// LIMIT: packets that one system call sends.
const BATCH: usize = 64;

/// The prober of a running daemon.
pub(in crate::daemon) struct ThreadProber {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Readable after an event.
    readable: UnixStream,
    lines: u32,
}

struct Shared {
    state: Mutex<Probing>,
    /// The engine has other paths, or the thread is to end.
    changed: Condvar,
}

struct Probing {
    engine: Engine,
    io: LinuxIo,
    is_stopped: bool,
}

struct LinuxIo {
    sessions: Sessions,
    next_hops: NextHops,
    sender: Sender,
    socket: OwnedFd,
    /// Frames of this turn, one after the other, with their lengths and egresses.
    frames: Vec<u8>,
    sent: Vec<(usize, u32)>,
    random: u64,
    announce: UnixStream,
}

impl ThreadProber {
    /// Starts the thread, without paths.
    pub fn start(kernel: &Kernel) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("paths cannot be probed: {error}");
        let sessions = kernel.session_table().map_err(|error| failed(&error))?;
        let next_hops = kernel.next_hops().map_err(|error| failed(&error))?;
        let sender = kernel.sender().map_err(|error| failed(&error))?;
        let socket = packet_socket().map_err(|error| failed(&error))?;
        let (readable, announce) = UnixStream::pair().map_err(|error| failed(&error))?;
        for end in [&readable, &announce] {
            end.set_nonblocking(true).map_err(|error| failed(&error))?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(Probing {
                engine: Engine::default(),
                io: LinuxIo {
                    sessions,
                    next_hops,
                    sender,
                    socket,
                    frames: vec![],
                    sent: vec![],
                    random: RandomState::new().hash_one(0_u8) | 1,
                    announce,
                },
                is_stopped: false,
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("paths".into());
        let thread = thread.spawn(move || {
            // A thread that starts with the daemon has the privileges of its start.
            if kernel::drop_privileges().is_ok() {
                of_thread.run();
            }
        });
        Ok(Self {
            shared,
            thread: Some(thread.map_err(|error| failed(&error))?),
            readable,
            lines: kernel.fib_lines(),
        })
    }

    /// Descriptor that is readable after an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl PathProber for ThreadProber {
    type Path = Kernel;

    fn configure(&mut self, specs: BTreeMap<String, Spec>) {
        let mut state = self.shared.lock();
        let Probing { engine, io, .. } = &mut *state;
        engine.configure(specs, now(), io);
        drop(state);
        self.shared.changed.notify_one();
    }

    fn refresh(&mut self, kernel: &Kernel) {
        let lines = kernel.fib_lines();
        if lines == self.lines {
            return;
        }
        // Without memory, probes go by the table as it was, and the next call tries again.
        if let Ok(sender) = kernel.sender() {
            self.shared.lock().io.sender = sender;
            self.lines = lines;
        }
    }

    fn take_events(&mut self) -> Vec<Event> {
        let mut bytes = [0; 64];
        while self.readable.read(&mut bytes).is_ok_and(|read| read > 0) {}
        self.shared.lock().engine.take_events()
    }

    fn snapshot(&self, name: &str) -> Option<Snapshot> {
        self.shared.lock().engine.snapshot(name, now())
    }

    fn due(&self) -> Option<Instant> {
        None
    }
}

impl Drop for ThreadProber {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Probing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_stopped {
            let Probing { engine, io, .. } = &mut *state;
            let next = engine.turn(now(), io);
            io.flush();
            if engine.has_events() {
                // A full socket has announced it already.
                let _ = io.announce.write(&[0]);
            }
            let wait = Duration::from_nanos(next.saturating_sub(now()));
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl LinuxIo {
    /// Sends the frames of this turn.
    fn flush(&mut self) {
        let mut frames = vec![];
        let mut rest = &self.frames[..];
        for (length, _) in &self.sent {
            let (frame, behind) = rest.split_at(*length);
            frames.push([io::IoSlice::new(frame)]);
            rest = behind;
        }
        let to: Vec<Option<LinkAddr>> = self
            .sent
            .iter()
            .map(|(_, egress)| {
                let ipv6 = nix::libc::ETH_P_IPV6 as u16;
                Some(link_address(IfIndex(*egress), ipv6, Mac::default()))
            })
            .collect();
        for (frames, to) in frames.chunks(BATCH).zip(to.chunks(BATCH)) {
            let mut headers = MultiHeaders::preallocate(frames.len(), None);
            // A frame that the device refuses is a probe without an answer; those behind it follow.
            let mut done = 0;
            while done < frames.len() {
                let sent = sendmmsg(
                    self.socket.as_raw_fd(),
                    &mut headers,
                    &frames[done..],
                    &to[done..],
                    [],
                    MsgFlags::MSG_DONTWAIT,
                );
                done += sent.map_or(1, |sent| sent.count().max(1));
            }
        }
        self.frames.clear();
        self.sent.clear();
    }
}

impl Io for LinuxIo {
    fn answered(&self, session: SessionId) -> u64 {
        self.sessions.answered(session)
    }

    fn send(&mut self, route: RouteId, packet: &[u8]) -> Result<(), &'static str> {
        let sent = self.sender.send(route, packet);
        let (egress, frame) = sent.map_err(|reason| reason.name)?;
        self.frames.extend_from_slice(frame);
        self.sent.push((frame.len(), egress));
        Ok(())
    }

    fn set_down(&mut self, session: SessionId, down: bool) {
        self.sessions.set_down(session, down);
    }

    fn take_down(&mut self, next_hop: AdjacencyId) {
        self.next_hops.take_down_one(next_hop);
    }

    fn is_down(&self, session: SessionId) -> bool {
        self.sessions.read(session).down != 0
    }

    fn random(&mut self) -> u64 {
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn now() -> Nanos {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// Opens a packet socket that receives nothing.
fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    setsockopt(&socket, sockopt::SndBuf, &(1 << 20))?;
    Ok(socket)
}
