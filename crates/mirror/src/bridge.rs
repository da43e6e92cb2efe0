//! Bridges: the settings and the ports that decide whether frames may pass beside them, and their
//! forwarding databases (FDB).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use sidestep_model::bridge::BridgePort;
use sidestep_model::node::{IfIndex, Mac, Node};

use crate::dump::Requester;
use crate::legacy;
use crate::link::{IFINFOMSG, ifindex};
use crate::neighbor::{NDA_FLAGS_EXT, NDMSG, NTF_EXT_LEARNED};
use crate::survey::{self, Chain};
use crate::wire::{Attribute, Body, Message, attributes_after, u16_at, u32_at};

/// Settings of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `vlan_filtering`
    pub filters_vlans: bool,
    /// `nf_call_iptables`, `nf_call_ip6tables` or `nf_call_arptables`, beside the sysctls.
    pub calls_netfilter: bool,
    /// Time after which a station that sends nothing is forgotten.
    pub ageing: Duration,
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub bridge: IfIndex,
    /// State of IEEE 802.1D 7.4.
    pub state: u8,
    pub isolated: bool,
    /// Only authorized stations (802.1X).
    pub locked: bool,
}

impl Port {
    /// Returns the port of the model. `of_bridge`: settings of its bridge, if it is up.
    pub fn port(self, of_bridge: Option<&Settings>, found: Option<&String>) -> BridgePort {
        let own = match (of_bridge, self.state) {
            (None, _) => Some("the bridge is down".to_owned()),
            (Some(bridge), _) if bridge.filters_vlans => Some("the bridge filters VLANs".into()),
            (Some(bridge), _) if bridge.calls_netfilter => {
                Some("the bridge calls netfilter (nf_call_iptables)".into())
            }
            (_, FORWARDING) if self.locked => Some("the port is locked (802.1X)".into()),
            (_, FORWARDING) => None,
            (_, 0) => Some("the port is disabled".into()),
            (_, 1) => Some("the port is listening".into()),
            (_, 2) => Some("the port is learning".into()),
            _ => Some("the port is blocking".into()),
        };
        BridgePort {
            bridge: self.bridge,
            isolated: self.isolated,
            obstacle: own.or_else(|| found.cloned()),
        }
    }
}

/// Station in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    /// Bridge and Ethernet address.
    pub key: (IfIndex, Mac),
    /// Port toward the station; none if it is gone, or if all its frames must pass the bridge.
    pub port: Option<IfIndex>,
    /// Whether the kernel forgets it.
    pub ages: bool,
}

/// Returns the settings in the `IFLA_LINKINFO` of a bridge, and `None` for that of another link.
pub(crate) fn settings(info: &Attribute<'_>) -> Option<Settings> {
    let mut settings = None;
    for nested in info.nested() {
        match nested.kind {
            libc::IFLA_INFO_KIND if nested.text() == "bridge" => {
                settings = Some(Settings::default());
            }
            // The kernel writes the kind first.
            libc::IFLA_INFO_DATA => {
                if let Some(settings) = &mut settings {
                    note_settings(settings, &nested);
                }
            }
            _ => {}
        }
    }
    settings
}

fn note_settings(settings: &mut Settings, data: &Attribute<'_>) {
    for attribute in data.nested() {
        match attribute.kind {
            // In units of 1/100 s (USER_HZ).
            IFLA_BR_AGEING_TIME => {
                let ticks = attribute.u32().unwrap_or_default();
                settings.ageing = Duration::from_millis(u64::from(ticks) * 10);
            }
            IFLA_BR_VLAN_FILTERING => settings.filters_vlans = is_set(&attribute),
            IFLA_BR_NF_CALL_IPTABLES..=IFLA_BR_NF_CALL_ARPTABLES => {
                settings.calls_netfilter |= is_set(&attribute);
            }
            _ => {}
        }
    }
}

fn is_set(attribute: &Attribute<'_>) -> bool {
    attribute.value.first().is_some_and(|value| *value != 0)
}

/// Returns the body of a dump of the ports of all bridges.
pub(crate) fn ports_request() -> Body {
    let mut fixed = [0; IFINFOMSG];
    fixed[0] = libc::AF_BRIDGE as u8;
    Body::new(&fixed)
}

/// Returns the body of a dump of all FDBs.
pub(crate) fn stations_request() -> Body {
    let mut fixed = [0; NDMSG];
    fixed[0] = libc::AF_BRIDGE as u8;
    Body::new(&fixed)
}

/// Returns the body of the request that renews a station, as if it had sent a frame.
pub(crate) fn use_request(port: IfIndex, mac: Mac) -> Body {
    let mut fixed = [0; NDMSG];
    fixed[0] = libc::AF_BRIDGE as u8;
    fixed[4..8].copy_from_slice(&port.0.to_ne_bytes());
    fixed[8..10].copy_from_slice(&libc::NUD_REACHABLE.to_ne_bytes());
    fixed[10] = libc::NTF_MASTER | libc::NTF_USE;
    let mut body = Body::new(&fixed);
    body.attribute(libc::NDA_LLADDR, &mac.0);
    body
}

