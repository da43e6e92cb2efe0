//! What an SR proxy (End.AS, End.AD, End.AM) has that no other behavior has: how its service is reached, what it sees,
//! what is learned, and what is done when the service is not there.
//!
//! Words of the published kernel implementation of End.AD (`chain`, `nheth`, `age`) are taken with their meaning there.
//! Terms in capitals are those of draft-ietf-spring-srv6-service-programming 6.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::attribute::Attribute;
use super::check::{Wrong, join, wrong};
use super::{Behavior, Seg6Local};
use crate::node::{IfIndex, Mac};

/// Attributes of the SR proxies alone; nothing of it is set in any other behavior.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Proxy {
    /// `chain …`; none means `inbound`.
    pub chain: Option<Chain>,
    /// `src ADDRESS`: source of the outer header that End.AS pushes (CACHE.SA).
    pub src: Option<Ipv6Addr>,
    /// `nheth MAC`: Ethernet address of the service (NH-ADDR), where `nh6` or `nh4` is not to be resolved.
    pub nheth: Option<Mac>,
    /// `inner TYPE` as written; what is meant without it is said by [`Seg6Local::sees`].
    pub inner: Option<InnerType>,
    /// `age SECONDS`: the smallest time between two changes of the learned headers. None and 0: every packet may.
    pub age: Option<u32>,
    /// `flows`: headers are learned for each inner flow, of which so many are known at a time, [`FLOWS_MIN`] to [`FLOWS`].
    pub flows: Option<u32>,
    /// `liveness …`.
    pub liveness: Option<Liveness>,
    /// `on-down …`; none means [`OnDown::Drop`]. Only with `liveness`.
    pub on_down: Option<OnDown>,
}

/// The half of a proxy that a route stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Chain {
    /// To the service: the SID. Its way back comes with it.
    Inbound,
    /// From the service. Does nothing of its own: it says what an inbound SID with this way back says already.
    FromVnf,
}

/// What the service sees of a packet (INNER-TYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum InnerType {
    /// IPv6 packets.
    Ipv6,
    /// IPv4 packets.
    Ipv4,
    /// Ethernet frames.
    L2,
}

/// How the proxy sees whether its service is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Liveness {
    /// By what.
    pub probe: Probe,
    /// Milliseconds between two probes, [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub interval: u32,
}

/// A way to see whether a service is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Probe {
    /// ICMP echo to its address.
    Icmp,
    /// ARP or neighbor discovery for its address.
    Arp,
    /// The link to it is up.
    Link,
}

/// What is done with the packets of a proxy whose service is not there.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum OnDown {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on to the next segment as if there were no service.
    Bypass,
}

/// LIMIT: the shortest time between two probes, in milliseconds.
pub const INTERVAL_MIN: u32 = 10;
/// LIMIT: the longest time between two probes, in milliseconds.
pub const INTERVAL_MAX: u32 = 60_000;
/// Milliseconds between two probes where nothing is said.
pub const INTERVAL: u32 = 1000;

/// LIMIT: the most flows that a service's proxies learn headers for; also where nothing is said.
pub const FLOWS: u32 = 8192;
/// The least.
pub const FLOWS_MIN: u32 = 8;

impl Behavior {
    /// It is an SR proxy.
    pub const fn is_proxy(self) -> bool {
        matches!(self, Self::EndAs | Self::EndAd | Self::EndAm)
    }
}

impl Seg6Local {
    /// The interface on which packets come back from the service (IFACE-IN); none if this is no proxy.
    pub fn back(&self) -> Option<IfIndex> {
        self.iif.or(self.oif).filter(|_| self.action.is_proxy())
    }

    /// The service sees this. An End.AM sees IPv6 as it is, and no inner type.
    pub fn sees(&self, inner: InnerType) -> bool {
        if !matches!(self.action, Behavior::EndAs | Behavior::EndAd) {
            return false;
        }
        match (self.proxy.inner, inner) {
            (Some(only), _) => only == inner,
            // As published: an Ethernet address alone is that of an IPv6 service.
            (None, InnerType::Ipv6) => {
                self.nh6.is_some() || (self.lacks_next_hop() && self.proxy.nheth.is_some())
            }
            (None, InnerType::Ipv4) => self.nh4.is_some(),
            (None, InnerType::L2) => self.lacks_next_hop() && self.proxy.nheth.is_none(),
        }
    }

    /// What of a proxy the data plane does not do yet: the attribute at fault, and what it would be for.
    pub fn proxy_lacks(&self) -> Option<(Attribute, &'static str)> {
        let lacking = [(
            // draft-ietf-spring-srv6-service-programming-00 6.1: a segment has one INNER-TYPE.
            self.nh6.is_some() && self.nh4.is_some(),
            Attribute::Nh4,
            "two inner types in one SID: a second SID may have the same interfaces",
        )];
        // The way back is the port's: such a route is kept, and does nothing.
        let does = self.action.is_proxy() && self.proxy.chain != Some(Chain::FromVnf);
        let mut lacking = lacking.into_iter().filter(|_| does);
        lacking
            .find(|(given, ..)| *given)
            .map(|(_, attribute, what)| (attribute, what))
    }

