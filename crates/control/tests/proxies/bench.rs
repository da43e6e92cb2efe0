//! A random node with proxies, in the packet path and in the model.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use sidestep_control::compile::Compiled;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::config;
use sidestep_model::node::Node;
use sidestep_testkit::differential::headers::{Srh, proto, srh};
use sidestep_testkit::random::Random;

use crate::common;
use crate::model::{Answer, Kind, Model, Port, Proxy};

/// Number of ports. eth0 and eth1 belong to the network, two ports per behavior to services, and
/// the last two to a service for frames.
pub const PORTS: usize = 10;
/// Source and next hop of packets.
pub const NETWORK: [usize; 2] = [0, 1];
const MTU: usize = 1500;

/// Returns the node file.
fn text(routes: &[String]) -> String {
    let ports = (0..PORTS).map(|port| {
        format!(
            "  eth{port}: {{mac: \"02:00:00:00:00:0{port}\", addresses: [\"fc0{port}::2/64\", \"10.{port}.0.2/24\"], \
             mtu: {MTU}, seg6_enabled: true}}\n"
        )
    });
    let neighbors = (0..PORTS).map(|port| {
        format!(
            "- \"fc0{port}::1 lladdr 02:00:00:00:00:1{port} dev eth{port}\"\n\
             - \"10.{port}.0.1 lladdr 02:00:00:00:00:1{port} dev eth{port}\"\n"
        )
    });
    let onward = [
        "fc0a::/16 via fc01::1 dev eth1",
        "2001:db8:a::/48 via fc01::1 dev eth1",
        "198.51.100.0/24 via 10.1.0.1 dev eth1",
    ];
    let routes = onward.into_iter().chain(routes.iter().map(String::as_str));
    let routes = routes.map(|route| format!("- \"{route}\"\n"));
    let head = |key: &str| std::iter::once(format!("{key}:\n"));
    let ports = head("ports").chain(ports);
    let neighbors = head("neighbors").chain(neighbors);
    ports
        .chain(neighbors)
        .chain(head("routes"))
        .chain(routes)
        .collect()
}

/// Returns the node of a node file, and its tables. All of its routes are Sidestep-only.
pub fn built(text: &str) -> (Node, Compiled) {
    let file = config::File::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let node = file
        .node()
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let compiled = common::compile(&node);
    assert_eq!(compiled.index.unsupported.values().next(), None, "{text}");
    (node, compiled)
}

/// A node with these routes in addition to the forwarding routes.
pub fn with(routes: &[String]) -> (String, Node, Compiled) {
    let text = text(routes);
    let (node, compiled) = built(&text);
    (text, node, compiled)
}

fn ports() -> Vec<Port> {
    let address = |text: String| -> IpAddr { text.parse().expect("an address") };
    let port = |port: usize| Port {
        mac: [2, 0, 0, 0, 0, port as u8],
        peer_mac: [2, 0, 0, 0, 0, 0x10 + port as u8],
        peers: vec![
            address(format!("fc0{port}::1")),
            address(format!("10.{port}.0.1")),
        ],
        own: vec![
            (address(format!("fc0{port}::2")), 8),
            (address(format!("10.{port}.0.2")), 3),
        ],
        mtu: MTU,
    };
    (0..PORTS).map(port).collect()
}

/// Returns proxies: End.AS, End.AD with and without an age, per flow with two SIDs, End.AM with and
/// without NAT, for IPv6 and IPv4, with one interface or two; and End.AS or End.AD for frames.
fn proxies(random: &mut Random) -> (Vec<String>, Vec<Proxy>) {
    let (mut words, mut proxies) = (Vec::new(), Vec::new());
    // Proxies that share a port have equal flows and age.
    let by_flow = random.one_in(2).then(|| *random.pick(&[0, 0, 1, 5]));
    let of_frames = *random.pick(&["AS", "AD"]);
    for (behavior, function, first, inners) in [
        ("AS", "a5", 2, &[proto::IPV6, proto::IPV4][..]),
        ("AD", "ad", 4, &[proto::IPV6, proto::IPV4]),
        ("AM", "a3", 6, &[proto::IPV6]),
        (of_frames, "a2", 8, &[proto::ETHERNET]),
    ] {
        let turned = random.below(2);
        let iface_out = first + turned;
        let iface_in = if random.one_in(2) {
            iface_out
        } else {
            first + 1 - turned
        };
        for &inner in inners {
            let service = match inner {
                proto::IPV6 => format!("nh6 fc0{iface_out}::1"),
                proto::IPV4 => format!("nh4 10.{iface_out}.0.1"),
                _ => "inner l2".into(),
            };
            let age = by_flow.filter(|_| first == 4);
            // Two SIDs of one service share its returned packets.
            let twice = age.is_some() && inner == proto::IPV6;
            for function in [function, "ae"].into_iter().take(1 + usize::from(twice)) {
                let sid: Ipv6Addr = format!("fc0f::{function}{:02}", inner % 100)
                    .parse()
                    .expect("a SID");
                let (more, kind) = match age {
                    Some(age) => (format!(" flows age {age}"), Kind::ByFlow(age)),
                    None => parts(behavior, inner, random),
                };
                words.push(format!(
                    "{sid}/128 encap seg6local action End.{behavior} oif eth{iface_out} iif eth{iface_in} {service}{more} \
                     dev eth{iface_out}"
                ));
                proxies.push(Proxy {
                    sid,
                    inner,
                    iface_out,
                    iface_in,
                    kind,
                });
            }
        }
    }
    (words, proxies)
}

