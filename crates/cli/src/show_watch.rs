//! `sidestep show counters|drops --watch`: totals with their rates, once per interval.

use std::io::{self, IsTerminal, Write};

use comfy_table::Table;
use ratatui::crossterm::terminal;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::number::number;
use crate::show::What;
use crate::style::is_dumb;
use crate::top::{Rates, Snapshot, each_interval, human};
use crate::watch::{ended_by_signal, seconds};
use crate::{Outcome, tables};

/// ECMA-48: cursor to the upper left (CUP), erase to the end of the line (EL) or screen (ED).
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// Options for repeated output.
#[derive(Debug, clap::Args)]
pub struct Repeat {
    /// Repeat every SECONDS with rates per second, until Ctrl-C [without a value: 1]; for counters
    /// and drops
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
    /// Stop after N intervals
    #[arg(long, value_name = "N", requires = "watch",
        allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub count: Option<u64>,
}

/// Prints the totals and rates of every interval, `delay` seconds each.
pub fn run(what: What, delay: f64, args: &Repeat, json: bool, out: &mut dyn Write) -> Outcome {
    let report = Report::new(what)?;
    let ended = ended_by_signal()?;
    let repaints = !json && io::stdout().is_terminal() && !is_dumb();
    each_interval(delay, args.count, &ended, |after, rates| {
        if json {
            writeln!(out, "{}", report.json(after, rates))?;
        } else if repaints {
            write!(out, "{}", painted_now(&report.text(after, rates)))?;
        } else {
            writeln!(out, "{}", report.text(after, rates))?;
        }
        // The reader waits for this interval.
        Ok(out.flush()?)
    })?;
    if repaints {
        writeln!(out)?;
    }
    Ok(())
}

/// Returns the text for the screen as it is, over the previous one.
pub fn painted_now(text: &str) -> String {
    let rows = terminal::size().map_or(usize::MAX, |(_, rows)| rows.into());
    painted(text, rows)
}

/// Returns the text for a screen of this many rows, over the previous one.
fn painted(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let mut shown = lines.clone();
    let more = if lines.len() > rows {
        shown.truncate(rows.saturating_sub(1));
        format!(
            "and {}",
            tables::count((lines.len() - shown.len()) as u64, "more line")
        )
    } else {
        String::new()
    };
    if !more.is_empty() {
        shown.push(&more);
    }
    // The last line does not end in a line break, which would scroll a full screen.
    let separator = format!("{ERASE_LINE}\r\n");
    format!("{HOME}{}{ERASE_LINE}{ERASE_BELOW}", shown.join(&separator))
}

/// A report that has counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Counters,
    Drops,
}

impl Report {
    fn new(what: What) -> Result<Self, String> {
        match what {
            What::Counters => Ok(Self::Counters),
            What::Drops => Ok(Self::Drops),
            What::Status
            | What::Ports
            | What::Limits
            | What::Icmp
            | What::Fragments
            | What::Routes
            | What::Config
            | What::Fpm => Err(
                "--watch: this report has no rates; expected `show counters` or `show drops`"
                    .into(),
            ),
        }
    }

    fn json(self, after: &Snapshot, rates: &Rates) -> Value {
        let head = json!({"timestamp": rates.timestamp, "seconds": rates.seconds});
        let lists = match self {
            Self::Counters => json!({
                "ports": pairs(after.ports(), &rates.ports),
                "routes": pairs(after.routes(), &rates.routes),
            }),
            Self::Drops => json!({"reasons": pairs(after.reasons(), &rates.reasons)}),
        };
        Value::Object(joined([head, lists]))
    }

    fn text(self, after: &Snapshot, rates: &Rates) -> String {
        let tables = match self {
            Self::Counters => vec![ports(after, rates), routes(after, rates)],
            Self::Drops => vec![reasons(after, rates)],
        };
        let mut text = rates.time() + "\n";
        if tables.iter().all(Table::is_empty) {
            text += "\nnone\n";
        }
        for table in tables.iter().filter(|table| !table.is_empty()) {
            text += "\n";
            text += &table.trim_fmt();
            text += "\n";
        }
        text
    }
}

