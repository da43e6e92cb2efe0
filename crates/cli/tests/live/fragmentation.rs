//! Packets that exceed the egress MTU: the daemon sends them in fragments, and the exit of the tunnel reassembles them.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::capability::skip;
use sidestep_testkit::{FrameSocket, Namespace, Napi};
use sidestep_wire::{FragmentView, Ipv4, RoutingView};

use crate::support::frames::{ETHERNET, ethernet, udp};
use crate::support::hosts::Chain;
use crate::support::ip::Ip;
use crate::support::{ROUTER, Star, begin, counters, eventually, modes, printed, reasons, report};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(100);
/// Outer IPv6 header and an SRH of two segments.
const PUSHED: usize = 40 + 8 + 32;
/// A route of the kernel, and a Sidestep-only one.
const KERNEL: &str = "10.7.0.1";
const OWN: &str = "10.8.0.1";

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        "sr tunsrc set fc00:b::1",
        "route add fc0a::/16 via fc00:b::2 dev eth1",
        "route add 10.7.0.0/16 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth1",
    ]);
    star
}

/// `sidestep run` in this mode, with the Sidestep-only route.
fn run(star: &Star, mode: &str, args: &[&str]) -> crate::support::Daemon {
    let daemon = star.run(&[&["--mode", mode, "eth0", "eth1"], args].concat());
    let words = "route add 10.8.0.0/16 encap seg6 mode encap segs fc0a::1,fc0a::2 tunsrc fc00:b::1 via inet6 fc00:b::2 dev eth1";
    printed(star.router(), &words.split(' ').collect::<Vec<_>>());
    daemon
}

/// A UDP packet of `length` bytes from host `a`.
fn packet(to: &str, length: usize, dont_fragment: bool, ttl: u8) -> Vec<u8> {
    let [from, to] = ["10.0.1.2", to].map(|it| it.parse::<IpAddr>().expect("an address"));
    let data: Vec<u8> = (0..length - 28).map(|at| (at % 251) as u8).collect();
    let mut packet = udp(from, to, ttl, &data);
    if !dont_fragment {
        packet[6] = 0;
        Ipv4::write_checksum(&mut packet);
    }
    packet
}

fn send(star: &Star, from: &FrameSocket, packet: &[u8]) {
    let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet);
    from.send(&frame).expect("send");
}

/// Receives all fragments of a tunnel packet. Returns the inner packet, and the number of fragments.
fn reassembled(socket: &FrameSocket, what: &str) -> (Vec<u8>, usize) {
    let (mut inner, mut number, mut identification) = (vec![], 0, None);
    loop {
        let frame = socket.receive(SECOND).expect("receive");
        let frame = frame.unwrap_or_else(|| panic!("{what}: fragment {number} is missing"));
        assert!(frame.len() <= ETHERNET + 1500, "{what}: {}", frame.len());
        let outer = &frame[ETHERNET..];
        assert_eq!(outer[6], 43, "{what}: the SRH is in every fragment");
        let length = u16::from_be_bytes([outer[4], outer[5]]);
        assert_eq!(usize::from(length), outer.len() - 40, "{what}");
        let (routing, rest) = RoutingView::parse(&outer[40..]).expect("a routing header");
        assert_eq!(routing.next_header().0, 44, "{what}");
        let (fragment, part) = FragmentView::parse(rest).expect("a Fragment header");
        assert_eq!(fragment.next_header().0, 4, "{what}");
        assert_eq!(usize::from(fragment.offset()) * 8, inner.len(), "{what}");
        let same = *identification.get_or_insert(fragment.identification());
        assert_eq!(fragment.identification(), same, "{what}");
        inner.extend_from_slice(part);
        number += 1;
        if !fragment.more_fragments() {
            return (inner, number);
        }
    }
}

fn fragments(node: &Namespace) -> report::Fragments {
    report(node, Request::ShowFragments)
}

fn reason(star: &Star, name: &str) -> u64 {
    let found = reasons(star.router());
    found
        .into_iter()
        .find(|(_, found, _)| found == name)
        .map_or(0, |(_, _, packets)| packets)
}

