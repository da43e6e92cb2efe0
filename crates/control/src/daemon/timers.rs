//! Times of periodic work of the event loop.

use std::time::{Duration, Instant};

/// Time as an instance sees it.
#[derive(Debug)]
pub(super) struct Time {
    /// Time of the event that is being processed.
    pub now: Instant,
    /// Time of the start.
    pub started: Instant,
    pub timers: Timers,
}

impl Time {
    /// An instance that starts now.
    pub fn new(now: Instant) -> Self {
        Self {
            now,
            started: now,
            timers: Timers::new(now),
        }
    }

    /// Returns whether the task is due.
    pub fn is_due(&self, task: Task) -> bool {
        self.timers.is_due(task, self.now)
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.now.saturating_duration_since(self.started)
    }
}

/// Periodic work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Polls settings that cause no notification.
    Settings,
    /// Surveys the egresses whose peers TC may redirect to, and what frames beside bridges skip.
    Survey,
    /// Checks which neighbors packets use.
    Neighbors,
    /// Tries a failed change again.
    Retry,
    /// Makes all checks.
    Examine,
    /// Calls the status callback.
    Status,
}

const TASKS: usize = Task::Status as usize + 1;

/// Time of the next run of each task.
#[derive(Debug)]
pub(super) struct Timers([Instant; TASKS]);

impl Timers {
    /// All tasks are due at this time.
    pub fn new(now: Instant) -> Self {
        Self([now; TASKS])
    }

    /// Returns whether the task is due.
    pub fn is_due(&self, task: Task, now: Instant) -> bool {
        self.at(task) <= now
    }

    /// Returns the time of the next run.
    pub fn at(&self, task: Task) -> Instant {
        self.0[task as usize]
    }

    /// Sets the time of the next run.
    pub fn set(&mut self, task: Task, at: Instant) {
        self.0[task as usize] = at;
    }

    /// Sets the next run after work that took this time: after `period`, or so late that the work
    /// takes at most 1/`share` of it.
    pub fn set_after(
        &mut self,
        task: Task,
        now: Instant,
        period: Duration,
        taken: Duration,
        share: u32,
    ) {
        self.set(task, now + period.max(taken * share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_due_from_its_time_on() {
        let start = Instant::now();
        let mut timers = Timers::new(start);
        assert!(timers.is_due(Task::Status, start));
        timers.set(Task::Status, start + Duration::from_secs(1));
        assert!(!timers.is_due(Task::Status, start));
        assert!(timers.is_due(Task::Status, start + Duration::from_secs(1)));
        assert!(timers.is_due(Task::Examine, start), "each has its own time");
    }

    #[test]
    fn long_work_is_repeated_later() {
        let start = Instant::now();
        let mut timers = Timers::new(start);
        let period = Duration::from_millis(100);
        timers.set_after(Task::Survey, start, period, Duration::from_millis(1), 25);
        assert_eq!(timers.at(Task::Survey), start + period);
        timers.set_after(Task::Survey, start, period, Duration::from_millis(10), 25);
        let later = start + Duration::from_millis(250);
        assert_eq!(timers.at(Task::Survey), later);
    }
}
