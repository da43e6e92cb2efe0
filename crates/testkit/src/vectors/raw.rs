//! The vector file as written. The parent module holds the parsed types.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::{Answer, Case, Counters, Expect, Linux, Node, OamCopy, Port};
use crate::lab::mac_of;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    pub(super) format: u32,
    pub(super) group: String,
    pub(super) about: String,
    pub(super) node: Node,
    pub(super) cases: Vec<RawCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCase {
    pub(super) name: String,
    #[serde(default)]
    about: Option<String>,
    #[serde(default)]
    rfc: Vec<String>,
    #[serde(default)]
    earlier: Vec<RawFrame>,
    #[serde(rename = "in")]
    input: RawFrame,
    expect: RawExpect,
    #[serde(default)]
    answer: Option<RawAnswer>,
    #[serde(default)]
    copies: Option<Vec<OamCopy>>,
    #[serde(default)]
    fragments: Vec<RawFrame>,
    linux: RawLinux,
    #[serde(default)]
    counters: Option<Counters>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFrame {
    port: String,
    #[serde(deserialize_with = "hex")]
    frame: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawExpect {
    Forward(RawFrame),
    Drop(String),
    Kernel(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawAnswer {
    Word(String),
    Message(RawMessage),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMessage {
    to: IpAddr,
    #[serde(default)]
    from: Option<Ipv6Addr>,
    #[serde(deserialize_with = "hex")]
    message: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawLinux {
    Word(String),
    Differs(RawDiffers),
    OneOf(RawOneOf),
    Skip(RawSkip),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSkip {
    skip: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDiffers {
    differs: RawOutcome,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOneOf {
    one_of: Vec<RawFrame>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawOutcome {
    Word(String),
    Forward(RawForward),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForward {
    forward: RawFrame,
}

impl RawCase {
    pub(super) fn check(self, node: &Node) -> Result<Case, String> {
        let port_of = |RawFrame { port, frame }: RawFrame| {
            let known = node.ports.iter().any(|(name, _)| *name == port);
            if known {
                Ok((port, frame))
            } else {
                Err(format!("no port {port} in this node"))
            }
        };
        if let Some((name, _)) = node
            .ports
            .iter()
            .find(|(_, port)| port.mac.is_none() && port.vlan.is_none())
        {
            return Err(format!("port {name} has no mac"));
        }
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.name.is_empty() || !self.name.chars().all(lower) {
            return Err("a name may contain lower-case letters, digits and `_`".into());
        }
        let (port, frame) = port_of(self.input)?;
        let frames = |all: Vec<RawFrame>| all.into_iter().map(port_of).collect();
        let earlier: Result<_, String> = frames(self.earlier);
        let fragments: Result<_, String> = frames(self.fragments);
        let (earlier, fragments) = (earlier?, fragments?);
        let expect = match self.expect {
            RawExpect::Forward(frame) => {
                port_of(frame).map(|(port, frame)| Expect::Forward { port, frame })?
            }
            RawExpect::Drop(reason) => Expect::Drop(reason),
            RawExpect::Kernel(reason) => Expect::Kernel(reason),
        };
        let answer = match self.answer {
            None => None,
            Some(RawAnswer::Word(word)) if word == "none" => Some(Answer::Silence),
            Some(RawAnswer::Word(word)) => {
                return Err(format!("answer: {word}; allowed are none, {{to, message}}"));
            }
            Some(RawAnswer::Message(RawMessage { to, from, message })) => {
                Some(Answer::Message { to, from, message })
            }
        };
        let linux = match self.linux {
            RawLinux::Word(word) if word == "same" && matches!(expect, Expect::Kernel(_)) => {
                return Err("a punted packet cannot be compared with Linux: {skip: why}".into());
            }
            RawLinux::Word(word) if word == "same" => Linux::Same,
            RawLinux::Word(word) => {
                return Err(format!(
                    "linux: {word}; allowed are same, {{differs, why}}, {{one_of}}, {{skip}}"
                ));
            }
            RawLinux::Skip(RawSkip { skip }) => Linux::Skip(skip),
            RawLinux::OneOf(RawOneOf { one_of }) => {
                let ways: Vec<_> = one_of.into_iter().map(port_of).collect::<Result<_, _>>()?;
                let ours = ways.iter().any(|(port, frame)| {
                    matches!(&expect, Expect::Forward { port: p, frame: f } if p == port && f == frame)
                });
                if !ours {
                    return Err("linux: one_of: must include the expected frame".into());
                }
                Linux::OneOf(ways)
            }
            RawLinux::Differs(RawDiffers { differs, why }) => Linux::Differs {
                outcome: match differs {
                    RawOutcome::Word(word) if word == "drop" => None,
                    RawOutcome::Word(word) => {
                        return Err(format!(
                            "linux: differs: {word}; allowed are drop and {{forward}}"
                        ));
                    }
                    RawOutcome::Forward(RawForward { forward }) => Some(port_of(forward)?),
                },
                why,
            },
        };
        let Self {
            name,
            about,
            rfc,
            copies,
            counters,
            ..
        } = self;
        Ok(Case {
            name,
            about,
            rfc,
            earlier,
            port,
            frame,
            expect,
            answer,
            copies,
            fragments,
            linux,
            counters,
        })
    }
}

pub(super) const fn yes() -> bool {
    true
}

pub(super) const fn default_mtu() -> u32 {
    1500
}

/// Parses pairs of hexadecimal digits; white space between pairs is allowed.
pub(super) fn hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pair = |pair: &[u8]| Some(value(pair[0])? << 4 | value(*pair.get(1)?)?);
    let bytes = digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>();
    bytes.ok_or_else(|| de::Error::custom("a frame consists of pairs of hexadecimal digits"))
}

pub(super) fn dot1q() -> String {
    "802.1Q".to_owned()
}

/// Parses an Ethernet address such as `02:00:00:00:00:01`.
pub(super) fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 6]>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let refused = || {
        de::Error::custom(format!(
            "{text:?}: an Ethernet address is six bytes such as 02:00:00:00:00:01"
        ))
    };
    mac_of(&text).map(Some).ok_or_else(refused)
}

/// Parses a mapping and keeps its order.
pub(super) fn in_order<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, Port)>, D::Error> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, Port)>;
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("ports by name")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut ports = Vec::new();
            while let Some(entry) = map.next_entry()? {
                ports.push(entry);
            }
            Ok(ports)
        }
    }
    deserializer.deserialize_map(InOrder)
}
