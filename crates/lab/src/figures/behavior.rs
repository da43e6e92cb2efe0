//! What is measured: each behavior as the routes that make it, the packet that is sent, and the packet that has to come
//! out, byte for byte, from Linux and from Sidestep. Where the two are not equal, docs/conformance.md says why.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::chain::{self, Service};
use super::hmac;
use super::network::{GENERATOR_MAC, ROUTER_MACS, SINK_MAC};
use super::packet::{ETHERNET, IPV4, IPV6, Ipv6, ROUTING, ethernet, srh, udp4, udp6};

/// One behavior of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// As the RFCs call it, and what is special.
    pub name: &'static str,
    /// What `ip route add` is given for it.
    pub routes: &'static [&'static str],
    /// What `ip -6 rule add` is given for it.
    pub rules: Vec<String>,
    /// The frame that the generator sends.
    pub sent: Vec<u8>,
    /// The frame that Linux makes of it.
    pub from_linux: Vec<u8>,
    /// The frame that Sidestep makes of it.
    pub from_sidestep: Vec<u8>,
    /// Sidestep computes the outer flow label from the inner packet: any value but 0.
    pub computed_label: bool,
    /// What `sidestep route add` is given: what Linux has not.
    pub proxies: Vec<String>,
    /// Ports of the router that no packet comes by: services, too.
    pub idle: usize,
    /// The service that the packet goes through.
    pub service: Option<Service>,
}

/// All behaviors, in the order of the table.
///
/// The inner flow label is 0, so Sidestep has to compute the outer one (RFC 6437), and Linux, which copies it, has not.
pub fn all() -> Vec<Behavior> {
    let mut behaviors = vec![
        forward("plain IPv6", &["2001:db8:d::/48 via fc01::1 dev eth1"], V6),
        forward("plain IPv4", &["198.51.100.0/24 via 10.1.0.1 dev eth1"], V4),
    ];
    behaviors.extend(ruled());
    behaviors.extend(headends());
    behaviors.extend(endpoints());
    behaviors.extend(decapsulations());
    behaviors.extend(hmac::all());
    behaviors.extend(chain::all());
    behaviors
}

/// Rules of which the last one names the packet, and the table that its route is in.
fn ruled() -> Vec<Behavior> {
    let from: Selector = |n| format!("from fd00:{n:x}::/32");
    let to: Selector = |n| format!("to fd00:{n:x}::/32");
    [
        ("1 iif rule", iif_rules(1)),
        ("80 iif rules", iif_rules(80)),
        ("160 iif rules", iif_rules(160)),
        ("10,000 iif rules", iif_rules(10_000)),
        ("80 from rules", rules(80, from, "from fc00::/16")),
        ("10,000 from rules", rules(10_000, from, "from fc00::/16")),
        ("80 to rules", rules(80, to, "to 2001:db8:d::/48")),
        ("10,000 to rules", rules(10_000, to, "to 2001:db8:d::/48")),
    ]
    .map(|(name, rules)| Behavior {
        rules,
        ..forward(
            name,
            &["2001:db8:d::/48 via fc01::1 dev eth1 table 100"],
            V6,
        )
    })
    .into()
}

/// So many rules for table 100, of which the last one names the port that packets come by.
pub fn iif_rules(count: usize) -> Vec<String> {
    rules(count, |n| format!("iif absent{n}"), "iif eth0")
}

fn rules(count: usize, others: Selector, last: &str) -> Vec<String> {
    let all = (1..count).map(others).chain([last.to_owned()]);
    all.zip(1000..)
        .map(|(it, priority)| format!("{it} priority {priority} lookup 100"))
        .collect()
}

/// The part of a rule that says what it is for, by number.
type Selector = fn(usize) -> String;

fn headends() -> [Behavior; 7] {
    [
        headend(
            "H.Encaps, 1 segment",
            &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1 dev eth1"],
            V6,
            &|inner| srh(IPV6, 0, &[NEXT], inner),
        ),
        headend(
            "H.Encaps, 2 segments",
            &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0c::1 dev eth1"],
            V6,
            &|inner| srh(IPV6, 1, &[LAST, NEXT], inner),
        ),
        headend(
            "H.Encaps of IPv4, 1 segment",
            &["198.51.100.0/24 encap seg6 mode encap segs fc0b::1 dev eth1"],
            V4,
            &|inner| srh(IPV4, 0, &[NEXT], inner),
        ),
        // RFC 8986 5.2: one segment needs no SRH.
        headend(
            "H.Encaps.Red, 1 segment",
            &["2001:db8:d::/48 encap seg6 mode encap.red segs fc0b::1 dev eth1"],
            Inner { bare: true, ..V6 },
            &<[u8]>::to_vec,
        ),
        headend(
            "H.Encaps.Red, 2 segments",
            &["2001:db8:d::/48 encap seg6 mode encap.red segs fc0b::1,fc0c::1 dev eth1"],
            V6,
            &|inner| srh(IPV6, 1, &[LAST], inner),
        ),
        h_insert(),
        h_encaps_l2(),
    ]
}

