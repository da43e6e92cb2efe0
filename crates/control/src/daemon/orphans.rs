//! Removal of what dead instances left in network namespaces that no longer exist: no new instance
//! can adopt it.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sidestep_datapath::kernel::{self, Kernel};

use super::lock;

/// Removes pins and directories of dead instances in deleted namespaces. Existing namespaces and
/// attached programs are not touched. The lock shows whether an instance is dead.
pub(super) fn remove(pin_root: &Path, run_root: &Path) {
    // Evaluated only if there is anything of other namespaces. Without permission to see all
    // processes, no namespace counts as deleted.
    let there = LazyCell::new(namespaces);
    let is_there = |inode| there.as_ref().is_none_or(|there| there.contains(&inode));
    Kernel::remove_orphans(pin_root, is_there);
    lock::remove_orphans(run_root, is_there);
}

/// Returns the inodes of all network namespaces that a process uses or has open, or that are
/// mounted. None if other processes are not visible. A namespace held only by a socket or a hidden
/// process is missed; only counters and a log of a dead instance would be lost.
fn namespaces() -> Option<BTreeSet<u64>> {
    if !kernel::sees_other_processes() {
        return None;
    }
    let mut inodes = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        for thread in fs::read_dir(path.join("task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            inodes.extend(fs::metadata(thread.path().join("ns/net")).map(|data| data.ino()));
        }
        for open in fs::read_dir(path.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            inodes.extend(
                fs::read_link(open.path())
                    .ok()
                    .and_then(|to| of(to.to_str()?)),
            );
        }
        let mounts = fs::read_to_string(path.join("mountinfo")).unwrap_or_default();
        inodes.extend(mounts.split(' ').filter_map(of));
    }
    // The process's own namespace is always found.
    (!inodes.is_empty()).then_some(inodes)
}

/// Parses the inode from a name such as `net:[4026531840]`.
fn of(name: &str) -> Option<u64> {
    name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}
