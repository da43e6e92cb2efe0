//! Memory of a process: its own, and in BPF maps.

use std::collections::BTreeMap;
use std::fs;

use nix::unistd::Pid;

/// Returns the resident memory of a process in bytes (`VmRSS`, proc(5)).
pub fn resident(pid: Pid) -> u64 {
    let resident = super::status_field(format!("/proc/{pid}"), "VmRSS").expect("it runs");
    1024 * number(resident.trim_end_matches(" kB"))
}

/// Returns the bytes of the distinct BPF maps that a process has open.
pub fn of_maps(pid: Pid) -> u64 {
    let folder = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    let maps: BTreeMap<u64, u64> = folder
        .flatten()
        .filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let field = |name: &str| {
                let mut lines = text.lines();
                lines.find_map(|line| line.strip_prefix(name).map(number))
            };
            Some((field("map_id:")?, field("memlock:")?))
        })
        .collect();
    maps.values().sum()
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}
