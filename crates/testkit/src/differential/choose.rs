//! Chooses the ports, routes, SIDs, headends and rules of a [`Scenario`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::scenario::{Kind, Line, Place, Port, Scenario, Sid, host_length, masked, segment};
use crate::lab::mac_text;
use crate::random::Random;

impl Scenario {
    /// Returns a random node.
    pub fn random(random: &mut Random) -> Self {
        let count = random.between(2, 4) as u8;
        let mut builder = Builder {
            taken: BTreeSet::new(),
            out: Self {
                ports: (0..count).map(|number| port(random, number)).collect(),
                lines: Vec::new(),
                tunsrc: tunsrc(random),
                seg6_flowlabel: random.weighted(&[(6, 0), (1, 1), (1, -1)]),
                places: Vec::new(),
            },
        };
        builder.links();
        builder.defaults(random);
        for _ in 0..random.between(3, 8) {
            builder.plain(random, true);
        }
        for _ in 0..random.between(2, 6) {
            builder.plain(random, false);
        }
        for _ in 0..random.between(4, 12) {
            builder.sid(random);
        }
        for _ in 0..random.between(2, 7) {
            builder.headend(random);
        }
        if random.one_in(3) {
            for priority in 0..random.between(1, 3) {
                builder.rule(random, 100 + priority);
            }
        }
        builder.out
    }
}

/// Chooses the tunnel source: an address of the node, another address, or none.
fn tunsrc(random: &mut Random) -> Option<Ipv6Addr> {
    match random.below(6) {
        0 => None,
        1 => Some(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
        _ => Some(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 2)),
    }
}

fn port(random: &mut Random, number: u8) -> Port {
    let mut settings = vec![format!("seg6_enabled: {}", !random.one_in(25))];
    if random.one_in(10) {
        settings.push(format!("hop_limit: {}", random.between(2, 255)));
    }
    if random.one_in(12) {
        settings.push(format!("rp_filter: {}", random.between(1, 2)));
    }
    if random.one_in(40) {
        settings.push("forwarding: false".to_owned());
    }
    Port {
        number,
        mtu: random.weighted(&[(6, 1500), (1, 1280), (1, 1400), (1, 2000), (1, 3000)]),
        settings,
    }
}

struct Builder {
    out: Scenario,
    /// Prefix, table and metric of every route, so that no route is added twice.
    taken: BTreeSet<(IpAddr, u8, u32, u32)>,
}

impl Builder {
    fn place(&mut self, kind: Kind, network: IpAddr, length: u8) {
        self.out.places.push(Place {
            kind,
            network,
            length,
            aside: false,
        });
    }

