//! Validity (RFC 9256 5.1, 2.10): a segment list is valid while packets can be sent to its first segment, signed if they are
//! to be.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;

use ipnet::{IpNet, Ipv6Net};

use super::{Candidate, Policy, SegmentList};
use crate::behavior::Seg6Encap;
use crate::node::{IfIndex, LinkKind, Node, TableId};
use crate::route::{Encap, Family, NextHop, Route, RouteKey, RouteKind, Rule, RuleAction};

/// How a policy stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// The active candidate path, by its place: the first with a valid list. None: the policy is invalid.
    pub active: Option<usize>,
    /// Of each candidate path, each list.
    pub lists: Vec<Vec<ListValidity>>,
}

/// How a segment list stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListValidity {
    /// Links and addresses of the next hops toward its first segment, resolved or not. None of a SID of this node.
    pub next_hops: Vec<(IfIndex, IpAddr)>,
    /// The addresses whose routes decide: its first segment, and those of encapsulations on the way there.
    pub looked_up: Vec<Ipv6Addr>,
    /// What it leaves by, where not all next hops of the route to its first segment can be used: a flow that would go by one
    /// of the others would be lost.
    pub alone: Option<OnlyNextHop>,
    /// Why it is not valid, if it is not.
    pub invalid: Option<Invalid>,
}

/// The only one of several next hops that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnlyNextHop {
    /// Its link.
    pub dev: IfIndex,
    /// Its address there.
    pub via: IpAddr,
    /// Of the route, if that has one of its own.
    pub mtu: Option<u32>,
}

/// LIMIT: encapsulations of routes on the way to a first segment, one inside the other.
const NESTED_MAX: usize = 2;

/// Why a segment list is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// There is no route to its first segment.
    NoRoute(Ipv6Addr),
    /// The route to its first segment leads into a policy itself.
    Steered(Ipv6Addr, IpNet),
    /// The route to its first segment does not forward: its type.
    Refused(Ipv6Addr, RouteKind),
    /// The links to its first segment are down, or such that only the kernel can use them.
    NoLink(Ipv6Addr),
    /// No next hop toward its first segment is resolved: one of them.
    NoNeighbor(Ipv6Addr, IpAddr),
    /// Encapsulations on the way to its first segment are more than [`NESTED_MAX`] inside one another: the last of them is by
    /// the route to this address.
    Nested(Ipv6Addr),
    /// What it sends is to be signed, and there is no HMAC key with that id (RFC 8754 2.1.2).
    NoKey(u32),
    /// The path with this name, which has the same segment list, is down (RFC 9256 5.1: verification).
    PathDown(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute(segment) => write!(f, "no route to {segment}"),
            Self::Steered(segment, prefix) => {
                write!(f, "the route to {segment}, {prefix}, leads into a policy")
            }
            Self::Refused(segment, kind) => {
                let kind = format!("{kind:?}").to_lowercase();
                write!(f, "the route to {segment} is of type {kind}")
            }
            Self::NoLink(segment) => write!(f, "no link to {segment} that can be used"),
            Self::NoNeighbor(segment, via) if via == segment => {
                write!(f, "neighbor {segment} is not resolved")
            }
            Self::NoNeighbor(segment, via) => {
                write!(f, "neighbor {via} toward {segment} is not resolved")
            }
            Self::Nested(address) => write!(
                f,
                "the route to {address} encapsulates inside {NESTED_MAX} other encapsulations"
            ),
            Self::NoKey(id) => write!(f, "there is no HMAC key {id}"),
            Self::PathDown(name) => write!(f, "path {name} is down"),
        }
    }
}

