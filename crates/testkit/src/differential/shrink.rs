//! Reduces a case while it still reproduces the failure.

use super::headers::ETHERNET;
use super::mutate::lengthen_or_shorten;

/// LIMIT: number of attempts to reduce a frame.
const TRIES: usize = 600;

/// Delta debugging: removes as many of `items` as possible while `fails` returns true, in ever
/// shorter runs.
pub fn items<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items;
    let mut run = kept.len().div_ceil(2);
    while run > 0 {
        let mut at = 0;
        while at < kept.len() {
            let end = (at + run).min(kept.len());
            let fewer: Vec<T> = [&kept[..at], &kept[end..]].concat();
            if fails(&fewer) {
                kept = fewer;
            } else {
                at = end;
            }
        }
        run = if run == 1 { 0 } else { run.div_ceil(2) };
    }
    kept
}

/// Returns a shorter frame with more zeros for which `fails` returns true.
pub fn frame(frame: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut kept = frame.to_vec();
    let mut tries = 0;
    let mut attempt = |candidate: Vec<u8>, kept: &mut Vec<u8>| {
        tries += 1;
        let smaller = tries <= TRIES && candidate != *kept && fails(&candidate);
        if smaller {
            *kept = candidate;
        }
        smaller
    };
    // Remove bytes at the end, with corrected length fields and without.
    for right in [true, false] {
        let mut cut = kept.len() / 2;
        while cut > 0 {
            let mut candidate = kept[..kept.len().saturating_sub(cut).max(ETHERNET)].to_vec();
            if right {
                lengthen_or_shorten(&mut candidate);
            }
            if !attempt(candidate, &mut kept) {
                cut /= 2;
            }
        }
    }
    for run in [64, 16, 8, 4, 2, 1] {
        for at in (ETHERNET..kept.len()).step_by(run) {
            let mut candidate = kept.clone();
            let end = (at + run).min(candidate.len());
            candidate[at..end].fill(0);
            attempt(candidate, &mut kept);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_items_that_a_failure_needs_are_kept() {
        let found = items((0..50).collect(), |kept| {
            kept.contains(&3) && kept.contains(&41)
        });
        assert_eq!(found, [3, 41]);
    }

    #[test]
    fn a_frame_becomes_short_and_empty() {
        let shrunk = frame(&[7; 200], |bytes| bytes.get(30) == Some(&7));
        let mut expected = vec![0; 31];
        expected[..14].fill(7);
        expected[30] = 7;
        assert_eq!(shrunk, expected);
    }
}