fn endpoints() -> [Behavior; 4] {
    [
        endpoint("End", &["fc0f::1/128 encap seg6local action End dev eth0"]),
        endpoint(
            "End.X, nh6 by a gateway",
            &[
                "fc0e::/16 via fc01::1 dev eth1",
                "fc0f::1/128 encap seg6local action End.X nh6 fc0e::1 dev eth0",
            ],
        ),
        endpoint(
            "End.X, nh6 on the link",
            &["fc0f::1/128 encap seg6local action End.X nh6 fc01::1 dev eth0"],
        ),
        endpoint(
            "End.T",
            &[
                "fc0b::/16 via fc01::1 dev eth1 table 100",
                "fc0f::1/128 encap seg6local action End.T table 100 dev eth0",
            ],
        ),
    ]
}

fn decapsulations() -> [Behavior; 5] {
    [
        decapsulation(
            "End.DX2",
            &["fc0f::1/128 encap seg6local action End.DX2 oif eth1 dev eth0"],
            ETHERNET,
            &inner_frame(),
            &inner_frame(),
        ),
        // On the link, Linux asks for the inner destination instead of nh4.
        decapsulation(
            "End.DX4, nh4 by a gateway",
            &[
                "192.0.2.0/24 via 10.1.0.1 dev eth1",
                "fc0f::1/128 encap seg6local action End.DX4 nh4 192.0.2.1 dev eth0",
            ],
            IPV4,
            &V4.packet(64),
            &V4.sent(&V4.packet(63)),
        ),
        decapsulation(
            "End.DX6, nh6 by a gateway",
            &[
                "fc0e::/16 via fc01::1 dev eth1",
                "fc0f::1/128 encap seg6local action End.DX6 nh6 fc0e::1 dev eth0",
            ],
            IPV6,
            &V6.packet(64),
            &V6.sent(&V6.packet(63)),
        ),
        decapsulation(
            "End.DX6, nh6 on the link",
            &["fc0f::1/128 encap seg6local action End.DX6 nh6 fc01::1 dev eth0"],
            IPV6,
            &V6.packet(64),
            &V6.sent(&V6.packet(63)),
        ),
        decapsulation(
            "End.DT6",
            &[
                "2001:db8:d::/48 via fc01::1 dev eth1",
                "fc0f::1/128 encap seg6local action End.DT6 table 254 dev eth0",
            ],
            IPV6,
            &V6.packet(64),
            &V6.sent(&V6.packet(63)),
        ),
    ]
}

