//! A router with an SRv6-unaware service: a namespace in which the kernel forwards plain packets
//! between two interfaces. Router and service resolve each other by ARP and neighbor discovery.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_testkit::Napi;
use sidestep_testkit::lab::LinkEnd;
use sidestep_testkit::{FrameSocket, Namespace};

use super::frames::{self, CARRIES_ETHERNET, IPV4, IPV6, ROUTING};
use super::ip::Ip;
use super::{Daemon, PATIENCE, ROUTER, Star};

/// The service's node name.
pub const SERVICE: &str = "vnf";
/// All ports of the router.
pub const PORTS: [&str; 4] = ["eth0", "eth1", "vnf0", "vnf1"];
/// The router's ports toward it: packets from host `a` leave by the first and return by the second.
pub const SERVICE_PORTS: [&str; 2] = ["vnf0", "vnf1"];

const SERVICE_ADDRESSES: [&str; 4] = [
    "address add fc00:d::2/64 dev eth0",
    "address add 10.0.4.2/24 dev eth0",
    "address add fc00:e::2/64 dev eth1",
    "address add 10.0.5.2/24 dev eth1",
];
/// Addresses of the router on these ports.
const PORT_ADDRESSES: [&str; 4] = [
    "address add fc00:d::1/64 dev vnf0",
    "address add 10.0.4.1/24 dev vnf0",
    "address add fc00:e::1/64 dev vnf1",
    "address add 10.0.5.1/24 dev vnf1",
];
const SERVICE_ROUTES: [&str; 6] = [
    "route replace 2001:db8:a::/48 via fc00:d::1",
    "route replace 2001:db8:b::/48 via fc00:e::1",
    "route replace fc00:aa::/32 via fc00:d::1",
    "route replace fc00:bb::/32 via fc00:e::1",
    "route replace 198.51.100.0/24 via 10.0.4.1",
    "route replace 203.0.113.0/24 via 10.0.5.1",
];

/// Towards host `b`, and towards host `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forth,
    Back,
}

impl Direction {
    pub const BOTH: [Self; 2] = [Self::Forth, Self::Back];

    /// Hosts: sender, receiver.
    pub fn hosts(self) -> [&'static str; 2] {
        self.order(["a", "b"])
    }

    /// Returns the ports to the service and from it.
    pub fn ports(self) -> [&'static str; 2] {
        self.order(SERVICE_PORTS)
    }

    /// The service's own addresses on the first of [`Self::ports`].
    pub fn service(self) -> [&'static str; 2] {
        match self {
            Self::Forth => ["fc00:d::2", "10.0.4.2"],
            Self::Back => ["fc00:e::2", "10.0.5.2"],
        }
    }

    /// The proxy's SID for the service's inner type.
    pub fn sid(self) -> Ipv6Addr {
        self.order(["fc00:5::f", "fc00:5::b"])[0]
            .parse()
            .expect("a SID")
    }

    /// Returns the segment after it.
    pub fn next(self) -> Ipv6Addr {
        self.order(["fc00:bb::1", "fc00:aa::1"])[0]
            .parse()
            .expect("a SID")
    }

    /// Customers: source and destination.
    pub fn inner6(self) -> [IpAddr; 2] {
        self.order(["2001:db8:a::9", "2001:db8:b::9"])
            .map(|text| text.parse().expect("an address"))
    }

    /// Customers: source and destination.
    pub fn inner4(self) -> [IpAddr; 2] {
        self.order(["198.51.100.9", "203.0.113.9"])
            .map(|text| text.parse().expect("an address"))
    }

    /// Returns the customers' addresses of this family.
    pub fn inner(self, ipv4: bool) -> [IpAddr; 2] {
        if ipv4 { self.inner4() } else { self.inner6() }
    }

    /// Returns the service's address as an argument of a proxy's route.
    pub fn next_hop(self, ipv4: bool) -> String {
        let [nh6, nh4] = self.service();
        if ipv4 {
            format!("nh4 {nh4}")
        } else {
            format!("nh6 {nh6}")
        }
    }

