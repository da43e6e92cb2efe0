//! Attributes and flavors with their keywords, and payload types, for the descriptor tables.

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
    /// `l2dev DEV`.
    L2dev,
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
    /// All values in the order in which iproute2 prints them.
    pub const ALL: [Self; 20] = [
        Self::Chain,
        Self::Srh,
        Self::Src,
        Self::Table,
        Self::Vrftable,
        Self::Nh4,
        Self::Nh6,
        Self::Iif,
        Self::Oif,
        Self::L2dev,
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

    /// Returns the attribute with this keyword.
    pub fn from_keyword(keyword: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.keyword() == keyword)
    }

    /// Returns the keyword.
    pub fn keyword(self) -> &'static str {
        self.form().split(' ').next().unwrap_or_default()
    }

    /// Returns the keyword with its value in the notation of the grammar.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Table => "table TABLE",
            Self::Vrftable => "vrftable TABLE",
            Self::Nh4 => "nh4 IPV4",
            Self::Nh6 => "nh6 IPV6",
            Self::Iif => "iif DEV",
            Self::Oif => "oif DEV",
            Self::L2dev => "l2dev DEV",
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
}

/// Name of a flavor.
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
    /// All values in the order in which iproute2 prints them.
    pub const ALL: [Self; 6] = [
        Self::Psp,
        Self::Usp,
        Self::Usd,
        Self::NextCsid,
        Self::ReplaceCsid,
        Self::Nat,
    ];

    /// Returns the word.
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

    /// Returns the specification and a one-line description.
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
                "draft-ietf-spring-srv6-service-programming 6.4.2: the destination that the service writes becomes the last segment"
            }
        }
    }
}

/// Payload that a behavior decapsulates or a headend encapsulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inner {
    /// No payload: the behavior does not decapsulate.
    None,
    /// IPv6 (upper-layer header 41).
    Ipv6,
    /// IPv4 (upper-layer header 4).
    Ipv4,
    /// IPv4 or IPv6.
    Ip,
    /// An Ethernet frame (upper-layer header 143).
    Ethernet,
    /// IPv6, IPv4 or Ethernet, as configured.
    Any,
}

impl Inner {
    /// Returns the word for tables and help.
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
