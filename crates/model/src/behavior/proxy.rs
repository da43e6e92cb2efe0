//! Attributes of SR proxies (End.AS, End.AD, End.AM): how the service is reached, what it receives,
//! what the proxy learns, and what happens while the service is down.
//!
//! `chain`, `nheth` and `age` have the meaning of the published kernel implementation of End.AD.
//! Terms in capitals are those of draft-ietf-spring-srv6-service-programming 6.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::attribute::Attribute;
use super::check::{Wrong, join, wrong};
use super::{Behavior, Seg6Local};
use crate::node::{IfIndex, Mac};

/// Attributes of SR proxies. Unset in all other behaviors.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Proxy {
    /// `chain …`. Default: `inbound`.
    pub chain: Option<Chain>,
    /// `src ADDRESS`: source of the outer header that End.AS pushes (CACHE.SA).
    pub src: Option<Ipv6Addr>,
    /// `nheth MAC`: MAC address of the service (NH-ADDR), instead of resolving `nh6` or `nh4`.
    pub nheth: Option<Mac>,
    /// `inner TYPE` as written. [`Seg6Local::sees`] gives the default.
    pub inner: Option<InnerType>,
    /// `age SECONDS`: minimum time between two changes of the learned headers. With `None` or 0,
    /// every packet may change them.
    pub age: Option<u32>,
    /// `flows N`: learn headers per inner flow, for at most N flows, [`FLOWS_MIN`] to [`FLOWS`].
    pub flows: Option<u32>,
    /// `liveness …`.
    pub liveness: Option<Liveness>,
    /// `on-down …`. Default: [`OnDown::Drop`]. Requires `liveness`.
    pub on_down: Option<OnDown>,
}

/// Direction of a proxy that a route configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Chain {
    /// Toward the service: the SID. It implies the return path.
    Inbound,
    /// From the service. It has no effect, since the inbound SID already configures the return
    /// path.
    FromVnf,
}

/// Payload that the service receives (INNER-TYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum InnerType {
    /// IPv6 packets.
    Ipv6,
    /// IPv4 packets.
    Ipv4,
    /// Ethernet frames.
    L2,
}

/// Liveness detection of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Liveness {
    /// Probe type.
    pub probe: Probe,
    /// Milliseconds between two probes, [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub interval: u32,
}

/// Probe type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Probe {
    /// ICMP echo to its address.
    Icmp,
    /// ARP or neighbor discovery for its address.
    Arp,
    /// Link state.
    Link,
}

/// Action for packets whose service is down.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum OnDown {
    /// Drop them.
    #[default]
    Drop,
    /// Forward them to the next segment, without the service.
    Bypass,
}

/// LIMIT: the shortest time between two probes, in milliseconds.
pub const INTERVAL_MIN: u32 = 10;
/// LIMIT: the longest time between two probes, in milliseconds.
pub const INTERVAL_MAX: u32 = 60_000;
/// Default time between two probes, in milliseconds.
pub const INTERVAL: u32 = 1000;

/// LIMIT: maximum and default number of flows that the proxies of a service learn headers for.
pub const FLOWS: u32 = 8192;
/// Minimum number of flows.
pub const FLOWS_MIN: u32 = 8;

impl Behavior {
    /// Returns true for SR proxies.
    pub const fn is_proxy(self) -> bool {
        matches!(self, Self::EndAs | Self::EndAd | Self::EndAm)
    }
}

impl Seg6Local {
    /// Returns the interface of the return path (IFACE-IN), or `None` if this is no proxy.
    pub fn back(&self) -> Option<IfIndex> {
        self.iif.or(self.oif).filter(|_| self.action.is_proxy())
    }

