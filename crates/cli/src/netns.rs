//! `-n NETNS`: a command in a network namespace of `ip netns`.

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use nix::sched::{CloneFlags, setns};
use sidestep_control::report::Problem;

use crate::Outcome;

/// The namespace of `-n`.
static NAME: OnceLock<String> = OnceLock::new();

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
    NAME.get_or_init(|| name.to_owned());
    Ok(())
}

/// Makes the repair of a problem one that works outside the namespace of `-n`.
pub fn from_outside(mut problem: Problem) -> Problem {
    problem.repair = problem.repair.map(command_from_outside);
    problem
}

/// Makes a command one that works outside the namespace of `-n`.
pub fn command_from_outside(command: String) -> String {
    match NAME.get() {
        Some(name) => command_in(name, &command),
        None => command,
    }
}

/// Returns a command that has the effect of `command` in a namespace.
fn command_in(name: &str, command: &str) -> String {
    let single = |command: &str| {
        let program = command.split(' ').next().unwrap_or_default();
        match program {
            "sidestep" | "ip" | "tc" => {
                command.replacen(program, &format!("{program} -n {name}"), 1)
            }
            // It changes the mount namespace.
            "nsenter" => command.replacen(" sidestep ", &format!(" sidestep -n {name} "), 1),
            // The `| sh` of a pipe needs none: the commands that it gets work from outside.
            "sysctl" | "nft" => format!("ip netns exec {name} {command}"),
            _ => command.to_owned(),
        }
    };
    let commands: Vec<_> = command.split(" && ").map(single).collect();
    commands.join(" && ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_command_works_in_the_namespace() {
        for (command, inside) in [
            (
                "sidestep stop --keep && sidestep run --detach eth0",
                "sidestep -n pe stop --keep && sidestep -n pe run --detach eth0",
            ),
            ("ip link set dev ip up", "ip -n pe link set dev ip up"),
            (
                "sysctl -w net.ipv6.conf.all.forwarding=1",
                "ip netns exec pe sysctl -w net.ipv6.conf.all.forwarding=1",
            ),
            (
                "kill -KILL 7 && nsenter --target 1 --mount sidestep run --detach sidestep",
                "kill -KILL 7 && nsenter --target 1 --mount sidestep -n pe run --detach sidestep",
            ),
            (
                "sidestep doctor --repairs sid_not_in_kernel | sh",
                "sidestep -n pe doctor --repairs sid_not_in_kernel | sh",
            ),
            (
                "mount -t bpf bpf /sys/fs/bpf",
                "mount -t bpf bpf /sys/fs/bpf",
            ),
        ] {
            assert_eq!(command_in("pe", command), inside);
        }
    }
}
