//! Folder of pins: its path, its owner, and the meaning of the names in it.
//!
//! ```text
//! PIN_ROOT/net-4026531840/        one per network namespace, named by its inode
//!     instance                    array map: ABI version, process id of the owner; pinned last
//!     map-ports map-routes ...    tables
//!     program-xdp program-tc ...  programs of the hooks that are in use
//!     gate-next                   program array: the packet path of frames that XDP defers
//!     link-xdp-3 link-tc-4        attachments: hook and interface index
//!     link-behind_xdp-3           TC on a port with XDP, for the frames that XDP defers
//!     filter-tc-5                 attachment by a clsact filter, where the kernel has no tcx
//! ```
//!
//! The owner holds a lock on the folder itself (flock). The kernel releases it when the process
//! ends for any reason.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::SIDESTEP_ABI_VERSION;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::fcntl::{Flock, FlockArg};

use super::load::HOOKS;
use super::{Descriptor, KernelError, Table, Target, bpffs, sys};

/// Bytes of the `instance` value. Its first 8 bytes never change their meaning: version, process id
/// (host order).
const INSTANCE_LENGTH: usize = 64;

/// Pin of the program array behind the gate. Attached gates need it, whatever the version.
pub(super) const GATE_NEXT: &str = "gate-next";

/// A process that holds the lock for this long is alive.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts to lock the folder.
const PAUSE: Duration = Duration::from_millis(5);

/// How a port is attached: the first word of a pin's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A `bpf_link`.
    Link,
    /// A clsact filter; the pin is of the program.
    Filter,
}

/// The pins of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Their folder.
    pub folder: PathBuf,
    /// Whether no process owns them.
    pub is_dead: bool,
}

/// The folder of this network namespace, locked by this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Held, not read.
    _lock: Flock<File>,
}

impl Folder {
    /// Finds or makes the folder and locks it.
    pub(super) fn create(pin_root: &Path) -> Result<Self, KernelError> {
        bpffs::provide(pin_root)?;
        let path = path_below(pin_root)?;
        let mut builder = fs::DirBuilder::new();
        // A process that can open the maps can change the tables.
        builder.recursive(true).mode(0o700);
        builder
            .create(&path)
            .map_err(|source| pin_error("make", &path, source))?;
        Self::wait_for(&path)
    }

