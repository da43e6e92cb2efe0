//! The running configuration: shown, compared, applied and reloaded under traffic that loses no
//! packet.

use std::fs;

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_datapath::kernel::PIN_ROOT;
use sidestep_testkit::Napi;

use crate::support::node_file::NodeFile;
use crate::support::{
    Daemon, Star, begin, constant, counters, eventually, modes, output, printed, report, target_of,
    text_of,
};

const PORTS: &str = "ports: [eth0, eth1]\n";
const SID: &str = "fc00:2::e encap seg6local action End dev eth0 metric 1024 owner sidestep";

fn shown(star: &Star) -> String {
    printed(star.router(), &["config", "show"])
}

/// Runs `work` while packets travel on routes that it must not change. None is lost.
fn without_loss(star: &Star, what: &str, work: impl FnOnce()) {
    constant::during(star, what, || {
        work();
        // Packets after the last change, too.
        let before = counters(star.router(), "eth0").forwarded;
        eventually("it forwards", || {
            (counters(star.router(), "eth0").forwarded > before + 400).then_some(())
        });
    });
}

fn problem(star: &Star, code: &str) -> Option<report::Problem> {
    let status: report::Status = report(star.router(), Request::ShowStatus);
    status.problems.into_iter().find(|it| it.code == code)
}

#[test]
fn a_reload_applies_what_changed_without_loss_and_a_bad_file_changes_nothing() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livereload");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all(constant::ROUTES);
        let file = NodeFile::new(PORTS);
        let daemon = star.run(&["--mode", mode, "--config", &file.text()]);
        let full = format!(
            "{PORTS}routes:\n- {SID}\n- fc0f::/64 policy p\nlocal_srh: linux\nfragment_rate: 7\n\
             policies: [\"p color 1 endpoint fc00:b::2 segs fc00:bb::e\"]\n"
        );
        without_loss(&star, mode, || {
            for round in 0..10 {
                file.write(if round % 2 == 0 { &full } else { PORTS });
                if round < 6 {
                    daemon.signal(Signal::SIGHUP);
                } else {
                    printed(router, &["config", "reload"]);
                }
                let wanted = round % 2 == 0;
                eventually("it is applied", || {
                    (shown(&star).contains("fragment_rate: 7") == wanted).then_some(())
                });
            }
            file.write(&full);
            let lines = printed(router, &["config", "reload"]);
            assert_eq!(lines.lines().count(), 5, "{lines}");
            refuses(&star, &daemon, &file);
        });
        let fragments: report::Fragments = report(router, Request::ShowFragments);
        assert_eq!(fragments.rate, 7);
    }
}

/// Files that are refused, by signal and by command.
fn refuses(star: &Star, daemon: &Daemon, file: &NodeFile) {
    let router = star.router();
    let before = shown(star);
    let good = fs::read_to_string(file.path()).expect("the file");
    for (text, why) in [
        ("prots: [eth0]", "line 1, column 1: unknown field `prots`"),
        ("ports: eth0", "line 1, column 8: invalid `ports`"),
        ("ports: [eth0, eth0]", "line 1, column 15: duplicate port"),
        ("ports: [eth0, lo]", "port lo: it is the loopback device"),
        ("oam_rate: 1", "no port: name at least one interface"),
        (
            "ports: [eth0]\noam_rate: -1",
            "line 2, column 11: invalid value; expected a number",
        ),
        (
            "ports: [eth0]\nroutes: [fc00:2::1 encap seg6local action End dev eth9]",
            "line 2, column 51: no such interface \"eth9\"",
        ),
        (
            "ports: [eth0]\nhmac: {7: {algorithm: sha1}}",
            "no secret is known of HMAC key \"7\"",
        ),
    ] {
        file.write(text);
        let refused = output(router, &["config", "reload"]);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        let said_before = format!("sidestep: {}: ", file.text());
        let words = text_of(&refused);
        assert!(
            words.starts_with(&said_before) && words.contains(why),
            "{words}"
        );
        let found = problem(star, "reload_failed").expect("a problem");
        assert!(found.sentence.contains(why), "{found:?}");
        assert_eq!(shown(star), before, "{text}");
        // The checks before a start find the same.
        if !text.starts_with("oam_rate: 1") {
            let checked = output(router, &["config", "check", &file.text()]);
            assert!(text_of(&checked).contains(why), "{}", text_of(&checked));
        }
    }
    file.write(&good);
    daemon.signal(Signal::SIGHUP);
    eventually("the problem ends", || {
        problem(star, "reload_failed").is_none().then_some(())
    });
    fs::remove_file(file.path()).expect("removed");
    daemon.signal(Signal::SIGHUP);
    let found = eventually("a problem", || problem(star, "reload_failed"));
    assert!(found.sentence.contains("No such file"), "{found:?}");
    // A pipe without a writer does not block the daemon.
    let mode = nix::sys::stat::Mode::S_IRUSR;
    nix::unistd::mkfifo(&file.path(), mode).expect("a pipe");
    let refused = output(router, &["config", "reload"]);
    assert!(
        text_of(&refused).contains("no regular file"),
        "{}",
        text_of(&refused)
    );
    assert_eq!(shown(star), before);
}

