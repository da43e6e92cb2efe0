//! L3VPNs over SRv6: two provider edges with two VRFs each, and the same addresses in both VPNs.
//! First Linux alone forwards each frame. Sidestep must then forward the same bytes.

use std::net::IpAddr;
use std::time::Duration;

use sidestep_testkit::lab::mac_text;
use sidestep_testkit::{FrameSocket, Lab, Namespace};

use crate::support::frames::{ethernet, udp};
use crate::support::ip::Ip;
use crate::support::{Daemon, begin, counters, left, made, reasons};

mod frr;

const SECOND: Duration = Duration::from_secs(1);
const HOP_LIMIT: u8 = 64;
/// Hop limit of packets that Linux encapsulates. It lacks the decrement of RFC 2473 3.1.
const AT_LINUX: u8 = HOP_LIMIT - 1;
const PORTS: [&str; 3] = ["core", "red", "blue"];
/// VPNs, with the table of their VRFs and the SIDs of their IPv4 and IPv6 routes, without the
/// locator: End.DT4 and End.DT6 for the one, End.DT46 for the other.
const VPNS: [(&str, u32, [&str; 2]); 2] = [
    ("red", 100, ["d4::", "d6::"]),
    ("blue", 200, ["46::", "46::"]),
];

/// Provider edges `pe1` and `pe2`, joined by their ports `core`. Each has a host per VPN, such as
/// `red1` at port `red` of `pe1`. Site 1 is `10.0.1.0/24` and `2001:db8:1::/64` in both VPNs.
struct Vpns(Lab);

impl Vpns {
    /// Returns provider edges with routes and SIDs, or `None` if this kernel lacks VRFs.
    fn new(topic: &str) -> Option<Self> {
        let vpns = Self::without_routes(topic)?;
        for site in [1, 2] {
            vpns.add_routes(site);
        }
        Some(vpns)
    }

    /// Returns provider edges with addresses and VRFs only, or `None` if this kernel lacks VRFs.
    fn without_routes(topic: &str) -> Option<Self> {
        let mut lab = Lab::new(topic).expect("a lab");
        for node in ["pe1", "pe2", "red1", "red2", "blue1", "blue2"] {
            lab.node(node).expect("a namespace");
        }
        lab.link("pe1", "core", "pe2", "core").expect("a cable");
        for site in [1, 2] {
            for (vpn, ..) in VPNS {
                let (host, edge) = (format!("{vpn}{site}"), format!("pe{site}"));
                lab.link(&host, "eth0", &edge, vpn).expect("a cable");
            }
        }
        let vpns = Self(lab);
        for site in [1, 2] {
            let edge = vpns.edge(site);
            left::remove(edge);
            for (vpn, table, _) in VPNS {
                if !made(edge, &format!("vrf-{vpn} type vrf table {table}")) {
                    return None;
                }
            }
            vpns.configure(site);
        }
        Some(vpns)
    }

    fn node(&self, name: &str) -> &Namespace {
        self.0.namespace(name).expect("a node")
    }

    fn edge(&self, site: u8) -> &Namespace {
        self.node(&format!("pe{site}"))
    }

    fn socket(&self, host: &str) -> FrameSocket {
        FrameSocket::open(self.node(host), "eth0").expect("a packet socket")
    }

    fn mac(&self, node: &str, port: &str) -> [u8; 6] {
        self.0.mac(node, port).expect("an interface")
    }

