//! PDR, NDR and MRR of a group: a plot with a box or a point per engine and case, and the table
//! that studies print.

use super::words::{self, Places};
use crate::engine::Case;
use sidestep_testkit::traffic::trial::Disorder;

use super::{CEILING_SHARE, Results};
use crate::campaign::file::{Find, Group, Published};
use crate::campaign::log::Measured;
use crate::campaign::plan::{self, Point as Planned};
use crate::campaign::repeat::STEAL_MAX;
use crate::report::findings::{LINUX, TIMES_LINUX, VARIES};
use crate::report::table::without_empty_columns;
use crate::result::{Axis, Better, Cell, Kind, Point, Section, Series, Table};
use crate::search::{Bound, Found, PACING};
use crate::statistics::Summary;

/// Default baseline of a group.
const BASELINE: &str = "ipv6";

/// Remark about a rate that generator and sink limit.
const BASELINE_LIMITED: &str = "the generator limits the baseline: the real share is lower";

/// Returns the rate of a run in thousands of packets per second.
pub fn kpps(measured: &Measured) -> f64 {
    match measured.found {
        Some(found) => found.rate / 1e3,
        None => measured
            .trials
            .first()
            .map_or(0.0, |trial| trial.received_rate() / 1e3),
    }
}

fn rounds(results: &Results, point: &Planned, find: Find) -> Vec<f64> {
    results.runs(point, find).into_iter().map(kpps).collect()
}

