//! Verdicts over two reports.

mod sample;

use sidestep_bench::compare::{Bounds, Outcome, compare, differences};
use sidestep_bench::result::{Axis, Report, Scale, Section};

const QUIET: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0];

fn with(section: Section, rounds: &[f64]) -> Report {
    Report {
        sections: vec![Section {
            series: vec![sample::series("Sidestep", "sidestep", &[(0.0, rounds)])],
            ..section
        }],
        ..sample::report()
    }
}

fn outcome(section: fn() -> Section, rounds: &[f64]) -> (Outcome, f64) {
    let (before, after) = (with(section(), &QUIET), with(section(), rounds));
    let verdicts = compare(&before, &after, Bounds::default());
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
    let (verdict, confidence) = outcome(sample::lookup, &moved(1.1));
    assert_eq!(verdict, Outcome::Worse);
    assert!(confidence > 0.999, "{confidence}");
    assert_eq!(outcome(sample::lookup, &moved(0.9)).0, Outcome::Better);
    assert_eq!(outcome(sample::rates, &moved(1.1)).0, Outcome::Better);
    assert_eq!(outcome(sample::rates, &moved(0.9)).0, Outcome::Worse);
}

#[test]
fn a_change_that_is_small_or_lost_in_noise_is_none() {
    assert_eq!(outcome(sample::lookup, &moved(1.02)).0, Outcome::Same);
    let noisy = [80.0, 140.0, 100.0, 150.0, 70.0, 120.0];
    assert_eq!(outcome(sample::lookup, &noisy).0, Outcome::Same);
}

#[test]
fn what_a_search_cannot_tell_apart_is_no_change() {
    fn searched() -> Section {
        let rates = sample::rates();
        Section {
            y: rates.y.clone().resolution(Some(0.05)),
            ..rates
        }
    }
    assert_eq!(outcome(sample::rates, &moved(0.96)).0, Outcome::Worse);
    assert_eq!(outcome(searched, &moved(0.96)).0, Outcome::Same);
    assert_eq!(outcome(searched, &moved(0.9)).0, Outcome::Worse);
}

#[test]
fn one_round_says_nothing() {
    assert_eq!(outcome(sample::lookup, &[500.0]), (Outcome::Unknown, 0.0));
}

#[test]
fn without_a_better_direction_a_change_is_a_change() {
    let neither = || Section {
        y: Axis::log("depth", ""),
        ..sample::lookup()
    };
    assert_eq!(outcome(neither, &moved(1.1)).0, Outcome::Other);
}

#[test]
fn a_difference_found_among_many_points_is_less_sure() {
    let report = |first: f64| {
        let rounds = |index: usize| if index == 0 { moved(first) } else { moved(1.0) };
        let all: Vec<Vec<f64>> = (0..50).map(rounds).collect();
        let points: Vec<(f64, &[f64])> = all
            .iter()
            .enumerate()
            .map(|(index, rounds)| (index as f64, &rounds[..]))
            .collect();
        let mut report = with(sample::lookup(), &QUIET);
        report.sections[0].series = vec![sample::series("Sidestep", "sidestep", &points)];
        report
    };
    let bounds = Bounds {
        change: 0.0,
        chance: 0.05,
    };
    // Seen alone, one such difference in a hundred is chance; of fifty points, one is not worth a word.
    let lone = outcome_with(
        &with(sample::lookup(), &QUIET),
        &with(sample::lookup(), &moved(1.0125)),
        bounds,
    );
    assert_eq!(lone, Outcome::Worse);
    assert_eq!(
        outcome_with(&report(1.0), &report(1.0125), bounds),
        Outcome::Same
    );
}

fn outcome_with(before: &Report, after: &Report, bounds: Bounds) -> Outcome {
    compare(before, after, bounds)[0].outcome
}

/// Of the rounds of H.Encaps in the sample.
const MEAN: f64 = (2900.0 + 2950.0 + 2960.0) / 3.0;

#[test]
fn points_are_matched_by_word_and_what_was_not_measured_at_one_is_left_out() {
    let mut before = sample::report();
    let words = Scale::Categories(vec!["H.Encaps".into(), "End".into()]);
    before.sections[1].x.scale = words;
    let after = sample::report();
    let rates = |verdict: &&sidestep_bench::compare::Verdict| {
        verdict.section.id == "rates" && verdict.series.name == "Sidestep"
    };
    let verdicts = compare(&before, &after, Bounds::default());
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
fn another_machine_is_told() {
    let before = sample::report();
    let mut after = sample::report();
    assert!(differences(&before, &after).is_empty());
    after.machine.kernel = "6.19.0".into();
    after.seed = Some(8);
    assert_eq!(
        differences(&before, &after),
        ["kernel: 6.18.0, then 6.19.0", "seed: 7, then 8"]
    );
}