/// How a policy of this node stands.
pub(super) fn of(node: &Node, policy: &Policy) -> Validity {
    let lists = |candidate: &Candidate| -> Vec<ListValidity> {
        let lists = candidate.lists.iter();
        lists.map(|list| by(node, policy, list)).collect()
    };
    let lists: Vec<_> = policy.candidates.iter().map(lists).collect();
    let is_valid = |lists: &Vec<ListValidity>| lists.iter().any(|list| list.invalid.is_none());
    Validity {
        active: lists.iter().position(is_valid),
        lists,
    }
}

/// How a list of a policy stands.
fn by(node: &Node, policy: &Policy, list: &SegmentList) -> ListValidity {
    let mut stands = toward(node, list.segments[0]);
    stands.invalid = stands.invalid.or_else(|| missing_key(node, policy.hmac));
    stands.invalid = stands.invalid.or_else(|| path_down(node, &list.segments));
    stands
}

impl Node {
    /// Returns the state of a segment list without an HMAC that begins with this segment.
    pub fn way_to(&self, segment: Ipv6Addr) -> ListValidity {
        toward(self, segment)
    }

    /// Returns the state of a segment list without an HMAC.
    pub fn state_of(&self, segments: &[Ipv6Addr]) -> ListValidity {
        let first = segments.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let mut stands = toward(self, first);
        stands.invalid = stands.invalid.or_else(|| path_down(self, segments));
        stands
    }
}

/// How a list with that first segment stands.
fn toward(node: &Node, segment: Ipv6Addr) -> ListValidity {
    let mut stands = ListValidity::default();
    stands.invalid = follow(node, segment, None, 0, &mut stands).err();
    stands
}

/// Follows the ways to a segment, and notes what decides over them. `only`: the table in which it is looked up, not those of
/// the rules. `nested`: encapsulations on the way so far.
fn follow(
    node: &Node,
    segment: Ipv6Addr,
    only: Option<TableId>,
    nested: usize,
    stands: &mut ListValidity,
) -> Result<(), Invalid> {
    stands.looked_up.push(segment);
    let found = match only {
        Some(table) => in_table(node, table, None, segment),
        None => tables(node).find_map(|(table, more)| in_table(node, table, more, segment)),
    };
    let route = match found {
        None => return Err(Invalid::NoRoute(segment)),
        Some(Found::Steered(prefix)) => return Err(Invalid::Steered(segment, prefix)),
        Some(Found::Route(route)) if route.kind == RouteKind::Unicast => route,
        Some(Found::Route(route)) => return Err(Invalid::Refused(segment, route.kind)),
    };
    if route.is_sid() {
        return Ok(());
    }
    let alive: Vec<&NextHop> = route.next_hops.iter().filter(|hop| !hop.dead).collect();
    let (mut resolved, mut why) = (vec![], None);
    for hop in &alive {
        if let Some(Encap::Seg6(encap)) = &hop.encap {
            // Its outer header is looked up next, whatever the link is.
            match outer(node, segment, encap, nested, stands) {
                Ok(()) => return Ok(()),
                Err(behind) => why = why.or(Some(behind)),
            }
        } else if let Some(dev) = hop.dev.filter(|_| can_use(node, hop)) {
            let key = (dev, hop.via.unwrap_or(segment.into()));
            stands.next_hops.push(key);
            match node.neighbors.get(&key).and_then(|it| it.lladdr) {
                Some(_) => resolved.push(key),
                None => why = why.or(Some(Invalid::NoNeighbor(segment, key.1))),
            }
        }
    }
    let Some(&(dev, via)) = resolved.iter().min() else {
        return Err(why.unwrap_or(Invalid::NoLink(segment)));
    };
    if nested == 0 && resolved.len() < alive.len() {
        let mtu = route.mtu;
        stands.alone = Some(OnlyNextHop { dev, via, mtu });
    }
    Ok(())
}