    /// Adds neighbors on the links, addresses of the node, and an unreachable address.
    fn links(&mut self) {
        for port in self.out.ports.clone() {
            let (name, gateway) = (port.name(), mac_text(port.gateway_mac()));
            let other = mac_text([2, 0, 0, 0, 0, port.number + 0x91]);
            for (address, mac) in [
                (IpAddr::from(port.host6(1)), &gateway),
                (port.host4(1).into(), &gateway),
                (port.host6(0x99).into(), &other),
                (port.host4(0x99).into(), &other),
            ] {
                self.out
                    .lines
                    .push(Line::Neighbor(format!("{address} lladdr {mac} dev {name}")));
                self.place(Kind::Edge, address, host_length(address));
            }
            self.place(Kind::Edge, port.host6(2).into(), 128);
            self.place(Kind::Edge, port.host4(2).into(), 32);
            self.place(Kind::Edge, port.host6(0).into(), 64);
        }
        self.place(
            Kind::Edge,
            Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0).into(),
            20,
        );
        self.place(Kind::Edge, Ipv4Addr::new(203, 0, 113, 0).into(), 24);
    }

    /// Adds default routes, so that most wrong addresses still have a route.
    fn defaults(&mut self, random: &mut Random) {
        for (ipv6, network) in [
            (true, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
            (false, Ipv4Addr::UNSPECIFIED.into()),
        ] {
            if random.one_in(2) {
                let words = self.next_hop(random, ipv6);
                let table = random.weighted(&[(4, MAIN), (1, 100)]);
                self.route(Kind::Edge, (network, 0), 0, table, &words);
                // Remove the place of the default route, because packets are sent to more specific
                // places.
                self.out.places.pop();
            }
        }
    }

    fn random_port(&self, random: &mut Random) -> Port {
        random.pick(&self.out.ports).clone()
    }

    /// Adds a route, unless one with this prefix, table and metric exists.
    fn route(&mut self, kind: Kind, place: (IpAddr, u8), metric: u32, table: u32, words: &str) {
        let (network, length) = place;
        if !self.taken.insert((network, length, table, metric)) {
            return;
        }
        let mut options = String::new();
        if table != MAIN {
            let _ = write!(options, " table {table}");
        }
        if metric != 0 {
            let _ = write!(options, " metric {metric}");
        }
        // A type such as `blackhole` precedes the prefix, and next hops follow it.
        let line = match words {
            "blackhole" | "unreachable" | "prohibit" | "throw" => {
                format!("{words} {network}/{length}{options}")
            }
            _ => format!("{network}/{length}{options} {words}"),
        };
        self.out.lines.push(Line::Route(line));
        self.out.places.push(Place {
            kind,
            network,
            length,
            aside: table != MAIN,
        });
    }

    /// Returns `via` and `dev` of a plain route.
    fn next_hop(&self, random: &mut Random, ipv6: bool) -> String {
        let port = self.random_port(random);
        let host = random.weighted(&[(24, 1u8), (6, 0x99), (1, 0x66)]);
        let onlink = if random.one_in(20) { " onlink" } else { "" };
        match (random.one_in(40), ipv6) {
            (true, _) => format!("dev {}", port.name()),
            (_, true) => format!(
                "via {} dev {}{onlink}",
                port.host6(host.into()),
                port.name()
            ),
            (_, false) => format!("via {} dev {}{onlink}", port.host4(host), port.name()),
        }
    }

    /// Returns next hops on several ports, with weights.
    fn several(&self, random: &mut Random, ipv6: bool) -> String {
        let next_hops: Vec<String> = self
            .out
            .ports
            .iter()
            .map(|port| {
                let host = if ipv6 {
                    IpAddr::from(port.host6(1))
                } else {
                    port.host4(1).into()
                };
                let weight = random.between(1, 4);
                format!("nexthop via {host} dev {} weight {weight}", port.name())
            })
            .collect();
        next_hops.join(" ")
    }

    fn plain(&mut self, random: &mut Random, ipv6: bool) {
        let within = self.nested(random, ipv6);
        let table = random.weighted(&[(6, MAIN), (2, 100), (1, 200)]);
        let words = match random.below(24) {
            0 => "blackhole".to_owned(),
            1 => (*random.pick(&["unreachable", "prohibit", "throw"])).to_owned(),
            2 => format!(
                "{} mtu {}",
                self.next_hop(random, ipv6),
                random.between(1280, 1500)
            ),
            3..=5 => self.several(random, ipv6),
            _ => self.next_hop(random, ipv6),
        };
        let metric = random.weighted(&[(8, 0), (1, 10), (1, 2000)]);
        self.route(Kind::Plain, within, metric, table, &words);
    }

    /// Returns a new prefix, or one inside another prefix.
    fn nested(&self, random: &mut Random, ipv6: bool) -> (IpAddr, u8) {
        let plain = |place: &&Place| place.kind == Kind::Plain && place.is_ipv6() == ipv6;
        let known: Vec<Place> = self.out.places.iter().filter(plain).copied().collect();
        if !known.is_empty() && random.one_in(3) {
            let outer = *random.pick(&known);
            let most = host_length(outer.network);
            let length = (outer.length + random.between(0, 16) as u8).min(most);
            return (masked(outer.address(random), length), length);
        }
        if ipv6 {
            let network = Ipv6Addr::new(0x2001, 0xdb8, random.below(4096) as u16, 0, 0, 0, 0, 0);
            let length = random.weighted(&[(6, 48), (1, 44), (2, 64), (1, 57), (1, 128)]);
            (masked(network.into(), length), length)
        } else {
            let network = Ipv4Addr::new(198, random.between(18, 19) as u8, random.next() as u8, 0);
            let length = random.weighted(&[(6, 24), (1, 20), (1, 29), (1, 32)]);
            (masked(network.into(), length), length)
        }
    }

    /// Returns an address for a segment list.
    fn segment(&self, random: &mut Random) -> Ipv6Addr {
        segment(&self.out.places, random)
    }

    /// Returns an IPv6 address that a plain route of the main table covers.
    fn transit(&self, random: &mut Random) -> Ipv6Addr {
        let places = &self.out.places;
        let plain = |place: &&Place| place.kind == Kind::Plain && place.is_ipv6() && !place.aside;
        let known: Vec<Place> = places.iter().filter(plain).copied().collect();
        segment(if known.is_empty() { places } else { &known }, random)
    }

    fn segments(&self, random: &mut Random) -> String {
        let count = random.weighted(&[(4, 1), (4, 2), (3, 3), (1, 5), (1, 16)]);
        let list: Vec<String> = (0..count)
            .map(|number| {
                // The node itself looks up the first segment, and punts packets to one of its own
                // SIDs.
                let transit = number == 0 && !random.one_in(6);
                let segment = if transit {
                    self.transit(random)
                } else {
                    self.segment(random)
                };
                segment.to_string()
            })
            .collect();
        list.join(",")
    }

    fn headend(&mut self, random: &mut Random) {
        let (segments, port) = (self.segments(random), self.random_port(random));
        let ipv6 = !random.one_in(3);
        let modes: &[&str] = if ipv6 {
            &[
                "encap",
                "encap",
                "encap.red",
                "inline",
                "l2encap",
                "l2encap.red",
            ]
        } else {
            &["encap", "encap", "encap.red", "l2encap", "l2encap.red"]
        };
        let mode = *random.pick(modes);
        let words = format!("encap seg6 mode {mode} segs {segments} dev {}", port.name());
        let prefix = if ipv6 {
            let network = Ipv6Addr::new(0x2001, 0xdb9, random.below(4096) as u16, 0, 0, 0, 0, 0);
            (network.into(), random.weighted(&[(4, 48), (1, 64)]))
        } else {
            (
                Ipv4Addr::new(100, random.between(64, 127) as u8, 0, 0).into(),
                16,
            )
        };
        let table = random.weighted(&[(6, MAIN), (1, 100)]);
        self.route(Kind::Headend, prefix, 0, table, &words);
    }

    fn sid(&mut self, random: &mut Random) {
        let port = self.random_port(random);
        let table = random.weighted(&[(2, MAIN), (2, 100), (1, 200)]);
        let length = random.weighted(&[(4, 128), (1, 64), (1, 48)]);
        let network = Ipv6Addr::new(0xfc0f, 0, random.below(4096) as u16, 0, 0, 0, 0, 0);
        let mut prefix = (IpAddr::from(network), length);
        let (next_hop6, next_hop4) = (self.cross6(random), self.cross4(random));
        let oif = self.random_port(random).name();
        let (kind, words) = match random.below(12) {
            0 => (Sid::Transit, "End".to_owned()),
            1 => (Sid::Transit, "End flavors psp".to_owned()),
            2 | 3 => {
                let (block, function) = random.weighted(&[
                    (3, (32, 16)),
                    (1, (48, 16)),
                    (1, (32, 8)),
                    (1, (40, 24)),
                    (1, (64, 32)),
                    (1, (80, 16)),
                ]);
                let network = u128::from(Ipv6Addr::new(0xfcbb, 0xbb00, 0, 0, 0, 0, 0, 0));
                let id = u128::from(random.between(1, 15) as u64);
                let network = network | id << (128 - u32::from(block) - u32::from(function));
                prefix = (Ipv6Addr::from(network).into(), block + function);
                let flavors = format!("flavors next-csid lblen {block} nflen {function}");
                let words = match random.below(4) {
                    0 => format!("End.X nh6 {next_hop6} {flavors}"),
                    1 => format!("End flavors psp,next-csid lblen {block} nflen {function}"),
                    _ => format!("End {flavors}"),
                };
                (Sid::Container(block, function), words)
            }
            4 => (Sid::Transit, format!("End.X nh6 {next_hop6}")),
            5 => (Sid::Transit, format!("End.T table {table}")),
            6 => (Sid::Ethernet, format!("End.DX2 oif {oif}")),
            7 => (Sid::Ipv4, format!("End.DX4 nh4 {next_hop4}")),
            8 => (Sid::Ipv6, format!("End.DX6 nh6 {next_hop6}")),
            9 => (Sid::Ipv6, format!("End.DT6 table {table}")),
            10 => (
                Sid::Transit,
                format!("End.B6 srh segs {}", self.segments(random)),
            ),
            _ => (
                Sid::Transit,
                format!("End.B6.Encaps srh segs {}", self.segments(random)),
            ),
        };
        let table = random.weighted(&[(10, MAIN), (1, 100)]);
        let words = format!("encap seg6local action {words} dev {}", port.name());
        self.route(Kind::Sid(kind), prefix, 0, table, &words);
    }

    /// Returns the next hop of a cross-connect: from the tables, a gateway, a host on a link, or an
    /// address that a route covers.
    fn cross6(&self, random: &mut Random) -> Ipv6Addr {
        let port = self.random_port(random);
        match random.below(10) {
            0 => Ipv6Addr::UNSPECIFIED,
            1 => port.host6(0x99),
            2 if random.one_in(3) => self.segment(random),
            _ => port.host6(1),
        }
    }

    fn cross4(&self, random: &mut Random) -> Ipv4Addr {
        let port = self.random_port(random);
        let plain = |place: &&Place| place.kind == Kind::Plain && !place.is_ipv6();
        let known: Vec<Place> = self.out.places.iter().filter(plain).copied().collect();
        match random.below(8) {
            0 | 1 => Ipv4Addr::UNSPECIFIED,
            2 => port.host4(1),
            _ if known.is_empty() => port.host4(0x99),
            _ => match random.pick(&known).address(random) {
                IpAddr::V4(address) => address,
                IpAddr::V6(_) => port.host4(1),
            },
        }
    }

    fn rule(&mut self, random: &mut Random, priority: usize) {
        let port = self.random_port(random).name();
        let table = random.weighted(&[(4, "100"), (2, "200"), (1, "main")]);
        let words = match random.below(40) {
            0 => format!("priority {priority} to 2001:db8:800::/37 lookup {table}"),
            1 => format!("priority {priority} from 198.18.128.0/17 lookup {table}"),
            2 => format!("priority {priority} iif {port} blackhole"),
            3..=27 => format!("priority {priority} iif {port} lookup {table}"),
            _ => format!("priority {priority} lookup {table}"),
        };
        self.out.lines.push(Line::Rule(words));
    }
}

/// Number of the main table.
const MAIN: u32 = 254;
