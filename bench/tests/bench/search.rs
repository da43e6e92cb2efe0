//! Tests of the rate search on simulated systems with a known result.

use std::convert::Infallible;
use std::time::Duration;

use crate::simulated::Simulated;
use proptest::prelude::*;
use sidestep_bench::search::{
    Bound, Error, Found, PACING, Parameters, VERDICTS_MAX, Wrong, search,
};
use sidestep_testkit::random::Random;

const EPSILON: f64 = 0.01;
const SECOND: Duration = Duration::from_secs(1);

fn parameters(line: Option<f64>, beta: f64) -> Parameters {
    Parameters::new(10_000.0, line, beta, EPSILON, SECOND).expect("allowed")
}

fn ndr(system: &mut Simulated) -> Found {
    run(system, None, 0.0).expect("an end")
}

fn run(system: &mut Simulated, line: Option<f64>, beta: f64) -> Result<Found, Error<Infallible>> {
    search(&parameters(line, beta), |duration, load| {
        system.measure(duration, load)
    })
}

/// Checks that the result is at most the precision below the expected value.
#[track_caller]
fn at(found: &Found, rate: f64) {
    let low = rate * (1.0 - EPSILON) - 1.0;
    assert!(
        (low..=rate + 1.0).contains(&found.rate),
        "{found:?}, not {rate}"
    );
}

#[test]
fn a_system_without_loss_has_its_capacity_as_rate() {
    let mut system = Simulated::of(1_234_567.0);
    let found = ndr(&mut system);
    at(&found, 1_234_567.0);
    assert_eq!(found.bound, Bound::Loss);
    assert!(found.settled && found.pacing.abs() < PACING);
    assert!((found.delivery_ratio - 1.0).abs() < 1e-12);
    // The search doubles the start rate, then bisects, and requests no other rates.
    assert_eq!(system.asked[..3], [10_000.0, 20_000.0, 40_000.0]);
    assert!(system.asked.len() <= 18, "{:?}", system.asked);
}

#[test]
fn reversed_verdicts_are_counted() {
    let mut quiet = Simulated::of(1_234_567.0);
    assert_eq!(ndr(&mut quiet).reversed, 0);
    // Doubling ends with 1.28 million, the eighth trial. The fourth, at 80,000, loses half of the
    // packets, by chance and only once.
    let mut once = Simulated {
        capacity: Box::new(|now| {
            if now.to_bits() == 3_f64.to_bits() {
                40_000.0
            } else {
                1_234_567.0
            }
        }),
        ..Simulated::of(0.0)
    };
    let found = ndr(&mut once);
    at(&found, 1_234_567.0);
    assert_eq!((found.reversed, found.settled), (1, true));
    // Here four trials lose packets. The search believes these losses between 40,000 and 80,000
    // until it repeats the trials.
    let mut longer = Simulated {
        capacity: Box::new(|now| {
            if (3.0..7.0).contains(&now) {
                40_000.0
            } else {
                1_234_567.0
            }
        }),
        ..Simulated::of(0.0)
    };
    let found = ndr(&mut longer);
    at(&found, 1_234_567.0);
    assert!(found.reversed > 1, "{found:?}");
    // A system that passes an overload by chance is detected, too.
    let mut lucky = Simulated {
        capacity: Box::new(|now| {
            if now.to_bits() == 7_f64.to_bits() {
                1e9
            } else {
                1_234_567.0
            }
        }),
        ..Simulated::of(0.0)
    };
    let found = run(&mut lucky, Some(1_280_000.0), 0.0).expect("an end");
    at(&found, 1_234_567.0);
    assert_eq!(found.reversed, 1);
}

#[test]
fn a_partial_drop_rate_exceeds_the_capacity_by_the_allowed_loss() {
    let fine = Parameters::new(10_000.0, None, 0.005, 0.001, SECOND).expect("allowed");
    let mut system = Simulated::of(1e6);
    let found = search(&fine, |duration, load| system.measure(duration, load)).expect("an end");
    at(&found, 1e6 / 0.995);
    assert!((0.995..1.0).contains(&found.delivery_ratio), "{found:?}");
}

#[test]
fn a_start_rate_that_is_too_high_is_halved() {
    let mut system = Simulated::of(700.0);
    at(&ndr(&mut system), 700.0);
    assert_eq!(system.asked[..3], [10_000.0, 5_000.0, 2_500.0]);
}

