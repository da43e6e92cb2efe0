//! Links, addresses, neighbors, rules and settings.

mod common;

use common::{
    assert_current, batch, in_namespace, index, ip, lines, sysctl, try_ip, two_pairs, until,
};
use sidestep_mirror::Mirror;
use sidestep_model::node::{LinkKind, Mac, TableId};
use sidestep_model::route::{Family, RuleAction};

#[test]
fn links_have_their_kind_and_follow_changes() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        batch(
            "link add br0 type bridge
             link set br0 up
             link set vb master br0
             link set va mtu 1400
             link set vc address 02:00:00:00:00:0c
             tuntap add dev tap0 mode tap
             tuntap add dev tun0 mode tun",
        );
        let optional = [
            ("vlan7", "link add link va name vlan7 type vlan id 7"),
            (
                "vlan8",
                "link add link va name vlan8 type vlan proto 802.1ad id 8",
            ),
            ("red", "link add red type vrf table 100"),
            ("bond0", "link add bond0 type bond"),
            (
                "gre6",
                "link add gre6 type ip6gre local fc00:1::1 remote fc00:1::2",
            ),
        ];
        let made: Vec<&str> = optional
            .iter()
            .filter(|(_, command)| try_ip(command).status.success())
            .map(|(name, _)| *name)
            .collect();
        eprintln!("skipped: this kernel supports only {made:?}");
        until(&mut mirror, "links", |node| {
            node.link_by_name("tun0").is_some()
                && made.last().is_none_or(|it| node.link_by_name(it).is_some())
        });
        let kind = |name| mirror.node().link_by_name(name).unwrap().kind.clone();
        assert_eq!(kind("lo"), LinkKind::Loopback);
        assert_eq!(kind("va"), LinkKind::Veth);
        assert_eq!(kind("br0"), LinkKind::Bridge);
        assert_eq!(kind("tap0"), LinkKind::Tap);
        assert_eq!(kind("tun0"), LinkKind::NotEthernet("tun".to_owned()));
        let link = index(&mirror, "va");
        for (name, expected) in [
            (
                "vlan7",
                LinkKind::Vlan {
                    link,
                    id: 7,
                    protocol: 0x8100,
                },
            ),
            (
                "vlan8",
                LinkKind::Vlan {
                    link,
                    id: 8,
                    protocol: 0x88a8,
                },
            ),
            (
                "red",
                LinkKind::Vrf {
                    table: TableId(100),
                },
            ),
            ("bond0", LinkKind::Bond),
            ("gre6", LinkKind::NotEthernet("ip6gre".to_owned())),
        ] {
            assert!(!made.contains(&name) || kind(name) == expected, "{name}");
        }
        let node = mirror.node();
        let get = |name| node.link_by_name(name).unwrap();
        assert_eq!(get("vb").master, Some(get("br0").ifindex));
        assert_eq!(get("va").mtu, 1400);
        assert_eq!(get("vc").mac, Mac([2, 0, 0, 0, 0, 12]));
        assert!(get("va").up && !get("tap0").up);
        assert_current(&mut mirror, "with all kinds");
        // The bridge reports the port as deleted, but the link still exists.
        batch(
            "link set vb nomaster\nlink set vc down\nlink set vc name renamed\nlink set renamed up",
        );
        until(&mut mirror, "left the bridge", |node| {
            node.link_by_name("vb")
                .is_some_and(|it| it.master.is_none())
                && node.link_by_name("renamed").is_some()
        });
        assert_current(&mut mirror, "after leaving a bridge");
        ip("link del va");
        until(&mut mirror, "deleted", |node| {
            node.link_by_name("vb").is_none()
        });
        assert_current(&mut mirror, "after a pair was deleted");
    });
}

#[test]
fn addresses_are_added_and_removed() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let va = index(&mirror, "va");
        batch(
            "addr add 10.9.0.1 peer 10.9.0.2/32 dev va
             addr add 10.9.0.1 peer 10.9.0.3/32 dev va
             -6 addr add fc00:9::1/64 dev va nodad
             -6 addr add fc00:9::2 peer fc00:9::3/128 dev va nodad",
        );
        let own = (va, "10.9.0.1/32".parse().unwrap());
        let peer6 = (va, "fc00:9::2/128".parse().unwrap());
        until(&mut mirror, "added", |node| node.addresses.contains(&peer6));
        assert!(mirror.node().addresses.contains(&own));
        assert_current(&mut mirror, "with peers");
        ip("addr del 10.9.0.1 peer 10.9.0.2/32 dev va");
        assert_current(&mut mirror, "after one of two peers");
        assert!(mirror.node().addresses.contains(&own));
        ip("addr del 10.9.0.1 peer 10.9.0.3/32 dev va");
        let changes = until(&mut mirror, "removed", |node| {
            !node.addresses.contains(&own)
        });
        assert!(changes.other);
        assert_current(&mut mirror, "after both");
    });
}

