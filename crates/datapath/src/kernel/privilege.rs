//! Whether this process may load BPF programs, asked before the kernel answers with a bare EPERM;
//! and giving up all privileges that are not needed any more.

use std::fs;
use std::io;

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

/// Capabilities of the daemon, which follows the kernel's configuration and writes the tables:
/// those above, and raw sockets for probes and ICMP errors.
const KEPT: [u32; 4] = [NET_ADMIN, NET_RAW, 38, 39];
/// capabilities(7).
const NET_RAW: u32 = 13;
const SETPCAP: u32 = 8;
const SYS_PTRACE: u32 = 19;

/// Whether the calling thread may look at processes of others (`PTRACE_MODE_READ`, ptrace(2)).
pub(super) fn sees_others() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective(&status).is_some_and(|effective| effective & (1 << SYS_PTRACE) != 0)
}

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

/// Reduces the capabilities of the calling thread, and of the threads that it starts later, to
/// [`KEPT`]. No program that it would execute gets others back.
pub(super) fn drop_others() -> Result<(), KernelError> {
    reduce().map_err(|source| KernelError::System {
        operation: "give up capabilities",
        source,
    })
}

/// `struct __user_cap_header_struct` and one `struct __user_cap_data_struct` for each 32
/// capabilities (capset(2)).
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

fn reduce() -> io::Result<()> {
    let check = |result: i64| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: the structures of that version.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let of = |number: u32| (number as usize / 32, 1_u32 << (number % 32));
    // Reducing the bounding set needs a privilege of its own. A process without it keeps the
    // bounding set that it was started with.
    let (word, bit) = of(SETPCAP);
    if data[word].effective & bit != 0 {
        // Until the kernel knows no more.
        let all = (0..64).take_while(|number| {
            // SAFETY: numbers only.
            unsafe {
                libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(*number), 0, 0, 0) >= 0
            }
        });
        for number in all.filter(|number| !KEPT.contains(number)) {
            // SAFETY: numbers only.
            check(
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }
                    .into(),
            )?;
        }
    }
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) }.into())?;
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    let mut kept = [0; 2];
    for number in KEPT {
        let (word, bit) = of(number);
        kept[word] |= bit;
    }
    for (data, kept) in data.iter_mut().zip(kept) {
        data.permitted &= kept;
        data.effective = data.permitted;
        data.inheritable = 0;
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
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
    fn missing_capabilities_are_named_and_sys_admin_implies_bpf() {
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing(1 << SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert!(
            missing(effective("Name:\tx\nCapEff:\t000001fffeffffff\n").expect("hexadecimal"))
                .is_empty()
        );
    }
}