#[test]
fn the_line_rate_is_not_exceeded_and_reported_as_the_bound() {
    let mut system = Simulated::of(1e9);
    let found = run(&mut system, Some(150_000.0), 0.0).expect("an end");
    assert_eq!((found.rate, found.bound), (150_000.0, Bound::Line));
    assert!(system.asked.iter().all(|rate| *rate <= 150_000.0));
    // If the capacity is just below the line rate, loss is the bound.
    let found = run(&mut Simulated::of(149_000.0), Some(150_000.0), 0.0).expect("an end");
    at(&found, 149_000.0);
    assert_eq!(found.bound, Bound::Loss);
}

#[test]
fn a_saturated_generator_is_reported_as_the_bound() {
    let mut system = Simulated {
        generator: 300_000.0,
        ..Simulated::of(1e9)
    };
    let found = ndr(&mut system);
    assert_eq!((found.rate, found.bound), (300_000.0, Bound::Generator));
    assert!(found.pacing < -PACING, "{found:?}");
    let found = run(&mut system, Some(400_000.0), 0.0).expect("an end");
    assert_eq!((found.rate, found.bound), (300_000.0, Bound::Generator));
    // The search also finds the rate of a system that is slower than the generator.
    system.capacity = Box::new(|_| 250_000.0);
    let found = ndr(&mut system);
    at(&found, 250_000.0);
    assert_eq!(found.bound, Bound::Loss);
}

#[test]
fn a_saturated_generator_counts_with_its_best_trials() {
    // Another process takes the generator's CPU in every third trial, so that it sends only a
    // sixth.
    for first in 0..3 {
        let mut trials = first;
        let mut system = Simulated::of(1e9);
        let parameters = parameters(None, 0.005);
        let found = search(&parameters, |duration, load| {
            trials += 1;
            system.generator = if trials % 3 == 0 { 80_000.0 } else { 500_000.0 };
            system.measure(duration, load)
        });
        let found = found.expect("an end");
        assert_eq!(
            (found.rate, found.bound),
            (500_000.0, Bound::Generator),
            "{first}"
        );
    }
}

#[test]
fn small_steps_do_not_mistake_a_varying_generator_for_a_saturated_one() {
    // The first trials at 40,000 lose, so the search continues in small steps. Each trial offers up
    // to 4 % less than requested.
    for seed in 0..50 {
        let mut trials = 0;
        let mut varies = Random::new(seed);
        let found = search(&eleven(0.005), |duration, load| {
            trials += 1;
            Simulated {
                sends: 1.0 - varies.below(40) as f64 / 1000.0,
                loss: Box::new(move |_| if (13..25).contains(&trials) { 0.5 } else { 0.0 }),
                ..Simulated::of(1e6)
            }
            .measure(duration, load)
        });
        let found = found.expect("an end");
        assert_eq!(found.bound, Bound::Loss, "{seed}: {found:?}");
        assert!((0.95e6..=1.01e6).contains(&found.rate), "{seed}: {found:?}");
    }
}

#[test]
fn one_disturbed_trial_at_the_lowest_rate_does_not_decide() {
    let start = Parameters::new(10_000.0, None, 0.005, EPSILON, Duration::from_millis(20))
        .expect("allowed");
    let mut system = Simulated::of(1e6);
    let mut trials = 0;
    let found = search(&start, |duration, load| {
        trials += 1;
        system.loss = Box::new(move |_| if trials == 1 { 0.5 } else { 0.0 });
        system.measure(duration, load)
    });
    let found = found.expect("an end");
    assert!((0.98e6..=1.01e6).contains(&found.rate), "{found:?}");
}

#[test]
fn results_are_offered_rates() {
    for sends in [0.9, 1.1] {
        let mut system = Simulated {
            sends,
            ..Simulated::of(1e6)
        };
        let found = ndr(&mut system);
        at(&found, 1e6);
        assert!((found.pacing - (sends - 1.0)).abs() < 0.001, "{found:?}");
    }
}

#[test]
fn a_generator_that_reports_too_few_packets_is_an_error() {
    let mut system = Simulated {
        says: 0.9,
        ..Simulated::of(1e6)
    };
    let error = run(&mut system, None, 0.0).expect_err("no end");
    assert!(
        matches!(
            error,
            Error::Surplus {
                asked: 10_000,
                sent: 9_000,
                received: 10_000
            }
        ),
        "{error}"
    );
    assert_eq!(system.asked.len(), 2, "once more before it is said");
}

