//! The golden vectors of `vectors/*.yaml`: a node, input packets, and expected results.
//!
//! The node is read here for the Linux runner (raw iproute2 lines) and kept as text for whoever parses the same node
//! in another way.

mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;

/// The only version of the format.
pub const FORMAT: u32 = 1;

/// One file: one node and the cases that are put to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// The file's name without `.yaml`.
    pub group: String,
    /// One sentence.
    pub about: String,
    /// The node.
    pub node: Node,
    /// The node as YAML text of its own, exactly what `sidestep replay --config` reads. Line numbers are the file's.
    pub node_text: String,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// A node as the Linux runner needs it.
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
    /// Entries of the SR domain, which Linux does not have.
    #[serde(default)]
    pub domain: Vec<String>,
    /// `ip sr tunsrc set`.
    #[serde(default)]
    pub tunsrc: Option<String>,
    /// `net.ipv6.seg6_flowlabel`: -1, 0, 1.
    #[serde(default)]
    pub seg6_flowlabel: Option<i32>,
    /// The seed of Sidestep's multipath hash; Linux has a hash of its own.
    #[serde(default)]
    pub multipath_hash_seed: Option<u32>,
    /// `ip sr hmac set`, by key id.
    #[serde(default)]
    pub hmac: BTreeMap<u32, HmacKey>,
    /// Copies of packets with the O-flag per second and port; Linux ignores the flag.
    #[serde(default)]
    pub oam_rate: u32,
    /// `sidestep run --local-srh`, which Linux does not have.
    #[serde(default)]
    pub local_srh: Option<String>,
}

/// An HMAC key, for all to see: it is a test's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HmacKey {
    /// `sha1` or `sha256`.
    pub algorithm: String,
    /// A line.
    pub secret: String,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Ethernet address. A VLAN port may leave it out: it then has that of the port below.
    #[serde(default, deserialize_with = "raw::mac")]
    pub mac: Option<[u8; 6]>,
    /// `fc00::2/64`
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Bytes, without the Ethernet header.
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
    /// It is a VLAN of another port: frames go in and out by that one, with their tag.
    #[serde(default)]
    pub vlan: Option<Vlan>,
}

/// Whose VLAN a port is, and which.
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

/// One packet and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// A sentence in `snake_case`, unique over all files.
    pub name: String,
    /// A longer sentence, if there is one.
    pub about: Option<String>,
    /// Clauses, such as `8986 4.1 S13`.
    pub rfc: Vec<String>,
    /// Earlier frames with their ingress ports, from which a proxy learns.
    pub earlier: Vec<(String, Vec<u8>)>,
    /// Ingress port.
    pub port: String,
    /// The frame that arrives, from its destination MAC on, without FCS.
    pub frame: Vec<u8>,
    /// Expected result.
    pub expect: Expect,
    /// Expected ICMP error, if given.
    pub answer: Option<Answer>,
    /// Expected copies for the O-flag (RFC 9259 2.1.1) in the order of the SIDs, if given.
    pub copies: Option<Vec<OamCopy>>,
    /// Expected result of Linux.
    pub linux: Linux,
    /// Expected counters, if given.
    pub counters: Option<Counters>,
}

/// Expected result for a packet. Reasons are those of `datapath/reason.h`, without prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// This frame leaves by this port.
    Forward {
        /// Egress port.
        port: String,
        /// From the destination MAC on, without FCS.
        frame: Vec<u8>,
    },
    /// Dropped, for this reason.
    Drop(String),
    /// Left to the kernel unchanged, for this reason.
    Kernel(String),
}

/// Environment variable that selects every N-th case, for emulated machines where all cases take
/// too long.
pub const SHARE: &str = "SIDESTEP_VECTORS_SHARE";

/// ICMP error to the source of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Silence,
    /// An ICMP message.
    Message {
        /// To this address.
        to: IpAddr,
        /// From this one; none: from one that Linux chooses.
        from: Option<Ipv6Addr>,
        /// From its type on; of `ICMPv6` with checksum 0.
        message: Vec<u8>,
    },
}

/// A copy of a packet for its O-flag (RFC 9259 2.1.1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OamCopy {
    /// That the packet came to.
    pub sid: Ipv6Addr,
    /// Before this SID processed the packet.
    pub segments_left: u8,
    /// From its IPv6 header on.
    #[serde(deserialize_with = "raw::hex")]
    pub packet: Vec<u8>,
}

/// Result of Linux for the same packet and configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linux {
    /// The same; a drop is silent.
    Same,
    /// Something else.
    Differs {
        /// The port and the frame that leave instead; none for a silent drop.
        outcome: Option<(String, Vec<u8>)>,
        /// Why ours is right.
        why: String,
    },
    /// One of these ports and frames, including the expected one. Linux' flow hash selects it.
    OneOf(Vec<(String, Vec<u8>)>),
    /// It cannot be asked, for this reason.
    Skip(String),
}

/// Counters of one route or SID after the packet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Prefix.
    pub route: String,
    /// Packets that matched it.
    pub packets: u64,
    /// Dropped packets among them.
    pub errors: u64,
}

impl Node {
    /// The node whose node file this is.
    ///
    /// # Errors
    /// It is not of the format.
    pub fn parse(text: &str) -> Result<Self, Error> {
        serde_saphyr::from_str(text).map_err(|error| refused(Path::new("node file"), &error))
    }
}

impl VectorFile {
    /// Reads one file.
    ///
    /// # Errors
    /// It cannot be read or is not of the format: unknown key, bad hex, a port that the node does not have, a name
    /// that is not the file's, or occurs twice.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| refused(path, &error))?;
        Self::parse(path, &text)
    }

    /// Reads every `*.yaml` of a directory, in the order of the names.
    ///
    /// # Errors
    /// As [`Self::read`], and if two files have a case of the same name.
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
                    &format!("case {} is in another file too", case.name),
                ));
            }
        }
        Ok(files)
    }

    /// Returns all vector files of a directory, with every N-th case if [`SHARE`] is set. The first
    /// case differs per file.
    ///
    /// # Errors
    /// As [`Self::read_all`], and if what [`SHARE`] says is no number above 0.
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

    /// The file whose text this is.
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
                &format!("group {}: has to be the file's name", raw.group),
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
    fn a_file_is_read_with_its_ports_in_order_and_every_kind_of_case() {
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
    fn the_node_is_kept_as_a_text_of_its_own_on_the_lines_of_the_file() {
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
    fn what_is_not_of_the_format_is_refused_by_name() {
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
                "cannot be the same",
            ),
        ];
        for (right, wrong, message) in wrong {
            let error = parse(&FILE.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
