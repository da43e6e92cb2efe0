use super::*;
use crate::engine::behavior::kinds;
use crate::engine::{Case, Flows, Size};

fn case(behavior: &str, sids: u32) -> Case {
    Case {
        behavior: behavior.to_owned(),
        sids,
        size: Size::Bytes(64),
        flows: Flows::Uniform(1),
        rules: 0,
        routes: 0,
        cores: 1,
    }
}

fn commands_of(case: &Case) -> Result<Vec<String>, String> {
    of(&Behavior::of(case, 64).expect("a behavior"))
}

/// Returns the commands of a case without the commands that all cases share.
fn added(behavior: &str, sids: u32) -> Vec<String> {
    let all = commands_of(&case(behavior, sids)).expect("VPP has it");
    let shared = commands_of(&case("ipv6", 0)).expect("VPP forwards");
    // The last command adds the route for plain forwarding.
    let shared = &shared[..shared.len() - 1];
    let mut added = all;
    added.retain(|command| !shared.contains(command));
    added
}

#[test]
fn ports_have_the_addresses_that_linux_would_have() {
    assert_eq!(
        commands_of(&case("ipv6", 0)).expect("VPP forwards"),
        [
            "create host-interface name eth0 hw-addr 02:00:00:00:00:01 cksum-gso-disable",
            "set interface state host-eth0 up",
            "create host-interface name eth1 hw-addr 02:00:00:00:00:02 cksum-gso-disable",
            "set interface state host-eth1 up",
            "set interface ip address host-eth0 fc00::2/64",
            "set interface ip address host-eth0 10.0.0.2/24",
            "set interface ip address host-eth1 fc01::2/64",
            "set interface ip address host-eth1 10.1.0.2/24",
            "set ip neighbor host-eth1 fc01::1 02:00:00:00:00:12 static",
            "set ip neighbor host-eth1 10.1.0.1 02:00:00:00:00:12 static",
            "ip route add fc0b::/16 via fc01::1 host-eth1",
            "ip route add 2001:db8:d::/48 via fc01::1 host-eth1",
        ]
    );
}

#[test]
fn a_headend_becomes_a_policy_and_steering() {
    let shared = [
        "set sr encaps source addr fc01::2",
        "set sr encaps hop-limit 65",
    ];
    for (behavior, sids, policy, steer) in [
        (
            "h.encaps",
            2,
            "next fc0b::1 next fc0b::2 encap",
            "l3 2001:db8:d::/48",
        ),
        (
            "h.encaps.v4",
            2,
            "next fc0b::1 next fc0b::2 encap",
            "l3 198.51.100.0/24",
        ),
        (
            "h.encaps.red",
            1,
            "next fc0b::1 encap",
            "l3 2001:db8:d::/48",
        ),
        ("h.insert", 1, "next fc0b::1 insert", "l3 2001:db8:d::/48"),
        (
            "h.encaps.l2",
            2,
            "next fc0b::1 next fc0b::2 encap",
            "l2 host-eth0",
        ),
        ("h.encaps.l2.red", 1, "next fc0b::1 encap", "l2 host-eth0"),
    ] {
        let own = [
            format!("sr policy add bsid fc0e::1 {policy}"),
            format!("sr steer {steer} via bsid fc0e::1"),
        ];
        let expected: Vec<&str> = shared
            .into_iter()
            .chain(own.iter().map(String::as_str))
            .collect();
        assert_eq!(added(behavior, sids), expected, "{behavior}");
    }
}

