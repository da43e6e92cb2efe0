//! Whether this machine lets a test run, and if not, why.

use std::io::{self, Write as _};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Set to anything, a test that cannot run fails instead of being skipped: for a CI that must not lose tests silently.
pub const REQUIRE: &str = "SIDESTEP_REQUIRE_ROOT";

/// Whether the test named `test` can make namespaces and load BPF programs here. If not, the reason is printed.
///
/// ```no_run
/// if !sidestep_testkit::root_or_skip("packets_cross_the_chain") {
///     return;
/// }
/// ```
///
/// # Panics
/// If it cannot and the environment has [`REQUIRE`].
pub fn root_or_skip(test: &str) -> bool {
    let Some(reason) = missing() else { return true };
    assert!(
        std::env::var_os(REQUIRE).is_none(),
        "{test} cannot run, and {REQUIRE} is set: {reason}"
    );
    // Not eprintln!: the test harness would keep it to itself.
    let _ = writeln!(io::stderr(), "SKIP {test}: {reason}");
    false
}

/// Whether there are two CPUs for the test named `test`. If not, that is printed.
pub fn two_cpus_or_skip(test: &str) -> bool {
    let enough = thread::available_parallelism().map_or(1, usize::from) >= 2;
    if !enough {
        let _ = writeln!(io::stderr(), "SKIP {test}: there is one CPU");
    }
    enough
}

/// What this process lacks for the lab: none if nothing.
pub fn missing() -> Option<String> {
    namespaces().or_else(bpf).or_else(iproute2)
}

/// Why no VRF device can be made: none if one can. Tried out where nobody sees it.
pub fn without_vrf() -> Option<String> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let tried = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        let words = ["link", "add", "vrf0", "type", "vrf", "table", "10"];
        Command::new("ip").args(words).output()
    };
    let tried = || match thread::spawn(tried).join() {
        Ok(Ok(output)) if output.status.success() => None,
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(format!("no VRF device can be made: {}", said.trim_end()))
        }
        Ok(Err(error)) => Some(format!("no VRF device can be made: {error}")),
        Err(_) => Some("no VRF device can be made: the trial thread panicked".into()),
    };
    ANSWER.get_or_init(tried).clone()
}

/// Namespaces are tried out, on a thread that ends at once: no capability or seccomp table is interpreted.
fn namespaces() -> Option<String> {
    let tried =
        thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)).join();
    match tried {
        Ok(Ok(())) => None,
        Ok(Err(errno)) => Some(format!(
            "no network namespace can be made: {errno} (needs CAP_SYS_ADMIN)"
        )),
        Err(_) => Some("no network namespace can be made: the trial thread panicked".into()),
    }
}

/// BPF: a map of one element.
fn bpf() -> Option<String> {
    let name = c"sidestep_probe";
    // SAFETY: a constant, terminated name; no options.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            name.as_ptr(),
            4,
            4,
            1,
            std::ptr::null(),
        )
    };
    if fd < 0 {
        let reason = io::Error::from_raw_os_error(-fd);
        return Some(format!(
            "no BPF map can be made: {reason} (needs CAP_BPF and CAP_NET_ADMIN)"
        ));
    }
    // SAFETY: the descriptor was made above and is used nowhere else.
    unsafe { libc::close(fd) };
    None
}

fn iproute2() -> Option<String> {
    let found = Command::new("ip").arg("-Version").output();
    found
        .err()
        .map(|error| format!("`ip` cannot be run: {error} (Debian package iproute2)"))
}
