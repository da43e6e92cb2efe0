//! Log and live status of `sidestep run`, and its node file for a reload.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use sidestep_control::daemon::{Configuration, Overview, Phase, Program, Status};
use sidestep_control::report::{Problem, Severity};

use crate::log::Log;
use crate::run::{Args, read_configuration};
use crate::systemd::Manager;
use crate::{netns, node_file};

/// The process in the foreground.
pub(crate) struct Foreground {
    args: Args,
    /// The live status; none without a terminal.
    live: Option<ProgressBar>,
    before: Option<(Instant, Status)>,
    log: Log,
    logged: Logged,
    manager: Manager,
}

impl Foreground {
    pub(crate) fn new(args: Args) -> Self {
        Self {
            args,
            live: std::io::stderr().is_terminal().then(live_status),
            before: None,
            log: Log::open(),
            logged: Logged::default(),
            manager: Manager::open(),
        }
    }

    /// Removes the live status.
    pub(crate) fn end(self) {
        if let Some(bar) = self.live {
            bar.finish_and_clear();
        }
    }
}

impl Program for Foreground {
    fn read_configuration(&self) -> Result<Configuration, String> {
        if let Some(path) = &self.args.config {
            node_file::check_regular(path)?;
        }
        read_configuration(&self.args).map_err(|error| error.to_string())
    }

    fn log(&mut self, line: &str) {
        match &self.live {
            Some(bar) => bar.suspend(|| self.log.line(Severity::Note, line)),
            None => self.log.line(Severity::Note, line),
        }
    }

    fn enter(&mut self, phase: Phase, daemon: &dyn Overview) {
        self.manager.enter(phase, daemon);
    }

    fn turn(&mut self) {
        self.manager.keep_alive(Instant::now());
    }

    fn tick(&mut self, daemon: &dyn Overview) {
        self.manager.set_status(daemon);
        let Some(bar) = &self.live else {
            self.logged.log_changes(daemon.problems(), self.log);
            return;
        };
        let (now, status) = (Instant::now(), daemon.status());
        bar.set_message(status_text(&status, self.before.as_ref(), now));
        self.before = Some((now, status));
    }
}

/// Problems at the last checks. The log gets a line when a problem begins and when it is resolved.
#[derive(Default)]
struct Logged(BTreeSet<Problem>);

impl Logged {
    fn log_changes(&mut self, now: &BTreeSet<Problem>, log: Log) {
        for new in Problem::begun(&self.0, now) {
            log.line(new.severity, &netns::from_outside(new.clone()).to_string());
        }
        for old in Problem::begun(now, &self.0) {
            let text = format!("resolved: {}: {}", old.code, old.description());
            log.line(Severity::Note, &text);
        }
        self.0.clone_from(now);
    }
}

fn live_status() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} running {elapsed}\n{msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// Returns a line per port, with packets per second since the last call.
fn status_text(status: &Status, before: Option<&(Instant, Status)>, now: Instant) -> String {
    let mut text = String::new();
    for port in &status.ports {
        let old =
            before.and_then(|(_, status)| status.ports.iter().find(|old| old.name == port.name));
        let seconds = before.map_or(1.0, |(then, _)| now.duration_since(*then).as_secs_f64());
        let rate = |new: u64, old: Option<u64>| {
            HumanCount(((new - old.unwrap_or(new).min(new)) as f64 / seconds) as u64).to_string()
        };
        let _ = writeln!(
            text,
            "  {:<12} in {:>12}/s  forwarded {:>12}/s  punted {:>10}/s  dropped {:>10}/s  out {:>12}/s",
            port.name,
            rate(port.received_packets, old.map(|old| old.received_packets)),
            rate(port.forwarded, old.map(|old| old.forwarded)),
            rate(port.punted, old.map(|old| old.punted)),
            rate(port.dropped, old.map(|old| old.dropped)),
            rate(port.sent_packets, old.map(|old| old.sent_packets)),
        );
    }
    for problem in &status.problems {
        let _ = writeln!(text, "  {}", netns::from_outside(problem.clone()));
    }
    text.trim_end().to_owned()
}
