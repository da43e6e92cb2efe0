//! Links from `RTM_NEWLINK`, and the kernel settings that together form the link of the model.

use sidestep_model::node::{IfIndex, Link, LinkKind, Mac, TableId};

use crate::bridge;
use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::wire::{Attribute, Body, Message, attributes_after, u32_at};

/// Length of `struct ifinfomsg`.
pub(crate) const IFINFOMSG: usize = 16;

/// A link as the kernel reports it, without the settings of the whole node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub ifindex: IfIndex,
    pub name: String,
    pub alt_names: Vec<String>,
    pub mac: Mac,
    pub mtu: u32,
    pub kind: LinkKind,
    /// Whether this is a software device (it has an `IFLA_INFO_KIND`), without a hardware driver.
    pub software: bool,
    pub master: Option<IfIndex>,
    /// `IFF_*`.
    pub flags: i32,
    pub settings: Settings,
    /// Settings of a bridge.
    pub bridge: Option<bridge::Settings>,
}

/// Settings below `conf/IF`. `None` if the link lacks the protocol, because its MTU is too small or
/// the kernel has no IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub v4: Option<Settings4>,
    pub v6: Option<Settings6>,
}

/// `net.ipv4.conf.IF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings4 {
    pub forwarding: i32,
    pub rp_filter: i32,
}

/// `net.ipv6.conf.IF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings6 {
    pub hop_limit: i32,
    pub disabled: i32,
    pub seg6_enabled: i32,
    pub seg6_require_hmac: i32,
    pub use_oif_addrs_only: i32,
    /// 0 before Linux 6.17, which has no such setting.
    pub force_forwarding: i32,
}

/// Settings below `conf/all` that are combined with a link's own settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllSettings {
    pub rp_filter: i32,
    pub forwarding6: i32,
    pub seg6_enabled: i32,
}

impl LinkState {
    /// Whether the link is up and has a carrier.
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_UP != 0 && self.flags & libc::IFF_LOWER_UP != 0
    }

    /// Returns the link of the model, without its peer. `xdp_features` are the driver's features
    /// from the `netdev` family, if it reports them.
    pub fn link(&self, all: &AllSettings, xdp_features: Option<u64>) -> Link {
        let v4 = self.settings.v4;
        // An interface without IPv6, or with it disabled, drops every IPv6 packet
        // (net/ipv6/ip6_input.c ip6_rcv_core).
        let v6 = self.settings.v6.filter(|v6| v6.disabled == 0);
        Link {
            ifindex: self.ifindex,
            name: self.name.clone(),
            alt_names: self.alt_names.clone(),
            mac: self.mac,
            mtu: self.mtu,
            kind: self.kind.clone(),
            master: self.master,
            up: self.is_running(),
            ipv6_disabled: self.settings.v6.is_some_and(|v6| v6.disabled != 0),
            // net/ipv6/exthdrs.c ipv6_srh_rcv: the smaller of the two, and not 0.
            seg6_enabled: v6.is_some_and(|v6| v6.seg6_enabled.min(all.seg6_enabled) != 0),
            // net/ipv6/seg6_hmac.c seg6_hmac_validate_skb: the interface's alone.
            seg6_require_hmac: self.settings.v6.map_or(0, |v6| v6.seg6_require_hmac),
            // net/ipv6/ip6_output.c ip6_forward: conf/all, or the interface's force_forwarding.
            forwarding6: v6.is_some_and(|v6| all.forwarding6 != 0 || v6.force_forwarding != 0),
            // net/ipv4/route.c ip_route_input_slow: IN_DEV_FORWARD, the interface's alone.
            forwarding4: v4.is_some_and(|v4| v4.forwarding != 0),
            // include/linux/inetdevice.h IN_DEV_RPFILTER: the larger.
            rp_filter: v4
                .map_or(0, |v4| v4.rp_filter)
                .max(all.rp_filter)
                .clamp(0, 255) as u8,
            // include/net/ipv6.h IPV6_DEFAULT_HOPLIMIT, where there is no setting.
            hop_limit: self
                .settings
                .v6
                .map_or(64, |v6| v6.hop_limit.clamp(0, 255) as u8),
            oif_addresses_only: v6.is_some_and(|v6| v6.use_oif_addrs_only != 0),
            xdp_transmit: match xdp_features {
                Some(features) => features & NETDEV_XDP_ACT_NDO_XMIT != 0,
                // Kernels before Linux 6.3 do not report the features. Only some software devices
                // accept redirects, and some of them (veth, tun) only at times. Few drivers with
                // XDP cannot transmit.
                None => !self.software && !matches!(self.kind, LinkKind::NotEthernet(_)),
            },
            peer: None,
        }
    }
}

