use std::collections::BTreeMap;

use super::*;
use crate::config::File;
use crate::config::tests::{FILE, node};
use crate::node::Node;

/// Entries of every key.
const WHOLE: &str = r#"
ports: [eth0, "007", lan, "on", "a\"b\\", x#1]
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
routes:
- "a3:: encap seg6local action End.DX6 nh6 fc01::1 dev eth1"
- 2001:db8:b::/64 encap seg6 mode encap segs fc0a::1,fc0a::2 via fc01::1 dev eth1
- fc0f::/64 policy p
- 198.51.100.0/24 via 192.0.2.2 dev eth0 table 100 metric 7
- fc0e::1 encap seg6local action End.AD oif eth0 nh6 fc00::7 dev eth0
rules: [iif eth0 lookup 100, from fd00::/8 lookup 7]
vlans: [table 10 vid 100 dev eth1]
domain: ["sid-block fc00::/16", "inside eth1"]
reflectors: ["1001", "1002 admin-down"]
paths: ["p segs fc00::1 loopback interval 10 multiplier 3"]
policies: ["p color 100 endpoint fc00:3::1 segs fc00:2::e,fc00:3::d6 weight 3 segs fc00:4::e"]
tunsrc: "fc00::2"
seg6_flowlabel: -1
multipath_hash_seed: 4294967295
oam_rate: 10
local_srh: linux
require_seg6_enabled: true
encap_lookup_main: true
ipv4_too_big: icmp
fragment_rate: 0
fragment_burst: 7
icmp_rate: 3
icmp_burst: 4
metrics: "[::1]:9999"
fpm: "[::1]:2620"
fpm_hold: 30
fpm_reply: true
hmac: {7: {algorithm: sha256, secret: "hush"}}
"#;

fn configured(text: &str, live: &Node, running: &Overlay) -> (Vec<String>, Overlay) {
    let mut file = File::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    file.add_secrets(&BTreeMap::new(), &running.hmac_keys);
    let own = file.overlay(live, live);
    let own = own.unwrap_or_else(|error| panic!("{error}: {text}"));
    (file.port_names().map(str::to_owned).collect(), own)
}

#[test]
fn printed_entries_are_the_same_configuration() {
    let live = node(FILE).expect("legal");
    let (ports, own) = configured(WHOLE, &live, &Overlay::default());
    let printed = yaml(&entries(&ports, &own, &live));
    assert!(!printed.contains("hush"), "{printed}");
    assert_eq!(configured(&printed, &live, &own), (ports, own), "{printed}");
    let nothing = entries(&[], &Overlay::default(), &live);
    assert_eq!(yaml(&nothing), "ports: []\n");
}

#[test]
fn every_key_has_its_difference() {
    let live = node(FILE).expect("legal");
    let before = configured(WHOLE, &live, &Overlay::default());
    let compared = |text: &str| {
        let after = configured(text, &live, &before.1);
        let of = |it: &(Vec<String>, Overlay)| (it.0.clone(), it.1.clone());
        let ((ports, own), (new_ports, new)) = (of(&before), of(&after));
        difference((&ports, &own), (&new_ports, &new), &live).lines()
    };
    assert_eq!(compared(WHOLE), [""; 0]);
    for (from, to, lines) in [
        ("lan, ", "", &["- ports: lan"][..]),
        (
            "metric 7",
            "metric 8",
            &[
                "- routes: 198.51.100.0/24 via 192.0.2.2 dev eth0 table 100 metric 7 owner sidestep",
                "+ routes: 198.51.100.0/24 via 192.0.2.2 dev eth0 table 100 metric 8 owner sidestep",
            ],
        ),
        (
            "inside eth1",
            "inside eth0",
            &["- domain: inside eth1", "+ domain: inside eth0"],
        ),
        ("oam_rate: 10", "", &["- oam_rate: 10"]),
        (
            "local_srh: linux",
            "local_srh: drop",
            &["- local_srh: linux"],
        ),
        (
            "fragment_rate: 0",
            "fragment_rate: 9",
            &["- fragment_rate: 0", "+ fragment_rate: 9"],
        ),
        (
            "hush",
            "shout",
            &[
                "- hmac: 7: {algorithm: sha256, the running secret}",
                "+ hmac: 7: {algorithm: sha256, another secret}",
            ],
        ),
        (
            "sha256, secret: \"hush\"",
            "sha1, secret: \"hush\"",
            &[
                "- hmac: 7: {algorithm: sha256}",
                "+ hmac: 7: {algorithm: sha1}",
            ],
        ),
        // The running secret stays.
        (", secret: \"hush\"", "", &[]),
    ] {
        assert_eq!(compared(&WHOLE.replace(from, to)), lines, "{from}");
    }
    // An item that is there twice, and once.
    let twice = "rules: [iif eth0 lookup 100 priority 5, iif eth0 lookup 100 priority 5]";
    let once = "rules: [iif eth0 lookup 100 priority 5]";
    let (twice, once) = [twice, once]
        .map(|text| configured(text, &live, &Overlay::default()))
        .into();
    let lines = difference((&[], &twice.1), (&[], &once.1), &live).lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn changes_apply_to_entries_that_have_changed_too() {
    let entry = |line: &str| {
        let (key, value) = line.split_once(": ").expect("a key");
        let (key, value) = (key.into(), value.into());
        Entry { key, value }
    };
    let all = |lines: &[&str]| lines.iter().map(|line| entry(line)).collect::<Vec<_>>();
    let changes = Difference {
        removed: all(&["routes: gone", "routes: gone already"]),
        added: all(&["ports: new", "routes: there already", "routes: new"]),
    };
    let file = all(&[
        "ports: eth0",
        "routes: gone",
        "routes: there already",
        "oam_rate: 5",
    ]);
    let expected = all(&[
        "ports: eth0",
        "ports: new",
        "routes: there already",
        "routes: new",
        "oam_rate: 5",
    ]);
    assert_eq!(merged(file, &changes), expected);
}
