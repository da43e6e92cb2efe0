//! The golden vectors of `vectors/*.yaml`: a node, input packets, and expected results.
//!
//! The node is parsed for the Linux runner (iproute2 lines) and also kept as text for other
//! parsers.

mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;

/// The only supported version of the format.
pub const FORMAT: u32 = 1;

/// One file: a node, and cases for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's name without `.yaml`.
    pub group: String,
    /// Description in one sentence.
    pub about: String,
    /// The node.
    pub node: Node,
    /// The node as a YAML text, which `sidestep replay --config` can read. Line numbers are those
    /// of the file.
    pub node_text: String,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// A node in the form that the Linux runner needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Ports by name, in the order of the file.
    #[serde(deserialize_with = "raw::in_order")]
    pub ports: Vec<(String, Port)>,
    /// `fc01::1 lladdr 02:00:00:00:00:11 dev eth1`
    #[serde(default)]
    pub neighbors: Vec<String>,
    /// Arguments of `ip route add`.
    #[serde(default)]
    pub routes: Vec<String>,
    /// Arguments of `ip rule add`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Entries of VLAN tables, which Linux does not have.
    #[serde(default)]
    pub vlans: Vec<String>,
    /// SR policies, which Linux does not have.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Ether devices, which Linux does not have.
    #[serde(default)]
    pub ethers: Vec<String>,
    /// Entries of the SR domain, which Linux does not have.
    #[serde(default)]
    pub domain: Vec<String>,
    /// Reflectors of S-BFD, which Linux does not have.
    #[serde(default)]
    pub reflectors: Vec<String>,
    /// `ip sr tunsrc set`.
    #[serde(default)]
    pub tunsrc: Option<String>,
    /// `net.ipv6.seg6_flowlabel`: -1, 0, 1.
    #[serde(default)]
    pub seg6_flowlabel: Option<i32>,
    /// Seed of Sidestep's multipath hash; Linux uses another hash.
    #[serde(default)]
    pub multipath_hash_seed: Option<u32>,
    /// `ip sr hmac set`, by key id.
    #[serde(default)]
    pub hmac: BTreeMap<u32, HmacKey>,
    /// Maximum number of copies of packets with the O-flag per second and port; Linux ignores the
    /// flag.
    #[serde(default)]
    pub oam_rate: u32,
    /// `sidestep run --local-srh`, which Linux does not have.
    #[serde(default)]
    pub local_srh: Option<String>,
    /// SIDs need `seg6_enabled`; Linux has no such setting.
    #[serde(default)]
    pub require_seg6_enabled: bool,
    /// `sidestep run --ipv4-too-big`, which Linux does not have.
    #[serde(default)]
    pub ipv4_too_big: Option<String>,
}

/// An HMAC key of a test, which is not secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HmacKey {
    /// `sha1` or `sha256`.
    pub algorithm: String,
    /// The secret, one line.
    pub secret: String,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Ethernet address. The default of a VLAN port is the address of the port below.
    #[serde(default, deserialize_with = "raw::mac")]
    pub mac: Option<[u8; 6]>,
    /// `fc00::2/64`
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MTU in bytes, without the Ethernet header.
    #[serde(default = "raw::default_mtu")]
    pub mtu: u32,
    /// `net.ipv6.conf.PORT.seg6_enabled`.
    #[serde(default)]
    pub seg6_enabled: bool,
    /// `net.ipv6.conf.PORT.seg6_require_hmac`.
    #[serde(default)]
    pub seg6_require_hmac: Option<i32>,
    /// `forwarding` of both families.
    #[serde(default = "raw::yes")]
    pub forwarding: bool,
    /// `net.ipv4.conf.PORT.rp_filter`.
    #[serde(default)]
    pub rp_filter: Option<u8>,
    /// `net.ipv6.conf.PORT.hop_limit`.
    #[serde(default)]
    pub hop_limit: Option<u8>,
    /// Set if the port is a VLAN of another port, which sends and receives its frames with the tag.
    #[serde(default)]
    pub vlan: Option<Vlan>,
    /// Set if the port belongs to a bridge.
    #[serde(default)]
    pub bridge_port: Option<BridgePort>,
}

/// Port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgePort {
    /// Name of the bridge.
    pub bridge: String,
    /// `bridge link set dev PORT isolated on`
    #[serde(default)]
    pub isolated: bool,
    /// Entries of the FDB.
    #[serde(default)]
    pub stations: Vec<String>,
}

/// VLAN of a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// The port below.
    pub link: String,
    /// VLAN identifier.
    pub id: u16,
    /// `802.1Q` or `802.1ad`.
    #[serde(default = "raw::dot1q")]
    pub protocol: String,
}

