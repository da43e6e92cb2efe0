//! Checks of the ports and of the interfaces that packets leave by.

use std::collections::BTreeMap;

use sidestep_datapath::abi::SIDESTEP_POLICY_ENCAPS_L2;
use sidestep_datapath::kernel::Target;
use sidestep_mirror::survey::GSO_LEGACY_MAX_SIZE;
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::node::{IfIndex, Link, LinkKind};
use sidestep_model::source::{CandidateState, SourceCandidate};
use sidestep_wire::Ethernet;

use super::facts::{Facts, Port};
use super::{Code, Family};
use crate::compile::Compiled;
use crate::report::Problem;

const NO_PORTS: Code = Code::note("no_ports", "no port is attached or named");
const PORT_MISSING: Code = Code::error("port_missing", "the interface of a port does not exist");
const PORT_NOT_ATTACHED: Code =
    Code::error("port_not_attached", "an existing port cannot be attached");
const FOREIGN_XDP: Code = Code::error("foreign_xdp", "another XDP program is on a port");
const PORT_DOWN: Code = Code::error("port_down", "a port is down");
const NO_CARRIER: Code = Code::error(
    "no_carrier",
    "a port is up and has no carrier: the cable, or the other end of the veth, is down",
);
const XDP_ON_VETH: Code = Code::note(
    "xdp_on_veth",
    "a veth or tap port runs XDP, as `--mode xdp-always` asks: its senders must complete checksums \
     and segmentation",
);
const NO_XDP_TRANSMIT: Code = Code::note(
    "no_xdp_transmit",
    "a port runs XDP, and an egress does not take XDP redirects: TC sends the packets, more slowly",
);
const MTU_BELOW_1280: Code = Code::error(
    "mtu_below_1280",
    "the MTU of an egress leaves less than 1280 bytes for the encapsulated packet",
);
const MTU_WITHOUT_IPV6: Code = Code::error(
    "mtu_without_ipv6",
    "the MTU of a port is below 1280: Linux removes IPv6 and its addresses from the interface",
);
const MTU_HEADROOM: Code = Code::note(
    "mtu_headroom",
    "full-size packets of a port do not fit the egress after the encapsulation",
);

const BIG_TCP: Code = Code::warning(
    "big_tcp",
    "a port has packets of more than 64 KiB (BIG TCP): Linux forwards them, slowly",
);
const XDP_HEADROOM: Code = Code::note(
    "xdp_headroom",
    "a port runs XDP, and a segment list has more bytes than its headroom: TC sends these packets, \
     more slowly",
);
const PORT_WITHOUT_ADDRESS: Code = Code::warning(
    "port_without_address",
    "a port has no IPv6 address, or only such with a lifetime: without one, Linux neither resolves \
     neighbors nor sends ICMP there",
);

pub(super) const FAMILY: Family = Family {
    codes: &[
        NO_PORTS,
        PORT_MISSING,
        PORT_NOT_ATTACHED,
        FOREIGN_XDP,
        PORT_DOWN,
        NO_CARRIER,
        XDP_ON_VETH,
        NO_XDP_TRANSMIT,
        MTU_BELOW_1280,
        MTU_WITHOUT_IPV6,
        MTU_HEADROOM,
        BIG_TCP,
        XDP_HEADROOM,
        PORT_WITHOUT_ADDRESS,
    ],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let mut found: Vec<_> = facts
        .ports
        .iter()
        .filter_map(|port| missing(facts, port))
        .collect();
    if facts.ports.is_empty() {
        found.push(match facts.daemon {
            Some(_) => NO_PORTS.problem(
                "the daemon has no ports: Linux forwards all packets",
                "sidestep port add INTERFACE",
            ),
            None => NO_PORTS.problem(
                "no port is named: only checks of the host were made",
                "sidestep doctor --help",
            ),
        });
    }
    for (port, link) in facts.links() {
        found.extend(attachment(facts, port, link));
        found.extend(state(facts, link));
        found.extend(xdp_on_veth(facts, port, link));
        found.extend(big_tcp(facts, link));
    }
    for (_, link) in facts.routed() {
        found.extend(without_ipv6(link));
        found.extend(without_address(facts, link));
    }
    if facts.has_xdp() {
        found.extend(
            facts
                .egresses()
                .filter_map(|link| xdp_transmit(facts, link)),
        );
    }
    found.extend(headroom(facts));
    found.extend(mtu(facts));
    found
}

