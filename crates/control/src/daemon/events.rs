//! Event loop of the daemon.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::answers::json;
use super::fpm::Fpm;
use super::timers::Task;
use super::{Daemon, DaemonError, Phase, Program};
use crate::api::{Incoming, Request, run_directory};

/// Returns a socket that is readable after SIGINT or SIGTERM. These signals no longer end
/// the process.
pub(super) fn signals() -> std::io::Result<UnixStream> {
    let (signalled, sender) = UnixStream::pair()?;
    signalled.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    Ok(signalled)
}

/// Returns a flag that SIGHUP sets.
pub(super) fn hang_ups() -> std::io::Result<Arc<AtomicBool>> {
    let hung_up = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, hung_up.clone())?;
    Ok(hung_up)
}

/// End of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing is left.
    Detached,
    /// Programs, tables and changes stay for the next daemon.
    Kept,
}

impl Daemon {
    /// Runs until SIGINT, SIGTERM or `sidestep stop`, then detaches everything and removes its
    /// files, unless the request is to keep them.
    pub fn run(mut self, program: &mut dyn Program) -> Result<End, DaemonError> {
        let mut stop = None;
        program.enter(Phase::Ready, &self.instance);
        while stop.is_none() {
            program.turn();
            self.wait()?;
            if self.is_signalled() {
                break;
            }
            self.instance.time.now = Instant::now();
            self.instance.continue_trace();
            self.instance.turn(program);
            // A turn may compile for a while, and requests set terms that begin with them.
            self.instance.time.now = Instant::now();
            stop = self.serve_requests(program);
            if self.take_hangup() {
                // The log and the status have the error.
                let _ = self.instance.reload(program);
            }
            if self.instance.time.is_due(Task::Examine) {
                self.restore_files(program);
            }
            self.instance.end_turn(program);
        }
        program.enter(Phase::Stopping, &self.instance);
        self.end(stop)
    }

    /// Returns whether SIGINT or SIGTERM has arrived.
    fn is_signalled(&mut self) -> bool {
        let read = self.process.signalled.read(&mut [0; 16]);
        read.is_ok_and(|bytes| bytes > 0)
    }

    /// Detaches everything and removes the files, unless the request is to keep them. Replies.
    fn end(mut self, stop: Option<Incoming>) -> Result<End, DaemonError> {
        let stopped = self.instance.stopped();
        let request = stop.as_ref().map(|incoming| &incoming.request);
        let keep = matches!(request, Some(Ok(Request::Stop { keep: true })));
        let ended = if keep {
            self.instance.write_changes(true);
            Ok(End::Kept)
        } else {
            self.instance.remove_all_ethers();
            let detached = self.instance.tables.kernel.detach_all();
            detached.map_err(DaemonError::from).map(|()| {
                self.process.lock.forget();
                End::Detached
            })
        };
        // Remove the socket before its directory.
        drop(self.process);
        // Reply last, so that `sidestep stop` returns after the cleanup.
        if let Some(incoming) = stop {
            let done = ended.as_ref().map(|_| stopped);
            let done = done.map_err(ToString::to_string).and_then(json);
            let now = self.instance.time.now;
            self.instance.clients.replies.answer(incoming, done, now);
        }
        ended
    }

    /// Makes the daemon's directory again, with its socket, lock and changes, if it was removed.
    fn restore_files(&mut self, program: &mut dyn Program) {
        let directory = run_directory();
        let pin_root = &self.instance.configured.options.pin_root;
        let restored = self.process.lock.renew(pin_root);
        let restored = restored.and_then(|is_new| Ok(self.process.server.renew()? || is_new));
        match restored {
            Ok(false) => {}
            Ok(true) => {
                let directory = directory.display();
                program.log(&format!(
                    "files in {directory} were removed; they are made again"
                ));
                self.instance.write_changes(false);
                // The next checks write the file with it.
                self.instance.configured.start_command.clear();
            }
            Err(error) => {
                program.log(&format!("{}: {error}", directory.display()));
            }
        }
    }

    /// Serves the waiting requests. Returns a request to stop.
    fn serve_requests(&mut self, program: &mut dyn Program) -> Option<Incoming> {
        let mut stop = None;
        for incoming in self.process.server.requests(self.instance.time.now) {
            match &incoming.request {
                Ok(Request::Stop { .. }) => stop = Some(incoming),
                Ok(Request::Trace { .. }) => self.instance.prepare_trace(incoming),
                _ => self.instance.serve(incoming, program),
            }
        }
        stop
    }

    /// Waits for an event, or until work is due that no socket announces.
    fn wait(&self) -> Result<(), DaemonError> {
        let due = self.instance.due();
        let mut fds = vec![PollFd::new(
            self.process.signalled.as_fd(),
            PollFlags::POLLIN,
        )];
        fds.extend(
            self.process
                .server
                .fds()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        fds.extend(
            self.instance
                .mirror
                .fds()
                .into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        fds.extend(
            self.instance
                .watchers
                .liveness
                .fds()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        let of_paths = self.instance.watchers.paths.fd();
        fds.extend(of_paths.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let of_fpm = self.instance.clients.fpm.iter().flat_map(Fpm::poll_events);
        fds.extend(of_fpm.map(|(fd, events)| PollFd::new(fd, events)));
        let of_icmp = [
            Some(self.instance.tables.kernel.reports_fd()),
            self.instance.senders.icmp.fd(),
        ];
        fds.extend(
            of_icmp
                .into_iter()
                .flatten()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        let of_trace = self.instance.clients.tracing.iter();
        fds.extend(
            of_trace
                .flat_map(|tracing| tracing.poll_events(&self.instance.tables.kernel))
                .map(|(fd, events)| PollFd::new(fd, events)),
        );
        let of_clients = self
            .instance
            .senders
            .oam
            .poll_events()
            .chain(self.instance.clients.replies.poll_events());
        let of_clients = of_clients.chain(self.instance.clients.monitor.poll_events());
        fds.extend(of_clients.map(|(fd, events)| PollFd::new(fd, events)));
        let left = due.saturating_duration_since(Instant::now());
        let timeout =
            PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(DaemonError::System(errno.into())),
        }
    }
}
