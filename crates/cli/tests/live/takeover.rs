//! Changes by commands after the daemon has died: the next instance takes them over without loss.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use sidestep_testkit::Napi;

use crate::support::left::{Traces, run_folder, traces};
use crate::support::node_file::NodeFile;
use crate::support::{
    Daemon, Star, begin, constant, counters, eventually, modes, output, printed, text_of,
};

const SID: &str = "fc00:2::e encap seg6local action End dev eth0 metric 1024 owner sidestep";

/// Text of a node file with a Sidestep-only SID.
fn text() -> String {
    format!("ports: [eth0, eth1]\nroutes:\n- {SID}\n")
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn shown(star: &Star) -> String {
    printed(star.router(), &["config", "show"])
}

fn changes(star: &Star) -> PathBuf {
    run_folder(star.router()).join("changes.json")
}

/// Kills the daemon and starts it again.
fn replace(star: &Star, daemon: Daemon, args: &[&str]) -> Daemon {
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    star.run(args)
}

#[test]
fn changes_by_commands_outlive_a_crash_without_loss_and_a_stop_forgets_them() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livetakeover");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let file = NodeFile::new(&text());
        let key = file.path().with_file_name("key");
        fs::write(&key, "hush\n").expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        let key = key.to_str().expect("UTF-8");
        let [of_kernel, typed] = constant::ROUTES;
        star.ip().all([of_kernel]);
        let path = file.text();
        let args = ["--mode", mode, "--config", &path[..]];
        let daemon = star.run(&args);
        let without = shown(&star);
        assert!(!changes(&star).exists());
        // The kernel has no route for the second kind of packet.
        printed(router, &words(typed));
        printed(router, &["port", "add", "eth2"]);
        printed(
            router,
            &["hmac", "set", "7", "sha256", "--secret-file", key],
        );
        printed(router, &["route", "del", "fc00:2::e", "metric", "1024"]);
        let with = shown(&star);
        let permissions = fs::metadata(changes(&star)).expect("a file").permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        let (daemon, _) = constant::during(&star, mode, || {
            let mut daemon = daemon;
            for _ in 0..2 {
                daemon = replace(&star, daemon, &args);
                let took = "adopted the data plane of an instance that died; took over 4 changes \
                            by commands; ";
                assert!(daemon.began.contains(took), "{}", daemon.began);
                assert_eq!(shown(&star), with);
                let before = counters(router, "eth0").forwarded;
                eventually("it forwards", || {
                    (counters(router, "eth0").forwarded > before + 100).then_some(())
                });
            }
            // The file contains one of them now.
            file.write(&format!("{}- {}\n", text(), &typed["route add ".len()..]));
            daemon = replace(&star, daemon, &args);
            assert_eq!(shown(&star), with);
            daemon
        });
        file.write(&text());
        printed(router, &["config", "reload"]);
        assert_eq!(shown(&star), without);
        assert!(!changes(&star).exists());
        printed(router, &words(typed));
        assert_eq!(
            printed(router, &["stop"]),
            format!(
                "detached from eth0, eth1; forwarding is back in the kernel\nremoved 1 change by \
                 commands, which no node file has:\n  + routes: {} metric 1024 owner sidestep\n",
                &typed["route add ".len()..]
            )
        );
        daemon.end();
        let left = traces(router, &["eth0", "eth1", "eth2"]);
        assert!(left.are_none(), "{left:?}");
        let daemon = star.run(&args);
        assert!(!daemon.began.contains("took over"), "{}", daemon.began);
        assert_eq!(shown(&star), without);
    }
}

#[test]
fn changes_that_contradict_the_new_file_are_left_out_and_an_unconfirmed_configuration_ends() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livetakefile");
    let router = star.router();
    let file = NodeFile::new(&text());
    let path = file.text();
    let args = ["--mode", "tc", "--config", &path[..]];
    let log = file.path().with_file_name("log");
    let start = || {
        Daemon::start_by(router, &args, |command| {
            command.stderr(fs::File::create(&log).expect("a file"));
        })
    };
    let daemon = start();
    printed(router, &words("oam rate 7"));
    for number in 1..=2 {
        let route = format!("route add fc0{number}::/16 via fc00:b::2 dev eth1");
        printed(router, &words(&route));
    }
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let other = "fc01::/16 via fc00:c::2 dev eth2 metric 1024 owner sidestep";
    file.write(&format!("{}- {other}\noam_rate: 5\n", text()));
    let daemon = start();
    assert!(
        daemon.began.contains("took over 1 change by commands"),
        "{}",
        daemon.began
    );
    for part in ["+ routes: fc01::/16 via fc00:b::2", "+ oam_rate: 7"] {
        let part = format!("not taken over: {part}");
        eventually("it is logged", || {
            let logged = fs::read_to_string(&log).expect("a log");
            logged.contains(&part).then_some(())
        });
    }
    let running = shown(&star);
    assert!(
        running.contains("fc02::/16") && running.contains(other) && running.contains("oam_rate: 5"),
        "{running}"
    );

    let trial = NodeFile::new("ports: [eth0]\n");
    let apply = ["config", "apply", &trial.text(), "--confirm", "600"];
    printed(router, &apply);
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let daemon = start();
    assert_eq!(shown(&star), running);
    printed(router, &apply);
    printed(router, &["config", "confirm"]);
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let daemon = start();
    assert_eq!(shown(&star), "ports:\n- eth0\nmode: tc\n");
    // A dead daemon is stopped with its changes.
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let stopped = output(router, &["stop"]);
    assert!(stopped.status.success(), "{}", text_of(&stopped));
    assert!(!run_folder(router).exists());
}

