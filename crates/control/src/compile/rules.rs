//! Policy rules (RPDB) for one port: a chain of tables for each range of source addresses. The
//! ingress interface is resolved here, destinations in the merged tables. Rules therefore cost a
//! packet at most one lookup by its source, whatever their number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_model::route::{Family, RouteKey, RouteKind, Rule, RuleAction};

use super::chain::{Chain, Destinations, RuleEffect, Step};
use super::tables::{Prefix, Table};

/// LIMIT: chains for the rules of one port; each needs a view, of which there are 4096.
pub(crate) const CHAINS_MAX: usize = 2048;
/// LIMIT: number of rules with `from` times number of other rules, which occur in each chain.
const STEPS_MAX: usize = 1 << 20;

/// Origin of packets, as far as rules distinguish it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source<'a> {
    /// Interface that `iif` matches; none if no rule names it.
    pub iif: Option<&'a str>,
    /// VRF that `iif` also matches on some kernel versions.
    pub maybe_iif: Option<&'a str>,
    /// Table of the receiving VRF.
    pub vrf: Option<TableId>,
}

impl<'a> Source<'a> {
    /// Returns the source for packets of a port. For IPv6, a VRF receives its members' packets,
    /// also for rules (`net/ipv6/ip6_input.c`, `ip6_rcv_finish`). For IPv4 it is the member
    /// (`net/ipv4/ip_input.c`, `ip_rcv_finish`). Since Linux 6.15 both match
    /// (`fib_rule_iif_match`).
    pub(crate) fn port(node: &'a Node, port: IfIndex, family: Family) -> Option<Self> {
        let link = node.links.get(&port)?;
        let master = link.master.and_then(|master| node.links.get(&master));
        let vrf = master.and_then(|master| match master.kind {
            LinkKind::Vrf { table } => Some((master, table)),
            _ => None,
        });
        let (member, master) = (&*link.name, vrf.map(|(master, _)| &*master.name));
        let (iif, maybe_iif) = match family {
            Family::V4 => (member, master),
            Family::V6 => (master.unwrap_or(member), None),
        };
        Some(Self {
            iif: Some(iif),
            maybe_iif,
            vrf: vrf.map(|(_, table)| table),
        })
    }

    /// Returns the source for a SID with `vrftable`: as if the VRF received the packet
    /// (`net/ipv6/seg6_local.c`, `end_dt_vrf_rcv`).
    pub(crate) fn vrf(node: &'a Node, table: TableId) -> Self {
        let mut links = node.links.values();
        let vrf = links.find(|link| link.kind == LinkKind::Vrf { table });
        Self {
            iif: vrf.map(|link| link.name.as_str()),
            maybe_iif: None,
            vrf: Some(table),
        }
    }
}

/// Returns the interfaces that rules with `iif` name.
pub(crate) fn named(node: &Node) -> BTreeSet<String> {
    let rules = node.rules.values().flatten();
    rules.filter_map(|rule| rule.iif.clone()).collect()
}

/// Rule chains by source address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chains {
    /// Distinct chains. The first one is for sources that no rule names.
    distinct: Vec<Chain>,
    /// Index in `distinct` for source prefixes; the longest match applies.
    sources: BTreeMap<Prefix, usize>,
}

impl From<Chain> for Chains {
    fn from(chain: Chain) -> Self {
        Self {
            distinct: vec![chain],
            sources: BTreeMap::from([(Prefix::DEFAULT, 0)]),
        }
    }
}

impl Chains {
    /// Returns the chain of all packets, if there is only one.
    pub(crate) fn only(&self) -> Option<&Chain> {
        match &self.distinct[..] {
            [chain] => Some(chain),
            _ => None,
        }
    }

    /// IPv4 or IPv6.
    pub(crate) fn family(&self) -> Family {
        self.distinct[0].family
    }

    /// Whether some chain searches this table.
    pub(crate) fn ask(&self, table: TableId) -> bool {
        let mut tables = self.distinct.iter().flat_map(Chain::tables);
        tables.any(|asked| asked == table)
    }

    /// Returns all chains.
    pub(crate) fn distinct(&self) -> &[Chain] {
        &self.distinct
    }

