//! One answer to an impossible entry, by command, by `config apply` and at a start.

use super::refused;
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation, config_text};

/// Entries of a node file, and why they are refused.
const FILES: [(&str, &str); 8] = [
    (
        "ports: [eth0]\nroutes: [2001:db8::/32 via fc00:c::2 dev nope]\n",
        "line 2, column 42: no such interface \"nope\"",
    ),
    (
        "ports: [eth0]\nrules: [fwmark 5 table 5]\n",
        "line 2, column 9: Linux would get all packets of the family",
    ),
    (
        "ports: [eth0]\nroutes: [\"ff02::1 encap seg6local action End dev eth0\"]\n",
        "a multicast address cannot be a SID",
    ),
    (
        "ports: [eth0]\nroutes: [\"fc00:a::1 encap seg6local action End dev eth0\"]\n",
        "the node has this address, so packets to it are local and not to a SID",
    ),
    (
        "ports: [eth0]\nroutes: [\"fc00:1::e encap seg6local action End.X nh6 fe80::1 dev eth0\"]\n",
        "every link has this address: \"fe80::1\"; expected `oif DEV`",
    ),
    (
        "ports: [eth0]\nroutes: [2001:db8::/32 via fc00:b::2 mtu 10]\n",
        "invalid `mtu` \"10\"; expected 1280 to 65535",
    ),
    (
        "ports: [eth0]\nroutes: [default encap seg6 mode encap segs fc00:b::2 dev eth1]\n",
        "ambiguous `default`; expected ::/0 or 0.0.0.0/0",
    ),
    (
        "ports: [eth0]\nvrfs: [table 100 tunsrc ::1]\n",
        "invalid `tunsrc` \"::1\"",
    ),
];

#[test]
fn a_file_that_cannot_be_is_refused_at_a_start_and_by_apply_with_the_same_words() {
    for (text, why) in FILES {
        let mut node = Simulation::new();
        let before = node.shown();
        let config = config_text(text);
        let applied = node
            .ask(Request::ApplyConfig {
                config,
                confirm: None,
            })
            .expect_err(text);
        assert!(applied.contains(why), "{applied}");
        assert_eq!(node.shown(), before);
        let started = match sidestep_model::config::File::parse(text) {
            Err(error) => error.to_string(),
            Ok(config) => {
                let options = crate::daemon::Options {
                    ports: vec!["eth0".into()],
                    config,
                    ..node.options()
                };
                let kernel = node.instance.mirror.kernel().clone();
                match Simulation::start(kernel, options) {
                    Err(error) => error.to_string(),
                    Ok(_) => panic!("{text} starts"),
                }
            }
        };
        assert_eq!(started, applied);
    }
}

#[test]
fn commands_that_cannot_work_are_refused_and_change_nothing() {
    let mut node = Simulation::new();
    let before = node.shown();
    for (line, why) in [
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
        let found = refused(&mut node, line);
        assert!(found.contains(why), "{line}: {found}");
    }
    assert_eq!(node.shown(), before);
}

#[test]
fn a_route_is_removed_by_what_it_is_and_not_by_what_it_is_not() {
    let mut node = Simulation::with(STAR, &["eth0", "eth1"], "");
    let route = "fc00:9::/32 encap seg6 mode encap segs fc00:b::2 dev eth1";
    node.all([&format!("route add {route}")[..]]);
    for other in [
        "fc00:9::/32 encap seg6 mode encap segs fc00:b::3 dev eth1",
        "fc00:9::/32 encap seg6 mode encap segs fc00:b::2 dev eth0",
        "fc00:9::/32 via fc00:b::2 dev eth1",
        "blackhole fc00:9::/32",
        "fc00:9::/32 metric 7",
    ] {
        refused(&mut node, &format!("route del {other}"));
    }
    for words in ["fc00:9::/32 dev eth1", "fc00:9::/32", route] {
        node.all([&format!("route del {words}")[..]]);
        assert_eq!(node.verdict("fc00:9::1"), "punt route_miss");
        node.all([&format!("route add {route}")[..]]);
    }
}
