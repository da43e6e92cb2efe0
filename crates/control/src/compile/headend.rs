//! Headends: encapsulation, source address, and the next hop toward the first segment.

use std::cmp::Reverse;
use std::net::Ipv6Addr;
use std::sync::Arc;

use sidestep_datapath::abi::{
    SIDESTEP_FLOW_LABEL_COMPUTE, SIDESTEP_FLOW_LABEL_COPY, SIDESTEP_FLOW_LABEL_ZERO,
    SIDESTEP_ROUTE_HEADEND, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, KeySlot, ViewId};
use sidestep_model::behavior::{SEGMENTS_MAX, Seg6Encap};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::policy::OnlyNextHop;
use sidestep_model::route::{Family, NextHop};

use super::chain::Chain;
use super::error::{Skip, unsupported};
use super::group::{NextHopResolution, ResolvedHop};
use super::header;
use super::index::PolicyInfo;
use super::keys::{PolicyKey, Via};
use super::record::record;
use super::routes::RouteCompiler;
use super::rules::{self, Chains};

/// LIMIT: distinct rule chains of the ports, up to which a first segment is resolved in advance.
const PORT_CHAINS_MAX: usize = 8;

impl RouteCompiler<'_> {
    /// Returns the record of a route whose next hop pushes a segment list.
    pub(super) fn headend(
        &mut self,
        family: Family,
        next_hop: &NextHop,
        encap: &Seg6Encap,
    ) -> Result<sidestep_route, Skip> {
        self.headend_by(family, next_hop, encap, None)
    }

    /// Like [`RouteCompiler::headend`], with `alone` as the only next hop toward the first segment.
    pub(super) fn headend_by(
        &mut self,
        family: Family,
        next_hop: &NextHop,
        encap: &Seg6Encap,
        alone: Option<OnlyNextHop>,
    ) -> Result<sidestep_route, Skip> {
        if encap.segments.is_empty() || encap.segments.len() > SEGMENTS_MAX {
            return unsupported(format!(
                "{} segments; 1 to {SEGMENTS_MAX} are possible",
                encap.segments.len()
            ));
        }
        if encap.mode.inserts() && family == Family::V4 {
            return unsupported("an SRH cannot be inserted into IPv4");
        }
        let (slot, signer) = self.signer(encap.hmac, header::list(encap).len())?.unzip();
        let slot = slot.unwrap_or(KeySlot::NONE);
        let first = encap.segments[0];
        let source = encap
            .tunsrc
            .or(self.node.tunsrc)
            .or_else(|| self.source_address(next_hop.dev, first));
        let Some(source) = source else {
            return unsupported("no IPv6 address to be the source (see `ip sr tunsrc`)");
        };
        let lookup = match encap.lookup {
            Some(table) => Some(Chain::table(Family::V6, table)),
            None if self.node.settings.encap_lookup_main => {
                Some(rules::of_table(self.node, Family::V6, TableId::MAIN))
            }
            None => None,
        };
        let of_ports = self.resolver.of_ports(Family::V6);
        let of_lookup: [Arc<Chains>; 1];
        let chains = match &lookup {
            Some(chain) => {
                of_lookup = [Arc::new(chain.clone().into())];
                &of_lookup[..]
            }
            None if of_ports.distinct.len() <= PORT_CHAINS_MAX => &of_ports.distinct,
            // The packet path looks the outer header up.
            None => &[],
        };
        // A packet with an inserted SRH keeps its source.
        let from = (!encap.mode.inserts()).then_some(source.into());
        let resolution = match (chains, alone) {
            ([_], Some(OnlyNextHop { dev, via, mtu })) => {
                let adjacency = self.store.adjacency(dev, Via::Address(via), mtu)?;
                NextHopResolution::Hop(ResolvedHop::Adjacency(adjacency))
            }
            (chains, None) => self.resolve_next_hop(chains, first.into(), from)?,
            (_, Some(_)) => NextHopResolution::Depends,
        };
        // With several next hops, the packet path looks up the outer header, whose flow selects
        // one.
        let adjacency = match resolution {
            NextHopResolution::Hop(ResolvedHop::Adjacency(adjacency)) => adjacency,
            _ => AdjacencyId::NONE,
        };
        let view = match lookup {
            Some(chain) => self.views.view(&mut self.store, chain)?,
            None => ViewId::NONE,
        };
        let hop_limit = self.hop_limit(next_hop);
        let label = self.flow_label();
        let key = PolicyKey {
            encap: encap.clone(),
            source,
            hop_limit,
            flow_label: label,
            adjacency,
            view,
            hmac_key: slot,
        };
        let policy = self.store.indices.policies.index_of(&key)?;
        let mut content = header::policy(encap, source, hop_limit, signer.as_ref());
        content.hmac_key = slot;
        content.flow_label = label;
        content.adjacency = adjacency;
        content.view = view;
        let info = PolicyInfo {
            encap: encap.clone(),
            source,
        };
        self.store.put_policy(policy, &content, info);
        Ok(sidestep_route {
            policy: policy.0,
            adjacency,
            ..record(SIDESTEP_ROUTE_HEADEND)
        })
    }

    /// Returns the outer hop limit: that of the egress, otherwise 64.
    fn hop_limit(&self, next_hop: &NextHop) -> u8 {
        next_hop
            .dev
            .and_then(|dev| self.node.links.get(&dev))
            .map_or(64, |link| link.hop_limit.max(1))
    }

    /// Returns how the outer flow label is set, by the node's `seg6_flowlabel`.
    fn flow_label(&self) -> u8 {
        let mode = match self.node.seg6_flowlabel {
            0 => SIDESTEP_FLOW_LABEL_COPY,
            1.. => SIDESTEP_FLOW_LABEL_COMPUTE,
            _ => SIDESTEP_FLOW_LABEL_ZERO,
        };
        mode as u8
    }

    /// Returns a source address for an outer header by the rules of RFC 6724 that matter here:
    /// matching scope, preferably on the egress interface, longest common prefix.
    fn source_address(&self, dev: Option<IfIndex>, resolution: Ipv6Addr) -> Option<Ipv6Addr> {
        let addresses = self
            .node
            .addresses
            .iter()
            .filter_map(|(on, net)| match net {
                ipnet::IpNet::V6(net) if !net.addr().is_loopback() => Some((*on, net.addr())),
                _ => None,
            });
        addresses
            .min_by_key(|(on, address)| {
                let common = (u128::from(*address) ^ u128::from(resolution)).leading_zeros();
                (
                    address.is_unicast_link_local(),
                    Some(*on) != dev,
                    Reverse(common),
                    *address,
                )
            })
            .map(|(_, address)| address)
    }
}
