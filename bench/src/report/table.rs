//! The tables of a section: the values of its plot for readers and for programs.

use crate::result::{Axis, Cell, Kind, Point, Refusal, Scale, Section, Series, Table};
use crate::statistics::Summary;

use super::findings;

/// Percentiles that describe a distribution.
const PERCENTILES: [(&str, f64); 6] = [
    ("median", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("highest", 1.0),
];

/// Returns the values only, with a row per position and a column per series. `None` if [`points`]
/// already has the same content.
pub fn overview(section: &Section) -> Option<Table> {
    let places = places(section);
    if section.kind == Kind::Cdf || places.len() < 2 || section.series.len() < 2 {
        return None;
    }
    let mut heads = vec![head(&section.x)];
    heads.extend(section.series.iter().map(legend));
    let rows = places.iter().map(|&x| {
        let values = section.series.iter().map(|series| match at(series, x) {
            Some(point) => Cell::Number(point.value),
            None => empty(),
        });
        std::iter::once(place(&section.x, x))
            .chain(values)
            .collect()
    });
    Some(Table {
        id: format!("{}-overview", section.id),
        title: head(&section.y),
        note: String::new(),
        heads,
        rows: rows.collect(),
    })
}

/// Returns all columns of every point, and the percentiles of a distribution.
pub fn points(section: &Section) -> Table {
    let (heads, rows) = match section.kind {
        Kind::Cdf => percentiles(section),
        Kind::Line | Kind::Bars | Kind::Box => statistics(section),
    };
    Table {
        id: section.id.clone(),
        title: section.title.clone(),
        note: section.note.clone(),
        heads,
        rows,
    }
}

/// Machine-readable table: one row per point, full precision.
pub fn raw(section: &Section) -> Table {
    let heads = [
        "x",
        "series",
        "subject",
        "published",
        "value",
        "low",
        "high",
        "rounds",
        "mean",
        "standard_deviation",
        "cv",
        "ci95",
        "note",
    ];
    let rows = section.series.iter().flat_map(|series| {
        series.points.iter().map(|point| {
            let summary = Summary::of(&point.rounds);
            let spread = summary.and_then(|summary| summary.spread);
            let number = |value: Option<f64>| value.map_or_else(empty, Cell::Number);
            vec![
                place(&section.x, point.x),
                Cell::Text(series.name.clone()),
                Cell::Text(series.subject.clone()),
                Cell::Text(series.published.to_string()),
                Cell::Number(point.value),
                Cell::Number(point.low),
                Cell::Number(point.high),
                Cell::Number(point.rounds.len() as f64),
                number(summary.map(|summary| summary.mean)),
                number(spread.map(|spread| spread.standard_deviation)),
                number(spread.and_then(|spread| spread.cv)),
                number(spread.map(|spread| spread.ci95)),
                Cell::Text(point.note.clone().unwrap_or_default()),
            ]
        })
    });
    Table {
        id: section.id.clone(),
        title: section.title.clone(),
        note: section.note.clone(),
        heads: heads.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

/// Returns the points that were not measured.
pub fn refusals(refusals: &[Refusal]) -> Table {
    let rows = refusals.iter().map(|refusal| {
        let cells = [&refusal.subject, &refusal.at, &refusal.why];
        cells.map(|text| Cell::Text(text.clone())).to_vec()
    });
    Table {
        id: "refusals".into(),
        title: "Not measured".into(),
        note: String::new(),
        heads: ["what", "where", "why"].map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

/// Returns the name of a series in legends and tables.
pub fn legend(series: &Series) -> String {
    if series.published {
        format!("{} (other hardware)", series.name)
    } else {
        series.name.clone()
    }
}

/// Returns title and unit of an axis.
pub fn head(axis: &Axis) -> String {
    match axis.unit.as_str() {
        "" => axis.name.clone(),
        unit => format!("{} ({unit})", axis.name),
    }
}

/// Returns the label of a position on an axis.
pub fn place(axis: &Axis, x: f64) -> Cell {
    match &axis.scale {
        Scale::Categories(words) => Cell::Text(words.get(x as usize).cloned().unwrap_or_default()),
        Scale::Linear | Scale::Log => Cell::Number(x),
    }
}

type Rows = (Vec<String>, Vec<Vec<Cell>>);

fn statistics(section: &Section) -> Rows {
    let baseline = section
        .baseline
        .as_ref()
        .and_then(|name| section.series.iter().find(|series| &series.name == name));
    let mut heads = vec![head(&section.x), "of".into(), head(&section.y)];
    heads.extend(
        [
            "mean",
            "SD",
            "CV (%)",
            "± 95 % CI",
            "lowest",
            "highest",
            "rounds",
        ]
        .map(String::from),
    );
    // The column "times Linux" replaces a percentage of Linux.
    let baseline = baseline.filter(|series| series.subject != findings::LINUX);
    heads.push(findings::TIMES_LINUX.into());
    heads.push(baseline.map_or_else(String::new, |series| format!("% of {}", series.name)));
    heads.push("note".into());
    let rows = places(section).into_iter().flat_map(|x| {
        section.series.iter().filter_map(move |series| {
            let point = at(series, x)?;
            let base = baseline.and_then(|series| at(series, x));
            Some(row(section, series, point, base))
        })
    });
    without_empty_columns(heads, rows.collect())
}

fn row(section: &Section, series: &Series, point: &Point, baseline: Option<&Point>) -> Vec<Cell> {
    let summary = Summary::of(&point.rounds);
    let spread = summary.and_then(|summary| summary.spread);
    let number = |value: Option<f64>| value.map_or_else(empty, Cell::Number);
    let varies = point.low < point.high;
    let variation = findings::varies(point).then(|| findings::VARIES.to_owned());
    let notes = point.note.clone().into_iter().chain(variation);
    vec![
        place(&section.x, point.x),
        Cell::Text(legend(series)),
        Cell::Number(point.value),
        number(summary.map(|summary| summary.mean)),
        number(spread.map(|spread| spread.standard_deviation)),
        number(spread.and_then(|spread| spread.cv).map(|cv| cv * 100.0)),
        number(spread.map(|spread| spread.ci95)),
        number(varies.then_some(point.low)),
        number(varies.then_some(point.high)),
        number(summary.map(|summary| summary.count as f64)),
        number(findings::times_linux(section, point).filter(|_| !series.published)),
        number(
            baseline
                .filter(|base| base.value != 0.0)
                .map(|base| point.value / base.value * 100.0),
        ),
        Cell::Text(notes.collect::<Vec<_>>().join("; ")),
    ]
}

/// Returns the first position in a series of steps at which each share is reached.
fn percentiles(section: &Section) -> Rows {
    let mut heads = vec![format!("{} of", head(&section.x))];
    heads.extend(PERCENTILES.map(|(name, _)| name.to_string()));
    let rows = section.series.iter().map(|series| {
        let reached = PERCENTILES.map(|(_, share)| {
            let step = series.points.iter().find(|point| point.value >= share);
            step.map_or_else(empty, |point| Cell::Number(point.x))
        });
        std::iter::once(Cell::Text(legend(series)))
            .chain(reached)
            .collect()
    });
    (heads, rows.collect())
}

/// Removes columns that are empty in all rows.
pub fn without_empty_columns(heads: Vec<String>, rows: Vec<Vec<Cell>>) -> Rows {
    let kept: Vec<bool> = (0..heads.len())
        .map(|column| rows.iter().any(|row| row[column] != empty()))
        .collect();
    let heads = kept_of(heads, &kept);
    (
        heads,
        rows.into_iter().map(|row| kept_of(row, &kept)).collect(),
    )
}

fn kept_of<T>(cells: Vec<T>, kept: &[bool]) -> Vec<T> {
    cells
        .into_iter()
        .zip(kept)
        .filter_map(|(cell, kept)| kept.then_some(cell))
        .collect()
}

/// Returns all positions at which some series has a point, in ascending order.
pub fn places(section: &Section) -> Vec<f64> {
    let all = section
        .series
        .iter()
        .flat_map(|series| series.points.iter().map(|point| point.x));
    let mut places: Vec<f64> = all.collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}

/// Returns the point of a series at this position.
pub fn at(series: &Series, x: f64) -> Option<&Point> {
    series
        .points
        .iter()
        .find(|point| point.x.total_cmp(&x).is_eq())
}

fn empty() -> Cell {
    Cell::Text(String::new())
}
