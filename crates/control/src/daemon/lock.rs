//! One instance per network namespace: a lock file that the kernel releases when its holder dies. The pins have an owner
//! too, but under `ip netns exec` each process may see a BPF file system of its own.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::DaemonError;

pub(super) struct Lock {
    directory: PathBuf,
    _file: Flock<File>,
}

impl Drop for Lock {
    /// The directory goes with the instance: log, lock and all.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Lock {
    /// Takes the lock of the namespace's directory, or says whose it is.
    pub(super) fn take(directory: &Path) -> Result<Self, DaemonError> {
        let path = directory.join("lock");
        let failed = |source| DaemonError::File {
            path: path.clone(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut holder = String::new();
        file.read_to_string(&mut holder).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut locked) => {
                locked.set_len(0).map_err(failed)?;
                locked.rewind().map_err(failed)?;
                write!(locked, "{}", std::process::id()).map_err(failed)?;
                Ok(Self {
                    directory: directory.to_owned(),
                    _file: locked,
                })
            }
            Err((_, Errno::EWOULDBLOCK)) => {
                Err(DaemonError::Running(holder.trim().parse().unwrap_or(0)))
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}
