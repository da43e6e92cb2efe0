//! The end of a packet at the kernel: what leaves, an ICMP error, local delivery, or a drop.
//!
//! The namespace gets a default route for packets that it sends by itself, so that ICMP errors reach every sender, and
//! unresolved next hops are resolved as soon as the kernel solicits them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use sidestep_wire::{Header, Headers};

use super::{Output, SUT, Sut};
use crate::Error;
use crate::frames::{Noise, noise};
use crate::vectors::Node;

/// The end of one frame at the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// These frames left.
    Forward(Sent),
    /// The node sent an ICMP error about the packet.
    Icmp {
        /// ICMP type and code.
        message: (u8, u8),
        /// The frames of the message.
        #[serde(flatten)]
        sent: Sent,
    },
    /// The node sent an ICMP error to one of its own addresses: that of the outer header that it added.
    IcmpToItself {
        /// As for a drop.
        counters: Vec<String>,
    },
    /// The node processed the packet itself. The frames are its reply.
    Local(Sent),
    /// Nothing left. Kernel counters that rose name the cause.
    Drop {
        /// As in `/proc/net/snmp6`, `/proc/net/snmp` and `/proc/net/netstat`.
        counters: Vec<String>,
    },
}

/// Frames with their ports, and the next hops that the kernel resolved first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Port, and frame in hexadecimal digits. Values that the kernel chooses at random are `x`.
    #[serde(default)]
    pub frames: Vec<(String, String)>,
    /// Addresses that it solicited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolves: Vec<IpAddr>,
}

