//! Random routes and rules of one family, nested in each other, and the addresses around their edges.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Output;

use sidestep_model::route::Family;
use sidestep_testkit::netns::Namespace;
use sidestep_testkit::random::Random;
use sidestep_wire::{EtherType, Ethernet, Ipv4, Ipv6, Protocol};

use super::succeeded;

/// The interfaces: one side of each veth.
pub const PORTS: [&str; 4] = ["d0", "d1", "d2", "d3"];
const TABLES: [&str; 4] = ["main", "100", "101", "102"];
const ROUTES: usize = 1500;
const RULES: usize = 30;

/// A prefix: address and length. An IPv4 address is in the lower 32 bits.
type Prefix = (u128, u8);

/// A configuration, as commands of `ip`.
pub struct Configuration {
    family: Family,
    routes: Vec<String>,
    rules: Vec<String>,
    /// Prefixes of destinations and of sources.
    destinations: Vec<Prefix>,
    sources: Vec<Prefix>,
}

impl Configuration {
    /// Returns a random configuration.
    pub fn random(family: Family, random: &mut Random) -> Self {
        let destinations = prefixes(family, ROUTES / 3, random);
        let sources = prefixes(family, 40, random);
        let mut configuration = Self {
            family,
            routes: Vec::new(),
            rules: Vec::new(),
            destinations,
            sources,
        };
        let mut known = BTreeSet::new();
        while configuration.routes.len() < ROUTES {
            // Skip duplicates: a second route with the same prefixes and metric would add a next
            // hop.
            let (key, route) = configuration.route(random);
            if known.insert(key) {
                configuration.routes.push(route);
            }
        }
        for priority in 0..RULES {
            let rule = configuration.rule(100 + priority, random);
            configuration.rules.push(rule);
        }
        configuration
    }

    fn route(&self, random: &mut Random) -> (String, String) {
        let mut key = self.text(*random.pick(&self.destinations));
        let source = *random.pick(&self.sources);
        // `from ::/0` is a route like any other.
        if self.family == Family::V6 && source.1 > 0 && random.one_in(4) {
            let _ = write!(key, " from {}", self.text(source));
        }
        let _ = write!(
            key,
            " table {} metric {}",
            random.pick(&TABLES),
            10 * random.between(1, 2)
        );
        let kind = random.weighted(&[
            (20, ""),
            (2, "blackhole "),
            (1, "unreachable "),
            (1, "prohibit "),
            (4, "throw "),
        ]);
        let way = if kind.is_empty() {
            let port = random.below(PORTS.len());
            let host = *random.pick(&[1, 3]);
            let via = gateway(self.family, port, host);
            format!(" via {via} dev {}", PORTS[port])
        } else {
            String::new()
        };
        (key.clone(), format!("{kind}{key}{way}"))
    }

    fn rule(&self, priority: usize, random: &mut Random) -> String {
        let mut words = format!("priority {priority}");
        if random.one_in(6) {
            words += " not";
        }
        // Few rules select all packets, because the first such rule decides most results.
        let selects = random.weighted(&[
            (4, (true, false)),
            (4, (false, true)),
            (3, (true, true)),
            (1, (false, false)),
        ]);
        if selects.0 {
            let _ = write!(words, " from {}", self.text(*random.pick(&self.sources)));
        }
        if selects.1 {
            let _ = write!(words, " to {}", self.text(*random.pick(&self.destinations)));
        }
        if random.one_in(3) {
            let _ = write!(words, " iif {}", random.pick(&PORTS));
        }
        let lookup = format!(" lookup {}", random.pick(&TABLES));
        let suppress = format!(
            "{lookup} suppress_prefixlength {}",
            random.below(self.bits().into())
        );
        // A rule that refuses all packets would leave nothing to compare.
        let narrow = words.contains(" to ") && !words.contains("not");
        words
            + &random.weighted(&[
                (8, lookup),
                (3, suppress),
                (usize::from(narrow), " blackhole".to_owned()),
                (usize::from(narrow), " unreachable".to_owned()),
                (usize::from(narrow), " prohibit".to_owned()),
            ])
    }

    /// Applies the configuration to a new namespace.
    pub fn apply(&self, namespace: &Namespace) {
        let mut lines = wires(namespace, self.family);
        for route in &self.routes {
            let _ = writeln!(lines, "route add {route}");
        }
        for rule in &self.rules {
            let _ = writeln!(lines, "rule add {rule}");
        }
        succeeded(&ip(namespace, Some(self.family), &lines));
    }

    /// A destination and a source: at the edge of a prefix, in one, or anywhere.
    pub fn addresses(&self, random: &mut Random) -> (IpAddr, IpAddr) {
        let to = self.address(&self.destinations, random);
        loop {
            let from = self.address(&self.sources, random);
            // Sources that Linux refuses are not looked up.
            if !matches!(from, IpAddr::V4(from) if matches!(from.octets()[0], 0 | 127 | 172 | 224..))
            {
                return (to, from);
            }
        }
    }