#[test]
fn a_generator_that_reports_too_many_packets_shows_in_the_pacing() {
    let mut system = Simulated {
        says: 1.1,
        ..Simulated::of(1e6)
    };
    let found = ndr(&mut system);
    assert_eq!((found.rate, found.bound), (0.0, Bound::Floor));
    assert!((found.pacing - 0.1).abs() < 0.01, "{found:?}");
}

#[test]
fn a_generator_that_sends_nothing_is_an_error() {
    let mut system = Simulated {
        generator: 0.0,
        ..Simulated::of(1e6)
    };
    let error = run(&mut system, None, 0.0).expect_err("no end");
    assert_eq!(
        error.to_string(),
        "the generator sent nothing at 10000 packets/s"
    );
}

#[test]
fn a_system_that_loses_at_every_rate_has_no_rate() {
    let mut system = Simulated {
        loss: Box::new(|_| 0.02),
        ..Simulated::of(1e6)
    };
    let found = ndr(&mut system);
    assert_eq!((found.rate, found.bound), (0.0, Bound::Floor));
    assert!((found.delivery_ratio - 0.98).abs() < 0.01, "{found:?}");
}

#[test]
fn a_buffer_adds_its_size_per_trial() {
    let mut system = Simulated {
        buffer: 50_000.0,
        ..Simulated::of(1e6)
    };
    at(&ndr(&mut system), 1_050_000.0);
}

#[test]
fn loss_in_steps_is_found_at_the_step_that_exceeds_beta() {
    let steps = |rate: f64| match rate {
        rate if rate < 200_000.0 => 0.0,
        rate if rate < 900_000.0 => 0.001,
        _ => 0.01,
    };
    let mut system = Simulated {
        loss: Box::new(steps),
        ..Simulated::of(1e9)
    };
    at(&ndr(&mut system), 200_000.0);
    at(&run(&mut system, None, 0.005).expect("an end"), 900_000.0);
}

#[test]
fn a_disturbed_trial_costs_time_and_not_the_result() {
    let mut low = 0;
    for seed in 0..200 {
        let mut system = Simulated {
            disturbed: 0.05,
            ..Simulated::of(1e6)
        }
        .seeded(seed);
        let found = ndr(&mut system);
        assert!(found.rate <= 1e6 + 1.0, "{seed}: {found:?}");
        assert!(found.settled || system.asked.len() == VERDICTS_MAX);
        low += u32::from(found.rate < 1e6 * (1.0 - EPSILON));
    }
    // Two disturbed trials at the same rate make the search count it as a rate with loss.
    assert!(low <= 6, "{low} of 200");
}

/// Returns parameters that judge each rate by eleven trials of 20 ms. Five of them may lose more
/// than beta (RFC 9971).
fn eleven(beta: f64) -> Parameters {
    Parameters::new(10_000.0, None, beta, EPSILON, Duration::from_millis(20))
        .and_then(|it| it.judged_by(11, 0.5))
        .expect("allowed")
}

#[test]
fn several_trials_find_the_rate_despite_disturbances_in_a_third_of_them() {
    let (mut one, mut several) = (0, 0);
    for seed in 0..200 {
        let off = |asked: &Parameters| {
            let mut system = Simulated {
                disturbed: 0.3,
                ..Simulated::of(1e6)
            }
            .seeded(seed);
            let found = search(asked, |duration, load| system.measure(duration, load));
            let found = found.expect("an end");
            assert!(found.rate <= 1e6 / 0.995 + 1.0, "{seed}: {found:?}");
            u32::from(found.rate < 1e6 * (1.0 - EPSILON))
        };
        one += off(&parameters(None, 0.005));
        several += off(&eleven(0.005));
    }
    assert!(one > 150, "{one} of 200 by single trials");
    assert!(several < 20, "{several} of 200 by several");
}

#[test]
fn a_generator_that_stalls_in_some_trials_does_not_lower_the_rate() {
    for seed in 0..100 {
        let mut system = Simulated {
            held_up: 0.3,
            ..Simulated::of(1e6)
        }
        .seeded(seed);
        let found = search(&eleven(0.005), |duration, load| {
            system.measure(duration, load)
        });
        let found = found.expect("an end");
        assert!(found.rate >= 1e6 * (1.0 - EPSILON), "{seed}: {found:?}");
        assert!(found.rate <= 1e6 / 0.995 + 1.0, "{seed}: {found:?}");
    }
}

