//! Validation of behaviors, and the test whether Linux can express them. Both are derived from the
//! descriptor tables.

use std::fmt;

use super::attribute::{Attribute, Flavor};
use super::proxy::{self, Chain};
use super::{EncapMode, Flavors, SEGMENTS_MAX, Seg6Encap, Seg6Local};
use crate::route::{Encap, Family, Route};

/// A problem with an encapsulation, and the word that it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The offending keyword (`table`, `flavors`, `hmac`), or `action` or `mode` if a word is
    /// missing.
    pub keyword: &'static str,
    /// The problem, as a phrase.
    pub problem: String,
    /// Accepted input, as a phrase.
    pub expected: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; expected {}",
            self.keyword, self.problem, self.expected
        )
    }
}

pub(super) fn wrong(
    keyword: &'static str,
    problem: impl Into<String>,
    expected: impl Into<String>,
) -> Wrong {
    Wrong {
        keyword,
        problem: problem.into(),
        expected: expected.into(),
    }
}

impl Flavors {
    /// Returns true if no flavor is set.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns true if this flavor is set.
    pub fn has(self, flavor: Flavor) -> bool {
        match flavor {
            Flavor::Psp => self.psp,
            Flavor::Usp => self.usp,
            Flavor::Usd => self.usd,
            Flavor::NextCsid => self.next_csid.is_some(),
            Flavor::ReplaceCsid => self.replace_csid.is_some(),
            Flavor::Nat => self.nat,
        }
    }

    /// The flavors that it has, in the order in which iproute2 prints them.
    pub fn iter(self) -> impl Iterator<Item = Flavor> {
        Flavor::ALL
            .into_iter()
            .filter(move |flavor| self.has(*flavor))
    }
}

impl Seg6Local {
    /// This behavior with no attribute.
    pub fn new(action: super::Behavior) -> Self {
        Self {
            action,
            table: None,
            vrftable: None,
            nh4: None,
            nh6: None,
            iif: None,
            oif: None,
            l2dev: None,
            vlantable: None,
            segments: Vec::new(),
            flavors: Flavors::default(),
            require_hmac: false,
            count: false,
            proxy: super::Proxy::default(),
        }
    }

