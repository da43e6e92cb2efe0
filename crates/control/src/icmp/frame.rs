//! Packet Too Big to the source of a packet in a frame that an ether device cannot send.
//!
//! The device is a wire to its users, so the message comes from the destination of the packet, in a
//! frame from the destination of the frame. Linux does so at a VXLAN device in a bridge
//! (`iptunnel_pmtud_check_icmp` in `net/ipv4/ip_tunnel_core.c`).

use std::net::IpAddr;

use sidestep_datapath::Report;
use sidestep_wire::{
    EtherType, Ethernet, EthernetView, Ipv4, Ipv4View, Ipv6, Ipv6View, Protocol, Vlan, VlanView,
    checksum,
};

use super::packet::dont_fragment;
use super::{Kind, error};

/// LIMIT: tags in front of a packet.
const TAGS_MAX: usize = 4;

/// Returns the frame with the message, or none if there is no packet or the RFCs forbid a message.
/// Its tags are those of the reported frame.
pub fn answer(report: &Report) -> Option<(Kind, Vec<u8>)> {
    if !report.is_frame {
        return None;
    }
    let (ethernet, mut packet) = EthernetView::parse(&report.packet)?;
    let is_group = |address: [u8; 6]| address[0] & 1 != 0;
    if is_group(ethernet.source()) || is_group(ethernet.destination()) {
        return None;
    }
    let mut tags = 0;
    let mut ethertype = ethernet.ethertype();
    while tags < TAGS_MAX && [EtherType::VLAN, EtherType::QINQ].contains(&ethertype) {
        let (tag, rest) = VlanView::parse(packet)?;
        (ethertype, packet) = (tag.ethertype(), rest);
        tags += 1;
    }
    if ![EtherType::IPV4, EtherType::IPV6].contains(&ethertype) {
        return None;
    }
    let tags = tags * Vlan::LENGTH;
    let mtu = report.value.checked_sub(tags as u32)?;
    let message = error(Kind::TooBig { mtu }, packet)?;
    let answer = match message.to {
        IpAddr::V6(to) => {
            let from = Ipv6View::parse(packet)?.0.destination();
            let ends = checksum::Ends::new(from, to);
            let mut bytes = message.bytes;
            let sum = checksum::upper_layer(ends, Protocol::ICMPV6, &bytes);
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            Ipv6::new(from, to, Protocol::ICMPV6).emit(&bytes)
        }
        // RFC 1191 4: about packets with DF only.
        IpAddr::V4(to) if dont_fragment(packet) => {
            let from = Ipv4View::parse(packet)?.0.destination();
            Ipv4::new(from, to, Protocol::ICMP).emit(&message.bytes)
        }
        IpAddr::V4(_) => return None,
    };
    let tags = &report.packet[Ethernet::LENGTH..][..tags];
    let header = Ethernet {
        destination: ethernet.source(),
        source: ethernet.destination(),
        ethertype: ethernet.ethertype(),
    };
    Some((message.kind, header.emit(&[tags, &answer].concat())))
}