#[test]
fn a_rate_that_loses_in_most_trials_does_not_pass() {
    for seed in 0..50 {
        let mut system = Simulated {
            disturbed: 0.9,
            ..Simulated::of(1e6)
        }
        .seeded(seed);
        let found = search(&eleven(0.005), |duration, load| {
            system.measure(duration, load)
        });
        let found = found.expect("an end");
        assert_eq!((found.rate, found.bound), (0.0, Bound::Floor), "{seed}");
    }
}

#[test]
fn a_rate_is_judged_by_as_few_trials_as_possible() {
    let mut system = Simulated::of(35_000.0);
    let found = search(&eleven(0.0), |duration, load| {
        system.measure(duration, load)
    });
    at(&found.expect("an end"), 35_000.0);
    // Rates 10,000 and 20,000 pass and 40,000 fails, by six trials each.
    let times = |rate: f64| {
        system
            .asked
            .iter()
            .filter(|asked| (**asked - rate).abs() < 0.5)
            .count()
    };
    assert_eq!([10_000.0, 20_000.0, 40_000.0].map(times), [6, 6, 6]);
    assert!(system.asked.len() <= 6 * 14, "{}", system.asked.len());
}

#[test]
fn noise_changes_the_result_at_most_by_its_size() {
    for seed in 0..100 {
        let mut system = Simulated {
            noise: 0.01,
            ..Simulated::of(1e6)
        }
        .seeded(seed);
        let found = run(&mut system, None, 0.005).expect("an end");
        assert!((0.95e6..1.05e6).contains(&found.rate), "{seed}: {found:?}");
    }
}

#[test]
fn a_falling_capacity_does_not_give_the_old_rate() {
    // The capacity falls from 1 to 0.6 million within ten trials, as with a frequency governor or
    // another guest.
    let mut system = Simulated {
        capacity: Box::new(|now: f64| 1e6 - 4e4 * (now - 8.0).clamp(0.0, 10.0)),
        ..Simulated::of(0.0)
    };
    at(&ndr(&mut system), 600_000.0);
}

#[test]
fn a_rising_capacity_is_followed() {
    let mut system = Simulated {
        capacity: Box::new(|now: f64| 1e6 + 4e4 * (now - 8.0).clamp(0.0, 10.0)),
        ..Simulated::of(0.0)
    };
    let found = ndr(&mut system);
    at(&found, 1.4e6);
    assert!(found.settled, "{found:?}");
}

#[test]
fn a_search_without_stable_results_ends() {
    // Every other trial loses all packets, so no rate has the same result twice.
    let capacity = |now: f64| {
        if (now as u64).is_multiple_of(2) {
            1e9
        } else {
            0.0
        }
    };
    let mut system = Simulated {
        capacity: Box::new(capacity),
        ..Simulated::of(0.0)
    };
    ndr(&mut system);
    assert!(system.asked.len() <= VERDICTS_MAX);
}

#[test]
fn a_loss_below_the_passing_rate_ends_the_search_if_a_trial_hits_it() {
    // A system that is slow while each packet causes an interrupt, and fast once it polls.
    let dip = |rate: f64| f64::from(u8::from((900_000.0..1_100_000.0).contains(&rate))) * 0.5;
    let mut system = Simulated {
        loss: Box::new(dip),
        ..Simulated::of(4e6)
    };
    let start = Parameters::new(700_000.0, None, 0.0, EPSILON, SECOND).expect("allowed");
    let found = search(&start, |duration, load| system.measure(duration, load)).expect("an end");
    at(&found, 4e6);
    let start = Parameters::new(1_000_000.0, None, 0.0, EPSILON, SECOND).expect("allowed");
    let found = search(&start, |duration, load| system.measure(duration, load)).expect("an end");
    at(&found, 900_000.0);
}

