//! Whether this machine lets a test run, and if not, why.

use std::io::{self, Write as _};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Environment variable that makes a test fail where it would be skipped, so that a CI loses no test silently.
pub const REQUIRE: &str = "SIDESTEP_REQUIRE_ROOT";

/// Name of the test that this thread runs, with its modules: Rust's test harness names the thread after it.
pub fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

/// Reports that the test of this thread cannot run here, or not entirely, and why. `./dev test` counts these lines.
pub fn skip(reason: &str) {
    // The test harness captures what eprintln! writes.
    let _ = writeln!(io::stderr(), "SKIP {}: {reason}", test_name());
}

/// Returns whether the test of this thread can make namespaces and load BPF programs. If it cannot, the reason is
/// printed.
///
/// ```no_run
/// if !sidestep_testkit::root_or_skip() {
///     return;
/// }
/// ```
///
/// # Panics
/// If it cannot and [`REQUIRE`] is set.
pub fn root_or_skip() -> bool {
    let Some(reason) = missing() else { return true };
    assert!(
        std::env::var_os(REQUIRE).is_none(),
        "{} cannot run, and {REQUIRE} is set: {reason}",
        test_name()
    );
    skip(&reason);
    false
}

/// Returns whether there are two CPUs for the test of this thread. If there are not, that is printed.
pub fn two_cpus_or_skip() -> bool {
    let enough = thread::available_parallelism().map_or(1, usize::from) >= 2;
    if !enough {
        skip("there is one CPU");
    }
    enough
}

/// Reason why this process cannot make namespaces, load BPF programs or run `ip`; `None` if it can.
pub fn missing() -> Option<String> {
    namespaces().or_else(bpf).or_else(iproute2)
}

/// Why no VRF device can be made: none if one can. Probed in a namespace of its own.
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
