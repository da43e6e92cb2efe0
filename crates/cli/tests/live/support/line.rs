//! A client, two routers with a SID each, and a server that checks every packet of the client.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_testkit::Napi;
use sidestep_testkit::offload::Offload;
use sidestep_testkit::{FrameSocket, Lab, Namespace};

use crate::support::frames::{ETHERNET, ROUTING, TCP, UDP};
use crate::support::ip::Ip;

/// Client `a` - r1 - r2 - server `b`, in plain `ip` commands. Both routers have End, and the server
/// accepts packets with an SRH.
pub struct Line(Lab);

impl Line {
    pub fn new(topic: &str) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        for node in ["a", "r1", "r2", "b"] {
            lab.node(node).expect("a namespace");
            // A router solicits a next hop from its link-local address.
            lab.namespace(node)
                .and_then(|node| node.sysctl("net/ipv6/conf/default/addr_gen_mode", "0"))
                .expect("link-local addresses");
        }
        for [node, ifname, peer, peer_ifname] in [
            ["a", "eth0", "r1", "eth0"],
            ["r1", "eth1", "r2", "eth0"],
            ["r2", "eth1", "b", "eth0"],
        ] {
            lab.link(node, ifname, peer, peer_ifname).expect("a cable");
        }
        let line = Self(lab);
        for node in ["r1", "r2", "b"] {
            crate::support::left::remove(line.node(node));
            let forwarding = if node == "b" { "0" } else { "1" };
            let on = [
                ("all/forwarding", forwarding),
                ("all/seg6_enabled", "1"),
                ("eth0/seg6_enabled", "1"),
            ];
            for (path, value) in on
                .into_iter()
                .chain((node != "b").then_some(("eth1/seg6_enabled", "1")))
            {
                line.node(node)
                    .sysctl(&format!("net/ipv6/conf/{path}"), value)
                    .expect("a sysctl");
            }
        }
        for (node, commands) in [
            (
                "a",
                &[
                    "address add 2001:db8:a::2/64 dev eth0",
                    "route add default via 2001:db8:a::1",
                ][..],
            ),
            (
                "r1",
                &[
                    "address add 2001:db8:a::1/64 dev eth0",
                    "address add fc00:12::1/64 dev eth1",
                    "route add default via fc00:12::2",
                    "route add fc00:1::e/128 encap seg6local action End dev eth1",
                ],
            ),
            (
                "r2",
                &[
                    "address add fc00:12::2/64 dev eth0",
                    "address add 2001:db8:b::1/64 dev eth1",
                    "route add default via fc00:12::1",
                    "route add fc00:2::e/128 encap seg6local action End dev eth1",
                ],
            ),
            (
                "b",
                &[
                    "address add 2001:db8:b::2/64 dev eth0",
                    "address add 2001:db8:b::3/64 dev eth0",
                    "route add default via 2001:db8:b::1",
                ],
            ),
        ] {
            Ip::new(line.node(node)).all(commands.iter().copied());
        }
        line
    }

    pub fn node(&self, name: &str) -> &Namespace {
        self.0.namespace(name).expect("a node")
    }

    /// Prepares the hosts for XDP on the routers: they send complete frames, and accept redirects
    /// until this is dropped.
    pub fn complete_frames(&self) -> [Napi; 2] {
        ["a", "b"].map(|host| {
            self.0
                .offload(host, "eth0", Offload::OFF)
                .expect("a switch");
            Napi::attach(self.node(host), "eth0").expect("NAPI")
        })
    }

    /// Returns the frames from the client that arrive at the server during an action.
    pub fn arriving<T>(&self, run: impl FnOnce() -> T) -> (T, Vec<Arrived>) {
        let socket = FrameSocket::open(self.node("b"), "eth0").expect("a packet socket");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut arrived = Vec::new();
                loop {
                    let last = done.load(Ordering::Acquire);
                    while let Some(frame) =
                        socket.receive(Duration::from_millis(20)).expect("receive")
                    {
                        arrived.extend(read(&frame));
                    }
                    if last {
                        return arrived;
                    }
                }
            });
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            done.store(true, Ordering::Release);
            let arrived = looking.join().expect("frames are read");
            (
                ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                of_sockets(arrived),
            )
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for node in ["r1", "r2"] {
            crate::support::left::remove(self.node(node));
        }
    }
}