#[test]
fn invalid_parameters_are_refused() {
    let of = |start, line, beta, epsilon, trial| Parameters::new(start, line, beta, epsilon, trial);
    assert_eq!(of(0.0, None, 0.0, 0.01, SECOND), Err(Wrong::Start));
    assert_eq!(of(f64::NAN, None, 0.0, 0.01, SECOND), Err(Wrong::Start));
    assert_eq!(of(2e6, Some(1e6), 0.0, 0.01, SECOND), Err(Wrong::Start));
    assert_eq!(
        of(1e3, Some(f64::INFINITY), 0.0, 0.01, SECOND),
        Err(Wrong::Line)
    );
    assert_eq!(of(1e3, None, 1.0, 0.01, SECOND), Err(Wrong::Beta));
    assert_eq!(of(1e3, None, -0.1, 0.01, SECOND), Err(Wrong::Beta));
    assert_eq!(of(1e3, None, 0.0, 0.0, SECOND), Err(Wrong::Epsilon));
    assert_eq!(of(1e3, None, 0.0, 0.01, Duration::ZERO), Err(Wrong::Trial));
    // 2,000 packets are too few to measure a loss ratio of 1e-4. If beta is 0, a trial needs 100
    // packets.
    let short = Duration::from_millis(20);
    assert_eq!(of(1e5, None, 0.0001, 0.01, short), Err(Wrong::Short));
    assert!(of(5e5, None, 0.0001, 0.01, short).is_ok());
    assert_eq!(of(4e3, None, 0.0, 0.01, short), Err(Wrong::Short));
    assert!(of(5e3, None, 0.0, 0.01, short).is_ok());
    let allowed = parameters(None, 0.0);
    let long = Duration::from_secs(3600);
    let long = of(1e4, None, 0.0, 0.01, long).expect("allowed");
    assert!(long.judged_by(24, 0.0).is_ok());
    assert_eq!(long.judged_by(25, 0.0), Err(Wrong::Trials));
    // A share that allows less than one whole trial is invalid.
    assert_eq!(allowed.judged_by(1, 0.5), Err(Wrong::Exceed));
    assert_eq!(allowed.judged_by(3, 0.3), Err(Wrong::Exceed));
    assert_eq!(allowed.judged_by(3, 0.4).map(|it| it.may_exceed()), Ok(1));
    assert_eq!(allowed.judged_by(0, 0.0), Err(Wrong::Trials));
    assert_eq!(allowed.judged_by(1001, 0.0), Err(Wrong::Trials));
    assert_eq!(allowed.judged_by(11, 0.6), Err(Wrong::Exceed));
    assert_eq!(allowed.judged_by(11, f64::NAN), Err(Wrong::Exceed));
}

proptest! {
    #[test]
    fn any_system_without_noise_is_found_within_epsilon(
        capacity in 200.0..5e7_f64,
        start in 100.0..1e6_f64,
        beta in prop_oneof![Just(0.0), 0.0001..0.1_f64],
        epsilon in 0.0005..0.2_f64,
    ) {
        let asked = Parameters::new(start, None, beta, epsilon, Duration::from_secs(100)).expect("allowed");
        let mut system = Simulated::of(capacity);
        let found = search(&asked, |duration, load| system.measure(duration, load)).expect("an end");
        let answer = capacity / (1.0 - beta);
        prop_assert!(found.settled);
        prop_assert!(found.rate <= answer + 1.0, "{found:?}, not above {answer}");
        prop_assert!(found.rate >= answer * (1.0 - epsilon) - 2.0, "{found:?}, near {answer}");
    }

    #[test]
    fn the_search_ends_on_any_system(
        outcomes in proptest::collection::vec((0.0..2.0_f64, 0.0..1.1_f64), 1..80),
        line in proptest::option::of(20_000.0..1e8_f64),
        // A share below 1e-4 needs more packets than a trial of these parameters has.
        beta in prop_oneof![Just(0.0), 1e-4..0.5_f64],
    ) {
        // Each trial sends and delivers arbitrary shares of the requested load.
        let mut outcomes = outcomes.into_iter().cycle();
        let mut trials = 0;
        let found = search(&parameters(line, beta), |duration, load| {
            trials += 1;
            let (sends, delivers) = outcomes.next().expect("without end");
            Simulated { sends, loss: Box::new(move |_| 1.0 - delivers), ..Simulated::of(1e9) }.measure(duration, load)
        });
        prop_assert!(trials <= 2 * VERDICTS_MAX);
        if let Ok(found) = found {
            prop_assert!(found.rate >= 0.0 && found.rate.is_finite());
            prop_assert!((0.0..=1.0).contains(&found.delivery_ratio));
        }
    }
}
