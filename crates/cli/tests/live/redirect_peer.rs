//! TC redirects to the peers of veths (`bpf_redirect_peer`): the same bytes as by the transmit
//! path, and the return to it when something on that path is in use.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{Namespace, Napi};

use crate::support::frames::{
    CARRIES_ETHERNET, IPV4, IPV6, ROUTING, UDP, ethernet, ipv6, srh, to_mac, udp,
};
use crate::support::ip::Ip;
use crate::support::{
    PORTS, ROUTER, Star, begin, constant, counters, eventually, printed, queue_counter, reasons,
    report,
};

const SECOND: Duration = Duration::from_secs(1);
const MODE: [&str; 2] = ["--mode", "tc"];

/// Routes and SIDs of the router: a headend, End, End.DT6, End.DX4 and End.DX2.
const LINES: [&str; 6] = [
    "route add fc00:bb::/32 via fc00:b::2 dev eth1",
    "route add fc0c::/16 encap seg6 mode encap segs fc00:bb::e dev eth1",
    "route add fc0f::e/128 encap seg6local action End dev eth0",
    "route add fc0f::d6/128 encap seg6local action End.DT6 table main dev eth0",
    "route add fc0f::d4/128 encap seg6local action End.DX4 nh4 10.0.2.2 dev eth0",
    "route add fc0f::d2/128 encap seg6local action End.DX2 oif eth1 dev eth0",
];

/// Frames from `a` that leave by `eth1`, to `b`. The last two are for End.DX2. Their inner frames
/// have another Ethernet address than the peer, or another type than IP.
fn frames(star: &Star) -> Vec<Vec<u8>> {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let six = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let (a, b) = (address("fc00:a::2"), address("fc00:b::2"));
    let inner4 = udp(address("10.0.1.2"), address("10.0.2.2"), 33, b"inner");
    let inner6 = udp(a, b, 33, b"inner");
    let segments = [six("fc0f::e"), six("fc00:b::2")];
    let payload = &udp(a, b, 64, b"segments")[40..];
    let through_end = [&srh(UDP, &segments, 1)[..], payload].concat();
    let stranger = [2, 0, 0, 0, 0, 9];
    // Ethernet type for local experiments (IEEE 802).
    let addresses = [star.mac("b", "eth0"), stranger].concat();
    let no_ip = [&addresses[..], &[0x88, 0xb5], &[7; 60]].concat();
    let frame = ethernet(star.mac(ROUTER, "eth0"), stranger, &inner6);
    let to =
        |sid: &str, next: u8, payload: &[u8]| ipv6(six("fc00:a::2"), six(sid), next, 64, payload);
    let packets = [
        udp(a, b, 64, b"plain"),
        udp(address("10.0.1.2"), address("10.0.2.2"), 64, b"plain"),
        udp(a, address("fc0c::1"), 64, b"encapsulated"),
        to("fc0f::e", ROUTING, &through_end),
        to("fc0f::d6", IPV6, &inner6),
        to("fc0f::d4", IPV4, &inner4),
        to("fc0f::d2", CARRIES_ETHERNET, &no_ip),
        to("fc0f::d2", CARRIES_ETHERNET, &frame),
    ];
    let frame =
        |packet: &Vec<u8>| ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet);
    packets.iter().map(frame).collect()
}

/// Number of frames of [`frames`] whose inner frame is not for the peer.
const LAYER2: u64 = 2;

/// Returns the frames that arrive at `b`.
fn across(star: &Star, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (into, out) = (star.socket("a"), star.socket("b"));
    let one = |frame: &Vec<u8>| {
        into.send(frame).expect("send");
        let found = out.receive(SECOND).expect("receive");
        found.unwrap_or_else(|| panic!("nothing came out for {}", crate::support::hex(frame)))
    };
    frames.iter().map(one).collect()
}

/// Returns whether packets out of this port are redirected to its peer, and the reason.
fn redirect(star: &Star, port: &str) -> (bool, String) {
    let ports: report::Ports = report(star.router(), Request::ShowPorts);
    let port = ports
        .into_iter()
        .find(|it| it.name == port)
        .expect("the port");
    (
        port.redirect_peer,
        port.redirect_peer_why.unwrap_or_default(),
    )
}

fn eventually_redirects(star: &Star) {
    eventually("redirects to the peer of eth1", || {
        redirect(star, "eth1").0.then_some(())
    });
}

