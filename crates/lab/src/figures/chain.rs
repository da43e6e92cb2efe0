//! What is measured of SR proxies, which Linux has not: a service behind the router, and what one of many services sends
//! back.
//!
//! Beside a proxy stands, as in what is published of them, a service that knows SRv6 and does End itself, behind a router
//! that only forwards; both are Linux. Beside the way back, which Sidestep finds from the port alone, stands a Linux that
//! finds it by a policy rule for each service.

use std::net::Ipv6Addr;

use super::behavior::{Behavior, HOST_6, LAST, NEXT, PLAIN, SID, TUNSRC, V6, headend, iif_rules};
use super::packet::{IPV6, Ipv6, ROUTING, srh};

/// How a service forwards. Beside Linux it always does End.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The kernel routes plain packets.
    Kernel,
    /// An XDP program sends all packets out of the other interface and looks at none: the service is not what is measured.
    Xdp,
}

impl Service {
    /// The hop limit, from what it was before the router to what it is behind it.
    fn across(self, hop_limit: u8) -> u8 {
        match self {
            Self::Kernel => hop_limit - 3,
            Self::Xdp => hop_limit - 2,
        }
    }
}

/// In the order of the table.
pub fn all() -> Vec<Behavior> {
    use Service::{Kernel, Xdp};
    vec![
        end_ad("chain, End.AD", Kernel, 0),
        end_ad("chain, End.AD, age 1", Kernel, 1),
        end_as("chain, End.AS", Kernel),
        end_am("chain, End.AM", Kernel),
        end_ad("chain, End.AD, VNF in XDP", Xdp, 0),
        end_as("chain, End.AS, VNF in XDP", Xdp),
        end_am("chain, End.AM, VNF in XDP", Xdp),
        from_one_of("back, 1 service", 1),
        from_one_of("back, 80 services", 80),
        from_one_of("back, 160 services", 160),
    ]
}

fn end_ad(name: &'static str, service: Service, age: u32) -> Behavior {
    Behavior {
        // As End would have sent them, around what the service sent.
        from_sidestep: outer(63, HOST_6, 0, &[NEXT, SID], &V6.packet(service.across(64))),
        computed_label: true,
        proxies: vec![format!(
            "{TO_SERVICE} action End.AD {BEHIND} age {age} dev vnf0"
        )],
        ..through(name, service, &[NEXT, SID])
    }
}

fn end_as(name: &'static str, service: Service) -> Behavior {
    Behavior {
        from_sidestep: outer(64, TUNSRC, 1, &[LAST, NEXT], &V6.packet(service.across(64))),
        computed_label: true,
        proxies: vec![format!(
            "{TO_SERVICE} action End.AS {BEHIND} segs {NEXT},{LAST} src {TUNSRC} dev vnf0"
        )],
        ..through(name, service, &[NEXT, SID])
    }
}

/// With one segment more: what comes back with none left is the service's own.
fn end_am(name: &'static str, service: Service) -> Behavior {
    let segments = &[LAST, NEXT, SID];
    Behavior {
        from_sidestep: outer(service.across(64), HOST_6, 1, segments, &V6.packet(64)),
        proxies: vec![format!("{TO_SERVICE} action End.AM {BEHIND} dev vnf0")],
        ..through(name, service, segments)
    }
}

/// A packet whose segment list, in the header's order, ends with the router's or the service's SID.
fn through(name: &'static str, service: Service, segments: &[Ipv6Addr]) -> Behavior {
    let left = segments.len() as u8 - 1;
    let customers = V6.packet(64);
    Behavior {
        name,
        routes: &["fc0f::/16 via fd00:1::2 dev vnf0"],
        sent: V6.received(&packet(64, HOST_6, left, segments, &customers)),
        // The router, End, and the router again.
        from_linux: outer(61, HOST_6, left - 1, segments, &customers),
        service: Some(service),
        ..PLAIN
    }
}

/// A static proxy, so that Linux has a counterpart of what the way back does: H.Encaps.
fn from_one_of(name: &'static str, services: usize) -> Behavior {
    let proxies = (1..services).map(|n| {
        format!("fc0f::1:{n:x}/128 encap seg6local action End.AS oif idle{n} nh6 fd00::{n:x}:2 segs {NEXT} src {TUNSRC} dev idle{n}")
    });
    let measured = format!(
        "fc0f::1/128 encap seg6local action End.AS oif eth0 nh6 {HOST_6} segs {NEXT} src {TUNSRC} dev eth0"
    );
    Behavior {
        rules: iif_rules(services),
        proxies: proxies.chain([measured]).collect(),
        idle: services - 1,
        ..headend(
            name,
            &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1 dev eth1 table 100"],
            V6,
            &|inner| srh(IPV6, 0, &[NEXT], inner),
        )
    }
}

/// The frame that leaves the router with this segment list.
fn outer(
    hop_limit: u8,
    source: Ipv6Addr,
    segments_left: u8,
    segments: &[Ipv6Addr],
    inner: &[u8],
) -> Vec<u8> {
    V6.sent(&packet(hop_limit, source, segments_left, segments, inner))
}

/// The active segment is the destination.
fn packet(
    hop_limit: u8,
    source: Ipv6Addr,
    segments_left: u8,
    segments: &[Ipv6Addr],
    inner: &[u8],
) -> Vec<u8> {
    let header = Ipv6 {
        next_header: ROUTING,
        hop_limit,
        source,
        destination: segments[usize::from(segments_left)],
    };
    header.around(&srh(IPV6, segments_left, segments, inner))
}

/// The SID of every proxy that packets go through.
const TO_SERVICE: &str = "fc0f::1/128 encap seg6local";
/// Where the service is: behind two ports, one there and one back.
const BEHIND: &str = "oif vnf0 iif vnf1 nh6 fd00:1::2";
