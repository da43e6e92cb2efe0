//! Comparison of two reports.

use sidestep_bench::compare::{Bounds, Lone, Outcome, compare, differences};
use sidestep_bench::result::{Axis, Point, Refusal, Report, Scale, Section};

const QUIET: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0];

fn with(section: Section, rounds: &[f64]) -> Report {
    Report {
        sections: vec![Section {
            series: vec![crate::sample::series(
                "Sidestep",
                "sidestep",
                &[(0.0, rounds)],
            )],
            ..section
        }],
        ..crate::sample::report()
    }
}

fn outcome(section: fn() -> Section, rounds: &[f64]) -> (Outcome, f64) {
    let (before, after) = (with(section(), &QUIET), with(section(), rounds));
    let verdicts = compare(&before, &after, Bounds::default()).verdicts;
    assert_eq!(verdicts.len(), 1);
    (
        verdicts[0].outcome,
        verdicts[0].confidence.unwrap_or_default(),
    )
}

fn moved(factor: f64) -> Vec<f64> {
    QUIET.map(|round| round * factor).to_vec()
}

#[test]
fn more_nanoseconds_are_worse_and_more_packets_are_better() {
    let (verdict, confidence) = outcome(crate::sample::lookup, &moved(1.1));
    assert_eq!(verdict, Outcome::Worse);
    assert!(confidence > 0.999, "{confidence}");
    assert_eq!(
        outcome(crate::sample::lookup, &moved(0.9)).0,
        Outcome::Better
    );
    assert_eq!(
        outcome(crate::sample::rates, &moved(1.1)).0,
        Outcome::Better
    );
    assert_eq!(outcome(crate::sample::rates, &moved(0.9)).0, Outcome::Worse);
}

#[test]
fn small_and_insignificant_changes_are_ignored() {
    assert_eq!(
        outcome(crate::sample::lookup, &moved(1.02)).0,
        Outcome::Same
    );
    let noisy = [80.0, 140.0, 100.0, 150.0, 70.0, 120.0];
    assert_eq!(outcome(crate::sample::lookup, &noisy).0, Outcome::Same);
}

#[test]
fn differences_below_the_resolution_are_no_change() {
    fn searched() -> Section {
        let rates = crate::sample::rates();
        Section {
            y: rates.y.clone().resolution(Some(0.05)),
            ..rates
        }
    }
    assert_eq!(
        outcome(crate::sample::rates, &moved(0.96)).0,
        Outcome::Worse
    );
    assert_eq!(outcome(searched, &moved(0.96)).0, Outcome::Same);
    assert_eq!(outcome(searched, &moved(0.9)).0, Outcome::Worse);
}

#[test]
fn one_round_is_not_comparable() {
    assert_eq!(
        outcome(crate::sample::lookup, &[500.0]),
        (Outcome::Unknown, 0.0)
    );
}

#[test]
fn failures_of_only_the_second_report_are_listed() {
    let mut before = with(crate::sample::lookup(), &QUIET);
    let mut after = before.clone();
    let refusal = |subject: &str, at: &str| Refusal {
        subject: subject.into(),
        at: at.into(),
        why: "it is not Sidestep that forwards the frame".into(),
    };
    before.refusals = vec![refusal("sidestep", "End")];
    // An engine that only the second report has cannot have become worse.
    let (old, new) = (
        refusal("sidestep", "End"),
        refusal("sidestep", "PDR of End, run 2"),
    );
    after.refusals = vec![old, new.clone(), refusal("stranger", "End")];
    let compared = compare(&before, &after, Bounds::default());
    assert_eq!(compared.failed, [&new]);
    assert!(
        compare(&after, &before, Bounds::default())
            .failed
            .is_empty()
    );
}

#[test]
fn without_a_better_direction_a_change_is_a_change() {
    let neither = || Section {
        y: Axis::log("depth", ""),
        ..crate::sample::lookup()
    };
    assert_eq!(outcome(neither, &moved(1.1)).0, Outcome::Other);
}

#[test]
fn a_difference_among_many_points_is_less_significant() {
    let report = |first: f64| {
        let rounds = |index: usize| if index == 0 { moved(first) } else { moved(1.0) };
        let all: Vec<Vec<f64>> = (0..50).map(rounds).collect();
        let points: Vec<(f64, &[f64])> = all
            .iter()
            .enumerate()
            .map(|(index, rounds)| (index as f64, &rounds[..]))
            .collect();
        let mut report = with(crate::sample::lookup(), &QUIET);
        report.sections[0].series = vec![crate::sample::series("Sidestep", "sidestep", &points)];
        report
    };
    let bounds = Bounds {
        change: 0.0,
        chance: 0.05,
    };
    // A single point with this p value has changed; as one of fifty points it has not.
    let lone = outcome_with(
        &with(crate::sample::lookup(), &QUIET),
        &with(crate::sample::lookup(), &moved(1.0125)),
        bounds,
    );
    assert_eq!(lone, Outcome::Worse);
    assert_eq!(
        outcome_with(&report(1.0), &report(1.0125), bounds),
        Outcome::Same
    );
}

fn outcome_with(before: &Report, after: &Report, bounds: Bounds) -> Outcome {
    compare(before, after, bounds).verdicts[0].outcome
}

/// Changes the rounds of H.Encaps in the sample.
const MEAN: f64 = (2900.0 + 2950.0 + 2960.0) / 3.0;

