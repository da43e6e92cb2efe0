//! The stamp in the last bytes of a trial's packets; bpf/stamp.h defines the layout.

/// Identifies one packet of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the trial at this receiver.
    pub trial: u16,
    /// Sequence number in sending order, from 0. The stamp carries 48 bits of it.
    pub sequence: u64,
    /// Time of creation in nanoseconds of `CLOCK_MONOTONIC`, 48 bits. 0 if not requested.
    pub time: u64,
}

impl Stamp {
    /// Bytes at the end of a packet.
    pub const LENGTH: usize = 16;
    /// Value of the first two bytes.
    pub const MAGIC: u16 = 0x5353;

    /// Returns the wire format.
    pub fn bytes(self) -> [u8; Self::LENGTH] {
        let front = u64::from(Self::MAGIC) << 48
            | u64::from(self.trial) << 32
            | (self.sequence >> 16) & 0xffff_ffff;
        let back = self.sequence << 48 | self.time & LOW_48;
        (u128::from(front) << 64 | u128::from(back)).to_be_bytes()
    }

    /// Returns the stamp at the end of a frame, if any.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let bytes = frame.last_chunk::<{ Self::LENGTH }>()?;
        let (front, back) = bytes.split_at(8);
        let front = u64::from_be_bytes(front.try_into().ok()?);
        let back = u64::from_be_bytes(back.try_into().ok()?);
        (front >> 48 == u64::from(Self::MAGIC)).then_some(Self {
            trial: (front >> 32) as u16,
            sequence: (front & 0xffff_ffff) << 16 | back >> 48,
            time: back & LOW_48,
        })
    }
}

const LOW_48: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp {
            trial: 0xfedc,
            sequence: 0x0123_4567_89ab,
            time: 0xba98_7654_3210,
        };
        let bytes = stamp.bytes();
        assert_eq!(hex::encode(bytes), "5353fedc0123456789abba9876543210");
        assert_eq!(Stamp::of(&[&[7; 50][..], &bytes].concat()), Some(stamp));
        assert_eq!(Stamp::of(&bytes[1..]), None);
        assert_eq!(Stamp::of(&[0; 60]), None);
    }
}
