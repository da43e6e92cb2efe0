//! The measurable behaviors: configuration, sent frame, and expected frame, which Linux and
//! Sidestep must produce byte for byte. docs/reference/conformance.md explains where the two
//! differ.
//!
//! Expected frames are built only from the header diagrams of the RFCs ([`super::packet`]), for any
//! number of segments and any size.

mod decapsulation;
mod endpoint;
mod forward;
mod headend;
mod hmac;
mod limit;
mod service;

use std::ops::RangeInclusive;

use super::customer::Customer;
use super::network::{MTU, Macs, PORTS, SERVICE_PORTS};
use super::{Case, Flows};
pub use headend::headend;
pub use hmac::Key;
pub use service::Service;
use sidestep_testkit::traffic::Receiver;

/// A behavior that campaigns can name.
#[derive(Clone, Debug)]
pub struct Kind {
    /// In campaigns: `end.dx4`.
    pub name: &'static str,
    /// Name as in the RFC, with its variant.
    pub title: &'static str,
    /// Allowed numbers of segments; 0 if the behavior has no segments.
    pub sids: RangeInclusive<u32>,
    /// Whether the behavior accepts additional rules and routes.
    pub takes_rules: bool,
    /// Reason if Linux does not support the behavior.
    pub not_in_linux: Option<&'static str>,
    /// Whether Linux supports the behavior only with VRF devices.
    pub needs_vrf: bool,
    /// Whether the behavior measures a limit of the test setup. Only engine `none` supports it.
    pub limit: bool,
    /// Minimum length of a customer packet, from its IP header on.
    pub least: usize,
    make: fn(&Arguments) -> Behavior,
}

/// Parameters of a behavior.
#[derive(Clone, Copy, Debug)]
struct Arguments {
    /// Segments.
    sids: u32,
    /// Size of the customer's packet in bytes, from its IP header on.
    length: usize,
}

/// A router's configuration and the expected packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behavior {
    /// Name for messages.
    pub name: String,
    /// Lines for `ip -batch` that create devices. Linux needs them, Sidestep does not.
    pub devices: Vec<String>,
    /// Sysctls of the router beyond those that all behaviors share: path below `/proc/sys`, value.
    pub sysctls: Vec<(&'static str, &'static str)>,
    /// Arguments of `ip route add`. If there are rules, they select the first route, for arriving
    /// packets or for packets that the service returns.
    pub routes: Vec<String>,
    /// Number of extra routes at the end, which no packet matches.
    pub beside: u32,
    /// Arguments of `ip rule add`.
    pub rules: Vec<String>,
    /// Whether the rules are IPv4 rules.
    pub ipv4_rules: bool,
    /// HMAC key of the behavior.
    pub key: Option<Key>,
    /// The frame that the generator sends. It ends with the customer's packet.
    pub sent: Vec<u8>,
    /// Offset of the customer's UDP header in the sent frame. Flows differ in the source port.
    pub udp_at: usize,
    /// The frame that Linux sends.
    pub from_linux: Vec<u8>,
    /// The frame that Sidestep sends.
    pub from_sidestep: Vec<u8>,
    /// Whether Sidestep computes the outer flow label from the inner packet. Any value but 0 is
    /// then correct.
    pub computed_label: bool,
    /// Arguments of `sidestep route add`, for behaviors that Linux does not support or supports
    /// only with [`Self::devices`].
    pub own: Vec<String>,
    /// Number of router ports that receive no packets, including ports to services.
    pub idle: usize,
    /// Queues of each port; 0 means 1.
    pub queues: u32,
    /// The service that the packet goes through. If Sidestep is the proxy ([`Self::own`]), the
    /// comparison with Linux uses [`Service::Kernel`], which runs End itself.
    pub service: Option<Service>,
}

/// Returns all behaviors in the order of a report.
pub fn kinds() -> Vec<Kind> {
    let groups = [
        forward::KINDS,
        headend::KINDS,
        endpoint::KINDS,
        decapsulation::KINDS,
        hmac::KINDS,
        service::KINDS,
        limit::KINDS,
    ];
    groups.concat()
}

/// Returns the behavior with this name.
///
/// # Errors
/// The name is unknown. The message lists the known names.
pub fn kind(name: &str) -> Result<Kind, String> {
    let all = kinds();
    let names: Vec<&str> = all.iter().map(|kind| kind.name).collect();
    let missing = format!("no behavior {name:?}; there are: {}", names.join(", "));
    all.into_iter()
        .find(|kind| kind.name == name)
        .ok_or(missing)
}

