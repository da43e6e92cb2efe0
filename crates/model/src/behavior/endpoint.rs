//! The descriptor table of the endpoint behaviors, one row each.
//!
//! A row holds the names, attributes, flavors, Linux support and specification of a behavior. The
//! parser, the checks, help, completion and the documentation are derived from it. CONTRIBUTING.md
//! lists the other files that a new behavior touches.

use super::Behavior;
use super::attribute::{Attribute, Flavor, Inner};

/// The part of a behavior that Sidestep accepts and Linux does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondLinux {
    /// Attributes.
    pub attributes: &'static [Attribute],
    /// Flavors.
    pub flavors: &'static [Flavor],
    /// Description of the difference, with its source.
    pub why: &'static str,
}

/// Linux accepts all of it.
const LINUX_HAS_ALL: BeyondLinux = BeyondLinux {
    attributes: &[],
    flavors: &[],
    why: "",
};

/// One endpoint behavior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Behavior.
    pub behavior: Behavior,
    /// Name in the RFC's spelling, as printed.
    pub name: &'static str,
    /// Other accepted spellings.
    pub aliases: &'static [&'static str],
    /// `SEG6_LOCAL_ACTION_*` of `include/uapi/linux/seg6_local.h`, if Linux has the behavior.
    pub kernel_action: Option<u32>,
    /// Mandatory attributes.
    pub required: &'static [Attribute],
    /// Exactly one of these is mandatory. Empty without such a choice.
    pub one_of: &'static [Attribute],
    /// Optional attributes. `count` and `require-hmac` are always optional, `flavors` if the
    /// behavior has any.
    pub optional: &'static [Attribute],
    /// Supported flavors.
    pub flavors: &'static [Flavor],
    /// The part that Linux does not accept.
    pub beyond_linux: BeyondLinux,
    /// Decapsulated payload.
    pub inner: Inner,
    /// Specification.
    pub source: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
}