/// One packet and its expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name in `snake_case`, unique over all files.
    pub name: String,
    /// Description, if there is one.
    pub about: Option<String>,
    /// Clauses of RFCs, such as `8986 4.1 S13`.
    pub rfc: Vec<String>,
    /// Earlier frames with their ingress ports, from which a proxy learns.
    pub earlier: Vec<(String, Vec<u8>)>,
    /// Ingress port.
    pub port: String,
    /// The input frame, from its destination MAC on, without FCS.
    pub frame: Vec<u8>,
    /// Expected result.
    pub expect: Expect,
    /// Expected ICMP error, if given.
    pub answer: Option<Answer>,
    /// Expected copies for the O-flag (RFC 9259 2.1.1) in the order of the SIDs, if given.
    pub copies: Option<Vec<OamCopy>>,
    /// Expected fragments with their ports. Fragment headers have the Identification 0x5eed.
    pub fragments: Vec<(String, Vec<u8>)>,
    /// Expected result of Linux.
    pub linux: Linux,
    /// Expected counters, if given.
    pub counters: Option<Counters>,
}

/// Expected result for a packet. Reasons are those of `datapath/reason.h`, without prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The packet is forwarded.
    Forward {
        /// Egress port.
        port: String,
        /// The output frame, from the destination MAC on, without FCS.
        frame: Vec<u8>,
    },
    /// The packet is dropped for this reason.
    Drop(String),
    /// The packet is punted unmodified for this reason.
    Kernel(String),
}

/// Environment variable that selects every N-th case, for emulated machines where all cases take
/// too long.
pub const SHARE: &str = "SIDESTEP_VECTORS_SHARE";

/// ICMP error to the source of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No message.
    Silence,
    /// An ICMP message.
    Message {
        /// Destination address.
        to: IpAddr,
        /// Source address; `None` if Linux chooses it.
        from: Option<Ipv6Addr>,
        /// The message from its type on, for `ICMPv6` with checksum 0.
        message: Vec<u8>,
    },
}

/// A copy of a packet for its O-flag (RFC 9259 2.1.1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OamCopy {
    /// The SID of the packet.
    pub sid: Ipv6Addr,
    /// Segments Left before this SID processed the packet.
    pub segments_left: u8,
    /// The packet from its IPv6 header on.
    #[serde(deserialize_with = "raw::hex")]
    pub packet: Vec<u8>,
}

/// Result of Linux for the same packet and configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linux {
    /// The same result, except that a drop sends no ICMP error.
    Same,
    /// A different result.
    Differs {
        /// Egress port and frame; `None` for a silent drop.
        outcome: Option<(String, Vec<u8>)>,
        /// Reason why Sidestep's result is right.
        why: String,
    },
    /// One of these ports and frames, including the expected one. Linux' flow hash selects it.
    OneOf(Vec<(String, Vec<u8>)>),
    /// The case cannot run on Linux, for this reason.
    Skip(String),
}

/// Counters of one route or SID after the packet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Prefix.
    pub route: String,
    /// Packets that matched the prefix.
    pub packets: u64,
    /// Dropped packets among them.
    pub errors: u64,
}

impl Node {
    /// Parses a node file.
    ///
    /// # Errors
    /// The text is not a valid node file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        serde_saphyr::from_str(text).map_err(|error| refused(Path::new("node file"), &error))
    }
}

impl VectorFile {
    /// Reads one file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid: an unknown key, invalid hexadecimal digits, a port
    /// that the node lacks, a group name that differs from the file name, or a duplicate case name.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| refused(path, &error))?;
        Self::parse(path, &text)
    }

    /// Reads all `*.yaml` files of a directory, ordered by name.
    ///
    /// # Errors
    /// As [`Self::read`], and if two files have a case with the same name.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>, Error> {
        let entries = fs::read_dir(directory).map_err(|error| refused(directory, &error))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        });
        paths.sort();
        let files = paths
            .iter()
            .map(|path| Self::read(path))
            .collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        for (file, case) in files
            .iter()
            .flat_map(|file| file.cases.iter().map(move |case| (file, case)))
        {
            if !seen.insert(&case.name) {
                return Err(refused(
                    &file.path,
                    &format!("case {} also exists in another file", case.name),
                ));
            }
        }
        Ok(files)
    }

    /// Returns all vector files of a directory, with every N-th case if [`SHARE`] is set. The first
    /// case differs per file.
    ///
    /// # Errors
    /// As [`Self::read_all`], and if the value of [`SHARE`] is not a number above 0.
    pub fn read_share(directory: &Path) -> Result<Vec<Self>, Error> {
        let mut files = Self::read_all(directory)?;
        let Ok(share) = std::env::var(SHARE) else {
            return Ok(files);
        };
        let share: NonZeroUsize = share
            .parse()
            .map_err(|_| Error::Usage(format!("{SHARE}={share}: allowed are numbers from 1 up")))?;
        for (first, file) in files.iter_mut().enumerate() {
            let mut number = first;
            file.cases.retain(|_| {
                number += 1;
                number % share == 0
            });
        }
        files.retain(|file| !file.cases.is_empty());
        Ok(files)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let raw: raw::RawFile =
            serde_saphyr::from_str(text).map_err(|error| refused(path, &error))?;
        if raw.format != FORMAT {
            return Err(refused(
                path,
                &format!("format {}; this program reads format {FORMAT}", raw.format),
            ));
        }
        if path
            .file_stem()
            .is_none_or(|stem| stem != raw.group.as_str())
        {
            return Err(refused(
                path,
                &format!("group {}: must be the file's name", raw.group),
            ));
        }
        let mut names = BTreeSet::new();
        let mut cases = Vec::new();
        for raw_case in raw.cases {
            let name = raw_case.name.clone();
            let case = raw_case
                .check(&raw.node)
                .map_err(|reason| refused(path, &format!("case {name}: {reason}")))?;
            if !names.insert(name) {
                return Err(refused(path, &format!("case {} occurs twice", case.name)));
            }
            cases.push(case);
        }
        let node_text = block(text, "node");
        Ok(Self {
            path: path.to_owned(),
            group: raw.group,
            about: raw.about,
            node: raw.node,
            node_text,
            cases,
        })
    }
}

