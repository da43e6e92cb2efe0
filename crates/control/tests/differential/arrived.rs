//! Parts of a frame that neither data plane produces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_testkit::differential::headers::{ETHERNET, IPV6, proto};

/// Properties of a frame's header chain that Linux interprets differently.
#[derive(Default)]
pub struct Headers {
    /// An SRH with a Pad1 TLV.
    pub srh_pad1: bool,
    /// The most TLVs in one SRH.
    pub tlvs: usize,
    /// The longest run of padding in Hop-by-Hop options, in octets.
    pub padding: usize,
    /// `PadN` in Hop-by-Hop options that is not zero.
    pub filled: bool,
    /// Router Alert of a length other than 2, or a CALIPSO label, in Hop-by-Hop options.
    pub refused: bool,
}

impl Headers {
    /// For a frame with IPv6.
    pub fn of(frame: &[u8]) -> Self {
        let mut found = Self::default();
        // Cut short: whatever it was, it is not that.
        let _ = found.walk(frame);
        found
    }

    fn walk(&mut self, frame: &[u8]) -> Option<()> {
        let (mut next, mut at) = (*frame.get(ETHERNET + 6)?, ETHERNET + IPV6);
        while [
            proto::HOP_BY_HOP,
            proto::ROUTING,
            proto::DESTINATION_OPTIONS,
        ]
        .contains(&next)
        {
            let end = at + 8 * (usize::from(*frame.get(at + 1)?) + 1);
            let header = frame.get(at..end)?;
            if next == proto::ROUTING && header[2] == 4 {
                let tlvs = header
                    .get(8 + 16 * (usize::from(header[4]) + 1)..)
                    .unwrap_or(&[]);
                self.srh_pad1 |= options(tlvs).any(|(kind, _)| kind == 0);
                self.tlvs = self.tlvs.max(options(tlvs).count());
            } else if next == proto::HOP_BY_HOP {
                let mut run = 0;
                for (kind, option) in options(&header[2..]) {
                    run = if kind < 2 { run + option.len() } else { 0 };
                    self.padding = self.padding.max(run);
                    self.filled |= kind == 1 && option[2..].iter().any(|octet| *octet != 0);
                    self.refused |= kind == ROUTER_ALERT && option.len() != 4 || kind == CALIPSO;
                }
            }
            (next, at) = (header[0], end);
        }
        Some(())
    }
}

/// RFC 2711.
const ROUTER_ALERT: u8 = 5;
/// RFC 5570.
const CALIPSO: u8 = 7;

/// Types and bytes of options or TLVs, where type 0 is of one octet.
fn options(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let kind = *bytes.get(at)?;
        let length = match kind {
            0 => 1,
            _ => usize::from(*bytes.get(at + 1)?) + 2,
        };
        let option = bytes.get(at..(at + length).min(bytes.len()))?;
        at += length;
        Some((kind, option))
    })
}

/// Whether a frame is an ICMP error of the node itself, as it is or encapsulated: an answer to the sender, not to the
/// question.
pub fn is_own_error(frame: &[u8], own: &BTreeSet<IpAddr>) -> bool {
    own_error(frame.get(12..).unwrap_or(&[]), own).unwrap_or(false)
}

fn own_error(from_type: &[u8], own: &BTreeSet<IpAddr>) -> Option<bool> {
    let mut next = match from_type.get(..2)? {
        [0x86, 0xdd] => proto::IPV6,
        [8, 0] => proto::IPV4,
        _ => return Some(false),
    };
    let (mut at, mut source) = (2, None);
    loop {
        match next {
            proto::IPV6 => {
                let bytes: [u8; 16] = from_type.get(at + 8..at + 24)?.try_into().ok()?;
                source = Some(IpAddr::from(bytes));
                (next, at) = (*from_type.get(at + 6)?, at + IPV6);
            }
            proto::IPV4 => {
                let bytes: [u8; 4] = from_type.get(at + 12..at + 16)?.try_into().ok()?;
                source = Some(IpAddr::from(bytes));
                let length = usize::from(from_type.get(at)? & 15) * 4;
                (next, at) = (*from_type.get(at + 9)?, at + length);
            }
            proto::ETHERNET => return own_error(from_type.get(at + 12..)?, own),
            proto::ROUTING => {
                let length = 8 * (usize::from(*from_type.get(at + 1)?) + 1);
                (next, at) = (*from_type.get(at)?, at + length);
            }
            proto::ICMPV6 => return Some(*from_type.get(at)? < 128 && own.contains(&source?)),
            proto::ICMP => {
                let error = [3, 5, 11, 12].contains(from_type.get(at)?);
                return Some(error && own.contains(&source?));
            }
            _ => return Some(false),
        }
    }
}