/// The endpoint behaviors, in the order of RFC 8986 4.
///
/// Source for Linux: `seg6_action_table` and `seg6_flv_supp_ops_by_action` in
/// `net/ipv6/seg6_local.c`. Linux ignores attributes that an action does not use; Sidestep refuses
/// them.
pub const BEHAVIORS: &[Descriptor] = &[
    Descriptor {
        behavior: Behavior::End,
        name: "End",
        // An SR-aware service: draft-ietf-spring-srv6-service-programming 5.
        aliases: &["End.AN"],
        kernel_action: Some(1),
        required: &[],
        one_of: &[],
        optional: &[],
        flavors: &[
            Flavor::Psp,
            Flavor::Usp,
            Flavor::Usd,
            Flavor::NextCsid,
            Flavor::ReplaceCsid,
        ],
        beyond_linux: BeyondLinux {
            attributes: &[],
            flavors: &[Flavor::Usp, Flavor::Usd, Flavor::ReplaceCsid],
            why: "Linux has psp and next-csid only",
        },
        inner: Inner::None,
        source: "RFC 8986 4.1",
        summary: "forward to the next segment",
    },
    Descriptor {
        behavior: Behavior::EndX,
        name: "End.X",
        aliases: &[],
        kernel_action: Some(2),
        required: &[Attribute::Nh6],
        one_of: &[],
        // Linux takes oif here since 6.17.
        optional: &[Attribute::Oif],
        flavors: &[
            Flavor::Psp,
            Flavor::Usp,
            Flavor::Usd,
            Flavor::NextCsid,
            Flavor::ReplaceCsid,
        ],
        beyond_linux: BeyondLinux {
            attributes: &[],
            flavors: &[Flavor::Psp, Flavor::Usp, Flavor::Usd, Flavor::ReplaceCsid],
            why: "Linux has next-csid only",
        },
        inner: Inner::None,
        source: "RFC 8986 4.2",
        summary: "forward to the next segment, by this IPv6 next hop",
    },
    Descriptor {
        behavior: Behavior::EndT,
        name: "End.T",
        aliases: &[],
        kernel_action: Some(3),
        required: &[Attribute::Table],
        one_of: &[],
        optional: &[],
        flavors: &[
            Flavor::Psp,
            Flavor::Usp,
            Flavor::Usd,
            Flavor::NextCsid,
            Flavor::ReplaceCsid,
        ],
        beyond_linux: BeyondLinux {
            attributes: &[],
            flavors: &[
                Flavor::Psp,
                Flavor::Usp,
                Flavor::Usd,
                Flavor::NextCsid,
                Flavor::ReplaceCsid,
            ],
            why: "Linux has no flavors here",
        },
        inner: Inner::None,
        source: "RFC 8986 4.3",
        summary: "forward to the next segment, looked up in this IPv6 table",
    },
    Descriptor {
        behavior: Behavior::EndDx6,
        name: "End.DX6",
        aliases: &[],
        kernel_action: Some(5),
        required: &[Attribute::Nh6],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ipv6,
        source: "RFC 8986 4.4",
        summary: "decapsulate IPv6, send to this next hop",
    },
    Descriptor {
        behavior: Behavior::EndDx4,
        name: "End.DX4",
        aliases: &[],
        kernel_action: Some(6),
        required: &[Attribute::Nh4],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ipv4,
        source: "RFC 8986 4.5",
        summary: "decapsulate IPv4, send to this next hop",
    },
    Descriptor {
        behavior: Behavior::EndDt6,
        name: "End.DT6",
        aliases: &[],
        kernel_action: Some(7),
        required: &[],
        one_of: &[Attribute::Table, Attribute::Vrftable],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ipv6,
        source: "RFC 8986 4.6",
        summary: "decapsulate IPv6, look it up in this table",
    },
    Descriptor {
        behavior: Behavior::EndDt4,
        name: "End.DT4",
        aliases: &[],
        kernel_action: Some(8),
        required: &[],
        one_of: &[Attribute::Table, Attribute::Vrftable],
        optional: &[],
        flavors: &[],
        beyond_linux: BeyondLinux {
            attributes: &[Attribute::Table],
            flavors: &[],
            why: "Linux takes vrftable only; RFC 8986 4.7 speaks of a table, not of a VRF device",
        },
        inner: Inner::Ipv4,
        source: "RFC 8986 4.7",
        summary: "decapsulate IPv4, look it up in this table",
    },
    Descriptor {
        behavior: Behavior::EndDt46,
        name: "End.DT46",
        aliases: &[],
        kernel_action: Some(16),
        required: &[],
        one_of: &[Attribute::Table, Attribute::Vrftable],
        optional: &[],
        flavors: &[],
        beyond_linux: BeyondLinux {
            attributes: &[Attribute::Table],
            flavors: &[],
            why: "Linux takes vrftable only; RFC 8986 4.8 speaks of tables, not of a VRF device",
        },
        inner: Inner::Ip,
        source: "RFC 8986 4.8",
        summary: "decapsulate IPv4 or IPv6, look it up in this table of its family",
    },
    Descriptor {
        behavior: Behavior::EndDx2,
        name: "End.DX2",
        aliases: &[],
        kernel_action: Some(4),
        required: &[Attribute::Oif],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ethernet,
        source: "RFC 8986 4.9",
        summary: "decapsulate an Ethernet frame, send it out of this interface",
    },
    Descriptor {
        behavior: Behavior::EndDx2v,
        name: "End.DX2V",
        aliases: &[],
        kernel_action: None,
        required: &[Attribute::Vlantable],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ethernet,
        source: "RFC 8986 4.10",
        summary: "decapsulate an Ethernet frame, send it out of the interface of its VLANs",
    },
    Descriptor {
        behavior: Behavior::EndDt2u,
        name: "End.DT2U",
        aliases: &[],
        kernel_action: None,
        required: &[Attribute::L2dev],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ethernet,
        source: "RFC 8986 4.11",
        summary: "decapsulate an Ethernet frame, let the bridge of this ether device look it up",
    },
    Descriptor {
        behavior: Behavior::EndDt2m,
        name: "End.DT2M",
        aliases: &[],
        kernel_action: None,
        required: &[Attribute::L2dev],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Ethernet,
        source: "RFC 8986 4.12",
        summary: "decapsulate an Ethernet frame, let the bridge of this ether device flood it",
    },
    Descriptor {
        behavior: Behavior::EndB6,
        name: "End.B6",
        aliases: &["End.B6.Insert"],
        kernel_action: Some(9),
        required: &[Attribute::Srh],
        one_of: &[],
        optional: &[],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::None,
        source: "draft-filsfils-spring-srv6-net-pgm-insertion",
        summary: "insert an SRH with these segments (binding SID)",
    },
    Descriptor {
        behavior: Behavior::EndB6Encaps,
        name: "End.B6.Encaps",
        aliases: &[],
        kernel_action: Some(10),
        required: &[Attribute::Srh],
        one_of: &[],
        optional: &[],
        flavors: &[Flavor::NextCsid, Flavor::ReplaceCsid],
        beyond_linux: BeyondLinux {
            attributes: &[],
            flavors: &[Flavor::NextCsid, Flavor::ReplaceCsid],
            why: "Linux has no flavors here",
        },
        inner: Inner::None,
        source: "RFC 8986 4.13",
        summary: "forward to the next segment inside an encapsulation with these segments (binding SID)",
    },
    Descriptor {
        behavior: Behavior::EndB6EncapsRed,
        name: "End.B6.Encaps.Red",
        aliases: &[],
        kernel_action: None,
        required: &[Attribute::Srh],
        one_of: &[],
        optional: &[],
        flavors: &[Flavor::NextCsid, Flavor::ReplaceCsid],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::None,
        source: "RFC 8986 4.14",
        summary: "like End.B6.Encaps, but the first segment is only in the destination address",
    },
    Descriptor {
        behavior: Behavior::EndAs,
        name: "End.AS",
        aliases: &[],
        // Linux has numbers for End.AS and End.AM (13 and 14) and refuses both: `seg6_action_table` has no row for them.
        kernel_action: None,
        required: &[Attribute::Oif, Attribute::Srh, Attribute::Src],
        one_of: &[],
        optional: &[
            Attribute::Nh6,
            Attribute::Nh4,
            Attribute::Nheth,
            Attribute::Iif,
            Attribute::Inner,
            Attribute::Liveness,
            Attribute::OnDown,
        ],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Any,
        source: "draft-ietf-spring-srv6-service-programming-00 6.1",
        summary: "static SR proxy: decapsulate toward a service, encapsulate returned packets with these segments",
    },
    Descriptor {
        behavior: Behavior::EndAd,
        name: "End.AD",
        aliases: &[],
        kernel_action: None,
        // `chain fromVNF` needs `iif`.
        required: &[Attribute::Oif],
        one_of: &[],
        optional: &[
            Attribute::Chain,
            Attribute::Nh6,
            Attribute::Nh4,
            Attribute::Nheth,
            Attribute::Iif,
            Attribute::Inner,
            Attribute::Age,
            Attribute::Flows,
            Attribute::Liveness,
            Attribute::OnDown,
        ],
        flavors: &[],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::Any,
        source: "draft-ietf-spring-srv6-service-programming-00 6.2",
        summary: "dynamic SR proxy: decapsulate toward a service, restore the removed headers on returned packets",
    },
    Descriptor {
        behavior: Behavior::EndAm,
        name: "End.AM",
        aliases: &[],
        kernel_action: None,
        required: &[Attribute::Oif],
        one_of: &[Attribute::Nh6, Attribute::Nheth],
        optional: &[Attribute::Iif, Attribute::Liveness, Attribute::OnDown],
        flavors: &[Flavor::Nat],
        beyond_linux: LINUX_HAS_ALL,
        inner: Inner::None,
        source: "draft-ietf-spring-srv6-service-programming-00 6.4",
        summary: "masquerading SR proxy: send to a service with the last segment as destination",
    },
];

