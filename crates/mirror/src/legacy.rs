//! Tables of the legacy iptables and ip6tables: whether they filter anything.
//!
//! The kernel loads a table when it is first read, so only tables that it lists are read here
//! (`x_tables.h`, `ip_tables.h`, `ip6_tables.h` of `include/uapi/linux`).

use std::fs;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::wire::{u16_at, u32_at};

/// Layout of a family's entries.
struct Family {
    program: &'static str,
    /// File in `/proc/net` with the names of the loaded tables.
    file: &'static str,
    domain: AddressFamily,
    level: i32,
    /// Offset of `target_offset` in `struct ipt_entry` or `ip6t_entry`.
    target_offset: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        program: "iptables",
        file: "ip_tables_names",
        domain: AddressFamily::Inet,
        level: libc::SOL_IP,
        target_offset: 88,
    },
    Family {
        program: "ip6tables",
        file: "ip6_tables_names",
        domain: AddressFamily::Inet6,
        level: libc::SOL_IPV6,
        target_offset: 140,
    },
];

/// `IPT_SO_GET_INFO`, also of ip6tables.
const GET_INFO: i32 = 64;
/// `IPT_SO_GET_ENTRIES`, also of ip6tables.
const GET_ENTRIES: i32 = 65;
/// Length of the name of a table.
const NAME: usize = 32;
/// Length of `struct ipt_getinfo`.
const INFO: usize = 84;
/// Offset of the entries in `struct ipt_get_entries`.
const ENTRIES: usize = 40;
/// Length of `struct xt_entry_target`, in front of a verdict.
const TARGET: usize = 32;
/// Verdict of a policy that accepts: `-NF_ACCEPT - 1`.
const ACCEPT: i32 = -2;
/// LIMIT: bytes of a table that are read. A larger one has rules.
const SIZE_MAX: u32 = 1 << 16;

/// Returns the tables that filter packets, each as `PROGRAM TABLE`. A table that cannot be read
/// counts.
pub(crate) fn tables_in_use() -> Vec<String> {
    let of_family = |family: &Family| {
        let path = format!("/proc/thread-self/net/{}", family.file);
        let names = fs::read_to_string(path).unwrap_or_default();
        let names = names
            .lines()
            .filter(|name| is_in_use(family, name) != Some(false));
        let names = names.map(|name| format!("{} {name}", family.program));
        names.collect::<Vec<_>>()
    };
    FAMILIES.iter().flat_map(of_family).collect()
}

/// Whether a loaded table has a rule, or a policy other than ACCEPT.
fn is_in_use(family: &Family, name: &str) -> Option<bool> {
    let mut info = vec![0; INFO];
    info.get_mut(..name.len())
        .filter(|_| name.len() < NAME)?
        .copy_from_slice(name.as_bytes());
    read(family, GET_INFO, &mut info)?;
    let info = Info::parse(&info)?;
    if info.has_rules() || info.size > SIZE_MAX {
        return Some(true);
    }
    let mut entries = vec![0; ENTRIES + info.size as usize];
    entries[..name.len()].copy_from_slice(name.as_bytes());
    entries[NAME..NAME + 4].copy_from_slice(&info.size.to_ne_bytes());
    read(family, GET_ENTRIES, &mut entries)?;
    info.has_other_policy(&entries[ENTRIES..], family.target_offset)
}

/// `struct ipt_getinfo` without the name.
#[derive(Debug, PartialEq, Eq)]
struct Info {
    /// Offsets of the policies: the last entry of each hook.
    policies: Vec<usize>,
    entries: u32,
    size: u32,
}

impl Info {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let field = |number: usize| u32_at(bytes, NAME + 4 * number);
        let hooks = field(0)?;
        // Five offsets of the first entries, then five of the policies (`underflow`).
        let policies = (0..5).filter(|hook| hooks & 1 << hook != 0);
        let policies = policies.map(|hook| Some(field(6 + hook)? as usize));
        Some(Self {
            policies: policies.collect::<Option<_>>()?,
            entries: field(11)?,
            size: field(12)?,
        })
    }

    /// An empty table has a policy for each hook, and an entry at the end.
    fn has_rules(&self) -> bool {
        self.entries as usize > self.policies.len() + 1
    }

    fn has_other_policy(&self, entries: &[u8], target_offset: usize) -> Option<bool> {
        let verdict = |at: &usize| {
            let target = u16_at(entries, at + target_offset)?;
            Some(u32_at(entries, at + usize::from(target) + TARGET)? as i32)
        };
        let verdicts: Vec<i32> = self.policies.iter().map(verdict).collect::<Option<_>>()?;
        Some(verdicts.iter().any(|verdict| *verdict != ACCEPT))
    }
}

/// Reads an option of the netfilter of a family into a buffer that begins with the request.
fn read(family: &Family, option: i32, buffer: &mut [u8]) -> Option<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(
        family.domain,
        SockType::Raw,
        flags,
        nix::sys::socket::SockProtocol::Raw,
    )
    .ok()?;
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into the buffer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            family.level,
            option,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize == buffer.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty table `filter`: policies of the hooks input, forward and output, and the end.
    fn filter(entries: u32) -> Info {
        let mut bytes = vec![0; INFO];
        let words = [
            0b1110,
            0,
            0,
            152,
            304,
            0,
            0,
            0,
            152,
            304,
            0,
            entries,
            456 + 176,
        ];
        for (number, word) in words.iter().enumerate() {
            let at = NAME + 4 * number;
            bytes[at..at + 4].copy_from_slice(&u32::to_ne_bytes(*word));
        }
        Info::parse(&bytes).expect("a table")
    }

    fn policies(verdicts: [i32; 3]) -> Vec<u8> {
        let mut bytes = vec![0; 456 + 176];
        for (number, verdict) in verdicts.into_iter().enumerate() {
            let at = 152 * number;
            bytes[at + 88..at + 90].copy_from_slice(&112u16.to_ne_bytes());
            bytes[at + 144..at + 148].copy_from_slice(&verdict.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_flushed_table_is_not_in_use() {
        assert_eq!(filter(4).policies, [0, 152, 304]);
        assert!(!filter(4).has_rules());
        assert!(filter(5).has_rules());
        let other = |verdicts| filter(4).has_other_policy(&policies(verdicts), 88);
        assert_eq!(other([ACCEPT; 3]), Some(false));
        // DROP: -NF_DROP - 1.
        assert_eq!(other([ACCEPT, -1, ACCEPT]), Some(true));
        assert_eq!(
            filter(4).has_other_policy(&policies([ACCEPT; 3])[..300], 88),
            None
        );
    }
}