fn missing(facts: &Facts<'_>, port: &Port) -> Option<Problem> {
    let is_there = facts.node.link_by_name(&port.name).is_some();
    let sentence = format!(
        "port {}: there is no such interface; Sidestep attaches to it when it appears",
        port.name
    );
    (!is_there).then(|| PORT_MISSING.without_command(sentence))
}

fn attachment(facts: &Facts<'_>, port: &Port, link: &Link) -> Option<Problem> {
    let xdp = facts.survey.devices.get(&link.ifindex)?.xdp;
    let is_attached = facts.daemon.is_none() || port.target.is_some();
    let is_ours = is_attached && (facts.host.is_alive || facts.host.left.is_some());
    let tc = port.target == Some(Target::Tc) && port.refused.is_none();
    if let Some(id) = xdp.filter(|_| !is_ours && !tc) {
        return Some(FOREIGN_XDP.problem(
            format!(
                "port {}: another XDP program, id {id}, is attached",
                port.name
            ),
            format!("ip link set dev {} xdp off", port.name),
        ));
    }
    let why = port.refused.as_ref()?;
    Some(PORT_NOT_ATTACHED.without_command(format!("port {} is not attached: {why}", port.name)))
}

fn state(facts: &Facts<'_>, link: &Link) -> Option<Problem> {
    let device = facts.survey.devices.get(&link.ifindex)?;
    if !device.up {
        return Some(PORT_DOWN.problem(
            format!("port {} is down", link.name),
            format!("ip link set dev {} up", link.name),
        ));
    }
    (!device.carrier)
        .then(|| NO_CARRIER.without_command(format!("port {} has no carrier", link.name)))
}

/// The packet path has no jumbo payload option, which the kernel gives these packets.
fn big_tcp(facts: &Facts<'_>, link: &Link) -> Option<Problem> {
    let sizes = &facts.survey.devices.get(&link.ifindex)?.big_sizes;
    let largest = sizes.iter().map(|(_, size)| size).max()?;
    let name = &link.name;
    let repair = sizes
        .iter()
        .map(|(size, _)| format!(" {size} {GSO_LEGACY_MAX_SIZE}"));
    Some(BIG_TCP.problem(
        format!(
            "{name} has packets of up to {largest} bytes (BIG TCP): Linux forwards those above 64 KiB, \
             slowly"
        ),
        format!("ip link set dev {name}{}", repair.collect::<String>()),
    ))
}

/// Segment lists that XDP leaves to TC.
fn headroom(facts: &Facts<'_>) -> Option<Problem> {
    let Compiled { image, index } = facts.compiled;
    let lengths = image
        .policies
        .iter()
        .map(|(id, record)| (record.length, id));
    let (length, id) = lengths.max()?;
    let encap = &index.policies.get(id)?.encap;
    (facts.has_xdp() && u32::from(length) > XDP_HEADROOM_MAX).then(|| {
        XDP_HEADROOM.problem(
            format!(
                "{} with {} segments adds {length} bytes, and XDP has room for {XDP_HEADROOM_MAX}: \
                 TC sends these packets, more slowly",
                encap.mode.descriptor().name,
                encap.segments.len()
            ),
            facts.restart("--mode tc"),
        )
    })
}

/// A link has a link-local address for good, unless `addrgenmode` is `none` or it was removed.
fn without_address(facts: &Facts<'_>, link: &Link) -> Option<Problem> {
    let is_lasting = |it: &SourceCandidate| it.permanent && it.state != CandidateState::Tentative;
    let candidates = facts.node.sources.get(&link.ifindex);
    let mut candidates = candidates.into_iter().flatten();
    let has_ipv6 = !link.ipv6_disabled && link.mtu >= IPV6_MTU_MIN && link.up;
    (has_ipv6 && !candidates.any(is_lasting)).then(|| {
        PORT_WITHOUT_ADDRESS.problem(
            format!(
                "{} has no IPv6 address without a lifetime: without an address, Linux neither \
                 resolves neighbors nor sends ICMP there",
                link.name
            ),
            // Linux generates the link-local address again after a change.
            [1, 0]
                .map(|mode| {
                    let key = super::sysctl("ipv6", &link.name, "addr_gen_mode");
                    format!("sysctl -w {key}={mode}")
                })
                .join(" && "),
        )
    })
}