/// Waits until packets are not redirected for this reason.
fn eventually_ends(star: &Star, reason: &str) {
    eventually(reason, || {
        let (redirects, why) = redirect(star, "eth1");
        (!redirects && why.contains(reason)).then_some(())
    });
}

/// Opens a packet socket that captures the frames of all interfaces, as `tcpdump -i any` does.
fn capture(namespace: &Namespace) -> OwnedFd {
    let (kind, protocol) = (SockType::Raw, SockProtocol::EthAll);
    let open = || {
        socket(
            AddressFamily::Packet,
            kind,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )
    };
    let socket = namespace.run(open).expect("the namespace");
    socket.expect("a packet socket")
}

/// Adds clsact with a TC filter at one of its hooks, which returns this action for all packets.
fn add_filter(namespace: &Namespace, device: &str, hook: &str, action: u32) {
    let qdisc = ["tc", "qdisc", "add", "dev", device, "clsact"];
    namespace.exec(&qdisc).expect("tc");
    // BPF_RET | BPF_K.
    let program = format!("1,6 0 0 {action}");
    let mut filter = vec!["tc", "filter", "add", "dev", device, hook];
    filter.extend(["bpf", "bytecode", &program, "da"]);
    namespace.exec(&filter).expect("tc");
}

// include/uapi/linux/pkt_cls.h.
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;

/// Reads the transmit counter of an interface.
fn transmitted(namespace: &Namespace, device: &str) -> u64 {
    let shown = namespace.exec(&["ip", "-j", "-s", "link", "show", device]);
    let shown = shown.expect("ip");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["stats64"]["tx"]["packets"]
        .as_u64()
        .expect("a counter")
}

#[test]
fn a_redirect_to_the_peer_delivers_the_bytes_of_the_transmit_path() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livepeer");
    star.ip().all(LINES);
    let frames = frames(&star);
    let count = frames.len() as u64;
    let run = |setting: &str| {
        let args = [&MODE[..], &["--redirect-peer", setting], &PORTS].concat();
        let daemon = star.run(&args);
        let before = transmitted(star.router(), "eth1");
        let out = across(&star, &frames);
        let sent = transmitted(star.router(), "eth1") - before;
        let counted = (
            counters(star.router(), "eth0").forwarded,
            counters(star.router(), "eth1").sent_packets,
        );
        assert_eq!(counted, (count, count), "{:?}", reasons(star.router()));
        let state = redirect(&star, "eth1");
        let table = printed(star.router(), &["show", "ports"]);
        drop(daemon);
        (out, sent, state, table)
    };
    let (plain, sent, state, table) = run("off");
    assert_eq!((sent, state), (count, (false, "as requested".into())));
    assert!(
        table.contains("no redirect to its peer: as requested"),
        "{table}"
    );
    for (setting, why) in [
        ("auto", "it skips nothing that is in use"),
        ("on", "as requested"),
    ] {
        let (redirected, sent, state, table) = run(setting);
        assert_eq!(redirected, plain, "{setting}");
        // Only the transmit path counts on the egress.
        assert_eq!((sent, state), (LAYER2, (true, why.into())), "{setting}");
        assert!(
            table.contains(&format!("  redirect to its peer: {why}")),
            "{table}"
        );
    }
}

#[test]
fn a_redirect_ends_while_something_that_it_skips_is_in_use() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livepeerends");
    star.ip().all(constant::ROUTES);
    let _daemon = star.run(&[&MODE[..], &PORTS].concat());
    let (router, b) = (star.router(), star.host("b"));
    let on_router = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        router.exec(&words).expect("a command");
    };
    eventually_redirects(&star);
    constant::during(&star, "redirects", || {
        let capture = capture(router);
        eventually_ends(&star, "a packet socket captures its packets");
        // On the router, only transmitted frames have this address.
        eventually("a captured frame to b", || {
            let mut frame = [0; 128];
            let length = recv(capture.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
            (length >= 6 && to_mac(&frame) == star.mac("b", "eth0")).then_some(())
        });
        drop(capture);
        eventually_redirects(&star);

        on_router("ethtool -K eth1 tso off");
        eventually_ends(&star, "its checksum or segmentation offload is off");
        on_router("ethtool -K eth1 tso on");
        eventually_redirects(&star);

        let xdp = Napi::attach(b, "eth0").expect("an XDP program");
        eventually_ends(&star, "its peer runs XDP");
        drop(xdp);
        eventually_redirects(&star);
    });
    // The kernel stops the transmit path while it changes a queueing discipline (qdisc_graft).
    add_filter(router, "eth1", "egress", TC_ACT_OK);
    eventually_ends(&star, "it has TC filters at its egress");
    on_router("tc qdisc del dev eth1 clsact");
    eventually_redirects(&star);
    on_router("tc qdisc add dev eth1 root tbf rate 10gbit burst 1m latency 50ms");
    eventually_ends(&star, "it has the queueing discipline tbf");
    on_router("tc qdisc del dev eth1 root");
    eventually_redirects(&star);
}

