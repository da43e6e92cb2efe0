//! The BPF file system of the pins.
//!
//! `ip netns exec` gives its command a mount namespace with a /sys of its own, in which the host's
//! BPF file system is not mounted. One that is mounted there disappears with its pins after the last
//! process of that command. So the host's is mounted there, too: the pins survive the daemon.

use std::fs::{self, File};
use std::io;
use std::iter::successors;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::{KernelError, sys};

/// Where distributions mount the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// Whether to mount the host's BPF file system if the host lacks it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnHost {
    Mount,
    Keep,
}

/// Whether a pin at that path will be on a BPF file system.
pub fn on_bpffs(path: &Path) -> bool {
    let existing = path.ancestors().find(|path| path.exists());
    existing
        .is_some_and(|path| statfs(path).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC))
}

/// Mounts the BPF file system, unless `pin_root` is already on one.
///
/// # Errors
/// The kernel refuses the mount, or `pin_root` is elsewhere: the operator is responsible for any path
/// but the usual one.
pub(super) fn provide(pin_root: &Path) -> Result<(), KernelError> {
    if on_bpffs(pin_root) {
        return Ok(());
    }
    let refused = |mount_point: &Path, source| KernelError::Bpffs {
        path: pin_root.to_owned(),
        command: format!("mount -t bpf bpf {}", mount_point.display()),
        source,
    };
    if !pin_root.starts_with(BPFFS) {
        return Err(refused(pin_root, io::Error::other("not mounted there")));
    }
    let mounted = match host().and_then(mounts) {
        Some(host) => mount_host(host, OnHost::Mount),
        None => mount_new(),
    };
    mounted.map_err(|source| refused(Path::new(BPFFS), source))
}

/// Makes the pins of the host visible, to look for those of a daemon. A failure leaves them
/// invisible.
pub(super) fn look(pin_root: &Path) {
    if on_bpffs(pin_root) || !pin_root.starts_with(BPFFS) {
        return;
    }
    if let Some(host) = host().and_then(mounts) {
        // The host may have none.
        let _ = mount_host(host, OnHost::Keep);
    }
}

/// Returns a process of the host, if pins at that path are on a BPF file system that the host does
/// not have there. It ends with the last process of this mount namespace.
///
/// The kernel shows other mount namespaces only to a process with `CAP_SYS_PTRACE`.
pub fn private_bpffs(pin_root: &Path) -> Option<u32> {
    let host = host().filter(|_| on_bpffs(pin_root))?;
    let root = format!("/proc/{host}/root");
    let there = Path::new(&root).join(pin_root.strip_prefix("/").ok()?);
    (file_system(&there) != file_system(pin_root)).then_some(host)
}

/// The file system of a path, or of its closest folder that exists.
fn file_system(path: &Path) -> Option<u64> {
    let mut existing = path.ancestors().map(fs::metadata);
    existing.find_map(Result::ok).map(|it| it.dev())
}

/// Returns a process in the mount namespace of the host, if this process has another one but the
/// host's root directory. A container has a root directory of its own, and keeps to itself.
///
/// It is the first process, or else the outermost ancestor that this process may look at.
fn host() -> Option<u32> {
    let place = |path: String| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let mounts = |pid: u32| Some((pid, place(format!("/proc/{pid}/ns/mnt"))?));
    let own = std::process::id();
    let ancestors: Vec<_> = successors(Some(own), |pid| parent(*pid)).collect();
    let (host, namespace) = ancestors.into_iter().rev().find_map(mounts)?;
    let is_other = namespace != mounts(own)?.1;
    let same_root = place(format!("/proc/{host}/root/"))? == place("/".into())?;
    (is_other && same_root).then_some(host)
}

/// The mount namespace of a process.
fn mounts(pid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Returns the parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|parent| *parent != 0)
}

fn mount_new() -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RELATIME;
    mount(Some("bpf"), BPFFS, Some("bpf"), flags, Some("mode=700"))?;
    Ok(())
}

/// Mounts the host's BPF file system in this mount namespace.
fn mount_host(host: File, on_host: OnHost) -> io::Result<()> {
    // A process with several threads cannot change its mount namespace, but one thread can.
    let tree = thread::spawn(move || host_tree(host, on_host)).join();
    let tree = tree.map_err(|_| io::Error::other("the thread panicked"))??;
    sys::move_mount(tree.as_fd(), Path::new(BPFFS))
}

/// Enters the host's mount namespace with the calling thread, and returns a detached copy of the
/// mount.
fn host_tree(host: File, on_host: OnHost) -> io::Result<OwnedFd> {
    // setns(2): a thread that shares its root and working directory cannot enter.
    unshare(CloneFlags::CLONE_FS)?;
    setns(host, CloneFlags::CLONE_NEWNS)?;
    if !on_bpffs(Path::new(BPFFS)) {
        match on_host {
            OnHost::Mount => mount_new()?,
            OnHost::Keep => return Err(io::ErrorKind::NotFound.into()),
        }
    }
    sys::clone_mount(Path::new(BPFFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_root_off_bpffs_fails_with_the_mount_command() {
        let error = provide(Path::new("/proc/sidestep")).expect_err("procfs");
        assert_eq!(
            error.to_string(),
            "/proc/sidestep is not on a BPF file system (not mounted there); mount one with: mount -t bpf bpf /proc/sidestep"
        );
    }
}
