//! Output about SR proxies: counters of both directions, learned headers, service ports; as text
//! and as equivalent JSON.

use serde_json::{Value, json};
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::FrameSocket;

use crate::support::frames;
use crate::support::service::{Direction, SERVICE, Served, headend, outer};
use crate::support::{ROUTER, begin, eventually, explain, modes, report};

const FORTH: Direction = Direction::Forth;
/// SIDs of the proxies for [`FORTH`] and for the opposite direction.
const SIDS: [&str; 2] = [
    "fc00:5::f/128 encap seg6local action End.AD oif vnf0 iif vnf1 nh6 fc00:d::2 liveness link dev vnf0",
    "fc00:5::b/128 encap seg6local action End.AM oif vnf1 iif vnf0 nh6 fc00:e::2 dev vnf1",
];

fn shown(served: &Served, sid: &str) -> report::Route {
    let routes: report::Routes = report(served.star.router(), Request::ShowRoutes { all: false });
    let found = routes.into_iter().find(|route| route.prefix == sid);
    found.unwrap_or_else(|| panic!("no {sid}"))
}

fn back(served: &Served, sid: &str) -> report::ReturnPath {
    shown(served, sid).return_path.expect("the SID of a proxy")
}

/// A frame that the service returns to the router.
fn from_service(served: &Served, packet: &[u8]) -> Vec<u8> {
    let [to, from] = [(ROUTER, "vnf1"), (SERVICE, "eth1")];
    let mac = |(node, port)| served.star.mac(node, port);
    frames::ethernet(mac(to), mac(from), packet)
}

#[test]
fn what_comes_back_is_counted_apart_and_what_it_gets_is_shown_with_its_age() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("liveshown");
        let _daemon = served.run(mode);
        for sid in SIDS {
            served.add(sid);
        }
        let sid = "fc00:5::f/128";
        let [from, to] = FORTH.inner6();
        let inner = frames::udp(from, to, 64, b"shown");
        let frame = from_service(&served, &inner);

        // Before anything is learned.
        assert_eq!(back(&served, sid).learned, []);
        let (verdict, ..) = explain(served.star.router(), "vnf1", &frame);
        assert_eq!(verdict, "drop");
        let service = FrameSocket::open(served.service(), "eth1").expect("a packet socket");
        service.send(&frame).expect("send");
        let before = eventually("a packet without learned headers", || {
            Some(back(&served, sid)).filter(|back| back.not_learned > 0)
        });
        assert_eq!((before.errors, before.not_learned), (1, 1), "{mode}");
        assert_eq!((before.packets, before.port.as_str()), (0, "vnf1"));

        // Packets to the service and returned packets have separate counters.
        let outer_packet = served.to_proxy(FORTH, &inner);
        served.cross(FORTH, &outer_packet);
        let (there, back_before) = (shown(&served, sid), back(&served, sid));
        let sockets = FORTH.hosts().map(|host| served.star.socket(host));
        for _ in 0..20 {
            sockets[0].send(&outer_packet).expect("send");
            let arrived = sockets[1]
                .receive(crate::support::PATIENCE)
                .expect("receive");
            assert!(arrived.is_some(), "{mode}");
        }
        let (there_now, back_now) = (shown(&served, sid), back(&served, sid));
        let counted = |now: u64, before: u64| now - before;
        assert_eq!(counted(there_now.packets, there.packets), 20);
        assert_eq!(counted(back_now.packets, back_before.packets), 20);
        let bytes = counted(there_now.bytes, there.bytes);
        assert_eq!(bytes, 20 * (outer_packet.len() as u64 - 14));
        let bytes = counted(back_now.bytes, back_before.bytes);
        assert_eq!(bytes, 20 * inner.len() as u64);
        assert_eq!(there_now.errors, there.errors);
        assert_eq!(back_now.errors, 1);

        learned_is_shown(&served, sid, &back_now);
        would_be_restored(&served, &frame, &inner);
        json_has_it_all(&served);
    }
}

