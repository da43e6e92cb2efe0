//! `sidestep monitor`: prints changes of the daemon's state as they happen.

use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use sidestep_control::api::{self, Request};
use sidestep_control::report::Event;

use crate::Outcome;
use crate::number::number;

/// Arguments of `monitor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stop after N events [default: at Ctrl-C]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Print JSON, one line per event
    #[arg(short, long)]
    pub json: bool,
    /// Kinds of events [default: all]
    #[arg(value_name = "KIND", value_enum)]
    pub kinds: Vec<Kind>,
}

/// Kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A port is added, attached, up, down, detached or removed
    Port,
    /// A route is added, changed or removed; its packets are punted, or forwarded again
    Route,
    /// An SR policy is valid, invalid, changed or removed
    Policy,
    /// A candidate path of a controller is active, valid, invalid or withdrawn
    #[value(name = "candidate_path")]
    CandidatePath,
    /// The service of an SR proxy is up or down
    Service,
    /// The zebra of an FPM session connects or disconnects
    Fpm,
    /// A problem of `sidestep doctor` begins or is resolved
    Problem,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (_, events) = api::stream(Request::Monitor)?;
    // Standard output has only the events, which may go to a program.
    eprintln!("waiting for events; Ctrl-C ends it");
    let mut left = args.count;
    for event in events {
        let event: Event = serde_json::from_value(event?)?;
        let kind = event.change.kind.as_str();
        // Lost events may have been of any kind.
        let is_named = |it: &Kind| {
            it.to_possible_value()
                .is_some_and(|it| it.matches(kind, false))
        };
        let is_wanted = kind == "monitor" || args.kinds.iter().any(is_named);
        if !args.kinds.is_empty() && !is_wanted {
            continue;
        }
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&event)?)?;
        } else {
            writeln!(out, "{}", line(&event))?;
        }
        // The reader waits for this line.
        out.flush()?;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
    }
    Err("the daemon has exited".into())
}

/// Formats an event: time, kind, what happened, and to what.
fn line(event: &Event) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(event.timestamp);
    let change = &event.change;
    let severity = change.severity.map(|it| format!(" ({})", it.name()));
    let detail = change.detail.as_ref().map(|it| format!(": {it}"));
    format!(
        "{} {} {} {}{}{}",
        humantime::format_rfc3339_millis(time),
        change.kind,
        change.event,
        change.subject,
        severity.unwrap_or_default(),
        detail.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use sidestep_control::report::{Change, Severity};

    use super::*;

    #[test]
    fn a_line_has_the_time_the_subject_and_the_reason() {
        let event = |severity, detail: Option<&str>| Event {
            timestamp: 1_795_464_000_184_467_440,
            change: Change {
                kind: "problem".into(),
                event: "begun".into(),
                subject: "port_down".into(),
                detail: detail.map(str::to_owned),
                severity,
                path: None,
            },
        };
        assert_eq!(
            line(&event(Some(Severity::Error), Some("port eth1 is down"))),
            "2026-11-23T20:00:00.184Z problem begun port_down (error): port eth1 is down"
        );
        assert_eq!(
            line(&event(None, None)),
            "2026-11-23T20:00:00.184Z problem begun port_down"
        );
    }
}
