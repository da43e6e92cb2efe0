//! End.AD per flow with a real service: several senders with different outer headers, and more
//! flows than fit.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::FrameSocket;

use crate::support::frames;
use crate::support::service::{Direction, SERVICE, Served};
use crate::support::{PATIENCE, ROUTER, begin, eventually, modes, reasons, report};

const FORTH: Direction = Direction::Forth;
const SHORTLY: Duration = Duration::from_millis(50);

/// A sender: its host, the router's port to it, and its number in addresses.
const SENDERS: [(&str, &str, u16); 2] = [("a", "eth0", 1), ("c", "eth2", 2)];

fn number(prefix: &str, number: u16) -> Ipv6Addr {
    format!("{prefix}::{number:x}").parse().expect("an address")
}

/// A packet of the numbered chain with an inner flow from this UDP port, as it arrives or as it is
/// forwarded.
fn packet(chain: u16, port: u16, arrives: bool) -> Vec<u8> {
    let [from, to] = FORTH.inner6();
    let data = [&chain.to_be_bytes()[..], &port.to_be_bytes()].concat();
    let hop_limit = if arrives { 64 } else { 61 };
    let inner = frames::udp_between(from, to, [port, 5_000], hop_limit, &data);
    let next = number("fc00:bb", chain);
    let srh = frames::srh(frames::IPV6, &[FORTH.sid(), next], u8::from(arrives));
    let payload = [&srh[..], &inner].concat();
    let (destination, hop_limit) = if arrives {
        (FORTH.sid(), 64)
    } else {
        (next, 63)
    };
    frames::ipv6(
        number("fc00:99", chain),
        destination,
        frames::ROUTING,
        hop_limit,
        &payload,
    )
}

fn frame(served: &Served, (host, port, _): (&str, &str, u16), packet: &[u8]) -> Vec<u8> {
    let [to, from] = [(ROUTER, port), (host, "eth0")];
    let mac = |(node, port)| served.star.mac(node, port);
    frames::ethernet(mac(to), mac(from), packet)
}

fn start(served: &Served, mode: &str, flows: &str) -> crate::support::Daemon {
    let ports = ["eth0", "eth1", "eth2", "vnf0", "vnf1"];
    let daemon = served.star.run(&[&["--mode", mode], &ports[..]].concat());
    let [there, back] = FORTH.ports();
    served.add(&format!(
        "{}/128 encap seg6local action End.AD oif {there} iif {back} {} flows {flows} dev {there}",
        FORTH.sid(),
        FORTH.next_hop(false),
    ));
    daemon
}

fn back(served: &Served) -> report::ReturnPath {
    let routes: report::Routes = report(served.star.router(), Request::ShowRoutes { all: false });
    let [route] = &routes[..] else {
        panic!("{routes:?}");
    };
    route.return_path.clone().expect("the SID of a proxy")
}

#[test]
fn two_senders_at_once_get_each_flow_back_by_its_own_chain() {
    const FLOWS: u16 = 20;
    const ROUNDS: usize = 20;
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("livesenders");
        let _daemon = start(&served, mode, "1024");
        let far = served.star.socket("b");
        // Both senders have flows between the same customers, which differ only in ports.
        let ports = |chain: u16| (0..FLOWS).map(move |flow| 10_000 + 2 * flow + chain);
        eventually("neighbors are found", || {
            let near = served.star.socket("a");
            let first = packet(1, 9_999, true);
            near.send(&frame(&served, SENDERS[0], &first))
                .expect("send");
            far.receive(std::time::Duration::from_millis(100))
                .expect("receive")
        });
        while received(&far).is_some() {}
        let judged = thread::scope(|scope| {
            for sender in SENDERS {
                let served = &served;
                scope.spawn(move || {
                    let near = served.star.socket(sender.0);
                    for _ in 0..ROUNDS {
                        for port in ports(sender.2) {
                            let packet = packet(sender.2, port, true);
                            near.send(&frame(served, sender, &packet)).expect("send");
                        }
                    }
                });
            }
            let all = SENDERS.len() * usize::from(FLOWS) * ROUNDS;
            let mut judged = BTreeMap::<u16, usize>::new();
            for arrived in 0..all {
                let frame = far.receive(PATIENCE).expect("receive");
                let frame = frame.unwrap_or_else(|| panic!("{mode}: {arrived} of {all} arrived"));
                let data = &frame[frame.len() - 4..];
                let [chain, port] =
                    [[data[0], data[1]], [data[2], data[3]]].map(u16::from_be_bytes);
                let mut expected = packet(chain, port, false);
                // RFC 6437: computed from the inner packet.
                expected[1..4].copy_from_slice(&frame[15..18]);
                assert_eq!(frame, served.at_the_end(FORTH, &expected), "{mode}");
                *judged.entry(port).or_default() += 1;
            }
            judged
        });
        assert_eq!(judged.len(), SENDERS.len() * usize::from(FLOWS));
        assert!(judged.values().all(|&packets| packets == ROUNDS));
        let now = back(&served);
        let flows = now.flows.expect("by flow");
        assert_eq!((flows.limit, flows.evicted), (1024, 0), "{mode}");
        assert_eq!(flows.used, 2 * u32::from(FLOWS) + 1, "{mode}");
        // Both header sets are shared by all flows of their sender.
        assert_eq!(now.learned.len(), 2, "{now:?}");
    }
}