/// Returns the lines below a top-level key, unindented. Earlier lines become empty, so that errors
/// show the line number of the whole file.
fn block(text: &str, key: &str) -> String {
    let mut inside = false;
    let mut indent = None;
    let mut out = String::new();
    for line in text.lines() {
        if !line.starts_with([' ', '#']) && !line.is_empty() {
            inside = line.split(':').next() == Some(key);
        } else if inside {
            let width = *indent.get_or_insert(line.len() - line.trim_start().len());
            out.push_str(line.get(width..).unwrap_or_default());
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn refused(path: &Path, reason: &impl ToString) -> Error {
    Error::Vectors {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# comment
format: 1
group: tiny
about: "a node of one port"
node:
  ports:
    eth1: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
    eth0: {mac: "02:00:00:00:00:02", mtu: 9000, seg6_enabled: true, forwarding: false}
  # inside
  routes:
  - "fc0a::/16 via fc00::1 dev eth1"
cases:
- name: one
  in: {port: eth1, frame: "0102 ff"}
  expect: {forward: {port: eth0, frame: "aa"}}
  linux: same
- name: two
  in: {port: eth1, frame: "01"}
  expect: {drop: no_srh}
  linux: {differs: {forward: {port: eth0, frame: "bb"}}, why: "it does not look"}
- name: three
  in: {port: eth1, frame: "01"}
  expect: {drop: no_srh}
  linux: {differs: drop, why: "because"}
- name: four
  in: {port: eth1, frame: "01"}
  expect: {kernel: local}
  linux: {skip: "left to the kernel"}
  counters: {route: "fc00::2/128", packets: 1, errors: 0}
"#;

    fn parse(text: &str) -> Result<VectorFile, String> {
        VectorFile::parse(Path::new("tiny.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_parsed_with_its_ports_in_order_and_every_kind_of_case() {
        let file = parse(FILE).expect("a right file");
        let names: Vec<&str> = file
            .node
            .ports
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["eth1", "eth0"]);
        assert_eq!(file.node.ports[1].1.mtu, 9000);
        assert_eq!(file.cases[0].frame, [1, 2, 0xff]);
        assert_eq!(file.cases[0].linux, Linux::Same);
        let outcome = Some(("eth0".to_owned(), vec![0xbb]));
        assert_eq!(
            file.cases[1].linux,
            Linux::Differs {
                outcome,
                why: "it does not look".into()
            }
        );
        assert_eq!(
            file.cases[2].linux,
            Linux::Differs {
                outcome: None,
                why: "because".into()
            }
        );
        assert_eq!(
            file.cases[3].linux,
            Linux::Skip("left to the kernel".into())
        );
        assert_eq!(file.cases[3].expect, Expect::Kernel("local".into()));
    }

    #[test]
    fn the_text_of_the_node_keeps_the_line_numbers_of_the_file() {
        let file = parse(FILE).expect("a right file");
        let again: Node = serde_saphyr::from_str(&file.node_text).expect("YAML of its own");
        assert_eq!(again, file.node);
        let line = |text: &str| {
            text.lines()
                .position(|line| line.trim_start().starts_with("eth0:"))
        };
        assert_eq!(line(&file.node_text), line(FILE));
    }

    #[test]
    fn invalid_files_are_refused_with_the_reason() {
        let wrong = [
            ("linux: same", "linux: maybe", "allowed are same"),
            (
                "frame: \"aa\"",
                "frame: \"a\"",
                "pairs of hexadecimal digits",
            ),
            (
                "forward: {port: eth0, frame: \"aa\"}",
                "forward: {port: eth7, frame: \"aa\"}",
                "no port eth7",
            ),
            ("mtu: 9000", "mut: 9000", "mut"),
            ("group: tiny", "group: other", "the file's name"),
            ("name: two", "name: one", "occurs twice"),
            ("format: 1", "format: 2", "reads format 1"),
            (
                "{skip: \"left to the kernel\"}",
                "same",
                "cannot be compared",
            ),
        ];
        for (right, wrong, message) in wrong {
            let error = parse(&FILE.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
