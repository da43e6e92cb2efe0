//! Ports that are not plain Ethernet devices: VLANs, nested VLANs, bridges, bonds, VRFs and their
//! members. First Linux alone forwards each frame. Sidestep must then forward the same bytes.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::frames::{IPV4, IPV6, Mac, ROUTING, ethernet, ipv6, srh, udp};
use crate::support::ip::Ip;
use crate::support::{
    ROUTER, Star, begin, counters, eventually, made, output, reasons, report, text_of,
};

const SECOND: Duration = Duration::from_secs(1);
const UDP: u8 = 17;

/// `802.1Q` tag: `EtherType` and VLAN identifier.
type Tag = (u16, u16);

const CUSTOMER: &[Tag] = &[(0x8100, 100)];
const QINQ: &[Tag] = &[(0x88a8, 200), (0x8100, 30)];
const UNTAGGED: &[Tag] = &[];

fn tagged(frame: &[u8], tags: &[Tag]) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    for (protocol, id) in tags {
        out.extend(protocol.to_be_bytes());
        out.extend(id.to_be_bytes());
    }
    out.extend(&frame[12..]);
    out
}

/// A network on one side of the router: the host, the router's address and device there, and the
/// VLAN tags.
struct Side<'a> {
    host: &'a str,
    device: &'a str,
    tags: &'a [Tag],
    /// Third group of `fc00:1:N::1` and third byte of `10.1.N.1`; the host has `::2` and `.2`.
    number: u8,
}

impl Side<'_> {
    fn address(&self, family: u8) -> IpAddr {
        let number = self.number;
        let text = match family {
            6 => format!("fc00:1:{number}::2"),
            _ => format!("10.1.{number}.2"),
        };
        text.parse().expect("an address")
    }

    /// Returns the `ip` commands for the addresses of the router and the neighbor.
    fn lines(&self, star: &Star) -> Vec<String> {
        let Self { device, number, .. } = self;
        let mac = sidestep_testkit::lab::mac_text(star.mac(self.host, "eth0"));
        let neighbor = |address: IpAddr| {
            format!("neighbor add {address} lladdr {mac} dev {device} nud permanent")
        };
        vec![
            format!("address add fc00:1:{number}::1/64 dev {device}"),
            format!("address add 10.1.{number}.1/24 dev {device}"),
            neighbor(self.address(6)),
            neighbor(self.address(4)),
        ]
    }
}

/// Configures both sides and the SIDs `fc0f::e` (End), `fc0f::d6` (End.DT6) and the policy to `fc00:2::/64`.
fn configure(star: &Star, sides: [&Side<'_>; 2]) {
    for side in sides {
        star.ip().all([&*format!("link set {} up", side.device)]);
        star.seg6_enabled(side.device, true);
        let show = ["ip", "-br", "link", "show", side.device];
        eventually("carrier", || {
            let shown = star.router().exec(&show).expect("ip");
            shown.contains("LOWER_UP").then_some(())
        });
        star.ip().all(side.lines(star).iter().map(String::as_str));
    }
    let device = sides[0].device;
    let lines = [
        format!("route add fc0f::e/128 encap seg6local action End dev {device}"),
        format!("route add fc0f::d6/128 encap seg6local action End.DT6 table main dev {device}"),
    ];
    star.ip().all(lines.iter().map(String::as_str));
}

/// Returns frames from one side to the other: plain, for End and for End.DT6.
fn frames(star: &Star, from: &Side<'_>, to: &Side<'_>, router_mac: Mac) -> Vec<Vec<u8>> {
    let six = |address: IpAddr| match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => panic!("an IPv6 address"),
    };
    let (source, destination) = (from.address(6), to.address(6));
    let (source6, destination6) = (six(source), six(destination));
    let [end, end_dt6]: [Ipv6Addr; 2] =
        ["fc0f::e", "fc0f::d6"].map(|sid| sid.parse().expect("an address"));
    let payload = &udp(source, destination, 64, b"one")[40..];
    let through_end = [&srh(UDP, &[end, destination6], 1)[..], payload].concat();
    let packets = [
        udp(source, destination, 64, b"six"),
        udp(from.address(4), to.address(4), 64, b"four"),
        ipv6(source6, end, ROUTING, 64, &through_end),
        ipv6(
            source6,
            end_dt6,
            IPV6,
            64,
            &udp(source, destination, 33, b"in"),
        ),
    ];
    packets
        .iter()
        .map(|packet| {
            let frame = ethernet(router_mac, star.mac(from.host, "eth0"), packet);
            tagged(&frame, from.tags)
        })
        .collect()
}

