//! State machine of a probed service: when to probe, and its state after replies and timeouts. It
//! has no I/O; the caller passes the time.
//!
//! A service is probed once per interval. Without a reply within half an interval the probe is
//! repeated. If there is no reply in the other half either, the service is down. It is therefore
//! down at most two intervals after its last reply, and one lost packet does not change its state.
//! It is up after its first reply.

use std::time::{Duration, Instant};

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Neither a reply nor a timeout yet.
    Unknown,
    /// It replied.
    Up,
    /// It did not reply in time.
    Down,
}

/// A service that is probed periodically.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    interval: Duration,
    state: State,
    /// Time of the last probe that was not a repetition.
    probed: Instant,
    due: Instant,
    /// Probes since the last reply.
    unanswered: u32,
    /// Probes sent.
    pub probes: u64,
    /// Replies received.
    pub answers: u64,
    /// Number of times it went down.
    pub downs: u64,
}

/// Number of probes without a reply after which a service is down.
pub(super) const UNANSWERED: u32 = 2;

impl Watch {
    /// The first probe is due at once.
    pub fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            state: State::Unknown,
            probed: now,
            due: now,
            unanswered: 0,
            probes: 0,
            answers: 0,
            downs: 0,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Time of the next action.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A reply arrived.
    pub fn on_reply(&mut self) {
        self.answers += 1;
        self.unanswered = 0;
        self.state = State::Up;
        self.due = self.probed + self.interval;
    }

    /// Sets the state from that of the link, without a probe.
    pub fn set_link(&mut self, up: bool) {
        if up {
            self.state = State::Up;
        } else {
            self.turn_down();
        }
    }

    /// Whether a probe is due now. Pending replies must be reported before.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        if self.unanswered >= UNANSWERED {
            self.turn_down();
        }
        let again = self.unanswered == 1;
        if !again {
            self.probed = now;
        }
        let wait = if self.state == State::Down {
            self.interval
        } else {
            self.interval / UNANSWERED
        };
        self.due = now + wait;
        self.unanswered += 1;
        self.probes += 1;
        true
    }

    /// The probe cannot be sent for a local reason: the state stays, and the next attempt is an
    /// interval later.
    pub fn postpone(&mut self, now: Instant) {
        self.due = now + self.interval;
    }

    fn turn_down(&mut self) {
        if self.state != State::Down {
            self.state = State::Down;
            self.downs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const INTERVAL: u32 = 100;

    /// Checks every millisecond a service that replies at once at the times given by `alive`.
    /// Returns the times of state changes in milliseconds, and the final watch.
    fn run(until: u32, alive: impl Fn(u32) -> bool) -> (Vec<(u32, State)>, Watch) {
        let start = Instant::now();
        let mut watch = Watch::new(INTERVAL * MS, start);
        let mut changes = Vec::new();
        let mut before = watch.state();
        for ms in 0..until {
            if watch.is_due(start + ms * MS) && alive(ms) {
                watch.on_reply();
            }
            if watch.state() != before {
                before = watch.state();
                changes.push((ms, before));
            }
        }
        (changes, watch)
    }

    #[test]
    fn a_service_that_replies_is_probed_once_per_interval() {
        let (changes, watch) = run(1000, |_| true);
        assert_eq!(changes, [(0, State::Up)]);
        assert_eq!((watch.probes, watch.answers, watch.downs), (10, 10, 0));
    }

    #[test]
    fn a_silent_service_is_down_within_two_intervals() {
        for last in 300..400 {
            let (changes, watch) = run(1000, |ms| ms <= last);
            let [_, (at, State::Down)] = changes[..] else {
                panic!("{changes:?}")
            };
            assert!(
                at > last && at <= last + 2 * INTERVAL,
                "silent from {last} on, down at {at}"
            );
            assert_eq!(watch.downs, 1);
        }
    }

    #[test]
    fn a_service_that_never_replies_is_down_after_an_interval() {
        let (changes, _) = run(1000, |_| false);
        assert_eq!(changes, [(INTERVAL, State::Down)]);
    }

    #[test]
    fn one_lost_packet_does_not_take_a_service_down() {
        let (changes, watch) = run(1000, |ms| ms != 300);
        assert_eq!(changes, [(0, State::Up)]);
        assert_eq!((watch.probes, watch.answers), (11, 10));
    }

    #[test]
    fn a_service_that_returns_is_up_within_an_interval() {
        let (changes, watch) = run(1000, |ms| !(300..=720).contains(&ms));
        let [_, _, (at, State::Up)] = changes[..] else {
            panic!("{changes:?}")
        };
        assert!(at > 720 && at <= 720 + INTERVAL, "{at}");
        assert_eq!(watch.downs, 1);
    }

    #[test]
    fn a_postponed_probe_keeps_the_state() {
        let start = Instant::now();
        for (answers, state) in [(0, State::Unknown), (1, State::Up)] {
            let mut watch = Watch::new(10 * MS, start);
            assert!(watch.is_due(start));
            (0..answers).for_each(|_| watch.on_reply());
            let mut now = watch.due();
            for _ in 0..100 {
                watch.postpone(now);
                assert!(now < watch.due() && watch.due() <= now + 10 * MS);
                now = watch.due();
            }
            assert_eq!((watch.state(), watch.probes), (state, 1));
            assert!(watch.is_due(now));
        }
    }

    #[test]
    fn replies_count_although_the_check_is_late() {
        let start = Instant::now();
        let mut watch = Watch::new(10 * MS, start);
        for late in [0, 50, 120, 121, 300] {
            let now = start + late * MS;
            if late > 0 {
                watch.on_reply();
            }
            watch.is_due(now);
        }
        assert_eq!((watch.state(), watch.downs), (State::Up, 0));
    }
}