/// Decodes a port of a bridge, or its end. Returns `None` for messages about links alone.
pub(crate) fn decode_port(message: &Message<'_>) -> Option<(IfIndex, Option<Port>)> {
    if i32::from(*message.body.first()?) != libc::AF_BRIDGE {
        return None;
    }
    let dev = ifindex(message)?;
    if message.kind == libc::RTM_DELLINK {
        return Some((dev, None));
    }
    let (mut bridge, mut port) = (None, None);
    for attribute in attributes_after(message.body, IFINFOMSG) {
        match attribute.kind {
            libc::IFLA_MASTER => bridge = attribute.u32().map(IfIndex),
            libc::IFLA_PROTINFO => port = Some(attribute),
            _ => {}
        }
    }
    // The kernel reports the bridge itself, too, without these attributes.
    let (bridge, info) = (bridge?, port?);
    let mut port = Port {
        bridge,
        state: 0,
        isolated: false,
        locked: false,
    };
    for attribute in info.nested() {
        match attribute.kind {
            IFLA_BRPORT_STATE => port.state = attribute.value.first().copied()?,
            IFLA_BRPORT_ISOLATED => port.isolated = is_set(&attribute),
            IFLA_BRPORT_LOCKED => port.locked = is_set(&attribute),
            _ => {}
        }
    }
    Some((dev, Some(port)))
}

/// Decodes a station. Returns `None` for other neighbors, for addresses of the node itself, and for
/// entries of the devices' own tables.
pub(crate) fn decode_station(message: &Message<'_>) -> Option<Station> {
    let fixed = message.body.first_chunk::<NDMSG>()?;
    if i32::from(fixed[0]) != libc::AF_BRIDGE {
        return None;
    }
    let (port, state, flags) = (u32_at(fixed, 4)?, u16_at(fixed, 8)?, fixed[10]);
    let (mut mac, mut bridge, mut in_vlan, mut extended) = (None, None, false, 0);
    for attribute in attributes_after(message.body, NDMSG) {
        match attribute.kind {
            libc::NDA_LLADDR => mac = attribute.value.try_into().ok().map(Mac),
            libc::NDA_MASTER => bridge = attribute.u32().map(IfIndex),
            libc::NDA_VLAN => in_vlan = attribute.u16() != Some(0),
            NDA_FLAGS_EXT => extended = attribute.u32().unwrap_or_default(),
            _ => {}
        }
    }
    let (mac, bridge) = (mac?, bridge?);
    let is_station = message.kind == libc::RTM_NEWNEIGH
        && state & libc::NUD_PERMANENT == 0
        && extended & NTF_EXT_LOCKED == 0;
    // A bridge that has filtered VLANs before may have entries of VLANs. They are not used without
    // the filter.
    if in_vlan {
        return None;
    }
    Some(Station {
        key: (bridge, mac),
        port: is_station.then_some(IfIndex(port)),
        ages: is_station && state & libc::NUD_NOARP == 0 && flags & NTF_EXT_LEARNED == 0,
    })
}

/// Why frames must pass the bridge, by port or bridge, as found by [`read_obstacles`].
pub type Obstacles = BTreeMap<IfIndex, String>;

/// Reads what frames beside the bridges would skip although it is in use: packet filters and TC
/// filters. `own_filter` is the priority of the caller's own filters.
pub fn read_obstacles(node: &Node, own_filter: u32) -> Obstacles {
    let mut found = Obstacles::new();
    if node.bridge_ports.is_empty() {
        return found;
    }
    let bridges: BTreeSet<IfIndex> = node.bridge_ports.values().map(|it| it.bridge).collect();
    let chains = survey::chains().unwrap_or_default();
    let in_use = |chain: &&Chain| chain.rules > 0 || chain.drops;
    let of_bridges = chains
        .iter()
        .filter(in_use)
        .find(|chain| match chain.family {
            "bridge" => true,
            "ip" | "ip6" | "inet" => chain.hook != "ingress" && calls_netfilter(),
            _ => false,
        });
    let table = of_bridges.map(|chain| {
        format!(
            "nftables has rules (table {} {})",
            chain.family, chain.table
        )
    });
    let legacy = || legacy_rules().then(|| "iptables or ebtables has rules".to_owned());
    if let Some(why) = table.or_else(legacy) {
        found.extend(bridges.into_iter().map(|bridge| (bridge, why.clone())));
        return found;
    }
    let Ok(mut requester) = Requester::open(NETLINK_ROUTE) else {
        return found;
    };
    for port in node.bridge_ports.keys() {
        let name = node.links.get(port).map(|link| &link.name);
        let concerns = |chain: &&Chain| chain.devices.iter().any(|dev| Some(dev) == name);
        if let Some(chain) = chains.iter().filter(in_use).find(concerns) {
            let Chain { family, table, .. } = chain;
            found.insert(
                *port,
                format!("nftables has rules for the port (table {family} {table})"),
            );
        } else if !survey::filters(&mut requester, &[*port], own_filter).is_empty() {
            found.insert(*port, "the port has TC filters".into());
        }
    }
    found
}

