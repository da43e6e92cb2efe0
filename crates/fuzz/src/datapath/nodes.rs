//! The compiled nodes of the golden vectors, without and with changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sidestep_control::compile::Compiler;
use sidestep_datapath::abi::{
    SIDESTEP_ADJACENCY_VALID, SIDESTEP_PORT_O_FLAG, SIDESTEP_PORT_REQUIRE_HMAC,
    SIDESTEP_PORT_RPF_LOOSE, SIDESTEP_PORT_RPF_STRICT, SIDESTEP_PORT_SEG6, SIDESTEP_ROUTE_END,
    SIDESTEP_ROUTE_REQUIRE_HMAC, SIDESTEP_ROUTE_SIDESTEP_ONLY,
};
use sidestep_datapath::{Image, Limits};
use sidestep_model::config;
use sidestep_testkit::vectors::{Case, VectorFile};

use super::input::node_hash;
use super::rules::Bench;

/// Changes to a node in addition to its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Variant {
    /// No change.
    AsItIs,
    /// All routes are Sidestep-only, so packets that the kernel cannot route are not punted.
    Ours,
    /// `rp_filter` is 1 on every port.
    ReversePathStrict,
    /// `rp_filter` is 2 on every port.
    ReversePathLoose,
    /// No next hop is resolved.
    Unresolved,
    /// [`Variant::Unresolved`] and [`Variant::Ours`] together.
    OursUnresolved,
    /// The MTU is 128 everywhere, so that packets of the vectors' size do not fit.
    SmallMtu,
    /// [`Variant::SmallMtu`] and [`Variant::Ours`] together.
    OursSmallMtu,
    /// `seg6_require_hmac` is 1 on every port.
    RequireHmac,
    /// `seg6_enabled` is 0 on every port.
    Seg6Disabled,
    /// Packets with the O-flag are copied on every port.
    OFlag,
    /// Every SID has `require-hmac`.
    RequireHmacAtSids,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 12] = [
        Self::AsItIs,
        Self::Ours,
        Self::ReversePathStrict,
        Self::ReversePathLoose,
        Self::Unresolved,
        Self::OursUnresolved,
        Self::SmallMtu,
        Self::OursSmallMtu,
        Self::RequireHmac,
        Self::Seg6Disabled,
        Self::OFlag,
        Self::RequireHmacAtSids,
    ];

    /// Returns a variant by its number, modulo the number of variants.
    pub fn of(number: u8) -> Self {
        Self::ALL[usize::from(number) % Self::ALL.len()]
    }

    /// Returns the tables of a node with this change.
    pub fn apply(self, image: &Image) -> Image {
        let mut image = image.clone();
        for port in image.ports.values_mut() {
            match self {
                Self::ReversePathStrict => port.flags |= SIDESTEP_PORT_RPF_STRICT,
                Self::ReversePathLoose => port.flags |= SIDESTEP_PORT_RPF_LOOSE,
                Self::RequireHmac => port.flags |= SIDESTEP_PORT_REQUIRE_HMAC,
                Self::OFlag => port.flags |= SIDESTEP_PORT_O_FLAG,
                Self::Seg6Disabled => port.flags &= !SIDESTEP_PORT_SEG6,
                _ => {}
            }
        }
        for route in image.routes.values_mut() {
            if matches!(self, Self::Ours | Self::OursUnresolved | Self::OursSmallMtu) {
                route.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
            }
            let sid = u32::from(route.action) >= SIDESTEP_ROUTE_END;
            if sid && self == Self::RequireHmacAtSids {
                route.flags |= SIDESTEP_ROUTE_REQUIRE_HMAC as u8;
            }
        }
        for adjacency in image.adjacencies.values_mut() {
            match self {
                Self::Unresolved | Self::OursUnresolved => {
                    adjacency.flags &= !(SIDESTEP_ADJACENCY_VALID as u16);
                }
                Self::SmallMtu | Self::OursSmallMtu => adjacency.mtu = 128,
                _ => {}
            }
        }
        image
    }
}

