//! Attached interfaces: virtual private wires between the hosts of two sites.

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{FrameSocket, Namespace};

use crate::ether::{SECOND, SITES, Sites, frame, frames};
use crate::support::hosts::transfer;
use crate::support::ip::Ip;
use crate::support::{Daemon, begin, eventually, output, printed, report, text_of};

/// Two sites whose edges have the device `wire` toward each other, and no bridge.
struct Wires {
    /// End before their namespaces.
    _daemons: Vec<Daemon>,
    sites: Sites,
}

impl Wires {
    fn new(topic: &str) -> Self {
        let sites = Sites::new(topic);
        let mut daemons = Vec::new();
        for (site, other) in SITES.iter().zip(["2", "1"]) {
            let edge = sites.edge(site);
            Ip::new(edge).all(["link set cust nomaster", "link del br0"]);
            daemons.push(Daemon::start(edge, &["core"]));
            let list = format!("fc00:{other}::d2");
            printed(edge, &["ether", "add", "wire", "segs", &list]);
            let sid = format!(
                "route add fc00:{site}::d2/128 encap seg6local action End.DX2 oif wire dev core"
            );
            printed(edge, &sid.split(' ').collect::<Vec<_>>());
        }
        for site in SITES {
            eventually("a path", || {
                let devices: report::Ethers = report(sites.edge(site), Request::ShowEthers);
                devices[0].invalid.is_none().then_some(())
            });
        }
        Self {
            _daemons: daemons,
            sites,
        }
    }

    /// Attaches these frames of the interface to the host of a site.
    fn attach_at(&self, site: &str, frames: &str) {
        let words = format!("ether attach cust {frames} to wire");
        let words: Vec<&str> = words.split_whitespace().collect();
        printed(self.sites.edge(site), &words);
    }

    fn attach(&self, frames: &str) {
        for site in SITES {
            self.attach_at(site, frames);
        }
    }

    fn hosts(&self) -> [&Namespace; 2] {
        ["h1", "h2"].map(|host| self.sites.node(host))
    }
}

/// Asserts that a frame crosses in both directions, or in none.
fn crosses([a, b]: [&FrameSocket; 2], kind: &str, frame: &[u8], expected: bool) {
    for (from, to) in [(a, b), (b, a)] {
        to.drain().expect("receive");
        from.send(frame).expect("send");
        let patience = if expected { SECOND } else { SECOND / 10 };
        let found = to.receive(patience).expect("receive");
        let wanted = expected.then(|| frame.to_vec());
        assert_eq!(found, wanted, "{kind}");
    }
}

#[test]
fn an_attached_interface_is_a_wire_to_the_other_site() {
    let Some(_turn) = begin() else { return };
    let wires = Wires::new("liveetherwire");
    let sites = &wires.sites;
    wires.attach("all");
    let [a, b] = ["h1", "h2"].map(|host| sites.socket(host));
    let both = [&a, &b];
    for (kind, frame) in frames() {
        crosses(both, kind, &frame, true);
    }
    let devices: report::Ethers = report(sites.edge("1"), Request::ShowEthers);
    let number = frames().len() as u64;
    let counted = (
        devices[0].encapsulated_packets,
        devices[0].delivered_packets,
    );
    assert_eq!(counted, (number, number));
    let status = printed(sites.edge("1"), &["show", "status"]);
    assert!(!status.contains("ether_"), "{status}");
    let pause = frame(b"\x88\x08\x00\x01", 60);
    let lldp = [&[0x01, 0x80, 0xc2, 0, 0, 0x0e][..], &pause[6..]].concat();
    let pause = [&[0x01, 0x80, 0xc2, 0, 0, 0x01][..], &pause[6..]].concat();
    crosses(both, "a reserved address", &lldp, true);
    crosses(both, "a pause frame", &pause, false);
    wires.attach("vlan 42");
    let tagged = |vid: u8| frame(&[0x81, 0, 0, vid, 0x88, 0xb5], 68);
    crosses(both, "the VLAN", &tagged(42), true);
    crosses(both, "another VLAN", &tagged(43), false);
    crosses(both, "no VLAN", &frame(b"\x88\xb5", 60), false);
    let refused = output(
        sites.edge("1"),
        &["ether", "attach", "core", "all", "to", "wire"],
    );
    let why = text_of(&refused);
    assert!(
        why.contains("core cannot be attached: it is a port that routes"),
        "{why}"
    );
    printed(sites.edge("1"), &["ether", "detach", "wire"]);
    crosses(both, "a detached interface", &frame(b"\x88\xb5", 60), false);
}

#[test]
fn tags_of_attached_frames_are_removed_changed_and_added_on_the_way() {
    let Some(_turn) = begin() else { return };
    let wires = Wires::new("liveethertags");
    let [a, b] = ["h1", "h2"].map(|host| wires.sites.socket(host));
    let plain = frame(b"\x88\xb5", 64);
    let tagged = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
    for (here, there, at_a, at_b) in [
        (
            "vlan 42 rewrite pop",
            "untagged",
            tagged(&[0x81, 0, 0, 42]),
            tagged(&[]),
        ),
        (
            "vlan 42 rewrite translate 44",
            "vlan 44",
            tagged(&[0x81, 0, 0xa0, 42]),
            tagged(&[0x81, 0, 0xa0, 44]),
        ),
        (
            "all rewrite push 9",
            "vlan 9 inner 42",
            tagged(&[0x81, 0, 0, 42]),
            tagged(&[0x81, 0, 0, 9, 0x81, 0, 0, 42]),
        ),
    ] {
        wires.attach_at("1", here);
        wires.attach_at("2", there);
        for (from, sent, to, arrives) in [(&a, &at_a, &b, &at_b), (&b, &at_b, &a, &at_a)] {
            to.drain().expect("receive");
            from.send(sent).expect("send");
            let found = to.receive(SECOND).expect("receive");
            assert_eq!(found.as_ref(), Some(arrives), "{here}, {there}");
        }
    }
}

#[test]
fn hosts_at_a_wire_send_tcp_and_learn_a_smaller_mtu() {
    let Some(_turn) = begin() else { return };
    let wires = Wires::new("liveethermtu");
    wires.attach("all");
    let hosts = wires.hosts();
    for (host, site) in hosts.iter().zip(SITES) {
        host.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0")
            .expect("a sysctl");
        Ip::new(host).all([
            "link set eth0 mtu 1500",
            &format!("address add 10.0.0.{site}/24 dev eth0"),
            &format!("address add 2001:db8::{site}/64 dev eth0 nodad"),
        ]);
    }
    let addresses = ["10.0.0.2", "2001:db8::2"];
    // Senders may leave segmentation and checksums to the receiver.
    for address in addresses {
        transfer(hosts[0], hosts[1], address.parse().expect("an address"));
    }
    // 1500 octets less IPv6, an SRH with one segment and the Ethernet header.
    Ip::new(wires.sites.edge("1")).all(["link set core mtu 1500"]);
    Ip::new(wires.sites.node("p")).all(["link set left mtu 1500"]);
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        hosts[0].exec(&words).unwrap_or_default()
    };
    for address in addresses {
        eventually("a smaller MTU", || {
            run(&format!("ping -c 1 -W 1 -M do -s 1452 {address}"));
            let route = run(&format!("ip route get {address}"));
            route.contains("mtu 1422").then_some(())
        });
        transfer(hosts[0], hosts[1], address.parse().expect("an address"));
    }
    let sent: report::Icmp = report(wires.sites.edge("1"), Request::ShowIcmp);
    assert!(sent.sent["packet_too_big"] >= 2, "{:?}", sent.sent);
}
