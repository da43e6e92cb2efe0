//! The difference between two tables of an image.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What is new, other and gone between two ordered maps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diff<'a, K, V> {
    pub(super) added: Vec<(&'a K, &'a V)>,
    /// Key, old value, new value.
    pub(super) changed: Vec<(&'a K, &'a V, &'a V)>,
    pub(super) removed: Vec<(&'a K, &'a V)>,
}

impl<'a, K: Ord, V: PartialEq> Diff<'a, K, V> {
    /// One pass over both.
    pub(super) fn between(from: &'a BTreeMap<K, V>, to: &'a BTreeMap<K, V>) -> Self {
        let mut diff = Self {
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
        };
        let (mut old, mut new) = (from.iter().peekable(), to.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return diff,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            match order {
                Ordering::Less => diff.removed.extend(old.next()),
                Ordering::Greater => diff.added.extend(new.next()),
                Ordering::Equal => {
                    if let (Some((key, a)), Some((_, b))) = (old.next(), new.next())
                        && a != b
                    {
                        diff.changed.push((key, a, b));
                    }
                }
            }
        }
    }

    /// New and changed, with the new value.
    pub(super) fn upserts(&self) -> impl Iterator<Item = (&'a K, &'a V)> + '_ {
        self.added
            .iter()
            .copied()
            .chain(self.changed.iter().map(|&(key, _, new)| (key, new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_says_what_is_new_other_and_gone() {
        let from = BTreeMap::from([(1, 'a'), (2, 'b'), (3, 'c')]);
        let to = BTreeMap::from([(0, 'z'), (2, 'B'), (3, 'c'), (9, 'n')]);
        let diff = Diff::between(&from, &to);
        assert_eq!(diff.added, [(&0, &'z'), (&9, &'n')]);
        assert_eq!(diff.changed, [(&2, &'b', &'B')]);
        assert_eq!(diff.removed, [(&1, &'a')]);
        assert_eq!(diff.upserts().count(), 3);
        assert_eq!(
            Diff::between(&to, &to),
            Diff {
                added: vec![],
                changed: vec![],
                removed: vec![]
            }
        );
    }
}