#[test]
fn a_tentative_address_is_mirrored_when_it_is_assigned() {
    in_namespace(|| {
        two_pairs();
        sysctl("ipv6/conf/va/accept_dad", "1");
        ip("-6 addr add fc00:9::1/64 dev va");
        let mut mirror = Mirror::open().unwrap();
        let own = (index(&mirror, "va"), "fc00:9::1/64".parse().unwrap());
        assert!(!mirror.node().addresses.contains(&own));
        until(&mut mirror, "assigned", |node| {
            node.addresses.contains(&own)
        });
    });
}

#[test]
fn neighbors_are_mirrored_while_they_are_usable() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let va = index(&mirror, "va");
        batch(
            "neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev va
             neigh add 10.1.0.3 lladdr 02:00:00:00:00:03 dev va nud stale
             -6 neigh add fc00:1::2 lladdr 02:00:00:00:00:02 dev va nud reachable
             -6 neigh add fc00:1::3 lladdr 02:00:00:00:00:03 dev va nud noarp
             -6 neigh add proxy fc00:1::4 dev va
             neigh add 10.1.0.9 dev va nud failed",
        );
        let key = |address: &str| (va, address.parse().unwrap());
        until(&mut mirror, "added", |node| {
            node.neighbors.contains_key(&key("fc00:1::3"))
        });
        let node = mirror.node();
        assert_eq!(node.neighbors.len(), 4, "{:#?}", node.neighbors);
        assert!(node.neighbors[&key("10.1.0.2")].permanent);
        assert!(!node.neighbors[&key("10.1.0.3")].permanent);
        assert_eq!(
            node.neighbors[&key("fc00:1::2")].lladdr,
            Some(Mac([2, 0, 0, 0, 0, 2]))
        );
        assert!(node.neighbors[&key("fc00:1::3")].permanent);
        assert_current(&mut mirror, "with neighbors");
        ip("neigh replace 10.1.0.2 lladdr 02:00:00:00:00:99 dev va");
        until(&mut mirror, "another address", |node| {
            node.neighbors[&key("10.1.0.2")].lladdr == Some(Mac([2, 0, 0, 0, 0, 0x99]))
        });
        ip("neigh del 10.1.0.2 dev va");
        until(&mut mirror, "deleted", |node| {
            !node.neighbors.contains_key(&key("10.1.0.2"))
        });
        ip("link set va down");
        until(&mut mirror, "down", |node| node.neighbors.is_empty());
        assert_current(&mut mirror, "without neighbors");
    });
}

#[test]
fn other_names_of_links_are_mirrored() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let long = "enp0s5-a-name-of-more-than-fifteen-bytes";
        ip(&format!(
            "link property add dev va altname enp0s5 altname {long}"
        ));
        until(&mut mirror, "added", |node| {
            let link = node.link_by_name(long);
            link.is_some_and(|link| link.name == "va" && link.is_named("enp0s5"))
        });
        assert_current(&mut mirror, "with two other names");
        ip("link property del dev va altname enp0s5");
        until(&mut mirror, "removed", |node| {
            node.link_by_name("enp0s5").is_none()
        });
        assert_current(&mut mirror, "with one other name");
    });
}

#[test]
fn a_rule_refers_to_a_link_by_the_name_that_it_had_when_the_rule_was_added() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        batch(
            "link property add dev va altname enp0s5
             -6 rule add pref 100 iif enp0s5 lookup 100
             -6 rule add pref 101 oif enp0s5 lookup 101
             -6 rule add pref 102 iif enp0s6 lookup 102
             link property add dev vc altname enp0s6",
        );
        let names = |mirror: &mut Mirror| -> Vec<Option<String>> {
            mirror.process().unwrap();
            let rules = (100..103).map(|pref| &mirror.node().rules[&(Family::V6, pref)][0]);
            rules
                .map(|rule| rule.iif.clone().or_else(|| rule.oif.clone()))
                .collect()
        };
        let are = |mirror: &mut Mirror, expected: [&str; 3]| {
            assert_eq!(names(mirror), expected.map(|name| Some(name.to_owned())));
            assert_current(mirror, "with rules by other names");
        };
        are(&mut mirror, ["va", "va", "enp0s6"]);
        // The rule stays with the link when the name goes.
        ip("link property del dev va altname enp0s5");
        assert_eq!(names(&mut mirror)[0].as_deref(), Some("va"));
        ip("link property add dev va altname enp0s5");
        // The kernel compares rules only with the new name.
        ip("link set va down");
        ip("link set va name vz");
        are(&mut mirror, ["enp0s5", "enp0s5", "enp0s6"]);
        batch(
            "-6 rule del pref 100
             -6 rule add pref 100 iif enp0s5 lookup 100",
        );
        are(&mut mirror, ["vz", "enp0s5", "enp0s6"]);
        ip("link del vz");
        are(&mut mirror, ["enp0s5", "enp0s5", "enp0s6"]);
    });
}