    fn lacks_next_hop(&self) -> bool {
        self.nh6.is_none() && self.nh4.is_none()
    }
}

/// What a proxy says of its service fits together.
pub(super) fn check(local: &Seg6Local) -> Result<(), Wrong> {
    check_addresses(local)?;
    if local.action != Behavior::EndAm {
        check_inner(local)?;
    }
    check_liveness(local)
}

/// The way back of a proxy says where it begins, and nothing else.
pub(super) fn check_from_vnf(local: &Seg6Local) -> Result<(), Wrong> {
    let iif = Attribute::Iif;
    if !local.has(iif) {
        let problem = format!("fromVNF lacks `{}`", iif.keyword());
        return Err(wrong("chain", problem, iif.form()));
    }
    let known = [Attribute::Chain, iif, Attribute::Count];
    match local.attributes().find(|other| !known.contains(other)) {
        None => Ok(()),
        Some(other) => Err(wrong(
            other.keyword(),
            "`chain fromVNF` does not take",
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
        let problem = "the service has an Ethernet address or IP addresses, not both";
        return Err(wrong(
            "nheth",
            problem,
            "nheth MAC, or nh6 IPV6, nh4 IPV4, or both of these",
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
            [] => "it left out: frames have their addresses".to_owned(),
            _ => forms,
        };
        return Err(wrong(
            other.keyword(),
            format!("`inner {inner}` does not take"),
            expected,
        ));
    }
    if !takes.is_empty() && !takes.iter().any(given) {
        return Err(wrong(
            "inner",
            format!("{inner} lacks the address of the service"),
            forms,
        ));
    }
    check_flows(local)
}

fn check_flows(local: &Seg6Local) -> Result<(), Wrong> {
    if local.proxy.flows.is_some() && local.sees(InnerType::L2) {
        let problem = "flows are told apart in IP packets, and this service sees frames";
        return Err(wrong("flows", problem, "nh6, nh4 or nheth with it"));
    }
    Ok(())
}

fn check_liveness(local: &Seg6Local) -> Result<(), Wrong> {
    match local.proxy.liveness {
        None if local.proxy.on_down.is_some() => {
            let problem = "nothing says whether the service is down";
            Err(wrong("on-down", problem, Attribute::Liveness.form()))
        }
        Some(Liveness { probe, .. }) if probe != Probe::Link && local.lacks_next_hop() => {
            let problem = format!("{probe} lacks an address to ask for");
            Err(wrong(
                "liveness",
                problem,
                "nh6 or nh4 with it, or `liveness link`",
            ))
        }
        _ => Ok(()),
    }
}

/// A word of a small vocabulary: what it stands for.
pub(crate) trait Vocabulary: Copy + PartialEq + Sized + 'static {
    /// Every value with its word.
    const WORDS: &'static [(Self, &'static str)];

    /// The word.
    fn word(self) -> &'static str {
        let row = Self::WORDS.iter().find(|(value, _)| *value == self);
        row.expect("every value has a word: tested").1
    }

    /// The value of that word.
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

/// The words that may stand behind the keyword of an attribute, where there are only some.
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
    fn what_the_data_plane_lacks_of_a_proxy_is_refused_at_its_word() {
        let local = Seg6Local {
            oif: Some(IfIndex(1)),
            nh6: Some([0xfc; 16].into()),
            ..Seg6Local::new(Behavior::EndAd)
        };
        let lacks = |local: &Seg6Local| local.proxy_lacks().map(|(attribute, _)| attribute);
        assert_eq!(lacks(&local), None);
        let with = |change: fn(&mut Seg6Local)| {
            let mut local = local.clone();
            change(&mut local);
            lacks(&local)
        };
        assert_eq!(with(|it| it.proxy.flows = Some(FLOWS)), None);
        assert_eq!(with(|it| it.nh6 = None), None);
        assert_eq!(
            with(|it| it.nh4 = Some([10, 0, 0, 1].into())),
            Some(Attribute::Nh4)
        );
        assert_eq!(with(|it| it.action = Behavior::End), None);
    }

    #[test]
    fn a_route_for_the_way_back_is_kept() {
        let mut back = Seg6Local {
            iif: Some(IfIndex(1)),
            ..Seg6Local::new(Behavior::EndAd)
        };
        back.proxy.chain = Some(Chain::FromVnf);
        assert_eq!(back.proxy_lacks(), None);
    }

    #[test]
    fn every_word_is_in_the_form_of_its_attribute_and_means_one_value() {
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
