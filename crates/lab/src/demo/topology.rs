//! The network of the demo: who is joined to whom, and what every node is told in plain `ip` commands.

use super::screen::Screen;
use super::{Error, NAME};
use crate::offload::Offload;
use crate::program::Interrupt;
use crate::{Lab, LinkEnd, Namespace};

/// The routers, in the order in which a packet from host `a` meets them. Each has the ports [`PORTS`], the first one
/// towards `a`.
pub const ROUTERS: [&str; 3] = ["pe1", "p", "pe2"];
/// The ports of a router.
pub const PORTS: [&str; 2] = ["eth0", "eth1"];
/// The hosts.
pub const HOSTS: [&str; 2] = ["a", "b"];
/// The only interface of a host.
pub const HOST_PORT: &str = "eth0";

/// Host `a`.
pub const A6: &str = "2001:db8:a::2";
/// Host `b`.
pub const B6: &str = "2001:db8:b::2";
/// Host `a`.
pub const A4: &str = "10.0.1.2";
/// Host `b`.
pub const B4: &str = "10.0.2.2";

/// The picture of it; DECAP4 stands for the behavior at the end of IPv4.
const PICTURE: &str = "\
 host a            pe1                     p                     pe2           host b
+------+      +-----------+          +-----------+          +-----------+      +------+
|  eth0|------|eth0   eth1|==========|eth0   eth1|==========|eth0   eth1|------|eth0  |
+------+      +-----------+          +-----------+          +-----------+      +------+
2001:db8:a::2   H.Encaps                  End              End.DT6, DECAP4     2001:db8:b::2
10.0.1.2       2 segments              fc00:2::e         fc00:3::d6, fc00:3::d4     10.0.2.2";

/// How the egress routers end a tunnel of IPv4 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decapsulation4 {
    /// `End.DT4 vrftable`, the only form of End.DT4 that the kernel takes.
    Dt4,
    /// `End.DX4 nh4`: the kernel has no VRF devices.
    Dx4,
}

/// The picture of it, at most 94 columns wide.
pub fn picture(decapsulation4: Decapsulation4) -> String {
    named(PICTURE, decapsulation4)
}

/// A picture with the name of this behavior where it says DECAP4.
pub fn named(picture: &str, decapsulation4: Decapsulation4) -> String {
    let name = match decapsulation4 {
        Decapsulation4::Dt4 => "End.DT4",
        Decapsulation4::Dx4 => "End.DX4",
    };
    picture.replace("DECAP4 ", name)
}

/// Namespaces and cables: hosts at 1500 bytes, the core at [`CORE_MTU`], so that 80 bytes of outer headers fit around a
/// full packet.
///
/// # Errors
/// The kernel refuses namespaces or veth.
pub fn build(interrupt: &Interrupt) -> Result<Lab, Error> {
    let cables = [
        ("a", "eth0", "pe1", "eth0", HOST_MTU),
        ("pe1", "eth1", "p", "eth0", CORE_MTU),
        ("p", "eth1", "pe2", "eth0", CORE_MTU),
        ("pe2", "eth1", "b", "eth0", HOST_MTU),
    ];
    wire(&["a", "pe1", "p", "pe2", "b"], &cables, interrupt)
}

/// Node, interface, node, interface, MTU.
pub type Cable = (&'static str, &'static str, &'static str, &'static str, u32);

/// The nodes of a demo, joined.
///
/// # Errors
/// The kernel refuses namespaces or veth.
pub fn wire(nodes: &[&str], cables: &[Cable], interrupt: &Interrupt) -> Result<Lab, Error> {
    let mut lab = Lab::new(NAME)?;
    for node in nodes {
        interrupt.check()?;
        lab.node(node)?;
        // Link-local addresses, which the lab leaves out: a router solicits the next hop of a packet whose source is
        // its loopback address from there, or not at all (ndisc_solicit, net/ipv6/ndisc.c).
        lab.namespace(node)?
            .sysctl("net/ipv6/conf/default/addr_gen_mode", "0")?;
    }
    for &(node, ifname, peer, peer_ifname, mtu) in cables {
        interrupt.check()?;
        let end = |node, ifname| LinkEnd {
            node,
            ifname,
            mac: None,
        };
        lab.link_with([end(node, ifname), end(peer, peer_ifname)], mtu, 1)?;
    }
    Ok(lab)
}