fn received(socket: &FrameSocket) -> Option<Vec<u8>> {
    socket.receive(SHORTLY).expect("receive")
}

#[test]
fn flows_beyond_the_number_evict_others_and_it_is_shown() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("liveevict");
        let _daemon = start(&served, mode, "8");
        let (near, far) = (served.star.socket("a"), served.star.socket("b"));
        let there = |port| near.send(&frame(&served, SENDERS[0], &packet(1, port, true)));
        for port in 1..=20 {
            there(port).expect("send");
        }
        let flows = eventually("all were learned", || {
            let flows = back(&served).flows.expect("by flow");
            (u64::from(flows.used) + flows.evicted == 20).then_some(flows)
        });
        assert_eq!(
            (flows.limit, flows.used, flows.evicted),
            (8, 8, 12),
            "{mode}"
        );

        // The first flow was evicted, and the last one was not.
        let service = FrameSocket::open(served.service(), "eth1").expect("a packet socket");
        let [to, from] = [(ROUTER, "vnf1"), (SERVICE, "eth1")];
        let mac = |(node, port)| served.star.mac(node, port);
        let [source, destination] = FORTH.inner6();
        let returned = |port| {
            let packet = frames::udp_between(source, destination, [port, 5_000], 63, b"back");
            frames::ethernet(mac(to), mac(from), &packet)
        };
        let missed = || {
            let all = reasons(served.star.router());
            let found = all.into_iter().find(|(_, name, _)| name == "not_learned");
            found.map_or(0, |(.., packets)| packets)
        };
        let before = missed();
        service.send(&returned(1)).expect("send");
        eventually("a packet of a flow that was evicted", || {
            (missed() > before).then_some(())
        });
        let counted = back(&served).packets;
        service.send(&returned(20)).expect("send");
        eventually("a packet of a flow that is there", || {
            (back(&served).packets > counted).then_some(())
        });
        // As printed by `explain`, which uses the headers that the live path learned.
        let explained =
            |port| crate::support::explain(served.star.router(), "vnf1", &returned(port));
        assert_eq!(explained(1).0, "drop", "{mode}");
        let (verdict, _, frame) = explained(20);
        assert_eq!(verdict, "forward", "{mode}");
        eventually("that packet, as it was explained", || {
            let received = far.receive(SHORTLY).expect("receive")?;
            (crate::support::hex(&received) == frame).then_some(())
        });

        let table = served.sidestep("route show -s");
        assert!(table.contains("8 of 8 flows, 12 evicted"), "{table}");
        assert!(
            table.contains(" s ago: IPv6 source fc00:99::1, "),
            "{table}"
        );
        let json: Value = serde_json::from_str(&served.sidestep("route show -j")).expect("JSON");
        let flows = &json[0]["return_path"]["flows"];
        assert_eq!(
            *flows,
            serde_json::json!({"limit": 8, "used": 8, "evicted": 12}),
            "{json}"
        );
    }
}