    fn order<T>(self, [a, b]: [T; 2]) -> [T; 2] {
        match self {
            Self::Forth => [a, b],
            Self::Back => [b, a],
        }
    }
}

/// [`Star`] with the service. `fc00:bb::/32` is behind host `b`, `fc00:aa::/32` behind `a`.
#[derive(Debug)]
pub struct Served {
    pub star: Star,
    /// Makes the veths accept XDP redirects, as network cards do.
    napi: Vec<Napi>,
}

impl Served {
    pub fn new(topic: &str) -> Self {
        let mut star = Star::new(topic);
        star.lab.node(SERVICE).expect("a namespace");
        // Neighbor discovery uses link-local addresses.
        for node in [ROUTER, SERVICE] {
            star.host(node)
                .sysctl("net/ipv6/conf/default/addr_gen_mode", "0")
                .expect("link-local addresses");
        }
        for (port, ifname) in SERVICE_PORTS.iter().zip(["eth0", "eth1"]) {
            star.lab
                .link(SERVICE, ifname, ROUTER, port)
                .expect("a cable");
            star.seg6_enabled(port, true);
        }
        let service = star.host(SERVICE);
        for path in ["net/ipv6/conf/all/forwarding", "net/ipv4/ip_forward"] {
            service.sysctl(path, "1").expect("a sysctl");
        }
        star.ip().all(PORT_ADDRESSES);
        star.ip().all([
            "route add fc00:aa::/32 via fc00:a::2 dev eth0",
            "route add fc00:bb::/32 via fc00:b::2 dev eth1",
        ]);
        Ip::new(service).all(SERVICE_ADDRESSES.into_iter().chain(SERVICE_ROUTES));
        Self::withnapi(star)
    }

    /// A service that is a bridge and has no addresses. Hosts on its links send nothing on their
    /// own.
    pub fn bridging(topic: &str) -> Self {
        let mut star = Star::new(topic);
        star.lab.node(SERVICE).expect("a namespace");
        for node in [ROUTER, SERVICE] {
            star.host(node)
                .sysctl("net/ipv6/conf/default/disable_ipv6", "1")
                .expect("links without IPv6");
        }
        for (port, ifname) in SERVICE_PORTS.iter().zip(["eth0", "eth1"]) {
            star.lab
                .link(SERVICE, ifname, ROUTER, port)
                .expect("a cable");
        }
        Ip::new(star.host(SERVICE)).all([
            "link add br0 type bridge mcast_snooping 0",
            "link set eth0 master br0",
            "link set eth1 master br0",
            "link set br0 up",
        ]);
        star.ip().all([
            "route add fc00:aa::/32 via fc00:a::2 dev eth0",
            "route add fc00:bb::/32 via fc00:b::2 dev eth1",
        ]);
        Self::withnapi(star)
    }

    fn withnapi(star: Star) -> Self {
        let ends = [
            (SERVICE, "eth0"),
            (SERVICE, "eth1"),
            ("a", "eth0"),
            ("b", "eth0"),
        ];
        let napi = ends.map(|(node, ifname)| Napi::attach(star.host(node), ifname).expect("NAPI"));
        Self {
            star,
            napi: napi.into(),
        }
    }

    pub fn service(&self) -> &Namespace {
        self.star.host(SERVICE)
    }

    /// Removes the service's addresses: its links remain, but it neither replies nor forwards.
    pub fn dies(&self) {
        let del = SERVICE_ADDRESSES.map(|address| address.replace("add ", "del "));
        Ip::new(self.service()).all(del.iter().map(String::as_str));
    }

    /// Undoes [`Self::dies`].
    pub fn comes_back(&self) {
        Ip::new(self.service()).all(SERVICE_ADDRESSES.into_iter().chain(SERVICE_ROUTES));
    }

    /// Removes the links to the service, as if its namespace was deleted.
    pub fn vanishes(&self) {
        let links = SERVICE_PORTS.map(|port| format!("link delete {port}"));
        self.star.ip().all(links.iter().map(String::as_str));
    }

