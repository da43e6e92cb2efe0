//! What instances left that died together with their network namespace: nobody will start there again and take it over.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sidestep_datapath::kernel::{self, Kernel};

use super::lock;

/// Removes it. What a namespace that is there has is never touched, nor where a program still is on an interface; that an
/// instance is dead is known by its lock.
pub(super) fn remove(pin_root: &Path, run_root: &Path) {
    // Looked for only if there is anything of other namespaces. Who may not look at every process knows of none that it has
    // gone.
    let there = LazyCell::new(namespaces);
    let is_there = |inode| there.as_ref().is_none_or(|there| there.contains(&inode));
    Kernel::remove_orphans(pin_root, is_there);
    lock::remove_orphans(run_root, is_there);
}

/// Inodes of the network namespaces that a process is in or has open, or that are mounted. (Of one that nothing but a
/// socket holds, or a process that hides even from root, only counters and a log of a dead instance would be lost.) None if
/// other processes cannot be seen.
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
    // The own one at least is found.
    (!inodes.is_empty()).then_some(inodes)
}

/// The inode in a name such as `net:[4026531840]`.
fn of(name: &str) -> Option<u64> {
    name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}