    /// Source prefixes, each with the index of its chain.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (Prefix, usize)> {
        self.sources.iter().map(|(prefix, place)| (*prefix, *place))
    }

    /// Returns the chain for packets from this address.
    pub(crate) fn of(&self, source: IpAddr) -> &Chain {
        let host = Prefix::host(source);
        let longest = (0..=host.length)
            .rev()
            .find_map(|length| self.sources.get(&host.shortened(length)));
        &self.distinct[longest.copied().unwrap_or(0)]
    }

    /// Returns chains that leave all packets to the kernel, except for those with routes of
    /// Sidestep.
    pub(crate) fn after_punt(&self, why: &str) -> Self {
        Self {
            distinct: self.distinct.iter().map(|it| it.after_punt(why)).collect(),
            sources: self.sources.clone(),
        }
    }

    /// Returns why some packets require the kernel, if any do.
    pub(crate) fn punt_reason(&self) -> Option<&str> {
        let mut steps = self.distinct.iter().flat_map(|chain| &chain.steps);
        steps.find_map(|step| match &step.effect {
            RuleEffect::Punt(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

/// A rule, or half of an inverted one, for packets from one origin.
struct Part {
    /// Selected sources; true inverts the prefix. None: all sources.
    from: Option<(Prefix, bool)>,
    step: Step,
}

/// Returns the chains for packets from `source`, or why such packets are punted.
pub(crate) fn chains(node: &Node, family: Family, source: Source<'_>) -> Result<Chains, String> {
    let rules = node.rules.range((family, 0)..=(family, u32::MAX));
    let parts: Vec<Part> = rules
        .flat_map(|(_, rules)| rules)
        // The port alone determines the return path of a service.
        .filter(|rule| !matches!(rule.action, RuleAction::Proxies(_)))
        .flat_map(|rule| parts(rule, source))
        .collect();
    let named: BTreeSet<Prefix> = parts
        .iter()
        .filter_map(|it| it.from)
        .map(|it| it.0)
        .collect();
    let of_all = parts.iter().filter(|part| part.from.is_none()).count();
    if named.len() * of_all > STEPS_MAX {
        return Err(format!(
            "rules for {} sources beside {of_all} for all: more than {STEPS_MAX} together",
            named.len()
        ));
    }
    let by_source = BySource::new(&parts);
    let any = Arc::new(by_source.chain(family, Prefix::DEFAULT));
    let mut places = BTreeMap::from([((*any).clone(), 0)]);
    let mut sources = Table::default();
    sources.insert(Prefix::DEFAULT, 0);
    // In this order a prefix comes after those that cover it.
    for prefix in named {
        let chain = by_source.chain(family, prefix).leading_into(&any);
        let next = places.len();
        let place = *places.entry(chain).or_insert(next);
        if sources.longest_match(prefix).map(|(_, place)| *place) != Some(place) {
            sources.insert(prefix, place);
        }
    }
    if places.len() > CHAINS_MAX {
        return Err(format!(
            "rules for {} sources make {} chains of tables; up to {CHAINS_MAX} are possible",
            by_source.of_prefix.iter().count(),
            places.len()
        ));
    }
    let mut distinct: Vec<(Chain, usize)> = places.into_iter().collect();
    distinct.sort_unstable_by_key(|(_, place)| *place);
    Ok(Chains {
        distinct: distinct.into_iter().map(|(chain, _)| chain).collect(),
        sources: sources
            .iter()
            .map(|(prefix, place)| (*prefix, *place))
            .collect(),
    })
}

/// Parts by source, so that the parts for one source are found directly.
struct BySource<'a> {
    parts: &'a [Part],
    /// Positions of the parts for sources within a prefix.
    of_prefix: Table<Vec<usize>>,
    /// Positions of the other parts.
    others: Vec<usize>,
}

impl<'a> BySource<'a> {
    fn new(parts: &'a [Part]) -> Self {
        let mut of_prefix: BTreeMap<Prefix, Vec<usize>> = BTreeMap::new();
        let mut others = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            match part.from {
                Some((prefix, false)) => of_prefix.entry(prefix).or_default().push(place),
                _ => others.push(place),
            }
        }
        Self {
            parts,
            of_prefix: of_prefix.into_iter().collect(),
            others,
        }
    }

    /// Returns the chain for a source prefix that no rule divides.
    fn chain(&self, family: Family, source: Prefix) -> Chain {
        let outside = |place: &&usize| match self.parts[**place].from {
            Some((prefix, _)) => !prefix.covers(source),
            None => true,
        };
        let mut places: Vec<usize> = self.others.iter().filter(outside).copied().collect();
        for (_, within) in self.of_prefix.covering(source) {
            places.extend(within);
        }
        places.sort_unstable();
        let mut chain = Chain::of_tables(family, &[]);
        for place in places {
            if !chain.push(&self.parts[place].step) {
                break;
            }
        }
        chain
    }
}

/// Returns the parts of a rule for one origin: none, one, or two for `not`, which inverts all
/// selectors together.
fn parts(rule: &Rule, source: Source<'_>) -> Vec<Part> {
    let Source {
        iif: name,
        maybe_iif,
        vrf,
    } = source;
    let unsure = rule.iif.is_some() && rule.iif.as_deref() == maybe_iif;
    // A packet that is forwarded has no output interface yet, so an `oif` rule never matches it.
    let here = rule.oif.is_none()
        && rule
            .iif
            .as_deref()
            .is_none_or(|iif| name == Some(iif) || unsure)
        && (!rule.l3mdev || vrf.is_some());
    let part = |from: Option<(Prefix, bool)>, to: Option<(IpNet, bool)>| Part {
        from,
        step: Step {
            to: to.map(|(prefix, inverted)| Destinations { prefix, inverted }),
            effect: effect(rule, vrf, unsure),
        },
    };
    let narrows = |net: &Option<IpNet>| net.filter(|net| net.prefix_len() > 0);
    let (from, to) = (narrows(&rule.from), narrows(&rule.to));
    let within = from.map(|from| (Prefix::from(from), false));
    match (rule.invert, here) {
        (false, false) => vec![],
        (false, true) => vec![part(within, to.map(|to| (to, false)))],
        (true, false) => vec![part(None, None)],
        // With an unknown selector it may match any packet.
        (true, true) if unsure || !rule.unsupported.is_empty() => vec![part(None, None)],
        (true, true) => {
            let outside = from.map(|from| part(Some((from.into(), true)), None));
            let elsewhere = to.map(|to| part(within, Some((to, true))));
            outside.into_iter().chain(elsewhere).collect()
        }
    }
}

fn effect(rule: &Rule, vrf: Option<TableId>, unsure: bool) -> RuleEffect {
    if unsure {
        return RuleEffect::Punt(format!(
            "rule {}: whether IPv4 packets of a VRF member match its `iif` depends on the \
             kernel's version",
            rule.priority
        ));
    }
    if !rule.unsupported.is_empty() {
        let words = rule.unsupported.join(", ");
        return RuleEffect::Punt(format!(
            "rule {}: {words} requires the kernel",
            rule.priority
        ));
    }
    match rule.action {
        RuleAction::Table(table) => RuleEffect::Lookup {
            table: vrf.filter(|_| rule.l3mdev).unwrap_or(table),
            suppress: rule
                .suppress_prefixlength
                .map(|length| length.try_into().unwrap_or(u8::MAX)),
        },
        RuleAction::Blackhole => RuleEffect::Refuse(RouteKind::Blackhole),
        RuleAction::Unreachable => RuleEffect::Refuse(RouteKind::Unreachable),
        RuleAction::Prohibit => RuleEffect::Refuse(RouteKind::Prohibit),
        RuleAction::Proxies(_) | RuleAction::Other => RuleEffect::Punt(format!(
            "rule {}: its action is not a lookup",
            rule.priority
        )),
    }
}

/// Returns the chain for the `table` of a SID. Local addresses are in table `local`, and packets to
/// them are punted. If the kernel searches `local` and `main` in this order, the result is the
/// kernel's own chain, so that the kernel can continue with a decapsulated packet.
pub(crate) fn of_table(node: &Node, family: Family, table: TableId) -> Chain {
    if table != TableId::MAIN {
        return Chain::table(family, table);
    }
    let tables = [TableId::LOCAL, TableId::MAIN];
    let in_use = |table: &TableId| tables.contains(table) || has_routes(node, family, *table);
    let own = chains(node, family, Source::default()).ok();
    let own = own.and_then(|chains| chains.only().cloned());
    own.filter(|own| {
        let plain: Option<Vec<TableId>> = own.steps.iter().map(Step::plain).collect();
        plain.is_some_and(|plain| plain.iter().filter(|it| in_use(it)).eq(&tables))
    })
    .unwrap_or_else(|| Chain::of_tables(family, &tables))
}

/// Whether a table has any routes of a family.
fn has_routes(node: &Node, family: Family, table: TableId) -> bool {
    let all = match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    };
    let first = RouteKey {
        table,
        metric: 0,
        ..RouteKey::new(all)
    };
    let next = node.routes.range(first..).next();
    next.is_some_and(|(key, route)| key.table == table && route.family() == family)
}

#[cfg(test)]
mod tests {
    use sidestep_model::config::File;
    use sidestep_model::grammar::{Context, rule};
    use sidestep_model::route::Owner;

    use super::*;

    /// A node with exactly these IPv6 rules, in this order.
    fn node(rules: &[&str]) -> Node {
        let mut node = Node::default();
        for (priority, line) in (100..).zip(rules) {
            let ctx = Context {
                names: &Node::default(),
                family: Some(Family::V6),
                owner: Owner::Kernel,
            };
            let line = format!("{line} priority {priority}");
            let read = rule::parse_line(&line, &ctx, &rule::Rules::new()).expect("a rule");
            node.rules.insert((Family::V6, priority), read);
        }
        node
    }

    fn of(node: &Node, name: &str) -> Result<Chains, String> {
        let source = Source {
            iif: Some(name),
            ..Source::default()
        };
        chains(node, Family::V6, source)
    }

    fn tables(chain: &Chain) -> Vec<u32> {
        chain.tables().map(|table| table.0).collect()
    }

    /// Tables for packets from `source` that arrive on eth0.
    fn from(node: &Node, source: &str) -> Vec<u32> {
        let chains = of(node, "eth0").expect("chains");
        tables(chains.of(source.parse().expect("an address")))
    }

    #[test]
    fn only_the_rules_of_the_port_are_in_its_chain() {
        let node = node(&[
            "lookup local",
            "iif eth0 lookup 7",
            "iif eth1 lookup 8",
            "oif eth0 lookup 9",
            "lookup main",
        ]);
        for (name, want) in [
            ("eth0", &[255, 7, 254][..]),
            ("eth1", &[255, 8, 254]),
            ("eth2", &[255, 254]),
        ] {
            assert_eq!(tables(of(&node, name).unwrap().only().unwrap()), want);
        }
    }

    #[test]
    fn a_vrf_member_is_the_vrf_to_ipv6_rules_only() {
        let mut node = node(&[
            "iif eth0 lookup 7",
            "iif red lookup 8",
            "l3mdev",
            "lookup main",
        ]);
        let ports = File::parse("ports: {eth0: {}, eth1: {}, red: {}}\n");
        node.links = ports.and_then(|it| it.node()).expect("a node").links;
        let table = TableId(100);
        node.links.get_mut(&IfIndex(3)).expect("red").kind = LinkKind::Vrf { table };
        node.links.get_mut(&IfIndex(1)).expect("eth0").master = Some(IfIndex(3));
        let of = |source| {
            let chains = chains(&node, Family::V6, source).expect("chains");
            assert_eq!(chains.punt_reason(), None);
            tables(chains.only().expect("one for all"))
        };
        let source =
            |ifindex, family| Source::port(&node, IfIndex(ifindex), family).expect("a port");
        assert_eq!(of(source(1, Family::V6)), [8, 100, 254]);
        assert_eq!(of(source(2, Family::V6)), [254]);
        // By the IPv6 rules, the only ones here: `iif` matches the member, and possibly the VRF.
        let four = chains(&node, Family::V6, source(1, Family::V4)).expect("chains");
        let only = four.only().expect("one for all");
        assert_eq!(tables(only), [7, 100, 254]);
        assert!(
            four.punt_reason()
                .is_some_and(|why| why.contains("depends on the kernel's version"))
        );
        assert_eq!(of(Source::vrf(&node, TableId(100))), [8, 100, 254]);
        assert_eq!(of(Source::vrf(&node, TableId(5))), [5, 254]);
        assert_eq!(named(&node), ["eth0", "red"].map(String::from).into());
    }

    #[test]
    fn a_rule_for_returned_packets_does_not_affect_forwarding() {
        let node = node(&[
            "lookup local",
            "from fd00::/8 seg6local-behaviour End.AD",
            "lookup main",
        ]);
        let chains = of(&node, "eth0").expect("chains");
        assert_eq!(tables(chains.only().expect("one for all")), [255, 254]);
    }

    #[test]
    fn rules_with_from_make_a_chain_per_source_range() {
        let node = node(&[
            "lookup local",
            "from fc05::/16 lookup 7",
            "from fc05:1::/32 lookup 8",
            "from fc06::/16 lookup 7",
            "iif eth1 from fc07::/16 lookup 9",
            "lookup main",
        ]);
        // The chain continues with the common one, which searches table local again.
        assert_eq!(from(&node, "fc05::1"), [255, 7, 255, 254]);
        assert_eq!(from(&node, "fc05:1::1"), [255, 7, 8, 255, 254]);
        assert_eq!(from(&node, "fc06::1"), [255, 7, 255, 254]);
        assert_eq!(from(&node, "fc07::1"), [255, 254]);
        assert_eq!(
            of(&node, "eth0").unwrap().distinct().len(),
            3,
            "equal ones are one"
        );
    }

    #[test]
    fn not_inverts_all_selectors_together() {
        let node = node(&[
            "not from fc05::/16 lookup 7",
            "not from fc06::/16 to fc01::/16 lookup 8",
            "not iif eth1 lookup 9",
            "not iif eth0 lookup 10",
        ]);
        assert_eq!(from(&node, "fc05::1"), [8, 9]);
        assert_eq!(from(&node, "fc06::1"), [7, 8, 9]);
        let chains = of(&node, "eth0").unwrap();
        let to = |source: &str, table: u32| {
            let chain = chains.of(source.parse().unwrap());
            let step = chain
                .all_steps()
                .find(|step| step.effect == Step::lookup(TableId(table)).effect);
            step.unwrap().to.map(|to| to.inverted)
        };
        assert_eq!((to("fc05::1", 8), to("fc06::1", 8)), (None, Some(true)));
    }

    #[test]
    fn only_packets_that_a_mark_rule_may_select_are_punted() {
        let node = node(&[
            "lookup local",
            "iif eth0 from fc05::/16 fwmark 0x7 lookup 7",
            "lookup main",
        ]);
        assert_eq!(of(&node, "eth1").unwrap().punt_reason(), None);
        let chains = of(&node, "eth0").unwrap();
        assert_eq!(
            chains.punt_reason(),
            Some("rule 101: fwmark 0x7 requires the kernel")
        );
        // The tables behind the rule have Sidestep's own routes.
        assert_eq!(from(&node, "fc05::1"), [255, 254]);
        assert_eq!(from(&node, "fc06::1"), [255, 254]);
    }

    #[test]
    fn many_sources_share_chains_up_to_a_limit() {
        let lines = |tables: u32| {
            (0..10_000u32)
                .map(move |n| format!("from fc05:{n:x}::/32 lookup {}", 1000 + n % tables))
        };
        let with = |tables| {
            let lines: Vec<String> = lines(tables).chain(["lookup main".into()]).collect();
            node(&lines.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let chains = of(&with(100), "eth0").expect("chains");
        assert_eq!(chains.distinct().len(), 101);
        assert_eq!(
            tables(chains.of("fc05:107::1".parse().unwrap())),
            [1000 + 0x107 % 100, 254]
        );
        let refused = of(&with(5000), "eth0").expect_err("too many");
        assert_eq!(
            refused,
            "rules for 10000 sources make 5001 chains of tables; up to 2048 are possible"
        );
    }

    #[test]
    fn main_of_a_sid_is_the_kernels_own_chain_without_rules() {
        let of = |node: &Node, table| -> Vec<u32> {
            let chain = of_table(node, Family::V6, TableId(table));
            chain.tables().map(|t| t.0).collect()
        };
        let usual = node(&["lookup local", "lookup main", "lookup default"]);
        assert_eq!(of(&usual, 254), [255, 254, 253], "253 is empty");
        assert_eq!(of(&usual, 100), [100]);
        let ruled = node(&["lookup local", "lookup main", "lookup 7"]);
        assert_eq!(of(&ruled, 254), [255, 254, 7], "7 is empty, too");
        let reversed = node(&["lookup main", "lookup local"]);
        assert_eq!(of(&reversed, 254), [255, 254]);
        let sources = node(&["lookup local", "from fc05::/16 lookup 9", "lookup main"]);
        assert_eq!(of(&sources, 254), [255, 254]);
    }
}