    fn address(&self, prefixes: &[Prefix], random: &mut Random) -> IpAddr {
        let (first, length) = *random.pick(prefixes);
        let within = mask(self.bits(), length);
        let number = match random.below(6) {
            0 => first,
            1 => first | within,
            2 => first.wrapping_sub(1),
            3 => (first | within).wrapping_add(1),
            4 => any(random, self.family),
            _ => first | any(random, self.family) & within,
        };
        self.ip(number)
    }

    fn ip(&self, number: u128) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::from(number as u32).into(),
            Family::V6 => Ipv6Addr::from(number).into(),
        }
    }

    fn text(&self, (address, length): Prefix) -> String {
        format!("{}/{length}", self.ip(address))
    }

    const fn bits(&self) -> u8 {
        bits(self.family)
    }
}

/// Enables forwarding, and returns the `ip` commands that create the interfaces with two neighbors
/// each.
pub fn wires(namespace: &Namespace, family: Family) -> String {
    for path in ["net/ipv6/conf/all/forwarding", "net/ipv4/ip_forward"] {
        namespace.sysctl(path, "1").expect("a sysctl");
    }
    let mut lines = String::from("link set lo up\n");
    let (length, nodad) = match family {
        Family::V4 => (24, ""),
        Family::V6 => (96, " nodad"),
    };
    for (number, port) in PORTS.iter().enumerate() {
        let host = gateway(family, number, 2);
        let _ = write!(
            lines,
            "link add {port} type veth peer name peer{number}\n\
             link set {port} up\nlink set peer{number} up\n\
             addr add {host}/{length} dev {port}{nodad}\n"
        );
        for host in [1, 3] {
            let gateway = gateway(family, number, host);
            let _ = writeln!(
                lines,
                "neigh add {gateway} lladdr 02:00:00:00:0{host}:0{number} nud permanent dev {port}"
            );
        }
    }
    lines
}

/// Runs `ip -batch` with these lines. Groups of next hops have no family.
pub fn ip(namespace: &Namespace, family: Option<Family>, lines: &str) -> Output {
    let words: &[&str] = match family {
        Some(Family::V4) => &["ip", "-4", "-batch", "-"],
        Some(Family::V6) => &["ip", "-6", "-batch", "-"],
        None => &["ip", "-batch", "-"],
    };
    let output = namespace.exec_with_input(words, lines);
    output.expect("ip runs")
}

/// Host number in the prefix of a port; 2 is this node.
pub fn gateway(family: Family, port: usize, host: u8) -> String {
    match family {
        Family::V4 => format!("172.16.{port}.{host}"),
        Family::V6 => format!("fd00:0:0:{port}::{host}"),
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.rules.join("\n"))?;
        writeln!(f, "{}", self.routes.join("\n"))
    }
}

const fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

/// Returns a mask of the host bits of an address.
fn mask(bits: u8, length: u8) -> u128 {
    u128::MAX
        .checked_shr(u32::from(128 - bits) + u32::from(length))
        .unwrap_or(0)
}

/// Any address that is routed.
fn any(random: &mut Random, family: Family) -> u128 {
    match family {
        Family::V4 => u128::from(random.next() as u32 & 0x00ff_ffff | 0x0a00_0000),
        Family::V6 => {
            let low = u128::from(random.next()) << 64 | u128::from(random.next());
            low & mask(128, 7) | 0xfc << 120
        }
    }
}

/// Prefixes of all lengths, most of them within another.
fn prefixes(family: Family, count: usize, random: &mut Random) -> Vec<Prefix> {
    let bits = bits(family);
    let mut found: Vec<Prefix> = vec![(0, 0)];
    while found.len() < count {
        let (outer, shortest) = *random.pick(&found);
        let length = if random.one_in(3) {
            random.between(shortest.into(), bits.into()) as u8
        } else {
            (shortest + random.between(1, 8) as u8).min(bits)
        };
        let within = mask(bits, shortest);
        // Keep the first bits, which all routed addresses share.
        let address = if shortest < 8 { 0 } else { outer }
            | any(random, family) & if shortest < 8 { u128::MAX } else { within };
        found.push((address & !mask(bits, length) & mask(bits, 0), length));
    }
    found
}

/// A packet with these addresses for a port of this MAC address.
pub fn frame(mac: [u8; 6], to: IpAddr, from: IpAddr) -> Vec<u8> {
    let (ethertype, packet) = match (to, from) {
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let header = Ipv6::new(from, to, Protocol::NO_NEXT_HEADER);
            (EtherType::IPV6, header.emit(&[]))
        }
        (IpAddr::V4(to), IpAddr::V4(from)) => {
            let header = Ipv4::new(from, to, Protocol::NO_NEXT_HEADER);
            (EtherType::IPV4, header.emit(&[]))
        }
        _ => unreachable!("both are of one family"),
    };
    Ethernet {
        destination: mac,
        source: [2, 0, 0, 0, 0, 0x99],
        ethertype,
    }
    .emit(&packet)
}
