//! The form of the kernel's configuration as FRR writes it: SIDs and segment lists in nexthop objects, link-local
//! adjacencies, and `seg6_enabled` left alone.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::{FrameSocket, Napi};

use crate::support::frames::{ROUTING, destination6, ethernet, ipv6, srh, udp};
use crate::support::{
    HOSTS, PORTS, ROUTER, Star, begin, counters, eventually, explain, modes, printed, report,
};

/// Next Header of an IPv6 packet.
const IPV6: u8 = 41;
const FAR: &str = "2001:db8:e::1";

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// A frame to `eth0` of the router, for a SID with one more segment.
fn to_sid(star: &Star, sid: &str) -> Vec<u8> {
    let inner = udp(address("fc00:a::2").into(), address(FAR).into(), 64, b"frr");
    let payload = [srh(IPV6, &[address(sid), address(FAR)], 1), inner].concat();
    let packet = ipv6(address("fc00:a::2"), address(sid), ROUTING, 64, &payload);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// A plain frame to `eth0` of the router.
fn to_far(star: &Star) -> Vec<u8> {
    let packet = udp(address("fc00:a::2").into(), address(FAR).into(), 64, b"frr");
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// The same link-local neighbor on every link.
fn link_local_neighbors(star: &Star) {
    for (host, port) in HOSTS.iter().zip(PORTS) {
        let mac = mac_text(star.mac(host, "eth0"));
        star.ip().run(&format!(
            "neighbor add fe80::2 lladdr {mac} dev {port} nud permanent"
        ));
    }
}

#[test]
fn end_x_with_a_link_local_next_hop_leaves_by_the_device_of_its_route() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefrrx");
    link_local_neighbors(&star);
    star.ip().all([
        "route add fc00:1::b/128 encap seg6local action End.X nh6 fe80::2 dev eth1",
        "route add fc00:1::c/128 encap seg6local action End.X nh6 fe80::2 dev eth2",
    ]);
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1", "eth2"]);
    for (sid, host, port) in [("fc00:1::b", "b", "eth1"), ("fc00:1::c", "c", "eth2")] {
        let frame = to_sid(&star, sid);
        let (verdict, egress, _) = explain(star.router(), "eth0", &frame);
        assert_eq!((verdict.as_str(), egress.as_str()), ("forward", port));
        let out = star.socket(host);
        star.socket("a").send(&frame).expect("send");
        eventually(&format!("the packet at {host}"), || {
            let frame = out.receive(Duration::from_millis(100)).expect("receive")?;
            (destination6(&frame) == Some(address(FAR))).then_some(())
        });
    }
}

#[test]
fn a_route_with_a_nexthop_object_is_shown_with_its_behavior_and_next_hop() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefrrshow");
    link_local_neighbors(&star);
    star.ip().all([
        "nexthop add id 15 encap seg6 mode encap segs fc00:2::e,fc00:3::d6 via fc00:b::2 dev eth1",
        "nexthop add id 16 encap seg6 mode encap segs fc00:4::e via fc00:c::2 dev eth2",
        "nexthop add id 17 group 15,3/16",
        "route add 2001:db8:e::/48 nhid 15",
        "route add 2001:db8:f::/48 nhid 17",
    ]);
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let shown = printed(star.router(), &["route", "show"]);
    let counted = printed(star.router(), &["show", "counters"]);
    for line in [
        "2001:db8:e::/48 nhid 15 encap seg6 mode encap segs fc00:2::e,fc00:3::d6 via fc00:b::2 dev eth1 metric 1024",
        "2001:db8:f::/48 nhid 17 metric 1024 nexthop encap seg6 mode encap segs fc00:2::e,fc00:3::d6 via fc00:b::2 \
         dev eth1 weight 3 nexthop encap seg6 mode encap segs fc00:4::e via fc00:c::2 dev eth2 weight 1",
    ] {
        assert!(shown.contains(line), "{shown}");
        assert!(counted.contains(line), "{counted}");
    }
    let routes: report::Routes = report(star.router(), Request::ShowRoutes { all: false });
    let found = routes.iter().find(|it| it.nhid == Some(15)).expect("it");
    let hop = report::NextHop {
        behavior: Some("H.Encaps".into()),
        segments: ["fc00:2::e", "fc00:3::d6"].map(address).into(),
        via: Some(address("fc00:b::2").into()),
        dev: Some("eth1".into()),
        weight: 1,
    };
    assert_eq!(found.next_hops, [hop]);
}