impl Kind {
    /// Checks the parameters. Sizes refer to the customer's packet.
    ///
    /// # Errors
    /// Returns the problem and the allowed values.
    pub fn check(&self, case: &Case) -> Result<(), String> {
        let (least, most) = (self.sids.start(), self.sids.end());
        if !self.sids.contains(&case.sids) {
            let allowed = match (least, most) {
                (0, 0) => "none".to_owned(),
                (least, most) => format!("{least} to {most}"),
            };
            return Err(format!(
                "{} with {} SIDs; allowed: {allowed}",
                self.name, case.sids
            ));
        }
        if !self.takes_rules && (case.rules, case.routes) != (0, 0) {
            return Err(format!(
                "{} does not accept extra rules and routes",
                self.name
            ));
        }
        if case.rules > RULES_MAX {
            return Err(format!(
                "{} rules; allowed are 0 to {RULES_MAX}",
                case.rules
            ));
        }
        if case.routes > ROUTES_MAX {
            return Err(format!(
                "{} routes; allowed are 0 to {ROUTES_MAX}",
                case.routes
            ));
        }
        if !(1..=CORES_MAX).contains(&case.cores) {
            return Err(format!(
                "{} cores; allowed are 1 to {CORES_MAX}",
                case.cores
            ));
        }
        if case.cores > 1 && !matches!(case.flows, Flows::Uniform(flows) if flows >= case.cores) {
            return Err(format!(
                "{} cores with {} flows; several cores need uniform flows, at least one each",
                case.cores,
                case.flows.count()
            ));
        }
        let flows = case.flows.count();
        if !(1..=FLOWS_MAX).contains(&flows) {
            return Err(format!("{flows} flows; allowed are 1 to {FLOWS_MAX}"));
        }
        for (length, _) in case.size.packets(self.least) {
            if length < self.least {
                let least = self.least;
                return Err(format!(
                    "packets of {length} bytes; allowed are {least} and more"
                ));
            }
            let frame = (length <= MTU as usize).then(|| self.longest(case.sids, length));
            if frame.is_none_or(|frame| frame > MTU as usize + ETHERNET) {
                return Err(format!(
                    "packets of {length} bytes do not fit the links' MTU of {MTU} with their headers"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether packets pass a service behind the router.
    pub fn needs_service(&self) -> bool {
        let made = (self.make)(&Arguments {
            sids: *self.sids.start(),
            length: self.least,
        });
        made.service.is_some()
    }

    fn longest(&self, sids: u32, length: usize) -> usize {
        let made = (self.make)(&Arguments { sids, length });
        let frames = [&made.sent, &made.from_linux, &made.from_sidestep];
        frames.into_iter().map(Vec::len).max().unwrap_or(0)
    }
}

impl Behavior {
    /// Returns a behavior that receives `sent` and sends `out`. `sent` ends with a packet of this
    /// customer.
    fn passing(sent: Vec<u8>, customer: Customer, out: Vec<u8>) -> Self {
        Self {
            udp_at: sent.len() - customer.datagram(),
            sent,
            from_linux: out.clone(),
            from_sidestep: out,
            ..Self::default()
        }
    }

    /// Returns the behavior of a case whose customer packet has `length` bytes, from its IP header
    /// on.
    ///
    /// # Errors
    /// The behavior is unknown or does not accept the parameters.
    pub fn of(case: &Case, length: usize) -> Result<Self, String> {
        let kind = kind(&case.behavior)?;
        kind.check(case)?;
        let sids = case.sids;
        let mut made = (kind.make)(&Arguments { sids, length });
        made.name = case.to_string();
        made.queues = case.cores;
        if case.rules > 0 {
            let rules = (1..=case.rules).map(|n| format!("iif absent{n}"));
            let last = made.last_selector();
            made.ruled(rules.chain([last]));
        }
        if case.routes > 0 {
            made.crowd(case.routes);
        }
        Ok(made)
    }

    /// Returns the part that Sidestep needs, without the devices and the SIDs that use them.
    #[must_use]
    pub fn without_devices(mut self) -> Self {
        if !self.devices.is_empty() {
            self.devices.clear();
            self.sysctls.clear();
            self.routes.remove(0);
        }
        self
    }

    /// Returns the same behavior with these Ethernet addresses.
    #[must_use]
    pub fn between(mut self, macs: &Macs) -> Self {
        for frame in [
            &mut self.sent,
            &mut self.from_linux,
            &mut self.from_sidestep,
        ] {
            macs.put(frame);
        }
        self
    }

    /// Selector of the rule that matches: the port through which the packets enter last.
    fn last_selector(&self) -> String {
        let port = match self.service {
            None => PORTS[0],
            Some(_) => SERVICE_PORTS[1],
        };
        format!("iif {port}")
    }

    /// Moves the first route into a table of its own if there are rules. Rules with these selectors
    /// look up this table; only the last one may match.
    pub fn ruled(&mut self, selectors: impl IntoIterator<Item = String>) {
        let ruled_already = !self.rules.is_empty();
        let rules = selectors.into_iter().zip(RULES_FROM..);
        self.rules = rules
            .map(|(selector, priority)| {
                format!("{selector} priority {priority} lookup {RULES_TABLE}")
            })
            .collect();
        if let Some(route) = self.routes.first_mut().filter(|_| !ruled_already) {
            self.ipv4_rules = is_ipv4(route);
            *route = format!("{route} table {RULES_TABLE}");
        }
    }

    /// Adds this number of routes next to the first one.
    fn crowd(&mut self, count: u32) {
        let Some(route) = self.routes.first() else {
            return;
        };
        let table = match self.rules[..] {
            [] => String::new(),
            _ => format!(" table {RULES_TABLE}"),
        };
        let ipv4 = is_ipv4(route);
        let others = (0..count).map(|n| {
            if ipv4 {
                let [_, a, b, c] = n.to_be_bytes();
                format!("{}.{b}.{c}.0/24 via 10.1.0.1 dev eth1{table}", 20 + a)
            } else {
                format!(
                    "fd01:{:x}:{:x}::/48 via fc01::1 dev eth1{table}",
                    n >> 16,
                    n & 0xffff
                )
            }
        });
        self.routes.extend(others);
        self.beside = count;
    }
}

fn is_ipv4(route: &str) -> bool {
    route
        .split(' ')
        .next()
        .is_some_and(|prefix| prefix.contains('.'))
}

/// LIMIT: policy rules; their priorities end below the one of table main.
const RULES_MAX: u32 = 30_000;
/// LIMIT: routes of a case.
const ROUTES_MAX: u32 = 1 << 21;
/// LIMIT: flows: source ports from [`super::packet::SOURCE_PORT`] on.
const FLOWS_MAX: u32 = 60_000;
/// LIMIT: cores of a case.
const CORES_MAX: u32 = Receiver::SOURCES_MAX as u32;
/// The table that the rules look up.
pub const RULES_TABLE: u32 = 1000;
/// The priority of the first rule.
pub const RULES_FROM: u32 = 2000;

const ETHERNET: usize = 14;
/// Length of an IPv6 header, a UDP header, and the 16 bytes of the generator's stamp.
const LEAST_6: usize = 64;
/// Length of an IPv4 header, a UDP header and the stamp, padded to the minimum of Ethernet.
const LEAST_4: usize = 46;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Size;

    fn case(kind: &Kind, sids: u32, length: u32) -> Case {
        Case {
            behavior: kind.name.to_owned(),
            sids,
            size: Size::Bytes(length),
            flows: Flows::Uniform(1),
            rules: 0,
            routes: 0,
            cores: 1,
        }
    }

    #[test]
    fn the_documentation_names_every_behavior() {
        let text = include_str!("../../../../docs/engines.md");
        for kind in kinds() {
            let name = format!("`{}`", kind.name);
            assert!(text.contains(&name), "docs/engines.md has no {name}");
        }
    }

    #[test]
    fn names_and_titles_are_unique() {
        let all = kinds();
        for (index, kind) in all.iter().enumerate() {
            let mut before = all[..index].iter();
            let same = before.find(|it| it.name == kind.name || it.title == kind.title);
            assert!(same.is_none(), "{}: {same:?}", kind.name);
        }
    }

    #[test]
    fn every_kind_accepts_the_ends_of_its_ranges_and_nothing_beyond() {
        for kind in kinds() {
            let (least, most) = (*kind.sids.start(), *kind.sids.end());
            for sids in [least, most] {
                for length in [kind.least, 1500] {
                    let made = Behavior::of(&case(&kind, sids, length as u32), length);
                    let made = made.expect("within its ranges");
                    let lengths = [made.from_linux.len(), made.from_sidestep.len()];
                    let alike = lengths[0] == lengths[1] || kind.not_in_linux.is_some();
                    assert!(alike, "{}: {lengths:?}", kind.name);
                    // The customer's UDP header is where `udp_at` says; its destination port is 9.
                    assert_eq!(made.sent[made.udp_at + 2..][..2], [0, 9], "{}", kind.name);
                }
            }
            let refused = |sids, length: usize| {
                let made = Behavior::of(&case(&kind, sids, length as u32), length);
                made.expect_err("beyond its ranges")
            };
            assert!(
                refused(most + 1, 1500).contains("allowed: "),
                "{}",
                kind.name
            );
            assert!(
                refused(most, kind.least - 1).contains("allowed are"),
                "{}",
                kind.name
            );
            assert!(refused(most, 3000).contains("MTU"), "{}", kind.name);
        }
    }

    #[test]
    fn frames_between_other_ports_differ_only_in_addresses() {
        let macs = Macs {
            generator: [0xb0; 6],
            router: [[0xb1; 6], [0xb2; 6]],
            sink: [0xb3; 6],
        };
        for kind in kinds() {
            let sids = *kind.sids.end();
            let made = Behavior::of(&case(&kind, sids, 1500), 1500).expect("made");
            let other = made.clone().between(&macs);
            for (lab, frame) in [
                (&made.sent, &other.sent),
                (&made.from_linux, &other.from_linux),
                (&made.from_sidestep, &other.from_sidestep),
            ] {
                let differ = lab.iter().zip(frame).filter(|(a, b)| a != b).count();
                // An inner Ethernet header has two more MACs; the output of End.DX2 is between
                // customers.
                assert!([0, 12, 24].contains(&differ), "{}: {differ}", kind.name);
                assert!(differ > 0 || kind.name == "end.dx2", "{}", kind.name);
                assert_eq!(lab.len(), frame.len());
            }
            assert_eq!(other.sent[..6], [0xb1; 6], "{}", kind.name);
            assert_eq!(other.sent[6..12], [0xb0; 6], "{}", kind.name);
        }
    }

    #[test]
    fn rules_select_the_route_and_extra_routes_are_added() {
        let kind = kind("ipv4").expect("it is there");
        let crowded = Case {
            rules: 2,
            routes: 300,
            ..case(&kind, 0, 64)
        };
        let made = Behavior::of(&crowded, 64).expect("made");
        assert!(made.ipv4_rules);
        let rules = ["iif absent1", "iif absent2", "iif eth0"];
        let rules = rules.iter().zip(RULES_FROM..);
        let rules: Vec<String> = rules
            .map(|(it, priority)| format!("{it} priority {priority} lookup {RULES_TABLE}"))
            .collect();
        assert_eq!(made.rules, rules);
        assert_eq!(made.routes.len(), 301);
        assert!(
            made.routes
                .iter()
                .all(|route| route.ends_with("dev eth1 table 1000"))
        );
        assert!(
            made.routes[300].starts_with("20.1.43.0/24 "),
            "{}",
            made.routes[300]
        );
        let alone = super::kind("end.usd").expect("it is there");
        let refused = Case {
            rules: 1,
            ..case(&alone, 0, 64)
        };
        assert!(Behavior::of(&refused, 64).is_err());
    }

    #[test]
    fn every_core_has_flows_of_its_own() {
        let kind = kind("ipv6").expect("it is there");
        for (cores, flows, allowed) in [
            (1, Flows::Zipf(8), true),
            (2, Flows::Uniform(2), true),
            (2, Flows::Uniform(1), false),
            (2, Flows::Zipf(8), false),
            (0, Flows::Uniform(8), false),
            (9, Flows::Uniform(9), false),
        ] {
            let asked = Case {
                flows,
                cores,
                ..case(&kind, 0, 64)
            };
            assert_eq!(kind.check(&asked).is_ok(), allowed, "{asked}");
        }
    }

    #[test]
    fn the_last_rule_before_a_service_matches_returned_packets() {
        for (name, sids, route) in [
            ("service", 0, "2001:db8:d::/48"),
            ("end.ad", 2, "fc0b::/64"),
        ] {
            let kind = kind(name).expect("it is there");
            let ruled = Case {
                rules: 80,
                ..case(&kind, sids, 64)
            };
            let made = Behavior::of(&ruled, 64).expect("made");
            assert_eq!(made.rules.len(), 81);
            let first = format!("iif absent1 priority {RULES_FROM} lookup {RULES_TABLE}");
            let priority = RULES_FROM + 80;
            let last = format!("iif vnf1 priority {priority} lookup {RULES_TABLE}");
            assert_eq!([&made.rules[0], &made.rules[80]], [&first, &last]);
            let expected = format!("{route} via fc01::1 dev eth1 table {RULES_TABLE}");
            assert_eq!(made.routes[0], expected);
        }
    }
}