#[test]
fn an_ipv4_packet_without_df_leaves_in_fragments() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("livefrag");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = run(&star, mode, &[]);
        let (a, b) = (star.socket("a"), star.socket("b"));
        for to in [KERNEL, OWN] {
            let what = format!("{mode} {to}");
            for length in [1500 - PUSHED + 1, 1478, 1500] {
                send(&star, &a, &packet(to, length, false, 64));
                let (inner, number) = reassembled(&b, &what);
                assert_eq!(inner, packet(to, length, false, 63), "{what} {length}");
                assert_eq!(number, 2, "{what} {length}");
            }
            // The router forwards a packet that fits.
            send(&star, &a, &packet(to, 1500 - PUSHED, false, 64));
            let out = b
                .receive(SECOND)
                .expect("receive")
                .expect("a tunnel packet");
            assert_eq!(out.len(), ETHERNET + 1500, "{what}");
            // RFC 1191 4: with DF the source gets the MTU.
            send(&star, &a, &packet(to, 1478, true, 64));
            let answer = a.receive(SECOND).expect("receive").expect("a message");
            let message = &answer[ETHERNET + 20..];
            assert_eq!(message[..2], [3, 4], "{what}");
            assert_eq!(
                message[4..8],
                (1500 - PUSHED as u32).to_be_bytes(),
                "{what}"
            );
            assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{what}");
        }
        let shown = fragments(star.router());
        assert_eq!(
            (shown.packets, shown.fragments),
            (6, 12),
            "{mode}: {shown:?}"
        );
        assert_eq!((shown.failed, shown.expired), (0, 0), "{mode}: {shown:?}");
        assert_eq!(reason(&star, "fragmented"), 6, "{mode}");
        let port = counters(star.router(), "eth0");
        let verdicts = port.forwarded + port.punted + port.dropped;
        assert_eq!(port.received_packets, verdicts, "{mode}: {port:?}");
        let text = printed(star.router(), &["show", "fragments"]);
        assert!(text.contains("fragments sent"), "{text}");
    }
}

#[test]
fn too_many_packets_are_not_fragmented_but_counted() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("livefragrate");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let limits = ["--fragment-rate", "1", "--fragment-burst", "3"];
        let _daemon = run(&star, mode, &limits);
        let (a, b) = (star.socket("a"), star.socket("b"));
        for _ in 0..20 {
            send(&star, &a, &packet(KERNEL, 1478, false, 64));
        }
        let shown = eventually("verdicts on all packets", || {
            let shown = fragments(star.router());
            let dropped = reason(&star, "not_fragmented");
            (shown.packets + dropped == 20).then_some(shown)
        });
        // A second may begin meanwhile.
        assert!((3..=4).contains(&shown.packets), "{mode}: {shown:?}");
        assert_eq!(shown.suppressed.get("eth0"), Some(&(20 - shown.packets)));
        for _ in 0..shown.packets {
            reassembled(&b, mode);
        }
        assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}");
    }
}

/// A UDP socket of a host. Its packets have no DF.
fn datagrams(host: &Namespace, address: Ipv4Addr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0)));
    let socket = socket.expect("the namespace can be entered").expect("bind");
    socket.set_read_timeout(Some(SHORTLY)).expect("a timeout");
    let never = nix::libc::IP_PMTUDISC_DONT;
    // SAFETY: the pointer and the length are those of `never`.
    let set = unsafe {
        nix::libc::setsockopt(
            socket.as_raw_fd(),
            nix::libc::IPPROTO_IP,
            nix::libc::IP_MTU_DISCOVER,
            (&raw const never).cast(),
            size_of_val(&never) as u32,
        )
    };
    assert_eq!(set, 0);
    socket
}

/// The kernel's reassembly, which `docs/reference/fragmentation.md` recommends.
const REASSEMBLY: &str = "table ip6 reassembly {
  chain prerouting {
    type filter hook prerouting priority raw
    ct state invalid accept
  }
}
";

#[test]
fn linux_reassembles_the_fragments_at_the_exit() {
    let Some(_turn) = begin() else {
        return;
    };
    let middle = [
        "address add fc00:12::2/64 dev eth0",
        "address add fc00:23::2/64 dev eth1",
        "route add fc00:1::/48 via fc00:12::1 dev eth0",
        "route add fc00:3::/48 via fc00:23::3 dev eth1",
        "route add fc00:2::e/128 encap seg6local action End dev eth0",
    ];
    let chain = Chain::new("livefragexit", &middle, [["fc00:2::e"; 2]; 2]);
    for (router, port) in [
        ("pe1", "eth1"),
        ("p", "eth0"),
        ("p", "eth1"),
        ("pe2", "eth0"),
    ] {
        Ip::new(chain.node(router)).run(&format!("link set {port} mtu 1500"));
    }
    let nft = chain
        .node("pe2")
        .exec_with_input(&["nft", "-f", "-"], REASSEMBLY);
    if !nft.is_ok_and(|output| output.status.success()) {
        return skip("nft, or connection tracking in the kernel");
    }
    let _daemons = chain.start("tc", &[]);
    let [here, there] = [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 2, 2)];
    let sender = datagrams(chain.node("a"), here);
    let receiver = datagrams(chain.node("b"), there);
    let to = receiver.local_addr().expect("an address");
    // Without DF, and with a checksum that the sender leaves to its device.
    let data: Vec<u8> = (0..1450).map(|at| (at % 251) as u8).collect();
    let arrived = eventually("a reassembled packet", || {
        sender.send_to(&data, to).expect("send");
        let mut buffer = vec![0; 2000];
        let length = receiver.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    });
    assert_eq!(arrived, data);
    let shown = fragments(chain.node("pe1"));
    assert!(
        shown.packets > 0 && shown.fragments == 2 * shown.packets,
        "{shown:?}"
    );
    let punted = reasons(chain.node("pe2"));
    let at_the_sid = punted.iter().find(|(_, name, _)| name == "fragment");
    assert!(at_the_sid.is_some_and(|it| it.2 >= 2), "{punted:?}");
}
