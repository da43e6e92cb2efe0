//! Interfaces that change while Sidestep runs: renamed, replaced, moved to another namespace and
//! back, enslaved, down and up, with another MTU or MAC. A port is the interface with its name.
//! Nothing remains attached to an interface that has lost the name.

use std::collections::BTreeSet;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Namespace;
use sidestep_testkit::capability::skip;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::napi::Napi;

use crate::support::frames::{ETHERNET, Mac, ethernet, icmpv6_type, to_mac, udp};
use crate::support::left::traces;
use crate::support::{
    PATIENCE, ROUTER, Star, begin, counters, eventually, explain, report, target_of,
};

/// Returns a packet of this length from host `a` to host `b`, with this destination MAC.
fn packet(star: &Star, port: Mac, length: usize) -> Vec<u8> {
    let ends = ["fc00:a::2", "fc00:b::2"].map(|text| text.parse().expect("address"));
    let data = vec![b'x'; length.saturating_sub(48)];
    ethernet(
        port,
        star.mac("a", "eth0"),
        &udp(ends[0], ends[1], 64, &data),
    )
}

/// Checks that packets from `a` to `b` arrive, and that Sidestep forwards them.
fn forwards(star: &Star, place: &str) {
    let router = star.router();
    let (a, b) = (star.socket("a"), star.socket("b"));
    let frame = packet(star, star.mac(ROUTER, "eth0"), 60);
    let before = counters(router, "eth0").forwarded;
    eventually(place, || {
        // ENOBUFS means that there is no carrier yet.
        a.send(&frame).ok()?;
        let out = b.receive(Duration::from_millis(50)).expect("receive")?;
        assert_eq!(to_mac(&out), star.mac("b", "eth0"), "{place}");
        (counters(router, "eth0").forwarded > before).then_some(())
    });
}

/// Checks that the kernel forwards without Sidestep.
fn kernel_forwards(star: &Star, port: Mac, place: &str) {
    let (a, b) = (star.socket("a"), star.socket("b"));
    a.send(&packet(star, port, 60)).expect("send");
    let out = b.receive(PATIENCE).expect("receive");
    assert!(out.is_some(), "{place}: the kernel forwards");
}

fn port(star: &Star, name: &str) -> report::Port {
    let ports: report::Ports = report(star.router(), Request::ShowPorts);
    let found = ports.into_iter().find(|port| port.name == name);
    found.expect("a port")
}

fn becomes(star: &Star, name: &str, mode: &str) {
    eventually(&format!("{name} is in mode {mode}"), || {
        (port(star, name).target == target_of(mode)).then_some(())
    });
}

/// Returns whether Sidestep's programs are on an interface (0 or 1), and the number of interfaces
/// with pinned attachments. In XDP mode a port has a program at TC, too.
fn left(namespace: &Namespace, interface: &str) -> (usize, usize) {
    let found = traces(namespace, &[interface]);
    let links = found.pins.iter().filter(|pin| pin.starts_with("link-"));
    let interfaces: BTreeSet<&str> = links.filter_map(|pin| pin.rsplit('-').next()).collect();
    (found.xdp.len().max(found.tc.len()), interfaces.len())
}

/// Configuration of `eth0` that the kernel removes when it goes down or disappears.
fn addresses(star: &Star) {
    star.ip().all([
        "link set eth0 up",
        "address replace fc00:a::1/64 dev eth0 nodad",
    ]);
    star.seg6_enabled("eth0", true);
}

#[test]
fn a_renamed_port_is_none_until_it_or_another_interface_has_the_name() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = Star::new("liverename");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        forwards(&star, mode);
        let mac = star.mac(ROUTER, "eth0");
        let rename = |from: &str, to: &str| {
            star.ip().all([
                format!("link set {from} down").as_str(),
                format!("link set {from} name {to}").as_str(),
                format!("link set {to} up").as_str(),
                format!("address replace fc00:a::1/64 dev {to} nodad").as_str(),
            ]);
        };
        rename("eth0", "wan0");
        becomes(&star, "eth0", "none");
        assert_eq!(
            port(&star, "eth0").why,
            "waits for its interface, which does not exist"
        );
        assert_eq!(left(router, "wan0"), (0, 1), "{mode}: only eth1's is left");
        kernel_forwards(&star, mac, mode);

        rename("wan0", "eth0");
        becomes(&star, "eth0", mode);
        forwards(&star, &format!("{mode}, back"));

        // Another interface takes the name at once.
        let (old, new) = ("eth0", "eth2");
        let ifindex = router.ifindex(new).expect("eth2");
        star.ip().all([
            "link set eth0 down",
            "link set eth2 down",
            "link set eth0 name old0",
            "link set eth2 name eth0",
            "link set eth0 up",
            "link set old0 up",
        ]);
        eventually("the other one is the port", || {
            let port = port(&star, old);
            (port.ifindex == Some(ifindex) && port.target == target_of(mode)).then_some(())
        });
        assert_eq!(left(router, "old0"), (0, 2), "{mode}");
        assert_eq!(left(router, "eth0"), (1, 2), "{mode}");
    }
}