/// Lists all links, without their statistics.
pub(crate) fn dump<T>(
    requester: &mut Requester,
    decode: impl FnMut(&Message<'_>) -> Option<T>,
) -> Result<Vec<T>, MirrorError> {
    let mut body = Body::new(&[0; IFINFOMSG]);
    let mask = libc::RTEXT_FILTER_SKIP_STATS as u32;
    body.attribute(libc::IFLA_EXT_MASK, &mask.to_ne_bytes());
    let request = Request {
        name: "list the links",
        kind: libc::RTM_GETLINK,
        body: &body.0,
    };
    requester.dump(request, decode)
}

/// Decodes the link in `message`. Returns `None` for messages of other protocols about a link
/// (bridge ports, IPv6).
pub(crate) fn decode(message: &Message<'_>) -> Option<LinkState> {
    let fixed = message.body.first_chunk::<IFINFOMSG>()?;
    let [family, _, a, b, ..] = *fixed;
    if i32::from(family) != libc::AF_UNSPEC {
        return None;
    }
    let hardware = u16::from_ne_bytes([a, b]);
    let mut state = LinkState {
        ifindex: ifindex(message)?,
        name: String::new(),
        alt_names: Vec::new(),
        mac: Mac::default(),
        mtu: 0,
        kind: LinkKind::Ethernet,
        software: false,
        master: None,
        flags: u32_at(message.body, 8)? as i32,
        settings: Settings::default(),
        bridge: None,
    };
    let (mut link, mut elsewhere) = (None, false);
    let mut info = None;
    for attribute in attributes_after(message.body, IFINFOMSG) {
        match attribute.kind {
            libc::IFLA_IFNAME => state.name = attribute.text(),
            libc::IFLA_PROP_LIST => {
                let names = attribute.nested();
                let names = names.filter(|property| property.kind == libc::IFLA_ALT_IFNAME);
                state.alt_names = names.map(|name| name.text()).collect();
            }
            libc::IFLA_ADDRESS => {
                state.mac = Mac(attribute.value.try_into().unwrap_or_default());
            }
            libc::IFLA_MTU => state.mtu = attribute.u32()?,
            libc::IFLA_MASTER => state.master = attribute.u32().map(IfIndex),
            libc::IFLA_LINK => link = attribute.u32().map(IfIndex),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_LINKINFO => info = Some(attribute),
            libc::IFLA_AF_SPEC => state.settings = settings(&attribute),
            _ => {}
        }
    }
    // If the lower link is in another namespace, the index belongs to that namespace.
    let below = link.filter(|_| !elsewhere);
    state.kind = kind(hardware, info, below);
    state.bridge = info.and_then(|info| bridge::settings(&info));
    state.software = info.is_some_and(|info| {
        info.nested()
            .any(|nested| nested.kind == libc::IFLA_INFO_KIND)
    });
    Some(state)
}

/// Returns the index of the link in `message`, which may be another protocol's view of it.
pub(crate) fn ifindex(message: &Message<'_>) -> Option<IfIndex> {
    u32_at(message.body, 4).map(IfIndex)
}

fn kind(hardware: u16, info: Option<Attribute<'_>>, below: Option<IfIndex>) -> LinkKind {
    let (mut name, mut data) = (String::new(), None);
    for nested in info.iter().flat_map(Attribute::nested) {
        match nested.kind {
            libc::IFLA_INFO_KIND => name = nested.text(),
            libc::IFLA_INFO_DATA => data = Some(nested),
            _ => {}
        }
    }
    let find = |kind| {
        data.iter()
            .flat_map(Attribute::nested)
            .find(|nested| nested.kind == kind)
    };
    match (hardware, name.as_str()) {
        (libc::ARPHRD_LOOPBACK, _) => LinkKind::Loopback,
        (hardware, _) if hardware != libc::ARPHRD_ETHER => {
            LinkKind::NotEthernet(if name.is_empty() {
                format!("arphrd {hardware}")
            } else {
                name
            })
        }
        (_, "veth") => LinkKind::Veth,
        (_, "tun") => LinkKind::Tap,
        (_, "bridge") => LinkKind::Bridge,
        (_, "bond" | "team") => LinkKind::Bond,
        (_, "vrf") => match find(IFLA_VRF_TABLE).and_then(|table| table.u32()) {
            Some(table) => LinkKind::Vrf {
                table: TableId(table),
            },
            None => LinkKind::Ethernet,
        },
        (_, "vlan") => match (below, find(IFLA_VLAN_ID).and_then(|id| id.u16())) {
            (Some(link), Some(id)) => LinkKind::Vlan {
                link,
                id,
                protocol: find(IFLA_VLAN_PROTOCOL)
                    .and_then(|protocol| protocol.u16())
                    .map_or(libc::ETH_P_8021Q as u16, u16::from_be),
            },
            _ => LinkKind::Ethernet,
        },
        _ => LinkKind::Ethernet,
    }
}

/// Returns the settings in an `IFLA_AF_SPEC`.
fn settings(spec: &Attribute<'_>) -> Settings {
    let mut found = Settings::default();
    for family in spec.nested() {
        for nested in family.nested() {
            let setting = |index: usize| u32_at(nested.value, index * 4).map(|value| value as i32);
            match (i32::from(family.kind), nested.kind) {
                (libc::AF_INET, IFLA_INET_CONF) => {
                    // The array starts with setting 1.
                    found.v4 = setting(IPV4_DEVCONF_FORWARDING - 1).map(|forwarding| Settings4 {
                        forwarding,
                        rp_filter: setting(IPV4_DEVCONF_RP_FILTER - 1).unwrap_or_default(),
                    });
                }
                (libc::AF_INET6, IFLA_INET6_CONF) => {
                    found.v6 = setting(DEVCONF_HOPLIMIT).map(|hop_limit| Settings6 {
                        hop_limit,
                        disabled: setting(DEVCONF_DISABLE_IPV6).unwrap_or_default(),
                        seg6_enabled: setting(DEVCONF_SEG6_ENABLED).unwrap_or_default(),
                        seg6_require_hmac: setting(DEVCONF_SEG6_REQUIRE_HMAC).unwrap_or_default(),
                        use_oif_addrs_only: setting(DEVCONF_USE_OIF_ADDRS_ONLY).unwrap_or_default(),
                        force_forwarding: setting(DEVCONF_FORCE_FORWARDING).unwrap_or_default(),
                    });
                }
                _ => {}
            }
        }
    }
    found
}

// include/uapi/linux/if_link.h.
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_CONF: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_VRF_TABLE: u16 = 1;

// include/uapi/linux/ip.h.
const IPV4_DEVCONF_FORWARDING: usize = 1;
const IPV4_DEVCONF_RP_FILTER: usize = 8;

// include/uapi/linux/ipv6.h.
const DEVCONF_HOPLIMIT: usize = 1;
const DEVCONF_DISABLE_IPV6: usize = 26;
const DEVCONF_USE_OIF_ADDRS_ONLY: usize = 37;
const DEVCONF_SEG6_ENABLED: usize = 44;
const DEVCONF_SEG6_REQUIRE_HMAC: usize = 45;
const DEVCONF_FORCE_FORWARDING: usize = 59;

// include/uapi/linux/netdev.h: enum netdev_xdp_act.
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;
