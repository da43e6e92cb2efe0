//! One instance per network namespace, by a lock file that the kernel releases when its holder
//! dies. Pins have an owner too, but each `ip netns exec` may mount a BPF file system of its own.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::DaemonError;

/// Time that a killed process takes to release its lock.
const RELEASE: Duration = Duration::from_millis(500);

pub(super) struct Lock {
    directory: PathBuf,
    file: Flock<File>,
    /// Content of the file for the next instance, if the files stay: of an instance that died, or of
    /// this one.
    former: Option<Vec<u8>>,
}

impl Drop for Lock {
    /// Removes the directory with log and lock, unless its files are for the next instance.
    fn drop(&mut self) {
        let _ = match self.former.take() {
            None => fs::remove_dir_all(&self.directory),
            Some(former) => self.write(&former),
        };
    }
}

impl Lock {
    /// Creates the directory of the namespace and takes its lock. If another instance holds it, the
    /// error has its pid. The file names the root of the pins, for [`pin_root`].
    pub(super) fn take(directory: &Path, pin_root: &Path) -> Result<Self, DaemonError> {
        let path = directory.join("lock");
        let failed = |source| DaemonError::File {
            path: path.clone(),
            source,
        };
        let until = Instant::now() + RELEASE;
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
                // Another instance removed the directory just now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            let mut holder = Vec::new();
            file.read_to_end(&mut holder).map_err(failed)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => {
                    if !is_at(&locked, &path) {
                        continue;
                    }
                    let mut lock = Self {
                        directory: directory.to_owned(),
                        file: locked,
                        former: (!holder.is_empty()).then_some(holder),
                    };
                    lock.write(&signature(pin_root)).map_err(failed)?;
                    return Ok(lock);
                }
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err((_, Errno::EWOULDBLOCK)) => {
                    let holder = String::from_utf8_lossy(&holder);
                    let pid = holder.lines().next().unwrap_or_default();
                    return Err(DaemonError::Running(pid.trim().parse().unwrap_or(0)));
                }
                Err((_, errno)) => return Err(failed(errno.into())),
            }
        }
    }

    /// Makes the directory and the lock file again if they were removed. Returns true if they were.
    ///
    /// # Errors
    /// They cannot be made, or another instance has taken the lock.
    pub(super) fn renew(&mut self, pin_root: &Path) -> std::io::Result<bool> {
        let path = self.directory.join("lock");
        if is_at(&self.file, &path) {
            return Ok(false);
        }
        fs::create_dir_all(&self.directory)?;
        let mut open = OpenOptions::new();
        let file = open
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        self.file = locked.map_err(|(_, errno)| errno)?;
        self.write(&signature(pin_root))?;
        Ok(true)
    }

    /// Removes the files at the end of the lock.
    pub(super) fn forget(&mut self) {
        self.former = None;
    }

    /// Leaves the files at the end of the lock, as if this instance had died.
    pub(super) fn keep(&mut self, pin_root: &Path) {
        self.former = Some(signature(pin_root));
    }

    /// Root of the pins of an instance that died.
    pub(super) fn former_root(&self) -> Option<PathBuf> {
        root_in(self.former.as_ref()?)
    }

    fn write(&mut self, content: &[u8]) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(content)
    }
}

/// Content of the file: the process id, a line feed, and the root of the pins.
fn signature(pin_root: &Path) -> Vec<u8> {
    let mut content = format!("{}\n", std::process::id()).into_bytes();
    content.extend(pin_root.as_os_str().as_bytes());
    content
}

fn root_in(content: &[u8]) -> Option<PathBuf> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let root = &content[end + 1..];
    (!root.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(root)))
}

/// Returns the root of the pins of the instance that wrote the lock file last.
pub(super) fn pin_root(directory: &Path) -> Option<PathBuf> {
    root_in(&fs::read(directory.join("lock")).ok()?)
}

/// Whether the file is still the one at that path. An instance that exits removes its file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    let there = fs::metadata(path).map(identity).ok();
    there.is_some() && there == file.metadata().map(identity).ok()
}

/// Removes the directories of dead instances whose network namespace no longer exists. `is_there`
/// tests an inode.
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
