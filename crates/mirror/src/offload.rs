//! Transmit offloads of interfaces, by the ethtool ioctl.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Whether the interface segments TCP packets, which implies transmit checksums
/// (`netdev_fix_features`). False if it cannot be read.
pub(crate) fn segments_tcp(ifname: &str) -> bool {
    read(ifname, ETHTOOL_GTSO).is_some_and(|on| on != 0)
}

/// Turns off transmit checksums and TCP segmentation, so that the stack does both before it sends.
/// A failure is ignored: the interface may be gone.
pub(crate) fn leave_nothing(ifname: &str) {
    // Without checksums there is no segmentation (netdev_fix_features).
    let _ = value(ifname, ETHTOOL_STXCSUM, 0);
}

fn read(ifname: &str, command: u32) -> Option<u32> {
    value(ifname, command, 0)
}

/// Sets or reads a value.
fn value(ifname: &str, command: u32, data: u32) -> Option<u32> {
    if ifname.len() >= libc::IFNAMSIZ {
        return None;
    }
    let kind = SockType::Datagram;
    let control = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let mut value = EthtoolValue { command, data };
    // SAFETY: plain data; all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(ifname.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request and the value it points to live until the call has returned.
    let result = unsafe {
        libc::ioctl(
            control.as_raw_fd(),
            libc::SIOCETHTOOL as _,
            &raw mut request,
        )
    };
    (result == 0).then_some(value.data)
}

/// `struct ethtool_value` of `<linux/ethtool.h>`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

// include/uapi/linux/ethtool.h.
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
