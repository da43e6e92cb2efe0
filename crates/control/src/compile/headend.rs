//! Headends: encapsulation, source address, and the next hop toward the first segment.

use std::sync::Arc;

use sidestep_datapath::abi::{
    SIDESTEP_FLOW_LABEL_COMPUTE, SIDESTEP_FLOW_LABEL_COPY, SIDESTEP_FLOW_LABEL_ZERO,
    SIDESTEP_ROUTE_HEADEND, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, KeySlot, ViewId};
use sidestep_model::behavior::{SEGMENTS_MAX, Seg6Encap};
use sidestep_model::node::TableId;
use sidestep_model::policy::OnlyNextHop;
use sidestep_model::route::{Family, NextHop};
use sidestep_model::source;

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

/// A next hop that pushes a segment list.
#[derive(Clone, Copy)]
pub(super) struct Headend<'a> {
    /// Table of the route.
    pub table: TableId,
    /// Family of the packets.
    pub family: Family,
    pub next_hop: &'a NextHop,
    pub encap: &'a Seg6Encap,
    /// The only next hop toward the first segment, if a policy determines it.
    pub alone: Option<OnlyNextHop>,
}

impl RouteCompiler<'_> {
    /// Returns the record of a route whose next hop pushes a segment list.
    pub(super) fn headend(&mut self, headend: Headend<'_>) -> Result<sidestep_route, Skip> {
        let Headend {
            table,
            family,
            next_hop,
            encap,
            alone,
        } = headend;
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
            .or_else(|| self.node.vrf_tunsrc.get(&table).copied())
            .or(self.node.tunsrc)
            .or_else(|| source::select(self.node, next_hop.dev, first));
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
}
