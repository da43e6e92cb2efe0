//! Identity of candidate paths (RFC 9256 2.3 to 2.6), and the candidate paths of controllers, which
//! join the configured policies.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Candidate, Policy, PolicyId};
use crate::behavior::EncapMode;

/// How a headend learned a candidate path (RFC 9256 2.3), in ascending order of priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolOrigin {
    /// PCEP, code point 10.
    Pcep = 10,
    /// BGP SR Policy, code point 20.
    Bgp = 20,
    /// Configuration of the headend, code point 30.
    Configuration = 30,
}

/// Node that originated a candidate path (RFC 9256 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Originator {
    /// Autonomous system number.
    pub asn: u32,
    /// Node address.
    pub address: IpAddr,
}

/// Owner of candidate paths: only it can change or withdraw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathOwner {
    /// Protocol-Origin.
    pub protocol_origin: ProtocolOrigin,
    /// Originator.
    pub originator: Originator,
}

/// Identity of a candidate path within its policy (RFC 9256 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathId {
    /// Owner.
    pub owner: PathOwner,
    /// Discriminator (RFC 9256 2.5).
    pub discriminator: u32,
}

/// A candidate path of a controller, with the attributes that it requests for its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPath {
    /// Preference and segment lists.
    pub candidate: Candidate,
    /// Binding SID of the policy.
    pub binding_sid: Option<Ipv6Addr>,
    /// Headend behavior of the policy.
    pub mode: Option<EncapMode>,
    /// Whether the policy drops packets while it is invalid.
    pub drop_upon_invalid: Option<bool>,
}

/// Candidate paths of controllers.
pub type ControllerPaths = BTreeMap<(PolicyId, PathId), ControllerPath>;

impl ProtocolOrigin {
    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcep => "pcep",
            Self::Bgp => "bgp",
            Self::Configuration => "configuration",
        }
    }
}

impl PathOwner {
    /// Owner of the paths in the node's own configuration.
    pub const CONFIGURED: Self = Self {
        protocol_origin: ProtocolOrigin::Configuration,
        originator: Originator {
            asn: 0,
            address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        },
    };
}

impl fmt::Display for PathOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Originator { asn, address } = self.originator;
        write!(f, "{} AS {asn} {address}", self.protocol_origin.name())
    }
}

impl PathId {
    /// Sorts before every other path.
    pub const MIN: Self = Self {
        owner: PathOwner {
            protocol_origin: ProtocolOrigin::Pcep,
            originator: Originator {
                asn: 0,
                address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            },
        },
        discriminator: 0,
    };
    /// Sorts after every other path.
    pub const MAX: Self = Self {
        owner: PathOwner {
            protocol_origin: ProtocolOrigin::Configuration,
            originator: Originator {
                asn: u32::MAX,
                address: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
            },
        },
        discriminator: u32::MAX,
    };

    /// Returns the identity of a configured path. Each preference of a configured policy occurs
    /// once, so it is the discriminator.
    pub fn configured(preference: u32) -> Self {
        Self {
            owner: PathOwner::CONFIGURED,
            discriminator: preference,
        }
    }

    /// Returns true for a path of the node's own configuration.
    pub fn is_configured(&self) -> bool {
        self.owner == PathOwner::CONFIGURED
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} discriminator {}", self.owner, self.discriminator)
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "color {} endpoint {}", self.color, self.endpoint)
    }
}

impl PolicyId {
    /// Returns the name that stands for this policy even where it does not exist: `color-N-ENDPOINT`,
    /// with `-` for each colon.
    pub fn name(&self) -> String {
        let endpoint = self.endpoint.to_string().replace(':', "-");
        format!("color-{}-{endpoint}", self.color)
    }

    /// Returns the policy that a name of [`PolicyId::name`] stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        let (color, endpoint) = name.strip_prefix("color-")?.split_once('-')?;
        let color = color.parse().ok()?;
        let endpoint = endpoint
            .parse()
            .or_else(|_| endpoint.replace('-', ":").parse())
            .ok()?;
        let id = Self { color, endpoint };
        (id.name() == name).then_some(id)
    }
}

/// Sorts candidate paths by preference, and those of equal preference as RFC 9256 2.9 does: the
/// higher Protocol-Origin first, then the lower originator, then the higher discriminator.
fn sort(candidates: &mut [Candidate]) {
    candidates.sort_by_key(|candidate| {
        let PathId {
            owner,
            discriminator,
        } = candidate.path;
        (
            Reverse((candidate.preference, owner.protocol_origin)),
            owner.originator,
            Reverse(discriminator),
        )
    });
}

