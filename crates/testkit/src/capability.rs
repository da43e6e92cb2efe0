//! Checks whether a test can run on this machine, and gives the reason if it cannot.

use std::io::{self, Write as _};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Environment variable that makes a test fail instead of being skipped, so that CI skips no test
/// silently.
pub const REQUIRE: &str = "SIDESTEP_REQUIRE_ROOT";

/// Returns the name of the test that this thread runs, with its modules. Rust's test harness names
/// the thread after the test.
pub fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

/// Reports why this thread's test cannot run here, or only in part. `./dev test` counts these
/// lines.
pub fn skip(reason: &str) {
    // eprintln! cannot be used, because the test harness captures it.
    let _ = writeln!(io::stderr(), "SKIP {}: {reason}", test_name());
}

/// Returns whether this thread's test can create namespaces and load BPF programs. Prints the
/// reason if it cannot.
///
/// ```no_run
/// if !sidestep_testkit::root_or_skip() {
///     return;
/// }
/// ```
///
/// # Panics
/// If it cannot, and [`REQUIRE`] is set.
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

/// Returns whether this thread's test has two CPUs. Prints the reason if it does not.
pub fn two_cpus_or_skip() -> bool {
    let enough = thread::available_parallelism().map_or(1, usize::from) >= 2;
    if !enough {
        skip("there is one CPU");
    }
    enough
}

/// Returns why this process cannot create namespaces, load BPF programs or run `ip`; `None` if it
/// can.
pub fn missing() -> Option<String> {
    namespaces().or_else(bpf).or_else(iproute2)
}

/// Returns why the kernel cannot create a VRF device; `None` if it can. Tries it in a separate
/// namespace.
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
            let text = String::from_utf8_lossy(&output.stderr);
            Some(format!("cannot create a VRF device: {}", text.trim_end()))
        }
        Ok(Err(error)) => Some(format!("cannot create a VRF device: {error}")),
        Err(_) => Some("cannot create a VRF device: the trial thread panicked".into()),
    };
    ANSWER.get_or_init(tried).clone()
}

/// Tries to create a namespace, on a thread that ends at once. This is more reliable than
/// interpreting capabilities and seccomp filters.
fn namespaces() -> Option<String> {
    let tried =
        thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)).join();
    match tried {
        Ok(Ok(())) => None,
        Ok(Err(errno)) => Some(format!(
            "cannot create a network namespace: {errno} (needs CAP_SYS_ADMIN)"
        )),
        Err(_) => Some("cannot create a network namespace: the trial thread panicked".into()),
    }
}

/// Tries to create a BPF map of one element.
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
            "cannot create a BPF map: {reason} (needs CAP_BPF and CAP_NET_ADMIN)"
        ));
    }
    // SAFETY: the descriptor was created above and has no other user.
    unsafe { libc::close(fd) };
    None
}

fn iproute2() -> Option<String> {
    let found = Command::new("ip").arg("-Version").output();
    found
        .err()
        .map(|error| format!("cannot run `ip`: {error} (Debian package iproute2)"))
}
