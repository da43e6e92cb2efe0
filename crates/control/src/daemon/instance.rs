//! An instance without its sockets and files: everything that the daemon decides. Time and the
//! system are arguments, so that tests run it in virtual time without a kernel.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use serde::Serialize;
use sidestep_datapath::kernel::Origin;
use sidestep_mirror::Changes;
use sidestep_model::config::Overlay;
use sidestep_model::node::Node;

use super::changes::{Initial, TakenOver};
use super::config::{self, ConfigState};
use super::fragment::Fragmenter;
use super::icmp::Icmp;
use super::oam::Oam;
use super::packet_path::PacketPath;
use super::parts::{Clients, Configured, Health, Ports, Senders, Watchers};
use super::system::{NodeMirror, System};
use super::tables::Tables;
use super::timers::{Task, Time};
use super::{DaemonError, Options, Port, Program, neighbors};
use crate::api::{Incoming, Request};
use crate::report;

/// Polling interval for settings that cause no netlink notification (`seg6_enabled`, the tunnel
/// source). PERF: each poll interrupts a program on a busy CPU. Every 8 ms, bulk TCP between two
/// namespaces of a machine with two CPUs was 13 % slower.
const SETTINGS_PERIOD: Duration = Duration::from_millis(100);
/// Interval between surveys of the egresses whose peers TC may redirect to. A capture sees no
/// redirected packets until the next survey.
const PEERS_PERIOD: Duration = Duration::from_millis(250);
/// Interval between retries of a change or a rollback that failed.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Poll less often when polling would use more than 1/25 of a CPU, as with very many interfaces.
const SETTINGS_SHARE: u32 = 25;
/// Interval of the status callback.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// A running instance.
pub(super) struct Instance<S: System> {
    pub system: S,
    pub mirror: S::Mirror,
    pub configured: Configured,
    pub tables: Tables<S::Path>,
    pub ports: Ports,
    pub watchers: Watchers<S::Prober, S::PathProber>,
    pub senders: Senders<S::Messenger, S::FrameSender>,
    pub clients: Clients,
    pub health: Health,
    pub time: Time,
}

/// Status for the foreground display.
#[derive(Clone, Debug)]
pub struct Status {
    /// Counters of the ports.
    pub ports: Vec<report::PortCounters>,
    /// Target of each requested port, with the reason.
    pub targets: report::Ports,
    /// Prefixes in all views.
    pub prefixes: usize,
    /// Whether SIDs are processed only on ports with `seg6_enabled`.
    pub requires_seg6_enabled: bool,
    /// Result of the last checks.
    pub problems: BTreeSet<report::Problem>,
}

/// Summary for a service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of attached ports.
    pub attached: usize,
    /// Number of ports that are not attached.
    pub missing: usize,
    /// Prefixes in all views.
    pub prefixes: usize,
}

/// State of an instance for the program that runs it.
pub trait Overview {
    /// Status for the foreground display.
    fn status(&self) -> Status;

    /// Summary for a service manager. It reads no counters.
    fn summary(&self) -> Summary;

    /// Result of the last checks.
    fn problems(&self) -> &BTreeSet<report::Problem>;
}

impl<S: System> Overview for Instance<S> {
    fn status(&self) -> Status {
        Status {
            ports: self.port_counters().unwrap_or_default(),
            targets: self.ports_report(),
            prefixes: self.tables.compiled.image.fib.len(),
            requires_seg6_enabled: self.configured.own.settings.require_seg6_enabled,
            problems: self.health.examined.clone(),
        }
    }

    fn summary(&self) -> Summary {
        let attached = self.ports.attached.len();
        Summary {
            attached,
            missing: self.port_names().len().saturating_sub(attached),
            prefixes: self.tables.compiled.image.fib.len(),
        }
    }

    fn problems(&self) -> &BTreeSet<report::Problem> {
        &self.health.examined
    }
}

impl<S: System> Instance<S> {
    /// Returns an instance that is not up yet.
    pub fn new(
        system: S,
        (mut mirror, path): (S::Mirror, S::Path),
        (initial, options): (Initial, Options),
        clients: Clients,
        now: Instant,
    ) -> Self {
        let Initial {
            own,
            devices,
            saved,
            taken_over,
            without: _,
        } = initial;
        let icmp_rate = config::icmp_rate(&own);
        path.limit_reports(icmp_rate);
        let fragment_rate = config::fragment_rate(&own);
        path.limit_oversized(fragment_rate);
        system.guard_links(&mut mirror, &path);
        let mut instance = Self {
            tables: Tables::new(path, options.limits, mirror.node(), (&own, &devices), now),
            system,
            mirror,
            configured: Configured {
                own,
                devices,
                saved,
                taken_over,
                start_command: String::new(),
                state: ConfigState {
                    path: options.config_path.clone(),
                    ..ConfigState::default()
                },
                options,
            },
            ports: Ports::default(),
            watchers: Watchers::default(),
            senders: Senders {
                icmp: Icmp::new(icmp_rate, now),
                oam: Oam::default(),
                fragmenter: Fragmenter::new(fragment_rate, now),
            },
            clients,
            health: Health::default(),
            time: Time::new(now),
        };
        let timers = &mut instance.time.timers;
        timers.set(Task::Settings, now + SETTINGS_PERIOD);
        timers.set(Task::Survey, now + PEERS_PERIOD);
        instance.limit_copies();
        instance
    }

