//! Notifications of the daemon's state to systemd (`sd_notify(3)`), for a unit with `Type=notify`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sidestep_control::daemon::{Overview, Phase, Summary};
use sidestep_control::report::{Problem, Severity};

use crate::tables::count;

/// The service manager. Without one, nothing is sent.
pub(crate) struct Manager {
    is_present: bool,
    watchdog: Option<Watchdog>,
    /// The last status line.
    status: String,
}

/// Keep-alive messages that the manager expects.
struct Watchdog {
    period: Duration,
    due: Instant,
}

impl Manager {
    /// Returns the manager that started this process.
    pub(crate) fn open() -> Self {
        let is_present = std::env::var_os("NOTIFY_SOCKET").is_some();
        let timeout = sd_notify::watchdog_enabled().filter(|it| is_present && !it.is_zero());
        Self {
            is_present,
            // sd_watchdog_enabled(3) recommends half of the timeout.
            watchdog: timeout.map(|timeout| Watchdog {
                period: timeout / 2,
                due: Instant::now(),
            }),
            status: String::new(),
        }
    }

    /// Reports a phase.
    pub(crate) fn enter(&mut self, phase: Phase, daemon: &dyn Overview) {
        match phase {
            Phase::Ready => {
                self.send(&[NotifyState::Ready]);
                self.set_status(daemon);
            }
            Phase::Reloading => {
                // Type=notify-reload requires the time.
                if let Ok(now) = NotifyState::monotonic_usec_now() {
                    self.send(&[NotifyState::Reloading, now]);
                }
            }
            Phase::Stopping => self.send(&[NotifyState::Stopping]),
        }
    }

    /// Sends a keep-alive message if one is due.
    pub(crate) fn keep_alive(&mut self, now: Instant) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|it| now >= it.due) else {
            return;
        };
        watchdog.due = now + watchdog.period;
        self.send(&[NotifyState::Watchdog]);
    }

    /// Reports the line that `systemctl status` prints, if it has changed.
    pub(crate) fn set_status(&mut self, daemon: &dyn Overview) {
        if !self.is_present {
            return;
        }
        let status = status_line(daemon.summary(), daemon.problems());
        if status != self.status {
            self.send(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.is_present {
            // Forwarding does not depend on the manager.
            let _ = sd_notify::notify(states);
        }
    }
}

fn status_line(summary: Summary, problems: &BTreeSet<Problem>) -> String {
    let number = |count: usize, noun| self::count(count as u64, noun);
    let mut text = format!("forwarding on {}", number(summary.attached, "port"));
    if summary.missing > 0 {
        let _ = write!(text, ", {} not attached", summary.missing);
    }
    let _ = write!(text, "; {} mirrored", prefixes(summary.prefixes));
    for (severity, noun) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        match problems.iter().filter(|it| it.severity == severity).count() {
            0 => {}
            found => {
                let _ = write!(text, "; {}", number(found, noun));
            }
        }
    }
    text
}

fn prefixes(count: usize) -> String {
    format!("{count} prefix{}", if count == 1 { "" } else { "es" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_counts_ports_and_problems() {
        let problem = |severity, code: &str| Problem::new(severity, code, "");
        let mut summary = Summary {
            attached: 1,
            missing: 0,
            prefixes: 1,
        };
        let quiet = BTreeSet::from([problem(Severity::Note, "kernel_feature")]);
        assert_eq!(
            status_line(summary, &quiet),
            "forwarding on 1 port; 1 prefix mirrored"
        );
        summary.missing = 2;
        summary.prefixes = 70;
        let found = BTreeSet::from([
            problem(Severity::Error, "port_down"),
            problem(Severity::Error, "port_missing"),
            problem(Severity::Warning, "xdp_on_veth"),
        ]);
        assert_eq!(
            status_line(summary, &found),
            "forwarding on 1 port, 2 not attached; 70 prefixes mirrored; 2 errors; 1 warning"
        );
    }
}
