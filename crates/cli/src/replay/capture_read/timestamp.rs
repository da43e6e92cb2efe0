//! Timestamps of captures, brought to nanoseconds since 1970-01-01 00:00 UTC.

/// Units of a timestamp: `if_tsresol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    /// 10^-n seconds.
    Decimal(u8),
    /// 2^-n seconds.
    Binary(u8),
}

impl Resolution {
    /// Default resolution of an interface without `if_tsresol`.
    pub(super) const MICROSECONDS: Self = Self::Decimal(6);

    /// The option's value: the most significant bit says which of the two it is.
    pub(super) const fn from_option(value: u8) -> Self {
        if value & 0x80 == 0 {
            Self::Decimal(value)
        } else {
            Self::Binary(value & 0x7f)
        }
    }

    /// `ticks` units after `offset` seconds (`if_tsoffset`); finer units than nanoseconds are cut
    /// off. None before 1970 and after 2554, which 64 bits of nanoseconds cannot say.
    pub(super) fn nanoseconds(self, ticks: u64, offset: i64) -> Option<u64> {
        let ticks = i128::from(ticks);
        let nanoseconds = match self {
            Self::Decimal(n @ 0..=9) => ticks * 10_i128.pow(9 - u32::from(n)),
            Self::Decimal(n) => 10_i128
                .checked_pow(u32::from(n) - 9)
                .map_or(0, |unit| ticks / unit),
            Self::Binary(n) => (ticks * 1_000_000_000) >> n,
        };
        u64::try_from(nanoseconds + i128::from(offset) * 1_000_000_000).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_becomes_nanoseconds() {
        let ns = |option, ticks| Resolution::from_option(option).nanoseconds(ticks, 0);
        assert_eq!(ns(0, 3), Some(3_000_000_000));
        assert_eq!(ns(6, 1_500_000), Some(1_500_000_000));
        assert_eq!(ns(9, 7), Some(7));
        assert_eq!(ns(12, 7_999), Some(7));
        assert_eq!(ns(127, u64::MAX), Some(0));
        assert_eq!(ns(0x80 | 1, 3), Some(1_500_000_000));
        assert_eq!(ns(0x80 | 32, 1 << 31), Some(500_000_000));
        assert_eq!(ns(0xff, u64::MAX), Some(0));
    }

    #[test]
    fn what_64_bits_of_nanoseconds_cannot_say_is_none() {
        assert_eq!(Resolution::MICROSECONDS.nanoseconds(u64::MAX, 0), None);
        assert_eq!(Resolution::MICROSECONDS.nanoseconds(0, -1), None);
        assert_eq!(
            Resolution::MICROSECONDS.nanoseconds(2_000_000, -1),
            Some(1_000_000_000)
        );
    }
}