    /// Brings the instance up. If the changes of the previous instance prevent it, it starts without
    /// them.
    pub fn bring_up_with(
        &mut self,
        without: Option<(Vec<String>, Overlay)>,
    ) -> Result<(), DaemonError> {
        let (error, (ports, own)) = match (self.bring_up(), without) {
            (Err(error), Some(without)) => (error, without),
            (result, _) => return result,
        };
        self.configured.taken_over = Some(TakenOver {
            entries: 0,
            left_out: vec![format!("the changes by commands: {error}")],
        });
        let before = std::mem::replace(&mut self.configured.own, own);
        self.configured.options.ports = ports;
        self.ports.refused.clear();
        self.apply_overlay();
        self.apply_rates(&before);
        self.bring_up()
    }

    fn bring_up(&mut self) -> Result<(), DaemonError> {
        // The tables of an instance that died change after everything that may fail. Other tables are
        // filled first, so that an attached program finds them filled.
        let adopted = self.tables.origin == Origin::Adopted;
        if self.survey_bridges() {
            self.apply_overlay();
        }
        if adopted {
            self.check_compilation()?;
            self.attach_all()?;
        }
        self.recompile_after_grace(None)?;
        let full = &self.tables.compiled.index.full;
        if let Some(table) = self
            .configured
            .own
            .routes
            .keys()
            .find_map(|key| full.get(key))
        {
            return Err(self.tables.compiler.full(table).into());
        }
        if !adopted {
            self.attach_all()?;
        }
        self.detach_others();
        let devices = &self.configured.own.ethers;
        self.system.remove_other_ethers(self.mirror.node(), devices);
        // After the first compilation, which determines the egresses.
        let peers = Changes {
            links: self.survey_peers(),
            ..Changes::default()
        };
        if !peers.is_empty() && !self.apply_incremental(&peers) {
            self.recompile_after_grace(None)?;
        }
        // The first log line of a problem follows the start at once.
        self.examine();
        Ok(())
    }

    /// The mirrored node with the overlay.
    pub fn node(&self) -> &Node {
        self.tables.overlaid.node(self.mirror.node())
    }

    /// Records the names of interfaces in the overlay, and follows interfaces that were recreated.
    pub fn track_devices(&mut self) {
        let moved = self
            .configured
            .devices
            .track(&mut self.configured.own, self.mirror.node());
        self.watchers.liveness.rename_devices(&moved);
    }

    /// Applies a change of the kernel's configuration; `settings`: also of settings without
    /// notification.
    pub fn on_change(&mut self, changes: &Changes, settings: bool) {
        self.clients.monitor.touch();
        self.watchers.ethers.touch();
        let is_small = !settings && !changes.other && !changes.is_empty();
        if is_small && self.health.problem.is_none() && self.apply_incremental(changes) {
            self.retry_paths(&changes.routes);
            return;
        }
        if changes.other || changes.resynced {
            self.forget_ethers();
            self.track_devices();
        }
        self.health.problem = self.recompile(None).err().map(|error| error.to_string());
        if changes.other {
            self.attach_again();
        }
        self.attach_ports();
    }

    pub fn attached_port(&self, name: &str) -> Result<&Port, String> {
        let name = self.mirror.node().own_name(name);
        self.ports.attached.get(name).ok_or_else(|| {
            let ports: Vec<_> = self.ports.attached.keys().map(String::as_str).collect();
            format!(
                "port {name}: not attached; attached ports are {}",
                ports.join(", ")
            )
        })
    }

    /// Time since a reading of the monotonic clock.
    pub fn taken_since(&self, begun: u64) -> Duration {
        let now = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
        Duration::from_nanos(now.saturating_sub(begun))
    }

    /// CPU time of this thread.
    fn processor_time(&self) -> Duration {
        Duration::from_nanos(self.system.nanoseconds(ClockId::CLOCK_THREAD_CPUTIME_ID))
    }

    /// Sets the next run of a task whose work took this CPU time.
    fn set_after(&mut self, task: Task, period: Duration, taken: Duration) {
        let Time { now, timers, .. } = &mut self.time;
        timers.set_after(task, *now, period, taken, SETTINGS_SHARE);
    }