/// Follows the ways of what is encapsulated on the way to a segment.
fn outer(
    node: &Node,
    segment: Ipv6Addr,
    encap: &Seg6Encap,
    nested: usize,
    stands: &mut ListValidity,
) -> Result<(), Invalid> {
    if nested == NESTED_MAX {
        return Err(Invalid::Nested(segment));
    }
    if let Some(missing) = missing_key(node, encap.hmac) {
        return Err(missing);
    }
    match encap.segments.first() {
        Some(&first) => follow(node, first, encap.lookup, nested + 1, stands),
        None => Err(Invalid::NoLink(segment)),
    }
}

/// That the probes of the list get no answers.
fn path_down(node: &Node, segments: &[Ipv6Addr]) -> Option<Invalid> {
    let list = node.watched.lists.get(segments)?;
    list.is_down.then(|| Invalid::PathDown(list.path.clone()))
}

/// That there is no key to sign with.
fn missing_key(node: &Node, id: Option<u32>) -> Option<Invalid> {
    let missing = id.filter(|id| !node.hmac_keys.contains_key(id));
    missing.map(Invalid::NoKey)
}

fn can_use(node: &Node, hop: &NextHop) -> bool {
    let link = hop.dev.and_then(|dev| node.links.get(&dev));
    link.is_some_and(|link| {
        let only_kernel = matches!(
            link.kind,
            LinkKind::Loopback | LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }
        );
        link.up && !only_kernel
    }) && !matches!(hop.encap, Some(Encap::Unsupported(_)))
}

/// What the longest prefix of a table says.
enum Found<'a> {
    /// Forward by it, or whatever its type says.
    Route(&'a Route),
    /// Into a policy, by the route to this prefix.
    Steered(IpNet),
}

/// What a table says of a segment; none: to go on with the next one. A route into a policy counts also while it is not in
/// effect: whether it is may depend on this answer.
fn in_table(
    node: &Node,
    table: TableId,
    more_than: Option<u32>,
    segment: Ipv6Addr,
) -> Option<Found<'_>> {
    let is_plain = |key: &RouteKey| node.plain_route(key).is_some();
    let plain = longest(&node.routes, table, segment, is_plain);
    let steered = longest(&node.policies.routes, table, segment, |_| true);
    let length = |prefix: Option<IpNet>| prefix.map(|prefix| u32::from(prefix.prefix_len()));
    let found = length(plain).max(length(steered))?;
    if more_than.is_some_and(|bits| found <= bits) {
        return None;
    }
    if let Some(prefix) = steered.filter(|prefix| u32::from(prefix.prefix_len()) == found) {
        return Some(Found::Steered(prefix));
    }
    let route = node.plain_routes(table, plain?).next()?;
    let throws = route.kind == RouteKind::Throw;
    (!throws).then_some(Found::Route(route))
}

/// The longest prefix that contains an address, among the routes of a table that count and have no
/// source prefix. The search steps back through the preceding prefixes. Each of them bounds the
/// length of the longest one.
fn longest(
    routes: &BTreeMap<RouteKey, Route>,
    table: TableId,
    address: Ipv6Addr,
    counts: impl Fn(&RouteKey) -> bool,
) -> Option<IpNet> {
    let ends = |length| {
        let prefix = Ipv6Net::new_assert(address, length).trunc();
        super::any_metric(table, prefix.into()).into_inner()
    };
    let (first, _) = ends(0);
    let mut end = Bound::Included(ends(128).1);
    loop {
        let (key, _) = routes.range((Bound::Included(first), end)).next_back()?;
        let IpNet::V6(prefix) = key.prefix else {
            return None;
        };
        if prefix.contains(&address) {
            if key.from.is_none() && key.tos == 0 && counts(key) {
                return Some(key.prefix);
            }
            end = Bound::Excluded(*key);
        } else {
            let differ = prefix.network().to_bits() ^ address.to_bits();
            end = Bound::Included(ends(differ.leading_zeros() as u8).1);
        }
    }
}

