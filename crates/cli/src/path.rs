//! `sidestep path`: segment lists that are probed, with their state.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use sidestep_control::api::{self, Noun, Request};
use sidestep_control::report::{self, WatchedPath};

use crate::Outcome;
use crate::entry::Entry;
use crate::show_watch::painted_now;
use crate::style::is_dumb;
use crate::watch::{ended_by_signal, seconds, sleep_until};

/// A path. Its name is its key, and enough for `del`.
#[derive(Debug, clap::Args)]
pub struct Path {
    /// NAME segs A,B,... { loopback [ return C,... ] | sbfd ADDRESS remote-discriminator N }
    /// [ interval MS ] [ multiplier N ] [ flows N ] [ size BYTES ] [ hold MS ] [ source ADDRESS ] [ mode
    /// encap | encap.red ] [ lookup TABLE ] [ discriminator N ] [ admin-down ]
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

/// Arguments of `path show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Name of a path; all paths without it
    pub name: Option<String>,
    /// Print JSON; with --watch, one line per interval
    #[arg(short, long)]
    pub json: bool,
    /// Repeat every SECONDS until Ctrl-C [without a value: 1]
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
}

impl Entry for Path {
    const NOUN: Noun = Noun::Path;
    type Show = Show;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(show: &Show, out: &mut dyn Write) -> Outcome {
        let Some(delay) = show.watch else {
            return print(show, false, out);
        };
        let ended = ended_by_signal()?;
        let repaints = !show.json && io::stdout().is_terminal() && !is_dumb();
        let mut next = Instant::now();
        while sleep_until(next, &ended) {
            print(show, repaints, out)?;
            // The reader waits for this interval.
            out.flush()?;
            next += Duration::from_secs_f64(delay);
        }
        if repaints {
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Prints the paths once.
fn print(show: &Show, repaints: bool, out: &mut dyn Write) -> Outcome {
    let mut paths: report::Paths = api::ask(Request::ShowPaths)?;
    if let Some(name) = &show.name {
        paths.retain(|path| path.name == *name);
        if paths.is_empty() {
            return Err(format!("there is no path {name} (see `sidestep path show`)").into());
        }
    }
    if show.json && show.watch.is_some() {
        writeln!(out, "{}", serde_json::to_string(&paths)?)?;
    } else if show.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&paths)?)?;
    } else if repaints {
        write!(out, "{}", painted_now(&text(&paths)))?;
    } else {
        write!(out, "{}", text(&paths))?;
    }
    Ok(())
}

/// Returns the paths, each with its hops, its flows and its last changes.
fn text(paths: &[WatchedPath]) -> String {
    if paths.is_empty() {
        return "none\n".into();
    }
    let mut text = String::new();
    for path in paths {
        let used = match (path.in_use, path.wait_ms) {
            (true, _) => "in use".to_owned(),
            (false, Some(wait)) => format!("in use in {}", ago(wait * 1000)),
            (false, None) => "not in use".to_owned(),
        };
        let why = path
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(text, "{} {}, {used}{why}", path.name, path.state);
        for hop in &path.segments {
            let _ = writeln!(text, "  to {hop}");
        }
        for (number, flow) in path.flows.iter().enumerate() {
            let answered = flow.answered_us.map_or_else(
                || "no answer yet".to_owned(),
                |us| format!("last answer {} ago", ago(us)),
            );
            let (state, probes) = (&flow.state, flow.probes);
            let _ = writeln!(text, "  flow {number} {state}, {answered}, {probes} probes");
        }
        for change in path.changes.iter().rev() {
            let state = if change.in_use {
                "in use"
            } else {
                "not in use"
            };
            let passed = ago(change.ago_ms * 1000);
            let _ = writeln!(text, "  {passed} ago {state}: {}", change.why);
        }
    }
    text
}

/// Returns a time in the largest unit that leaves a digit before the point.
fn ago(us: u64) -> String {
    let units = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1000, "ms"),
    ];
    let unit = units.iter().find(|(size, _)| us >= *size);
    unit.map_or_else(
        || format!("{us} us"),
        |(size, name)| format!("{:.1} {name}", us as f64 / *size as f64),
    )
}

#[cfg(test)]
mod tests {
    use sidestep_control::report::{PathChange, PathFlow};

    use super::*;

    #[test]
    fn a_path_is_printed_hop_by_hop() {
        let path = WatchedPath {
            name: "east".into(),
            words: String::new(),
            segments: vec!["fc00:1::e".into(), "fc00:b::d6".into()],
            state: "waiting".into(),
            in_use: false,
            why: Some("alive, and waits to be used".into()),
            wait_ms: Some(1500),
            failures: 1,
            flows: vec![PathFlow {
                state: "up".into(),
                probes: 7,
                answered_us: Some(950),
            }],
            changes: vec![PathChange {
                ago_ms: 61_000,
                in_use: false,
                why: "no answers".into(),
            }],
        };
        let expected = "east waiting, in use in 1.5 s: alive, and waits to be used\n  \
                        to fc00:1::e\n  to fc00:b::d6\n  \
                        flow 0 up, last answer 950 us ago, 7 probes\n  \
                        1.0 min ago not in use: no answers\n";
        assert_eq!(text(&[path]), expected);
        assert_eq!(text(&[]), "none\n");
    }

    #[test]
    fn a_time_has_a_unit_that_fits() {
        for (us, expected) in [
            (7, "7 us"),
            (3_200, "3.2 ms"),
            (59_900_000, "59.9 s"),
            (7_200_000_000, "2.0 h"),
            (172_800_000_000, "2.0 d"),
        ] {
            assert_eq!(ago(us), expected);
        }
    }
}
