//! Reports of the packet path (`datapath/report.h`): packets that cause an ICMP error, copies
//! of packets with the O-flag, and packets to fragment.

use std::net::Ipv6Addr;

use crate::abi::{
    Reason, SIDESTEP_REPORT_COPY, SIDESTEP_REPORT_ERROR, SIDESTEP_REPORT_FRAGMENT, ViewId,
    sidestep_report,
};

/// Packet that causes an ICMP error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When: nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// Ingress interface.
    pub ifindex: u32,
    /// Why it went no further.
    pub reason: &'static Reason,
    /// MTU of the packet for `too_big`; otherwise the offset of the invalid field in the packet.
    pub value: u32,
    /// Protocol number of the header that was looked at last.
    pub proto: u8,
    /// FIB view of the lookup for a packet from an encapsulation; otherwise 0.
    pub view: ViewId,
    /// Where it was last looked up: the SID that it came to. IPv4 occupies the first four bytes.
    pub destination: Ipv6Addr,
    /// Whether the packet is an Ethernet frame, which an ether device cannot send.
    pub is_frame: bool,
    /// Bytes of the whole packet, from its IP header on.
    pub length: u32,
    /// The first of them, as they arrived.
    pub packet: Vec<u8>,
}

/// One with the O-flag (RFC 9259 2.1.1), at a SID of this node that processes its SRH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// When it was copied: nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// Ingress interface.
    pub ifindex: u32,
    /// Its destination there: the SID.
    pub sid: Ipv6Addr,
    /// Before the SID processes it.
    pub segments_left: u8,
    /// Bytes of the whole packet, from its IPv6 header on.
    pub length: u32,
    /// The first of them, as they arrived.
    pub packet: Vec<u8>,
}

/// Frame that exceeds the egress MTU and is to be sent in fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// When: nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// Ingress interface.
    pub ifindex: u32,
    /// Egress interface.
    pub egress: u32,
    /// MTU there, without the Ethernet header.
    pub mtu: u32,
    /// The whole frame as it would leave, from its Ethernet header on.
    pub frame: Vec<u8>,
}

/// Record that the packet path reported.
pub(crate) enum Reported {
    Error(Report),
    Copy(Copied),
    Fragment(Oversized),
}

impl Reported {
    /// None: no report of this version's.
    pub(crate) fn read(raw: &sidestep_report) -> Option<Self> {
        let packet = raw.packet.get(..raw.bytes as usize)?;
        let packet = (!packet.is_empty()).then(|| packet.to_vec())?;
        match raw.kind {
            SIDESTEP_REPORT_ERROR => Some(Self::Error(Report {
                time: raw.time,
                ifindex: raw.ifindex,
                reason: Reason::from_number(raw.reason)?,
                value: raw.value,
                proto: raw.proto.try_into().ok()?,
                view: raw.view,
                destination: raw.destination.into(),
                is_frame: raw.frame != 0,
                length: raw.length,
                packet,
            })),
            SIDESTEP_REPORT_COPY => Some(Self::Copy(Copied {
                time: raw.time,
                ifindex: raw.ifindex,
                sid: raw.destination.into(),
                segments_left: raw.value.try_into().ok()?,
                length: raw.length,
                packet,
            })),
            SIDESTEP_REPORT_FRAGMENT if raw.bytes == raw.length => {
                Some(Self::Fragment(Oversized {
                    time: raw.time,
                    ifindex: raw.ifindex,
                    egress: raw.egress,
                    mtu: raw.value,
                    frame: packet,
                }))
            }
            _ => None,
        }
    }
}