#[test]
fn rules_keep_their_order_and_report_unsupported_parts() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        assert_eq!(
            mirror.node().rules[&(Family::V4, 0)][0].action,
            RuleAction::Table(TableId::LOCAL)
        );
        assert_eq!(
            mirror.node().rules[&(Family::V6, 32766)][0].action,
            RuleAction::Table(TableId::MAIN)
        );
        batch(
            "-6 rule add pref 100 from fc00:1::/32 to fc00:2::/32 iif va table 1000
             -6 rule add pref 100 not iif nowhere lookup 7
             -6 rule add pref 100 fwmark 0x10/0xff lookup 8
             -6 rule add pref 100 fwmark 0x11/0xff lookup 8
             -6 rule add pref 101 oif vc blackhole
             -6 rule add pref 102 unreachable
             -6 rule add pref 103 prohibit
             -6 rule add pref 104 goto 32766
             -6 rule add pref 105 ipproto tcp dport 80 lookup 9
             -6 rule add pref 106 lookup main suppress_prefixlength 0
             -6 rule add pref 107 uidrange 1-2 lookup 9
             -6 rule add pref 108 tos 0x10 lookup 9
             rule add pref 100 from 192.0.2.0/24 lookup 1000",
        );
        let l3mdev = try_ip("-6 rule add pref 1000 l3mdev").status.success();
        until(&mut mirror, "the rules", |node| {
            node.rules.contains_key(&(Family::V4, 100))
        });
        mirror.process().unwrap();
        let rules = &mirror.node().rules;
        let at = |priority: u32| &rules[&(Family::V6, priority)];
        assert_eq!(at(100).len(), 4);
        let first = &at(100)[0];
        assert_eq!(first.from, Some("fc00:1::/32".parse().unwrap()));
        assert_eq!(first.to, Some("fc00:2::/32".parse().unwrap()));
        assert_eq!(
            (first.iif.as_deref(), first.action),
            (Some("va"), RuleAction::Table(TableId(1000)))
        );
        assert!(first.unsupported.is_empty() && !first.invert);
        assert!(at(100)[1].invert && at(100)[1].iif.as_deref() == Some("nowhere"));
        assert_eq!(at(100)[2].unsupported, ["fwmark 16", "fwmask 255"]);
        assert_eq!(
            (at(101)[0].oif.as_deref(), at(101)[0].action),
            (Some("vc"), RuleAction::Blackhole)
        );
        assert_eq!(at(102)[0].action, RuleAction::Unreachable);
        assert_eq!(at(103)[0].action, RuleAction::Prohibit);
        assert_eq!(
            (at(104)[0].action, &at(104)[0].unsupported),
            (RuleAction::Other, &vec!["goto 32766".to_owned()])
        );
        assert_eq!(at(106)[0].suppress_prefixlength, Some(0));
        for priority in [105, 107, 108] {
            assert!(
                !at(priority)[0].unsupported.is_empty(),
                "{priority}: {:?}",
                at(priority)
            );
        }
        if l3mdev {
            assert!(at(1000)[0].l3mdev);
        } else {
            eprintln!("skipped: l3mdev, which this kernel lacks");
        }
        assert_current(&mut mirror, "with rules");
        ip("-6 rule del pref 100 fwmark 0x10/0xff lookup 8");
        until(&mut mirror, "deleted", |node| {
            node.rules[&(Family::V6, 100)].len() == 3
        });
        assert_current(&mut mirror, "after one was deleted");
        batch("-6 rule flush\n-6 rule add pref 0 lookup local");
        assert_current(&mut mirror, "after a flush");
    });
}