fn forward(name: &'static str, routes: &'static [&'static str], inner: Inner) -> Behavior {
    let out = inner.sent(&inner.packet(63));
    Behavior {
        name,
        routes,
        sent: inner.received(&inner.packet(64)),
        from_linux: out.clone(),
        from_sidestep: out,
        computed_label: false,
        ..PLAIN
    }
}

/// An encapsulation; `behind` makes what comes behind the outer header. Linux decrements the outer hop limit, Sidestep
/// the inner one (RFC 8986 5.1 S05).
pub fn headend(
    name: &'static str,
    routes: &'static [&'static str],
    inner: Inner,
    behind: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Behavior {
    let out = |outer_hop_limit, inner_hop_limit| {
        let outer = Ipv6 {
            next_header: if inner.bare {
                inner.protocol()
            } else {
                ROUTING
            },
            hop_limit: outer_hop_limit,
            source: TUNSRC,
            destination: NEXT,
        };
        V6.sent(&outer.around(&behind(&inner.packet(inner_hop_limit))))
    };
    Behavior {
        name,
        routes,
        sent: inner.received(&inner.packet(64)),
        from_linux: out(63, 64),
        from_sidestep: out(64, 63),
        computed_label: true,
        ..PLAIN
    }
}

fn h_insert() -> Behavior {
    let sent = V6.packet(64);
    let header = Ipv6 {
        next_header: ROUTING,
        hop_limit: 63,
        source: HOST_6,
        destination: NEXT,
    };
    let out = V6.sent(&header.around(&srh(sent[6], 1, &[CUSTOMER_6, NEXT], &sent[40..])));
    Behavior {
        name: "H.Insert, 1 segment",
        routes: &["2001:db8:d::/48 encap seg6 mode inline segs fc0b::1 dev eth1"],
        sent: V6.received(&sent),
        from_linux: out.clone(),
        from_sidestep: out,
        computed_label: false,
        ..PLAIN
    }
}

/// The frame is carried as it came; Linux takes the outer hop limit from the packet in it.
fn h_encaps_l2() -> Behavior {
    let frame = V6.received(&V6.packet(64));
    let out = |hop_limit| {
        let outer = Ipv6 {
            next_header: ROUTING,
            hop_limit,
            source: TUNSRC,
            destination: NEXT,
        };
        V6.sent(&outer.around(&srh(ETHERNET, 0, &[NEXT], &frame)))
    };
    Behavior {
        name: "H.Encaps.L2, 1 segment",
        routes: &["2001:db8:d::/48 encap seg6 mode l2encap segs fc0b::1 dev eth1"],
        sent: frame.clone(),
        from_linux: out(63),
        from_sidestep: out(64),
        computed_label: true,
        ..PLAIN
    }
}

/// A packet on its way from this SID to the next one.
fn endpoint(name: &'static str, routes: &'static [&'static str]) -> Behavior {
    let packet = |hop_limit, destination, segments_left| {
        let outer = Ipv6 {
            next_header: ROUTING,
            hop_limit,
            source: HOST_6,
            destination,
        };
        outer.around(&srh(IPV6, segments_left, &[NEXT, SID], &V6.packet(64)))
    };
    let out = V6.sent(&packet(63, NEXT, 0));
    Behavior {
        name,
        routes,
        sent: V6.received(&packet(64, SID, 1)),
        from_linux: out.clone(),
        from_sidestep: out,
        computed_label: false,
        ..PLAIN
    }
}

/// A packet at the end of a path of two segments.
fn decapsulation(
    name: &'static str,
    routes: &'static [&'static str],
    protocol: u8,
    inner: &[u8],
    out: &[u8],
) -> Behavior {
    let outer = Ipv6 {
        next_header: ROUTING,
        hop_limit: 64,
        source: HOST_6,
        destination: SID,
    };
    Behavior {
        name,
        routes,
        sent: V6.received(&outer.around(&srh(protocol, 0, &[SID, BEFORE], inner))),
        from_linux: out.to_vec(),
        from_sidestep: out.to_vec(),
        computed_label: false,
        ..PLAIN
    }
}

/// The customer's packets: UDP, 64 bytes, 78 with the Ethernet header.
#[derive(Clone, Copy, Debug)]
pub struct Inner {
    ipv4: bool,
    /// Directly behind the outer header, without an SRH.
    bare: bool,
}

impl Inner {
    pub fn packet(self, hop_limit: u8) -> Vec<u8> {
        if self.ipv4 {
            udp4(HOST_4, CUSTOMER_4, hop_limit, 64)
        } else {
            udp6(HOST_6, CUSTOMER_6, hop_limit, 64)
        }
    }

    fn protocol(self) -> u8 {
        if self.ipv4 { IPV4 } else { IPV6 }
    }

    fn ethertype(self) -> u16 {
        if self.ipv4 { 0x0800 } else { 0x86dd }
    }

    /// As the router gets a packet of this family.
    pub fn received(self, packet: &[u8]) -> Vec<u8> {
        ethernet(ROUTER_MACS[0], GENERATOR_MAC, self.ethertype(), packet)
    }

    /// As the router sends it on.
    pub fn sent(self, packet: &[u8]) -> Vec<u8> {
        ethernet(SINK_MAC, ROUTER_MACS[1], self.ethertype(), packet)
    }
}

/// Nothing but a router.
pub const PLAIN: Behavior = Behavior {
    name: "",
    routes: &[],
    rules: Vec::new(),
    sent: Vec::new(),
    from_linux: Vec::new(),
    from_sidestep: Vec::new(),
    computed_label: false,
    proxies: Vec::new(),
    idle: 0,
    service: None,
};

/// A frame between two customers' hosts, for End.DX2.
fn inner_frame() -> Vec<u8> {
    ethernet(
        [2, 0, 0, 0, 0, 0xb],
        [2, 0, 0, 0, 0, 0xa],
        0x86dd,
        &V6.packet(64),
    )
}

pub const V6: Inner = Inner {
    ipv4: false,
    bare: false,
};
const V4: Inner = Inner {
    ipv4: true,
    bare: false,
};

pub const HOST_6: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
const HOST_4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CUSTOMER_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd, 0, 0, 0, 0, 1);
const CUSTOMER_4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// `ip sr tunsrc`.
pub const TUNSRC: Ipv6Addr = Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0, 2);
/// The router's SID.
pub const SID: Ipv6Addr = Ipv6Addr::new(0xfc0f, 0, 0, 0, 0, 0, 0, 1);
/// The segment before it.
const BEFORE: Ipv6Addr = Ipv6Addr::new(0xfc0a, 0, 0, 0, 0, 0, 0, 1);
/// The segment after it, and the first of the headends.
pub const NEXT: Ipv6Addr = Ipv6Addr::new(0xfc0b, 0, 0, 0, 0, 0, 0, 1);
/// The second segment of the headends.
pub const LAST: Ipv6Addr = Ipv6Addr::new(0xfc0c, 0, 0, 0, 0, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain_frames_have_78_bytes() {
        let behaviors = all();
        for (index, behavior) in behaviors.iter().enumerate() {
            let name = behavior.name;
            assert!(
                behaviors[..index].iter().all(|other| other.name != name),
                "{name}"
            );
            let through_a_service = behavior.service.is_some();
            let length = if name.contains("HMAC") {
                behavior.sent.len()
            } else if name.contains("End.AM") {
                174
            } else if name.starts_with("End") || through_a_service {
                158
            } else {
                78
            };
            // End.DX2 carries an Ethernet header too.
            let inner = if name == "End.DX2" { 14 } else { 0 };
            assert_eq!(behavior.sent.len(), length + inner, "{name}");
            assert_eq!(
                behavior.from_linux.len(),
                behavior.from_sidestep.len(),
                "{name}"
            );
        }
    }
}