/// A packet of the client that arrived at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub protocol: u8,
    pub port: u16,
    /// Destination address of the IPv6 header.
    pub to: Ipv6Addr,
    /// Segments Left, the segments in order of travel without the destination, and whether there
    /// are TLVs.
    pub header: Option<(u8, String, bool)>,
    /// UDP payload; empty for TCP.
    pub payload: Vec<u8>,
    source_port: u16,
    /// TCP flags; 0 for UDP.
    flags: u8,
}

/// Removes packets that the kernel sends after the end of a socket: RST, and ACKs in TIME-WAIT.
/// They have no header, since they do not have the options of the socket.
fn of_sockets(arrived: Vec<Arrived>) -> Vec<Arrived> {
    const FIN: u8 = 1;
    const RST: u8 = 4;
    let mut ended = BTreeSet::new();
    let is_kept = |packet: &Arrived| {
        let flow = (packet.source_port, packet.port);
        let is_late = packet.flags & RST != 0 || ended.contains(&flow);
        if packet.flags & (FIN | RST) != 0 {
            ended.insert(flow);
        }
        packet.header.is_some() || !is_late
    };
    arrived.into_iter().filter(is_kept).collect()
}

/// Parses TCP and UDP packets from the client's network, without code of the product.
fn read(frame: &[u8]) -> Option<Arrived> {
    let packet = frame.get(ETHERNET..)?;
    if frame[12..14] != [0x86, 0xdd] || packet[8..14] != [0x20, 0x01, 0x0d, 0xb8, 0x00, 0x0a] {
        return None;
    }
    let address = |at: usize| -> Option<Ipv6Addr> {
        let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(octets.into())
    };
    let (mut protocol, mut at, mut header) = (packet[6], 40, None);
    if protocol == ROUTING {
        assert_eq!(packet[42], 4, "a routing header of type 4");
        let (length, left, last) = (
            (usize::from(packet[41]) + 1) * 8,
            packet[43],
            usize::from(packet[44]),
        );
        assert_eq!(
            address(48),
            address(24),
            "Segment List[0] is the destination"
        );
        let segments: Vec<String> = (1..=last)
            .rev()
            .filter_map(|index| Some(address(48 + 16 * index)?.to_string()))
            .collect();
        header = Some((left, segments.join(","), length > 8 + 16 * (last + 1)));
        (protocol, at) = (packet[40], 40 + length);
    }
    let port = |at: usize| -> Option<u16> {
        let octets: [u8; 2] = packet.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(octets))
    };
    let flags = packet.get(at + 13).filter(|_| protocol == TCP);
    let payload = if protocol == UDP {
        packet[at + 8..].to_vec()
    } else {
        Vec::new()
    };
    (protocol == TCP || protocol == UDP).then_some(Arrived {
        protocol,
        port: port(at + 2)?,
        to: address(24)?,
        header,
        payload,
        source_port: port(at)?,
        flags: flags.copied().unwrap_or_default(),
    })
}

/// Checks that there are such packets, and that all of them have the segments.
pub fn all_by(arrived: &[Arrived], segments: &str, of: impl Fn(&Arrived) -> bool) {
    let those: Vec<_> = arrived.iter().filter(|packet| of(packet)).collect();
    assert!(!those.is_empty(), "nothing arrived: {arrived:?}");
    for packet in those {
        let (left, by, _) = packet
            .header
            .as_ref()
            .unwrap_or_else(|| panic!("no header: {packet:?}"));
        assert_eq!((*left, &**by), (0, segments), "{packet:?}");
    }
}

/// Checks that there are such packets, and that none of them has a header.
pub fn all_plain(arrived: &[Arrived], of: impl Fn(&Arrived) -> bool) {
    let those: Vec<_> = arrived.iter().filter(|packet| of(packet)).collect();
    assert!(!those.is_empty(), "nothing arrived: {arrived:?}");
    for packet in those {
        assert_eq!(packet.header, None, "{packet:?}");
    }
}
