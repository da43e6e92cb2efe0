//! Policy rules (RPDB) compiled for one port: the tables that a packet from it is looked up in, in order. So rules cost
//! a packet nothing.

use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_model::route::{Family, RouteKey, RouteKind, RuleAction};

/// The tables that are consulted one after the other, and what ends the search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Tables in the order of their rules.
    pub tables: Vec<TableId>,
    /// A rule without `lookup` behind them: blackhole, unreachable or prohibit.
    pub last: Option<RouteKind>,
}

impl Chain {
    /// One table alone, as End.T and the like use it.
    pub fn table(family: Family, table: TableId) -> Self {
        Self {
            family,
            tables: vec![table],
            last: None,
        }
    }
}

/// Where packets come from, as far as rules tell them apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// An interface of that name and its VRF's table.
    Port { name: &'a str, vrf: Option<TableId> },
    /// A decapsulating SID with `vrftable`: as if received by that VRF.
    Vrf(TableId),
}

impl<'a> Source<'a> {
    pub(crate) fn port(node: &'a Node, port: IfIndex) -> Option<Self> {
        let link = node.links.get(&port)?;
        let vrf = link
            .master
            .and_then(|master| match node.links.get(&master)?.kind {
                LinkKind::Vrf { table } => Some(table),
                _ => None,
            });
        Some(Self::Port {
            name: &link.name,
            vrf,
        })
    }
}

/// The chain for `table` of a SID. The addresses of the node itself are not in `main` but in `local`, and packets for
/// them are the kernel's to take. Where the kernel asks these two in that order anyway, it is the kernel's own chain:
/// then the kernel can go on with a decapsulated packet, and resolve its next hop.
pub(crate) fn of_table(node: &Node, family: Family, table: TableId) -> Chain {
    if table != TableId::MAIN {
        return Chain::table(family, table);
    }
    let tables = vec![TableId::LOCAL, TableId::MAIN];
    let source = Source::Port {
        name: "",
        vrf: None,
    };
    let in_use = |table: &TableId| {
        let of_table = |key: &RouteKey| {
            key.table == *table && key.prefix.addr().is_ipv4() == (family == Family::V4)
        };
        tables.contains(table) || node.routes.keys().any(of_table)
    };
    match chain(node, family, source) {
        Ok(own) if own.last.is_none() && own.tables.iter().filter(|t| in_use(t)).eq(&tables) => own,
        _ => Chain {
            family,
            tables,
            last: None,
        },
    }
}

/// The chain for packets from `source`, or why the rules cannot be compiled: such packets are the kernel's.
pub(crate) fn chain(node: &Node, family: Family, source: Source<'_>) -> Result<Chain, String> {
    let (name, vrf) = match source {
        Source::Port { name, vrf } => (Some(name), vrf),
        Source::Vrf(table) => (None, Some(table)),
    };
    let mut chain = Chain {
        family,
        tables: Vec::new(),
        last: None,
    };
    for rule in node
        .rules
        .range((family, 0)..=(family, u32::MAX))
        .flat_map(|(_, rules)| rules)
    {
        let is_any =
            |prefix: &Option<ipnet::IpNet>| prefix.is_none_or(|prefix| prefix.prefix_len() == 0);
        // A packet that is forwarded has no output interface yet, so an `oif` rule never matches it.
        let matches = rule.oif.is_none()
            && rule.iif.as_deref().is_none_or(|iif| name == Some(iif))
            && (!rule.l3mdev || vrf.is_some());
        if !rule.unsupported.is_empty() || !is_any(&rule.from) || !is_any(&rule.to) {
            if rule.invert || matches {
                return Err(format!(
                    "rule {}: selects by more than iif, which is the kernel's to match",
                    rule.priority
                ));
            }
            continue;
        }
        if matches == rule.invert {
            continue;
        }
        match rule.action {
            RuleAction::Table(table) => {
                let table = if rule.l3mdev {
                    vrf.unwrap_or(table)
                } else {
                    table
                };
                if !chain.tables.contains(&table) {
                    chain.tables.push(table);
                }
            }
            RuleAction::Blackhole => chain.last = Some(RouteKind::Blackhole),
            RuleAction::Unreachable => chain.last = Some(RouteKind::Unreachable),
            RuleAction::Prohibit => chain.last = Some(RouteKind::Prohibit),
            RuleAction::Other => {
                return Err(format!(
                    "rule {}: its action is not a lookup",
                    rule.priority
                ));
            }
        }
        if chain.last.is_some() {
            break;
        }
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_model::route::{Owner, Rule};

    fn node(rules: &[(u32, Option<&str>, u32)]) -> Node {
        let mut node = Node::default();
        for &(priority, iif, table) in rules {
            node.rules
                .entry((Family::V6, priority))
                .or_default()
                .push(Rule {
                    family: Family::V6,
                    priority,
                    invert: false,
                    iif: iif.map(String::from),
                    oif: None,
                    from: None,
                    to: None,
                    l3mdev: false,
                    action: RuleAction::Table(TableId(table)),
                    unsupported: Vec::new(),
                    owner: Owner::Kernel,
                });
        }
        node
    }

    fn tables(node: &Node, name: &str) -> Result<Vec<u32>, String> {
        chain(node, Family::V6, Source::Port { name, vrf: None })
            .map(|c| c.tables.iter().map(|t| t.0).collect())
    }

    #[test]
    fn only_the_rules_of_the_port_are_in_its_chain() {
        let node = node(&[
            (0, None, 255),
            (100, Some("eth0"), 7),
            (101, Some("eth1"), 8),
            (32766, None, 254),
        ]);
        assert_eq!(tables(&node, "eth0"), Ok(vec![255, 7, 254]));
        assert_eq!(tables(&node, "eth1"), Ok(vec![255, 8, 254]));
        assert_eq!(tables(&node, "eth2"), Ok(vec![255, 254]));
    }

    #[test]
    fn main_of_a_sid_is_the_kernels_own_chain_where_no_rule_says_otherwise() {
        let of = |node: &Node, table| -> Vec<u32> {
            let chain = of_table(node, Family::V6, TableId(table));
            chain.tables.iter().map(|t| t.0).collect()
        };
        let usual = node(&[(0, None, 255), (32766, None, 254), (32767, None, 253)]);
        assert_eq!(of(&usual, 254), [255, 254, 253], "253 is empty");
        assert_eq!(of(&usual, 100), [100]);
        let ruled = node(&[(0, None, 255), (32766, None, 254), (32767, None, 7)]);
        assert_eq!(of(&ruled, 254), [255, 254, 7], "7 is empty, too");
        let reversed = node(&[(0, None, 254), (32766, None, 255)]);
        assert_eq!(of(&reversed, 254), [255, 254]);
    }

    #[test]
    fn a_rule_that_needs_the_packet_leaves_only_the_ports_that_it_concerns_to_the_kernel() {
        let mut node = node(&[(0, None, 255), (100, Some("eth0"), 7)]);
        node.rules.get_mut(&(Family::V6, 100)).unwrap()[0].from =
            Some("fc00::/16".parse().unwrap());
        assert!(tables(&node, "eth0").is_err());
        assert_eq!(tables(&node, "eth1"), Ok(vec![255]));
    }
}
