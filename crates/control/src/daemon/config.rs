//! The configuration: ports and overlay. It changes as a whole, or not at all.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::Gid;
use serde_json::Value;
use sidestep_datapath::Limits;
use sidestep_datapath::kernel::{PIN_ROOT, ReportRate};
use sidestep_model::config::entries::{Difference, Entry, difference, entries};
use sidestep_model::config::{File, Overlay, Running};
use sidestep_model::node::Node;
use sidestep_model::settings::Mode;

use super::instance::RETRY;
use super::names::KnownNames;
use super::policy_batch::check_binding_sids;
use super::{DaemonError, Devices, Instance, NodeMirror, Overview, PacketPath, System, ports};
use crate::api::{self, ConfigText, group_name};
use crate::report;

/// A configuration to apply.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Interface names.
    pub ports: Vec<String>,
    /// Everything else.
    pub file: File,
}

impl Configuration {
    /// Checks that ports are named, or the file has `ports: []`.
    ///
    /// # Errors
    /// [`DaemonError::NoPorts`].
    pub fn check_ports(&self) -> Result<(), DaemonError> {
        if self.ports.is_empty() && !self.file.has_ports() {
            return Err(DaemonError::NoPorts);
        }
        Ok(())
    }
}

/// State of the daemon that a service manager follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The tables are filled and the programs attached, or a reload has ended.
    Ready,
    /// A reload begins.
    Reloading,
    /// The daemon is about to detach.
    Stopping,
}

/// Program that runs the daemon.
pub trait Program {
    /// Reads the node file again, with the options of the command line.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    fn read_configuration(&self) -> Result<Configuration, String>;

    /// Writes a line to the log.
    fn log(&mut self, line: &str);

    /// Called at the beginning of a phase.
    fn enter(&mut self, phase: Phase, daemon: &dyn Overview);

    /// Called at each turn of the event loop.
    fn turn(&mut self);

    /// Called about once per second.
    fn tick(&mut self, daemon: &dyn Overview);
}

/// The previous configuration, while the current one waits for its confirmation.
pub(super) struct Trial {
    until: Instant,
    ports: Vec<String>,
    own: Overlay,
    devices: Devices,
}

/// State of the configuration beside the configuration itself.
#[derive(Default)]
pub(super) struct ConfigState {
    /// The node file; none if the daemon was started without one.
    pub path: Option<PathBuf>,
    /// Why the node file could not be applied when it was read last.
    pub failed: Option<String>,
    pub trial: Option<Trial>,
}

impl ConfigState {
    /// Seconds until an unconfirmed configuration is rolled back.
    pub fn confirm_within(&self, now: Instant) -> Option<u64> {
        let left = |trial: &Trial| trial.until.saturating_duration_since(now);
        self.trial.as_ref().map(|trial| left(trial).as_secs())
    }
}

/// Returns the overlay of a configuration, and the names that it was resolved with.
///
/// # Errors
/// A port cannot be one, or an entry of the file is invalid.
pub(crate) fn resolve<'a>(
    node: &'a Node,
    devices: &Devices,
    mode: Mode,
    ports: &[String],
    file: &File,
) -> Result<(Overlay, KnownNames<'a>), DaemonError> {
    ports::check(node, mode, ports)?;
    let awaited = ports.iter().map(String::as_str).chain(file.ether_names());
    let names = KnownNames::new(node, devices, awaited);
    Ok((file.overlay(node, &names)?, names))
}

impl<S: System> Instance<S> {
    /// Replaces ports and overlay, all or nothing. Ports and entries in both configurations stay as
    /// they are.
    pub(super) fn exchange(&mut self, ports: Vec<String>, own: Overlay) -> Result<(), String> {
        self.clients.monitor.touch();
        let mode = self.configured.options.mode;
        let created = self
            .system
            .create_ethers(&mut self.mirror, mode, &ports, &own.ethers)?;
        if !created.is_empty() {
            self.watchers.ethers.notice();
        }
        let own = std::mem::replace(&mut self.configured.own, own);
        let ports = std::mem::replace(&mut self.configured.options.ports, ports);
        // Tables first, so that an attached program finds them filled.
        if let Err(error) = self.recompile_after_grace(Some(&own)) {
            self.configured.own = own;
            self.configured.options.ports = ports;
            self.apply_overlay();
            self.system.remove_ethers(created);
            return Err(error.to_string());
        }
        if self.configured.options.ports != ports || self.configured.own.ethers != own.ethers {
            self.attach_ports();
            let former = ports::named(self.mirror.node(), ports.iter().map(String::as_str));
            let names = self.port_names();
            let mut new = names.iter().filter(|name| !former.contains(name));
            let refused = new.find_map(|name| Some((name, self.ports.refused.get(name)?)));
            if let Some((name, why)) = refused {
                let error = format!("port {name}: {why}");
                self.configured.own = own;
                self.configured.options.ports = ports;
                self.health.problem = self.recompile(None).err().map(|error| error.to_string());
                self.attach_ports();
                self.system.remove_ethers(created);
                return Err(error);
            }
        }
        self.remove_ethers(&own);
        self.apply_rates(&own);
        self.track_devices();
        Ok(())
    }