/// What a host's network card would do, and a veth leaves undone: checksums written, TCP cut into frames. GRO makes a
/// veth take what XDP redirects into it.
///
/// # Errors
/// The driver has no such switch.
pub fn deliver_complete_frames(lab: &Lab, complete: bool) -> Result<(), Error> {
    let offload = Offload {
        tx_checksum: Some(!complete),
        tso: Some(!complete),
        gso: Some(!complete),
        rx_checksum: Some(!complete),
        gro: Some(true),
    };
    for host in HOSTS {
        lab.offload(host, HOST_PORT, offload)?;
    }
    Ok(())
}

/// Which of the two ways this kernel has: a VRF device is made in a namespace, and removed again.
pub fn decapsulation4(namespace: &Namespace) -> Decapsulation4 {
    let probe = ["ip", "link", "add", VRF, "type", "vrf", "table", "100"];
    if namespace.exec(&probe).is_err() {
        return Decapsulation4::Dx4;
    }
    // It was there a moment ago; if it cannot go, the configuration fails with the reason.
    let _ = namespace.exec(&["ip", "link", "delete", VRF]);
    Decapsulation4::Dt4
}

/// Executes the commands of every node, each one printed before.
///
/// # Errors
/// A command is refused.
pub fn configure(
    lab: &Lab,
    decapsulation4: Decapsulation4,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    for node in ["a", "b", "pe1", "p", "pe2"] {
        instruct(
            lab,
            node,
            &commands(node, decapsulation4),
            screen,
            interrupt,
        )?;
    }
    Ok(())
}

/// Executes the commands of a node, each one printed before.
///
/// # Errors
/// A command is refused.
pub fn instruct(
    lab: &Lab,
    node: &str,
    commands: &[String],
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    screen.line("");
    for command in commands {
        interrupt.check()?;
        screen.command(node, command);
        execute(lab.namespace(node)?, command)?;
    }
    Ok(())
}

/// One command. `sysctl -w` is done here, with the braces of a shell: a minimal system has no sysctl(8).
///
/// # Errors
/// It is refused.
pub fn execute(namespace: &Namespace, command: &str) -> Result<(), Error> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if let ["sysctl", "-w", settings @ ..] = words.as_slice() {
        for setting in settings {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| crate::Error::Usage(format!("{command}: {setting}: no =")))?;
            for name in braces(name) {
                namespace.sysctl(&name.replace('.', "/"), value)?;
            }
        }
        return Ok(());
    }
    namespace.exec(&words)?;
    Ok(())
}

/// `a.{b,c}.d` is `a.b.d` and `a.c.d`, as in a shell; one pair of braces.
fn braces(word: &str) -> Vec<String> {
    let parts = word
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (choices, after))) => choices
            .split(',')
            .map(|choice| format!("{before}{choice}{after}"))
            .collect(),
        None => vec![word.to_owned()],
    }
}

/// What a node is told.
fn commands(node: &str, decapsulation4: Decapsulation4) -> Vec<String> {
    match node {
        "a" | "b" => host_commands(node),
        "p" => [router("eth0,eth1"), p()].concat(),
        _ => edge_commands(node, [["fc00:2::e"; 2]; 2], decapsulation4),
    }
}

/// What host `a` or `b` is told.
pub fn host_commands(node: &str) -> Vec<String> {
    match node {
        "a" => host(A6, A4, "2001:db8:a::1", "10.0.1.1"),
        _ => host(B6, B4, "2001:db8:b::1", "10.0.2.1"),
    }
}