/// Returns the frame that arrives at a host for each sent frame.
fn across(star: &Star, from: &str, to: &str, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (into, out) = (star.socket(from), star.socket(to));
    let one = |frame: &Vec<u8>| {
        into.send(frame).expect("send");
        let found = out.receive(SECOND).expect("receive");
        found.unwrap_or_else(|| panic!("nothing came out for {}", crate::support::hex(frame)))
    };
    frames.iter().map(one).collect()
}

fn mac_of(star: &Star, device: &str) -> Mac {
    let shown = star.router().exec(&["ip", "-br", "link", "show", device]);
    let shown = shown.expect("ip");
    let text = shown.split_whitespace().nth(2).expect("an address");
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"));
    bytes
        .collect::<Vec<u8>>()
        .try_into()
        .expect("an Ethernet address")
}

/// Forwards in both directions with Linux alone, then with Sidestep and these arguments of `run`.
fn check_both_ways(star: &Star, sides: [&Side<'_>; 2], args: &[&str]) {
    let ways = [[sides[0], sides[1]], [sides[1], sides[0]]].map(|[from, to]| {
        let frames = frames(star, from, to, mac_of(star, from.device));
        let linux = across(star, from.host, to.host, &frames);
        for frame in &linux {
            let expected = tagged(&[0; 14], to.tags);
            let tags = 12..expected.len() - 2;
            assert_eq!(
                frame[tags.clone()],
                expected[tags],
                "the tags of {}",
                to.device
            );
        }
        (from, to, frames, linux)
    });
    let _daemon = star.run(args);
    for (from, to, frames, linux) in &ways {
        let ours = across(star, from.host, to.host, frames);
        assert_eq!(&ours, linux, "{args:?}: {} to {}", from.device, to.device);
        let (ingress, egress) = (
            counters(star.router(), from.device),
            counters(star.router(), to.device),
        );
        let count = frames.len() as u64;
        assert_eq!(
            (ingress.forwarded, ingress.punted, egress.sent_packets),
            (count, 0, count),
            "{args:?}: {} to {}: {:?}",
            from.device,
            to.device,
            reasons(star.router())
        );
    }
}

fn check_refused(star: &Star, args: &[&str], message: &str) {
    let args = [&["run"], args].concat();
    let refused = output(star.router(), &args);
    assert!(
        text_of(&refused).contains(message),
        "{args:?}: {}",
        text_of(&refused)
    );
    assert_eq!(refused.status.code(), Some(1), "{args:?}");
}

#[test]
fn vlans_and_vlans_in_vlans_are_ports_and_the_device_below_leaves_their_frames_alone() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livevlan");
    let router = star.router();
    if !made(router, "link eth0 name eth0.100 type vlan id 100") {
        return;
    }
    star.ip().all([
        "link add link eth1 name eth1.200 type vlan protocol 802.1ad id 200",
        "link set eth1.200 up",
        "link add link eth1.200 name eth1.200.30 type vlan id 30",
    ]);
    let one = Side {
        host: "a",
        device: "eth0.100",
        tags: CUSTOMER,
        number: 1,
    };
    let two = Side {
        host: "b",
        device: "eth1.200.30",
        tags: QINQ,
        number: 2,
    };
    configure(&star, [&one, &two]);
    check_both_ways(&star, [&one, &two], &["eth0.100", "eth1.200.30"]);
    // With the lower devices as ports too: they punt tagged frames to the upper devices.
    check_both_ways(
        &star,
        [&one, &two],
        &["eth0", "eth0.100", "eth1", "eth1.200.30"],
    );
    check_refused(
        &star,
        &["--mode", "xdp-always", "eth0.100"],
        "the driver has no native XDP",
    );

    // With XDP on the lower device and no port above, everything is punted.
    let frames = frames(&star, &one, &two, mac_of(&star, "eth0.100"));
    let linux = across(&star, "a", "b", &frames);
    for mode in ["xdp-always", "tc"] {
        let _daemon = star.run(&["--mode", mode, "eth0"]);
        assert_eq!(across(&star, "a", "b", &frames), linux, "{mode}");
        let vlan = reasons(router)
            .into_iter()
            .find(|(_, name, _)| name == "vlan");
        let expected = ("punt".to_owned(), "vlan".to_owned(), frames.len() as u64);
        assert_eq!(vlan, Some(expected), "{mode}");
    }
    // The ingress port runs XDP; the egress is a VLAN device, which accepts no XDP redirects.
    let mut from_c = udp(
        "fc00:c::2".parse().expect("an address"),
        two.address(6),
        64,
        b"six",
    );
    from_c = ethernet(star.mac(ROUTER, "eth2"), star.mac("c", "eth0"), &from_c);
    let linux = across(&star, "c", "b", std::slice::from_ref(&from_c));
    let _daemon = star.run(&["--mode", "xdp-always", "eth2"]);
    assert_eq!(across(&star, "c", "b", &[from_c]), linux);
    assert_eq!(counters(router, "eth2").punted, 1);
}

