//! Latency at shares of each engine's PDR: distributions and their table.

use std::collections::BTreeMap;

use sidestep_testkit::traffic::trial::Latency;

use super::Results;
use super::words::{Places, of_pdr};
use crate::campaign::file::{Find, Group};
use crate::campaign::plan::{LATENCY, Point as Planned};
use crate::result::{Axis, Better, Cell, Kind, Point, Section, Series, Table};

/// Nanoseconds per unit of plots and tables.
const MICROSECOND: f64 = 1e3;

/// Returns one plot per case, with all runs merged.
pub fn sections(results: &Results, group: &Group) -> Vec<Section> {
    let cases = results.cases(group);
    let places = Places::of(&cases);
    let sections = cases.iter().filter_map(|case| {
        let label = places.label(case);
        let points = results.points(group).filter(|point| point.case == **case);
        let series = points.flat_map(|point| {
            LATENCY.iter().enumerate().filter_map(|(step, share)| {
                let points = distribution(&latencies(results, point, step));
                (!points.is_empty()).then(|| Series {
                    name: format!("{} at {}", point.engine, of_pdr(*share)),
                    subject: point.engine.clone(),
                    published: false,
                    points,
                })
            })
        });
        let series: Vec<Series> = series.collect();
        (!series.is_empty()).then(|| Section {
            id: format!("{}-{}-latency", group.name.value, places.slug(case)),
            title: format!("{}: {label}, latency", group.title()),
            note: "From generator to sink, all runs together.".into(),
            kind: Kind::Cdf,
            x: Axis::log("latency", "µs").better(Better::Lower),
            y: Axis::linear("share of the packets", ""),
            baseline: None,
            series,
        })
    });
    sections.collect()
}

/// Returns the table with one row per engine, case and load. `None` if nothing was measured.
pub fn table(results: &Results, group: &Group) -> Option<Table> {
    let cases = results.cases(group);
    let places = Places::of(&cases);
    let rows = cases.iter().flat_map(|case| {
        let label = places.label(case);
        let points = results.points(group).filter(|point| point.case == **case);
        points.flat_map(move |point| {
            let label = label.clone();
            LATENCY.iter().enumerate().filter_map(move |(step, share)| {
                let all = latencies(results, point, step);
                (!all.is_empty()).then(|| row(&label, point, *share, &all))
            })
        })
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let heads = [
        "case",
        "engine",
        "load",
        "p50 (µs)",
        "p99 (µs)",
        "p99.9 (µs)",
        "max (µs)",
        "IPDV, mean (µs)",
        "PDV, p99.9 (µs)",
        "packets",
    ];
    (!rows.is_empty()).then(|| Table {
        id: format!("{}-latency-table", group.name.value),
        title: format!("{}: latency", group.title()),
        note: "Medians over the runs; the maximum is that of all. Jitter in the terms of RFC 5481: IPDV is the difference between one packet \
               and the next, here without sign; PDV is what a packet took longer than the quickest one."
            .into(),
        heads: heads.map(String::from).to_vec(),
        rows,
    })
}

fn row(label: &str, point: &Planned, share: f64, all: &[&Latency]) -> Vec<Cell> {
    let median = |of: fn(&Latency) -> f64| {
        let values = all
            .iter()
            .map(|latency| of(latency) / MICROSECOND)
            .collect();
        Cell::Number(Point::of(0.0, values).value)
    };
    let max = all.iter().map(|latency| latency.max).fold(0.0, f64::max);
    let samples: u64 = all.iter().map(|latency| latency.samples).sum();
    vec![
        Cell::Text(label.to_owned()),
        Cell::Text(point.engine.clone()),
        Cell::Text(of_pdr(share)),
        median(|latency| latency.p50),
        median(|latency| latency.p99),
        median(|latency| latency.p999),
        Cell::Number(max / MICROSECOND),
        median(|latency| latency.jitter),
        median(Latency::pdv999),
        Cell::Number(samples as f64),
    ]
}

fn latencies<'a>(results: &Results<'a>, point: &Planned, step: usize) -> Vec<&'a Latency> {
    let runs = results.runs(point, Find::Latency).into_iter();
    let latencies = runs.filter_map(|run| run.trials.get(step)?.latency.as_ref());
    latencies.filter(|latency| latency.samples > 0).collect()
}

/// Merges several distributions: for each bound, the share of packets up to it.
fn distribution(all: &[&Latency]) -> Vec<Point> {
    // All distributions have the same classes. The bits of positive numbers have the order of the
    // numbers.
    let mut classes = BTreeMap::<u64, u64>::new();
    for latency in all {
        let mut before = 0;
        for &(bound, up_to) in &latency.histogram {
            *classes.entry(bound.to_bits()).or_default() += up_to - before;
            before = up_to;
        }
    }
    let total: u64 = classes.values().sum();
    let mut up_to = 0;
    let points = classes.into_iter().map(|(bound, packets)| {
        up_to += packets;
        let share = up_to as f64 / total as f64;
        Point {
            x: f64::from_bits(bound) / MICROSECOND,
            value: share,
            low: share,
            high: share,
            rounds: Vec::new(),
            note: None,
            key: None,
        }
    });
    points.collect()
}
