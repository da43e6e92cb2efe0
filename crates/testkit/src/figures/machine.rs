//! Where the figures come from, and whether the machine is quiet.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::Error;

/// What a table has to say about its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Model name of the first CPU.
    pub model: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The one that runs generator, router and sink.
    pub cpu: usize,
    /// Load average over one minute before the first measurement; none if it cannot be read.
    pub load: Option<f64>,
}

impl Machine {
    /// Above this load average others take part in the figures.
    pub const QUIET: f64 = 0.5;

    /// Looks at the machine, and moves this process (with the programs it will start) off the last CPU that it may use,
    /// which is left to generator, router and sink.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn prepare() -> Result<Self, Error> {
        let failed = |errno: Errno| crate::Error::os("the CPUs of this process", errno);
        let mut rest = sched_getaffinity(Pid::from_raw(0)).map_err(failed)?;
        let allowed: Vec<usize> = (0..CpuSet::count())
            .filter(|cpu| rest.is_set(*cpu) == Ok(true))
            .collect();
        let cpu = allowed.last().copied().unwrap_or(0);
        if allowed.len() > 1 {
            rest.unset(cpu)
                .and_then(|()| sched_setaffinity(Pid::from_raw(0), &rest))
                .map_err(failed)?;
        }
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            model: model(&read("/proc/cpuinfo")),
            cpus: allowed.len(),
            cpu,
            load: load(&read("/proc/loadavg")),
        })
    }

    /// What speaks against the figures, if anything.
    pub fn warning(&self) -> Option<String> {
        let busy = self.load.filter(|load| *load > Self::QUIET).map(|load| {
            let quiet = Self::QUIET;
            format!(
                "load average {load:.2} before the start (quiet: {quiet} or less); others took part"
            )
        });
        let alone = || {
            (self.cpus < 2)
                .then(|| "the only CPU also runs this program and Sidestep's daemon".to_owned())
        };
        busy.or_else(alone)
    }
}

/// The first model name of `/proc/cpuinfo`.
fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or_else(
        || "unknown CPU".to_owned(),
        |(_, name)| name.trim().to_owned(),
    )
}

/// The first number of `/proc/loadavg`.
fn load(loadavg: &str) -> Option<f64> {
    loadavg.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_read() {
        assert_eq!(
            model("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n"),
            "AMD EPYC"
        );
        assert_eq!(model(""), "unknown CPU");
        assert_eq!(load("4.24 4.62 3.30 2/199 9636\n"), Some(4.24));
        assert_eq!(load(""), None);
    }

    #[test]
    fn a_busy_machine_and_a_single_cpu_are_said() {
        let machine = |load, cpus| Machine {
            kernel: "6.18.0".into(),
            model: "CPU".into(),
            cpus,
            cpu: 0,
            load,
        };
        assert_eq!(machine(Some(0.5), 2).warning(), None);
        assert!(
            machine(Some(0.51), 2)
                .warning()
                .is_some_and(|text| text.contains("0.51"))
        );
        assert!(machine(None, 1).warning().is_some());
    }
}