/// Interfaces with a program, the names of pins and files, and the changes. The socket of a daemon
/// that died has no use.
fn kept(star: &Star) -> (Traces, Vec<u8>) {
    let traces = traces(star.router(), &["eth0", "eth1", "eth2"]);
    let without_ids = |list: Vec<(String, u32)>| list.into_iter().map(|(name, _)| (name, 0));
    let is_socket = |name: &String| name == "control.sock";
    let traces = Traces {
        files: traces
            .files
            .into_iter()
            .filter(|name| !is_socket(name))
            .collect(),
        xdp: without_ids(traces.xdp).collect(),
        tc: without_ids(traces.tc).collect(),
        ..traces
    };
    (traces, fs::read(changes(star)).expect("changes"))
}

#[test]
fn a_start_that_fails_leaves_changes_pins_and_programs_to_the_next_one() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livetakefail");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let [of_kernel, typed] = constant::ROUTES;
        star.ip().all([of_kernel, "link add br7 type bridge"]);
        let file = NodeFile::new(&text());
        let path = file.text();
        let args = ["--mode", mode, "--config", &path[..]];
        let daemon = star.run(&args);
        printed(router, &words(typed));
        printed(router, &["port", "add", "eth2"]);
        printed(router, &["route", "del", "fc00:2::e", "metric", "1024"]);
        let with = shown(&star);
        let before = kept(&star);
        let wrong =
            NodeFile::new("ports: [eth0]\nroutes:\n- fc00:2::e encap seg6local action Endd\n");
        let empty = NodeFile::new("# nothing\n");
        let (wrong, empty) = (wrong.text(), empty.text());
        let mut failing = vec![
            "lo",
            "eth0 lo",
            "--config WRONG",
            "--config EMPTY",
            "--config /nonexistent",
            "eth0 --metrics 192.0.2.99:9",
            "eth0 --fpm 192.0.2.99:9",
            "eth0 --pin-root /tmp",
            "eth0 --pin-root /sys/fs/bpf/other",
            "eth0 --group nobody-has-this-name",
            "eth0 --detach --metrics 192.0.2.99:9",
        ];
        // After the programs are loaded: a bridge has no native XDP.
        failing.extend(
            ["br7", "eth0 eth2 br7"]
                .iter()
                .filter(|_| mode == "xdp-always"),
        );
        let (daemon, _) = constant::during(&star, mode, || {
            daemon.signal(Signal::SIGKILL);
            daemon.end();
            for arguments in failing {
                let line = format!("run --mode {mode} {arguments}");
                let line = line.replace("WRONG", &wrong).replace("EMPTY", &empty);
                let refused = output(router, &words(&line));
                assert!(!refused.status.success(), "{line}");
                assert_eq!(kept(&star), before, "{line}: {}", text_of(&refused));
            }
            let daemon = star.run(&args);
            let took = "adopted the data plane of an instance that died; took over 3 changes by \
                        commands; ";
            assert!(daemon.began.contains(took), "{}", daemon.began);
            assert_eq!(shown(&star), with);
            // An orderly end leaves them on request.
            let told = "the daemon ended; programs stay attached to eth0, eth1, eth2, and the next \
                        `sidestep run` takes them over with 3 changes by commands\n";
            assert_eq!(printed(router, &["stop", "--keep"]), told);
            let (status, text) = daemon.end();
            let ended = "ended; programs, tables and changes stay for the next daemon\n";
            assert!(status.success() && text == ended, "{status} {text}");
            let daemon = star.run(&args);
            assert!(daemon.began.contains(took), "{}", daemon.began);
            assert_eq!(shown(&star), with);
            daemon
        });
        printed(router, &["stop"]);
        daemon.end();
        assert!(!run_folder(router).exists());
    }
}