/// Whether `br_netfilter` passes frames of bridges to iptables and nftables.
fn calls_netfilter() -> bool {
    let mut names = ["iptables", "ip6tables", "arptables"].iter();
    names.any(|name| {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{name}");
        fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
    })
}

/// Whether the legacy ebtables is loaded, or the legacy iptables has rules that frames pass.
fn legacy_rules() -> bool {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    let ebtables = modules.lines().any(|line| line.starts_with("ebtable_"));
    ebtables || (calls_netfilter() && !legacy::tables_in_use().is_empty())
}

/// State `forwarding` of a port (`BR_STATE_FORWARDING`).
const FORWARDING: u8 = 3;

// include/uapi/linux/if_link.h.
const IFLA_BR_AGEING_TIME: u16 = 4;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_ARPTABLES: u16 = 38;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BRPORT_LOCKED: u16 = 39;

// include/uapi/linux/neighbour.h.
const NTF_EXT_LOCKED: u32 = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn message(kind: u16, body: &Body) -> Message<'_> {
        Message {
            kind,
            flags: 0,
            sequence: 0,
            body: &body.0,
        }
    }

    fn entry(state: u16, flags: u8) -> Body {
        let mut body = use_request(IfIndex(7), Mac(MAC));
        body.0[8..10].copy_from_slice(&state.to_ne_bytes());
        body.0[10] = flags;
        body.attribute(libc::NDA_MASTER, &3u32.to_ne_bytes());
        body
    }

    fn station(body: &Body) -> Option<(Option<u32>, bool)> {
        let station = decode_station(&message(libc::RTM_NEWNEIGH, body))?;
        assert_eq!(station.key, (IfIndex(3), Mac(MAC)));
        Some((station.port.map(|port| port.0), station.ages))
    }

    #[test]
    fn a_station_ages_unless_somebody_else_owns_its_entry() {
        assert_eq!(
            station(&entry(libc::NUD_REACHABLE, 0)),
            Some((Some(7), true))
        );
        assert_eq!(station(&entry(libc::NUD_STALE, 0)), Some((Some(7), true)));
        assert_eq!(station(&entry(libc::NUD_NOARP, 0)), Some((Some(7), false)));
        let learned = entry(libc::NUD_REACHABLE, NTF_EXT_LEARNED);
        assert_eq!(station(&learned), Some((Some(7), false)));
        let gone = decode_station(&message(libc::RTM_DELNEIGH, &learned));
        assert_eq!(gone.expect("a station").port, None);
    }

    #[test]
    fn addresses_of_the_node_and_stations_without_permission_have_no_port() {
        assert_eq!(station(&entry(libc::NUD_PERMANENT, 0)), Some((None, false)));
        let mut locked = entry(libc::NUD_REACHABLE, 0);
        locked.attribute(NDA_FLAGS_EXT, &NTF_EXT_LOCKED.to_ne_bytes());
        assert_eq!(station(&locked), Some((None, false)));
    }

    #[test]
    fn entries_of_vlans_and_of_devices_are_no_stations() {
        let mut in_vlan = entry(libc::NUD_REACHABLE, 0);
        in_vlan.attribute(libc::NDA_VLAN, &9u16.to_ne_bytes());
        assert_eq!(station(&in_vlan), None);
        assert_eq!(station(&use_request(IfIndex(7), Mac(MAC))), None);
    }

    fn port(state: u8, isolated: u8) -> Body {
        let mut info = Body::default();
        info.attribute(IFLA_BRPORT_STATE, &[state])
            .attribute(IFLA_BRPORT_ISOLATED, &[isolated])
            .attribute(IFLA_BRPORT_LOCKED, &[0]);
        let mut body = ports_request();
        body.0[4..8].copy_from_slice(&7u32.to_ne_bytes());
        body.attribute(libc::IFLA_MASTER, &3u32.to_ne_bytes())
            .nest(libc::IFLA_PROTINFO, &info);
        body
    }

    #[test]
    fn frames_pass_the_bridge_while_a_port_does_not_forward() {
        let of = |body: &Body| {
            let found = decode_port(&message(libc::RTM_NEWLINK, body));
            let (dev, port) = found.expect("a port");
            assert_eq!(dev, IfIndex(7));
            port.expect("a port of a bridge")
        };
        let up = Settings::default();
        let forwarding = of(&port(FORWARDING, 1)).port(Some(&up), None);
        assert_eq!((forwarding.obstacle, forwarding.isolated), (None, true));
        let listening = of(&port(1, 0)).port(Some(&up), None).obstacle;
        assert_eq!(listening.as_deref(), Some("the port is listening"));
        let down = of(&port(FORWARDING, 0)).port(None, None).obstacle;
        assert_eq!(down.as_deref(), Some("the bridge is down"));
        let filtering = Settings {
            filters_vlans: true,
            ..up
        };
        let filtering = of(&port(FORWARDING, 0)).port(Some(&filtering), None);
        assert_eq!(
            filtering.obstacle.as_deref(),
            Some("the bridge filters VLANs")
        );
        let left = port(FORWARDING, 0);
        let left = decode_port(&message(libc::RTM_DELLINK, &left));
        assert_eq!(left, Some((IfIndex(7), None)));
    }
}
