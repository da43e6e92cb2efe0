//! Liveness of paths: segment lists that are probed, and the reflectors of S-BFD (RFC 7880).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use crate::behavior::{EncapMode, Seg6Encap};
use crate::node::TableId;

/// Reflectors of this node, by discriminator, 1 and up.
pub type Reflectors = BTreeMap<u32, Reflector>;

/// A discriminator that this node reflects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflector {
    /// Whether answers have the state `AdminDown` (RFC 7880 7.2.3), otherwise `Up`.
    pub admin_down: bool,
}

/// LIMIT: shortest and longest interval of probes, in milliseconds.
pub const INTERVAL_MIN: u32 = 3;
/// See [`INTERVAL_MIN`].
pub const INTERVAL_MAX: u32 = 60_000;
/// LIMIT: flows of one path.
pub const FLOWS_MAX: u32 = 8;
/// Bytes of the shortest probe: IPv6, UDP and BFD headers.
pub const SIZE_MIN: u32 = 40 + 8 + 24;
/// LIMIT: bytes of a probe, without the headers of its segment list.
pub const SIZE_MAX: u32 = 9_000;
/// LIMIT: longest wait before a path that is alive again is used, in milliseconds.
pub const HOLD_MAX: u32 = 3_600_000;

/// LIMIT: flows of all paths together.
pub const SESSIONS_MAX: u32 = 8191;

/// Paths by name.
pub type Paths = BTreeMap<String, Path>;

/// A segment list that is probed. Everything that uses the list follows the state of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The list in order of travel, 1 to [`crate::behavior::SEGMENTS_MAX`].
    pub segments: Vec<Ipv6Addr>,
    /// Who answers.
    pub probe: Probe,
    /// Encapsulation of probes.
    pub mode: EncapMode,
    /// Source address of probes. `None` for that of the encapsulation.
    pub source: Option<Ipv6Addr>,
    /// Table in which the first segment is looked up. `None` for table main and the rules before it.
    pub lookup: Option<TableId>,
    /// Time between two probes of a flow in milliseconds, [`INTERVAL_MIN`] to [`INTERVAL_MAX`]. It
    /// is shortened by up to a quarter at random (RFC 5880 6.8.7).
    pub interval: u32,
    /// Number of lost answers after which the path is down, 1 and up.
    pub multiplier: u8,
    /// Bytes of a probe, [`SIZE_MIN`] to [`SIZE_MAX`].
    pub size: u32,
    /// Number of flows, 1 to [`FLOWS_MAX`]. Each has its own flow label and is probed; the path is
    /// up while all of them are.
    pub flows: u32,
    /// Wait before a path that is alive again is used, in milliseconds. Each further failure doubles
    /// it.
    pub hold: u32,
    /// Discriminator of the first flow. `None` for one by the name.
    pub discriminator: Option<u32>,
    /// The path is out of use by configuration, and is not probed.
    pub admin_down: bool,
}

/// The node that answers the probes of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// This node: the probe returns through these further segments, and is addressed to its sender.
    Loopback(Vec<Ipv6Addr>),
    /// The reflector of S-BFD with this discriminator, at this address behind the last segment.
    Sbfd {
        /// Address of the reflector.
        address: Ipv6Addr,
        /// Its discriminator.
        discriminator: u32,
    },
}

impl Path {
    /// Returns the encapsulation of probes.
    pub fn encap(&self) -> Seg6Encap {
        let back = match &self.probe {
            Probe::Loopback(back) => &back[..],
            Probe::Sbfd { .. } => &[],
        };
        Seg6Encap {
            mode: self.mode,
            segments: [&self.segments[..], back].concat(),
            hmac: None,
            tunsrc: None,
            lookup: self.lookup,
        }
    }
}

/// Returns the discriminators of each path, one for each of its flows in their order.
///
/// # Errors
/// Two paths, or a path and a reflector, want the same discriminator.
pub fn discriminators(
    paths: &Paths,
    reflectors: &Reflectors,
) -> Result<BTreeMap<String, Vec<u32>>, Conflict> {
    let named = paths.iter().map(|(name, path)| (name.as_str(), path));
    let mut owners = configured_discriminators(named.clone(), reflectors)?;
    let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (discriminator, name) in configured(named) {
        all.entry(name.to_owned()).or_default().push(discriminator);
    }
    let others = paths
        .iter()
        .filter(|(_, path)| path.discriminator.is_none());
    for (name, path) in others {
        for flow in 0..path.flows {
            let mut discriminator = chosen(name, flow);
            while owners.contains_key(&discriminator) || reflectors.contains_key(&discriminator) {
                discriminator = discriminator.wrapping_add(1) | CHOSEN;
            }
            owners.insert(discriminator, name);
            all.entry(name.clone()).or_default().push(discriminator);
        }
    }
    Ok(all)
}

