//! State machine of one session: when to probe, and its state after answers and losses (RFC 7880 7.3).
//! It has no I/O; the caller passes the time, in nanoseconds of the monotonic clock.
//!
//! A probe without an answer does not count by the time at which it should have been answered, but by
//! the probes that were sent behind it. A sender that was late has sent fewer probes, so its session
//! does not go down.

use std::time::Duration;

use sidestep_datapath::abi::SIDESTEP_ANSWER_STATE;

/// Nanoseconds of the monotonic clock.
pub(in crate::daemon) type Nanos = u64;

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum State {
    /// Neither an answer nor a failure yet.
    Init,
    /// Answers arrive.
    Up,
    /// The answers to the last probes are missing, as many as the multiplier says.
    Lost,
    /// The reflector is down by its configuration.
    RemoteAdminDown,
}

/// `State` of BFD in the answers (RFC 5880 4.1).
const ADMIN_DOWN: u64 = 0;
/// Time that the first answer may take, before the delay of the path is known.
const DELAY_FIRST: Nanos = 1_000_000_000;
/// LIMIT: longest time that an answer is expected to take.
const DELAY_MAX: Nanos = 2_000_000_000;

/// The time without the bits that have the state in an answer.
fn exact(time: Nanos) -> Nanos {
    time & !u64::from(SIDESTEP_ANSWER_STATE)
}

/// Measures how long an answer takes. Answers do not say which probe they are for, so one probe is sent
/// alone.
#[derive(Clone, Copy, Debug)]
enum Measuring {
    /// No probe was sent.
    Start,
    /// No answer has arrived since the first probe, at this time.
    First(Nanos),
    /// The answers to all probes arrive before the next one is sent.
    Drained,
    /// The last probe, at this time, is the only one on its way.
    Alone(Nanos),
    Done,
}

/// A session.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Session {
    interval: Nanos,
    multiplier: u32,
    state: State,
    due: Nanos,
    /// The last answer that was noticed, as the packet path writes it.
    answered: u64,
    /// How long an answer takes, or how long it may take.
    delay: Nanos,
    measuring: Measuring,
    /// Probes since the last answer, and the time of the first of them.
    unanswered: u32,
    unanswered_since: Nanos,
    /// Probes sent.
    pub probes: u64,
}