    /// Configures a provider edge: VRFs, addresses, neighbors, and the dummy interface `sr0` for its
    /// SIDs.
    fn configure(&self, site: u8) {
        let other = 3 - site;
        let edge = self.edge(site);
        for path in [
            "net/ipv6/conf/all/forwarding",
            "net/ipv4/ip_forward",
            "net/ipv6/conf/all/seg6_enabled",
            "net/ipv6/conf/core/seg6_enabled",
            "net/vrf/strict_mode",
        ] {
            edge.sysctl(path, "1").expect("a sysctl");
        }
        let core = mac_text(self.mac(&format!("pe{other}"), "core"));
        let mut lines = vec![
            "link add sr0 type dummy".to_owned(),
            "link set sr0 up".to_owned(),
            format!("sr tunsrc set fcbb:{site}::1"),
            format!("address add fcbb:{site}::1/128 dev lo"),
            format!("address add fd00::{site}/64 dev core"),
            format!("neighbor add fd00::{other} lladdr {core} dev core nud permanent"),
        ];
        for (vpn, ..) in VPNS {
            let host = mac_text(self.mac(&format!("{vpn}{site}"), "eth0"));
            lines.extend([
                format!("link set vrf-{vpn} up"),
                format!("link set {vpn} master vrf-{vpn}"),
                format!("address add 10.0.{site}.1/24 dev {vpn}"),
                format!("address add 2001:db8:{site}::1/64 dev {vpn}"),
                format!("neighbor add 10.0.{site}.2 lladdr {host} dev {vpn} nud permanent"),
                format!("neighbor add 2001:db8:{site}::2 lladdr {host} dev {vpn} nud permanent"),
            ]);
        }
        Ip::new(edge).all(lines.iter().map(String::as_str));
    }

    /// Adds SIDs, and routes of the VPNs in the tables of the VRFs, as FRR does. Linux looks
    /// encapsulated packets up in these tables too.
    fn add_routes(&self, site: u8) {
        let other = 3 - site;
        let sid = |sid: &str, action: &str| {
            format!("route add fcbb:{site}:{sid}/48 encap seg6local action {action} dev sr0")
        };
        let mut lines = vec![
            format!("route add fcbb:{other}::/32 via fd00::{other} dev core"),
            sid("d4::", "End.DT4 vrftable 100"),
            sid("d6::", "End.DT6 vrftable 100"),
            sid("46::", "End.DT46 vrftable 200"),
        ];
        for (_, table, [sid4, sid6]) in VPNS {
            lines.extend([
                format!("route add fcbb:{other}::/32 via fd00::{other} dev core table {table}"),
                encap(&format!("10.0.{other}.0/24"), other, sid4, table),
                encap(&format!("2001:db8:{other}::/64"), other, sid6, table),
            ]);
        }
        Ip::new(self.edge(site)).all(lines.iter().map(String::as_str));
    }

    /// Returns a frame from a host to the port of its provider edge.
    fn frame(&self, vpn: &str, site: u8, packet: &[u8]) -> Vec<u8> {
        let to = self.mac(&format!("pe{site}"), vpn);
        ethernet(to, self.mac(&format!("{vpn}{site}"), "eth0"), packet)
    }

    /// Sends a packet from a host of site 1, and returns the frame that arrives at `to`. No host of
    /// the other VPN may receive a frame.
    fn across(&self, vpn: &str, to: &str, packet: &[u8]) -> Vec<u8> {
        let from = self.socket(&format!("{vpn}1"));
        let (out, others) = (self.socket(to), ["red1", "red2", "blue1", "blue2"]);
        let others = others.into_iter().filter(|host| *host != to);
        let others: Vec<_> = others.map(|host| (host, self.socket(host))).collect();
        from.send(&self.frame(vpn, 1, packet)).expect("send");
        let found = out.receive(SECOND).expect("receive");
        for (host, socket) in &others {
            let leaked = socket.receive_now().expect("receive");
            assert_eq!(leaked, None, "a frame at {host}");
        }
        found.unwrap_or_else(|| panic!("{vpn}: nothing arrived at {to}"))
    }

    /// Returns the frames that arrive at site 2 for an IPv4 and an IPv6 packet of each VPN.
    fn all_across(&self, hop_limit: u8) -> Vec<Vec<u8>> {
        let each = VPNS.iter().flat_map(|(vpn, ..)| {
            [["10.0.1.2", "10.0.2.2"], ["2001:db8:1::2", "2001:db8:2::2"]]
                .map(|ends| self.across(vpn, &format!("{vpn}2"), &packet(ends, hop_limit)))
        });
        each.collect()
    }

