//! One instance per network namespace: a lock file that the kernel releases when its holder dies. The pins have an owner
//! too, but under `ip netns exec` each process may see a BPF file system of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::DaemonError;

pub(super) struct Lock {
    directory: PathBuf,
    file: Flock<File>,
}

impl Drop for Lock {
    /// The directory goes with the instance: log, lock and all.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Lock {
    /// Makes the namespace's directory and takes its lock, or says whose it is.
    pub(super) fn take(directory: &Path) -> Result<Self, DaemonError> {
        let path = directory.join("lock");
        let failed = |source| DaemonError::File {
            path: path.clone(),
            source,
        };
        loop {
            fs::create_dir_all(directory).map_err(|source| DaemonError::File {
                path: directory.to_owned(),
                source,
            })?;
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path);
            let mut file = match opened {
                // An instance that ends removed the directory right now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(failed)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => {
                    if !is_at(&locked, &path) {
                        continue;
                    }
                    let mut lock = Self {
                        directory: directory.to_owned(),
                        file: locked,
                    };
                    lock.sign().map_err(failed)?;
                    return Ok(lock);
                }
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(DaemonError::Running(holder.trim().parse().unwrap_or(0)));
                }
                Err((_, errno)) => return Err(failed(errno.into())),
            }
        }
    }

    /// Writes the process id.
    fn sign(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{}", std::process::id())
    }
}

/// Whether the file still is the one at that path, and not one that an ending instance has removed.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    let there = fs::metadata(path).map(identity).ok();
    there.is_some() && there == file.metadata().map(identity).ok()
}

/// Removes the directories of dead instances in network namespaces that are gone, as `is_there` says by their inode.
pub(super) fn remove_orphans(root: &Path, is_there: impl Fn(u64) -> bool) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let inode = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if inode.is_none_or(&is_there) {
            continue;
        }
        let Ok(file) = File::open(entry.path().join("lock")) else {
            continue;
        };
        if let Ok(_locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