    /// [`Self::exchange`] that the next instance repeats after a crash.
    pub(super) fn exchange_and_save(
        &mut self,
        ports: Vec<String>,
        own: Overlay,
    ) -> Result<(), String> {
        self.exchange(ports, own)?;
        self.save_changes();
        Ok(())
    }

    /// Saves the changes by commands. An unconfirmed configuration is not one of them.
    pub(super) fn save_changes(&mut self) {
        self.write_changes(false);
    }

    /// Saves the changes; `kept`: for the next daemon, at the end of this one.
    pub(super) fn write_changes(&mut self, kept: bool) {
        let changes = self.changes();
        let own = match &self.configured.state.trial {
            Some(trial) => &trial.own,
            None => &self.configured.own,
        };
        self.configured.saved.write(changes, &own.hmac_keys, kept);
    }

    /// Changes by commands, relative to the node file and the options.
    pub(super) fn changes(&self) -> Difference {
        let (ports, own, devices) = match &self.configured.state.trial {
            Some(trial) => (&trial.ports, &trial.own, &trial.devices),
            None => (
                &self.configured.options.ports,
                &self.configured.own,
                &self.configured.devices,
            ),
        };
        let names = KnownNames::new(self.mirror.node(), devices, awaited(ports, own));
        self.configured
            .saved
            .difference(entries(ports, own, &names))
    }

    /// Applies the rates that are not in the tables.
    pub(super) fn apply_rates(&mut self, before: &Overlay) {
        if self.configured.own.oam_rate != before.oam_rate {
            self.limit_copies();
        }
        let rate = fragment_rate(&self.configured.own);
        if rate != fragment_rate(before) {
            self.tables.kernel.limit_oversized(rate);
            self.senders.fragmenter.set_rate(rate);
        }
        let rate = icmp_rate(&self.configured.own);
        if rate != icmp_rate(before) {
            self.tables.kernel.limit_reports(rate);
            self.senders.icmp.set_rate(rate, self.time.now);
        }
    }

    fn resolve(&self, config: &Configuration) -> Result<(Overlay, KnownNames<'_>), String> {
        let (node, mode) = (self.mirror.node(), self.configured.options.mode);
        let limits = self.configured.options.limits;
        let running = Running {
            mode,
            group: self.configured.options.group.map(Gid::as_raw),
            pin_root: &self.configured.options.pin_root,
        };
        let size = |table: &str| limits.size(table);
        let fits = config.file.check_restart(running, api::gid, size);
        fits.map_err(|error| error.to_string())?;
        let (mut own, names) = resolve(
            node,
            &self.configured.devices,
            mode,
            &config.ports,
            &config.file,
        )
        .map_err(|error| error.to_string())?;
        // Controllers have installed these.
        own.paths.clone_from(&self.configured.own.paths);
        own.backups.clone_from(&self.configured.own.backups);
        check_binding_sids(&own, node)?;
        own.check_protections()?;
        // Without the key, the endpoint stays. Its threads serve the socket of the start.
        own.metrics = own.metrics.or(self.configured.own.metrics);
        if let (Some(address), true) = (own.metrics, own.metrics != self.configured.own.metrics) {
            return Err(format!(
                "metrics: the endpoint cannot change to {address} at run time; stop the daemon and \
                 start it again"
            ));
        }
        own.fpm = own.fpm.or(self.configured.own.fpm);
        if let (Some(address), true) = (own.fpm, own.fpm != self.configured.own.fpm) {
            return Err(format!(
                "fpm: the listener cannot change to {address} at run time; stop the daemon and \
                 start it again"
            ));
        }
        Ok((own, names))
    }

    /// Returns what a configuration would change, its overlay, and the names in it.
    fn compare(
        &self,
        config: &Configuration,
    ) -> Result<(Difference, Overlay, KnownNames<'_>), String> {
        let (own, names) = self.resolve(config)?;
        let before = (&self.configured.options.ports[..], &self.configured.own);
        let difference = difference(before, (&config.ports, &own), &names);
        Ok((difference, own, names))
    }