impl Behavior {
    /// Returns its row of [`BEHAVIORS`].
    pub fn descriptor(self) -> &'static Descriptor {
        BEHAVIORS
            .iter()
            .find(|row| row.behavior == self)
            .expect("every behavior has a row: tested")
    }

    /// Returns the behavior with this exact name or alias.
    pub fn from_name(name: &str) -> Option<Self> {
        BEHAVIORS
            .iter()
            .find(|row| row.name == name || row.aliases.contains(&name))
            .map(|row| row.behavior)
    }

    /// Returns the behavior with this `SEG6_LOCAL_ACTION_*` value.
    pub fn from_kernel_action(action: u32) -> Option<Self> {
        BEHAVIORS
            .iter()
            .find(|row| row.kernel_action == Some(action))
            .map(|row| row.behavior)
    }
}

impl Descriptor {
    /// Returns all accepted attributes in the order in which iproute2 prints them.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL
            .into_iter()
            .filter(|attribute| self.takes(*attribute))
    }

    /// Returns true if it accepts this attribute.
    pub fn takes(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Count | Attribute::RequireHmac => true,
            Attribute::Flavors => !self.flavors.is_empty(),
            other => {
                self.required.contains(&other)
                    || self.one_of.contains(&other)
                    || self.optional.contains(&other)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_behavior_has_exactly_one_row_and_is_found_by_its_names() {
        // The match makes a new variant without a row a compile error here.
        let known = |behavior| match behavior {
            Behavior::End
            | Behavior::EndX
            | Behavior::EndT
            | Behavior::EndDx6
            | Behavior::EndDx4
            | Behavior::EndDt6
            | Behavior::EndDt4
            | Behavior::EndDt46
            | Behavior::EndDx2
            | Behavior::EndDx2v
            | Behavior::EndDt2u
            | Behavior::EndDt2m
            | Behavior::EndB6
            | Behavior::EndB6Encaps
            | Behavior::EndB6EncapsRed
            | Behavior::EndAs
            | Behavior::EndAd
            | Behavior::EndAm => 18,
        };
        assert_eq!(BEHAVIORS.len(), known(Behavior::End));
        for row in BEHAVIORS {
            assert_eq!(row.behavior.descriptor(), row);
            for name in row.aliases.iter().chain([&row.name]) {
                assert_eq!(Behavior::from_name(name), Some(row.behavior));
            }
            if let Some(action) = row.kernel_action {
                assert_eq!(Behavior::from_kernel_action(action), Some(row.behavior));
            }
        }
    }

    #[test]
    fn a_behavior_takes_all_that_linux_lacks() {
        for row in BEHAVIORS {
            assert!(
                row.beyond_linux.attributes.iter().all(|a| row.takes(*a)),
                "{}",
                row.name
            );
            assert!(
                row.beyond_linux
                    .flavors
                    .iter()
                    .all(|f| row.flavors.contains(f)),
                "{}",
                row.name
            );
            let beyond = row.beyond_linux != LINUX_HAS_ALL;
            assert_eq!(beyond, !row.beyond_linux.why.is_empty(), "{}", row.name);
        }
    }
}