#[test]
fn settings_combine_as_in_the_kernel() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let va = index(&mirror, "va");
        let vc = index(&mirror, "vc");
        // The kernel notifies of these.
        sysctl("ipv6/conf/all/forwarding", "1");
        sysctl("ipv4/conf/va/forwarding", "1");
        sysctl("ipv4/conf/all/rp_filter", "1");
        sysctl("ipv4/conf/va/rp_filter", "2");
        until(&mut mirror, "forwarding", |node| {
            let (a, c) = (&node.links[&va], &node.links[&vc]);
            a.forwarding6
                && c.forwarding6
                && a.forwarding4
                && !c.forwarding4
                && a.rp_filter == 2
                && c.rp_filter == 1
        });
        assert_current(&mut mirror, "with forwarding");
        sysctl("ipv6/conf/all/forwarding", "0");
        until(&mut mirror, "no forwarding", |node| {
            !node.links[&va].forwarding6
        });
        if std::path::Path::new("/proc/sys/net/ipv6/conf/va/force_forwarding").exists() {
            sysctl("ipv6/conf/va/force_forwarding", "1");
            until(&mut mirror, "forced", |node| {
                node.links[&va].forwarding6 && !node.links[&vc].forwarding6
            });
            assert_current(&mut mirror, "with force_forwarding");
        } else {
            eprintln!("skipped: force_forwarding, which came with Linux 6.17");
        }
        // The kernel does not notify of these.
        assert!(!mirror.poll_sysctls().unwrap());
        sysctl("ipv6/conf/va/seg6_enabled", "1");
        assert!(!mirror.poll_sysctls().unwrap(), "conf/all is 0");
        sysctl("ipv6/conf/all/seg6_enabled", "1");
        assert!(mirror.poll_sysctls().unwrap());
        assert!(mirror.node().links[&va].seg6_enabled && !mirror.node().links[&vc].seg6_enabled);
        sysctl("ipv6/conf/va/seg6_require_hmac", "-1");
        sysctl("ipv6/conf/va/hop_limit", "17");
        sysctl("ipv6/seg6_flowlabel", "1");
        ip("sr tunsrc set fc00:1::1");
        assert!(mirror.poll_sysctls().unwrap());
        let node = mirror.node();
        assert_eq!(
            (node.links[&va].seg6_require_hmac, node.links[&va].hop_limit),
            (-1, 17)
        );
        assert_eq!(
            (node.seg6_flowlabel, node.tunsrc),
            (1, Some("fc00:1::1".parse().unwrap()))
        );
        assert!(!mirror.poll_sysctls().unwrap());
        sysctl("ipv6/conf/va/disable_ipv6", "1");
        assert!(mirror.poll_sysctls().unwrap());
        assert!(!mirror.node().links[&va].seg6_enabled);
        assert_current(&mut mirror, "with settings");
        sysctl("ipv6/conf/va/disable_ipv6", "0");
        // Below 1280 bytes an interface has no IPv6.
        ip("link set va mtu 1000");
        assert_current(&mut mirror, "without IPv6");
        assert!(!mirror.node().links[&va].seg6_enabled && !mirror.node().links[&va].forwarding6);
        ip("link set va mtu 1500");
        assert_current(&mut mirror, "with IPv6 again");
    });
}

#[test]
fn a_veth_accepts_redirects_if_its_peer_has_napi() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let va = index(&mirror, "va");
        let gro = |device: &str, value: &str| {
            let run = std::process::Command::new("ethtool")
                .args(["-K", device, "gro", value])
                .output();
            run.is_ok_and(|output| output.status.success())
        };
        assert!(!mirror.node().links[&va].xdp_transmit);
        if !mirror.reports_xdp_features() {
            eprintln!("skipped: this kernel does not report the features (Linux 6.3)");
            return;
        }
        if !gro("vb", "on") {
            eprintln!("skipped: needs ethtool");
            return;
        }
        until(&mut mirror, "the peer's GRO", |node| {
            node.links[&va].xdp_transmit
        });
        assert_current(&mut mirror, "with GRO");
        assert!(gro("vb", "off"));
        until(&mut mirror, "no GRO", |node| !node.links[&va].xdp_transmit);
    });
}

#[test]
fn a_poll_reads_at_most_a_few_files_per_interface() {
    in_namespace(|| {
        let mut costs = Vec::new();
        for links in [2, 200] {
            let lines = lines(links / 2, |i| {
                format!("link add p{links}x{i} type veth peer name q{links}x{i}")
            });
            batch(&lines);
            let mut mirror = Mirror::open().unwrap();
            let before = reads();
            assert!(!mirror.poll_sysctls().unwrap());
            costs.push((mirror.node().links.len() as u64, reads() - before));
        }
        let [(few, less), (many, more)] = costs[..] else {
            unreachable!("two sizes");
        };
        let each = (more - less) / (many - few);
        assert!(each <= 20, "{each} reads per interface: {costs:?}");
    });
}

/// Returns the number of read system calls of this thread.
fn reads() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").expect("proc(5)");
    let count = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    count
        .and_then(|count| count.parse().ok())
        .expect("a number")
}