/// Returns the behavior-specific arguments, and the kind in the model.
fn parts(behavior: &str, inner: u8, random: &mut Random) -> (String, Kind) {
    match behavior {
        "AS" => {
            let count = random.between(1, 5);
            let segments: Vec<Ipv6Addr> = (0..count)
                .map(|_| {
                    format!("fc0a::{:x}", random.between(1, 0xffff))
                        .parse()
                        .expect("a segment")
                })
                .collect();
            let source: Ipv6Addr = format!("fc0e::{:x}", random.between(1, 99))
                .parse()
                .expect("an address");
            let list: Vec<String> = segments.iter().map(ToString::to_string).collect();
            let words = format!(" segs {} src {source}", list.join(","));
            (
                words,
                Kind::Static(static_headers(source, &segments, inner)),
            )
        }
        "AD" => {
            let age = *random.pick(&[0, 0, 1, 5]);
            (format!(" age {age}"), Kind::Dynamic(age, None))
        }
        _ => {
            let nat = random.one_in(2);
            let words = if nat { " flavors nat" } else { "" };
            (words.into(), Kind::Masquerading(nat))
        }
    }
}

/// RFC 8986 5.1: returns an outer header to the first segment, and an SRH with the segments, the
/// last one first.
fn static_headers(source: Ipv6Addr, segments: &[Ipv6Addr], inner: u8) -> Vec<u8> {
    let routing = Srh {
        list: segments.iter().rev().copied().collect(),
        segments_left: segments.len() as u8 - 1,
        flags: 0,
        tag: 0,
        tlvs: Vec::new(),
    };
    let fixed = [0x60, 0, 0, 0, 0, 0, proto::ROUTING, 64];
    let addresses = [source.octets(), segments[0].octets()].concat();
    [&fixed[..], &addresses, &srh(&routing, inner, &[])].concat()
}

/// The packet path and the model in the same state.
pub struct Bench {
    pub text: String,
    pub node: Node,
    compiled: Compiled,
    taught: Model,
    pub model: Model,
    native: Native,
}

impl Bench {
    pub fn random(random: &mut Random) -> Self {
        let (words, proxies) = proxies(random);
        let (text, node, compiled) = with(&words);
        let prefix = |octets: &[u8]| (octets.to_vec(), 1);
        let model = Model {
            ports: ports(),
            proxies,
            flows: BTreeMap::new(),
            routes: vec![
                prefix(&[0xfc, 0x0a]),
                prefix(&[0x20, 0x01, 0x0d, 0xb8, 0, 0x0a]),
                prefix(&[198, 51, 100]),
            ],
            now: 0,
        };
        Self {
            native: Native::new(&compiled.image),
            taught: model.clone(),
            text,
            node,
            compiled,
            model,
        }
    }

    /// Restores the state before the first packet.
    pub fn forget(&mut self) {
        self.native = Native::new(&self.compiled.image);
        self.model = self.taught.clone();
    }

    /// Returns the results of the packet path and of the model for one frame at this time, and
    /// whether they agree.
    pub fn ask(&mut self, now: u64, port: usize, frame: &[u8]) -> (Answer, Answer, bool) {
        self.model.now = now;
        self.native.set_now(now);
        let mut expected = self.model.receive(port, frame);
        let verdict = self.native.run(self.ifindex(port), frame);
        let found = match verdict {
            Verdict::Forward { ifindex } => Answer::Forward {
                port: (0..PORTS)
                    .find(|port| self.ifindex(*port) == ifindex)
                    .expect("a port"),
                frame: self.native.frame().to_vec(),
                label: false,
            },
            Verdict::Drop(reason) => Answer::Drop(reason.name),
            Verdict::Punt(reason) => {
                let left = self.native.frame();
                Answer::Kernel(reason.name, (left != frame).then(|| left.to_vec()), false)
            }
        };
        if let Answer::Kernel(_, changed, _) = &mut expected {
            changed.take_if(|changed| changed == frame);
        }
        let of_a_frame = match (&mut expected, &found) {
            (Answer::Forward { frame, label, .. }, Answer::Forward { frame: sent, .. })
            | (Answer::Kernel(_, Some(frame), label), Answer::Kernel(_, Some(sent), _)) => {
                std::mem::take(label).then_some((frame, sent))
            }
            _ => None,
        };
        if let Some((frame, sent)) = of_a_frame {
            // The packet path may choose any flow label of 20 bits.
            frame[15] = frame[15] & 0xf0 | sent[15] & 0x0f;
            frame[16..18].copy_from_slice(&sent[16..18]);
        }
        let agree = expected == found || same_fault(&expected, &found);
        (found, expected, agree)
    }

    pub fn ifindex(&self, port: usize) -> u32 {
        let link = self.node.link_by_name(&format!("eth{port}"));
        link.expect("a port").ifindex.0
    }
}

/// Returns whether both results drop the packet for reasons that both apply.
fn same_fault(expected: &Answer, found: &Answer) -> bool {
    let (Answer::Drop(expected), Answer::Drop(found)) = (expected, found) else {
        return false;
    };
    // If there are two errors, either may be reported. For a truncated header, the padding of the
    // link can determine which one.
    *expected == "hop_limit" || (*expected, *found) == ("ext_header", "srh_length")
}