#[test]
fn a_port_moved_to_another_namespace_leaves_no_program_there_and_forwards_when_it_is_back() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = Star::new("livemove");
        let router = star.router();
        let elsewhere = star.host("c");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        forwards(&star, mode);
        // The interface keeps its index there, or gets another one.
        for index in [None, Some(77)] {
            let mut words = format!("link set eth0 netns {} name away", elsewhere.name());
            if let Some(index) = index {
                words = format!("{words} index {index}");
            }
            star.ip().run(&words);
            becomes(&star, "eth0", "none");
            assert_eq!(left(router, "eth1").1, 1, "{mode}: one pin is left");
            // The kernel releases the link shortly after its last descriptor.
            eventually("no program went along", || {
                let found = traces(elsewhere, &["away"]);
                (found.xdp.is_empty() && found.tc.is_empty()).then_some(())
            });
            let back = [
                "ip",
                "link",
                "set",
                "away",
                "netns",
                router.name(),
                "name",
                "eth0",
            ];
            elsewhere.exec(&back).expect("back");
            addresses(&star);
            let mac = mac_text(star.mac("a", "eth0"));
            star.ip().run(&format!(
                "neighbor replace fc00:a::2 lladdr {mac} dev eth0 nud permanent"
            ));
            star.host("a")
                .exec(&["ip", "link", "set", "eth0", "up"])
                .expect("host a");
            becomes(&star, "eth0", mode);
            forwards(&star, &format!("{mode}, back from {index:?}"));
        }
    }
}

#[test]
fn a_port_that_is_given_to_a_bridge_leaves_its_packets_to_it_until_it_is_free() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livebridge");
    let router = star.router();
    if router
        .exec(&["ip", "link", "add", "br0", "type", "bridge"])
        .is_err()
    {
        skip("this kernel has no bridges");
        return;
    }
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    forwards(&star, "before");
    star.ip().run("link set eth0 master br0");
    eventually("a port of a bridge", || {
        let why = port(&star, "eth0").why;
        why.contains("its frames pass br0: the bridge is down")
            .then_some(())
    });
    star.ip().run("link set eth0 nomaster");
    eventually("a port again", || {
        (port(&star, "eth0").why == "as requested (--mode tc)").then_some(())
    });
    forwards(&star, "free again");
}

#[test]
fn down_and_up_another_mtu_and_another_mac_are_followed() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = Star::new("livelink");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        forwards(&star, mode);
        let frame = |length| packet(&star, star.mac(ROUTER, "eth0"), length);

        // Egress down: no packet leaves there, and the kernel sends the error.
        star.ip().run("link set eth1 down");
        eventually("eth1 is down", || {
            let (verdict, ..) = explain(router, "eth0", &frame(60));
            (verdict == "punt" && !port(&star, "eth1").up).then_some(())
        });
        let mac = mac_text(star.mac("b", "eth0"));
        star.ip().all([
            "link set eth1 up",
            "address replace fc00:b::1/64 dev eth1 nodad",
            &format!("neighbor replace fc00:b::2 lladdr {mac} dev eth1 nud permanent"),
        ]);
        forwards(&star, &format!("{mode}, up again"));
        assert_eq!(left(router, "eth1"), (1, 2), "{mode}: it stayed attached");

        // A smaller MTU: the kernel sends Packet Too Big.
        let (a, b) = (star.socket("a"), star.socket("b"));
        star.ip().run("link set eth1 mtu 1300");
        eventually("the MTU is known", || {
            (explain(router, "eth0", &frame(1400)).0 == "punt").then_some(())
        });
        assert_eq!(port(&star, "eth1").mtu, 1300);
        a.send(&frame(1400)).expect("send");
        let answer = a.receive(PATIENCE).expect("receive").expect("an answer");
        assert_eq!(icmpv6_type(&answer), Some(2), "{mode}: Packet Too Big");
        assert_eq!(answer[ETHERNET + 44..ETHERNET + 48], 1300u32.to_be_bytes());
        b.drain().expect("receive");
        a.send(&frame(1300)).expect("send");
        let out = b.receive(PATIENCE).expect("receive").expect("it fits");
        assert_eq!(out.len(), ETHERNET + 1300);
        star.ip().run("link set eth1 mtu 1500");

        // Change the MAC of the egress, then that of the ingress.
        let other = [2, 0x5e, 0, 0, 0, 1];
        // The kernel forgets the neighbors of a link whose MAC changes.
        star.ip().all([
            format!("link set eth1 address {}", mac_text(other)).as_str(),
            &format!("neighbor replace fc00:b::2 lladdr {mac} dev eth1 nud permanent"),
        ]);
        eventually("the source MAC is followed", || {
            let (verdict, _, out) = explain(router, "eth0", &frame(60));
            (verdict == "forward" && out[12..24] == crate::support::hex(&other)).then_some(())
        });
        forwards(&star, &format!("{mode}, with another source"));
        let old = star.mac(ROUTER, "eth0");
        let other = [2, 0x5e, 0, 0, 0, 2];
        star.ip()
            .run(&format!("link set eth0 address {}", mac_text(other)));
        eventually("the port's MAC is followed", || {
            let new = explain(router, "eth0", &packet(&star, other, 60)).0;
            let old = explain(router, "eth0", &packet(&star, old, 60)).0;
            (new == "forward" && old == "punt").then_some(())
        });
        b.drain().expect("receive");
        a.send(&packet(&star, other, 60)).expect("send");
        assert!(b.receive(PATIENCE).expect("receive").is_some());
    }
}

#[test]
fn the_next_instance_lets_go_of_ports_that_it_was_not_given() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = Star::new("liveless");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        daemon.signal(nix::sys::signal::Signal::SIGKILL);
        daemon.end();
        assert_eq!(left(router, "eth2"), (1, 3), "{mode}: it still forwards");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        assert_eq!(left(router, "eth2"), (0, 2), "{mode}");
        forwards(&star, mode);
    }
}