#[test]
fn categories_are_matched_by_name_and_unmeasured_points_are_omitted() {
    let mut before = crate::sample::report();
    let words = Scale::Categories(vec!["H.Encaps".into(), "End".into()]);
    before.sections[1].x.scale = words;
    let after = crate::sample::report();
    let rates = |verdict: &&sidestep_bench::compare::Verdict| {
        verdict.section.id == "rates" && verdict.series.name == "Sidestep"
    };
    let verdicts = compare(&before, &after, Bounds::default()).verdicts;
    let means: Vec<_> = verdicts
        .iter()
        .filter(rates)
        .map(|verdict| (verdict.before, verdict.after))
        .collect();
    assert_eq!(means, [(MEAN, 3310.0), (3310.0, MEAN)]);
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.section.id != "latency")
    );
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.series.name != "Linux 4.4")
    );
}

#[test]
fn another_machine_is_reported() {
    let before = crate::sample::report();
    let mut after = crate::sample::report();
    assert!(differences(&before, &after).is_empty());
    after.machine.kernel = "6.19.0".into();
    after.seed = Some(8);
    assert_eq!(
        differences(&before, &after),
        ["kernel: 6.18.0, then 6.19.0", "seed: 7, then 8"]
    );
}

/// Returns section, series and position of each point.
fn names(all: &[Lone]) -> Vec<(String, String, Option<f64>)> {
    let name = |it: &Lone| {
        let (section, series) = (it.section.id.clone(), it.series.name.clone());
        (section, series, it.point.map(|point| point.x))
    };
    all.iter().map(name).collect()
}

#[test]
fn points_of_one_report_are_listed_except_published_ones() {
    let before = crate::sample::report();
    let mut after = crate::sample::report();
    // Remove a point, a series with two points, and a distribution.
    after.sections[0].series[0].points.remove(1);
    after.sections[1].series.remove(0);
    let latency = after.sections.remove(3);
    assert_eq!(latency.id, "latency");
    after.sections[0].series.pop();
    let there = compare(&before, &after, Bounds::default());
    let name = |section: &str, series: &str, x| (section.to_owned(), series.to_owned(), x);
    let lone = [
        name("lookup", "Sidestep", Some(2e6)),
        name("rates", "Sidestep", Some(0.0)),
        name("rates", "Sidestep", Some(1.0)),
        name("latency", "Sidestep", None),
    ];
    assert_eq!(names(&there.gone), lone);
    assert_eq!((there.new, there.distributions), (vec![], vec![]));
    let back = compare(&after, &before, Bounds::default());
    assert_eq!(names(&back.new), lone);
    assert_eq!(back.gone, []);
    let same = compare(&before, &before, Bounds::default());
    assert_eq!((same.gone, same.new), (vec![], vec![]));
    assert_eq!(names(&same.distributions), lone[3..]);
}

/// A curve at the same shares of a different PDR.
fn curve(pdr: f64, delivered: f64) -> Report {
    let point = |share: f64| Point {
        key: Some(format!("{share} of PDR")),
        ..Point::of(share * pdr, QUIET.map(|it| it * delivered).to_vec())
    };
    let mut report = with(crate::sample::rates(), &QUIET);
    report.sections[0].x = Axis::linear("sent", "kpps");
    report.sections[0].series[0].points = vec![point(0.5), point(1.0)];
    report
}

#[test]
fn points_of_a_curve_are_matched_at_other_sending_rates() {
    let (before, after) = (curve(1000.0, 1.0), curve(1013.0, 0.5));
    let compared = compare(&before, &after, Bounds::default());
    let outcomes: Vec<_> = compared.verdicts.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Worse, Outcome::Worse]);
    assert_eq!((compared.gone, compared.new), (vec![], vec![]));
}

#[test]
fn a_point_keeps_its_key_on_another_axis() {
    let keyed = |axis: Axis, x: f64| {
        let mut report = with(crate::sample::rates(), &QUIET);
        report.sections[0].x = axis;
        let point = &mut report.sections[0].series[0].points[0];
        (point.x, point.key) = (x, Some("end, 2 SIDs".into()));
        report
    };
    let words = Scale::Categories(vec!["End, 2 SIDs".into()]);
    let before = keyed(Axis::new("case", "", words), 0.0);
    let after = keyed(Axis::linear("segments", ""), 2.0);
    let compared = compare(&before, &after, Bounds::default());
    assert_eq!(compared.verdicts.len(), 1);
    assert_eq!((compared.gone, compared.new), (vec![], vec![]));
}

#[test]
fn different_facts_are_reported_once_for_all_engines() {
    let report = |program: &str, offloads: &str, load: &str| {
        let mut report = crate::sample::report();
        report.program = Some(program.into());
        let facts = [
            ("load before the start", load),
            ("rate search", "trials of 1s"),
            ("linux: offloads", offloads),
            ("tc: program", program),
            ("xdp: program", program),
        ];
        let facts = facts.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        report.machine.facts = facts.into();
        report
    };
    let before = report("1a", "gro on", "0.1");
    assert!(differences(&before, &report("1a", "gro on", "2.5")).is_empty());
    let mut after = report("2b", "gro off", "2.5");
    let facts = &mut after.machine.facts;
    facts.remove("rate search");
    facts.insert("vpp: mode".into(), "one thread".into());
    let mitigations = &mut after.machine.mitigations;
    mitigations.insert("meltdown".into(), "Vulnerable".into());
    assert_eq!(
        differences(&before, &after),
        [
            "program: 1a, then 2b",
            "mitigation of meltdown: Not affected, then Vulnerable",
            "linux: offloads: gro on, then gro off",
            "rate search: trials of 1s, then not known",
            "tc, xdp: program: 1a, then 2b",
        ],
        "of an engine that one report does not have its points tell"
    );
}