/// Returns the configured policies with the candidate paths of controllers.
///
/// A policy that is not configured has the name of [`PolicyId::name`], and the attributes that its
/// paths request.
pub fn with_paths(
    configured: &BTreeMap<String, Policy>,
    paths: &ControllerPaths,
) -> BTreeMap<String, Policy> {
    let mut all = configured.clone();
    let names: BTreeMap<PolicyId, &String> =
        configured.iter().map(|(name, it)| (it.id, name)).collect();
    for ((id, _), path) in paths {
        let configured = names.get(id);
        let name = configured.map_or_else(|| id.name(), ToString::to_string);
        let policy = all.entry(name).or_insert_with(|| Policy {
            id: *id,
            bsid: None,
            mode: EncapMode::Encap,
            hmac: None,
            tunsrc: None,
            drop_upon_invalid: false,
            candidates: vec![],
        });
        if configured.is_none() {
            policy.bsid = policy.bsid.or(path.binding_sid);
            policy.mode = path.mode.unwrap_or(policy.mode);
            policy.drop_upon_invalid |= path.drop_upon_invalid.unwrap_or_default();
        }
        policy.candidates.push(path.candidate.clone());
        sort(&mut policy.candidates);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Words, policy};

    fn id(color: u32, endpoint: &str) -> PolicyId {
        let endpoint = endpoint.parse().expect("an address");
        PolicyId { color, endpoint }
    }

    #[test]
    fn a_name_stands_for_color_and_endpoint() {
        for (color, endpoint, name) in [
            (100, "fc00:3::1", "color-100-fc00-3--1"),
            (0, "::", "color-0---"),
            (7, "192.0.2.1", "color-7-192.0.2.1"),
            (
                u32::MAX,
                "::ffff:192.0.2.1",
                "color-4294967295---ffff-192.0.2.1",
            ),
        ] {
            assert_eq!(id(color, endpoint).name(), name);
            assert_eq!(PolicyId::from_name(name), Some(id(color, endpoint)));
        }
        for name in [
            "gold",
            "color-1",
            "color-01-fc00--1",
            "color-1-fc00-0--1",
            "color-x---",
        ] {
            assert_eq!(PolicyId::from_name(name), None, "{name}");
        }
    }

    fn path(origin: ProtocolOrigin, asn: u32, discriminator: u32) -> PathId {
        let address = "192.0.2.1".parse().expect("an address");
        PathId {
            owner: PathOwner {
                protocol_origin: origin,
                originator: Originator { asn, address },
            },
            discriminator,
        }
    }

    fn controllers(of: PolicyId, paths: &[(PathId, u32)]) -> ControllerPaths {
        let path = |(path, preference): &(PathId, u32)| {
            let candidate = Candidate {
                path: *path,
                preference: *preference,
                lists: vec![],
            };
            let of_controller = ControllerPath {
                candidate,
                binding_sid: None,
                mode: None,
                drop_upon_invalid: None,
            };
            ((of, *path), of_controller)
        };
        paths.iter().map(path).collect()
    }

    #[test]
    fn paths_of_equal_preference_are_ordered_by_origin_originator_and_discriminator() {
        use ProtocolOrigin::{Bgp, Pcep};
        let line = "gold color 100 endpoint fc00:3::1 segs fc00::1";
        let configured = [policy::parse(&mut Words::from_line(line)).expect("well-formed")].into();
        let paths = [
            (path(Bgp, 65001, 7), 100),
            (path(Pcep, 1, 9), 100),
            (path(Bgp, 65000, 1), 100),
            (path(Bgp, 65001, 8), 100),
            (path(Pcep, 1, 1), 101),
        ];
        let all = with_paths(&configured, &controllers(id(100, "fc00:3::1"), &paths));
        let order: Vec<PathId> = all["gold"].candidates.iter().map(|it| it.path).collect();
        let expected = [
            path(Pcep, 1, 1),
            PathId::configured(100),
            path(Bgp, 65000, 1),
            path(Bgp, 65001, 8),
            path(Bgp, 65001, 7),
            path(Pcep, 1, 9),
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_policy_of_controllers_has_the_attributes_of_its_paths() {
        let of = id(100, "fc00:3::1");
        let two = [
            (path(ProtocolOrigin::Bgp, 1, 1), 1),
            (path(ProtocolOrigin::Bgp, 1, 2), 2),
        ];
        let mut paths = controllers(of, &two);
        let second = paths.last_entry().expect("two paths").into_mut();
        second.binding_sid = "fc00::b1".parse().ok();
        second.mode = Some(EncapMode::EncapRed);
        second.drop_upon_invalid = Some(true);
        let all = with_paths(&BTreeMap::new(), &paths);
        let policy = &all["color-100-fc00-3--1"];
        assert_eq!(policy.bsid, "fc00::b1".parse().ok());
        assert_eq!(policy.mode, EncapMode::EncapRed);
        assert!(policy.drop_upon_invalid);
        assert_eq!(policy.candidates.len(), 2);
    }
}
