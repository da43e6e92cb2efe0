//! Event loop of the daemon.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use sidestep_mirror::Changes;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::answers::json;
use super::fpm::Fpm;
use super::timers::{Task, Timers};
use super::{Daemon, DaemonError, Phase, Program, neighbors};
use crate::api::{Incoming, Request, run_directory};
use crate::report;

/// Polling interval for settings that cause no netlink notification (`seg6_enabled`, the tunnel
/// source). PERF: each poll interrupts a program on a busy CPU. Every 8 ms, bulk TCP between two
/// namespaces of a machine with two CPUs was 13 % slower.
const SETTINGS_PERIOD: Duration = Duration::from_millis(100);
/// Interval between surveys of the egresses whose peers TC may redirect to. A capture sees no
/// redirected packets until the next survey.
const PEERS_PERIOD: Duration = Duration::from_millis(250);
/// Interval between retries of a change that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Poll less often when polling would use more than 1/25 of a CPU, as with very many interfaces.
const SETTINGS_SHARE: u32 = 25;
/// Interval of the status callback.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

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
        let mut timers = Timers::new(Instant::now());
        timers.set(Task::Settings, Instant::now() + SETTINGS_PERIOD);
        timers.set(Task::Survey, Instant::now() + PEERS_PERIOD);
        let mut stop = None;
        program.enter(Phase::Ready, &self);
        while stop.is_none() {
            program.turn();
            let first = timers.at(Task::Settings).min(timers.at(Task::Neighbors));
            self.wait(self.due().fold(first, Instant::min))?;
            if self.is_signalled() {
                break;
            }
            self.serve_packets(program);
            let mut notified = self.read_notifications();
            let now = Instant::now();
            let settings = self.poll_settings(&mut timers, now)?;
            if self.tables.reclaim_due().is_some_and(|due| now >= due) {
                self.reclaim();
            }
            let services = self.watchers.liveness.poll(self.mirror.node(), now);
            self.survey(&mut timers, &mut notified, now)?;
            // Retry a failed change: memory may be available again.
            let again = self.health.problem.is_some() && timers.is_due(Task::Retry, now);
            let all = again || settings || services;
            if all || !notified.is_empty() {
                self.on_change(&notified, all);
                timers.set(Task::Retry, now + RETRY);
            }
            self.resume_suspended();
            if timers.is_due(Task::Neighbors, now) {
                timers.set(Task::Neighbors, now + neighbors::PERIOD);
                self.refresh_neighbors(now);
            }
            if self.ethers_due().is_some_and(|due| now >= due) {
                self.follow_ethers(now);
            }
            stop = self.serve_requests(program);
            self.end_trial(program);
            if self.take_hangup() {
                // The log and the status have the error.
                let _ = self.reload(program);
            }
            if let Some(error) = self.configured.saved.take_error() {
                program.log(&error);
            }
            self.examine_if_due(&mut timers, now, program)?;
            self.send_events(Instant::now(), false);
            if timers.is_due(Task::Status, now) {
                timers.set(Task::Status, now + STATUS_PERIOD);
                program.tick(&self);
            }
        }
        program.enter(Phase::Stopping, &self);
        self.end(stop)
    }

    /// Returns whether SIGINT or SIGTERM has arrived.
    fn is_signalled(&mut self) -> bool {
        let read = self.process.signalled.read(&mut [0; 16]);
        read.is_ok_and(|bytes| bytes > 0)
    }

    /// Serves the packet path, the clients of streams and zebra.
    fn serve_packets(&mut self, program: &mut dyn Program) {
        self.continue_trace();
        self.send_icmp();
        self.send_copies();
        self.send_fragments();
        self.clients.replies.flush(Instant::now());
        self.serve_fpm(program);
    }

    /// Reads the notifications of the kernel. Urgent ones take effect at once.
    fn read_notifications(&mut self) -> Changes {
        let tables = &mut self.tables;
        let mut urgent = |node: &_, change| tables.urgent(node, change);
        let notified = self.mirror.process_with(&mut urgent);
        let mut notified = notified.unwrap_or_else(|error| {
            self.health.problem = Some(error.to_string());
            Changes::default()
        });
        self.add_noticed(&mut notified);
        notified
    }

    /// Polls the settings that cause no notification. Returns whether one has changed.
    fn poll_settings(&mut self, timers: &mut Timers, now: Instant) -> Result<bool, DaemonError> {
        if !timers.is_due(Task::Settings, now) {
            return Ok(false);
        }
        let begun = processor_time()?;
        let differs = self.mirror.poll_sysctls().unwrap_or_else(|error| {
            self.health.problem = Some(error.to_string());
            false
        });
        let taken = processor_time()?.saturating_sub(begun);
        timers.set_after(Task::Settings, now, SETTINGS_PERIOD, taken, SETTINGS_SHARE);
        Ok(differs)
    }

    /// Ends the suspension of next hops once the tables have all changes of the node.
    fn resume_suspended(&mut self) {
        let is_known = self.mirror.is_current() && !self.mirror.awaits_links();
        if self.health.problem.is_none() && is_known {
            self.tables.resume();
            self.reply_fpm();
        }
    }

    /// Makes all checks, and restores files that were removed.
    fn examine_if_due(
        &mut self,
        timers: &mut Timers,
        now: Instant,
        program: &mut dyn Program,
    ) -> Result<(), DaemonError> {
        if !timers.is_due(Task::Examine, now) {
            return Ok(());
        }
        self.restore_files(program);
        let begun = processor_time()?;
        self.examine();
        self.clients.monitor.touch();
        let taken = processor_time()?.saturating_sub(begun);
        timers.set_after(Task::Examine, now, STATUS_PERIOD, taken, SETTINGS_SHARE);
        Ok(())
    }

    /// Surveys what redirects to peers and frames beside bridges would skip.
    fn survey(
        &mut self,
        timers: &mut Timers,
        notified: &mut Changes,
        now: Instant,
    ) -> Result<(), DaemonError> {
        if !timers.is_due(Task::Survey, now) {
            return Ok(());
        }
        let begun = processor_time()?;
        notified.links.extend(self.survey_peers());
        notified.other |= self.survey_bridges();
        let taken = processor_time()?.saturating_sub(begun);
        timers.set_after(Task::Survey, now, PEERS_PERIOD, taken, SETTINGS_SHARE);
        Ok(())
    }

    /// Counts a resync, and adds changes that were read while ether devices were created.
    fn add_noticed(&mut self, notified: &mut Changes) {
        self.health.resyncs += u64::from(notified.resynced);
        notified.other |= self.watchers.ethers.take_noticed();
    }

    /// Returns the times at which parts of the daemon have work that no socket announces.
    fn due(&self) -> impl Iterator<Item = Instant> {
        let of_parts = [
            self.tables.reclaim_due(),
            self.watchers.liveness.due(),
            self.mirror.due(),
            self.clients.monitor.due(),
            self.fpm_due(),
            self.ethers_due(),
        ];
        of_parts.into_iter().flatten()
    }

    /// Detaches everything and removes the files, unless the request is to keep them. Replies.
    fn end(mut self, stop: Option<Incoming>) -> Result<End, DaemonError> {
        let stopped = self.stopped();
        let request = stop.as_ref().map(|incoming| &incoming.request);
        let keep = matches!(request, Some(Ok(Request::Stop { keep: true })));
        let ended = if keep {
            self.write_changes(true);
            Ok(End::Kept)
        } else {
            self.remove_all_ethers();
            let detached = self.tables.kernel.detach_all().map_err(DaemonError::from);
            detached.map(|()| {
                self.process.lock.forget();
                End::Detached
            })
        };
        // Remove the socket before its directory.
        drop(self.clients.server);
        drop(self.process.lock);
        // Reply last, so that `sidestep stop` returns after the cleanup.
        if let Some(incoming) = stop {
            let done = ended.as_ref().map(|_| stopped);
            self.clients
                .replies
                .answer(incoming, done.map_err(ToString::to_string).and_then(json));
        }
        ended
    }

    /// Returns the ports and changes that end with the daemon.
    fn stopped(&self) -> report::Stopped {
        report::Stopped {
            ports: self.ports.attached.keys().cloned().collect(),
            changes: self.changes(),
        }
    }

    /// Makes the daemon's directory again, with its socket, lock and changes, if it was removed.
    fn restore_files(&mut self, program: &mut dyn Program) {
        let directory = run_directory();
        let restored = self
            .process
            .lock
            .renew(&self.options.pin_root)
            .and_then(|is_new| {
                let is_new = self.clients.server.renew()? || is_new;
                Ok(is_new)
            });
        match restored {
            Ok(false) => {}
            Ok(true) => {
                let directory = directory.display();
                program.log(&format!(
                    "files in {directory} were removed; they are made again"
                ));
                self.write_changes(false);
                // The next checks write the file with it.
                self.configured.start_command.clear();
            }
            Err(error) => {
                program.log(&format!("{}: {error}", directory.display()));
            }
        }
    }

    /// Serves the waiting requests. Returns a request to stop.
    fn serve_requests(&mut self, program: &mut dyn Program) -> Option<Incoming> {
        let mut stop = None;
        for incoming in self.clients.server.requests(Instant::now()) {
            match &incoming.request {
                Ok(Request::Stop { .. }) => stop = Some(incoming),
                Ok(Request::Trace { .. }) => self.prepare_trace(incoming),
                Ok(Request::Monitor) => self.add_monitor(incoming),
                Ok(Request::ListenOam) => self.add_oam_listener(incoming),
                Ok(Request::ReloadConfig) => {
                    let difference = self.reload(program);
                    self.clients.replies.answer(incoming, difference);
                }
                // This report is long and frequent, so it is serialized without a detour.
                Ok(Request::ShowMetrics) => {
                    self.clients.replies.answer(incoming, self.metrics_report());
                }
                request => {
                    let request = request.as_ref().map_err(Clone::clone);
                    let reply = request.and_then(|request| self.answer(request));
                    self.clients.replies.answer(incoming, reply);
                    self.clients.monitor.touch();
                }
            }
        }
        stop
    }

    /// Waits for an event or until `due`.
    fn wait(&self, due: Instant) -> Result<(), DaemonError> {
        let mut fds = vec![PollFd::new(
            self.process.signalled.as_fd(),
            PollFlags::POLLIN,
        )];
        fds.extend(
            self.clients
                .server
                .fds()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        fds.extend(
            self.mirror
                .fds()
                .into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        fds.extend(
            self.watchers
                .liveness
                .fds()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        let of_fpm = self.clients.fpm.iter().flat_map(Fpm::poll_events);
        fds.extend(of_fpm.map(|(fd, events)| PollFd::new(fd, events)));
        let of_icmp = [
            Some(self.tables.kernel.reports_fd()),
            self.senders.icmp.fd(),
        ];
        fds.extend(
            of_icmp
                .into_iter()
                .flatten()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        let of_trace = self.clients.tracing.iter();
        fds.extend(
            of_trace
                .flat_map(|tracing| tracing.poll_events(&self.tables.kernel))
                .map(|(fd, events)| PollFd::new(fd, events)),
        );
        let of_clients = self
            .senders
            .oam
            .poll_events()
            .chain(self.clients.replies.poll_events());
        let of_clients = of_clients.chain(self.clients.monitor.poll_events());
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

/// CPU time of this thread.
fn processor_time() -> Result<Duration, DaemonError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from)
        .map_err(|errno| DaemonError::System(errno.into()))
}