#[test]
fn options_and_ports_of_the_command_line_survive_a_reload() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livereloadopt");
    let router = star.router();
    let file = NodeFile::new("ports: [eth1]\ngroup: root\npin_root: /sys/fs/bpf/other\n");
    let path = file.text();
    let daemon = star.run(&[
        "--mode",
        "tc",
        "--group",
        "nogroup",
        "--pin-root",
        PIN_ROOT,
        "--local-srh",
        "linux",
        "--config",
        &path,
        "eth0",
    ]);
    let before = shown(&star);
    assert_eq!(
        before,
        "ports:\n- eth0\n- eth1\nlocal_srh: linux\ngroup: \"nogroup\"\nmode: tc\n"
    );
    printed(router, &["port", "add", "eth2"]);
    assert_eq!(
        printed(router, &["config", "reload"]),
        "- ports: eth2\n",
        "the file does not have it"
    );
    assert_eq!(shown(&star), before);
    drop(daemon);
    // Without a file there is nothing to read again.
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    printed(router, &["domain", "add", "sid-block", "fc00::/16"]);
    let before = shown(&star);
    daemon.signal(Signal::SIGHUP);
    let refused = output(router, &["config", "reload"]);
    assert!(text_of(&refused).contains("without `--config FILE`"));
    assert_eq!(shown(&star), before);
}

#[test]
fn what_is_shown_is_applied_again_unchanged_and_starts_a_daemon() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveconfigshow");
    let router = star.router();
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    for words in [
        "route add fc00:2::e encap seg6local action End dev eth0",
        "route add fc00:2::ad encap seg6local action End.AD oif eth1 nh6 fc00:b::2 dev eth1",
        "rule add iif eth0 lookup 100",
        "vlan add table 10 vid 100 dev eth1",
        "domain add sid-block fc00:2::/32",
        "domain add inside eth0",
        "policy add p color 1 endpoint fc00:b::2 segs fc00:bb::e weight 3 segs fc00:bb::f",
        "route add fc0f::/64 policy p",
        "oam rate 10",
    ] {
        printed(router, &words.split(' ').collect::<Vec<_>>());
    }
    let secret = NodeFile::new("hush\n");
    let key = secret.text();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    printed(
        router,
        &["hmac", "set", "7", "sha256", "--secret-file", &key],
    );
    let text = shown(&star);
    assert!(!text.contains("hush"), "{text}");
    let file = NodeFile::new(&text);
    let path = file.text();
    assert_eq!(printed(router, &["config", "diff", &path]), "");
    assert_eq!(printed(router, &["config", "apply", &path]), "");
    assert_eq!(shown(&star), text);
    // One entry, and a key that would be missing at a start.
    file.write(&text.replace("oam_rate: 10", "oam_rate: 11"));
    let diff = output(router, &["config", "diff", &path]);
    assert_eq!(diff.status.code(), Some(1));
    assert_eq!(diff.stdout, b"- oam_rate: 10\n+ oam_rate: 11\n");
    let json = output(router, &["config", "diff", "-j", &path]).stdout;
    let difference: report::Difference = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((difference.removed.len(), difference.added.len()), (1, 1));
    let missing = output(router, &["config", "diff", "/nonexistent"]);
    assert_eq!(missing.status.code(), Some(2));
    printed(router, &["hmac", "del", "7"]);
    let refused = output(router, &["config", "apply", &path]);
    assert!(text_of(&refused).contains("no secret is known of HMAC key"));
    // A new daemon starts with it.
    file.write(&shown(&star));
    let text = shown(&star);
    drop(daemon);
    let _daemon = star.run(&["--mode", "tc", "--config", &path]);
    assert_eq!(shown(&star), text);
    assert!(output(router, &["check", &path]).status.success());
}

fn target(star: &Star, name: &str) -> Option<String> {
    let ports: report::Ports = report(star.router(), Request::ShowPorts);
    let port = ports.into_iter().find(|port| port.name == name)?;
    Some(port.target)
}

#[test]
fn ports_come_and_go_without_loss_at_the_others() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveports");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all(constant::ROUTES);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        without_loss(&star, mode, || {
            for _ in 0..5 {
                let added = printed(router, &["port", "add", "eth2"]);
                assert_eq!(added, format!("forwarding on eth2 ({})\n", target_of(mode)));
                assert_eq!(target(&star, "eth2").as_deref(), Some(target_of(mode)));
                assert_eq!(printed(router, &["port", "del", "eth2"]), "");
                assert_eq!(target(&star, "eth2"), None);
            }
        });
        for (words, why) in [
            (["port", "add", "eth1"], "port eth1: exists already"),
            (
                ["port", "del", "eth2"],
                "port eth2: no such port; the ports are eth0, eth1",
            ),
            (["port", "add", "lo"], "port lo: it is the loopback device"),
            (
                ["port", "add", "a/b"],
                "port a/b: no name of an interface; expected 1 to 15 bytes",
            ),
        ] {
            let refused = text_of(&output(router, &words));
            assert!(
                refused.starts_with(&format!("sidestep: {why}")),
                "{refused}"
            );
        }
        // An interface that appears later.
        assert_eq!(
            printed(router, &["port", "add", "svc0"]),
            "waiting for svc0: there is no such interface; Sidestep attaches to it when it appears\n"
        );
        star.ip().run("link add svc0 type veth peer name svc1");
        eventually("it attaches", || {
            (target(&star, "svc0").as_deref() == Some(target_of(mode))).then_some(())
        });
        star.ip().run("link del svc0");
        eventually("it waits", || {
            (target(&star, "svc0").as_deref() == Some("none")).then_some(())
        });
        for port in ["svc0", "eth1", "eth0"] {
            printed(router, &["port", "del", port]);
        }
        assert!(problem(&star, "no_ports").is_some());
        assert!(shown(&star).starts_with("ports: []\n"));
    }
}