    /// It has this attribute.
    pub fn has(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Table => self.table.is_some(),
            Attribute::Vrftable => self.vrftable.is_some(),
            Attribute::Nh4 => self.nh4.is_some(),
            Attribute::Nh6 => self.nh6.is_some(),
            Attribute::Iif => self.iif.is_some(),
            Attribute::Oif => self.oif.is_some(),
            Attribute::L2dev => self.l2dev.is_some(),
            Attribute::Vlantable => self.vlantable.is_some(),
            Attribute::Srh => !self.segments.is_empty(),
            Attribute::Flavors => !self.flavors.is_empty(),
            Attribute::RequireHmac => self.require_hmac,
            Attribute::Count => self.count,
            Attribute::Chain => self.proxy.chain.is_some(),
            Attribute::Src => self.proxy.src.is_some(),
            Attribute::Nheth => self.proxy.nheth.is_some(),
            Attribute::Inner => self.proxy.inner.is_some(),
            Attribute::Age => self.proxy.age.is_some(),
            Attribute::Flows => self.proxy.flows.is_some(),
            Attribute::Liveness => self.proxy.liveness.is_some(),
            Attribute::OnDown => self.proxy.on_down.is_some(),
        }
    }

    /// The attributes that it has, in the order in which iproute2 prints them.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL
            .into_iter()
            .filter(|attribute| self.has(*attribute))
    }

    /// Its attributes are those that the behavior takes.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn check(&self) -> Result<(), Wrong> {
        let row = self.action.descriptor();
        for attribute in self.attributes() {
            if !row.takes(attribute) {
                let takes = join(row.attributes().map(Attribute::form), ", ");
                let problem = format!("{} does not accept", row.name);
                return Err(wrong(attribute.keyword(), problem, takes));
            }
        }
        if self.proxy.chain == Some(Chain::FromVnf) {
            return proxy::check_from_vnf(self);
        }
        for attribute in row.required {
            if !self.has(*attribute) {
                let problem = format!("{} requires `{}`", row.name, attribute.keyword());
                return Err(wrong("action", problem, attribute.form()));
            }
        }
        let given: Vec<_> = row
            .one_of
            .iter()
            .filter(|attribute| self.has(**attribute))
            .collect();
        if !row.one_of.is_empty() && given.len() != 1 {
            let forms = join(row.one_of.iter().map(|attribute| attribute.form()), " or ");
            return Err(match given.last() {
                None => {
                    let words = join(row.one_of.iter().map(|a| a.keyword()), "` or `");
                    wrong("action", format!("{} requires `{words}`", row.name), forms)
                }
                Some(last) => wrong(
                    last.keyword(),
                    format!("{} accepts only one of these attributes", row.name),
                    format!("either {forms}"),
                ),
            });
        }
        if let Some(flavor) = self
            .flavors
            .iter()
            .find(|flavor| !row.flavors.contains(flavor))
        {
            let flavors = join(row.flavors.iter().map(|flavor| flavor.word()), ", ");
            let problem = format!("{} does not have flavor {}", row.name, flavor.word());
            return Err(wrong("flavors", problem, flavors));
        }
        if self.require_hmac && self.flavors.next_csid.is_some() {
            // RFC 9800 4.1.1: while the container holds another C-SID.
            let problem = "no SRH is read at a C-SID within a container, so next-csid excludes";
            return Err(wrong(
                "require-hmac",
                problem,
                "another flavor, or no `require-hmac`",
            ));
        }
        if let Some((block, function)) = self.flavors.next_csid {
            // Linux, net/ipv6/seg6_local.c: seg6_chk_next_csid_cfg.
            let bits = |length: u8| (8..=120).contains(&length) && length.is_multiple_of(8);
            let rule = "a multiple of 8 from 8 to 120, lblen and nflen together at most 128";
            if !bits(block) {
                return Err(wrong("lblen", "impossible length", rule));
            }
            if !bits(function) || u16::from(block) + u16::from(function) > 128 {
                return Err(wrong("nflen", "impossible length", rule));
            }
        }
        if let Some((block, csid)) = self.flavors.replace_csid {
            if self.flavors.next_csid.is_some() {
                let problem = "next-csid and replace-csid exclude each other";
                return Err(wrong("flavors", problem, "one of them"));
            }
            // RFC 9800 4.2. DA.Arg.Index is in the last bits, behind the C-SID.
            let rule = "lblen a multiple of 8 from 8 to 104, nflen 16 or 32, together at most 120";
            if ![16, 32].contains(&csid) {
                return Err(wrong("nflen", "impossible length", rule));
            }
            if block < 8 || !block.is_multiple_of(8) || u16::from(block) + u16::from(csid) > 120 {
                return Err(wrong("lblen", "impossible length", rule));
            }
        }
        if self.action.is_proxy() {
            proxy::check(self)?;
        }
        check_segments("srh", &self.segments, row.takes(Attribute::Srh))
    }
}

impl Seg6Encap {
    /// Returns an encapsulation with this mode and these segments, and nothing else set.
    pub fn new(mode: EncapMode, segments: Vec<std::net::Ipv6Addr>) -> Self {
        Self {
            mode,
            segments,
            hmac: None,
            tunsrc: None,
            lookup: None,
        }
    }

    /// Checks that the mode accepts the attributes and fits a route of this family.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn check(&self, family: Family) -> Result<(), Wrong> {
        let row = self.mode.descriptor();
        if !row.families.contains(&family) {
            return Err(wrong(
                "mode",
                format!("{} ({}) is for IPv6 routes only", row.word, row.name),
                "encap or encap.red on an IPv4 route",
            ));
        }
        for (given, takes, keyword) in [
            (self.tunsrc.is_some(), row.tunsrc, "tunsrc"),
            (self.hmac.is_some(), row.hmac, "hmac"),
            (self.lookup.is_some(), row.lookup, "lookup"),
        ] {
            if given && !takes {
                return Err(wrong(
                    keyword,
                    format!("mode {} does not accept", row.word),
                    "",
                ));
            }
        }
        if self.hmac == Some(0) {
            return Err(wrong(
                "hmac",
                "key id 0 means no key",
                "a key id from 1 to 4294967295",
            ));
        }
        check_segments("segs", &self.segments, true)
    }
}