    fn run(&self, args: &[&str]) -> [Daemon; 2] {
        let args: Vec<&str> = args.iter().chain(&PORTS).copied().collect();
        [1, 2].map(|site| Daemon::start(self.edge(site), &args))
    }

    /// Checks that both provider edges have forwarded this many packets themselves from these ports.
    fn assert_forwarded(&self, packets: u64) {
        for site in [1, 2] {
            let edge = self.edge(site);
            let ports: &[&str] = if site == 1 {
                &["red", "blue"]
            } else {
                &["core"]
            };
            let all = ports.iter().map(|port| counters(edge, port));
            let sum = all.fold((0, 0), |sum, port| {
                (sum.0 + port.forwarded, sum.1 + port.punted)
            });
            assert_eq!(sum, (packets, 0), "pe{site}: {:?}", reasons(edge));
        }
    }
}

impl Drop for Vpns {
    fn drop(&mut self) {
        for site in [1, 2] {
            left::remove(self.edge(site));
        }
    }
}

/// Returns the command for a route of a VPN to a site.
fn encap(prefix: &str, site: u8, sid: &str, table: u32) -> String {
    format!(
        "route add {prefix} encap seg6 mode encap segs fcbb:{site}:{sid} dev core table {table}"
    )
}

fn packet(ends: [&str; 2], hop_limit: u8) -> Vec<u8> {
    let [from, to]: [IpAddr; 2] = ends.map(|text| text.parse().expect("an address"));
    udp(from, to, hop_limit, b"of a VPN")
}

#[test]
fn vpns_with_the_same_addresses_stay_apart() {
    let Some(_turn) = begin() else { return };
    let Some(vpns) = Vpns::new("livel3vpn") else {
        return;
    };
    let linux = vpns.all_across(AT_LINUX);
    {
        let _daemons = vpns.run(&[]);
        assert_eq!(vpns.all_across(HOP_LIMIT), linux);
        vpns.assert_forwarded(linux.len() as u64);
    }
    // Without the underlay in the tables of the VRFs, Linux finds no route for encapsulated packets.
    for site in [1, 2] {
        for (_, table, _) in VPNS {
            let route = format!("route del fcbb:{}::/32 table {table}", 3 - site);
            Ip::new(vpns.edge(site)).run(&route);
        }
    }
    let _daemons = vpns.run(&["--encap-lookup-main"]);
    assert_eq!(vpns.all_across(HOP_LIMIT), linux);
    vpns.assert_forwarded(linux.len() as u64);
}

#[test]
fn routes_leak_between_vpns_as_in_linux() {
    let Some(_turn) = begin() else { return };
    let Some(vpns) = Vpns::new("livel3vpnleak") else {
        return;
    };
    // A remote prefix of the one VPN in the table of the other, with the SID of the first; and a
    // local one, through the VRF device.
    Ip::new(vpns.edge(1)).all([
        &*encap("10.9.2.0/24", 2, "d4::", 200),
        "route add 10.9.1.0/24 via 10.0.1.2 dev red table 100",
        "route add 10.9.1.0/24 dev vrf-red table 200",
    ]);
    Ip::new(vpns.edge(2)).all(["route add 10.9.2.0/24 via 10.0.2.2 dev red table 100"]);
    let both = |encapsulated| {
        [
            ("red2", "10.9.2.9", encapsulated),
            ("red1", "10.9.1.9", HOP_LIMIT),
        ]
        .map(|(host, to, hop_limit)| {
            vpns.across("blue", host, &packet(["10.0.1.2", to], hop_limit))
        })
    };
    let linux = both(AT_LINUX);
    let _daemons = vpns.run(&[]);
    assert_eq!(both(HOP_LIMIT), linux);
    let edge = vpns.edge(1);
    let blue = counters(edge, "blue");
    // Routes into a VRF are punted (docs/reference/limits.md).
    assert_eq!((blue.forwarded, blue.punted), (1, 1), "{:?}", reasons(edge));
}