/// Bytes that XDP can add in front of a frame: `XDP_PACKET_HEADROOM` without `struct xdp_frame`.
const XDP_HEADROOM_MAX: u32 = 256 - 40;

/// See `addrconf_notify` of Linux.
fn without_ipv6(link: &Link) -> Option<Problem> {
    (link.mtu < IPV6_MTU_MIN).then(|| {
        MTU_WITHOUT_IPV6.problem(
            format!(
                "port {} has an MTU of {}: below {IPV6_MTU_MIN}, Linux removes IPv6 and its \
                 addresses from an interface",
                link.name, link.mtu
            ),
            format!("ip link set dev {} mtu {IPV6_MTU_MIN}", link.name),
        )
    })
}

fn xdp_on_veth(facts: &Facts<'_>, port: &Port, link: &Link) -> Option<Problem> {
    let kind = match link.kind {
        LinkKind::Veth => "veth",
        LinkKind::Tap => "tap",
        _ => return None,
    };
    port.is_xdp().then(|| {
        XDP_ON_VETH.problem(
            format!(
                "port {} runs XDP on a {kind}, as --mode xdp-always asks: its senders must complete \
                 checksums and segmentation",
                port.name
            ),
            facts.restart("--mode auto"),
        )
    })
}

fn xdp_transmit(facts: &Facts<'_>, link: &Link) -> Option<Problem> {
    (!link.xdp_transmit && link.kind != LinkKind::Loopback).then(|| {
        NO_XDP_TRANSMIT.problem(
            format!(
                "{} takes no XDP redirects: TC sends the packets of XDP ports that leave by it, more \
                 slowly than XDP or a port in TC",
                link.name
            ),
            facts.restart("--mode tc"),
        )
    })
}

/// MTUs beside the bytes that headends add.
fn mtu(facts: &Facts<'_>) -> Vec<Problem> {
    let Compiled { image, index } = facts.compiled;
    // The largest encapsulation by each egress, in bytes.
    let mut added: BTreeMap<IfIndex, (u32, &Seg6Encap)> = BTreeMap::new();
    for (id, policy) in &index.policies {
        let Some(record) = image.policies.get(id) else {
            continue;
        };
        let Some(egress) = index.adjacencies.get(&record.adjacency) else {
            continue;
        };
        let frame = u32::from(record.kind) == SIDESTEP_POLICY_ENCAPS_L2;
        if frame && facts.node.is_of_ether(&policy.encap) {
            // Its MTU takes the encapsulation into account.
            continue;
        }
        let ethernet = if frame { Ethernet::LENGTH as u32 } else { 0 };
        let bytes = u32::from(record.length) + ethernet;
        let entry = added.entry(egress.ifindex).or_insert((0, &policy.encap));
        if bytes > entry.0 {
            *entry = (bytes, &policy.encap);
        }
    }
    let egress = |(dev, (bytes, encap))| {
        let ingress = facts.links().filter(|(_, link)| link.ifindex != dev);
        let largest = ingress.map(|(_, link)| link.mtu).max().unwrap_or(0);
        path_mtu(facts.node.links.get(&dev)?, bytes, encap, largest)
    };
    added.into_iter().filter_map(egress).collect()
}

fn path_mtu(link: &Link, bytes: u32, encap: &Seg6Encap, largest: u32) -> Option<Problem> {
    let left = link.mtu.saturating_sub(bytes);
    let name = encap.mode.descriptor().name;
    let command = |mtu: u32| format!("ip link set dev {} mtu {mtu}", link.name);
    if left < IPV6_MTU_MIN {
        return Some(MTU_BELOW_1280.problem(
            format!(
                "{} has an MTU of {}: {name} leaves {left} bytes for the packet, and IPv6 needs \
                 {IPV6_MTU_MIN} (RFC 8200 5)",
                link.name, link.mtu
            ),
            command(IPV6_MTU_MIN + bytes),
        ));
    }
    (left < largest).then(|| {
        MTU_HEADROOM.problem(
            format!(
                "{} has an MTU of {}: {name} leaves {left} bytes for the packet, and senders learn \
                 this path MTU from ICMP",
                link.name, link.mtu
            ),
            command(largest + bytes),
        )
    })
}

/// RFC 8200 5: every link has at least this MTU.
pub(super) const IPV6_MTU_MIN: u32 = 1280;
