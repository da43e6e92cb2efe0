//! Order of templates and flows, with one entry per packet, repeated without end.

use super::stream::Distribution;
use crate::Error;
use crate::random::Random;

/// LIMIT: turns of a schedule (4 MiB of a BPF map).
pub const TURNS_MAX: usize = 1 << 20;

/// Returns the turns, `template << 16 | flow`. Templates occur exactly by their shares, in a random
/// order that is independent of the flows, so that each flow has all sizes. Empty if no schedule is
/// needed: one template with its flows in round robin.
///
/// # Errors
/// A share is 0, or there are more turns than [`TURNS_MAX`].
pub(super) fn schedule(
    shares: &[u32],
    flows: u32,
    distribution: Distribution,
) -> Result<Vec<u32>, Error> {
    if shares.contains(&0) {
        return Err(Error::Usage(
            "a template with a share of 0; allowed are 1 and more".into(),
        ));
    }
    if shares.len() == 1 && distribution == Distribution::Uniform {
        return Ok(Vec::new());
    }
    let pattern = shares
        .iter()
        .fold(0usize, |sum, share| sum.saturating_add(*share as usize));
    let wanted = match distribution {
        Distribution::Uniform => flows as usize,
        Distribution::Zipf => zipf_turns(flows).div_ceil(pattern),
    };
    let turns = wanted.saturating_mul(pattern);
    if turns > TURNS_MAX {
        return Err(Error::Usage(format!(
            "{flows} flows in a mix of {pattern} packets are {turns} turns; allowed are {TURNS_MAX}"
        )));
    }
    // Use a fixed seed: the order is the same on every machine and in every run.
    let mut random = Random::new(SEED);
    let mut of_flow: Vec<u32> = match distribution {
        Distribution::Uniform => (0..turns as u32).map(|turn| turn % flows).collect(),
        Distribution::Zipf => {
            let counts = apportion(flows, turns);
            let repeated = (0..flows)
                .zip(counts)
                .flat_map(|(flow, count)| std::iter::repeat_n(flow, count));
            let mut of_flow: Vec<u32> = repeated.collect();
            shuffle(&mut of_flow, &mut random);
            of_flow
        }
    };
    let mut of_template: Vec<u32> = (0u32..)
        .zip(shares)
        .flat_map(|(template, share)| {
            std::iter::repeat_n(template, turns / pattern * *share as usize)
        })
        .collect();
    shuffle(&mut of_template, &mut random);
    for (flow, template) in of_flow.iter_mut().zip(of_template) {
        *flow |= template << 16;
    }
    Ok(of_flow)
}

/// Returns a number of turns that gives the rarest flow two turns, if [`TURNS_MAX`] allows it.
fn zipf_turns(flows: u32) -> usize {
    let least = 2.0 * f64::from(flows) * harmonic(flows);
    (least.ceil() as usize).clamp(ZIPF_LEAST, TURNS_MAX - TURNS_MAX / 16)
}

/// Returns the number of `turns` of each flow by Zipf's law: rounded down, at least one. Flows with
/// the largest remainders get the rest.
fn apportion(flows: u32, turns: usize) -> Vec<usize> {
    let all = harmonic(flows);
    let quotas: Vec<f64> = (1..=flows)
        .map(|rank| turns as f64 / (f64::from(rank) * all))
        .collect();
    let mut counts: Vec<usize> = quotas.iter().map(|it| (*it as usize).max(1)).collect();
    let mut by_remainder: Vec<usize> = (0..counts.len()).collect();
    let remainder = |flow: usize| quotas[flow] - counts[flow] as f64;
    by_remainder.sort_by(|a, b| remainder(*b).total_cmp(&remainder(*a)));
    let given: usize = counts.iter().sum();
    for flow in by_remainder
        .iter()
        .cycle()
        .take(turns.saturating_sub(given))
    {
        counts[*flow] += 1;
    }
    // Take the single turns of the rarest flows from the most frequent ones.
    for flow in (0..counts.len().min(MOST_FREQUENT))
        .cycle()
        .take(given.saturating_sub(turns))
    {
        counts[flow] -= 1;
    }
    counts
}

fn harmonic(count: u32) -> f64 {
    (1..=count).map(|rank| 1.0 / f64::from(rank)).sum()
}

/// Shuffles the turns (Fisher and Yates).
fn shuffle(turns: &mut [u32], random: &mut Random) {
    for last in (1..turns.len()).rev() {
        turns.swap(last, random.below(last + 1));
    }
}

/// Minimum number of turns in a Zipf schedule, for a good resolution with few flows.
const ZIPF_LEAST: usize = 1 << 14;
/// Flows that give up turns to the rarest.
const MOST_FREQUENT: usize = 64;
const SEED: u64 = 0x5352_7636;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn by_flow(turns: &[u32]) -> BTreeMap<u32, usize> {
        let mut found = BTreeMap::new();
        for turn in turns {
            *found.entry(turn & 0xffff).or_insert(0) += 1;
        }
        found
    }

    #[test]
    fn one_template_with_flows_in_round_robin_needs_no_schedule() {
        let turns = schedule(&[1], 4096, Distribution::Uniform).expect("schedule");
        assert!(turns.is_empty());
    }

    #[test]
    fn sizes_occur_by_their_shares_in_every_flow() {
        let turns = schedule(&[7, 4, 1], 96, Distribution::Uniform).expect("schedule");
        assert_eq!(turns.len(), 96 * 12);
        let of = |template| turns.iter().filter(|it| *it >> 16 == template).count();
        assert_eq!([of(0), of(1), of(2)], [7 * 96, 4 * 96, 96]);
        assert!(by_flow(&turns).values().all(|count| *count == 12));
        let small_only = |flow: u32| {
            let of_flow = turns.iter().filter(|it| *it & 0xffff == flow);
            of_flow.into_iter().all(|it| it >> 16 == 0)
        };
        assert!((0..96).filter(|flow| small_only(*flow)).count() < 8);
    }

    #[test]
    fn the_nth_zipf_flow_has_an_nth_of_the_first_flows_turns() {
        for flows in [2u32, 100, 4096, 65536] {
            let turns = schedule(&[1], flows, Distribution::Zipf).expect("schedule");
            let counts = by_flow(&turns);
            assert_eq!(counts.len(), flows as usize, "every flow has a turn");
            let first = counts[&0] as f64;
            for flow in [1, 2, 9, 99, 999].into_iter().filter(|it| *it < flows) {
                let expected = first / f64::from(flow + 1);
                let found = counts[&flow] as f64;
                assert!(
                    (found - expected).abs() <= 1.0 + expected * 0.01,
                    "{flows}: {flow}"
                );
            }
        }
    }

    #[test]
    fn zipf_turns_are_shuffled() {
        let turns = schedule(&[1], 100, Distribution::Zipf).expect("schedule");
        // The first flow has 19 % of the turns, in each tenth of the schedule.
        for tenth in turns.chunks(turns.len().div_ceil(10)) {
            let share = tenth.iter().filter(|it| **it == 0).count() as f64 / tenth.len() as f64;
            assert!((0.15..0.24).contains(&share), "{share}");
        }
    }

    #[test]
    fn a_mix_that_does_not_fit_is_refused_with_what_is_allowed() {
        let refused = schedule(&[7, 90, 1], 65536, Distribution::Uniform);
        let text = refused.expect_err("too many").to_string();
        assert!(text.ends_with("allowed are 1048576"), "{text}");
        assert!(schedule(&[1, 0], 1, Distribution::Uniform).is_err());
    }
}