/// Returns an object for each entry, with its totals and its rates.
fn pairs<'a, T: Serialize + 'a>(
    totals: impl IntoIterator<Item = &'a T>,
    rates: &[impl Serialize],
) -> Vec<Map<String, Value>> {
    let pairs = totals.into_iter().zip(rates);
    pairs
        .map(|(total, rate)| joined([json!(total), json!(rate)]))
        .collect()
}

/// Joins objects. Fields of the same name have the same value.
fn joined(objects: [Value; 2]) -> Map<String, Value> {
    let maps = objects.into_iter().map(|object| match object {
        Value::Object(map) => map,
        _ => Map::new(),
    });
    maps.flatten().collect()
}

fn ports(after: &Snapshot, rates: &Rates) -> Table {
    let heads = [
        "port", "received", "in/s", "punted", "punt/s", "dropped", "drop/s", "sent", "out/s",
    ];
    let mut table = tables::table(&heads, &heads[1..]);
    for (port, rate) in after.ports().iter().zip(&rates.ports) {
        table.add_row([
            port.name.clone(),
            port.received_packets.to_string(),
            human(rate.received_pps),
            port.punted.to_string(),
            human(rate.punted_pps),
            port.dropped.to_string(),
            human(rate.dropped_pps),
            port.sent_packets.to_string(),
            human(rate.sent_pps),
        ]);
    }
    table
}

fn routes(after: &Snapshot, rates: &Rates) -> Table {
    let heads = ["packets", "pps", "errors", "errors/s", "route"];
    let mut table = tables::table(&heads, &heads[..4]);
    for (route, rate) in after.routes().iter().zip(&rates.routes) {
        table.add_row([
            route.packets.to_string(),
            human(rate.pps),
            route.errors.to_string(),
            human(rate.errors_pps),
            route.route.clone(),
        ]);
    }
    table
}

fn reasons(after: &Snapshot, rates: &Rates) -> Table {
    let heads = ["packets", "pps", "verdict", "reason", "meaning"];
    let mut table = tables::table(&heads, &heads[..2]);
    for (reason, rate) in after.reasons().zip(&rates.reasons) {
        table.add_row([
            reason.packets.to_string(),
            human(rate.pps),
            reason.verdict.clone(),
            reason.name.clone(),
            reason.sentence.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    #[test]
    fn a_screen_is_painted_over_and_not_scrolled() {
        let painted = |rows| painted("a\nb\nc\n", rows);
        assert_eq!(painted(3), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\nc\x1b[K\x1b[J");
        assert_eq!(painted(2), "\x1b[Ha\x1b[K\r\nand 2 more lines\x1b[K\x1b[J");
        assert_eq!(painted(0), "\x1b[Hand 3 more lines\x1b[K\x1b[J");
    }

    #[test]
    fn totals_and_rates_are_one_object() {
        let both = pairs(
            &[json!({"name": "eth0", "packets": 7})],
            &[json!({"name": "eth0", "pps": 1.5})],
        );
        assert_eq!(
            json!(both),
            json!([{"name": "eth0", "packets": 7, "pps": 1.5}])
        );
    }

    fn parsed(line: &str) -> Result<Repeat, String> {
        let words = ["sidestep", "show"].into_iter().chain(line.split(' '));
        match Cli::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .command
        {
            Some(Command::Show(args)) => Ok(args.repeat),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_interval_is_one_second_or_given() {
        for (line, expected) in [
            ("drops", None),
            ("drops --watch", Some(1.0)),
            ("--watch drops", Some(1.0)),
            ("counters --watch=0.5 --count 3", Some(0.5)),
        ] {
            assert_eq!(parsed(line).map(|args| args.watch), Ok(expected), "{line}");
        }
        for (line, expected) in [
            ("drops --watch=0", "from 0.1 to 86400"),
            ("drops --watch=often", "a number of seconds"),
            ("drops --count 3", "--watch"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_report_without_rates_names_those_with() {
        for what in [
            What::Status,
            What::Ports,
            What::Limits,
            What::Icmp,
            What::Fragments,
        ] {
            let error = Report::new(what).expect_err("no rates");
            assert!(error.contains("`show counters` or `show drops`"), "{error}");
        }
        assert_eq!(Report::new(What::Drops), Ok(Report::Drops));
    }
}
