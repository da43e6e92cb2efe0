//! CPUs of this process and its threads.

use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the processors that this process may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let allowed = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true));
    allowed.collect()
}

/// Runs a closure on a thread that stays on one processor.
pub fn on<T: Send>(cpu: usize, closure: impl FnOnce() -> T + Send) -> T {
    let done = thread::scope(|scope| {
        let pinned = || {
            pin(cpu);
            closure()
        };
        scope.spawn(pinned).join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Moves this process and its children off these CPUs, unless no others are allowed.
pub fn leave(cpus: &[usize]) {
    let mut rest = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let left = cpus.iter().all(|&cpu| rest.unset(cpu).is_ok());
    if left && (0..CpuSet::count()).any(|cpu| rest.is_set(cpu) == Ok(true)) {
        let _ = sched_setaffinity(Pid::from_raw(0), &rest);
    }
}

/// Pins the calling thread to one processor. If the kernel refuses, the thread stays unpinned.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    if set.set(cpu).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}
