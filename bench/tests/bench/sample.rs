//! A small report with one section of each kind.

use std::collections::BTreeMap;

use sidestep_bench::result::{
    Axis, Better, Cache, Cell, Kind, Machine, Point, Refusal, Report, SCHEMA, Scale, Section,
    Series, Table,
};

/// Returns a report with all kinds of sections, a published series, a table, a refusal, and text
/// that HTML, Markdown and CSV must escape.
pub fn report() -> Report {
    Report {
        schema: SCHEMA,
        title: "Lookups & packets <side by side>".into(),
        made: "2026-01-02T03:04:05Z".into(),
        command: ["sidestep-bench", "fib", "--routes", "my routes.txt"]
            .map(String::from)
            .to_vec(),
        version: "0.1.0".into(),
        git: Some("0123abc".into()),
        program: Some("0123456789abcdef".into()),
        seed: Some(7),
        complete: false,
        seconds: 75.0,
        machine: machine(),
        notes: vec!["Two processors do everything.".into()],
        sections: vec![lookup(), rates(), spread(), latency()],
        tables: vec![Table {
            id: "levels".into(),
            title: "Levels".into(),
            note: "Of the walk.".into(),
            heads: vec!["level".into(), "share (%)".into(), "a | bar".into()],
            rows: vec![
                vec![
                    Cell::Number(1.0),
                    Cell::Number(62.5),
                    Cell::Text("<b>, \"quoted\"".into()),
                ],
                vec![
                    Cell::Number(2.0),
                    Cell::Number(37.5),
                    Cell::Text(String::new()),
                ],
            ],
        }],
        refusals: vec![Refusal {
            subject: "rte_lpm6".into(),
            at: "2,000,000 routes".into(),
            why: "no memory".into(),
        }],
    }
}

fn machine() -> Machine {
    Machine {
        cpu: "A processor".into(),
        cpus: 2,
        kernel: "6.18.0".into(),
        hypervisor: None,
        memory: 16 << 30,
        caches: vec![Cache {
            level: 1,
            kind: "Data".into(),
            bytes: 32 << 10,
        }],
        governor: None,
        mitigations: BTreeMap::from([("meltdown".into(), "Not affected".into())]),
        facts: BTreeMap::new(),
    }
}

/// Lines on logarithmic axes, with a baseline and published figures. One value is zero.
pub fn lookup() -> Section {
    let linux = series(
        "Linux",
        "linux",
        &[
            (1000.0, &[240.0, 250.0, 290.0]),
            (2e6, &[500.0, 510.0, 530.0]),
        ],
    );
    let ours = series(
        "Sidestep",
        "sidestep",
        &[(1000.0, &[10.0, 11.0, 13.0]), (2e6, &[0.0, 0.0, 0.0])],
    );
    Section {
        id: "lookup".into(),
        title: "Lookup time".into(),
        note: "Random addresses.".into(),
        kind: Kind::Line,
        x: Axis::log("routes", ""),
        y: Axis::log("lookup", "ns").better(Better::Lower),
        baseline: Some("Linux".into()),
        series: vec![ours, linux, published()],
    }
}

fn published() -> Series {
    Series {
        name: "Linux 4.4".into(),
        subject: "linux".into(),
        published: true,
        points: vec![Point {
            x: 40_000.0,
            value: 450.0,
            low: 450.0,
            high: 450.0,
            rounds: vec![],
            note: Some("of a study".into()),
            key: None,
        }],
    }
}

/// Bars over categories.
pub fn rates() -> Section {
    Section {
        id: "rates".into(),
        title: "Rates".into(),
        note: String::new(),
        kind: Kind::Bars,
        x: behaviors(),
        y: Axis::linear("rate", "kpps").better(Better::Higher),
        baseline: None,
        series: vec![
            series(
                "Sidestep",
                "sidestep",
                &[
                    (0.0, &[3300.0, 3310.0, 3320.0]),
                    (1.0, &[2900.0, 2950.0, 2960.0]),
                ],
            ),
            series("Linux", "linux", &[(0.0, &[1300.0, 1310.0, 1330.0])]),
        ],
    }
}

fn spread() -> Section {
    Section {
        id: "spread".into(),
        title: "Spread".into(),
        kind: Kind::Box,
        series: vec![series(
            "Sidestep",
            "sidestep",
            &[(0.0, &[1.0, 2.0, 3.0, 4.0, 50.0]), (1.0, &[2.0, 3.0, 4.0])],
        )],
        ..rates()
    }
}

fn latency() -> Section {
    let steps = [(1.0, 0.5), (2.0, 0.9), (8.0, 0.99), (30.0, 1.0)];
    let points = steps.map(|(x, share)| Point::of(x, vec![share]));
    Section {
        id: "latency".into(),
        title: "Latency".into(),
        note: String::new(),
        kind: Kind::Cdf,
        x: Axis::log("latency", "µs").better(Better::Lower),
        y: Axis::linear("share of packets", ""),
        baseline: None,
        series: vec![Series {
            name: "Sidestep".into(),
            subject: "sidestep".into(),
            published: false,
            points: points.to_vec(),
        }],
    }
}

fn behaviors() -> Axis {
    Axis::new(
        "behavior",
        "",
        Scale::Categories(vec!["End".into(), "H.Encaps".into()]),
    )
}

/// Returns a measured series from positions and rounds.
pub fn series(name: &str, subject: &str, points: &[(f64, &[f64])]) -> Series {
    let points = points
        .iter()
        .map(|(x, rounds)| Point::of(*x, rounds.to_vec()));
    Series {
        name: name.into(),
        subject: subject.into(),
        published: false,
        points: points.collect(),
    }
}