    /// Undoes [`Self::vanishes`]: the links get the same names and Ethernet addresses, and other
    /// indices.
    pub fn is_made_again(&mut self) {
        for (port, ifname) in SERVICE_PORTS.iter().zip(["eth0", "eth1"]) {
            let mac = |node, ifname| Some(self.star.mac(node, ifname));
            let ends = [(SERVICE, ifname), (ROUTER, *port)].map(|(node, ifname)| LinkEnd {
                node,
                ifname,
                mac: mac(node, ifname),
            });
            self.star.lab.link_with(ends, 1500, 1).expect("a cable");
            self.star.seg6_enabled(port, true);
            let napi = Napi::attach(self.star.host(SERVICE), ifname);
            self.napi.push(napi.expect("NAPI"));
        }
        self.star.ip().all(PORT_ADDRESSES);
        self.comes_back();
    }

    /// Starts the program on all of these ports.
    pub fn run(&self, mode: &str) -> Daemon {
        self.star.run(&[&["--mode", mode], &PORTS[..]].concat())
    }

    /// Runs `sidestep route add WORDS` on the router.
    pub fn add(&self, words: &str) {
        self.sidestep(&format!("route add {words}"));
    }

    /// Runs `sidestep WORDS` on the router and returns its output.
    pub fn sidestep(&self, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        super::printed(self.star.router(), &words)
    }

    /// Sends `frame` from one host repeatedly until a packet through the service arrives at the
    /// other host, because neighbors must be resolved first. Returns the first arriving packet.
    pub fn cross(&self, direction: Direction, frame: &[u8]) -> Vec<u8> {
        let [near, far] = direction.hosts().map(|host| self.star.socket(host));
        super::eventually("a packet through the service", || {
            near.send(frame).expect("send");
            received(&far, 100)
        });
        // Packets that were queued for a neighbor meanwhile.
        while received(&far, 50).is_some() {}
        near.send(frame).expect("send");
        far.receive(PATIENCE)
            .expect("receive")
            .expect("the next packet")
    }

    /// Returns a packet to the proxy of a direction, from the host there, with this inner packet.
    pub fn to_proxy(&self, direction: Direction, inner: &[u8]) -> Vec<u8> {
        let [near, _] = direction.hosts();
        let port = direction.order(["eth0", "eth1"])[0];
        frames::ethernet(
            self.star.mac(ROUTER, port),
            self.star.mac(near, "eth0"),
            &outer(direction.sid(), 64, direction, 1, inner),
        )
    }

    /// Returns a packet as the host at the end of a direction receives it.
    pub fn at_the_end(&self, direction: Direction, packet: &[u8]) -> Vec<u8> {
        let [_, far] = direction.hosts();
        let port = direction.order(["eth0", "eth1"])[1];
        frames::ethernet(
            self.star.mac(far, "eth0"),
            self.star.mac(ROUTER, port),
            packet,
        )
    }
}

fn received(socket: &FrameSocket, milliseconds: u64) -> Option<Vec<u8>> {
    let timeout = std::time::Duration::from_millis(milliseconds);
    socket.receive(timeout).expect("receive")
}

/// Route of the headend before the proxy.
pub fn headend() -> Ipv6Addr {
    "fc00:99::1".parse().expect("an address")
}

/// An SRv6 packet with the segments of a direction: the proxy's, and the next one.
pub fn outer(
    destination: Ipv6Addr,
    hop_limit: u8,
    direction: Direction,
    segments_left: u8,
    inner: &[u8],
) -> Vec<u8> {
    let next = match inner[0] >> 4 {
        6 => IPV6,
        4 => IPV4,
        // The customers' Ethernet addresses begin with 02, or with ff.
        _ => CARRIES_ETHERNET,
    };
    let segments = [direction.sid(), direction.next()];
    let srh = frames::srh(next, &segments, segments_left);
    frames::ipv6(
        headend(),
        destination,
        ROUTING,
        hop_limit,
        &[&srh[..], inner].concat(),
    )
}
