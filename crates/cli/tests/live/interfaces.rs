//! Interfaces that change while Sidestep runs: moved to another namespace and back, and given to a
//! bridge. Nothing remains attached to an interface that is no port any more.

use std::collections::BTreeSet;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Namespace;
use sidestep_testkit::capability::skip;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::napi::Napi;

use crate::support::frames::{Mac, ethernet, to_mac, udp};
use crate::support::left::traces;
use crate::support::{ROUTER, Star, begin, counters, eventually, report, target_of};

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
