//! Input that the program refuses on a live router: message, exit code, and no change.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Output;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;

use crate::common::program;
use crate::support::left::traces;
use crate::support::{Star, begin, output, report, text_of};

const ALL: [&str; 4] = ["eth0", "eth1", "eth2", "lo"];

/// The refusal is this, on one line, with exit code 1, and nothing on standard output.
fn check_refused(what: &str, output: &Output, message: &str) {
    assert_eq!(text_of(output), format!("sidestep: {message}"), "{what}");
    assert_eq!(output.status.code(), Some(1), "{what}");
    assert_eq!(output.stdout, b"", "{what}");
}

#[test]
fn a_start_that_cannot_be_is_refused_with_its_reason_and_nothing_is_changed() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liverefuse");
    let router = star.router();
    let mut ip = star.ip();
    ip.all(["tuntap add tun0 mode tun"]);
    let before = traces(router, &ALL);
    assert!(before.are_none(), "{before:?}");
    let cases: Vec<(&[&str], String)> = vec![
        (
            &["eth0", "eth/9"],
            "port eth/9: no name of an interface; expected 1 to 15 bytes, or up to 127 for an altname, without blanks, slashes and colons".into(),
        ),
        (&["eth0", "eth1", "eth0"], "port eth0: duplicate".into()),
        (&[], "no port: name at least one interface".into()),
        (&["eth0", "lo"], "port lo: it is the loopback device".into()),
        (
            &["eth0", "tun0"],
            "port tun0: it has no Ethernet frames (tun)".into(),
        ),
        (
            &["--config", "/nonexistent.yaml", "eth0"],
            "/nonexistent.yaml: No such file or directory (os error 2)".into(),
        ),
    ];
    for (number, (ports, message)) in cases.into_iter().enumerate() {
        let detach: &[&str] = if number % 2 == 0 { &[] } else { &["--detach"] };
        let args = [&["run"], detach, ports].concat();
        check_refused(&format!("{args:?}"), &output(router, &args), &message);
        let after = traces(router, &ALL);
        assert!(after.are_none(), "{args:?}: {after:?}");
    }
    // clap's: the usage, and its own code.
    let usage = output(router, &["run", "--mode", "fast", "eth0"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(
        text_of(&usage).contains("[possible values: auto, xdp, xdp-always, tc]"),
        "{}",
        text_of(&usage)
    );
}

#[test]
fn another_programs_xdp_program_stays_where_it_is_and_no_port_is_attached_beside_it() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveforeign");
    let router = star.router();
    let _foreign = Napi::attach(router, "eth1").expect("another XDP program");
    let before = traces(router, &ALL);
    let [(ref port, id)] = before.xdp[..] else {
        panic!("one program: {before:?}");
    };
    assert_eq!(port, "eth1");
    let index = router.ifindex("eth1").expect("eth1");
    let message = format!(
        "port eth1: interface {index} already has an XDP program: id {id}, name pass (native mode)"
    );
    for detach in [&[][..], &["--detach"]] {
        let args = [
            &["run", "--mode", "xdp-always"],
            detach,
            &["eth0", "eth1", "eth2"],
        ]
        .concat();
        check_refused(&format!("{args:?}"), &output(router, &args), &message);
        assert_eq!(traces(router, &ALL), before, "{args:?}");
    }
    // TC is beside it, not in its place.
    let daemon = star.run(&["--mode", "tc", "eth1"]);
    assert_eq!(traces(router, &ALL).xdp, before.xdp);
    drop(daemon);
    assert_eq!(traces(router, &ALL), before);
}

#[test]
fn xdp_on_a_veth_is_refused_unless_the_mode_insists() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveveth");
    let router = star.router();
    let message = "port eth0: it is a veth, whose peer may leave checksums and segmentation to the \
        receiver; XDP cannot see that, and is slower than TC here; use --mode auto, or --mode \
        xdp-always if the peer leaves nothing (ethtool -K PEER tx off)";
    let args = ["run", "--mode", "xdp", "eth0"];
    check_refused("veth", &output(router, &args), message);
    assert!(traces(router, &ALL).are_none());
    let daemon = star.run(&["--mode", "xdp-always", "eth0"]);
    assert!(daemon.began.contains("eth0 (xdp)"), "{}", daemon.began);
}

#[test]
fn a_second_instance_is_refused_and_the_first_one_named() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livesecond");
    let router = star.router();
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let before = traces(router, &ALL);
    let message = format!(
        "sidestep runs in this network namespace already (pid {}); `sidestep stop` ends it",
        daemon.pid()
    );
    for args in [&["run", "eth2"][..], &["run", "--detach", "eth0"]] {
        check_refused(&format!("{args:?}"), &output(router, args), &message);
        assert_eq!(traces(router, &ALL), before);
    }
    // It still answers, and another namespace has its own.
    let ports: report::Ports = report(router, Request::ShowPorts);
    assert_eq!(ports.len(), 2);
    let elsewhere = crate::support::Daemon::start(star.host("a"), &["--mode", "tc", "eth0"]);
    assert!(elsewhere.began.contains("eth0 (tc"), "{}", elsewhere.began);
    drop(elsewhere);
    assert_eq!(traces(router, &ALL), before);
}