fn learned_is_shown(served: &Served, sid: &str, now: &report::ReturnPath) {
    let [learned] = &now.learned[..] else {
        panic!("{now:?}");
    };
    let [from, sid_text, next] = [headend(), FORTH.sid(), FORTH.next()].map(|it| it.to_string());
    assert_eq!(learned.bytes, 80);
    assert_eq!(
        learned.headers,
        json!([
            {"header": "IPv6", "source": from, "destination": next, "next_header": 43, "hop_limit": 63},
            {"header": "SRH", "next_header": 41, "segments_left": 0, "last_entry": 1, "flags": 0, "tag": 0,
             "segment_list": [next, sid_text]},
        ])
    );
    let text = format!(
        "IPv6 source {from}, destination {next}, hop limit 63; SRH segments left 0, segment list {next},{sid_text}"
    );
    assert_eq!(learned.text, text);
    // Packets with the same headers do not update the header set.
    let later = eventually("the learned headers are older", || {
        let later = back(served, sid).learned;
        (later[0].age > learned.age + 20).then_some(later)
    });
    assert_eq!(later[0].headers, learned.headers);
    let table = served.sidestep("route show -s");
    let lines: Vec<&str> = table.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.ends_with("return path on vnf1, 1 before anything was learned"))
        .unwrap_or_else(|| panic!("{table}"));
    assert!(lines[at - 1].contains("fc00:5::f encap"), "{table}");
    let line = lines[at + 1].trim_start();
    assert!(
        line.starts_with("learned ") && line.ends_with(&text),
        "{table}"
    );

    // A packet with other outer headers replaces the header set.
    let [near, _] = FORTH.hosts().map(|host| served.star.socket(host));
    let [from, to] = FORTH.inner6();
    let inner = frames::udp(from, to, 64, b"shown");
    let mut other = served.to_proxy(FORTH, &inner);
    // The last byte of the source.
    other[14 + 23] = 7;
    near.send(&other).expect("send");
    eventually("the other chain is shown", || {
        let now = back(served, sid).learned;
        (now[0].headers[0]["source"] == "fc00:99::7" && now[0].age < later[0].age).then_some(())
    });
    near.send(&served.to_proxy(FORTH, &inner)).expect("send");
    eventually("the first chain is shown again", || {
        let now = back(served, sid).learned;
        (now[0].headers == later[0].headers).then_some(())
    });
}

/// `explain` applies the learned headers of the live path to a returned packet.
fn would_be_restored(served: &Served, frame: &[u8], inner: &[u8]) {
    let (verdict, egress, left) = explain(served.star.router(), "vnf1", frame);
    assert_eq!((verdict.as_str(), egress.as_str()), ("forward", "eth1"));
    let mut carried = inner.to_vec();
    carried[7] -= 1;
    let mut expected = outer(FORTH.next(), 63, FORTH, 0, &carried);
    let left = hex::decode(left).expect("hexadecimal");
    // The flow label is computed from the inner packet (RFC 6437).
    expected[1..4].copy_from_slice(&left[15..18]);
    assert_eq!(left, served.at_the_end(FORTH, &expected));
    let words = ["explain", "--port", "vnf1", "--frame"].join(" ");
    let explained = served.sidestep(&format!("{words} {}", crate::support::hex(frame)));
    assert!(
        explained.contains("learned headers of 80 bytes, destination fc00:bb::1"),
        "{explained}"
    );
}

/// The command's JSON is the daemon's report, with these fields.
fn json_has_it_all(served: &Served) {
    let asked = |words: &str| -> Value {
        serde_json::from_str(&served.sidestep(words))
            .unwrap_or_else(|error| panic!("{words}: {error}"))
    };
    let routes = asked("route show -j");
    let of = |sid: &str| {
        let routes = routes.as_array().expect("a list");
        let found = routes.iter().find(|route| route["prefix"] == sid);
        found.unwrap_or_else(|| panic!("{routes:?}")).clone()
    };
    let dynamic = of("fc00:5::f/128");
    assert_eq!(dynamic["service"]["state"], "up");
    assert_eq!(dynamic["return_path"]["port"], "vnf1");
    assert_eq!(dynamic["return_path"]["learned"][0]["bytes"], 80);
    let masquerading = of("fc00:5::b/128");
    assert_eq!(masquerading["service"], Value::Null);
    let none = json!({"port": "vnf0", "packets": 0, "bytes": 0, "errors": 0, "not_learned": 0, "no_srh": 0, "learned": [], "flows": null});
    assert_eq!(masquerading["return_path"], none);

    let ports = asked("show ports -j");
    let proxies = |name: &str| {
        let ports = ports.as_array().expect("a list");
        let found = ports.iter().find(|port| port["name"] == name);
        found.expect("the port")["proxies"].clone()
    };
    let proxy = |number: usize, out: bool| {
        let (sid, behavior) = [("fc00:5::b/128", "End.AM"), ("fc00:5::f/128", "End.AD")][number];
        json!({"sid": sid, "table": 254, "behavior": behavior, "to_service": out, "from_service": !out})
    };
    assert_eq!(proxies("vnf0"), json!([proxy(0, false), proxy(1, true)]));
    assert_eq!(proxies("vnf1"), json!([proxy(0, true), proxy(1, false)]));
    assert_eq!(proxies("eth0"), json!([]));
    let table = served.sidestep("show ports");
    assert!(
        table.contains("from the service of End.AD fc00:5::f/128"),
        "{table}"
    );
}
