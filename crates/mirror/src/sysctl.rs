//! Settings from `/proc/sys/net` that netlink does not report.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use crate::error::MirrorError;

/// A setting. The open file keeps reading the network namespace of the thread that opened it.
pub(crate) struct Sysctl {
    path: &'static str,
    file: Option<File>,
}

impl Sysctl {
    /// Opens the file. A kernel without it (no SRv6, no IPv6) has the setting's default, 0.
    pub fn open(path: &'static str) -> Result<Self, MirrorError> {
        let file = match File::open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(MirrorError::Sysctl { path, source }),
        };
        Ok(Self { path, file })
    }

    /// Returns the current value.
    pub fn read(&self) -> Result<i32, MirrorError> {
        let Some(file) = &self.file else {
            return Ok(0);
        };
        let mut bytes = [0; 16];
        let length = file
            .read_at(&mut bytes, 0)
            .map_err(|source| MirrorError::Sysctl {
                path: self.path,
                source,
            })?;
        let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
        text.trim().parse().map_err(|_| MirrorError::Answer {
            request: self.path,
            missing: "number",
        })
    }
}

/// Returns the seed of the multipath hash: the configured one (`net.ipv4.fib_multipath_hash_seed`,
/// Linux 6.11), or one that stays the same until the next boot, as in the kernel. A restart of the
/// daemon therefore moves no flow to another next hop.
pub(crate) fn multipath_hash_seed() -> u32 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let set = read("/proc/sys/net/ipv4/fib_multipath_hash_seed");
    match set.trim().parse() {
        Ok(0) | Err(_) => first_word(&read("/proc/sys/kernel/random/boot_id")),
        Ok(seed) => seed,
    }
}

/// Returns the first 32 bits of a UUID, which are random, unlike some of its other fields.
fn first_word(uuid: &str) -> u32 {
    uuid.get(..8)
        .and_then(|word| u32::from_str_radix(word, 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_uuid_is_parsed() {
        assert_eq!(
            first_word("3f6c1a02-77aa-4a53-9a3e-6a1c1f6a8d5e\n"),
            0x3f6c_1a02
        );
        assert_eq!(first_word(""), 0);
    }
}
