//! When the next packet is due: what `due` of bpf/generator.bpf.c does, for sources in user space.

/// Packets that the pace is allowed to be behind, and that are then sent one after the other. Later
/// packets are not sent. `CATCH_UP` of bpf/generator.bpf.c.
const CATCH_UP: u64 = 64;

/// The pace of one offer; times in nanoseconds from its first packet on.
#[derive(Debug)]
pub(super) struct Pace {
    duration: u64,
    /// ns * 2^16; 0: none.
    interval: u64,
    /// ns * 2^16.
    due: u64,
}

impl Pace {
    /// `interval`: between two packets, in ns * 2^16; 0: as fast as it goes.
    pub fn new(duration: u64, interval: u64) -> Self {
        Self {
            duration,
            interval,
            due: 0,
        }
    }

    /// Whether it is over.
    pub fn has_ended(&self, elapsed: u64) -> bool {
        elapsed >= self.duration
    }

    /// Whether a packet is to be sent now; if so, it counts as sent.
    pub fn is_due(&mut self, elapsed: u64) -> bool {
        if self.interval == 0 {
            return !self.has_ended(elapsed);
        }
        if self.due >> 16 >= self.duration || elapsed << 16 < self.due {
            return false;
        }
        let late = (elapsed << 16) - self.due;
        if late > CATCH_UP * self.interval {
            self.due += (late / self.interval - CATCH_UP) * self.interval;
        }
        self.due += self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms at 1 Mpps.
    fn pace() -> Pace {
        Pace::new(1_000_000, 1000 << 16)
    }

    fn sent(pace: &mut Pace, times: impl IntoIterator<Item = u64>) -> usize {
        times.into_iter().filter(|time| pace.is_due(*time)).count()
    }

    #[test]
    fn as_many_are_due_as_the_rate_and_the_duration_say() {
        assert_eq!(sent(&mut pace(), (0..2_000_000).step_by(7)), 1000);
        assert_eq!(sent(&mut pace(), [0, 1, 999, 1000, 1001]), 2);
    }

    #[test]
    fn a_short_delay_is_made_up_for_and_a_long_one_is_not() {
        assert_eq!(sent(&mut pace(), [0].into_iter().chain([50_000; 100])), 51);
        assert_eq!(sent(&mut pace(), [0].into_iter().chain([500_000; 100])), 66);
    }

    #[test]
    fn without_a_pace_everything_is_due_until_the_end() {
        let mut pace = Pace::new(10, 0);
        assert!(pace.is_due(9) && !pace.is_due(10));
        assert!(pace.has_ended(10) && !pace.has_ended(9));
    }
}
