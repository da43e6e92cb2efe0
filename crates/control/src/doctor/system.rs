//! Checks of the host, and of the daemon itself.

use super::facts::Facts;
use super::{Code, Family};
use crate::report::{Problem, Status};

const CANNOT_LOAD: Code = Code::error(
    "cannot_load",
    "a capability is missing, or the kernel is too old",
);
const KERNEL_FEATURE: Code = Code::note(
    "kernel_feature",
    "the kernel lacks an optional feature; Sidestep uses a slower way",
);
const BPFFS_MISSING: Code = Code::error(
    "bpffs_missing",
    "the directory of the pins is not on a BPF file system",
);
const BPFFS_READ_ONLY: Code = Code::error("bpffs_read_only", "the BPF file system is read-only");
const BPFFS_PRIVATE: Code = Code::warning(
    "bpffs_private",
    "the BPF file system of the pins belongs to a private mount namespace: commands outside do not \
     see the pins, and a crash of the daemon ends forwarding",
);
const DEAD_INSTANCE: Code = Code::error(
    "dead_instance",
    "a daemon died, and its programs forward by tables that no process updates",
);
const PROGRAM_REPLACED: Code = Code::warning(
    "program_replaced",
    "the program file was replaced, and the daemon runs the old one",
);
const OTHER_VERSION: Code = Code::warning(
    "other_version",
    "the daemon and the command are of different versions",
);
const CHANGE_FAILED: Code = Code::error(
    "change_failed",
    "the last change of the configuration could not be applied",
);
const RELOAD_FAILED: Code = Code::warning(
    "reload_failed",
    "the node file could not be applied; the previous configuration stays in effect",
);
const UNCONFIRMED: Code = Code::warning(
    "unconfirmed",
    "the configuration is rolled back unless it is confirmed",
);
const ICMP_NOT_SENT: Code = Code::error("icmp_not_sent", "ICMP messages cannot be sent");
const FRAGMENTS_NOT_SENT: Code = Code::error(
    "fragments_not_sent",
    "packets that need fragmentation cannot be sent",
);
const SERVICES_NOT_PROBED: Code = Code::error(
    "services_not_probed",
    "services of SR proxies cannot be probed",
);

const METRICS_EXPOSED: Code = Code::warning(
    "metrics_exposed",
    "other hosts can read the metrics: the HTTP endpoint has no authentication",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        CANNOT_LOAD,
        KERNEL_FEATURE,
        BPFFS_MISSING,
        BPFFS_READ_ONLY,
        BPFFS_PRIVATE,
        DEAD_INSTANCE,
        PROGRAM_REPLACED,
        OTHER_VERSION,
        CHANGE_FAILED,
        RELOAD_FAILED,
        UNCONFIRMED,
        ICMP_NOT_SENT,
        FRAGMENTS_NOT_SENT,
        SERVICES_NOT_PROBED,
        METRICS_EXPOSED,
    ],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found = host(facts);
    let Some(daemon) = &facts.daemon else {
        return found;
    };
    if let Some(address) = daemon.metrics.filter(|it| !it.ip().is_loopback()) {
        found.push(METRICS_EXPOSED.without_command(format!(
            "other hosts can read the metrics at {address}: the endpoint has no authentication"
        )));
    }
    if daemon.replaced {
        found.push(PROGRAM_REPLACED.problem(
            format!(
                "the program file was replaced: the daemon (process {}) runs version {}",
                daemon.pid, daemon.version
            ),
            // An upgrade without packet loss: the next daemon adopts the pins.
            format!("kill -KILL {} && {}", daemon.pid, facts.start("", None)),
        ));
    }
    let failed = daemon
        .failed
        .iter()
        .map(|why| format!("the last change could not be applied: {why}"));
    found.extend(failed.map(|sentence| CHANGE_FAILED.without_command(sentence)));
    if let Some(why) = &daemon.reload {
        found.push(RELOAD_FAILED.problem(
            format!("the node file was not applied, and the previous configuration stays: {why}"),
            "sidestep config reload",
        ));
    }
    if daemon.unconfirmed {
        found.push(UNCONFIRMED.problem(
            "the last `config apply` is rolled back unless it is confirmed",
            "sidestep config confirm",
        ));
    }
    let icmp = daemon.icmp.iter().cloned();
    found.extend(icmp.map(|sentence| ICMP_NOT_SENT.without_command(sentence)));
    let fragments = daemon.fragments.iter().cloned();
    found.extend(fragments.map(|sentence| FRAGMENTS_NOT_SENT.without_command(sentence)));
    let liveness = daemon.liveness.iter().cloned();
    found.extend(liveness.map(|sentence| SERVICES_NOT_PROBED.without_command(sentence)));
    found
}

fn host(facts: &Facts<'_>) -> Vec<Problem> {
    let host = &facts.host;
    let mut found = Vec::new();
    let why = host.refused.iter().cloned();
    found.extend(why.map(|why| CANNOT_LOAD.without_command(why)));
    let lacks = host.lacks.iter();
    found.extend(lacks.map(|lacks| KERNEL_FEATURE.without_command(*lacks)));
    let root = host.pin_root.display();
    if !host.on_bpffs && facts.daemon.is_none() {
        let mount_point = if host.pin_root.starts_with(BPFFS) {
            BPFFS.into()
        } else {
            root.to_string()
        };
        found.push(BPFFS_MISSING.problem(
            format!("{root} is not on a BPF file system"),
            format!("mount -t bpf bpf {mount_point}"),
        ));
    }
    if host.read_only {
        found.push(BPFFS_READ_ONLY.problem(
            format!("the BPF file system of {root} is read-only: programs cannot be pinned"),
            format!("mount -o remount,rw {}", host.mount_point.display()),
        ));
    }
    if let Some(process) = host.private {
        found.push(BPFFS_PRIVATE.problem(
            format!(
                "the BPF file system of {root} belongs to a private mount namespace: the pins end \
                 with its last process, and forwarding with them"
            ),
            // A file system that is mounted there must not be unmounted: the namespace may have
            // pins of other programs.
            format!(
                "{}nsenter --target {process} --mount {}",
                facts.stop(),
                facts.start("", None)
            ),
        ));
    }
    if let Some(left) = &host.left {
        let sentence = format!(
            "a daemon died here, and its programs forward by tables that no process updates; its \
             pins are in {}; another start takes them over, and `sidestep stop` removes them",
            left.display()
        );
        found.push(match &host.left_start {
            Some(start) => DEAD_INSTANCE.problem(sentence, start),
            None => DEAD_INSTANCE.without_command(sentence),
        });
    }
    found
}

/// Returns the problem that command and daemon have different versions, if they have.
pub fn other_version(command: &str, status: &Status) -> Option<Problem> {
    let Status {
        version,
        pid,
        start,
        ..
    } = status;
    (command != version).then(|| {
        let sentence = format!("the daemon has version {version}, this command {command}");
        match start {
            // An upgrade without packet loss: the next daemon adopts the pins. A daemon of another
            // version may not know `stop --keep`.
            Some(start) => OTHER_VERSION.problem(sentence, format!("kill -KILL {pid} && {start}")),
            None => OTHER_VERSION.without_command(sentence),
        }
    })
}

/// Where distributions mount the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