/// The segments between the edges: of packets from `pe1` and from `pe2`, of IPv6 and of IPv4 packets.
pub type Between<'a> = [[&'a str; 2]; 2];

/// What `pe1` or `pe2` is told.
pub fn edge_commands(
    node: &str,
    [forth, back]: Between<'_>,
    decapsulation4: Decapsulation4,
) -> Vec<String> {
    let (edge, between) = match node {
        "pe1" => (PE1, forth),
        _ => (PE2, back),
    };
    [router("eth0,eth1"), edge.commands(between, decapsulation4)].concat()
}

fn host(own6: &str, own4: &str, router6: &str, router4: &str) -> Vec<String> {
    vec![
        format!("ip address add {own6}/64 dev eth0"),
        format!("ip address add {own4}/24 dev eth0"),
        format!("ip route add default via {router6}"),
        format!("ip route add default via {router4}"),
    ]
}

/// What makes a node a router, and a router an SRv6 endpoint. The reverse path filter is what a distribution may have
/// switched on; a tunnel's end does not receive a customer's packets from where it sends them.
pub fn router(ports: &str) -> Vec<String> {
    vec![
        "sysctl -w net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1".to_owned(),
        format!("sysctl -w net.ipv6.conf.{{all,{ports}}}.seg6_enabled=1"),
        format!("sysctl -w net.ipv4.conf.{{all,{ports}}}.rp_filter=0"),
    ]
}