    /// Applies a configuration as a whole. Returns what changed.
    fn replace(&mut self, config: Configuration) -> Result<Difference, String> {
        let (difference, own, names) = self.compare(&config)?;
        self.configured.devices.extend(names.into_absent());
        self.exchange_and_save(config.ports, own)?;
        Ok(difference)
    }

    pub(super) fn known_names(&self) -> KnownNames<'_> {
        let awaited = awaited(&self.configured.options.ports, &self.configured.own);
        KnownNames::new(self.mirror.node(), &self.configured.devices, awaited)
    }

    /// Entries of the running configuration.
    pub(super) fn config_entries(&self) -> Vec<Entry> {
        let names = self.known_names();
        let mut all = entries(&self.configured.options.ports, &self.configured.own, &names);
        let at = all.partition_point(|entry| entry.key != "hmac");
        all.splice(at..at, self.start_entries());
        all
    }

    /// Entries that only a start applies.
    fn start_entries(&self) -> Vec<Entry> {
        let entry = |key: &str, value: String| Entry {
            key: key.into(),
            value,
        };
        let group = self
            .configured
            .options
            .group
            .map(|gid| entry("group", group_name(gid)));
        let root = &self.configured.options.pin_root;
        let is_set = root != Path::new(PIN_ROOT);
        let root = is_set.then(|| entry("pin_root", root.display().to_string()));
        let mode = self.configured.options.mode;
        let is_set = mode != Mode::default();
        let mode = is_set.then(|| entry("mode", mode.to_string()));
        let (limits, default) = (self.configured.options.limits, Limits::default());
        let sizes = Limits::TABLES.iter().filter_map(|name| {
            let size = limits.size(name)?;
            (default.size(name) != Some(size)).then(|| format!("{name}: {size}"))
        });
        let sizes: Vec<_> = sizes.collect();
        let is_set = !sizes.is_empty();
        let limits = is_set.then(|| entry("limits", format!("{{{}}}", sizes.join(", "))));
        [group, root, mode, limits].into_iter().flatten().collect()
    }

    /// Parses a node file of a client. Without the key `ports`, the ports stay. Without a secret, a
    /// key of HMAC keeps the running one.
    fn parse_config(&self, text: &ConfigText) -> Result<Configuration, String> {
        let mut file = File::parse(&text.text).map_err(|error| error.to_string())?;
        file.add_secrets(&text.secrets(), &self.configured.own.hmac_keys);
        let ports = if file.has_ports() {
            file.port_names().map(str::to_owned).collect()
        } else {
            self.configured.options.ports.clone()
        };
        Ok(Configuration { ports, file })
    }

    /// `config diff`.
    pub(super) fn config_difference(&self, text: &ConfigText) -> Result<Difference, String> {
        let (difference, ..) = self.compare(&self.parse_config(text)?)?;
        Ok(difference)
    }

    /// `config apply`.
    pub(super) fn apply_config(
        &mut self,
        text: &ConfigText,
        confirm: Option<u32>,
    ) -> Result<Difference, String> {
        self.no_trial()?;
        let config = self.parse_config(text)?;
        // Before the change, which is saved unless it has to be confirmed.
        self.configured.state.trial = confirm.map(|seconds| Trial {
            until: self.time.now + Duration::from_secs(seconds.into()),
            ports: self.configured.options.ports.clone(),
            own: self.configured.own.clone(),
            devices: self.configured.devices.clone(),
        });
        let result = self.replace(config);
        if !matches!(&result, Ok(difference) if !difference.is_empty()) {
            self.configured.state.trial = None;
        }
        let difference = result?;
        self.configured.state.failed = None;
        Ok(difference)
    }

    /// `config confirm`.
    pub(super) fn confirm_config(&mut self) -> Result<Value, String> {
        match self.configured.state.trial.take() {
            Some(_) => {
                self.save_changes();
                Ok(Value::Null)
            }
            None => Err("no configuration waits for a confirmation".into()),
        }
    }

    fn no_trial(&self) -> Result<(), String> {
        match self.configured.state.confirm_within(self.time.now) {
            Some(seconds) => Err(format!(
                "the last `config apply` waits for `sidestep config confirm`, or is rolled back in \
                 {seconds} s"
            )),
            None => Ok(()),
        }
    }

    /// Restores the previous configuration if the confirmation did not come in time.
    pub(super) fn end_trial(&mut self, program: &mut dyn Program) {
        let now = self.time.now;
        let is_over = |trial: &mut Trial| now >= trial.until;
        let Some(mut trial) = self.configured.state.trial.take_if(is_over) else {
            return;
        };
        // Interfaces may have been recreated since.
        trial.devices.track(&mut trial.own, self.mirror.node());
        trial.own.paths.clone_from(&self.configured.own.paths);
        trial.own.backups.clone_from(&self.configured.own.backups);
        self.configured
            .devices
            .extend(trial.devices.names().clone());
        match self.exchange_and_save(trial.ports.clone(), trial.own.clone()) {
            Ok(()) => {
                self.configured.state.failed = None;
                program.log("the configuration was not confirmed: the previous one is back");
            }
            Err(error) => {
                let error = format!("the previous configuration could not be restored: {error}");
                trial.until = now + RETRY;
                self.configured.state.trial = Some(trial);
                if self.configured.state.failed.as_ref() != Some(&error) {
                    program.log(&error);
                    self.configured.state.failed = Some(error);
                }
            }
        }
    }

    /// Reads the node file again and applies it. Returns what changed.
    pub(super) fn reload(&mut self, program: &mut dyn Program) -> Result<Difference, String> {
        program.enter(Phase::Reloading, self);
        let result = self.read_again(program);
        match &result {
            Ok(difference) => {
                self.configured.state.failed = None;
                let (removed, added) = (difference.removed.len(), difference.added.len());
                program.log(&format!(
                    "reload: entries removed: {removed}, added: {added}"
                ));
                for line in difference.lines() {
                    program.log(&line);
                }
            }
            Err(error) => {
                program.log(&format!("reload: {error}; nothing changes"));
                self.configured.state.failed = Some(error.clone());
            }
        }
        program.enter(Phase::Ready, self);
        result
    }

    fn read_again(&mut self, program: &dyn Program) -> Result<Difference, String> {
        let path = self.configured.state.path.clone().ok_or(
            "the daemon was started without `--config FILE`: there is no file to read again (see \
             `sidestep config apply`)",
        )?;
        self.no_trial()?;
        // Its errors name the file.
        let config = program.read_configuration()?;
        let difference = self
            .replace(config)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let names = self.known_names();
        let file = entries(&self.configured.options.ports, &self.configured.own, &names);
        self.configured
            .saved
            .rebase(file, &self.configured.own.hmac_keys);
        self.save_changes();
        Ok(difference)
    }

    /// `port add`. Returns whether the interface exists.
    pub(super) fn add_port(&mut self, name: &str) -> Result<report::AddedPort, String> {
        let mut ports = self.configured.options.ports.clone();
        let (node, mode) = (self.mirror.node(), self.configured.options.mode);
        if ports
            .iter()
            .any(|port| node.own_name(port) == node.own_name(name))
        {
            return Err(format!("port {name}: exists already"));
        }
        ports.push(name.to_owned());
        ports::check(node, mode, &ports).map_err(|error| error.to_string())?;
        self.exchange_and_save(ports, self.configured.own.clone())?;
        let port = self.attached_port(name).ok();
        Ok(report::AddedPort {
            target: port.map(|port| port.target.name().into()),
        })
    }

    /// `port del`.
    pub(super) fn del_port(&mut self, name: &str) -> Result<Value, String> {
        let mut ports = self.configured.options.ports.clone();
        let node = self.mirror.node();
        ports.retain(|port| node.own_name(port) != node.own_name(name));
        if ports == self.configured.options.ports {
            let ports = ports.join(", ");
            return Err(format!("port {name}: no such port; the ports are {ports}"));
        }
        self.exchange_and_save(ports, self.configured.own.clone())?;
        Ok(Value::Null)
    }
}

/// Names of interfaces that may not exist yet.
pub(super) fn awaited<'a>(ports: &'a [String], own: &'a Overlay) -> impl Iterator<Item = &'a str> {
    let ports = ports.iter().map(String::as_str);
    ports.chain(own.ethers.keys().map(String::as_str))
}

/// Rate limit for packets sent in fragments.
pub(super) fn fragment_rate(own: &Overlay) -> ReportRate {
    rate(own.fragment_rate, own.fragment_burst)
}

/// Rate limit for ICMP errors.
pub(super) fn icmp_rate(own: &Overlay) -> ReportRate {
    rate(own.icmp_rate, own.icmp_burst)
}

fn rate(per_second: Option<u32>, burst: Option<u32>) -> ReportRate {
    let default = ReportRate::default();
    ReportRate {
        per_second: per_second.unwrap_or(default.per_second),
        burst: burst.unwrap_or(default.burst),
    }
}
