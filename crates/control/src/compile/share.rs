//! Distribution of a group's slots by weight: among next hops, and among the valid segment lists of
//! an SR policy.

use sidestep_datapath::abi::SIDESTEP_GROUP_SLOTS;
use sidestep_model::route::NextHop;

/// Returns the next hops in use. The kernel skips dead ones (`fib_select_multipath`,
/// `fib6_select_path`); if all are dead, all are used. The result is sorted, because the kernel's
/// order is not reported reliably and equal next hops must get equal slots.
pub(super) fn alive(next_hops: &[NextHop]) -> Vec<&NextHop> {
    let mut alive: Vec<_> = next_hops.iter().filter(|hop| !hop.dead).collect();
    if alive.is_empty() {
        alive = next_hops.iter().collect();
    }
    alive.sort_unstable();
    alive
}

/// Returns the number of slots for each weight, at least one. If the weights fit, all are
/// multiplied by the largest factor that fits. Otherwise each gets its share, and remaining slots
/// go to the largest remainders.
pub(super) fn slots(weights: &[u16]) -> Vec<usize> {
    const ALL: usize = SIDESTEP_GROUP_SLOTS as usize;
    let weights: Vec<usize> = weights.iter().map(|&weight| weight.max(1).into()).collect();
    let sum: usize = weights.iter().sum();
    if sum <= ALL {
        // Rounding up to a power of two would not be more exact.
        return weights.iter().map(|weight| weight * (ALL / sum)).collect();
    }
    let mut slots: Vec<usize> = weights
        .iter()
        .map(|weight| (weight * ALL / sum).max(1))
        .collect();
    let given = |slots: &[usize]| slots.iter().sum::<usize>();
    while given(&slots) != ALL {
        // How far a weight is below its share; negative if it is above.
        let behind = |i: &usize| weights[*i] as i64 * ALL as i64 - (slots[*i] * sum) as i64;
        if given(&slots) < ALL {
            let most = (0..slots.len()).max_by_key(behind).unwrap_or(0);
            slots[most] += 1;
        } else {
            let least = (0..slots.len())
                .filter(|&i| slots[i] > 1)
                .min_by_key(behind)
                .unwrap_or(0);
            slots[least] -= 1;
        }
    }
    slots
}

/// Returns the owner of each slot, among the valid ones, by weight. A valid list keeps the slots
/// that it has if all are valid, so that its flows do not move. The valid ones take the remaining
/// slots in turn.
pub(crate) fn among_valid(weights: &[u16], valid: &[bool]) -> Vec<usize> {
    let mut owners: Vec<usize> = slots(weights)
        .into_iter()
        .enumerate()
        .flat_map(|(owner, slots)| std::iter::repeat_n(owner, slots))
        .collect();
    let takers: Vec<usize> = (0..weights.len()).filter(|&it| valid[it]).collect();
    let sum: i64 = takers.iter().map(|&it| i64::from(weights[it])).sum();
    // The one that is farthest below its share is next.
    let mut behind = vec![0; weights.len()];
    for owner in owners.iter_mut().filter(|owner| !valid[**owner]) {
        for &taker in &takers {
            behind[taker] += i64::from(weights[taker]);
        }
        // The first one among equals.
        let next = takers.iter().copied().rev().max_by_key(|&it| behind[it]);
        if let Some(next) = next {
            behind[next] -= sum;
            *owner = next;
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use sidestep_testkit::random::Random;

    use super::*;

    #[test]
    fn slots_are_in_the_proportion_of_the_weights() {
        assert_eq!(slots(&[1, 1]), [128, 128]);
        assert_eq!(slots(&[1, 1, 1]), [85, 85, 85]);
        assert_eq!(slots(&[3, 1]), [192, 64]);
        assert_eq!(slots(&[255, 1]), [255, 1]);
    }

    #[test]
    fn large_weights_are_rounded_to_at_least_one_slot() {
        assert_eq!(slots(&[256, 256]), [128, 128]);
        assert_eq!(slots(&[256, 1]), [255, 1]);
        assert_eq!(slots(&[256, 128, 128]), [128, 64, 64]);
        let mut many = vec![1; 255];
        many.push(256);
        let found = slots(&many);
        assert_eq!(found.iter().sum::<usize>(), 256);
        assert!(found.iter().all(|&slots| slots > 0));
    }

    #[test]
    fn a_valid_list_keeps_its_slots_and_gets_a_share_of_the_rest() {
        let mut random = Random::new(9256);
        for _ in 0..500 {
            let lists = random.between(1, 12);
            let weights: Vec<u16> = (0..lists).map(|_| random.between(1, 40) as u16).collect();
            let valid: Vec<bool> = (0..lists).map(|_| random.one_in(2)).collect();
            if !valid.contains(&true) {
                continue;
            }
            let (all, some) = (
                among_valid(&weights, &vec![true; lists]),
                among_valid(&weights, &valid),
            );
            assert_eq!(all.len(), some.len());
            assert!(
                some.iter().all(|&owner| valid[owner]),
                "{weights:?} {valid:?}"
            );
            let kept = all.iter().zip(&some).filter(|(owner, _)| valid[**owner]);
            assert!(
                kept.clone().all(|(before, after)| before == after),
                "{weights:?} {valid:?}"
            );
            let sum: usize = (0..lists)
                .filter(|&it| valid[it])
                .map(|it| usize::from(weights[it]))
                .sum();
            for list in (0..lists).filter(|&it| valid[it]) {
                let found = some.iter().filter(|&&owner| owner == list).count() as f64;
                let share = (some.len() * usize::from(weights[list])) as f64 / sum as f64;
                assert!(
                    (found - share).abs() < 2.0,
                    "{weights:?} {valid:?}: {list} has {found} of {share}"
                );
            }
        }
    }

    #[test]
    fn all_valid_lists_have_the_slots_of_next_hops() {
        assert_eq!(
            among_valid(&[3, 1], &[true, true]),
            [[0; 192].as_slice(), &[1; 64]].concat()
        );
        assert_eq!(among_valid(&[3, 1], &[false, true]), [1; 256]);
    }
}
