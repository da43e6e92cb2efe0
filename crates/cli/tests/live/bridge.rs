//! Frames between stations of a bridge pass beside it, and nothing that the bridge does is lost: its
//! ports and filters, learning and ageing.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{FrameSocket, Lab, LinkEnd, Namespace};

use crate::ether::Sites;
use crate::support::ip::Ip;
use crate::support::{Daemon, begin, eventually, left, report};

const SECOND: Duration = Duration::from_secs(1);
const HERE: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

/// A numbered frame of a type that no host takes.
fn frame(destination: [u8; 6], source: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [
        &destination[..],
        &source,
        b"\x88\xb5",
        &number.to_be_bytes(),
    ]
    .concat();
    frame.resize(60, 0);
    frame
}

/// Frames that a port has forwarded, and those that have left by it.
fn counted(router: &Namespace, name: &str) -> (u64, u64) {
    let counters: report::Counters = report(router, Request::ShowCounters);
    let port = counters.ports.iter().find(|port| port.name == name);
    port.map_or((0, 0), |port| (port.forwarded, port.sent_packets))
}

/// Two sites whose customer ports are ports of Sidestep, too.
fn joined(topic: &str) -> (Sites, [Daemon; 2]) {
    let sites = Sites::new(topic);
    let daemons = ["1", "2"].map(|site| sites.start_with(site, &["core", "cust"]));
    sites.joined();
    (sites, daemons)
}

fn sockets(sites: &Sites) -> [FrameSocket; 2] {
    ["h1", "h2"].map(|host| {
        let mut socket = sites.socket(host);
        socket.keep_noise(false);
        socket
    })
}

/// Sends a frame both ways until the bridges know both stations.
fn acquaint(sites: &Sites, sockets: &[FrameSocket; 2]) {
    let [a, b] = sockets;
    for (from, to, frame, way) in [
        (a, b, frame(FAR, HERE, 0), "to the far station"),
        (b, a, frame(HERE, FAR, 0), "back"),
        (a, b, frame(FAR, HERE, 0), "to the far station again"),
    ] {
        to.drain().expect("receive");
        from.send(&frame).expect("send");
        let found = to.receive(SECOND).expect("receive");
        assert_eq!(found.as_ref(), Some(&frame), "{way}");
    }
    for site in ["1", "2"] {
        eventually("both stations in the FDB", || {
            let known = sites
                .edge(site)
                .exec(&["bridge", "fdb", "show", "br", "br0"]);
            let known = known.expect("bridge");
            let both = ["02:00:00:00:00:11", "02:00:00:00:00:22"];
            both.iter().all(|mac| known.contains(mac)).then_some(())
        });
    }
}

/// Sends numbered frames, each of which must arrive once.
fn cross(from: &FrameSocket, to: &FrameSocket, addresses: ([u8; 6], [u8; 6]), count: u32) {
    to.drain().expect("receive");
    for number in 0..count {
        let sent = frame(addresses.0, addresses.1, number);
        from.send(&sent).expect("send");
        let found = to.receive(SECOND).expect("receive");
        assert_eq!(found.as_ref(), Some(&sent), "frame {number}");
    }
    assert_eq!(
        to.receive(Duration::from_millis(50)).expect("receive"),
        None
    );
}

/// Waits until frames of the first site pass beside its bridge, or no longer do.
fn beside(sites: &Sites, sockets: &[FrameSocket; 2], expected: bool) {
    let edge = sites.edge("1");
    eventually("the way of frames", || {
        let before = counted(edge, "cust").0;
        cross(&sockets[0], &sockets[1], (FAR, HERE), 10);
        (counted(edge, "cust").0 - before == if expected { 10 } else { 0 }).then_some(())
    });
}

#[test]
fn frames_of_known_stations_pass_beside_both_bridges() {
    let Some(_turn) = begin() else { return };
    let (sites, _daemons) = joined("livebeside");
    let sockets = sockets(&sites);
    acquaint(&sites, &sockets);
    let [a, b] = &sockets;
    for (from, to, addresses, ingress, egress) in
        [(a, b, (FAR, HERE), "1", "2"), (b, a, (HERE, FAR), "2", "1")]
    {
        let (ingress, egress) = (sites.edge(ingress), sites.edge(egress));
        let before = (counted(ingress, "cust").0, counted(egress, "cust").1);
        cross(from, to, addresses, 100);
        assert_eq!(counted(ingress, "cust").0 - before.0, 100);
        assert_eq!(counted(egress, "cust").1 - before.1, 100);
    }
    // An unknown station is flooded by the bridge.
    let before = counted(sites.edge("1"), "cust").0;
    cross(a, b, ([2, 0, 0, 0, 0, 0x33], HERE), 10);
    assert_eq!(counted(sites.edge("1"), "cust").0, before);
}

