//! Settings that netlink does not carry, from `/proc/sys/net`.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use crate::error::MirrorError;

/// One setting. The file stays open: it goes on reading the network namespace of the thread that opened it.
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

    /// The value now.
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
