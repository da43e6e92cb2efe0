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
