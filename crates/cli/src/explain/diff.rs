//! Differences between the headers on arrival and on transmission.

use super::headers::Header;

/// Change of one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// In both frames, possibly with other values.
    Kept {
        /// On arrival.
        before: &'a Header,
        /// On transmission.
        after: &'a Header,
    },
    /// Only in the arrived frame.
    Removed(&'a Header),
    /// Only in the transmitted frame.
    Added(&'a Header),
}

/// Pairs the headers in order, so that as many fields as possible stay equal.
pub fn changes<'a>(before: &'a [Header], after: &'a [Header]) -> Vec<Change<'a>> {
    // best[i][j]: the score of the best pairing of before[i..] with after[j..].
    let mut best = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            let paired =
                likeness(&before[i], &after[j]).map_or(0, |likeness| likeness + best[i + 1][j + 1]);
            best[i][j] = paired.max(best[i + 1][j]).max(best[i][j + 1]);
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut changes = Vec::new();
    while i < before.len() || j < after.len() {
        let pair = before.get(i).zip(after.get(j));
        if let Some((old, new)) = pair
            && likeness(old, new)
                .is_some_and(|likeness| likeness + best[i + 1][j + 1] == best[i][j])
        {
            changes.push(Change::Kept {
                before: old,
                after: new,
            });
            (i, j) = (i + 1, j + 1);
        } else if i < before.len() && (j == after.len() || best[i + 1][j] == best[i][j]) {
            changes.push(Change::Removed(&before[i]));
            i += 1;
        } else {
            changes.push(Change::Added(&after[j]));
            j += 1;
        }
    }
    changes
}

/// Returns one plus the number of equal fields, or `None` for headers of different kinds.
fn likeness(before: &Header, after: &Header) -> Option<usize> {
    let equal = before
        .fields
        .iter()
        .filter(|(name, value)| after.field(name) == Some(value))
        .count();
    (before.name == after.name).then_some(1 + equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::headers::headers;
    use crate::explain::headers::tests::{SRV6, hex};

    fn words(before: &str, after: &str) -> Vec<String> {
        let (before, after) = (headers(&hex(before)), headers(&hex(after)));
        let word = |change: &Change| match change {
            Change::Kept { before, after } if before == after => format!("={}", before.name),
            Change::Kept { before, .. } => format!("~{}", before.name),
            Change::Removed(header) => format!("-{}", header.name),
            Change::Added(header) => format!("+{}", header.name),
        };
        changes(&before, &after).iter().map(word).collect()
    }

    const INNER: &str =
        "60000000 0010 11 40 fc00aaaa000000000000000000000001 fc0b0000000000000000000000000001
        1000 0035 0010 9c2d 7369646573746570";
    const INNER_ONE_LESS: &str =
        "60000000 0010 11 3f fc00aaaa000000000000000000000001 fc0b0000000000000000000000000001
        1000 0035 0010 9c2d 7369646573746570";
    const OUTER: &str =
        "60000000 0050 2b 40 fc000000000000000000000000000002 fc0f0000000000000000000000000001
        29 02 04 00 00 00 0000 fc0f0000000000000000000000000001";
    const ETHERNET: &str = "020000000001 020000000011 86dd";
    const OTHER_ETHERNET: &str = "020000000012 020000000002 86dd";

    #[test]
    fn encapsulation_adds_and_decapsulation_removes_headers() {
        let plain = format!("{ETHERNET}{INNER}");
        let outside = format!("{OTHER_ETHERNET}{OUTER}{INNER_ONE_LESS}");
        assert_eq!(
            words(&plain, &outside),
            ["~Ethernet", "+IPv6", "+SRH", "~IPv6", "=UDP", "=payload"]
        );
        assert_eq!(
            words(&outside, &plain),
            ["~Ethernet", "-IPv6", "-SRH", "~IPv6", "=UDP", "=payload"]
        );
    }

    #[test]
    fn an_encapsulated_frame_is_the_inner_frame() {
        let plain = format!("{ETHERNET}{INNER}");
        let outer = OUTER.replacen("29", "8f", 1).replacen("0050", "005e", 1);
        let carried = format!("{OTHER_ETHERNET}{outer}{ETHERNET}{INNER}");
        assert_eq!(
            words(&plain, &carried),
            [
                "+Ethernet",
                "+IPv6",
                "+SRH",
                "=Ethernet",
                "=IPv6",
                "=UDP",
                "=payload"
            ]
        );
    }

    #[test]
    fn an_srh_is_removed_from_the_middle() {
        let popped = format!("{OTHER_ETHERNET}{INNER}");
        assert_eq!(
            words(SRV6, &popped),
            ["~Ethernet", "~IPv6", "-SRH", "=UDP", "=payload"]
        );
    }

    #[test]
    fn equal_frames_have_no_difference() {
        assert_eq!(
            words(SRV6, SRV6),
            ["=Ethernet", "=IPv6", "=SRH", "=UDP", "=payload"]
        );
        assert!(words("", "").iter().all(|word| word.starts_with('=')));
    }
}