#[test]
fn a_station_that_sends_beside_the_bridge_does_not_age_until_it_stops() {
    let Some(_turn) = begin() else { return };
    let (sites, _daemons) = joined("livebesideage");
    let sockets = sockets(&sites);
    let edge = sites.edge("1");
    Ip::new(edge).all(["link set br0 type bridge ageing_time 200"]);
    acquaint(&sites, &sockets);
    let known = || {
        let known = edge.exec(&["bridge", "fdb", "show", "dev", "cust"]);
        known.expect("bridge").contains("02:00:00:00:00:11")
    };
    let began = Instant::now();
    let before = counted(edge, "cust").0;
    let mut number = 0;
    // The bridge of the other site also knows both stations as long as both send frames.
    while began.elapsed() < 6 * SECOND {
        cross(&sockets[0], &sockets[1], (FAR, HERE), 1);
        cross(&sockets[1], &sockets[0], (HERE, FAR), 1);
        number += 1;
        assert!(known(), "the station is gone after {:?}", began.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    let beside = counted(edge, "cust").0 - before;
    assert!(
        beside + 5 >= number,
        "{beside} of {number} frames passed beside the bridge"
    );
    eventually("a station that is silent to be forgotten", || {
        (!known()).then_some(())
    });
}

#[test]
fn frames_pass_the_bridge_while_it_has_something_to_do_with_them() {
    let Some(_turn) = begin() else { return };
    let (sites, _daemons) = joined("livebesidefilter");
    let sockets = sockets(&sites);
    acquaint(&sites, &sockets);
    beside(&sites, &sockets, true);
    let edge = sites.edge("1");
    let run = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        edge.exec(&words).expect(command);
    };
    for (begin, end) in [
        (
            "nft add table bridge filter ; add chain bridge filter in { type filter hook prerouting \
             priority 0 ; } ; add rule bridge filter in counter",
            "nft delete table bridge filter",
        ),
        (
            "nft add table netdev filter ; add chain netdev filter in { type filter hook ingress \
             device cust priority 0 ; } ; add rule netdev filter in counter",
            "nft delete table netdev filter",
        ),
        (
            "ip link set br0 type bridge nf_call_iptables 1",
            "ip link set br0 type bridge nf_call_iptables 0",
        ),
    ] {
        run(begin);
        beside(&sites, &sockets, false);
        run(end);
        beside(&sites, &sockets, true);
    }
    // A port that listens before it forwards (IEEE 802.1D 8.4).
    let sent = frame(FAR, HERE, 1);
    run("ip link set br0 type bridge stp_state 1 forward_delay 200");
    run("ip link set cust down");
    run("ip link set cust up");
    let arrives = || {
        sockets[1].drain().expect("receive");
        sockets[0].send(&sent).expect("send");
        thread::sleep(SECOND / 10);
        let mut all = std::iter::from_fn(|| sockets[1].receive_now().expect("receive"));
        all.any(|found| found == sent)
    };
    eventually("no frame from a port that listens", || {
        (!arrives()).then_some(())
    });
    eventually("a port that forwards", || arrives().then_some(()));
    run("ip link set br0 type bridge stp_state 0");
    acquaint(&sites, &sockets);
    beside(&sites, &sockets, true);
    // Two isolated ports exchange no frames.
    run("bridge link set dev cust isolated on");
    run("bridge link set dev lan0 isolated on");
    eventually("no frame between isolated ports", || {
        (!arrives()).then_some(())
    });
}

/// Ports of the switch that is compared with itself.
const PORTS: u8 = 4;

/// A bridge with one host at each port.
struct Switch(Lab);

impl Switch {
    fn new(topic: &str) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        lab.node("sw").expect("a namespace");
        for port in 0..PORTS {
            let host = format!("t{port}");
            lab.node(&host).expect("a namespace");
            let end = |node, ifname| LinkEnd {
                node,
                ifname,
                mac: None,
            };
            let ifname = format!("p{port}");
            let ends = [end(&host[..], "eth0"), end("sw", &ifname)];
            lab.link_with(ends, 1500, 1).expect("a cable");
        }
        let switch = Self(lab);
        left::remove(switch.node());
        // With it, Linux drops damaged IP packets.
        for family in ["iptables", "ip6tables", "arptables"] {
            let setting = format!("net/bridge/bridge-nf-call-{family}");
            let _ = switch.node().sysctl(&setting, "0");
        }
        let mut ip = Ip::new(switch.node());
        ip.all([
            "link add br0 type bridge mcast_snooping 0",
            "link set br0 up",
        ]);
        for port in 0..PORTS {
            ip.all([&format!("link set p{port} master br0")[..]]);
        }
        switch
    }

    fn node(&self) -> &Namespace {
        self.0.namespace("sw").expect("a node")
    }

    fn bridge(&self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        self.node().exec(&words).expect(command);
    }

    /// Sends frames, each from a port, and returns the ports by which each leaves.
    fn results(&self, frames: &[(u8, Vec<u8>)]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let sockets: Vec<FrameSocket> = (0..PORTS)
            .map(|port| {
                let host = self.0.namespace(&format!("t{port}")).expect("a node");
                let mut socket = FrameSocket::open(host, "eth0").expect("a packet socket");
                socket.keep_noise(true);
                socket
            })
            .collect();
        let mut results: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (port, frame) in frames {
            sockets[usize::from(*port)].send(frame).expect("send");
            results.insert(frame.clone(), Vec::new());
        }
        thread::sleep(Duration::from_millis(100));
        for (port, socket) in (0..PORTS).zip(&sockets) {
            while let Some(found) = socket.receive_now().expect("receive") {
                if let Some(ports) = results.get_mut(&found) {
                    ports.push(port);
                }
            }
        }
        results
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        left::remove(self.node());
    }
}

