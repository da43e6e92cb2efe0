//! Slots of a group shared out by weight: among next hops, and among the segment lists of an SR policy of which some are not
//! valid.

use sidestep_datapath::abi::SIDESTEP_GROUP_SLOTS;
use sidestep_model::route::NextHop;

/// The next hops that packets are spread over: the kernel passes over dead ones (`fib_select_multipath`,
/// `fib6_select_path`). With all of them dead there is nothing to choose. In an order of their own: the kernel's is not
/// told reliably, and the same next hops are to have the same slots.
pub(super) fn alive(next_hops: &[NextHop]) -> Vec<&NextHop> {
    let mut alive: Vec<_> = next_hops.iter().filter(|hop| !hop.dead).collect();
    if alive.is_empty() {
        alive = next_hops.iter().collect();
    }
    alive.sort_unstable();
    alive
}

/// How many slots each weight gets, at least one: as many times the weights as fit; where they do not fit once, their
/// shares, the remaining slots to the largest remainders.
pub(super) fn slots(weights: &[u16]) -> Vec<usize> {
    const ALL: usize = SIDESTEP_GROUP_SLOTS as usize;
    let weights: Vec<usize> = weights.iter().map(|&weight| weight.max(1).into()).collect();
    let sum: usize = weights.iter().sum();
    if sum <= ALL {
        // A power of two of them, so that a slot is an even part of the hash, would be no more exact.
        return weights.iter().map(|weight| weight * (ALL / sum)).collect();
    }
    let mut slots: Vec<usize> = weights
        .iter()
        .map(|weight| (weight * ALL / sum).max(1))
        .collect();
    let given = |slots: &[usize]| slots.iter().sum::<usize>();
    while given(&slots) != ALL {
        // Behind its share the most, or ahead of it the most and able to give one up.
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

/// Whose each slot is: of the valid ones among these, by their weights. The slots that one has if all are valid it always has,
/// so that its flows stay where they are; what is left of the others is given to the valid ones in turn.
pub(crate) fn among_valid(weights: &[u16], valid: &[bool]) -> Vec<usize> {
    let mut owners: Vec<usize> = slots(weights)
        .into_iter()
        .enumerate()
        .flat_map(|(owner, slots)| std::iter::repeat_n(owner, slots))
        .collect();
    let takers: Vec<usize> = (0..weights.len()).filter(|&it| valid[it]).collect();
    let sum: i64 = takers.iter().map(|&it| i64::from(weights[it])).sum();
    // In turn: who is behind its share the most.
    let mut behind = vec![0; weights.len()];
    for owner in owners.iter_mut().filter(|owner| !valid[**owner]) {
        for &taker in &takers {
            behind[taker] += i64::from(weights[taker]);
        }
        // Of equals the first.
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
    fn weights_that_do_not_fit_are_rounded_and_everyone_gets_a_slot() {
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
    fn a_valid_list_keeps_its_slots_and_gets_its_share_of_those_of_the_others() {
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
    fn where_all_are_valid_slots_are_as_those_of_next_hops() {
        assert_eq!(
            among_valid(&[3, 1], &[true, true]),
            [[0; 192].as_slice(), &[1; 64]].concat()
        );
        assert_eq!(among_valid(&[3, 1], &[false, true]), [1; 256]);
    }
}
