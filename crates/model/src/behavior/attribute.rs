//! The vocabulary of the descriptor tables: attributes and flavors by their keywords, and payloads.

/// An attribute of `encap seg6local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// `table TABLE`.
    Table,
    /// `vrftable TABLE`.
    Vrftable,
    /// `nh4 IPV4`.
    Nh4,
    /// `nh6 IPV6`.
    Nh6,
    /// `iif DEV`.
    Iif,
    /// `oif DEV`.
    Oif,
    /// `vlantable TABLE`.
    Vlantable,
    /// `srh segs A,B,…`.
    Srh,
    /// `flavors FLAVOR,…`.
    Flavors,
    /// `require-hmac`.
    RequireHmac,
    /// `count`.
    Count,
    /// `chain inbound`, `chain fromVNF`.
    Chain,
    /// `src IPV6`.
    Src,
    /// `nheth MAC`.
    Nheth,
    /// `inner TYPE`.
    Inner,
    /// `age SECONDS`.
    Age,
    /// `flows`, `flows N`.
    Flows,
    /// `liveness PROBE interval MS`.
    Liveness,
    /// `on-down ACTION`.
    OnDown,
}

impl Attribute {
    /// All, in the order in which iproute2 prints them.
    pub const ALL: [Self; 19] = [
        Self::Chain,
        Self::Srh,
        Self::Src,
        Self::Table,
        Self::Vrftable,
        Self::Nh4,
        Self::Nh6,
        Self::Iif,
        Self::Oif,
        Self::Nheth,
        Self::Vlantable,
        Self::Inner,
        Self::Age,
        Self::Flows,
        Self::Liveness,
        Self::OnDown,
        Self::RequireHmac,
        Self::Count,
        Self::Flavors,
    ];

    /// The keyword.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Vrftable => "vrftable",
            Self::Nh4 => "nh4",
            Self::Nh6 => "nh6",
            Self::Iif => "iif",
            Self::Oif => "oif",
            Self::Vlantable => "vlantable",
            Self::Srh => "srh",
            Self::Flavors => "flavors",
            Self::RequireHmac => "require-hmac",
            Self::Count => "count",
            Self::Chain => "chain",
            Self::Src => "src",
            Self::Nheth => "nheth",
            Self::Inner => "inner",
            Self::Age => "age",
            Self::Flows => "flows",
            Self::Liveness => "liveness",
            Self::OnDown => "on-down",
        }
    }

    /// The keyword with its value, as the grammar writes it.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Table => "table TABLE",
            Self::Vrftable => "vrftable TABLE",
            Self::Nh4 => "nh4 IPV4",
            Self::Nh6 => "nh6 IPV6",
            Self::Iif => "iif DEV",
            Self::Oif => "oif DEV",
            Self::Vlantable => "vlantable TABLE",
            Self::Srh => "srh segs SEGMENTS",
            Self::Flavors => "flavors FLAVORS",
            Self::RequireHmac => "require-hmac",
            Self::Count => "count",
            Self::Chain => "chain { inbound | fromVNF }",
            Self::Src => "src IPV6",
            Self::Nheth => "nheth MAC",
            Self::Inner => "inner { ipv6 | ipv4 | l2 }",
            Self::Age => "age SECONDS",
            Self::Flows => "flows [ NUMBER ]",
            Self::Liveness => "liveness { icmp | arp | link } [ interval MS ]",
            Self::OnDown => "on-down { drop | bypass }",
        }
    }

    /// What it says, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Table => "look the packet up in this table alone",
            Self::Vrftable => "look the packet up as the VRF device of this table does",
            Self::Nh4 => "IPv4 next hop; 0.0.0.0: look the inner destination up",
            Self::Nh6 => "IPv6 next hop; :: after decapsulation: look the inner destination up",
            Self::Iif => "ingress interface",
            Self::Oif => "egress interface",
            Self::Vlantable => {
                "look the VLANs of the frame up in this VLAN table (`sidestep vlan`)"
            }
            Self::Srh => "the segments of the policy, in the order of travel",
            Self::Flavors => "variants of the behavior",
            Self::RequireHmac => {
                "drop what comes without an SRH whose HMAC is right, whatever the port says"
            }
            Self::Count => "the kernel counts too (Sidestep always does)",
            Self::Chain => {
                "`inbound` is what is meant without it; `fromVNF` is the way back, which the SID has anyway"
            }
            Self::Src => {
                "source address of the outer header that the packets get on their way back"
            }
            Self::Nheth => "Ethernet address of the service, where it is not to be resolved",
            Self::Inner => {
                "what the service sees; without it, what nh6 and nh4 say, or Ethernet where neither is given"
            }
            Self::Age => {
                "smallest time between two changes of the learned headers; 0, or none: every packet counts"
            }
            Self::Flows => {
                "learn the headers of each inner flow, for many chains through one service; so many flows, 8 to 8192 (default)"
            }
            Self::Liveness => {
                "see whether the service is there: by ICMP echo, by ARP or neighbor discovery, or by its link; \
                 interval 10 to 60000 (default 1000) ms"
            }
            Self::OnDown => {
                "packets while the service is not there: dropped (default), or sent on as End does"
            }
        }
    }
}