#[test]
fn without_privileges_the_missing_capability_is_named() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livepriv");
    let router = star.router();
    let all = "missing CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF: run as root, or give the binary these capabilities";
    // Where everybody can run it: the folder it was built in may be root's alone.
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("a folder");
    let binary = folder.path().join("sidestep");
    fs::copy(program(), &binary).expect("a copy");
    let binary = binary.to_str().expect("UTF-8");
    for detach in [&[][..], &["--detach"]] {
        let mut command = router.command(binary);
        // In this order: std sets the user before the namespace would be entered, so the namespace is entered by
        // another program.
        let args = [&["run"], detach, &["eth0"]].concat();
        command = {
            let mut outer = router.command("setpriv");
            outer.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            outer.arg(command.get_program()).args(&args);
            outer
        };
        let unprivileged = command
            .output()
            .expect("setpriv (Debian package util-linux)");
        check_refused(&format!("unprivileged {args:?}"), &unprivileged, all);

        let lists = [
            ("--bounding-set=-all", "--inh-caps=-all", all),
            (
                "--bounding-set=-net_admin",
                "--inh-caps=-net_admin",
                "missing CAP_NET_ADMIN: run as root, or give the binary these capabilities",
            ),
            (
                "--bounding-set=-sys_admin,-bpf",
                "--inh-caps=-sys_admin,-bpf",
                "missing CAP_BPF: run as root, or give the binary these capabilities",
            ),
        ];
        for (bounding, inherited, message) in lists {
            let mut command = router.command("setpriv");
            command.args([bounding, inherited, binary]).args(&args);
            let root = command
                .output()
                .expect("setpriv (Debian package util-linux)");
            check_refused(&format!("{bounding} {args:?}"), &root, message);
        }
        let after = traces(router, &ALL);
        assert!(after.are_none(), "{after:?}");
    }
    // Commands that need no privileges work without them, outside the test's namespaces.
    let version = std::process::Command::new(binary)
        .arg("--version")
        .uid(65534)
        .gid(65534)
        .output()
        .expect("it starts");
    assert!(version.status.success(), "{}", text_of(&version));

    // Another user cannot query a running daemon and gets an error.
    let _daemon = star.run(&["--mode", "tc", "eth0"]);
    let mut command = router.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([binary, "show", "ports"]);
    let unprivileged = command.output().expect("setpriv");
    let socket = crate::support::left::run_folder(router).join("control.sock");
    let message = format!(
        "control socket {}: permission denied: it is for root alone (`sidestep run --group GROUP` lets a group use it)",
        socket.display()
    );
    check_refused("show ports by another user", &unprivileged, &message);
}

#[test]
fn a_config_file_that_is_wrong_is_refused_with_line_and_column() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("liveconfig");
    let router = star.router();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.yaml");
    let cases = [
        (
            "ports: [eth0]\nroots:\n- fc0f::/16 dev eth1\n",
            "line 2, column 1: unknown field `roots`; expected routes, perhaps",
        ),
        (
            "ports: [eth0]\nroutes:\n- fc0f::1/128 encap seg6local action End dev eth9\n",
            "line 3, column 46: no such interface \"eth9\"; expected one of lo, eth0, eth1, eth2",
        ),
        (
            "ports: [eth0]\nroutes:\n- fc0f::1/128 encap seg6local action End.DT46 tabel 254 dev eth0\n",
            "line 3, column 47: unknown keyword \"tabel\"; expected from, table, metric, tos, proto, src, mtu, via, dev, onlink, nhid, encap, policy, dscp, nexthop or a prefix",
        ),
        (
            "ports: [eth0]\nneighbors: [\"fc00:a::9 lladdr 02:00:00:00:00 dev eth0\"]\n",
            "line 2, column 31: invalid `lladdr` \"02:00:00:00:00\"; expected an Ethernet address of one host, such as 02:00:00:00:00:01",
        ),
        (
            "ports: [eth0]\ntunsrc: \"fc00::5::\"\n",
            "line 2, column 9: invalid `tunsrc` \"fc00::5::\"; expected an IPv6 unicast address",
        ),
        ("ports: [eth0\n", "line 1, column 8: unclosed bracket '['"),
    ];
    let mut wrong = String::new();
    for (text, message) in cases {
        fs::write(&path, text).expect("a file");
        let file = path.to_str().expect("UTF-8");
        let refused = output(router, &["run", "--config", file]);
        let expected = format!("sidestep: {file}: {message}");
        if text_of(&refused) != expected {
            let _ = write!(
                wrong,
                "\n   found {}\nexpected {expected}",
                text_of(&refused)
            );
        }
        assert_eq!(refused.status.code(), Some(1));
        let after = traces(router, &ALL);
        assert!(after.are_none(), "{after:?}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}
