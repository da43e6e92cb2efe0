//! Checksum and segmentation offload of an interface, by the ethtool ioctl.
//!
//! A veth with offloads does not do this work: a frame with `CHECKSUM_PARTIAL` has no checksum yet,
//! and a GSO frame is longer than the MTU. XDP sees neither state, so offloads are disabled where
//! bytes are compared.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::{Error, Namespace};

/// Offloads to switch on or off; `None` keeps the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The device computes checksums of sent packets.
    pub tx_checksum: Option<bool>,
    /// The stack does not verify checksums of received packets.
    pub rx_checksum: Option<bool>,
    /// The device segments TCP packets.
    pub tso: Option<bool>,
    /// Software segments packets just before the device.
    pub gso: Option<bool>,
    /// Received packets are merged. On a veth this also starts NAPI, which XDP redirects need.
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

    /// Applies the settings to an interface.
    ///
    /// # Errors
    /// The interface does not exist, or its driver lacks a setting.
    pub fn apply(self, namespace: &Namespace, ifname: &str) -> Result<(), Error> {
        // Switch transmit checksums first, because TSO depends on them.
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
