//! Packets whose senders have to be told why they went no further, as the packet path reports them
//! (`datapath/report.h`).

use std::net::Ipv6Addr;

use sidestep_abi::{Reason, sidestep_report};

/// One such packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When: nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// Ingress interface.
    pub ifindex: u32,
    /// Why it went no further.
    pub reason: &'static Reason,
    /// Of `too_big` the MTU for this packet, else the offset in it of what is wrong.
    pub value: u32,
    /// Protocol number of the header that was looked at last.
    pub proto: u8,
    /// Of a packet from inside an encapsulation: the FIB view of its lookup; else 0.
    pub view: u32,
    /// Where it was last looked up: the SID that it came to. Of IPv4 in the first four bytes.
    pub destination: Ipv6Addr,
    /// Bytes of the whole packet, from its IP header on.
    pub length: u32,
    /// The first of them, as they arrived.
    pub packet: Vec<u8>,
}

impl Report {
    /// None: no report of this version's.
    pub(crate) fn read(raw: &sidestep_report) -> Option<Self> {
        let packet = raw.packet.get(..raw.bytes as usize)?;
        Some(Self {
            time: raw.time,
            ifindex: raw.ifindex,
            reason: Reason::from_number(raw.reason)?,
            value: raw.value,
            proto: raw.proto.try_into().ok()?,
            view: raw.view,
            destination: raw.destination.into(),
            length: raw.length,
            packet: (!packet.is_empty()).then(|| packet.to_vec())?,
        })
    }
}