fn check_segments(
    keyword: &'static str,
    segments: &[std::net::Ipv6Addr],
    needed: bool,
) -> Result<(), Wrong> {
    let expected = || format!("1 to {SEGMENTS_MAX} IPv6 unicast addresses, separated by commas");
    if needed && segments.is_empty() {
        return Err(wrong(keyword, "no segment", expected()));
    }
    if segments.len() > SEGMENTS_MAX {
        let problem = format!("too many segments ({})", segments.len());
        return Err(wrong(keyword, problem, expected()));
    }
    // The first segment is a destination address. The others may be C-SID containers (RFC 9800 4.2)
    // with any bits.
    let destination = segments
        .first()
        .filter(|first| first.is_multicast() || first.is_loopback());
    match destination.or(segments.iter().find(|s| s.is_unspecified())) {
        Some(segment) => Err(wrong(
            keyword,
            format!("{segment} cannot be a segment"),
            expected(),
        )),
        None => Ok(()),
    }
}

/// Returns true if the newest Linux can express this route. An older Linux may refuse parts of it.
///
/// A route that Linux cannot express is Sidestep-only.
pub fn linux_can_express(route: &Route) -> bool {
    // "Device only routes can not be added for IPv6 using the multipath API."
    let multipath6 = route.next_hops.len() > 1 && route.family() == Family::V6;
    route.next_hops.iter().all(|hop| match &hop.encap {
        _ if multipath6 && hop.via.is_none() => false,
        Some(Encap::Seg6Local(local)) => {
            let row = local.action.descriptor();
            row.kernel_action.is_some()
                && !local.require_hmac
                && !local
                    .attributes()
                    .any(|a| row.beyond_linux.attributes.contains(&a))
                && !local
                    .flavors
                    .iter()
                    .any(|f| row.beyond_linux.flavors.contains(&f))
        }
        Some(Encap::Seg6(seg6)) => seg6.mode.descriptor().kernel_mode.is_some(),
        Some(Encap::Policy(_) | Encap::Binding(_)) => false,
        // An unsupported encapsulation came from the kernel.
        Some(Encap::Unsupported(_)) | None => true,
    })
}