impl Sut {
    /// Prepares a node for [`Self::end`].
    ///
    /// # Errors
    /// `ip` or the kernel refuses.
    pub fn reach_senders(&self, node: &Node) -> Result<(), Error> {
        let namespace = self.namespace()?;
        // Not icmp_ratelimit: with 0, Linux 6.1 empties the bucket that `ip_error` uses, too.
        for (path, value) in [
            ("net/ipv6/icmp/ratelimit", "0"),
            ("net/ipv4/icmp_ratemask", "0"),
        ] {
            namespace.sysctl(path, value)?;
        }
        let first = &self.ports[0].name;
        // Without a link-local address the kernel solicits no neighbor for a packet that it forwards.
        for (number, port) in self.ports.iter().enumerate() {
            let line = format!(
                "ip address add fe80::5353:{number}/64 dev {} nodad",
                port.name
            );
            namespace.exec(&line.split_whitespace().collect::<Vec<_>>())?;
        }
        // A reverse path filter looks up sources as the node itself does.
        let filtered = node
            .ports
            .iter()
            .any(|(_, port)| port.rp_filter.unwrap_or(0) != 0);
        for family in ["-6", "-4"] {
            if family == "-4" && filtered {
                continue;
            }
            let is_of = |line: &&String| line.contains('.') == (family == "-4");
            let neighbor = node
                .neighbors
                .iter()
                .find(is_of)
                .map(|line| line.split_whitespace());
            let hop = neighbor.map_or_else(
                || format!("dev {first}"),
                |mut words| {
                    let (via, dev) = (words.next(), words.skip_while(|word| *word != "dev").nth(1));
                    format!(
                        "via {} dev {}",
                        via.unwrap_or_default(),
                        dev.unwrap_or(first)
                    )
                },
            );
            for line in [
                format!("ip {family} route add default {hop} table {SENDERS}"),
                format!("ip {family} rule add pref {SENDERS} iif lo lookup {SENDERS}"),
            ] {
                namespace.exec(&line.split_whitespace().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Sends a frame into a port and follows it to its end. The calling thread has to stay on one CPU.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn end(&self, port: &str, frame: &[u8]) -> Result<End, Error> {
        let before = self.counters()?;
        let mut resolved: Vec<(String, IpAddr)> = Vec::new();
        let mut found = self.sorted(self.frames_after(port, Some(frame))?, &mut resolved);
        let mut answered = 0;
        while answered < resolved.len() {
            for (port, address) in &resolved[answered..] {
                self.neighbor(
                    "replace",
                    &format!("{address} lladdr {ANSWERED} dev {port} nud reachable"),
                )?;
            }
            answered = resolved.len();
            found.extend(self.sorted(self.frames_after(port, None)?, &mut resolved));
        }
        let after = self.counters()?;
        for (port, address) in &resolved {
            self.neighbor("del", &format!("{address} dev {port}"))?;
        }
        let rose: Vec<String> = after
            .into_iter()
            .filter(|(name, value)| before.get(name) != Some(value))
            .map(|(name, _)| name)
            .collect();
        let addresses = resolved.into_iter().map(|(_, address)| address).collect();
        Ok(classify(&found, addresses, rose))
    }

    fn neighbor(&self, command: &str, words: &str) -> Result<(), Error> {
        let line = format!("ip neighbor {command} {words}");
        self.namespace()?
            .exec(&line.split_whitespace().collect::<Vec<_>>())?;
        Ok(())
    }

    /// The frames that are a result of the packet. Solicitations go to `resolved` instead.
    fn sorted(&self, outputs: Vec<Output>, resolved: &mut Vec<(String, IpAddr)>) -> Vec<Output> {
        let mut kept = Vec::new();
        for (port, frame) in outputs {
            let own = self
                .ports
                .iter()
                .any(|known| known.name == port && frame.get(6..12) == Some(&known.mac));
            let target = solicited(&frame).filter(|_| own);
            match target {
                Some(address) if !resolved.iter().any(|(_, known)| *known == address) => {
                    resolved.push((port, address));
                }
                Some(_) => {}
                // Discovery of its own, except for advertisements and ARP replies, and listener reports.
                None if own && noise(&frame).is_some() && !is_answer(&frame) => {}
                None => kept.push((port, frame)),
            }
        }
        kept
    }

    /// The kernel's counters that a single packet can raise, and that its sender could not.
    fn counters(&self) -> Result<BTreeMap<String, u64>, Error> {
        let mut all = self.lab.namespace(SUT)?.counters()?;
        all.retain(|name, _| {
            COUNTERS.iter().any(|end| name.ends_with(end)) && !name.starts_with("Udp")
        });
        Ok(all)
    }
}

fn classify(found: &[Output], resolves: Vec<IpAddr>, rose: Vec<String>) -> End {
    let any = |names: &[&str]| {
        rose.iter()
            .any(|name| names.iter().any(|end| name.ends_with(end)))
    };
    let sent_error = any(&ERRORS);
    let error = found
        .iter()
        .find_map(|(_, frame)| icmp_error(frame))
        .filter(|_| sent_error);
    let delivered = any(&["InDelivers"]);
    let by_node = delivered || error.is_some();
    let frames = found
        .iter()
        .map(|(port, frame)| (port.clone(), text(frame, by_node)))
        .collect();
    let sent = Sent { frames, resolves };
    let is_arp =
        |(_, frame): &Output| matches!(noise(frame), Some(Noise::Arp | Noise::NeighborDiscovery));
    match error {
        Some(message) => End::Icmp { message, sent },
        None if sent_error => End::IcmpToItself { counters: rose },
        None if delivered || found.iter().any(is_arp) => End::Local(sent),
        None if !found.is_empty() => End::Forward(sent),
        None => End::Drop { counters: rose },
    }
}

/// Hexadecimal digits of a frame. Random fields of a packet from the node itself become `x`: the IPv4
/// identification, with it the header checksum, and the IPv6 flow label.
fn text(frame: &[u8], by_node: bool) -> String {
    let mut digits = String::new();
    for byte in frame {
        let _ = write!(digits, "{byte:02x}");
    }
    let masks: &[(usize, usize)] = match frame.get(12..14) {
        Some([0x08, 0x00]) => &[(36, 40), (48, 52)],
        Some([0x86, 0xdd]) => &[(31, 36)],
        _ => &[],
    };
    for (from, to) in masks.iter().filter(|_| by_node) {
        if *to <= digits.len() {
            digits.replace_range(from..to, &"x".repeat(to - from));
        }
    }
    digits
}

/// Type and code of an ICMP error.
fn icmp_error(frame: &[u8]) -> Option<(u8, u8)> {
    let mut layers = Headers::frame(frame)
        .ignore_lengths()
        .map(|layer| layer.header);
    match (layers.next()?, layers.next()?, layers.next()?) {
        (Header::Ethernet(_), Header::Ipv6(_), Header::Icmpv6(message)) if message.kind() < 128 => {
            Some((message.kind(), message.code()))
        }
        (Header::Ethernet(_), Header::Ipv4(_), Header::Icmpv4(message))
            if matches!(message.kind(), 3 | 5 | 11 | 12) =>
        {
            Some((message.kind(), message.code()))
        }
        _ => None,
    }
}

/// The address that a neighbor solicitation or an ARP request asks for. Duplicate address detection asks for none.
fn solicited(frame: &[u8]) -> Option<IpAddr> {
    let bytes = |from: usize, length: usize| frame.get(from..from + length);
    match u16::from_be_bytes(bytes(12, 2)?.try_into().ok()?) {
        0x0806 if bytes(20, 2)? == [0, 1] => {
            let address: [u8; 4] = bytes(38, 4)?.try_into().ok()?;
            Some(IpAddr::from(Ipv4Addr::from(address)))
        }
        0x86dd if bytes(20, 1)? == [58] && bytes(54, 1)? == [135] && bytes(22, 16)? != [0; 16] => {
            let address: [u8; 16] = bytes(62, 16)?.try_into().ok()?;
            Some(IpAddr::from(Ipv6Addr::from(address)))
        }
        _ => None,
    }
}

/// A neighbor advertisement or an ARP reply.
fn is_answer(frame: &[u8]) -> bool {
    match noise(frame) {
        Some(Noise::Arp) => frame.get(20..22) == Some(&[0, 2]),
        Some(Noise::NeighborDiscovery) => frame.get(54) == Some(&136),
        _ => false,
    }
}

/// Priority of the rule and number of the table for packets of the node itself.
const SENDERS: u32 = 40_000;

/// Ethernet address of next hops that the kernel had to resolve.
const ANSWERED: &str = "02:00:00:00:00:aa";

/// Counters of ICMP errors that the node sent.
const ERRORS: [&str; 6] = [
    "OutDestUnreachs",
    "OutPktTooBigs",
    "OutTimeExcds",
    "OutParmProblems",
    "OutParmProbs",
    "OutRedirects",
];

/// Ends of the names of all counters that are recorded.
const COUNTERS: [&str; 18] = [
    "InHdrErrors",
    "InTooBigErrors",
    "InNoRoutes",
    "InAddrErrors",
    "InUnknownProtos",
    "InTruncatedPkts",
    "InDiscards",
    "InDelivers",
    "OutDiscards",
    "OutNoRoutes",
    "FragFails",
    "ReasmReqds",
    "OutDestUnreachs",
    "OutPktTooBigs",
    "OutTimeExcds",
    "OutParmProblems",
    "OutParmProbs",
    "IPReversePathFilter",
];
