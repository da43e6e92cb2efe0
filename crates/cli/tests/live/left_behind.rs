//! Leftovers of instances: pins of another version, two simultaneous starts, a read-only file
//! system, and removed namespaces.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{Namespace, Napi};

use crate::common::program;
use crate::support::left::{run_folder, traces};
use crate::support::{
    PATIENCE, Star, begin, constant, counters, eventually, eventually_within, modes, output,
    printed, report, sidestep, text_of,
};

/// Changes the version of the pins in a folder, which is in the first bytes of the value.
fn set_version(folder: &Path, version: u32) {
    let path = folder.join("instance").to_str().map(CString::new);
    let path = path.expect("UTF-8").expect("no zero byte");
    let mut value = [0u8; 64];
    value[..4].copy_from_slice(&version.to_ne_bytes());
    let key = 0u32;
    // SAFETY: a terminated path; key and value of the sizes that the map has.
    let result = unsafe {
        let map = libbpf_sys::bpf_obj_get(path.as_ptr());
        let result =
            libbpf_sys::bpf_map_update_elem(map, (&raw const key).cast(), value.as_ptr().cast(), 0);
        libc::close(map);
        result
    };
    assert_eq!(result, 0, "the version is written");
}

#[test]
fn pins_of_an_older_or_newer_version_are_replaced_under_traffic_without_a_loss() {
    let Some(_turn) = begin() else {
        return;
    };
    for (mode, version) in [("tc", 1), ("xdp-always", 999)] {
        let star = Star::new("liveversion");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all(constant::ROUTES);
        let args = ["--mode", mode, "eth0", "eth1"];
        let daemon = star.run(&args);
        let status: report::Status = report(router, Request::ShowStatus);
        constant::during(&star, mode, || {
            daemon.signal(Signal::SIGKILL);
            daemon.end();
            set_version(Path::new(&status.pins), version);
            let next = star.run(&args);
            assert!(
                next.began
                    .contains("replaced the data plane of another version"),
                "{}",
                next.began
            );
            let status: report::Status = report(router, Request::ShowStatus);
            assert_eq!(status.origin, "replaced");
            // The new tables forward.
            let before = counters(router, "eth0").forwarded;
            eventually("it forwards", || {
                (counters(router, "eth0").forwarded > before + 50).then_some(())
            });
        });
    }
}

#[test]
fn of_several_that_start_at_once_one_runs_and_the_others_say_so() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveonce");
    let router = star.router();
    for round in 0..3 {
        let words = ["run", "--mode", "tc", "--detach", "eth0", "eth1"];
        let started: Vec<_> = (0..5)
            .map(|_| {
                sidestep(router, &words)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("the program starts")
            })
            .collect();
        let ended: Vec<_> = started
            .into_iter()
            .map(|child| child.wait_with_output().expect("it ends"))
            .collect();
        let (run, refused): (Vec<_>, Vec<_>) =
            ended.iter().partition(|output| output.status.success());
        assert_eq!(run.len(), 1, "round {round}: {ended:?}");
        for output in refused {
            let text = text_of(output);
            assert!(
                text.contains("sidestep runs in this network namespace already"),
                "round {round}: {text}"
            );
        }
        let ports: report::Ports = report(router, Request::ShowPorts);
        assert!(ports.iter().all(|port| port.target == "tc"), "{ports:?}");
        printed(router, &["stop"]);
        // Start again at once, while the previous instance may still be ending.
        printed(router, &words);
        printed(router, &["stop"]);
        let left = traces(router, &["eth0", "eth1"]);
        assert!(left.are_none(), "round {round}: {left:?}");
    }
}

#[test]
fn without_a_place_for_its_files_it_says_so_and_attaches_nothing() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livenofiles");
    let router = star.router();
    for (options, reason) in [
        ("ro", "Read-only file system (os error 30)"),
        ("size=4k", "No space left on device (os error 28)"),
    ] {
        for detach in ["", "--detach"] {
            // Mount a private /run, which is full or read-only.
            let script = format!(
                "mount -t tmpfs -o {options} none /run && {{ head -c 8192 /dev/zero > /run/full; true; }} 2>/dev/null && \
                 exec {} run --mode tc {detach} eth0",
                program()
            );
            let refused = router
                .command("unshare")
                .args(["-m", "sh", "-c", &script])
                .output()
                .expect("unshare starts");
            let text = text_of(&refused);
            assert_eq!(refused.status.code(), Some(1), "{options}: {text}");
            assert!(
                text.starts_with("sidestep: /run/sidestep") && text.ends_with(reason),
                "{options} {detach}: {text}"
            );
            let left = traces(router, &["eth0"]);
            assert!(left.are_none(), "{options}: {left:?}");
        }
    }
}

#[test]
fn what_died_with_its_namespace_is_removed_by_the_next_one_anywhere() {
    let Some(_turn) = begin() else {
        return;
    };
    let killed = |star: &Star| {
        let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
        let status: report::Status = report(star.router(), Request::ShowStatus);
        daemon.signal(Signal::SIGKILL);
        daemon.end();
        (run_folder(star.router()), status.pins)
    };
    let gone = Star::new("livegonens");
    let there = Star::new("liveherens");
    let (run_gone, pins_gone) = killed(&gone);
    let (run_there, pins_there) = killed(&there);
    // Create this first: the kernel reuses inodes, and a later namespace could get that of a
    // removed one.
    let star = Star::new("liveother");
    gone.abandon();
    // The kernel removes a namespace some time after its last user, one after the other.
    eventually_within(6 * PATIENCE, "it is removed", || {
        drop(star.run(&["--mode", "tc", "eth0"]));
        (!run_gone.exists() && !Path::new(&pins_gone).exists()).then_some(())
    });
    assert!(run_there.join("lock").exists(), "it can be taken over");
    assert!(Path::new(&pins_there).join("instance").exists());
    let daemon = there.run(&["--mode", "tc", "eth0", "eth1"]);
    assert!(
        daemon.began.contains("adopted the data plane"),
        "{}",
        daemon.began
    );
}