/// A flavor's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavor {
    /// Penultimate segment pop of the SRH.
    Psp,
    /// Ultimate segment pop of the SRH.
    Usp,
    /// Ultimate segment decapsulation.
    Usd,
    /// NEXT-C-SID.
    NextCsid,
    /// REPLACE-C-SID.
    ReplaceCsid,
    /// Destination NAT of End.AM.
    Nat,
}

impl Flavor {
    /// All, in the order in which iproute2 prints them.
    pub const ALL: [Self; 6] = [
        Self::Psp,
        Self::Usp,
        Self::Usd,
        Self::NextCsid,
        Self::ReplaceCsid,
        Self::Nat,
    ];

    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Psp => "psp",
            Self::Usp => "usp",
            Self::Usd => "usd",
            Self::NextCsid => "next-csid",
            Self::ReplaceCsid => "replace-csid",
            Self::Nat => "nat",
        }
    }

    /// Where it is specified, and what it is.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Psp => "RFC 8986 4.16.1: the last but one segment removes the SRH",
            Self::Usp => "RFC 8986 4.16.2: the last segment removes the SRH",
            Self::Usd => "RFC 8986 4.16.3: the last segment decapsulates",
            Self::NextCsid => {
                "RFC 9800 4.1: compressed SIDs; lblen 8-120 (default 32) and nflen 8-120 (default 16) bits, \
                 multiples of 8, together at most 128"
            }
            Self::ReplaceCsid => {
                "RFC 9800 4.2: compressed SIDs in the segment list; lblen 8-104 (default 48), a multiple of 8, and nflen 16 \
                 or 32 (default 32) bits, together at most 120"
            }
            Self::Nat => {
                "draft-ietf-spring-srv6-service-programming 6.4.2: what the service makes of the destination becomes the last segment"
            }
        }
    }
}

/// What a behavior decapsulates, or a headend encapsulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inner {
    /// Nothing: the packet stays as it is below the IPv6 header.
    None,
    /// IPv6 (upper-layer header 41).
    Ipv6,
    /// IPv4 (upper-layer header 4).
    Ipv4,
    /// IPv4 or IPv6.
    Ip,
    /// An Ethernet frame (upper-layer header 143).
    Ethernet,
    /// One of the three, as configured.
    Any,
}

impl Inner {
    /// The word for tables and help.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Ipv6 => "IPv6",
            Self::Ipv4 => "IPv4",
            Self::Ip => "IPv4 or IPv6",
            Self::Ethernet => "Ethernet",
            Self::Any => "IPv6, IPv4 or Ethernet",
        }
    }
}
