//! `-n NETNS`: a command in a network namespace of `ip netns`.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use crate::Outcome;

/// Where `ip netns` mounts the namespaces.
const FOLDER: &str = "/run/netns";

/// Moves the calling thread into the namespace with this name. The process must have no other
/// thread.
///
/// # Errors
/// The namespace does not exist, or the process may not enter it.
pub fn enter(name: &str) -> Outcome {
    let path = Path::new(FOLDER).join(name);
    let wrong = |why: &dyn std::fmt::Display| format!("network namespace {name}: {why}");
    if name.is_empty() || name.contains('/') {
        return Err(wrong(&"expected a name of `ip netns list`").into());
    }
    let file = File::open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong(&"does not exist (see `ip netns list`)"),
        _ => wrong(&error),
    })?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| wrong(&errno))?;
    Ok(())
}