    /// Processes what happened until [`Time::now`], before the requests of clients.
    pub fn turn(&mut self, program: &mut dyn Program) {
        let now = self.time.now;
        self.send_icmp();
        self.send_copies();
        self.send_fragments();
        self.clients.replies.flush(now);
        self.serve_fpm(program);
        let mut notified = self.read_notifications();
        let settings = self.poll_settings();
        if self.tables.reclaim_due().is_some_and(|due| now >= due) {
            self.reclaim();
        }
        let liveness = &mut self.watchers.liveness;
        let services = liveness.poll(&self.system, self.mirror.node(), now);
        self.survey(&mut notified);
        notified.routes.extend(self.tables.held.release(now));
        // Retry a failed change: memory may be available again.
        let again = self.health.problem.is_some() && self.time.is_due(Task::Retry);
        if self.follow_paths() {
            self.apply_watched();
        }
        let all = again || settings || services;
        if all || !notified.is_empty() {
            self.on_change(&notified, all);
            self.time.timers.set(Task::Retry, now + RETRY);
        }
        self.tables.held.begin(now);
        self.resume_suspended();
        if self.time.is_due(Task::Neighbors) {
            self.time
                .timers
                .set(Task::Neighbors, now + neighbors::PERIOD);
            self.refresh_neighbors(now);
        }
        if self.ethers_due().is_some_and(|due| now >= due) {
            self.follow_ethers(now);
        }
    }

    /// Processes what follows the requests of clients.
    pub fn end_turn(&mut self, program: &mut dyn Program) {
        let now = self.time.now;
        self.end_trial(program);
        if let Some(error) = self.configured.saved.take_error() {
            program.log(&error);
        }
        if self.time.is_due(Task::Examine) {
            let begun = self.processor_time();
            self.examine();
            self.clients.monitor.touch();
            let taken = self.processor_time().saturating_sub(begun);
            self.set_after(Task::Examine, STATUS_PERIOD, taken);
        }
        self.send_events(now, false);
        if self.time.is_due(Task::Status) {
            self.time.timers.set(Task::Status, now + STATUS_PERIOD);
            program.tick(self);
        }
    }

    /// Serves a request of a client.
    pub fn serve(&mut self, incoming: Incoming, program: &mut dyn Program) {
        match &incoming.request {
            Ok(Request::Monitor) => self.add_monitor(incoming),
            Ok(Request::ListenOam) => self.add_oam_listener(incoming),
            Ok(Request::ReloadConfig) => {
                let difference = self.reload(program);
                self.reply(incoming, difference);
            }
            // This report is long and frequent, so it is serialized without a detour.
            Ok(Request::ShowMetrics) => self.reply(incoming, self.metrics_report()),
            request => {
                let request = request.as_ref().map_err(Clone::clone);
                let reply = request.and_then(|request| self.answer(request));
                self.reply(incoming, reply);
                self.clients.monitor.touch();
            }
        }
    }

    /// Replies to a request.
    pub fn reply(&mut self, incoming: Incoming, result: Result<impl Serialize, String>) {
        let now = self.time.now;
        self.clients.replies.answer(incoming, result, now);
    }

    /// Replies with an error.
    pub fn refuse(&mut self, incoming: Incoming, message: String) {
        self.reply(incoming, Err::<(), _>(message));
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
    fn poll_settings(&mut self) -> bool {
        if !self.time.is_due(Task::Settings) {
            return false;
        }
        let begun = self.processor_time();
        self.mirror
            .set_prefixes(self.tables.compiled.image.fib.len());
        let differs = self.mirror.poll_sysctls().unwrap_or_else(|error| {
            self.health.problem = Some(error.to_string());
            false
        });
        let taken = self.processor_time().saturating_sub(begun);
        self.set_after(Task::Settings, SETTINGS_PERIOD, taken);
        differs
    }

    /// Ends the suspension of next hops once the tables have all changes of the node.
    fn resume_suspended(&mut self) {
        let is_known = self.mirror.is_current() && !self.mirror.awaits_links();
        if self.health.problem.is_none() && is_known {
            self.tables.resume();
            self.reply_fpm();
        }
    }

    /// Surveys what redirects to peers and frames beside bridges would skip.
    fn survey(&mut self, notified: &mut Changes) {
        if !self.time.is_due(Task::Survey) {
            return;
        }
        let begun = self.processor_time();
        notified.links.extend(self.survey_peers());
        notified.other |= self.survey_bridges();
        let taken = self.processor_time().saturating_sub(begun);
        self.set_after(Task::Survey, PEERS_PERIOD, taken);
    }

    /// Counts a resync, and adds changes that were read while ether devices were created.
    fn add_noticed(&mut self, notified: &mut Changes) {
        self.health.resyncs += u64::from(notified.resynced);
        notified.other |= self.watchers.ethers.take_noticed();
    }

    /// Returns when to call [`Self::turn`] although no socket is readable.
    pub fn due(&self) -> Instant {
        let timers = &self.time.timers;
        let first = timers.at(Task::Settings).min(timers.at(Task::Neighbors));
        let of_parts = [
            self.tables.reclaim_due(),
            self.tables.held.due(),
            self.watchers.liveness.due(),
            self.watchers.paths.due(),
            self.mirror.due(),
            self.clients.monitor.due(),
            self.fpm_due(),
            self.ethers_due(),
        ];
        of_parts.into_iter().flatten().fold(first, Instant::min)
    }

    /// Returns the ports and changes that end with the daemon.
    pub fn stopped(&self) -> report::Stopped {
        report::Stopped {
            ports: self.ports.attached.keys().cloned().collect(),
            changes: self.changes(),
        }
    }
}