    /// Returns true if the service receives this inner type. A service behind End.AM receives IPv6
    /// unchanged and has no inner type.
    pub fn sees(&self, inner: InnerType) -> bool {
        if !matches!(self.action, Behavior::EndAs | Behavior::EndAd) {
            return false;
        }
        match (self.proxy.inner, inner) {
            (Some(only), _) => only == inner,
            // As in the published implementation, a MAC address alone belongs to an IPv6 service.
            (None, InnerType::Ipv6) => {
                self.nh6.is_some() || (self.lacks_next_hop() && self.proxy.nheth.is_some())
            }
            (None, InnerType::Ipv4) => self.nh4.is_some(),
            (None, InnerType::L2) => self.lacks_next_hop() && self.proxy.nheth.is_none(),
        }
    }

    fn lacks_next_hop(&self) -> bool {
        self.nh6.is_none() && self.nh4.is_none()
    }
}

/// Checks that the attributes of a proxy are consistent.
pub(super) fn check(local: &Seg6Local) -> Result<(), Wrong> {
    check_addresses(local)?;
    if local.action != Behavior::EndAm {
        check_inner(local)?;
    }
    check_liveness(local)
}

/// A `chain fromVNF` route has `iif` and no other attribute.
pub(super) fn check_from_vnf(local: &Seg6Local) -> Result<(), Wrong> {
    let iif = Attribute::Iif;
    if !local.has(iif) {
        let problem = format!("fromVNF requires `{}`", iif.keyword());
        return Err(wrong("chain", problem, iif.form()));
    }
    let known = [Attribute::Chain, iif, Attribute::Count];
    match local.attributes().find(|other| !known.contains(other)) {
        None => Ok(()),
        Some(other) => Err(wrong(
            other.keyword(),
            "`chain fromVNF` does not accept",
            "it at the inbound SID of the same service",
        )),
    }
}

fn check_addresses(local: &Seg6Local) -> Result<(), Wrong> {
    let bad6 = |address: &Ipv6Addr| {
        address.is_unspecified() || address.is_multicast() || address.is_loopback()
    };
    let unicast = "a unicast address";
    if let Some(nh6) = local.nh6.filter(bad6) {
        return Err(wrong(
            "nh6",
            format!("no service has the address {nh6}"),
            unicast,
        ));
    }
    let bad4 = |address: &Ipv4Addr| {
        address.is_unspecified()
            || address.is_multicast()
            || address.is_broadcast()
            || address.is_loopback()
    };
    if let Some(nh4) = local.nh4.filter(bad4) {
        return Err(wrong(
            "nh4",
            format!("no service has the address {nh4}"),
            unicast,
        ));
    }
    match local.proxy.src.filter(bad6) {
        Some(src) => Err(wrong("src", format!("{src} cannot be a source"), unicast)),
        None => Ok(()),
    }
}

fn check_inner(local: &Seg6Local) -> Result<(), Wrong> {
    let given = |attribute: &Attribute| local.has(*attribute);
    let addresses = [Attribute::Nh6, Attribute::Nh4];
    if local.proxy.nheth.is_some() && addresses.iter().any(given) {
        let problem = "a service has either a MAC address or an IP address";
        return Err(wrong(
            "nheth",
            problem,
            "one of nheth MAC, nh6 IPV6, nh4 IPV4",
        ));
    }
    // draft-ietf-spring-srv6-service-programming-00 6.1: a segment has one INNER-TYPE.
    if addresses.iter().all(given) {
        return Err(wrong(
            "nh4",
            "a SID has one inner type, so nh6 excludes",
            "nh6 or nh4; a second SID on the same interfaces serves the other family",
        ));
    }
    let (inner, takes): (_, &[Attribute]) = match local.proxy.inner {
        None => return check_flows(local),
        Some(inner @ InnerType::Ipv6) => (inner, &[Attribute::Nh6, Attribute::Nheth]),
        Some(inner @ InnerType::Ipv4) => (inner, &[Attribute::Nh4, Attribute::Nheth]),
        Some(inner @ InnerType::L2) => (inner, &[]),
    };
    let forms = join(takes.iter().map(|attribute| attribute.form()), " or ");
    let all = [Attribute::Nh6, Attribute::Nh4, Attribute::Nheth];
    if let Some(other) = all.iter().find(|a| given(a) && !takes.contains(a)) {
        let expected = match takes {
            [] => "no address: frames carry their own".to_owned(),
            _ => forms,
        };
        return Err(wrong(
            other.keyword(),
            format!("`inner {inner}` does not accept"),
            expected,
        ));
    }
    if !takes.is_empty() && !takes.iter().any(given) {
        return Err(wrong(
            "inner",
            format!("{inner} requires the address of the service"),
            forms,
        ));
    }
    check_flows(local)
}