impl Session {
    /// A session whose first probe is due at `due`. `answered`: the last answer to an earlier process,
    /// which the session continues; `is_down`: the state that it had.
    pub fn new(
        interval: Duration,
        multiplier: u8,
        due: Nanos,
        (answered, is_down): (u64, bool),
    ) -> Self {
        let state = match (answered, is_down) {
            (0, false) => State::Init,
            (_, true) => State::Lost,
            (_, false) => State::Up,
        };
        Self {
            interval: interval.as_nanos() as Nanos,
            multiplier: multiplier.into(),
            state,
            due,
            answered,
            delay: DELAY_FIRST,
            measuring: Measuring::Start,
            unanswered: 0,
            unanswered_since: 0,
            probes: 0,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Time of the next probe.
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// Arrival of the last answer that was noticed.
    pub fn answered(&self) -> Option<Nanos> {
        (self.answered != 0).then_some(exact(self.answered))
    }

    /// Evaluates the answers up to now, and prepares the next probe, which the caller sends. `random`
    /// shortens the interval (RFC 5880 6.8.7).
    pub fn probe(&mut self, now: Nanos, answered: u64, random: u64) {
        self.notice(answered);
        let patience = self.delay + self.interval;
        if self.unanswered >= self.multiplier && now >= self.unanswered_since + patience {
            self.state = State::Lost;
        }
        if self.unanswered == 0 {
            self.unanswered_since = now;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.probes += 1;
        self.due = now + self.jittered(random);
        self.measure(now);
    }

    /// Measures the delay, after a probe was sent.
    fn measure(&mut self, now: Nanos) {
        let arrived = self.answered().unwrap_or_default();
        self.measuring = match self.measuring {
            Measuring::Start => Measuring::First(now),
            Measuring::First(first) if arrived >= exact(first) => {
                // At most, because the answer may be that to a later probe.
                self.delay = arrived.saturating_sub(first).min(DELAY_MAX);
                self.due = now + self.delay + self.interval;
                Measuring::Drained
            }
            Measuring::Alone(sent) if arrived >= exact(sent) => {
                self.delay = arrived.saturating_sub(sent).min(self.delay);
                Measuring::Done
            }
            Measuring::Drained | Measuring::Alone(_) => {
                self.due = now + self.delay + self.interval;
                Measuring::Alone(now)
            }
            other => other,
        };
    }

    fn notice(&mut self, answered: u64) {
        if answered == self.answered {
            return;
        }
        self.answered = answered;
        self.unanswered = 0;
        self.state = match answered & u64::from(SIDESTEP_ANSWER_STATE) {
            ADMIN_DOWN => State::RemoteAdminDown,
            _ => State::Up,
        };
    }

    /// RFC 5880 6.8.7: an interval is shortened by up to 25 %, with a multiplier of 1 by 10 % to 25 %.
    fn jittered(&self, random: u64) -> Nanos {
        let least = if self.multiplier == 1 { 100 } else { 0 };
        let shortened = least + random % (250 - least + 1);
        self.interval - self.interval * shortened / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const UP: u64 = 3;

    /// A session over a path whose answers take `delay`, in virtual time.
    struct Bench {
        session: Session,
        now: Nanos,
        /// Answers on their way: arrival and state.
        under_way: Vec<u64>,
        answered: u64,
        delay: Nanos,
        random: u64,
        changes: Vec<(Nanos, State)>,
    }

    impl Bench {
        fn new(multiplier: u8, delay: Nanos) -> Self {
            Self {
                session: Session::new(Duration::from_millis(10), multiplier, MS, (0, false)),
                now: MS,
                under_way: vec![],
                answered: 0,
                delay,
                random: 1,
                changes: vec![],
            }
        }

        fn random(&mut self) -> u64 {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.random >> 33
        }

        /// Runs for a time. `path` says of each probe what returns: delays beyond that of the path,
        /// one for each copy.
        fn run(&mut self, time: Nanos, mut path: impl FnMut(u64, Nanos) -> Vec<Nanos>) {
            let end = self.now + time;
            while self.now < end {
                let now = self.now;
                let arrived = self
                    .under_way
                    .iter()
                    .filter(|at| **at <= now)
                    .copied()
                    .max();
                self.under_way.retain(|at| *at > now);
                // The packet path notes the latest arrival.
                self.answered = self.answered.max(arrived.map_or(0, |at| at & !3 | UP));
                if now >= self.session.due() {
                    let before = self.session.state();
                    let random = self.random();
                    self.session.probe(now, self.answered, random);
                    if self.session.state() != before {
                        self.changes.push((now, self.session.state()));
                    }
                    let number = self.session.probes;
                    let answers = path(number, now).into_iter();
                    self.under_way
                        .extend(answers.map(|more| now + self.delay + more));
                }
                self.now += MS / 4;
            }
        }
    }

    fn answers(_: u64, _: Nanos) -> Vec<Nanos> {
        vec![0]
    }

    fn nothing(_: u64, _: Nanos) -> Vec<Nanos> {
        vec![]
    }

    #[test]
    fn a_session_is_up_after_its_first_answer_and_stays_up() {
        for delay in [0, MS, 50 * MS, 400 * MS] {
            let mut bench = Bench::new(3, delay);
            bench.run(10_000 * MS, answers);
            let last = bench.changes.last().expect("a change");
            assert_eq!(last.1, State::Up, "{delay}");
            assert!(last.0 <= delay + 15 * MS, "{delay}: {:?}", bench.changes);
        }
    }

    #[test]
    fn intervals_are_shortened_by_up_to_a_quarter() {
        for (multiplier, least) in [(1, 1000..1340), (3, 1000..1340)] {
            let mut bench = Bench::new(multiplier, 0);
            let mut last = 0;
            bench.run(10_000 * MS, |number, now| {
                let passed = now - std::mem::replace(&mut last, now);
                let most = if multiplier == 1 { 9 * MS } else { 10 * MS };
                // The first ones measure the delay.
                assert!(
                    number <= 5 || (7 * MS..most + MS).contains(&passed),
                    "{passed}"
                );
                vec![0]
            });
            assert!(
                least.contains(&bench.session.probes),
                "{}",
                bench.session.probes
            );
        }
    }

    #[test]
    fn a_dead_path_is_noticed_after_as_many_intervals_as_the_multiplier_says() {
        for delay in [0, MS, 30 * MS] {
            let mut bench = Bench::new(3, delay);
            bench.run(1000 * MS, answers);
            bench.changes.clear();
            let dead = bench.now;
            bench.run(1000 * MS, nothing);
            let [(at, State::Lost)] = bench.changes[..] else {
                panic!("{:?}", bench.changes)
            };
            // The last answer was under way, and the patience is as long again.
            let most = 41 * MS + 2 * delay;
            assert!((at - dead) <= most, "{delay}: {}", at - dead);
            assert!((at - dead) >= 20 * MS, "{delay}: {}", at - dead);
            bench.changes.clear();
            let back = bench.now;
            bench.run(1000 * MS, answers);
            let [(at, State::Up)] = bench.changes[..] else {
                panic!("{:?}", bench.changes)
            };
            assert!(at - back <= delay + 21 * MS, "{}", at - back);
        }
    }

    #[test]
    fn lost_late_reordered_and_doubled_answers_do_not_end_a_session() {
        let mut bench = Bench::new(3, 2 * MS);
        bench.run(100 * MS, answers);
        bench.changes.clear();
        bench.run(20_000 * MS, |number, _| match number % 7 {
            // Two in a row are lost.
            0 | 1 => vec![],
            // One arrives behind the next one.
            3 => vec![12 * MS],
            4 => vec![0, 0, 5 * MS],
            _ => vec![0],
        });
        assert_eq!(bench.changes, []);
    }

    #[test]
    fn a_sender_that_stands_still_does_not_end_its_session() {
        for delay in [0, MS, 50 * MS] {
            for pause in [15, 31, 200, 5000] {
                let mut bench = Bench::new(3, delay);
                bench.run(1000 * MS, answers);
                bench.changes.clear();
                for _ in 0..20 {
                    // Answers arrive meanwhile, and nothing is sent.
                    bench.now += pause * MS;
                    bench.run(177 * MS, answers);
                }
                assert_eq!(bench.changes, [], "delay {delay}, pause {pause}");
            }
        }
    }

    #[test]
    fn the_delay_is_that_of_one_probe_also_if_the_first_probes_are_lost() {
        for delay in [0, MS, 30 * MS, 300 * MS] {
            let mut bench = Bench::new(3, delay);
            // The next hop has to be resolved.
            bench.run(100 * MS, nothing);
            bench.run(3000 * MS, answers);
            let measured = bench.session.delay;
            assert!(measured <= delay + MS, "{delay}: {measured}");
            assert!(measured + MS >= delay, "{delay}: {measured}");
            bench.changes.clear();
            let dead = bench.now;
            bench.run(1000 * MS, nothing);
            let (at, _) = bench.changes[0];
            assert!(at - dead <= 41 * MS + 2 * delay, "{delay}: {}", at - dead);
        }
    }

    #[test]
    fn a_continued_session_has_the_state_that_it_had() {
        let of = |answered, is_down| {
            Session::new(Duration::from_millis(10), 3, 0, (answered, is_down)).state()
        };
        assert_eq!(of(0, false), State::Init);
        assert_eq!(of(4, false), State::Up);
        assert_eq!(of(4, true), State::Lost);
        let mut bench = Bench::new(3, MS);
        // The answer is old, and the process was away for an hour.
        bench.session = Session::new(
            Duration::from_millis(10),
            3,
            3_600_000 * MS,
            ((4 * MS) | UP, false),
        );
        bench.answered = (4 * MS) | UP;
        bench.now = 3_600_000 * MS;
        bench.run(1000 * MS, answers);
        assert_eq!(bench.changes, []);
    }

    #[test]
    fn a_reflector_that_is_down_by_configuration_takes_the_session_down_at_once() {
        let mut session = Session::new(Duration::from_millis(10), 3, 0, (0, false));
        session.probe(MS, 0, 0);
        session.probe(11 * MS, 2 * MS, 0);
        assert_eq!(session.state(), State::RemoteAdminDown);
        session.probe(21 * MS, (12 * MS) | UP, 0);
        assert_eq!(session.state(), State::Up);
    }
}
