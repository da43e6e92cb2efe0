//! The network of the service chain, and what every node is told.

use super::super::Error;
pub use super::super::topology::{A4, A6, B4, B6};
use super::super::topology::{
    Between, CORE_MTU, Cable, Decapsulation4, HOST_MTU, edge_commands, host_commands, router, wire,
};
use crate::Lab;
use crate::program::Interrupt;

/// The nodes that Sidestep runs on.
pub const ROUTERS: [&str; 4] = ["pe1", "nfv1", "nfv2", "pe2"];
/// All nodes, in the order in which they are told what to do.
pub const NODES: [&str; 8] = ["a", "b", "pe1", "pe2", "nfv1", "nfv2", "fw", "lim"];
/// A TCP port that the firewall blocks.
pub const BLOCKED: u16 = 23;
/// A UDP port that the rate limiter watches.
pub const LIMITED: u16 = 5001;
/// What passes of it, in packets per second, and at once.
pub const LIMIT: (u32, u32) = (100, 10);

/// The picture of it.
pub const PICTURE: &str = "\
                          fw: firewall       lim: rate limiter
                         +-------------+      +-------------+
                         |eth0     eth1|      |eth0     eth1|
                         +--|-------|--+      +--|-------|--+
 host a       pe1           |       |            |       |           pe2       host b
+----+   +-----------+   +-svc0---svc1-+      +-svc0---svc1-+   +-----------+   +----+
|eth0|---|eth0   eth1|===|eth0 nfv1 eth1|====|eth0 nfv2 eth1|===|eth0   eth1|---|eth0|
+----+   +-----------+   +-------------+      +-------------+   +-----------+   +----+
           H.Encaps          End.AD               End.AD       End.DT6, DECAP4 ";

/// The firewall, then the rate limiter; on the way back in the opposite order.
pub const WHOLE: Between<'static> = [
    ["fc00:2::a6,fc00:4::a6", "fc00:2::a4,fc00:4::a4"],
    ["fc00:4::b6,fc00:2::b6", "fc00:4::b4,fc00:2::b4"],
];
/// The same without the rate limiter.
pub const SHORT: Between<'static> = [["fc00:2::a6", "fc00:2::a4"], ["fc00:2::b6", "fc00:2::b4"]];

/// The proxies, each with its node and the words behind `sidestep route add`: of both functions, for packets from `a` and
/// from `b`. What goes into a function by one interface comes back by the other, so that the way back says which it was.
pub fn proxies() -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for (node, locator) in [("nfv1", 2), ("nfv2", 4)] {
        for (customer, oif, iif) in [('a', 0, 1), ('b', 1, 0)] {
            for (family, service) in [
                (6, format!("nh6 fd00:{locator}{oif}::2")),
                (4, format!("nh4 10.{locator}.{oif}.2")),
            ] {
                let words = format!(
                    "fc00:{locator}::{customer}{family}/128 encap seg6local action End.AD oif svc{oif} iif svc{iif} \
                     {service} dev svc{oif}"
                );
                all.push((node, words));
            }
        }
    }
    all
}

/// The ports of a router that Sidestep runs on.
pub fn ports(router: &str) -> &'static [&'static str] {
    match router {
        "nfv1" | "nfv2" => &["eth0", "eth1", "svc0", "svc1"],
        _ => &["eth0", "eth1"],
    }
}

/// Namespaces and cables.
///
/// # Errors
/// The kernel refuses namespaces or veth.
pub fn build(interrupt: &Interrupt) -> Result<Lab, Error> {
    let cables: [Cable; 9] = [
        ("a", "eth0", "pe1", "eth0", HOST_MTU),
        ("pe1", "eth1", "nfv1", "eth0", CORE_MTU),
        ("nfv1", "eth1", "nfv2", "eth0", CORE_MTU),
        ("nfv2", "eth1", "pe2", "eth0", CORE_MTU),
        ("pe2", "eth1", "b", "eth0", HOST_MTU),
        ("nfv1", "svc0", "fw", "eth0", HOST_MTU),
        ("nfv1", "svc1", "fw", "eth1", HOST_MTU),
        ("nfv2", "svc0", "lim", "eth0", HOST_MTU),
        ("nfv2", "svc1", "lim", "eth1", HOST_MTU),
    ];
    wire(&NODES, &cables, interrupt)
}

/// What a node is told in plain `ip` and `nft` commands.
pub fn commands(node: &str, decapsulation4: Decapsulation4) -> Vec<String> {
    match node {
        "a" | "b" => host_commands(node),
        "nfv1" => nfv(2, &NFV1),
        "nfv2" => nfv(4, &NFV2),
        "fw" => [function(2), filter(&firewall())].concat(),
        "lim" => [function(4), filter(&limiter())].concat(),
        _ => {
            let mut all = edge_commands(node, WHOLE, decapsulation4);
            all.push(match node {
                "pe1" => "ip route add fc00:4::/48 via fc00:12::2 dev eth1".to_owned(),
                _ => "ip route add fc00:4::/48 via fc00:23::2 dev eth0".to_owned(),
            });
            all
        }
    }
}

