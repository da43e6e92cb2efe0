//! Generic netlink: lookup of families, and the two families that the mirror queries. `netdev`
//! reports the features of drivers, and `SEG6` the tunnel source and HMAC keys.

use std::net::{IpAddr, Ipv6Addr};

use netlink_sys::protocols::NETLINK_GENERIC;
use sidestep_model::hmac::{HmacAlgorithm, HmacKey, HmacKeys, Secret};
use sidestep_model::node::IfIndex;

use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::wire::{Body, Message, attributes_after, messages};

/// Length of `struct genlmsghdr`.
const GENLMSGHDR: usize = 4;

/// A generic netlink family of the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GenlFamily {
    /// Its message type.
    pub id: u16,
    /// Its multicast groups: name and ID.
    pub groups: Vec<(String, u32)>,
}

impl GenlFamily {
    /// Returns the ID of a multicast group.
    pub fn group(&self, name: &str) -> Option<u32> {
        let found = self.groups.iter().find(|group| group.0 == name);
        found.map(|group| group.1)
    }
}

/// Requests to generic netlink families.
pub(crate) struct Genl {
    requester: Requester,
    seg6: Option<u16>,
}

impl Genl {
    /// Opens a socket and looks the `SEG6` family up.
    pub fn open() -> Result<Self, MirrorError> {
        let mut genl = Self {
            requester: Requester::open(NETLINK_GENERIC)?,
            seg6: None,
        };
        genl.seg6 = genl.family("SEG6")?.map(|family| family.id);
        Ok(genl)
    }

