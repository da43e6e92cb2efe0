//! Whether this process may load BPF programs, asked before the kernel answers with a bare EPERM.

use std::fs;

use super::KernelError;

/// The one that nothing else stands for.
const NET_ADMIN: u32 = 12;
/// capabilities(7): bit and name of what loading and attaching needs.
const NEEDED: [(u32, &str); 3] = [
    (NET_ADMIN, "CAP_NET_ADMIN"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];
/// `CAP_SYS_ADMIN` stands for `CAP_BPF` and `CAP_PERFMON`, which were split from it (Linux 5.8).
const SYS_ADMIN: u32 = 21;

/// Checks the effective capabilities of the calling thread.
pub(super) fn check() -> Result<(), KernelError> {
    let status =
        fs::read_to_string("/proc/thread-self/status").map_err(|source| KernelError::System {
            operation: "read /proc/thread-self/status",
            source,
        })?;
    // A kernel that does not say is asked by trying.
    let Some(effective) = effective(&status) else {
        return Ok(());
    };
    let missing = missing(effective);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(KernelError::Capability { missing })
    }
}

/// The `CapEff` line: a hexadecimal set.
fn effective(status: &str) -> Option<u64> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

fn missing(effective: u64) -> Vec<&'static str> {
    let has = |bit: u32| effective & (1 << bit) != 0;
    NEEDED
        .iter()
        .filter(|(bit, _)| !has(*bit) && (*bit == NET_ADMIN || !has(SYS_ADMIN)))
        .map(|(_, name)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_capabilities_are_named_and_sys_admin_stands_for_the_bpf_ones() {
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing(1 << SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert!(
            missing(effective("Name:\tx\nCapEff:\t000001fffeffffff\n").expect("hexadecimal"))
                .is_empty()
        );
    }
}