/// A generator of numbers (xorshift), so that a failure can be repeated.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }
}

#[test]
fn every_frame_leaves_a_switch_as_without_sidestep() {
    let Some(_turn) = begin() else { return };
    let switch = Switch::new("liveswitch");
    let mut numbers = Numbers(0x5de5_7e9d);
    let stations = |number: u32| [2, 0, 0, 0, 1, number as u8];
    let mut passed = 0;
    for round in 0..6 {
        for port in 0..PORTS {
            // Nothing is learned, so that the two runs have the same tables.
            let isolated = if numbers.below(3) == 0 { "on" } else { "off" };
            let flood = if numbers.below(3) == 0 { "off" } else { "on" };
            switch.bridge(&format!(
                "bridge link set dev p{port} learning off isolated {isolated} flood {flood}"
            ));
        }
        for number in 0..8 {
            let port = numbers.below(u32::from(PORTS));
            let mac = format!("02:00:00:00:01:{number:02x}");
            switch.bridge(&format!(
                "bridge fdb replace {mac} dev p{port} master static"
            ));
        }
        let frames: Vec<(u8, Vec<u8>)> = (0..300)
            .map(|number| {
                let (to, from) = (stations(numbers.below(10)), stations(numbers.below(10)));
                let to = if numbers.below(10) == 0 {
                    [0xff; 6]
                } else {
                    to
                };
                let mut frame = frame(to, from, round * 1000 + number);
                match numbers.below(6) {
                    0 => frame[12..14].copy_from_slice(b"\x08\x06"),
                    1 => frame[12..18].copy_from_slice(b"\x81\x00\x00\x2a\x88\xb5"),
                    2 => frame[12..14].copy_from_slice(b"\x08\x00"),
                    _ => {}
                }
                // The number, which the type may have replaced.
                frame[40..44].copy_from_slice(&(round * 1000 + number).to_be_bytes());
                (numbers.below(u32::from(PORTS)) as u8, frame)
            })
            .collect();
        let expected = switch.results(&frames);
        let daemon = Daemon::start(switch.node(), &["p0", "p1", "p2", "p3"]);
        let found = switch.results(&frames);
        let counters: report::Counters = report(switch.node(), Request::ShowCounters);
        passed += counters
            .ports
            .iter()
            .map(|port| port.forwarded)
            .sum::<u64>();
        let differences = expected
            .iter()
            .filter(|(frame, ports)| found[*frame] != **ports);
        let differences: Vec<_> = differences
            .map(|(frame, ports)| (&frame[..18], &frame[40..44], ports, &found[frame]))
            .collect();
        assert!(
            differences.is_empty(),
            "round {round}: {} of {}: {:?}",
            differences.len(),
            found.len(),
            &differences[..differences.len().min(4)]
        );
        daemon.signal(Signal::SIGTERM);
        daemon.end();
    }
    assert!(passed > 100, "{passed} frames passed beside the bridge");
}