/// Returns the plot. `None` if nothing was measured.
pub fn section(results: &Results, group: &Group, find: Find) -> Option<Section> {
    let cases = results.cases(group);
    let places = Places::of(&cases);
    let engines = results.engines(group).into_iter().filter_map(|engine| {
        let points = results.points(group).filter(|point| point.engine == engine);
        let measured = points.filter_map(|point| {
            let rounds = rounds(results, point, find);
            (!rounds.is_empty()).then(|| Point {
                note: note(results, point, find),
                key: Some(point.case.to_string()),
                ..Point::of(places.at(&point.case), rounds)
            })
        });
        series(engine, engine, false, measured.collect())
    });
    let mut all: Vec<Series> = engines.collect();
    if all.is_empty() {
        return None;
    }
    for figure in figures(group, find) {
        let Some(value) = figure.kpps else { continue };
        let name = figure_name(figure);
        let points = cases
            .iter()
            .filter(|case| figure.is_of(case))
            .map(|case| Point {
                x: places.at(case),
                value,
                low: value,
                high: value,
                rounds: Vec::new(),
                note: Some(figure.source.clone()),
                key: None,
            });
        let points: Vec<Point> = points.collect();
        match all
            .iter_mut()
            .find(|series| series.published && series.name == name)
        {
            Some(series) => series.points.extend(points),
            None => all.extend(series(&name, &figure.engine, true, points)),
        }
    }
    for series in &mut all {
        series
            .points
            .sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    Some(Section {
        id: format!("{}-{}", group.name.value, words::slug(words::find(find))),
        title: format!("{}: {}", group.title(), words::find(find)),
        note: group.note.clone(),
        kind: if places.is_line() {
            Kind::Line
        } else {
            Kind::Box
        },
        x: places.axis(),
        y: Axis::linear(words::find(find), "kpps")
            .better(Better::Higher)
            .resolution(results.resolution(find)),
        baseline: None,
        series: all,
    })
}

/// Returns the table: one row per engine and case, then the published figures.
pub fn table(results: &Results, group: &Group, find: Find) -> Table {
    let cases = results.cases(group);
    let places = Places::of(&cases);
    let baseline = group
        .baseline
        .as_ref()
        .map_or(BASELINE, |baseline| &baseline.value);
    let of_baseline = format!("% of {}", words::title(baseline));
    let heads = [
        "case".to_owned(),
        "engine".into(),
        "mean (kpps)".into(),
        "SD (kpps)".into(),
        "CV (%)".into(),
        "± 95 % CI (kpps)".into(),
        "median (kpps)".into(),
        "lowest".into(),
        "highest".into(),
        "runs".into(),
        TIMES_LINUX.into(),
        of_baseline.clone(),
        "published (kpps, other hardware)".into(),
        format!("published ({of_baseline})"),
        "note".into(),
    ];
    let mut rows = Vec::new();
    for case in &cases {
        let label = || Cell::Text(places.label(case));
        for point in results.points(group).filter(|point| point.case == **case) {
            let values = rounds(results, point, find);
            let Some(summary) = Summary::of(&values) else {
                continue;
            };
            let spread = summary.spread;
            let base = baseline_rate(results, point, find, baseline);
            let share = base.map(|(_, base)| summary.mean / base * 100.0);
            let limited =
                base.filter(|(base, _)| *base != point && is_limited(results, base, find));
            let limited = limited.map(|_| BASELINE_LIMITED.to_owned());
            let varies = spread.filter(|spread| !spread.is_citable());
            let notes = note(results, point, find).into_iter().chain(limited);
            let notes = notes.chain(varies.map(|_| VARIES.to_owned()));
            let linux = linux_rate(results, point, find);
            rows.push(vec![
                label(),
                Cell::Text(point.engine.clone()),
                Cell::Number(summary.mean),
                number(spread.map(|spread| spread.standard_deviation)),
                number(spread.and_then(|spread| spread.cv).map(|cv| cv * 100.0)),
                number(spread.map(|spread| spread.ci95)),
                Cell::Number(summary.median),
                Cell::Number(summary.low),
                Cell::Number(summary.high),
                Cell::Number(summary.count as f64),
                number(linux.map(|linux| summary.median / linux)),
                number(share),
                number(None),
                number(None),
                Cell::Text(notes.collect::<Vec<_>>().join("; ")),
            ]);
        }
        let figures = figures(group, find).filter(|figure| figure.is_of(case));
        rows.extend(figures.map(|figure| published_row(label(), figure, heads.len())));
    }
    let (heads, rows) = without_empty_columns(heads.to_vec(), rows);
    Table {
        id: format!(
            "{}-{}-table",
            group.name.value,
            words::slug(words::find(find))
        ),
        title: format!("{}: {}", group.title(), words::find(find)),
        note: results
            .resolution(find)
            .map_or_else(String::new, |epsilon| {
                format!("The resolution of the search is {} %.", epsilon * 100.0)
            }),
        heads,
        rows,
    }
}

/// Returns the published figures of a case as a row with this number of cells.
fn published_row(label: Cell, figure: &Published, cells: usize) -> Vec<Cell> {
    let mut row = vec![number(None); cells];
    row[0] = label;
    row[1] = Cell::Text(format!("{} (other hardware)", figure.engine));
    row[12] = number(figure.kpps);
    row[13] = number(figure.percent);
    row[14] = Cell::Text(figure.source.clone());
    row
}

fn series(name: &str, subject: &str, published: bool, points: Vec<Point>) -> Option<Series> {
    (!points.is_empty()).then(|| Series {
        name: name.into(),
        subject: subject.into(),
        published,
        points,
    })
}

fn figures(group: &Group, find: Find) -> impl Iterator<Item = &Published> {
    let all = group.published.iter().map(|published| &published.value);
    all.filter(move |figure| figure.find == find)
}

fn figure_name(figure: &Published) -> String {
    format!("{}, {}", figure.engine, figure.source)
}

/// Returns the mean rate of the same engine's baseline, with the same traffic and the fewest rules
/// and routes, from the same group if possible. For another behavior the baseline has the same
/// number of segments if available; for the baseline itself it has the fewest segments.
fn baseline_rate<'a>(
    results: &Results<'a>,
    point: &Planned,
    find: Find,
    baseline: &str,
) -> Option<(&'a Planned, f64)> {
    let alike = |other: &&Planned| {
        let (one, other_case) = (&point.case, &other.case);
        other.engine == point.engine
            && other_case.behavior == baseline
            && plan::sent_alike(other_case) == plan::sent_alike(one)
    };
    let itself = point.case.behavior == baseline;
    let far = |other: &&Planned| {
        let Case {
            rules,
            routes,
            sids,
            ..
        } = other.case;
        let elsewhere = other.group != point.group;
        let others = !itself && sids != point.case.sids;
        (elsewhere, rules, routes, others, sids)
    };
    let all = results.last.plan.points.iter();
    let chosen = all.filter(alike).min_by_key(far)?;
    let summary = Summary::of(&rounds(results, chosen, find))?;
    (summary.mean > 0.0).then_some((chosen, summary.mean))
}

