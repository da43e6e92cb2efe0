//! Checksum and segmentation offload of an interface, by the ethtool ioctl.
//!
//! A veth "offloads" by leaving work undone: a frame with `CHECKSUM_PARTIAL` has no checksum yet, a GSO frame is larger
//! than the MTU. XDP sees neither state, so where real bytes matter the offload is switched off.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::{Error, Namespace};

/// Which offloads to switch, and how; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Checksums of sent packets are left to the device.
    pub tx_checksum: Option<bool>,
    /// Checksums of received packets are believed.
    pub rx_checksum: Option<bool>,
    /// TCP segmentation is left to the device.
    pub tso: Option<bool>,
    /// Segmentation in software, late.
    pub gso: Option<bool>,
    /// Received packets are joined. On a veth this also starts NAPI, without which XDP redirects do not arrive.
    pub gro: Option<bool>,
}

impl Offload {
    /// Disables offloads, so that every frame is complete, as on a cable.
    pub const OFF: Self = Self {
        tx_checksum: Some(false),
        rx_checksum: Some(false),
        tso: Some(false),
        gso: Some(false),
        gro: Some(false),
    };

    /// Applies it to one interface.
    ///
    /// # Errors
    /// No such interface, or its driver has no such switch.
    pub fn apply(self, namespace: &Namespace, ifname: &str) -> Result<(), Error> {
        // In this order: TSO needs transmit checksums, so it is refused or dropped after them anyway.
        let switches = [
            (ETHTOOL_SRXCSUM, self.rx_checksum, "rx-checksumming"),
            (ETHTOOL_STXCSUM, self.tx_checksum, "tx-checksumming"),
            (ETHTOOL_STSO, self.tso, "tcp-segmentation-offload"),
            (ETHTOOL_SGSO, self.gso, "generic-segmentation-offload"),
            (ETHTOOL_SGRO, self.gro, "generic-receive-offload"),
        ];
        namespace.run(|| {
            for (command, value, name) in switches {
                let Some(on) = value else { continue };
                set(ifname, command, on).map_err(|source| {
                    let state = if on { "on" } else { "off" };
                    Error::os(
                        format!("{}: {ifname}: {name} {state}", namespace.name()),
                        source,
                    )
                })?;
            }
            Ok(())
        })?
    }
}

fn set(ifname: &str, command: u32, on: bool) -> std::io::Result<()> {
    let name = ifname.as_bytes();
    if name.len() >= libc::IFNAMSIZ {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let control = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let mut value = EthtoolValue {
        command,
        data: on.into(),
    };
    // SAFETY: ifreq is plain data, and all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
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
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// `struct ethtool_value` of `<linux/ethtool.h>`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

// <linux/ethtool.h>
const ETHTOOL_SRXCSUM: u32 = 0x15;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;