pub(crate) fn join<'a>(words: impl Iterator<Item = &'a str>, separator: &str) -> String {
    words.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::super::Behavior;
    use super::super::endpoint::BEHAVIORS;
    use super::super::proxy::{FLOWS, INTERVAL, InnerType, Liveness, OnDown, Probe};
    use super::*;
    use crate::node::{Mac, TableId};

    fn problem(local: &Seg6Local) -> String {
        local.check().expect_err("must be refused").to_string()
    }

    #[test]
    fn every_behavior_requires_its_attributes_and_refuses_others() {
        for row in BEHAVIORS {
            let mut local = full(Seg6Local::new(row.behavior), |attribute| {
                row.required.contains(&attribute) || row.one_of.first() == Some(&attribute)
            });
            assert_eq!(local.check(), Ok(()), "{}", row.name);
            for attribute in Attribute::ALL.into_iter().filter(|a| !row.takes(*a)) {
                let more = full(local.clone(), |a| a == attribute);
                let found = more.check().expect_err("must be refused");
                assert_eq!(found.keyword, attribute.keyword(), "{}", row.name);
            }
            local = Seg6Local::new(row.behavior);
            let needs = !row.required.is_empty() || !row.one_of.is_empty();
            assert_eq!(local.check().is_err(), needs, "{}", row.name);
        }
    }

    fn full(mut local: Seg6Local, wanted: impl Fn(Attribute) -> bool) -> Seg6Local {
        for attribute in Attribute::ALL.into_iter().filter(|a| wanted(*a)) {
            match attribute {
                Attribute::Table => local.table = Some(TableId(100)),
                Attribute::Vrftable => local.vrftable = Some(TableId(100)),
                Attribute::Nh4 => local.nh4 = Some([10, 0, 0, 1].into()),
                Attribute::Nh6 => local.nh6 = Some([0xfc; 16].into()),
                Attribute::Iif => local.iif = Some(crate::node::IfIndex(1)),
                Attribute::Oif => local.oif = Some(crate::node::IfIndex(1)),
                Attribute::L2dev => local.l2dev = Some(crate::node::IfIndex(1)),
                Attribute::Vlantable => local.vlantable = Some(crate::vlan::VlanTableId(7)),
                Attribute::Srh => local.segments = vec![[0xfc; 16].into()],
                Attribute::Flavors => local.flavors.psp = true,
                Attribute::RequireHmac => local.require_hmac = true,
                Attribute::Count => local.count = true,
                Attribute::Chain => local.proxy.chain = Some(Chain::Inbound),
                Attribute::Src => local.proxy.src = Some([0xfc; 16].into()),
                Attribute::Nheth => local.proxy.nheth = Some(Mac([2; 6])),
                Attribute::Inner => local.proxy.inner = Some(InnerType::L2),
                Attribute::Age => local.proxy.age = Some(5),
                Attribute::Flows => local.proxy.flows = Some(FLOWS),
                Attribute::Liveness => {
                    local.proxy.liveness = Some(Liveness {
                        probe: Probe::Link,
                        interval: INTERVAL,
                    });
                }
                Attribute::OnDown => local.proxy.on_down = Some(OnDown::Bypass),
            }
        }
        local
    }

    #[test]
    fn table_and_vrftable_exclude_each_other() {
        let mut local = Seg6Local::new(Behavior::EndDt6);
        assert!(problem(&local).contains("table TABLE or vrftable TABLE"));
        local.table = Some(TableId(1));
        local.vrftable = Some(TableId(2));
        assert!(problem(&local).starts_with("vrftable: End.DT6 accepts only one"));
    }

    #[test]
    fn next_csid_lengths_are_the_kernels() {
        let mut local = Seg6Local::new(Behavior::End);
        for (lengths, good) in [
            ((32, 16), true),
            ((120, 8), true),
            ((120, 16), false),
            ((33, 16), false),
            ((32, 0), false),
        ] {
            local.flavors.next_csid = Some(lengths);
            assert_eq!(local.check().is_ok(), good, "{lengths:?}");
        }
    }

    #[test]
    fn replace_csid_leaves_room_for_the_index_behind_the_csid() {
        let mut local = Seg6Local::new(Behavior::End);
        for (lengths, good) in [
            ((48, 32), true),
            ((88, 32), true),
            ((96, 32), false),
            ((104, 16), true),
            ((112, 16), false),
            ((8, 16), true),
            ((0, 16), false),
            ((52, 32), false),
            ((48, 24), false),
            ((48, 8), false),
        ] {
            local.flavors.replace_csid = Some(lengths);
            assert_eq!(local.check().is_ok(), good, "{lengths:?}");
        }
        local.flavors.replace_csid = Some((48, 32));
        local.flavors.next_csid = Some((32, 16));
        assert!(problem(&local).contains("exclude each other"));
    }

    #[test]
    fn segments_are_counted_and_must_be_unicast() {
        let segment = std::net::Ipv6Addr::from([0xfc; 16]);
        let with = |segments| Seg6Encap::new(EncapMode::Encap, segments).check(Family::V6);
        assert_eq!(with(vec![segment; SEGMENTS_MAX]), Ok(()));
        assert!(with(vec![segment; SEGMENTS_MAX + 1]).is_err());
        assert!(with(vec![]).is_err());
        assert!(with(vec![std::net::Ipv6Addr::UNSPECIFIED]).is_err());
        assert!(with(vec![[0xff; 16].into()]).is_err());
        let container = std::net::Ipv6Addr::LOCALHOST;
        assert_eq!(with(vec![segment, container, [0xff; 16].into()]), Ok(()));
    }
}