#[test]
fn auto_chooses_tc_for_a_device_without_xdp() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livevxlan");
    let router = star.router();
    if !made(
        router,
        "vx0 type vxlan id 7 dstport 4789 local 10.0.1.1 remote 10.0.1.2",
    ) {
        return;
    }
    star.ip().all(["link set vx0 up"]);
    check_refused(
        &star,
        &["--mode", "xdp-always", "vx0"],
        "the driver has no native XDP",
    );
    let _daemon = star.run(&["vx0", "eth0"]);
    let ports: report::Ports = report(router, Request::ShowPorts);
    assert_eq!(ports[0].target, "tc");
    let why = "TC takes the place of XDP: cannot attach";
    assert!(ports[0].why.starts_with(why), "{}", ports[0].why);
    // A change of the links does not attach it again.
    star.ip()
        .all(["link set eth1 mtu 1400", "link set vx0 mtu 1400"]);
    let ports: report::Ports = report(router, Request::ShowPorts);
    assert_eq!(ports[0].target, "tc");
}

#[test]
fn bridges_and_bonds_are_ports_and_members_of_bonds_are_refused() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livebond");
    let router = star.router();
    let bond = "bond0 type bond mode active-backup miimon 20";
    if !made(router, "br0 address 02:53:53:00:01:99 type bridge") || !made(router, bond) {
        return;
    }
    star.ip().all([
        "link set eth0 master br0",
        "link set eth1 down",
        "link set eth1 master bond0",
    ]);
    let one = Side {
        host: "a",
        device: "br0",
        tags: UNTAGGED,
        number: 1,
    };
    let two = Side {
        host: "b",
        device: "bond0",
        tags: UNTAGGED,
        number: 2,
    };
    configure(&star, [&one, &two]);
    check_both_ways(&star, [&one, &two], &["br0", "bond0"]);
    for mode in ["auto", "xdp-always", "tc"] {
        let why =
            "port eth1: it belongs to bond0, which gets its frames first; attach bond0 instead";
        check_refused(&star, &["--mode", mode, "eth1"], why);
    }
    check_refused(
        &star,
        &["--mode", "xdp-always", "br0"],
        "the driver has no native XDP",
    );
}

/// Configures rules with `iif` that route packets of `eth1`, in `vrf100`, to host `a`, and removes
/// these routes from the VRF's table.
fn route_by_rules(star: &Star) {
    // For IPv6 rules, the VRF is the ingress interface of these packets; for IPv4 rules, its member
    // is.
    Ip::six(star.router()).all([
        "rule add priority 500 iif eth1 lookup 300",
        "rule add priority 501 iif vrf100 lookup 200",
        "route add blackhole default table 300",
    ]);
    star.ip().all(["rule add priority 500 iif eth1 lookup 200"]);
    star.ip().all([
        "route del fc00:a::/64 table 100",
        "route del 10.0.1.0/24 table 100",
        "route add fc00:a::/64 dev eth0 table 200",
        "route add 10.0.1.0/24 dev eth0 table 200",
    ]);
}

