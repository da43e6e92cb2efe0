//! `check`, `config apply` and `run` accept and refuse the same files, with the same error.

use crate::support::node_file::NodeFile;
use crate::support::{Star, begin, output, printed, text_of};

/// Node files, each with a part of the error, or none if it is valid.
const FILES: &[(&str, Option<&str>)] = &[
    ("ports: [eth0, eth1]\n", None),
    // An interface that is no port.
    (
        "ports: [eth0, eth1]\nroutes: [fc00:1::d6/128 encap seg6local action End.DX6 nh6 fc00:c::2 dev eth2]\n",
        None,
    ),
    (
        "ports: [eth0, eth1]\nroutes: [fc00:1::e/128 encap seg6local action End dev eth0]\n",
        None,
    ),
    ("ports: [lo]\n", Some("port lo: it is the loopback device")),
    (
        "ports: [eth0]\nroutes: [2001:db8::/32 via fc00:c::2 dev nope]\n",
        Some("line 2, column 42: no such interface \"nope\""),
    ),
    (
        "ports: [eth0]\nrules: [fwmark 5 table 5]\n",
        Some("line 2, column 9: Linux would get all packets of the family"),
    ),
    (
        "ports: [eth0]\nroutes: [\"ff02::1 encap seg6local action End dev eth0\"]\n",
        Some("a multicast address cannot be a SID"),
    ),
    (
        "ports: [eth0]\nroutes: [\"fc00:a::1 encap seg6local action End dev eth0\"]\n",
        Some("the node has this address, so packets to it are local and not to a SID"),
    ),
    (
        "ports: [eth0]\nroutes: [\"fc00:1::e encap seg6local action End.X nh6 fe80::1 dev eth0\"]\n",
        Some("every link has this address: \"fe80::1\"; expected `oif DEV`"),
    ),
    (
        "ports: [eth0]\nroutes: [2001:db8::/32 via fc00:b::2 mtu 10]\n",
        Some("invalid `mtu` \"10\"; expected 1280 to 65535"),
    ),
    (
        "ports: [eth0]\nroutes: [default encap seg6 mode encap segs fc00:b::2 dev eth1]\n",
        Some("ambiguous `default`; expected ::/0 or 0.0.0.0/0"),
    ),
    ("{}\n", Some("the file has no key")),
    (
        "ports: [eth0]\nvrfs: [table 100 tunsrc ::1]\n",
        Some("invalid `tunsrc` \"::1\""),
    ),
];

#[test]
fn check_apply_and_run_give_one_answer() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveanswer");
    let router = star.router();
    for (text, error) in FILES {
        let file = NodeFile::new(text);
        let check = output(router, &["check", &file.text()]);
        let apply = {
            let _daemon = star.run(&["--mode", "tc", "eth0"]);
            output(router, &["config", "apply", &file.text()])
        };
        let run = output(
            router,
            &["run", "--detach", "--mode", "tc", "--config", &file.text()],
        );
        if run.status.success() {
            printed(router, &["stop"]);
        }
        for (command, output) in [("check", &check), ("apply", &apply), ("run", &run)] {
            let said = text_of(output);
            assert_eq!(
                output.status.success(),
                error.is_none(),
                "{command} {text}: {said}"
            );
            let error = error.unwrap_or_default();
            assert!(said.contains(error), "{command} {text}: {said}");
        }
    }
}

#[test]
fn commands_that_cannot_work_are_refused_and_change_nothing() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveeffect");
    let router = star.router();
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    let run = |line: &str| {
        let words = words(line);
        output(
            router,
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    };
    for (line, error) in [
        (
            "rule add fwmark 5 table 5",
            "Linux would get all packets of the family",
        ),
        (
            "route add ff02::1 encap seg6local action End dev eth0",
            "a multicast address",
        ),
        (
            "route add ::1 encap seg6local action End dev eth0",
            "packets to this address never",
        ),
        (
            "route add fc00:a::1 encap seg6local action End dev eth0",
            "the node has this address",
        ),
        (
            "route add fc00:9::/32 via fc00:b::2 mtu 10",
            "invalid `mtu`",
        ),
        (
            "route add default encap seg6 mode encap segs fc00:b::2 dev eth1",
            "word 1: ambiguous `default`; expected ::/0 or 0.0.0.0/0",
        ),
        ("route del default", "word 1: ambiguous `default`"),
        (
            "policy add gold color 1 endpoint fc00:b::2 bsid ff02::1 segs fc00:b::2",
            "invalid `bsid`",
        ),
        ("domain add sid-block ff00::/8", "invalid `sid-block`"),
    ] {
        let refused = run(line);
        assert_eq!(refused.status.code(), Some(1), "{line}");
        let said = text_of(&refused);
        assert!(said.contains(error), "{line}: {said}");
    }
    assert_eq!(
        printed(router, &["config", "show"]),
        "ports:\n- eth0\n- eth1\nmode: tc\n"
    );

    // Words that contradict the route.
    let route = "fc00:9::/32 encap seg6 mode encap segs fc00:b::2 dev eth1";
    assert!(run(&format!("route add {route}")).status.success());
    for other in [
        "fc00:9::/32 encap seg6 mode encap segs fc00:b::3 dev eth1",
        "fc00:9::/32 encap seg6 mode encap segs fc00:b::2 dev eth0",
        "fc00:9::/32 via fc00:b::2 dev eth1",
        "blackhole fc00:9::/32",
        "fc00:9::/32 metric 7",
    ] {
        let refused = run(&format!("route del {other}"));
        assert_eq!(refused.status.code(), Some(1), "{other}");
    }
    assert!(run("route del fc00:9::/32 dev eth1").status.success());
    assert!(run(&format!("route add {route}")).status.success());
    assert!(run("route del fc00:9::/32").status.success());
}