#[test]
fn routes_follow_nexthop_objects_that_the_kernel_names_alone() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefrrobject");
    let compat = "net/ipv4/nexthop_compat_mode";
    star.router().sysctl(compat, "0").expect("a sysctl");
    star.ip().all([
        "nexthop add id 1 encap seg6 mode encap segs fc00:2::e via fc00:b::2 dev eth1",
        "nexthop add id 2 encap seg6 mode encap segs fc00:3::e via fc00:c::2 dev eth2",
        "nexthop add id 10 group 1",
        "route add fc00:2::/32 via fc00:b::2 dev eth1",
        "route add fc00:3::/32 via fc00:c::2 dev eth2",
        "route add 2001:db8:e::/48 nhid 10",
    ]);
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let leaves_by = |port: &str| {
        eventually(&format!("it leaves by {port}"), || {
            let (verdict, egress, _) = explain(star.router(), "eth0", &to_far(&star));
            (verdict == "forward" && egress == port).then_some(())
        });
    };
    leaves_by("eth1");
    star.ip().run("nexthop replace id 10 group 2");
    leaves_by("eth2");
    star.ip().run("nexthop replace id 10 group 1");
    leaves_by("eth1");
    star.ip().run("nexthop replace id 1 via fc00:c::2 dev eth2");
    leaves_by("eth2");
    star.ip().run("nexthop delete id 1");
    eventually("no route", || {
        (explain(star.router(), "eth0", &to_far(&star)).0 == "punt").then_some(())
    });
}

/// Number of routes that share one nexthop object, unless `SIDESTEP_MANY_ROUTES` has another.
const ROUTES: usize = 20_000;
/// Marks the packets of a sequence.
const MARK: [u8; 4] = *b"way!";

/// Adds the sequence numbers of the packets that a host has received.
fn receive(socket: &FrameSocket, numbers: &mut BTreeSet<u32>) {
    // A link that goes down is an error of its socket once.
    while let Ok(Some(frame)) = socket.receive(Duration::ZERO) {
        let Some((head, number)) = frame.split_last_chunk::<4>() else {
            continue;
        };
        if head.ends_with(&MARK) {
            numbers.insert(u32::from_be_bytes(*number));
        }
    }
}

/// Changes the router while a packet is sent every millisecond to host `b` or `c`. Returns how long
/// after the change the last packet was sent that did not arrive at `c`, the number of packets that
/// arrived nowhere, and the number that Sidestep left to Linux.
fn switched_after(star: &Star, change: &str) -> (Duration, usize, u64) {
    let [a, b, c] = ["a", "b", "c"].map(|host| star.socket(host));
    let punted = || counters(star.router(), "eth0").punted;
    let punted_before = punted();
    let (mut sent, mut old_way, mut new_way) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut changed = None;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        if changed.is_none() && begun.elapsed() > Duration::from_millis(200) {
            if let Some(there) = change.strip_prefix("b: ") {
                let words: Vec<&str> = ["ip"].into_iter().chain(there.split(' ')).collect();
                star.host("b").exec(&words).expect("the link goes down");
            } else {
                star.ip().run(change);
            }
            changed = Some(Instant::now());
        }
        let number = sent.len() as u32;
        let data = [MARK, number.to_be_bytes()].concat();
        // Different destinations use both members of a group.
        let to = address(&format!("2001:db8:5:{:x}::1", number & 0xff));
        let packet = udp(address("fc00:a::2").into(), to.into(), 64, &data);
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
        sent.push(Instant::now());
        a.send(&frame).expect("send");
        thread::sleep(Duration::from_millis(1));
        receive(&b, &mut old_way);
        receive(&c, &mut new_way);
    }
    let changed = changed.expect("within the time");
    thread::sleep(Duration::from_millis(100));
    receive(&b, &mut old_way);
    receive(&c, &mut new_way);
    assert!(!old_way.is_empty(), "no packet took the old way");
    let other = |number: &u32| !new_way.contains(number);
    let others: Vec<u32> = (0..sent.len() as u32).filter(other).collect();
    let lost = others.iter().filter(|number| !old_way.contains(*number));
    let newest = *others.last().expect("packets before the change");
    let after = sent[newest as usize].saturating_duration_since(changed);
    (after, lost.count(), punted() - punted_before)
}