    /// Returns the family with this name, or `None` if the kernel lacks it.
    pub fn family(&mut self, name: &str) -> Result<Option<GenlFamily>, MirrorError> {
        let mut body = Body::new(&[CTRL_CMD_GETFAMILY, 1, 0, 0]);
        let name = [name.as_bytes(), &[0]].concat();
        body.attribute(libc::CTRL_ATTR_FAMILY_NAME as u16, &name);
        let request = Request {
            name: "find a generic netlink family",
            kind: libc::GENL_ID_CTRL as u16,
            body: &body.0,
        };
        match self.requester.one(request, decode_family) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            other => other,
        }
    }

    /// Returns the XDP features of each device from the `netdev` family (Linux 6.3).
    pub fn xdp_features(
        &mut self,
        netdev: &GenlFamily,
    ) -> Result<Vec<(IfIndex, u64)>, MirrorError> {
        let request = Request {
            name: "list the XDP features of the devices",
            kind: netdev.id,
            body: &[NETDEV_CMD_DEV_GET, 1, 0, 0],
        };
        self.requester.dump(request, decode_device)
    }

    /// Returns the keys of `ip sr hmac`. Empty if the kernel has no SRv6, or no HMAC for it. The
    /// kernel does not notify of changes.
    pub fn hmac_keys(&mut self) -> Result<HmacKeys, MirrorError> {
        let Some(kind) = self.seg6 else {
            return Ok(HmacKeys::new());
        };
        let request = Request {
            name: "list the HMAC keys (ip sr hmac)",
            kind,
            body: &[SEG6_CMD_DUMPHMAC, 1, 0, 0],
        };
        match self.requester.dump(request, decode_hmac) {
            Ok(keys) => Ok(keys.into_iter().collect()),
            // Secrets require CAP_NET_ADMIN in the first user namespace. Without it, mirror
            // everything else.
            Err(error) if matches!(error.errno(), Some(ENOTSUPP | libc::EPERM)) => {
                Ok(HmacKeys::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the address of `ip sr tunsrc`. `None` if it is not set, if the kernel has no SRv6, or
    /// without the privilege to read it.
    pub fn tunsrc(&mut self) -> Result<Option<Ipv6Addr>, MirrorError> {
        let Some(kind) = self.seg6 else {
            return Ok(None);
        };
        let request = Request {
            name: "get the tunnel source (ip sr tunsrc)",
            kind,
            body: &[SEG6_CMD_GET_TUNSRC, 1, 0, 0],
        };
        let source = match self.requester.one(request, decode_tunsrc) {
            // It requires CAP_NET_ADMIN. Without it, mirror everything else.
            Err(error) if error.errno() == Some(libc::EPERM) => return Ok(None),
            other => other?,
        };
        match source {
            Some(IpAddr::V6(source)) => Ok(Some(source).filter(|it| !it.is_unspecified())),
            _ => Err(MirrorError::Answer {
                request: request.name,
                missing: "IPv6 address",
            }),
        }
    }
}

/// Results of decoding generic netlink bytes in every way in which the mirror reads a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Generic {
    /// Reply to a dump of the `SEG6` family.
    pub hmac_keys: HmacKeys,
    /// Tunnel sources.
    pub tunsrc: Vec<IpAddr>,
    /// Devices and their XDP features.
    pub devices: Vec<(IfIndex, u64)>,
    /// Families, each with its number of multicast groups.
    pub families: Vec<(u16, usize)>,
}

/// Decodes one datagram without a kernel, for tests.
#[doc(hidden)]
pub fn generic_of(datagram: &[u8]) -> Generic {
    let mut found = Generic::default();
    for message in messages(datagram) {
        found.hmac_keys.extend(decode_hmac(&message));
        found.tunsrc.extend(decode_tunsrc(&message));
        found.devices.extend(decode_device(&message));
        let family = decode_family(&message);
        found
            .families
            .extend(family.map(|family| (family.id, family.groups.len())));
    }
    found
}

fn decode_tunsrc(message: &Message<'_>) -> Option<IpAddr> {
    attributes_after(message.body, GENLMSGHDR)
        .find(|attribute| attribute.kind == SEG6_ATTR_DST)
        .and_then(|attribute| attribute.address())
}

/// Decodes a key of a dump. Returns `None` for an algorithm without a name.
fn decode_hmac(message: &Message<'_>) -> Option<(u32, HmacKey)> {
    let (mut id, mut algorithm, mut secret, mut length) = (None, None, None, None);
    for attribute in attributes_after(message.body, GENLMSGHDR) {
        match attribute.kind {
            SEG6_ATTR_HMACKEYID => id = attribute.u32(),
            SEG6_ATTR_SECRET => secret = Some(attribute.value),
            SEG6_ATTR_SECRETLEN => length = attribute.u8().map(usize::from),
            SEG6_ATTR_ALGID => {
                algorithm = match attribute.u8()? {
                    SEG6_HMAC_ALGO_SHA1 => Some(HmacAlgorithm::Sha1),
                    SEG6_HMAC_ALGO_SHA256 => Some(HmacAlgorithm::Sha256),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    let secret = Secret::new(secret?.get(..length?)?).ok()?;
    let algorithm = algorithm?;
    Some((id?, HmacKey { algorithm, secret }))
}

/// A `netdev` notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    /// The device is there, with these features.
    Features(IfIndex, u64),
    /// The device is gone.
    Gone(IfIndex),
}

/// Decodes a message of the `netdev` family's `mgmt` group.
pub(crate) fn decode_event(message: &Message<'_>) -> Option<DeviceEvent> {
    let (ifindex, features) = decode_device(message)?;
    match *message.body.first()? {
        NETDEV_CMD_DEV_ADD_NTF | NETDEV_CMD_DEV_CHANGE_NTF => {
            Some(DeviceEvent::Features(ifindex, features))
        }
        NETDEV_CMD_DEV_DEL_NTF => Some(DeviceEvent::Gone(ifindex)),
        _ => None,
    }
}

fn decode_device(message: &Message<'_>) -> Option<(IfIndex, u64)> {
    let (mut ifindex, mut features) = (None, 0);
    for attribute in attributes_after(message.body, GENLMSGHDR) {
        match attribute.kind {
            NETDEV_A_DEV_IFINDEX => ifindex = attribute.u32().map(IfIndex),
            NETDEV_A_DEV_XDP_FEATURES => {
                features = u64::from_ne_bytes(*attribute.value.first_chunk::<8>()?);
            }
            _ => {}
        }
    }
    Some((ifindex?, features))
}

fn decode_family(message: &Message<'_>) -> Option<GenlFamily> {
    let mut family = GenlFamily::default();
    for attribute in attributes_after(message.body, GENLMSGHDR) {
        match i32::from(attribute.kind) {
            libc::CTRL_ATTR_FAMILY_ID => family.id = attribute.u16()?,
            libc::CTRL_ATTR_MCAST_GROUPS => {
                for group in attribute.nested() {
                    let (mut name, mut number) = (String::new(), None);
                    for nested in group.nested() {
                        match i32::from(nested.kind) {
                            libc::CTRL_ATTR_MCAST_GRP_NAME => name = nested.text(),
                            libc::CTRL_ATTR_MCAST_GRP_ID => number = nested.u32(),
                            _ => {}
                        }
                    }
                    family.groups.extend(number.map(|number| (name, number)));
                }
            }
            _ => {}
        }
    }
    (family.id != 0).then_some(family)
}

// include/uapi/linux/genetlink.h.
const CTRL_CMD_GETFAMILY: u8 = 3;

// include/uapi/linux/netdev.h.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_DEV_ADD_NTF: u8 = 2;
const NETDEV_CMD_DEV_DEL_NTF: u8 = 3;
const NETDEV_CMD_DEV_CHANGE_NTF: u8 = 4;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

// include/uapi/linux/seg6_genl.h.
const SEG6_CMD_DUMPHMAC: u8 = 2;
const SEG6_CMD_GET_TUNSRC: u8 = 4;
const SEG6_ATTR_DST: u16 = 1;
const SEG6_ATTR_HMACKEYID: u16 = 3;
const SEG6_ATTR_SECRET: u16 = 4;
const SEG6_ATTR_SECRETLEN: u16 = 5;
const SEG6_ATTR_ALGID: u16 = 6;

// include/uapi/linux/seg6_hmac.h.
const SEG6_HMAC_ALGO_SHA1: u8 = 1;
const SEG6_HMAC_ALGO_SHA256: u8 = 2;

/// Error of a kernel without `CONFIG_IPV6_SEG6_HMAC`: `ENOTSUPP` of include/linux/errno.h, which
/// POSIX does not define.
const ENOTSUPP: i32 = 524;