/// At `pe1`: its IPv6 packets to the other customer take these segments.
pub fn steer([[segments, _], _]: Between<'_>) -> String {
    format!(
        "ip route replace 2001:db8:b::/64 encap seg6 mode encap segs {segments},fc00:3::d6 dev eth1"
    )
}

const NFV1: [&str; 5] = [
    "ip address add fc00:12::2/64 dev eth0",
    "ip address add fc00:24::2/64 dev eth1",
    "ip route add fc00:1::/48 via fc00:12::1 dev eth0",
    "ip route add fc00:3::/48 via fc00:24::4 dev eth1",
    "ip route add fc00:4::/48 via fc00:24::4 dev eth1",
];
const NFV2: [&str; 5] = [
    "ip address add fc00:24::4/64 dev eth0",
    "ip address add fc00:23::2/64 dev eth1",
    "ip route add fc00:1::/48 via fc00:24::2 dev eth0",
    "ip route add fc00:2::/48 via fc00:24::2 dev eth0",
    "ip route add fc00:3::/48 via fc00:23::3 dev eth1",
];

/// A router with these routes, and the cables to the function behind it.
fn nfv(locator: u8, routes: &[&str]) -> Vec<String> {
    let mut all = router("eth0,eth1,svc0,svc1");
    all.extend(routes.iter().map(|&route| route.to_owned()));
    for number in 0..2 {
        all.push(format!(
            "ip address add fd00:{locator}{number}::1/64 dev svc{number}"
        ));
        all.push(format!(
            "ip address add 10.{locator}.{number}.1/24 dev svc{number}"
        ));
    }
    all
}

/// A function behind the router with this locator: it forwards what comes by one cable out of the other.
fn function(locator: u8) -> Vec<String> {
    let mut all = router("eth0,eth1");
    // It is an endpoint of nothing.
    all.retain(|command| !command.contains("seg6"));
    for (number, customer, net) in [(0, 'a', 1), (1, 'b', 2)] {
        all.extend([
            format!("ip address add fd00:{locator}{number}::2/64 dev eth{number}"),
            format!("ip address add 10.{locator}.{number}.2/24 dev eth{number}"),
            format!("ip route add 2001:db8:{customer}::/64 via fd00:{locator}{number}::1"),
            format!("ip route add 10.0.{net}.0/24 via 10.{locator}.{number}.1"),
        ]);
    }
    all
}

fn firewall() -> String {
    format!("tcp dport {BLOCKED}")
}

fn limiter() -> String {
    let (rate, burst) = LIMIT;
    format!("udp dport {LIMITED} limit rate over {rate}/second burst {burst} packets")
}

/// A table whose only rule drops what fits, and counts it.
fn filter(fits: &str) -> Vec<String> {
    vec![
        "nft add table inet filter".to_owned(),
        "nft add chain inet filter forward { type filter hook forward priority 0 ; }".to_owned(),
        "nft add counter inet filter dropped".to_owned(),
        format!("nft add rule inet filter forward {fits} counter name dropped drop"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::screen::WIDTH;

    #[test]
    fn the_picture_fits_on_the_screen() {
        let lines = PICTURE.lines().map(|line| line.chars().count());
        assert!(lines.max() <= Some(WIDTH - 2));
    }

    #[test]
    fn each_function_is_told_where_both_customers_are_and_what_it_drops() {
        for (node, locator) in [("fw", 2), ("lim", 4)] {
            let all = commands(node, Decapsulation4::Dx4).join("\n");
            let back = format!("ip route add 2001:db8:a::/64 via fd00:{locator}0::1");
            let forth = format!("ip route add 10.0.2.0/24 via 10.{locator}.1.1");
            assert!(all.contains(&back) && all.contains(&forth), "{all}");
            assert!(!all.contains("seg6"), "{all}");
            assert!(all.ends_with("counter name dropped drop"), "{all}");
        }
    }

    #[test]
    fn the_edge_begins_with_the_whole_chain_and_each_segment_has_its_proxy() {
        let added = steer(WHOLE).replace("replace", "add");
        assert!(
            commands("pe1", Decapsulation4::Dx4).contains(&added),
            "{added}"
        );
        let sids: Vec<String> = proxies()
            .iter()
            .filter_map(|(_, proxy)| Some(proxy.split_once('/')?.0.to_owned()))
            .collect();
        assert_eq!(sids.len(), 8);
        for segments in WHOLE.as_flattened().iter().chain(SHORT.as_flattened()) {
            for segment in segments.split(',') {
                assert!(sids.iter().any(|sid| sid == segment), "{segment}");
            }
        }
    }
}
