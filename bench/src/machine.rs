//! Properties of the machine that affect speed, read from `/proc` and `/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::memory::meminfo;
use crate::result::{Cache, Machine};

/// Name of the fact about other load, which differs in each run.
pub const LOAD: &str = "load before the start";

/// Reads the properties of this machine.
pub fn this() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of_cpu = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": "))
            .map(|(_, value)| value.to_owned())
    };
    let virtual_machine =
        of_cpu("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let release = word("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = word("/proc/sys/kernel/version").unwrap_or_default();
    let mut facts = BTreeMap::new();
    if let Some(pages) = word("/sys/kernel/mm/transparent_hugepage/enabled") {
        facts.insert("transparent huge pages".into(), pages);
    }
    if let Some(load) = word("/proc/loadavg") {
        facts.insert(LOAD.into(), load);
    }
    Machine {
        cpu: of_cpu("model name").unwrap_or_else(|| "unknown".into()),
        cpus: cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count() as u32,
        kernel: format!("{release} {version}").trim().to_owned(),
        hypervisor: virtual_machine
            .then(|| word("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "unknown".into())),
        memory: meminfo(&["MemTotal"]),
        caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
        governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
        facts,
    }
}

/// CPU time since boot in ticks, summed over all CPUs (`/proc/stat`, proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    /// Steal time: the hypervisor ran other guests.
    stolen: u64,
}

impl Ticks {
    /// Creates a reading of this number of ticks, `stolen` of which are steal time.
    pub fn new(all: u64, stolen: u64) -> Self {
        Self { all, stolen }
    }

    /// Returns the reading after this number of further ticks.
    #[must_use]
    pub fn later(self, all: u64, stolen: u64) -> Self {
        Self::new(self.all + all, self.stolen + stolen)
    }

    /// Reads the current values. `None` if they are not available.
    pub fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = words.split_whitespace().map(str::parse);
        // The first value includes guest time.
        let ticks: Vec<u64> = ticks.take(STEAL + 1).collect::<Result<_, _>>().ok()?;
        Some(Self {
            all: ticks.iter().sum(),
            stolen: *ticks.get(STEAL)?,
        })
    }

    /// Returns the share of all processors' time that was steal time since then, 0 to 1.
    pub fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

/// Position of steal time in the first line of `/proc/stat`, from 0.
const STEAL: usize = 7;

fn caches(folder: &Path) -> Vec<Cache> {
    let of = |index: usize| {
        let read = |name: &str| word(folder.join(format!("index{index}")).join(name));
        Some(Cache {
            level: read("level")?.parse().ok()?,
            kind: read("type")?,
            bytes: read("size")?.strip_suffix('K')?.parse::<u64>().ok()? * 1024,
        })
    };
    (0..).map_while(of).collect()
}

fn mitigations(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let states = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, word(entry.path())?)));
    states.collect()
}

/// Returns the content of a file without the line end, or `None` if it is missing or empty.
fn word(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = this();
        assert!(
            machine.cpus > 0 && machine.memory > 1 << 20 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
    }

    #[test]
    fn steal_time_is_a_share_of_all_processors() {
        let before = Ticks::of("cpu  10 0 5 80 1 0 2 2 7 0\ncpu0 5 0 2 40 1 0 1 1 7 0\n");
        let after = Ticks::of("cpu  50 0 5 120 1 0 2 22 9 0\n");
        let share = after.expect("ticks").stolen_since(before.expect("ticks"));
        assert!((share - 0.2).abs() < 1e-9, "{share}");
        assert_eq!(Ticks::of("cpu  1 2 3\n"), None);
        assert!(Ticks::now().is_some());
    }

    #[test]
    fn missing_facts_are_omitted() {
        assert_eq!(caches(Path::new("/nowhere")), []);
        assert!(mitigations(Path::new("/nowhere")).is_empty());
    }
}
