//! The tables of `top`: one for the ports, routes, reasons and segment lists each. The screen and
//! the batch mode print the same cells.

use std::ops::Range;

use super::rates::{ListRate, PathRate, PortRate, Rates, ReasonRate, RouteRate};

/// Order of the rows, the greatest first except for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Packets per second
    #[default]
    Packets,
    /// Bits per second
    Bits,
    /// Packets per second that were dropped or punted, or had errors
    Errors,
    /// Names of ports, prefixes, reasons and policies
    Name,
}

impl Sort {
    /// Name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bits => "bits",
            Self::Errors => "errors",
            Self::Name => "name",
        }
    }
}

/// Meaning of a cell for its color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to report.
    #[default]
    Normal,
    /// Worth a look: packets that were punted.
    Notice,
    /// Wrong: packets that were dropped, or a port that is down.
    Wrong,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Text.
    pub text: String,
    /// Meaning.
    pub tone: Tone,
}

/// A table. The last column takes the rest of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Column heads.
    pub heads: Vec<&'static str>,
    /// Columns with numbers.
    pub numbers: Range<usize>,
    /// Rows in order.
    pub rows: Vec<Line>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// One cell for each column.
    pub cells: Vec<Cell>,
    /// Whether it had packets in the interval.
    pub is_busy: bool,
}

/// Formats a rate with three digits: `0.4`, `12`, `1.23k`, `45.6M`.
pub fn human(rate: f64) -> String {
    if rate == 0.0 {
        return "0".into();
    }
    if rate < 9.95 {
        return format!("{rate:.1}");
    }
    let (mut value, mut unit) = (rate, "");
    for larger in ["k", "M", "G", "T"] {
        // 999.5 would be printed as 1000.
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1e3, larger);
    }
    let decimals = match value {
        _ if unit.is_empty() => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

fn text(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        tone: Tone::Normal,
    }
}

fn rate(value: f64) -> Cell {
    text(human(value))
}

/// A rate that should be 0.
fn alarming(value: f64, tone: Tone) -> Cell {
    Cell {
        text: human(value),
        tone: if value > 0.0 { tone } else { Tone::Normal },
    }
}

/// Sort key of a row.
struct Key<'a> {
    packets: f64,
    bits: f64,
    errors: f64,
    name: &'a str,
}

/// Returns the entries in this order. Entries with the same rates are in the order of the report.
fn sorted<'a, T>(entries: &'a [T], sort: Sort, key: impl Fn(&'a T) -> Key<'a>) -> Vec<&'a T> {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by(|left, right| {
        let (left, right) = (key(left), key(right));
        match sort {
            Sort::Packets => right.packets.total_cmp(&left.packets),
            Sort::Bits => right.bits.total_cmp(&left.bits),
            Sort::Errors => right.errors.total_cmp(&left.errors),
            Sort::Name => left.name.cmp(right.name),
        }
    });
    sorted
}

/// Returns the table of a kind of entry.
fn grid<'a, T>(
    heads: &[&'static str],
    numbers: Range<usize>,
    entries: Vec<&'a T>,
    key: impl Fn(&'a T) -> Key<'a>,
    cells: impl Fn(&'a T) -> Vec<Cell>,
) -> Grid {
    let line = |entry| Line {
        is_busy: key(entry).packets > 0.0,
        cells: cells(entry),
    };
    Grid {
        heads: heads.to_vec(),
        numbers,
        rows: entries.into_iter().map(line).collect(),
    }
}

/// Returns the tables of ports, routes, reasons, segment lists and paths.
pub fn grids(rates: &Rates, sort: Sort) -> [Grid; 5] {
    [
        ports(&rates.ports, sort),
        routes(&rates.routes, sort),
        reasons(&rates.reasons, sort),
        lists(&rates.lists, sort),
        paths(&rates.paths, sort),
    ]
}

fn ports(ports: &[PortRate], sort: Sort) -> Grid {
    fn key(port: &PortRate) -> Key<'_> {
        Key {
            packets: port.received_pps + port.sent_pps,
            bits: port.received_bps + port.sent_bps,
            errors: port.dropped_pps + port.punted_pps,
            name: &port.name,
        }
    }
    let heads = [
        "port",
        "in pps",
        "in bit/s",
        "out pps",
        "out bit/s",
        "punted",
        "dropped",
        "state",
    ];
    grid(&heads, 1..7, sorted(ports, sort, key), key, |port| {
        let state = port.state.unwrap_or("no port");
        let is_wrong = matches!(state, "down" | "absent");
        vec![
            text(&port.name),
            rate(port.received_pps),
            rate(port.received_bps),
            rate(port.sent_pps),
            rate(port.sent_bps),
            alarming(port.punted_pps, Tone::Notice),
            alarming(port.dropped_pps, Tone::Wrong),
            Cell {
                text: state.into(),
                tone: if is_wrong { Tone::Wrong } else { Tone::Normal },
            },
        ]
    })
}

fn routes(routes: &[RouteRate], sort: Sort) -> Grid {
    fn key(route: &RouteRate) -> Key<'_> {
        Key {
            packets: route.pps,
            bits: route.bps,
            errors: route.errors_pps,
            name: &route.route,
        }
    }
    let heads = ["pps", "bit/s", "errors", "route"];
    grid(&heads, 0..3, sorted(routes, sort, key), key, |route| {
        vec![
            rate(route.pps),
            rate(route.bps),
            alarming(route.errors_pps, Tone::Wrong),
            text(&route.route),
        ]
    })
}