#[test]
fn a_sid_becomes_a_localsid_command() {
    let sid = "sr localsid address fc0f::1 behavior";
    for (behavior, expected) in [
        ("end", vec![format!("{sid} end")]),
        ("end.psp", vec![format!("{sid} end psp")]),
        ("end.x", vec![format!("{sid} end.x host-eth1 fc01::1")]),
        (
            "end.t",
            vec![
                "ip6 table add 100".into(),
                format!("{sid} end.t 100"),
                "ip route add table 100 fc0b::/16 via fc01::1 host-eth1".into(),
            ],
        ),
        ("end.dx2", vec![format!("{sid} end.dx2 host-eth1")]),
        (
            "end.dx4",
            vec![
                format!("{sid} end.dx4 host-eth1 10.1.0.1"),
                "ip route add 192.0.2.0/24 via 10.1.0.1 host-eth1".into(),
            ],
        ),
        ("end.dx6", vec![format!("{sid} end.dx6 host-eth1 fc01::1")]),
        (
            "end.dt4",
            vec![
                "ip table add 100".into(),
                format!("{sid} end.dt4 100"),
                "ip route add table 100 198.51.100.0/24 via 10.1.0.1 host-eth1".into(),
            ],
        ),
        (
            "end.dt6",
            vec![
                format!("{sid} end.dt6 0"),
                "ip route add 2001:db8:d::/48 via fc01::1 host-eth1".into(),
            ],
        ),
        (
            "end.next-csid",
            vec![
                "sr localsid prefix fcbb:bb00:11::/48 behavior un 16".into(),
                "ip route add fcbb:bb00:b1::/48 via fc01::1 host-eth1".into(),
            ],
        ),
        (
            "end.x.next-csid",
            vec![
                "sr localsid prefix fcbb:bb00:11::/48 behavior ua 16 host-eth1 fc01::1".into(),
                "ip route add fcbb:bb00:b1::/48 via fc01::1 host-eth1".into(),
            ],
        ),
    ] {
        assert_eq!(added(behavior, 1), expected, "{behavior}");
    }
    let bound = added("end.b6.encaps", 2);
    let policy = "sr policy add bsid fc0f::1 next fc0b::1 next fc0b::2 encap";
    assert_eq!(bound.last().map(String::as_str), Some(policy));
}

#[test]
fn extra_routes_are_one_command() {
    for (behavior, expected) in [
        (
            "ipv6",
            "ip route add fd01:0:0::/48 count 300 via fc01::1 host-eth1",
        ),
        (
            "ipv4",
            "ip route add 20.0.0.0/24 count 300 via 10.1.0.1 host-eth1",
        ),
    ] {
        let crowded = Case {
            routes: 300,
            ..case(behavior, 0)
        };
        let commands = commands_of(&crowded).expect("VPP forwards");
        assert_eq!(commands.last().map(String::as_str), Some(expected));
    }
}

#[test]
fn unsupported_behaviors_are_refused_with_the_reason() {
    let ruled = Case {
        rules: 1,
        ..case("ipv6", 0)
    };
    for (case, expected) in [
        (
            case("h.encaps", 1),
            "VPP pushes one segment without an SRH (the reduced form)",
        ),
        (
            case("h.encaps.red", 2),
            "VPP has the reduced form with one segment only",
        ),
        (
            case("h.encaps", 6),
            "VPP has 128 bytes in front of a packet by default; 6 segments need 144",
        ),
        (
            case("h.encaps.l2", 5),
            "VPP has 114 bytes in front of a packet by default; 5 segments need 128",
        ),
        (case("end.usd", 1), "VPP has no End with USD"),
        (case("end.dt46", 1), "VPP has no End.DT46"),
        (case("end.hmac.sha256", 1), "VPP has no HMAC of an SRH"),
        (
            case("end.ad", 2),
            "VPP is set up without a service; its SR proxies are not supported",
        ),
        (
            ruled,
            "VPP has no rules like Linux's; its access lists are not supported",
        ),
    ] {
        assert_eq!(commands_of(&case).expect_err("refused"), expected, "{case}");
    }
    for sids in 2..=5 {
        commands_of(&case("h.encaps", sids)).expect("it has room");
    }
}

#[test]
fn every_behavior_is_translated_or_refused() {
    let mut translated = Vec::new();
    for kind in kinds().iter().filter(|kind| !kind.limit) {
        let sids = 2.clamp(*kind.sids.start(), *kind.sids.end());
        match commands_of(&case(kind.name, sids)) {
            Ok(_) => translated.push(kind.name),
            Err(why) => assert!(why.starts_with("VPP "), "{}: {why}", kind.name),
        }
    }
    assert_eq!(
        translated,
        [
            "ipv6",
            "ipv4",
            "h.encaps",
            "h.encaps.v4",
            "h.insert",
            "h.encaps.l2",
            "end",
            "end.t",
            "end.x",
            "end.x.gateway",
            "end.psp",
            "end.next-csid",
            "end.x.next-csid",
            "end.b6.encaps",
            "end.dx2",
            "end.dx4",
            "end.dx6",
            "end.dx6.gateway",
            "end.dt4",
            "end.dt6"
        ]
    );
}