/// Changes of the way to `b` with nexthop object 3, which many routes share. Each is a name, the
/// preparation, the change (`b:` on host `b`), and the number of packets that may be lost.
const CHANGES: [(&str, &[&str], &str, usize); 6] = [
    (
        "the route of the first segment is replaced",
        &["nexthop add id 3 encap seg6 mode encap segs fc00:2::e via fc00:b::2 dev eth1"],
        "route replace fc00:2::/32 via fc00:c::2 dev eth2",
        0,
    ),
    (
        "an object is replaced",
        &["nexthop add id 3 via fc00:b::2 dev eth1"],
        "nexthop replace id 3 via fc00:c::2 dev eth2",
        0,
    ),
    (
        "an object with a segment list is replaced",
        &["nexthop add id 3 encap seg6 mode encap segs fc00:2::e via fc00:b::2 dev eth1"],
        "nexthop replace id 3 encap seg6 mode encap segs fc00:3::e via fc00:c::2 dev eth2",
        0,
    ),
    (
        "a member of a group is deleted",
        &[
            "nexthop add id 1 via fc00:b::2 dev eth1",
            "nexthop add id 2 via fc00:c::2 dev eth2",
            "nexthop add id 3 group 1/2",
        ],
        "nexthop del id 1",
        0,
    ),
    // Packets that are sent to the device while it goes down are lost in Linux, too.
    (
        "a link goes down",
        &[
            "nexthop add id 1 via fc00:b::2 dev eth1",
            "nexthop add id 2 via fc00:c::2 dev eth2",
            "nexthop add id 3 group 1/2",
        ],
        "link set eth1 down",
        20,
    ),
    (
        "the far end of a link goes down",
        &[
            "nexthop add id 1 via fc00:b::2 dev eth1",
            "nexthop add id 2 via fc00:c::2 dev eth2",
            "nexthop add id 3 group 1/2",
        ],
        "b: link set eth0 down",
        20,
    ),
];

#[test]
fn packets_leave_a_retired_way_before_its_routes_have_changed() {
    let Some(_turn) = begin() else {
        return;
    };
    let wanted = std::env::var("SIDESTEP_MANY_ROUTES").ok();
    let count = wanted.map_or(ROUTES, |text| text.parse().expect("a number of routes"));
    let mut failures = Vec::new();
    for mode in modes(&["tc", "xdp-always"]) {
        for (what, objects, change, may_be_lost) in CHANGES {
            let star = Star::new("livefrrswitch");
            let _napi = ["b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
            star.ip().all(objects.iter().copied());
            star.ip().all([
                "route add fc00:2::/32 via fc00:b::2 dev eth1",
                "route add fc00:3::/32 via fc00:c::2 dev eth2",
            ]);
            let prefix = |n: usize| {
                format!(
                    "2001:{:x}:{:x}:{:x}::/64",
                    0xdb8 + (n >> 16),
                    (n >> 8) & 0xff,
                    n & 0xff
                )
            };
            let routes: Vec<_> = (0..count)
                .map(|n| format!("route add {} nhid 3", prefix(n)))
                .collect();
            star.ip().all(routes.iter().map(String::as_str));
            let _daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
            let (after, lost, punted) = switched_after(&star, change);
            println!("{mode}, {what}: {after:?}, {lost} packets lost, {punted} punted");
            if after >= Duration::from_millis(50) || lost > may_be_lost || punted > 100 {
                failures.push((mode, what, after, lost, punted));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