fn p() -> Vec<String> {
    [
        "ip address add fc00:12::2/64 dev eth0",
        "ip address add fc00:23::2/64 dev eth1",
        "ip route add fc00:1::/48 via fc00:12::1 dev eth0",
        "ip route add fc00:3::/48 via fc00:23::3 dev eth1",
        "ip route add fc00:2::e/128 encap seg6local action End dev eth0",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A provider edge: a headend for what its customer sends, an endpoint for what the other edge sends.
struct Edge {
    /// Number in the locator `fc00:N::/48`.
    own: u8,
    /// The other edge's.
    other: u8,
    /// Prefixes of the own customer, address of the router there, and the customer's host.
    customer: Customer,
    /// Prefixes of the other customer.
    remote: Customer,
    /// Port to the customer and port to the core.
    ports: [&'static str; 2],
    /// Own address in the core with its length, and the next router.
    core: [&'static str; 2],
}

#[derive(Clone, Copy)]
struct Customer {
    prefix6: &'static str,
    prefix4: &'static str,
    router6: &'static str,
    router4: &'static str,
    host4: &'static str,
}

impl Edge {
    fn commands(
        &self,
        [between6, between4]: [&str; 2],
        decapsulation4: Decapsulation4,
    ) -> Vec<String> {
        let Self { own, other, .. } = self;
        let Customer {
            router6,
            router4,
            prefix4,
            host4,
            ..
        } = self.customer;
        let Customer {
            prefix6: remote6,
            prefix4: remote4,
            ..
        } = self.remote;
        let ([outside, core], [address, next]) = (self.ports, self.core);
        let mut all = vec![
            format!("ip address add {router6}/64 dev {outside}"),
            format!("ip address add {router4}/24 dev {outside}"),
            format!("ip address add {address} dev {core}"),
            format!("ip address add fc00:{own}::1/128 dev lo"),
            format!("ip sr tunsrc set fc00:{own}::1"),
            format!("ip route add fc00:2::/48 via {next} dev {core}"),
            format!("ip route add fc00:{other}::/48 via {next} dev {core}"),
            format!(
                "ip route add {remote6} encap seg6 mode encap segs {between6},fc00:{other}::d6 dev {core}"
            ),
            format!(
                "ip route add {remote4} encap seg6 mode encap segs {between4},fc00:{other}::d4 dev {core}"
            ),
            format!(
                "ip route add fc00:{own}::d6/128 encap seg6local action End.DT6 table 254 dev {core}"
            ),
        ];
        match decapsulation4 {
            Decapsulation4::Dx4 => all.push(format!(
                "ip route add fc00:{own}::d4/128 encap seg6local action End.DX4 nh4 {host4} dev {core}"
            )),
            Decapsulation4::Dt4 => all.extend([
                "sysctl -w net.vrf.strict_mode=1".to_owned(),
                format!("ip link add {VRF} type vrf table 100"),
                format!("ip link set {VRF} up"),
                format!("ip route add {prefix4} dev {outside} table 100"),
                format!(
                    "ip route add fc00:{own}::d4/128 encap seg6local action End.DT4 vrftable 100 dev {VRF}"
                ),
            ]),
        }
        all
    }
}

const CUSTOMER_A: Customer = Customer {
    prefix6: "2001:db8:a::/64",
    prefix4: "10.0.1.0/24",
    router6: "2001:db8:a::1",
    router4: "10.0.1.1",
    host4: A4,
};

const CUSTOMER_B: Customer = Customer {
    prefix6: "2001:db8:b::/64",
    prefix4: "10.0.2.0/24",
    router6: "2001:db8:b::1",
    router4: "10.0.2.1",
    host4: B4,
};

const PE1: Edge = Edge {
    own: 1,
    other: 3,
    customer: CUSTOMER_A,
    remote: CUSTOMER_B,
    ports: ["eth0", "eth1"],
    core: ["fc00:12::1/64", "fc00:12::2"],
};

const PE2: Edge = Edge {
    own: 3,
    other: 1,
    customer: CUSTOMER_B,
    remote: CUSTOMER_A,
    ports: ["eth1", "eth0"],
    core: ["fc00:23::3/64", "fc00:23::2"],
};

/// The VRF device of [`Decapsulation4::Dt4`].
const VRF: &str = "customer";

/// Bytes of layer 3 on the cables to the hosts.
pub const HOST_MTU: u32 = 1500;
/// Bytes of layer 3 on the cables between routers.
pub const CORE_MTU: u32 = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::screen::WIDTH;

    #[test]
    fn every_command_fits_on_the_screen_and_both_edges_mirror_each_other() {
        for node in ["a", "b", "pe1", "p", "pe2"] {
            for way in [Decapsulation4::Dt4, Decapsulation4::Dx4] {
                for command in commands(node, way) {
                    assert!(command.len() + 8 <= WIDTH, "{command}");
                }
            }
        }
        let mirrored = |text: &String| {
            let pairs = [
                ("fc00:1::", "fc00:3::"),
                ("db8:a:", "db8:b:"),
                ("10.0.1.", "10.0.2."),
                ("eth0", "eth1"),
            ];
            let mut text = text.replace("fc00:12::", "fc00:23::");
            for (one, other) in pairs {
                text = text
                    .replace(one, "\0")
                    .replace(other, one)
                    .replace('\0', other);
            }
            text.replace("fc00:23::1/", "fc00:23::3/")
        };
        let edge = |edge: Edge| edge.commands(["fc00:2::e"; 2], Decapsulation4::Dx4);
        let ours: Vec<String> = edge(PE1).iter().map(mirrored).collect();
        assert_eq!(ours, edge(PE2));
    }

    #[test]
    fn braces_are_expanded_as_in_a_shell() {
        assert_eq!(braces("a.{b,c}.d"), ["a.b.d", "a.c.d"]);
        assert_eq!(braces("a.b"), ["a.b"]);
    }

    #[test]
    fn the_picture_fits_on_the_screen() {
        let picture = picture(Decapsulation4::Dt4);
        assert!(picture.contains("End.DT4 "));
        assert!(
            picture
                .lines()
                .all(|line| line.chars().count() + 2 <= WIDTH)
        );
    }
}