/// The tables that packets are looked up in by the rules that select none of them: each with the length that a prefix must
/// exceed to count.
fn tables(node: &Node) -> impl Iterator<Item = (TableId, Option<u32>)> {
    let rules = node.rules.range((Family::V6, 0)..=(Family::V6, u32::MAX));
    let for_all = |rule: &&Rule| {
        !rule.invert
            && !rule.l3mdev
            && rule.iif.is_none()
            && rule.oif.is_none()
            && rule.from.is_none()
            && rule.to.is_none()
            && rule.unsupported.is_empty()
    };
    let rules = rules.flat_map(|(_, rules)| rules).filter(for_all);
    rules.filter_map(|rule| match rule.action {
        RuleAction::Table(table) => Some((table, rule.suppress_prefixlength)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"]}
neighbors: ["fc00::1 lladdr 02:00:00:00:00:11 dev eth0", "fc01::1 lladdr 02:00:00:00:00:12 dev eth1"]
rules: ["priority 40000 lookup 100", "priority 50 from fc0c::/16 lookup 200"]
policies:
- "p color 1 endpoint fc0a::1 bsid fc00::b1 segs fc0a::1"
routes:
- "2001:db8::/32 policy p"
"#;

    /// How a list with that first segment stands on the node with these routes.
    fn stands(routes: &[&str], segment: &str) -> String {
        let lines = routes.iter().map(|line| format!("- \"{line}\"\n"));
        let lines = lines.collect::<Vec<_>>().concat();
        let file = File::parse(&format!("{NODE}{lines}")).expect("a good file");
        let node = file.node().expect("a good node");
        let found = toward(&node, segment.parse().expect("a segment"));
        let why = found.invalid.map(|why| why.to_string());
        why.unwrap_or_else(|| format!("valid by {:?}", found.next_hops))
    }

    #[test]
    fn of_several_next_hops_one_that_is_resolved_is_taken_alone_while_another_is_not() {
        let alone = |vias: &str| {
            let file = File::parse(&format!("{NODE}- \"fc0a::/16 mtu 1400{vias}\"\n"));
            let node = file.and_then(|file| file.node()).expect("a good node");
            let segment = "fc0a::1".parse().expect("a segment");
            let alone = toward(&node, segment).alone;
            alone.map(|it| (it.dev.0, it.via.to_string(), it.mtu))
        };
        let (known, unknown) = (" nexthop via fc01::1", " nexthop via fc00::9");
        assert_eq!(alone(" via fc01::1"), None);
        assert_eq!(alone(&format!("{known} nexthop via fc00::1")), None);
        let only = Some((2, "fc01::1".to_owned(), Some(1400)));
        for vias in [[unknown, known], [known, unknown]] {
            assert_eq!(alone(&vias.concat()), only);
        }
        let dead = format!("{known}{unknown} dead");
        assert_eq!(alone(&dead), None, "nothing goes by it");
    }

    #[test]
    fn a_list_that_is_to_be_signed_waits_for_its_key() {
        let text = NODE.replace(
            "policies:",
            "policies:\n- \"s color 2 endpoint ::1 hmac 7 segs fc00::1\"",
        );
        let node = |more: &str| {
            let file = File::parse(&format!("{text}{more}")).expect("a good file");
            file.node().expect("a good node")
        };
        let without = node("");
        let (_, validity) = without.policies.get("s").expect("it is defined");
        assert_eq!(validity.active, None);
        assert_eq!(validity.lists[0][0].invalid, Some(Invalid::NoKey(7)));
        assert_eq!(validity.lists[0][0].next_hops.len(), 1, "asked for as ever");
        let with = node("hmac: {7: {algorithm: sha256, secret: abc}}\n");
        let (_, validity) = with.policies.get("s").expect("it is defined");
        assert_eq!(validity.active, Some(0));
    }

    const ETH0: &str = "valid by [(IfIndex(1), fc00::1)]";
    const ETH1: &str = "valid by [(IfIndex(2), fc01::1)]";

    /// Routes beside those of `stands`, a first segment, and its verdict.
    const RESOLVED: &[(&[&str], &str, &str)] = &[
        (&[], "fc0a::1", "no route to fc0a::1"),
        (&["default via fc00::1 dev eth0"], "fc0a::1", ETH0),
        (
            &["fc0a::/16 via fc00::1", "fc0a::/32 via fc01::1"],
            "fc0a::1",
            ETH1,
        ),
        (
            &["fc0a::/16 via fc00::1", "fc0a::2/127 via fc01::1"],
            "fc0a::1",
            ETH0,
        ),
        (
            &[
                "fc0a::/16 via fc00::1",
                "fc0a::/48 from fc0c::/16 via fc01::1",
            ],
            "fc0a::1",
            ETH0,
        ),
        (
            &[
                "fc0a::/16 via fc00::1 metric 7",
                "fc0a::/16 via fc01::1 metric 5",
            ],
            "fc0a::1",
            ETH1,
        ),
        (&["fc0a::/16 via fc00::1 table 100"], "fc0a::1", ETH0),
        (
            &["fc0a::/16 via fc00::1 table 200"],
            "fc0a::1",
            "no route to fc0a::1",
        ),
        (
            &[
                "throw fc0a::/16",
                "fc00::/8 via fc01::1",
                "fc00::/8 via fc00::1 table 100",
            ],
            "fc0a::1",
            ETH0,
        ),
        (
            &["fc0a::/16 via fc00::9"],
            "fc0a::1",
            "neighbor fc00::9 toward fc0a::1 is not resolved",
        ),
        (
            &["fc0a::/16 nexthop via fc00::9 nexthop via fc01::1"],
            "fc0a::1",
            "valid by [(IfIndex(1), fc00::9), (IfIndex(2), fc01::1)]",
        ),
        (&[], "fc01::1", ETH1),
        (&[], "fc01::9", "neighbor fc01::9 is not resolved"),
        (
            &["unreachable fc0a::/16"],
            "fc0a::1",
            "the route to fc0a::1 is of type unreachable",
        ),
        (
            &["fc0a::/16 via fc00::1 dead"],
            "fc0a::1",
            "no link to fc0a::1 that can be used",
        ),
        (
            &["fc0a::1/128 encap seg6local action End dev eth0"],
            "fc0a::1",
            "valid by []",
        ),
        (
            &["fc0a::/16 encap seg6 mode encap segs fc01::1,fc0d::1 dev eth0"],
            "fc0a::1",
            ETH1,
        ),
        (
            &["fc0a::/16 encap seg6 mode encap segs fc01::9 dev eth0"],
            "fc0a::1",
            "neighbor fc01::9 is not resolved",
        ),
        (
            &["fc0a::/16 encap seg6 mode encap segs fc01::1 hmac 7 dev eth0"],
            "fc0a::1",
            "there is no HMAC key 7",
        ),
        (
            &["fc0a::/16 encap seg6 mode encap segs fc0a::2 dev eth0"],
            "fc0a::1",
            "the route to fc0a::2 encapsulates inside 2 other encapsulations",
        ),
        (&[], "fc00::2", "the route to fc00::2 is of type local"),
        (
            &[],
            "fc00::b1",
            "the route to fc00::b1, fc00::b1/128, leads into a policy",
        ),
        (
            &["default via fc00::1"],
            "2001:db8::1",
            "the route to 2001:db8::1, 2001:db8::/32, leads into a policy",
        ),
        (&["2001:db8:1::/48 via fc00::1"], "2001:db8:1::1", ETH0),
    ];

    #[test]
    fn a_first_segment_is_resolved_by_the_longest_route_to_a_neighbor_that_is_known() {
        for (routes, segment, expected) in RESOLVED {
            assert_eq!(
                &stands(routes, segment),
                expected,
                "{segment} by {routes:?}"
            );
        }
    }
}