/// Runs the program by `ip netns exec`, which gives it a private /sys.
fn in_netns_exec(namespace: &Namespace, words: &[&str]) -> Output {
    let netns = ["netns", "exec", namespace.name(), program()];
    let mut ip = Command::new("ip");
    ip.args(netns).args(words).output().expect("ip starts")
}

/// Kills a daemon, and waits for its end.
fn kill(status: &report::Status) {
    let pid = Pid::from_raw(status.pid as i32);
    signal::kill(pid, Signal::SIGKILL).expect("it runs");
    eventually("it is dead", || signal::kill(pid, None).err());
}

#[test]
fn forwarding_survives_a_daemon_that_ip_netns_exec_started() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livenetnsexec");
        let router = star.router();
        let words = ["run", "--detach", "--mode", mode, "eth0", "eth1"];
        let began = in_netns_exec(router, &words);
        assert!(began.status.success(), "{}", text_of(&began));
        kill(&report(router, Request::ShowStatus));
        let left = traces(router, &["eth0", "eth1"]);
        // A port in XDP mode has the program at TC, too.
        let programs = if mode == "xdp-always" { 4 } else { 2 };
        assert_eq!(left.tc.len() + left.xdp.len(), programs, "{mode}: {left:?}");
        assert!(!left.pins.is_empty(), "{mode}");
        let again = in_netns_exec(router, &words);
        let text = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(text.contains("adopted the data plane"), "{mode}: {text}");
        kill(&report(router, Request::ShowStatus));
        // Each command finds the pins.
        let stopped = in_netns_exec(router, &["stop"]);
        assert!(stopped.status.success(), "{mode}: {}", text_of(&stopped));
        assert!(traces(router, &["eth0", "eth1"]).are_none(), "{mode}");
    }
}

#[test]
fn a_host_without_the_bpf_file_system_gets_it_for_ip_netns_exec() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livenobpffs");
    let router = star.router();
    // The shell is the first process of its own namespaces: the "host".
    let script = r#"
        set -e
        umount -l /sys/fs/bpf
        ip netns exec "$1" "$2" run --detach --mode tc eth0
        kill -9 "$(ip netns exec "$1" "$2" show status -j | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')"
        sleep 1
        echo "pins:" /sys/fs/bpf/sidestep/net-*/program-tc
        ip netns exec "$1" "$2" run --detach --mode tc eth0
        ip netns exec "$1" "$2" stop
        echo "left:" /sys/fs/bpf/sidestep/*
    "#;
    let namespaces = ["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"];
    let mut unshare = Command::new("unshare");
    let arguments = unshare
        .args(namespaces)
        .args([script, "sh", router.name(), program()]);
    let ended = arguments.output().expect("unshare starts");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{text}{}", text_of(&ended));
    assert!(text.contains("pins: /sys/fs/bpf/sidestep/net-"), "{text}");
    assert!(!text.contains("net-*"), "{text}");
    assert!(text.contains("adopted the data plane"), "{text}");
    assert!(text.contains("left: /sys/fs/bpf/sidestep/*"), "{text}");
    assert!(traces(router, &["eth0"]).are_none());
}

#[test]
fn pins_go_where_they_are_told_to_and_only_on_a_bpf_file_system() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livepins");
    let router = star.router();
    let wrong = std::env::temp_dir().join(format!("sidestep-pins-{}", std::process::id()));
    let wrong = wrong.to_str().expect("UTF-8");
    let refused = output(router, &["run", "--pin-root", wrong, "eth0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        text_of(&refused),
        format!(
            "sidestep: {wrong} is not on a BPF file system (not mounted there); mount one with: mount -t bpf bpf {wrong}"
        )
    );
    assert!(!Path::new(wrong).exists());
    assert!(traces(router, &["eth0"]).are_none());

    // Pins outside of /sys outlive `ip netns exec`, too.
    fs::create_dir(wrong).expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "bpf", "bpf", wrong])
        .status();
    assert!(mounted.expect("mount starts").success());
    let checked = std::panic::catch_unwind(|| {
        let run = |words: &[&str]| in_netns_exec(router, words);
        let words = [
            "run",
            "--detach",
            "--pin-root",
            wrong,
            "--mode",
            "tc",
            "eth0",
        ];
        let began = run(&words);
        assert!(began.status.success(), "{}", text_of(&began));
        let status: report::Status = report(router, Request::ShowStatus);
        assert!(status.pins.starts_with(wrong), "{status:?}");
        kill(&status);
        assert_eq!(traces(router, &["eth0"]).tc.len(), 1, "it still forwards");
        let again = run(&words);
        assert!(again.status.success(), "{}", text_of(&again));
        let text = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(text.contains("adopted the data plane"), "{text}");
        printed(router, &["stop"]);
        assert!(traces(router, &["eth0"]).are_none());
    });
    let _ = Command::new("umount").arg(wrong).status();
    fs::remove_dir(wrong).expect("nothing is left in it");
    checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