/// Returns the median rate of Linux for the same case of the same group, in kpps. `None` if it is 0
/// or missing.
fn linux_rate(results: &Results, point: &Planned, find: Find) -> Option<f64> {
    let mut points = results.last.plan.points.iter();
    let linux = points.find(|other| {
        other.engine == LINUX && other.group == point.group && other.case == point.case
    })?;
    let summary = Summary::of(&rounds(results, linux, find))?;
    Some(summary.median).filter(|&median| median > 0.0)
}

/// Returns true if generator and sink limit a point.
fn is_limited(results: &Results, point: &Planned, find: Find) -> bool {
    let bounded = |run: &&Measured| {
        let bound = run.found.map(|found| found.bound);
        matches!(bound, Some(Bound::Generator | Bound::Line))
    };
    let share = results.share_of_ceiling(point, find);
    results.runs(point, find).iter().any(bounded) || share.is_some_and(|it| it >= CEILING_SHARE)
}

/// Returns the remarks about a point.
fn note(results: &Results, point: &Planned, find: Find) -> Option<String> {
    let runs = results.runs(point, find);
    let of = runs.len();
    let mut notes = Vec::new();
    let mut count = |what: &str, is: &dyn Fn(&Found) -> bool| {
        let found = runs.iter().filter_map(|run| run.found.as_ref());
        match found.filter(|found| is(found)).count() {
            0 => {}
            all if all == of => notes.push(what.to_owned()),
            some => notes.push(format!("{what} in {some} of {of} runs")),
        }
    };
    count("bounded by the generator", &|found| {
        found.bound == Bound::Generator
    });
    count("bounded by the line rate", &|found| {
        found.bound == Bound::Line
    });
    count("packets lost at every rate", &|found| {
        found.bound == Bound::Floor
    });
    count("not settled", &|found| !found.settled);
    count("the generator was more than 2 % off its rate", &|found| {
        found.pacing.abs() > PACING
    });
    let turned = |run: &&&Measured| run.found.is_some_and(|found| found.reversed > 0);
    let verdicts: u32 = runs
        .iter()
        .filter_map(|run| run.found)
        .map(|it| it.reversed)
        .sum();
    match (verdicts, runs.iter().filter(turned).count()) {
        (0, _) => {}
        (1, _) => notes.push(format!("a verdict was reversed in 1 of {of} runs")),
        (verdicts, some) => notes.push(format!(
            "{verdicts} verdicts were reversed in {some} of {of} runs"
        )),
    }
    let stolen = runs.iter().filter_map(|run| run.stolen);
    let (some, most) = stolen
        .filter(|share| *share >= STEAL_MAX)
        .fold((0, 0.0_f64), |(some, most), share| {
            (some + 1, most.max(share))
        });
    if some > 0 {
        let most = most * 100.0;
        notes.push(format!(
            "the host took up to {most:.0} % of the processors in {some} of {of} runs"
        ));
    }
    let disturbed = runs.iter().filter_map(|run| run.disturbed);
    let kept: u32 = disturbed.map(|disturbed| disturbed.kept).sum();
    if kept > 0 {
        notes.push(format!(
            "{kept} disturbed trials were not repeated for lack of time"
        ));
    }
    let trials = || runs.iter().flat_map(|run| &run.trials);
    let all = trials().count();
    for (what, count) in DISORDER {
        let some = trials().filter(|trial| count(&trial.disorder) > 0).count();
        if some > 0 {
            notes.push(format!("packets arrived {what} in {some} of {all} trials"));
        }
    }
    let share = results.share_of_ceiling(point, find);
    if let Some(share) = share.filter(|share| *share >= CEILING_SHARE) {
        notes.push(format!(
            "limited by the generator: {:.0} % of its maximum",
            share * 100.0
        ));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

type Count = fn(&Disorder) -> u64;

/// Other packet outcomes than loss, with their counters.
const DISORDER: [(&str, Count); 3] = [
    ("out of order", |it| it.reordered),
    ("more than once", |it| it.duplicated),
    ("too late to detect duplicates", |it| it.late),
];

fn number(value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::Text(String::new()), Cell::Number)
}
