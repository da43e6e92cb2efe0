//! Probe messages and their replies: ICMP echo, neighbor solicitation, ARP request. Received bytes
//! are untrusted.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_model::node::Mac;
use sidestep_wire::{Icmp, IcmpView, Icmpv4Type, Icmpv6Type, Ipv4View};

pub(super) const ECHO_REPLY_6: u8 = Icmpv6Type::ECHO_REPLY.0;
pub(super) const NEIGHBOR_ADVERTISEMENT: u8 = Icmpv6Type::NEIGHBOR_ADVERTISEMENT.0;
pub(super) const ECHO_REPLY_4: u8 = Icmpv4Type::ECHO_REPLY.0;

/// Identifier of a prober in its echo requests, which separates its replies from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Identifier(pub u16);

impl Identifier {
    /// The word of an echo message: identifier and sequence number.
    fn word(self, sequence: u16) -> u32 {
        u32::from(self.0) << 16 | u32::from(sequence)
    }
}

/// RFC 4443 4.1, without the checksum, which the kernel writes.
pub(super) fn echo_request_6(identifier: Identifier, sequence: u16) -> Vec<u8> {
    let word = identifier.word(sequence);
    Icmp::v6(Icmpv6Type::ECHO_REQUEST, 0, word).emit_without_checksum(&[])
}

/// RFC 4443 4.2: returns the sequence number of the request.
pub(super) fn echo_reply_6(message: &[u8], identifier: Identifier) -> Option<u16> {
    echoed(message, ECHO_REPLY_6, identifier)
}

/// RFC 792, with its checksum.
pub(super) fn echo_request_4(identifier: Identifier, sequence: u16) -> Vec<u8> {
    let word = identifier.word(sequence);
    Icmp::v4(Icmpv4Type::ECHO_REQUEST, 0, word).emit_v4(&[])
}

/// RFC 792: returns the sequence number of the request. A raw socket delivers the IPv4 header, too.
pub(super) fn echo_reply_4(packet: &[u8], identifier: Identifier) -> Option<u16> {
    let (_, message) = Ipv4View::parse(packet)?;
    echoed(message, ECHO_REPLY_4, identifier)
}

fn echoed(message: &[u8], kind: u8, identifier: Identifier) -> Option<u16> {
    let (header, _) = IcmpView::parse(message)?;
    let sequence = header.word() as u16;
    let is_reply = header.kind() == kind && header.word() == identifier.word(sequence);
    is_reply.then_some(sequence)
}

/// RFC 4861 4.3, with the Ethernet address of the sender.
pub(super) fn solicitation(target: Ipv6Addr, from: Mac) -> Vec<u8> {
    let body = [&target.octets()[..], &[1, 1], &from.0].concat();
    Icmp::v6(Icmpv6Type::NEIGHBOR_SOLICITATION, 0, 0).emit_without_checksum(&body)
}

/// RFC 4861 4.4: an advertisement of this target, whoever requested it.
pub(super) fn is_advertisement(message: &[u8], target: Ipv6Addr) -> bool {
    message.first() == Some(&NEIGHBOR_ADVERTISEMENT) && message.get(8..24) == Some(&target.octets())
}

/// RFC 4291 2.7.1: the solicited-node group of this address.
pub(super) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&[a, b, c]);
    group.into()
}

/// RFC 826: Ethernet, IPv4.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// RFC 826. Without an address of its own, the node sends an ARP probe (RFC 5227 2.1.1).
pub(super) fn arp_request(target: Ipv4Addr, from: Mac, own: Option<Ipv4Addr>) -> Vec<u8> {
    let own = own.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let request = [0, 1];
    [
        &ARP_HEAD[..],
        &request,
        &from.0,
        &own.octets(),
        &[0; 6],
        &target.octets(),
    ]
    .concat()
}

/// RFC 826: whether this is the reply of `target`.
pub(super) fn is_arp_reply(packet: &[u8], target: Ipv4Addr) -> bool {
    let reply = [0, 2];
    packet.get(..6) == Some(&ARP_HEAD)
        && packet.get(6..8) == Some(&reply)
        && packet.get(14..18) == Some(&target.octets())
        && packet.len() >= 28
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Identifier = Identifier(0x1234);
    const SERVICE_4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    #[test]
    fn an_echo_request_follows_the_rfc_with_a_valid_checksum() {
        assert_eq!(
            echo_request_6(ME, 7),
            [128, 0, 0, 0, 0x12, 0x34, 0, 7],
            "ICMPv6"
        );
        // 0x0800 + 0x1234 + 0x0007 = 0x1a3b, complemented.
        assert_eq!(
            echo_request_4(ME, 7),
            [8, 0, 0xe5, 0xc4, 0x12, 0x34, 0, 7],
            "ICMP"
        );
    }

    #[test]
    fn only_replies_to_own_probes_count() {
        let reply = [129, 0, 9, 9, 0x12, 0x34, 0, 7];
        assert_eq!(echo_reply_6(&reply, ME), Some(7));
        assert_eq!(echo_reply_6(&reply, Identifier(1)), None);
        assert_eq!(echo_reply_6(&reply[..7], ME), None);
        assert_eq!(echo_reply_6(&echo_request_6(ME, 7), ME), None);
        let header = [&[0x46][..], &[0; 23]].concat();
        let packet = [&header[..], &[0, 0, 9, 9, 0x12, 0x34, 0, 7]].concat();
        assert_eq!(echo_reply_4(&packet, ME), Some(7));
        assert_eq!(echo_reply_4(&packet[..31], ME), None);
        assert_eq!(echo_reply_4(&[], ME), None);
        assert_eq!(echo_reply_4(&[0x4f], ME), None);
    }

    #[test]
    fn a_solicitation_and_its_reply_have_one_target() {
        let target: Ipv6Addr = "fc00::1:2345:6789".parse().expect("an address");
        let group: Ipv6Addr = "ff02::1:ff45:6789".parse().expect("an address");
        assert_eq!(solicited_node(target), group);
        let asked = solicitation(target, Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(asked.len(), 32);
        assert_eq!(asked[24..], [1, 1, 2, 0, 0, 0, 0, 1]);
        let mut answer = asked;
        answer[0] = 136;
        assert!(is_advertisement(&answer, target));
        assert!(!is_advertisement(&answer, group));
        assert!(!is_advertisement(&answer[..23], target));
        assert!(!is_advertisement(&[], target));
    }

    #[test]
    fn an_arp_reply_is_from_the_requested_address() {
        let asked = arp_request(SERVICE_4, Mac([2, 0, 0, 0, 0, 1]), None);
        assert_eq!(
            asked,
            [
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2
            ]
        );
        assert!(!is_arp_reply(&asked, SERVICE_4));
        let mut answer = asked;
        answer[7] = 2;
        answer[14..18].copy_from_slice(&SERVICE_4.octets());
        assert!(is_arp_reply(&answer, SERVICE_4));
        assert!(!is_arp_reply(&answer, Ipv4Addr::new(10, 0, 0, 3)));
        assert!(!is_arp_reply(&answer[..27], SERVICE_4));
    }
}