#[test]
fn a_vrf_device_serves_end_dt4_and_end_dt46_and_is_no_port() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("livevrf");
    let router = star.router();
    if !made(router, "vrf100 type vrf table 100") {
        return;
    }
    router.sysctl("net/vrf/strict_mode", "1").expect("a sysctl");
    star.ip().all([
        "link set vrf100 up",
        "link set eth1 master vrf100",
        // Joining it took the interface down, so its configuration except IPv4 addresses is gone.
        "address add fc00:b::1/64 dev eth1",
        "route add fc0f::d4/128 encap seg6local action End.DT4 vrftable 100 dev eth0",
        "route add fc0f::46/128 encap seg6local action End.DT46 vrftable 100 dev eth0",
    ]);
    let neighbor = |address: &str| {
        let mac = sidestep_testkit::lab::mac_text(star.mac("b", "eth0"));
        format!("neighbor replace {address} lladdr {mac} dev eth1 nud permanent")
    };
    star.ip()
        .all([&*neighbor("fc00:b::2"), &*neighbor("10.0.2.2")]);
    let ends = |ends: [&str; 2]| ends.map(|text| text.parse().expect("an address"));
    let [a4, b4]: [IpAddr; 2] = ends(["10.0.1.2", "10.0.2.2"]);
    let [a6, b6]: [IpAddr; 2] = ends(["fc00:a::2", "fc00:b::2"]);
    let around = |sid: &str, next: u8, inner: &[u8], with_srh: bool| {
        let (source, sid) = (
            "fc00:a::2".parse().expect("an address"),
            sid.parse().expect("an address"),
        );
        let header = srh(next, &[sid], 0);
        let packet = if with_srh {
            ipv6(source, sid, ROUTING, 64, &[&header[..], inner].concat())
        } else {
            ipv6(source, sid, next, 64, inner)
        };
        ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
    };
    let (inner4, inner6) = (udp(a4, b4, 33, b"four"), udp(a6, b6, 33, b"six"));
    let frames: Vec<Vec<u8>> = [true, false]
        .into_iter()
        .flat_map(|with_srh| {
            [
                around("fc0f::d4", IPV4, &inner4, with_srh),
                around("fc0f::46", IPV4, &inner4, with_srh),
                around("fc0f::46", IPV6, &inner6, with_srh),
            ]
        })
        .collect();
    let linux = across(&star, "a", "b", &frames);
    check_refused(
        &star,
        &["vrf100"],
        "port vrf100: it is a VRF device; attach the interfaces in it",
    );
    {
        let _daemon = star.run(&["eth0", "eth1"]);
        assert_eq!(across(&star, "a", "b", &frames), linux);
        let shown: report::Routes = report(router, Request::ShowRoutes { all: false });
        let left: Vec<_> = shown
            .iter()
            .filter_map(|route| route.punt_reason.clone())
            .collect();
        assert_eq!(left, [] as [String; 0]);
        let eth0 = counters(router, "eth0");
        assert_eq!(
            (eth0.forwarded, eth0.punted),
            (frames.len() as u64, 0),
            "{:?}",
            reasons(router)
        );
    }
    // Packets from inside the VRF are looked up in its table, as in Linux.
    let mac = star.mac(ROUTER, "eth1");
    star.ip().all([
        "route add fc00:a::/64 dev eth0 table 100",
        "route add 10.0.1.0/24 dev eth0 table 100",
    ]);
    let back = [udp(b6, a6, 64, b"six"), udp(b4, a4, 64, b"four")]
        .map(|packet| ethernet(mac, star.mac("b", "eth0"), &packet));
    let check = || {
        let linux = across(&star, "b", "a", &back);
        let _daemon = star.run(&["eth0", "eth1"]);
        assert_eq!(across(&star, "b", "a", &back), linux);
        let eth1 = counters(router, "eth1");
        assert_eq!(
            (linux.len(), eth1.forwarded, eth1.punted),
            (back.len(), back.len() as u64, 0),
            "{:?}",
            reasons(router)
        );
    };
    check();
    route_by_rules(&star);
    check();
}
