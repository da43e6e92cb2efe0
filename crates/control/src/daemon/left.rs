//! Programs, pins and files of a dead daemon in this network namespace.

use std::path::{Path, PathBuf};

use sidestep_datapath::kernel::{Kernel, PIN_ROOT};

use super::lock::{self, Lock};
use super::{DaemonError, ether};
use crate::api::run_directory;

/// Returns the directory of the pins that a dead daemon left. `pin_root` is the root of the pins;
/// none for that of the last daemon.
pub fn left(pin_root: Option<&Path>) -> Option<PathBuf> {
    let pinned = Kernel::pinned(&root(pin_root))?;
    pinned.is_dead.then_some(pinned.folder)
}

/// Detaches the programs of a dead daemon, and removes its pins and files. Returns whether there
/// were any pins.
///
/// # Errors
/// A daemon runs, or a step failed.
pub fn remove_left(pin_root: Option<&Path>) -> Result<bool, DaemonError> {
    let root = root(pin_root);
    let mut lock = Lock::take(&run_directory(), &root)?;
    let removed = Kernel::remove(&root)?;
    ether::remove_left();
    // Now its end removes the directory.
    lock.forget();
    Ok(removed)
}

/// Checks that no instance died with its pins below another root.
pub(super) fn check_root(lock: &Lock, pin_root: &Path) -> Result<(), DaemonError> {
    match lock.former_root() {
        Some(root) if root != pin_root && left(Some(&root)).is_some() => {
            Err(DaemonError::OtherPinRoot(root))
        }
        _ => Ok(()),
    }
}

/// Returns the root of the pins of the last daemon in this network namespace, if it left its files.
pub fn former_pin_root() -> Option<PathBuf> {
    lock::pin_root(&run_directory())
}

fn root(given: Option<&Path>) -> PathBuf {
    given
        .map(Path::to_owned)
        .or_else(former_pin_root)
        .unwrap_or_else(|| PIN_ROOT.into())
}
