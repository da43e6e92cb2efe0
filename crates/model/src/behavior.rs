//! Segment routing behaviors: headend encapsulations (`encap seg6`) and endpoint behaviors (`encap seg6local`).
//!
//! The tables in [`endpoint`] and [`headend`] describe each behavior once: its names, attributes
//! and support in Linux. Validation ([`check`]) and all operator-facing text ([`text`]) are derived
//! from them.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::node::{IfIndex, TableId};
use crate::vlan::VlanTableId;

pub use proxy::Proxy;

pub mod attribute;
pub mod check;
pub mod endpoint;
pub mod headend;
pub mod proxy;
pub mod text;

/// LIMIT: the largest number of segments in one SRH that Sidestep writes or mirrors.
pub const SEGMENTS_MAX: usize = 16;
/// LIMIT: the largest number of segments in one signed SRH (RFC 8754 2.1.2). Linux has the same
/// limit.
pub const SIGNED_MAX: usize = 14;

/// How a headend puts the segments into the packet (RFC 8986 5; `mode` of `encap seg6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EncapMode {
    /// `H.Insert`: an SRH between the IPv6 header and its payload (`inline`).
    Inline,
    /// `H.Insert.Red`: like `H.Insert`, but the first segment is only in the destination address
    /// (`inline.red`).
    InlineRed,
    /// `H.Encaps`: outer IPv6 header and SRH around the IP packet (`encap`).
    Encap,
    /// `H.Encaps.Red`: like `H.Encaps`, but the first segment is only in the destination address
    /// (`encap.red`).
    EncapRed,
    /// `H.Encaps.L2`: outer IPv6 header and SRH around the Ethernet frame (`l2encap`).
    L2Encap,
    /// `H.Encaps.L2.Red` (`l2encap.red`).
    L2EncapRed,
}

/// `encap seg6 mode MODE segs A,B,… [hmac KEYID] [tunsrc ADDRESS] [lookup TABLE]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seg6Encap {
    /// The headend behavior.
    pub mode: EncapMode,
    /// The segments in the order of travel: the first one visited first. 1 to [`SEGMENTS_MAX`].
    pub segments: Vec<Ipv6Addr>,
    /// HMAC key ID of a signed SRH.
    pub hmac: Option<u32>,
    /// Source address of the outer header for this route (`tunsrc`; Linux has it since 6.20).
    pub tunsrc: Option<Ipv6Addr>,
    /// Table for the lookup of the first segment (`lookup`). Without it, the rules select the
    /// table.
    pub lookup: Option<TableId>,
}

/// Endpoint behaviors (RFC 8986 4; `action` of `encap seg6local`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Behavior {
    /// Endpoint (4.1).
    End,
    /// Layer-3 cross-connect (4.2).
    EndX,
    /// Specific IPv6 table lookup (4.3).
    EndT,
    /// Decapsulation and IPv6 cross-connect (4.4).
    EndDx6,
    /// Decapsulation and IPv4 cross-connect (4.5).
    EndDx4,
    /// Decapsulation and specific IPv6 table lookup (4.6).
    EndDt6,
    /// Decapsulation and specific IPv4 table lookup (4.7).
    EndDt4,
    /// Decapsulation and specific IP table lookup (4.8).
    EndDt46,
    /// Decapsulation and L2 cross-connect (4.9).
    EndDx2,
    /// Decapsulation and VLAN L2 table lookup (4.10).
    EndDx2v,
    /// Decapsulation and unicast MAC L2 table lookup (4.11).
    EndDt2u,
    /// Decapsulation and L2 table flooding (4.12).
    EndDt2m,
    /// Endpoint bound to an SR policy, SRH inserted (Linux `End.B6`).
    EndB6,
    /// Endpoint bound to an SR encapsulation policy (4.13).
    EndB6Encaps,
    /// Endpoint bound to an SR encapsulation policy with a reduced SRH (4.14).
    EndB6EncapsRed,
    /// Static SR proxy (draft-ietf-spring-srv6-service-programming 6.1).
    EndAs,
    /// Dynamic SR proxy (6.2).
    EndAd,
    /// Masquerading SR proxy (6.4).
    EndAm,
}

/// Flavors of End, End.X and End.T (RFC 8986 4.16), of compressed SIDs (RFC 9800 4.1, 4.2), and of SR proxies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Flavors {
    /// Penultimate segment pop of the SRH.
    pub psp: bool,
    /// Ultimate segment pop of the SRH.
    pub usp: bool,
    /// Ultimate segment decapsulation.
    pub usd: bool,
    /// NEXT-C-SID: (Locator-Block length, Locator-Node Function length) in bits.
    pub next_csid: Option<(u8, u8)>,
    /// REPLACE-C-SID: (Locator-Block length, C-SID length) in bits.
    pub replace_csid: Option<(u8, u8)>,
    /// Destination NAT of End.AM: the destination that the service wrote becomes the last segment.
    pub nat: bool,
}

/// `encap seg6local action ACTION …`. [`endpoint::BEHAVIORS`] lists the attributes of each action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seg6Local {
    /// Behavior of the SID.
    pub action: Behavior,
    /// `table T`: lookup in this table only.
    pub table: Option<TableId>,
    /// `vrftable T`: lookup in table T as its VRF device does it.
    pub vrftable: Option<TableId>,
    /// `nh4 ADDRESS`.
    pub nh4: Option<Ipv4Addr>,
    /// `nh6 ADDRESS`.
    pub nh6: Option<Ipv6Addr>,
    /// `iif DEV`.
    pub iif: Option<IfIndex>,
    /// `oif DEV`.
    pub oif: Option<IfIndex>,
    /// `l2dev DEV`: the ether device whose bridge is the L2 table.
    pub l2dev: Option<IfIndex>,
    /// `srh segs A,B,…` of End.B6, End.B6.Encaps, End.B6.Encaps.Red and End.AS, in the order of travel.
    pub segments: Vec<Ipv6Addr>,
    /// `vlantable T`: the VLAN table of End.DX2V.
    pub vlantable: Option<VlanTableId>,
    /// `flavors psp,…`.
    pub flavors: Flavors,
    /// `require-hmac`: drop packets without a valid HMAC, whatever `seg6_require_hmac` of the port
    /// is (local policy, RFC 8754 2.1.2.1).
    pub require_hmac: bool,
    /// `count`: the kernel's per-SID counters are requested. Sidestep always counts.
    pub count: bool,
    /// Attributes of SR proxies.
    pub proxy: Proxy,
}
