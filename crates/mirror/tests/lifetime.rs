//! Routes with a lifetime: they end in the node when the kernel stops using them.

mod common;

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use common::{assert_current, batch, in_namespace, index, ip, sysctl, try_ip, two_pairs};
use sidestep_mirror::Mirror;
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Encap, RouteKind};

/// What becomes of packets to an address.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// By one of these links.
    Egress(Vec<IfIndex>),
    Unreachable,
    /// Linux decides.
    Punted,
}

impl Fate {
    fn may_be(&self, kernel: &Self) -> bool {
        match (self, kernel) {
            (Self::Egress(own), Self::Egress(kernel)) => own.contains(&kernel[0]),
            (Self::Punted, _) => true,
            _ => self == kernel,
        }
    }
}

/// Returns what the kernel does with packets to an address.
fn of_kernel(mirror: &Mirror, to: &str) -> Fate {
    let output = try_ip(&format!("-6 route get {to}"));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut words = text.split_whitespace();
    match words.find(|word| *word == "dev").and_then(|_| words.next()) {
        Some(dev) if output.status.success() && dev != "lo" => {
            Fate::Egress(vec![index(mirror, dev)])
        }
        _ => Fate::Unreachable,
    }
}

/// Returns what the routes of table main say: the longest prefix, and then the lowest metric.
fn of_node(mirror: &Mirror, to: &str) -> Fate {
    let to: IpAddr = to.parse::<Ipv6Addr>().expect("an address").into();
    let routes = mirror.node().routes.values();
    let found = routes
        .filter(|route| route.key.table == TableId::MAIN && route.key.prefix.contains(&to))
        .max_by_key(|route| {
            let length = route.key.prefix.prefix_len();
            (length, std::cmp::Reverse(route.key.metric))
        });
    match found {
        Some(route) if route.kind == RouteKind::Unicast => {
            let hops = &route.next_hops;
            match &hops[0].encap {
                Some(Encap::Unsupported(_)) => Fate::Punted,
                _ => Fate::Egress(hops.iter().filter_map(|hop| hop.dev).collect()),
            }
        }
        _ => Fate::Unreachable,
    }
}

/// Follows the kernel for some time. The node may differ for at most a second.
fn assert_follows(mirror: &mut Mirror, to: &[&str], time: Duration) {
    let end = Instant::now() + time;
    let mut equal = Instant::now();
    while Instant::now() < end {
        mirror.process().expect("process");
        let fates = |of: fn(&Mirror, &str) -> Fate| -> Vec<Fate> {
            to.iter().map(|to| of(mirror, to)).collect()
        };
        let (kernel, node) = (fates(of_kernel), fates(of_node));
        if node
            .iter()
            .zip(&kernel)
            .all(|(node, kernel)| node.may_be(kernel))
        {
            equal = Instant::now();
        }
        let differ = equal.elapsed();
        assert!(
            differ < Duration::from_secs(1),
            "different for {differ:?}: {to:?}: {kernel:?}, node {node:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_route_ends_when_the_kernel_stops_using_it() {
    in_namespace(|| {
        two_pairs();
        // The kernel collects expired routes after this time.
        sysctl("ipv6/route/gc_interval", "4");
        let mut mirror = Mirror::open().unwrap();
        batch(
            "-6 route add 2001:db8:1::/48 via fc00:1::2 dev va metric 10 expires 1
             -6 route add 2001:db8:1::/48 via fc00:2::2 dev vc metric 20
             -6 route add 2001:db8:2::/48 via fc00:1::2 dev va expires 1
             -6 route add 2001:db8:3::/48 encap seg6local action End dev va expires 1
             -6 route add 2001:db8:4::/48 via fc00:1::2 dev va
             -6 route replace 2001:db8:4::/48 via fc00:1::2 dev va expires 1
             -6 route add 2001:db8:5::/48 dev va expires 1
             -6 route append 2001:db8:5::/48 dev vc
             -6 route add 2001:db8:6::/48 via fc00:1::2 dev va expires 1
             -6 route replace 2001:db8:6::/48 via fc00:1::2 dev va expires 60
             -6 route add 2001:db8:7::/48 via fc00:1::2 dev va expires 1
             -6 route replace 2001:db8:7::/48 via fc00:1::2 dev va
             -6 route add 2001:db8:8::/48 via fc00:1::2 dev va metric 10
             -6 route append 2001:db8:8::/48 via fc00:2::2 dev vc metric 10 expires 1
             -6 route add blackhole 2001:db8:9::/48 metric 10 expires 1
             -6 route add 2001:db8:9::/48 via fc00:2::2 dev vc metric 20
             -6 addr add 2001:db8:a::1/64 dev va nodad valid_lft 2 preferred_lft 1
             -6 route add 2001:db8:b::/48 expires 1 nexthop via fc00:1::2 dev va nexthop via fc00:1::3 dev va",
        );
        let to = [
            "2001:db8:1::9",
            "2001:db8:2::9",
            "2001:db8:4::9",
            "2001:db8:5::9",
            "2001:db8:6::9",
            "2001:db8:7::9",
            "2001:db8:8::9",
            "2001:db8:9::9",
            "2001:db8:a::9",
            "2001:db8:b::9",
        ];
        assert_follows(&mut mirror, &to, Duration::from_secs(4));
        let sid = "2001:db8:3::/48".parse().unwrap();
        let has_sid = |mirror: &Mirror| mirror.node().routes.keys().any(|key| key.prefix == sid);
        assert!(!has_sid(&mirror), "a SID after its lifetime");
        assert_follows(&mut mirror, &to, Duration::from_secs(8));
        ip("-6 route replace 2001:db8:2::/48 via fc00:1::2 dev va");
        assert_current(&mut mirror, "after the kernel's collection");
    });
}

#[test]
fn a_lifetime_that_ends_during_a_resync_is_not_missed() {
    in_namespace(|| {
        two_pairs();
        let to = ["2001:db8:2::9"];
        ip("-6 route add 2001:db8:2::/48 via fc00:1::2 dev va expires 1");
        let mut mirror = Mirror::open().unwrap();
        let end = Instant::now() + Duration::from_millis(1500);
        // Each change of the link reads its routes again.
        while Instant::now() < end {
            ip("link set va mtu 1400");
            mirror.process().unwrap();
            ip("link set va mtu 1500");
            mirror.process().unwrap();
        }
        assert_follows(&mut mirror, &to, Duration::from_secs(2));
        assert_eq!(of_node(&mirror, to[0]), Fate::Unreachable);
    });
}