/// Gives `b` an IP stack, which decapsulates packets to the last segment.
fn with_stack(b: &Namespace) {
    for setting in [
        "net/ipv6/conf/eth0/disable_ipv6=0",
        "net/ipv6/conf/all/seg6_enabled=1",
        "net/ipv6/conf/eth0/seg6_enabled=1",
    ] {
        let (path, value) = setting.split_once('=').expect("a value");
        b.sysctl(path, value).expect("a sysctl");
    }
    Ip::new(b).all([
        "address add fc00:b::2/64 dev eth0 nodad",
        "address add fc00:bb::e/128 dev eth0 nodad",
        "address add fc0c::1/128 dev eth0 nodad",
        "address add 10.0.2.2/24 dev eth0",
        "route add default via 10.0.2.1 dev eth0",
    ]);
}

/// Returns the payload of the next datagram, or `None` after 200 ms.
fn datagram(socket: &UdpSocket) -> Option<String> {
    let mut payload = [0; 64];
    let length = socket.recv(&mut payload).ok()?;
    Some(String::from_utf8_lossy(&payload[..length]).into_owned())
}

#[test]
fn sockets_and_programs_at_the_peer_receive_redirected_packets() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livepeersocket");
    star.ip().all(LINES);
    let (into, b) = (star.socket("a"), star.host("b"));
    with_stack(b);
    let socket = b.run(|| UdpSocket::bind("[::]:5000"));
    let socket = socket.expect("the namespace").expect("a UDP socket");
    let patience = Some(Duration::from_millis(200));
    socket.set_read_timeout(patience).expect("a timeout");
    let mut frames = frames(&star);
    frames.truncate(frames.len() - LAYER2 as usize);
    let payloads = [
        "plain",
        "plain",
        "encapsulated",
        "segments",
        "inner",
        "inner",
    ];
    let _daemon = star.run(&[&MODE[..], &PORTS].concat());
    eventually_redirects(&star);
    let before = transmitted(star.router(), "eth1");
    for (frame, payload) in frames.iter().zip(payloads) {
        into.send(frame).expect("send");
        assert_eq!(datagram(&socket).as_deref(), Some(payload));
    }
    // The transmit path was not used, except for discovery of neighbors.
    let sent = transmitted(star.router(), "eth1") - before;
    assert!(sent < frames.len() as u64, "{sent} packets");

    let is_received = || {
        into.send(&frames[0]).expect("send");
        datagram(&socket).is_some()
    };
    add_filter(b, "eth0", "ingress", TC_ACT_SHOT);
    assert!(redirect(&star, "eth1").0 && !is_received());
    let remove = ["tc", "qdisc", "del", "dev", "eth0", "clsact"];
    b.exec(&remove).expect("tc");
    assert!(is_received());
    let xdp = Napi::attach(b, "eth0").expect("an XDP program");
    eventually_ends(&star, "its peer runs XDP");
    let before = queue_counter(b, "eth0", "rx", "xdp_packets");
    assert!(is_received());
    assert!(queue_counter(b, "eth0", "rx", "xdp_packets") > before);
    drop(xdp);
    eventually_redirects(&star);
    assert!(is_received());
}

#[test]
fn a_redirect_follows_the_peer() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livepeerfollow");
    let _daemon = star.run(&[&MODE[..], &PORTS].concat());
    let b = star.host("b");
    let set = |words: &str| {
        let words: Vec<&str> = ["ip", "link", "set", "eth0"]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        b.exec(&words).expect("ip");
    };
    eventually_redirects(&star);
    set("mtu 1400");
    eventually_ends(&star, "its peer has a smaller MTU");
    set("mtu 1500");
    eventually_redirects(&star);
    // The neighbor entry is permanent, so the next hop keeps its address.
    set("address 02:00:00:00:00:77");
    eventually_ends(&star, "no next hop has the address of its peer");
}