struct Group {
    name: String,
    image: Image,
    /// Cases, each with the position of its port.
    cases: Vec<(u8, Case)>,
    /// Interface by name.
    interfaces: BTreeMap<String, u32>,
    benches: BTreeMap<Variant, Bench>,
}

/// Returns the files of `vectors/`.
pub fn vectors() -> Vec<VectorFile> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    VectorFile::read_all(&directory).expect("the vector files are of the format")
}

/// All nodes of the vectors.
pub struct Nodes {
    groups: BTreeMap<u32, Group>,
}

impl Nodes {
    /// Returns the nodes of `vectors/`.
    pub fn of_the_vectors() -> Self {
        let groups: BTreeMap<u32, Group> = vectors()
            .into_iter()
            .map(|file| (node_hash(&file.group), Group::new(file)))
            .collect();
        Self { groups }
    }

    /// Returns the hashes of the names of all nodes.
    pub fn hashes(&self) -> impl Iterator<Item = u32> {
        self.groups.keys().copied()
    }

    /// Returns the node with this hash, or with the next one, to run frames on.
    pub fn bench(&mut self, hash: u32, variant: Variant) -> &mut Bench {
        let found = self.groups.range(hash..).next();
        let hash = found.map_or_else(
            || *self.groups.keys().next().expect("there are vectors"),
            |(hash, _)| *hash,
        );
        let group = self.groups.get_mut(&hash).expect("it was just found");
        group.benches.entry(variant).or_insert_with(|| {
            Bench::new(
                &format!("{} {variant:?}", group.name),
                variant.apply(&group.image),
            )
        })
    }

    /// Returns all cases, each with the hash of its node and the position of its port.
    pub fn cases(&self) -> impl Iterator<Item = (u32, u8, &Case)> {
        self.groups
            .iter()
            .flat_map(|(hash, group)| group.cases.iter().map(|(port, case)| (*hash, *port, case)))
    }

    /// Returns all nodes: name, tables, and cases with their ingress interfaces.
    pub fn each(&self) -> impl Iterator<Item = (&str, &Image, Vec<(u32, &Case)>)> {
        self.groups.values().map(|group| {
            let ports: Vec<u32> = group.image.ports.keys().copied().collect();
            let cases = group
                .cases
                .iter()
                .map(|(port, case)| (ports[usize::from(*port)], case))
                .collect();
            (group.name.as_str(), &group.image, cases)
        })
    }

    /// Returns all nodes: name, tables, and the frames of the cases with their ingress. The earlier
    /// frames of a case precede it.
    pub fn arrivals(&self) -> impl Iterator<Item = (&str, &Image, Vec<(u32, &[u8])>)> {
        self.groups.values().map(|group| {
            let frames = group.cases.iter().flat_map(|(_, case)| {
                let itself = std::iter::once((&case.port, &case.frame));
                let before = case.earlier.iter().map(|(port, frame)| (port, frame));
                before.chain(itself)
            });
            let frames = frames.map(|(port, frame)| (group.interfaces[port], frame.as_slice()));
            (group.name.as_str(), &group.image, frames.collect())
        })
    }
}

impl Group {
    fn new(file: VectorFile) -> Self {
        let node = config::File::parse(&file.node_text)
            .and_then(|parsed| parsed.node())
            .unwrap_or_else(|error| panic!("{}: {error}", file.group));
        let ports: BTreeSet<_> = node.links.keys().copied().collect();
        let compiled = Compiler::new(Limits::default())
            .compile(&node, &ports)
            .unwrap_or_else(|error| panic!("{}: {error}", file.group));
        let place = |name: &str| {
            node.links
                .values()
                .position(|link| link.name == name)
                .expect("checked by the reader") as u8
        };
        Self {
            cases: file
                .cases
                .iter()
                .map(|case| (place(&case.port), case.clone()))
                .collect(),
            interfaces: node
                .links
                .values()
                .map(|link| (link.name.clone(), link.ifindex.0))
                .collect(),
            name: file.group,
            image: compiled.image,
            benches: BTreeMap::new(),
        }
    }
}