    /// Opens and locks the folder. Returns `None` if there is none.
    pub(super) fn open(pin_root: &Path) -> Result<Option<Self>, KernelError> {
        bpffs::look(pin_root);
        let path = path_below(pin_root)?;
        if path.is_dir() {
            Self::wait_for(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the pins of this namespace, if they are complete.
    pub(super) fn pinned(pin_root: &Path) -> Option<Pinned> {
        bpffs::look(pin_root);
        let folder = path_below(pin_root).ok()?;
        folder.join("instance").exists().then_some(())?;
        let is_dead = Self::lock(folder.clone()).is_ok();
        Some(Pinned { folder, is_dead })
    }

    /// Locks and returns the folders of dead instances in other namespaces, with the inodes, if
    /// `is_there` returns false for the inode. No lock is held while `is_there` runs: it may take
    /// long, and an instance may want to adopt the folder.
    pub(super) fn orphans(pin_root: &Path, is_there: impl Fn(u64) -> bool) -> Vec<(u64, Self)> {
        let own = path_below(pin_root).ok();
        let entries = fs::read_dir(pin_root).into_iter().flatten().flatten();
        entries
            .filter(|entry| Some(entry.path()) != own)
            .filter_map(|entry| {
                let name = entry.file_name();
                let inode = name.to_str()?.strip_prefix("net-")?.parse().ok()?;
                let is_dead = Self::lock(entry.path()).is_ok();
                let is_orphan = is_dead && !is_there(inode);
                Some((inode, is_orphan.then(|| Self::lock(entry.path()).ok())??))
            })
            .collect()
    }

    /// Locks the folder. Waits up to [`PATIENCE`] while another process holds the lock: an instance
    /// that was just killed, or one that looks for orphans.
    fn wait_for(path: &Path) -> Result<Self, KernelError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Self::lock(path.to_owned()) {
                Err(KernelError::Owned { .. }) if Instant::now() < until => thread::sleep(PAUSE),
                locked => return locked,
            }
        }
    }

    fn lock(path: PathBuf) -> Result<Self, KernelError> {
        let file = File::open(&path).map_err(|source| pin_error("open", &path, source))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let pid = instance(&path).ok().flatten().map_or(0, |(_, pid)| pid);
                Err(KernelError::Owned { folder: path, pid })
            }
            Err((_, errno)) => Err(pin_error("lock", &path, errno.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the ABI version of a complete set of pins.
    pub(super) fn version(&self) -> Result<Option<u32>, KernelError> {
        Ok(instance(&self.path)?.map(|(version, _)| version))
    }

    /// Writes the ABI version and this process as the owner of the pins. This is the last step of
    /// pinning.
    pub(super) fn write_instance(&self) -> Result<(), KernelError> {
        let path = self.path.join("instance");
        let failed = |source: libbpf_rs::Error| pin_error("write", &path, io::Error::other(source));
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map = if path.exists() {
            MapHandle::from_pinned_path(&path).map_err(failed)?
        } else {
            MapHandle::create(
                MapType::Array,
                Some("sidestep"),
                4,
                INSTANCE_LENGTH as u32,
                1,
                &options,
            )
            .map_err(failed)?
        };
        let mut value = [0; INSTANCE_LENGTH];
        value[..4].copy_from_slice(&SIDESTEP_ABI_VERSION.to_ne_bytes());
        value[4..8].copy_from_slice(&std::process::id().to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(failed)?;
        if !path.exists() {
            sys::pin(map.as_fd(), &path).map_err(|source| pin_error("pin", &path, source))?;
        }
        Ok(())
    }

    /// Pins an object under this name and replaces an older pin.
    pub(super) fn pin(&self, name: &str, fd: BorrowedFd<'_>) -> Result<(), KernelError> {
        self.unpin(name)?;
        let path = self.path.join(name);
        sys::pin(fd, &path).map_err(|source| pin_error("pin", &path, source))
    }

    /// Opens the object pinned under this name.
    pub(super) fn open_pin(&self, name: &str) -> Result<Descriptor, KernelError> {
        let path = self.path.join(name);
        sys::open_pin(&path).map_err(|source| pin_error("open", &path, source))
    }

    /// Opens a pinned table without checking its shape.
    pub(super) fn open_table(&self, table: Table) -> Result<MapHandle, KernelError> {
        self.open_map(&table_name(table))
    }

    /// Opens the map pinned under this name.
    pub(super) fn open_map(&self, name: &str) -> Result<MapHandle, KernelError> {
        let path = self.path.join(name);
        MapHandle::from_pinned_path(&path)
            .map_err(|source| pin_error("open", &path, io::Error::other(source)))
    }

    /// Removes the pin with this name, if it exists.
    pub(super) fn unpin(&self, name: &str) -> Result<(), KernelError> {
        let path = self.path.join(name);
        // Sidestep creates no folders here, so remove a folder only if it is empty.
        let removed = if path.is_dir() {
            fs::remove_dir(&path)
        } else {
            fs::remove_file(&path)
        };
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(pin_error("remove", &path, source))
            }
            _ => Ok(()),
        }
    }

    /// Returns the names of all pins, sorted.
    pub(super) fn names(&self) -> Result<Vec<String>, KernelError> {
        let failed = |source| pin_error("list", &self.path, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            names.push(
                entry
                    .map_err(failed)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Removes everything but attachments and what they need. `instance` goes first: a folder
    /// without it counts as empty.
    pub(super) fn clear(&self) -> Result<(), KernelError> {
        self.unpin("instance")?;
        for name in self.names()? {
            if parse_attachment(&name).is_none() && name != GATE_NEXT {
                self.unpin(&name)?;
            }
        }
        Ok(())
    }

    /// Removes the folder, and the one above it if no other namespace has pins there.
    pub(super) fn remove(self) -> Result<(), KernelError> {
        self.unpin(GATE_NEXT)?;
        fs::remove_dir(&self.path).map_err(|source| pin_error("remove", &self.path, source))?;
        if let Some(root) = self.path.parent() {
            // Not empty: another namespace's.
            let _ = fs::remove_dir(root);
        }
        Ok(())
    }
}

pub(super) fn table_name(table: Table) -> String {
    format!("map-{}", table.name())
}

pub(super) fn attachment_name(kind: Kind, target: Target, ifindex: u32) -> String {
    let kind = match kind {
        Kind::Link => "link",
        Kind::Filter => "filter",
    };
    format!("{kind}-{target}-{ifindex}")
}

/// The inverse of [`attachment_name`].
pub(super) fn parse_attachment(name: &str) -> Option<(Kind, Target, u32)> {
    let (kind, rest) = name.split_once('-')?;
    let kind = match kind {
        "link" => Kind::Link,
        "filter" => Kind::Filter,
        _ => return None,
    };
    let (target, ifindex) = rest.split_once('-')?;
    let target = HOOKS.into_iter().find(|t| t.name() == target)?;
    Some((kind, target, ifindex.parse().ok()?))
}

pub(super) fn pin_error(operation: &'static str, path: &Path, source: io::Error) -> KernelError {
    KernelError::Pin {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// Version and owner of a folder of pins. None: nothing is pinned, or not completely.
fn instance(folder: &Path) -> Result<Option<(u32, u32)>, KernelError> {
    let path = folder.join("instance");
    if !path.exists() {
        return Ok(None);
    }
    let failed = |source: libbpf_rs::Error| pin_error("read", &path, io::Error::other(source));
    let map = MapHandle::from_pinned_path(&path).map_err(failed)?;
    let value = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(failed)?
        .unwrap_or_default();
    let word = |at: usize| {
        value
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_ne_bytes)
    };
    Ok(Some((word(0), word(4))))
}

/// The folder of the calling thread's network namespace.
fn path_below(pin_root: &Path) -> Result<PathBuf, KernelError> {
    let metadata =
        fs::metadata("/proc/thread-self/ns/net").map_err(|source| KernelError::System {
            operation: "look at /proc/thread-self/ns/net",
            source,
        })?;
    Ok(pin_root.join(format!("net-{}", metadata.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_attachment_has_kind_target_and_interface() {
        for kind in [Kind::Link, Kind::Filter] {
            for target in HOOKS {
                assert_eq!(
                    parse_attachment(&attachment_name(kind, target, 42)),
                    Some((kind, target, 42))
                );
            }
        }
        for other in [
            "instance",
            "map-ports",
            "link-xdp",
            "link-xdp-",
            "link-foo-3",
            "program-xdp",
        ] {
            assert_eq!(parse_attachment(other), None, "{other}");
        }
    }
}