/// Returns the owners of the discriminators that are configured.
///
/// # Errors
/// Two paths, or a path and a reflector, want the same discriminator.
pub fn configured_discriminators<'a>(
    paths: impl Iterator<Item = (&'a str, &'a Path)>,
    reflectors: &Reflectors,
) -> Result<BTreeMap<u32, &'a str>, Conflict> {
    let mut owners: BTreeMap<u32, &str> = BTreeMap::new();
    for (discriminator, name) in configured(paths) {
        let reflects = reflectors.contains_key(&discriminator);
        let other = owners.insert(discriminator, name);
        if reflects || other.is_some() {
            return Err(Conflict {
                discriminator,
                path: name.to_owned(),
                other: other.map(str::to_owned),
            });
        }
    }
    Ok(owners)
}

/// Returns the configured discriminators with their paths, those of a path in the order of its flows.
fn configured<'a>(
    paths: impl Iterator<Item = (&'a str, &'a Path)>,
) -> impl Iterator<Item = (u32, &'a str)> {
    paths
        .filter_map(|(name, path)| Some((name, path, path.discriminator?)))
        .flat_map(|(name, path, first)| {
            (0..path.flows).map(move |flow| (first.wrapping_add(flow).max(1), name))
        })
}

/// Discriminators that are not configured have this bit.
const CHOSEN: u32 = 1 << 31;

/// Returns the discriminator of a flow: the same one in the next process, which adopts the session.
fn chosen(name: &str, flow: u32) -> u32 {
    // FNV-1a.
    let bytes = name.bytes().chain([0, flow as u8]);
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash | CHOSEN
}

/// Error: a discriminator has two owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The discriminator.
    pub discriminator: u32,
    /// The path that wants it.
    pub path: String,
    /// The other path; `None` for a reflector.
    pub other: Option<String>,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            discriminator,
            path,
            other,
        } = self;
        match other {
            Some(other) => write!(
                f,
                "paths {path} and {other} have the same discriminator {discriminator}"
            ),
            None => write!(
                f,
                "discriminator {discriminator} of path {path} is that of a reflector"
            ),
        }
    }
}

/// Liveness of the segment lists of a node, as its probes found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Index of the session of each discriminator.
    pub sessions: BTreeMap<u32, u32>,
    /// Lists with a path.
    pub lists: BTreeMap<Vec<Ipv6Addr>, WatchedList>,
}

impl Watched {
    /// Whether the path with this name is out of use.
    pub fn is_down(&self, path: &str) -> bool {
        let mut lists = self.lists.values();
        lists.any(|list| list.path == path && list.is_down)
    }
}

/// State of a segment list with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedList {
    /// Name of the path.
    pub path: String,
    /// Index of the session that says whether the list is in use.
    pub session: u32,
    /// Whether it is out of use.
    pub is_down: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(flows: u32, discriminator: Option<u32>) -> Path {
        Path {
            segments: vec![Ipv6Addr::LOCALHOST],
            probe: Probe::Loopback(vec![]),
            mode: EncapMode::Encap,
            source: None,
            lookup: None,
            interval: 100,
            multiplier: 3,
            size: SIZE_MIN,
            flows,
            hold: 1000,
            discriminator,
            admin_down: false,
        }
    }

    fn of(
        paths: &[(&str, Path)],
        reflectors: &[u32],
    ) -> Result<BTreeMap<String, Vec<u32>>, Conflict> {
        let paths = paths
            .iter()
            .map(|(name, path)| ((*name).to_owned(), path.clone()));
        let reflectors = reflectors.iter().map(|it| (*it, Reflector::default()));
        discriminators(&paths.collect(), &reflectors.collect())
    }

    #[test]
    fn every_flow_has_its_own_discriminator_which_stays() {
        let one = of(&[("a", path(2, None)), ("b", path(1, Some(7)))], &[]).expect("no conflict");
        assert_eq!(one.values().flatten().count(), 3);
        assert_eq!(one["b"], [7]);
        assert_ne!(one["a"][0], one["a"][1]);
        let again = of(&[("a", path(2, None)), ("c", path(8, None))], &[]).expect("no conflict");
        assert_eq!(one["a"], again["a"]);
        let first = one["a"][0];
        let moved = of(&[("a", path(2, None))], &[first]).expect("another one is chosen");
        assert!(!moved["a"].contains(&first));
    }

    #[test]
    fn one_discriminator_has_one_owner() {
        let two = of(&[("a", path(2, Some(7))), ("b", path(1, Some(8)))], &[]);
        assert_eq!(
            two.expect_err("8 twice").to_string(),
            "paths b and a have the same discriminator 8"
        );
        let reflected = of(&[("a", path(1, Some(7)))], &[7]);
        assert_eq!(
            reflected.expect_err("7 twice").to_string(),
            "discriminator 7 of path a is that of a reflector"
        );
    }
}