fn reasons(reasons: &[ReasonRate], sort: Sort) -> Grid {
    fn key(reason: &ReasonRate) -> Key<'_> {
        Key {
            packets: reason.pps,
            bits: reason.pps,
            errors: reason.pps,
            name: &reason.name,
        }
    }
    let heads = ["pps", "packets", "verdict", "reason", "meaning"];
    grid(&heads, 0..2, sorted(reasons, sort, key), key, |reason| {
        let tone = match &*reason.verdict {
            "drop" => Tone::Wrong,
            _ => Tone::Notice,
        };
        vec![
            alarming(reason.pps, tone),
            text(reason.packets.to_string()),
            text(&reason.verdict),
            text(&reason.name),
            text(&reason.sentence),
        ]
    })
}

fn lists(lists: &[ListRate], sort: Sort) -> Grid {
    fn key(list: &ListRate) -> Key<'_> {
        Key {
            packets: list.pps,
            bits: list.bps,
            errors: 0.0,
            name: &list.policy,
        }
    }
    let heads = ["pps", "bit/s", "policy", "preference", "segment list"];
    grid(&heads, 0..2, sorted(lists, sort, key), key, |list| {
        let active = if list.active { "" } else { " (inactive)" };
        vec![
            rate(list.pps),
            rate(list.bps),
            text(&list.policy),
            text(format!("{}{active}", list.preference)),
            text(list.segments.join(",")),
        ]
    })
}

fn paths(paths: &[PathRate], sort: Sort) -> Grid {
    fn key(path: &PathRate) -> Key<'_> {
        Key {
            packets: path.probes_pps,
            bits: path.probes_pps,
            errors: f64::from(u8::from(!path.in_use)),
            name: &path.path,
        }
    }
    let heads = ["probes", "answer ms", "path", "state", "segment list"];
    grid(&heads, 0..2, sorted(paths, sort, key), key, |path| {
        let answered = path.answered_ms.map_or_else(|| "-".into(), human);
        let segments = path.segments.join(",");
        vec![
            rate(path.probes_pps),
            text(answered),
            text(&path.path),
            Cell {
                text: path.state.clone(),
                tone: if path.in_use {
                    Tone::Normal
                } else {
                    Tone::Wrong
                },
            },
            text(match &path.why {
                Some(why) => format!("{segments}: {why}"),
                None => segments,
            }),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_unit() {
        for (rate, expected) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (3.26, "3.3"),
            (9.96, "10"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (99_960.0, "100k"),
            (999_700.0, "1.00M"),
            (45_600_000_000.0, "45.6G"),
            (2e15, "2000T"),
        ] {
            assert_eq!(human(rate), expected, "{rate}");
        }
    }

    #[test]
    fn rows_are_in_the_order_of_their_rates() {
        let route = |name: &str, pps, bps, errors_pps| RouteRate {
            route: name.into(),
            pps,
            bps,
            errors_pps,
            ..RouteRate::default()
        };
        let rates = Rates {
            routes: vec![
                route("b", 10.0, 9e3, 0.0),
                route("c", 20.0, 8e3, 0.0),
                route("a", 0.0, 0.0, 1.0),
            ],
            ..Rates::default()
        };
        let order = |sort| {
            let [_, routes, ..] = grids(&rates, sort);
            let names = routes.rows.iter().map(|line| line.cells[3].text.as_str());
            names.collect::<String>()
        };
        assert_eq!(order(Sort::Packets), "cba");
        assert_eq!(order(Sort::Bits), "bca");
        assert_eq!(order(Sort::Errors), "abc");
        assert_eq!(order(Sort::Name), "abc");
        let [_, routes, ..] = grids(&rates, Sort::Packets);
        let busy: Vec<_> = routes.rows.iter().map(|line| line.is_busy).collect();
        assert_eq!(busy, [true, true, false]);
        assert_eq!(routes.rows[2].cells[2].tone, Tone::Wrong, "errors");
    }
}
