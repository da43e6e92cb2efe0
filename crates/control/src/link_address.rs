//! Addresses of packet sockets.

use nix::libc;
use nix::sys::socket::{LinkAddr, SockaddrLike};
use sidestep_model::node::{IfIndex, Mac};

/// Returns the address of `mac` on the link. `ethertype` is the protocol of the payload.
pub fn link_address(link: IfIndex, ethertype: u16, mac: Mac) -> LinkAddr {
    // SAFETY: plain data; all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = link.0 as i32;
    address.sll_halen = mac.0.len() as u8;
    address.sll_addr[..mac.0.len()].copy_from_slice(&mac.0);
    let length = Some(size_of_val(&address) as u32);
    // SAFETY: a `sockaddr_ll` of AF_PACKET with its length; the call copies it.
    let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) };
    address.expect("family and length are those of a link address")
}