fn check_flows(local: &Seg6Local) -> Result<(), Wrong> {
    if local.proxy.flows.is_some() && local.sees(InnerType::L2) {
        let problem = "flows require IP packets, but this service receives frames:";
        return Err(wrong("flows", problem, "nh6, nh4 or nheth as well"));
    }
    Ok(())
}

fn check_liveness(local: &Seg6Local) -> Result<(), Wrong> {
    match local.proxy.liveness {
        None if local.proxy.on_down.is_some() => {
            let problem = "`liveness` is required for";
            Err(wrong("on-down", problem, Attribute::Liveness.form()))
        }
        Some(Liveness { probe, .. }) if probe != Probe::Link && local.lacks_next_hop() => {
            let problem = format!("{probe} requires the address of the service for");
            Err(wrong(
                "liveness",
                problem,
                "nh6 or nh4 as well, or `liveness link`",
            ))
        }
        _ => Ok(()),
    }
}

/// An enum whose values are words of the grammar.
pub(crate) trait Vocabulary: Copy + PartialEq + Sized + 'static {
    /// All values with their words.
    const WORDS: &'static [(Self, &'static str)];

    /// Returns the word.
    fn word(self) -> &'static str {
        let row = Self::WORDS.iter().find(|(value, _)| *value == self);
        row.expect("every value has a word: tested").1
    }

    /// Returns the value with this word.
    fn from_word(word: &str) -> Option<Self> {
        let row = Self::WORDS.iter().find(|(_, known)| *known == word);
        row.map(|(value, _)| *value)
    }
}

macro_rules! vocabulary {
    ($of:ident { $($value:ident $word:literal),+ $(,)? }) => {
        impl Vocabulary for $of {
            const WORDS: &'static [(Self, &'static str)] = &[$((Self::$value, $word)),+];
        }

        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

vocabulary!(Chain { Inbound "inbound", FromVnf "fromVNF" });
vocabulary!(InnerType { Ipv6 "ipv6", Ipv4 "ipv4", L2 "l2" });
vocabulary!(Probe { Icmp "icmp", Arp "arp", Link "link" });
vocabulary!(OnDown { Drop "drop", Bypass "bypass" });

/// Returns the accepted words after the keyword of an attribute, if it takes words from a fixed
/// set.
pub(super) fn words_of(attribute: Attribute) -> Vec<&'static str> {
    fn all<T: Vocabulary>() -> Vec<&'static str> {
        T::WORDS.iter().map(|(_, word)| *word).collect()
    }
    match attribute {
        Attribute::Chain => all::<Chain>(),
        Attribute::Inner => all::<InnerType>(),
        Attribute::Liveness => all::<Probe>(),
        Attribute::OnDown => all::<OnDown>(),
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_one_value_and_is_in_its_attributes_form() {
        for attribute in Attribute::ALL {
            for word in words_of(attribute) {
                let mut form = attribute.form().split_whitespace();
                assert!(form.any(|part| part == word), "{word}");
            }
        }
        for inner in [InnerType::Ipv6, InnerType::Ipv4, InnerType::L2] {
            assert_eq!(InnerType::from_word(inner.word()), Some(inner));
        }
        for probe in [Probe::Icmp, Probe::Arp, Probe::Link] {
            assert_eq!(Probe::from_word(probe.word()), Some(probe));
        }
        for chain in [Chain::Inbound, Chain::FromVnf] {
            assert_eq!(Chain::from_word(chain.word()), Some(chain));
        }
        for on_down in [OnDown::Drop, OnDown::Bypass] {
            assert_eq!(OnDown::from_word(on_down.word()), Some(on_down));
        }
    }
}
