//! Headends: encapsulation, source address, and the next hop toward the first segment.

use std::sync::Arc;

use sidestep_datapath::abi::{
    SIDESTEP_FLOW_LABEL_COMPUTE, SIDESTEP_FLOW_LABEL_COPY, SIDESTEP_FLOW_LABEL_ZERO,
    SIDESTEP_ROUTE_HEADEND, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, KeySlot, PolicyId, SessionId, ViewId};
use sidestep_model::behavior::{SEGMENTS_MAX, Seg6Encap};
use sidestep_model::node::TableId;
use sidestep_model::policy::OnlyNextHop;
use sidestep_model::route::{Family, NextHop};
use sidestep_model::source;

use super::allocator::TableFull;
use super::chain::Chain;
use super::error::{Skip, unsupported};
use super::header;
use super::index::PolicyInfo;
use super::keys::{Guard, PolicyKey, Via};
use super::lookups::Dependent;
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
    /// See [`PolicyKey::guard`].
    pub guard: Option<Guard>,
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
            guard,
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
        let view = match self.lookup(encap) {
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
            alone,
            view,
            hmac_key: slot,
            guard,
        };
        let policy = self.store.indices.policies.index_of(&key)?;
        let to_policy = sidestep_route {
            policy: policy.0,
            ..record(SIDESTEP_ROUTE_HEADEND)
        };
        // Many routes share the record, and its path follows the lookups that it depends on.
        if self.store.out.image.policies.contains_key(&policy) {
            return Ok(to_policy);
        }
        let mut content = header::policy(encap, source, hop_limit, signer.as_ref());
        content.hmac_key = slot;
        content.flow_label = label;
        content.adjacency = self.path(policy, &key)?;
        content.view = view;
        content.session = guard.map_or(SessionId::NONE, |guard| guard.session);
        let info = PolicyInfo {
            encap: encap.clone(),
            source,
        };
        self.store.put_policy(policy, &content, info);
        Ok(to_policy)
    }

    /// Returns the tables in which the first segment is looked up, if not those of the ingress port.
    fn lookup(&self, encap: &Seg6Encap) -> Option<Chain> {
        match encap.lookup {
            Some(table) => Some(Chain::table(Family::V6, table)),
            None if self.node.settings.encap_lookup_main => {
                Some(rules::of_table(self.node, Family::V6, TableId::MAIN))
            }
            None => None,
        }
    }

    /// Returns the path of a segment list: the adjacency of its first segment. There
    /// is none with several next hops, or with a different one for each port. The packet path then
    /// looks up the outer header, whose flow selects a next hop.
    fn path(&mut self, policy: PolicyId, key: &PolicyKey) -> Result<AdjacencyId, TableFull> {
        let of_ports = self.resolver.of_ports(Family::V6);
        let of_lookup: [Arc<Chains>; 1];
        let chains = match self.lookup(&key.encap) {
            Some(chain) => {
                of_lookup = [Arc::new(chain.into())];
                &of_lookup[..]
            }
            None if of_ports.distinct.len() <= PORT_CHAINS_MAX => &of_ports.distinct,
            None => &[],
        };
        // A packet with an inserted SRH keeps its source.
        let from = (!key.encap.mode.inserts()).then_some(key.source.into());
        let dependent = Dependent::Policy(policy);
        self.resolver.lookups.forget(&dependent);
        let outer = self.dependent.replace(dependent);
        let path = match (chains, key.alone) {
            ([_], Some(OnlyNextHop { dev, via, mtu })) => {
                self.known_adjacency(dev, Via::Address(via), mtu)
            }
            (_, Some(_)) => Ok(None),
            (chains, None) => self.only_adjacency(chains, key.encap.segments[0].into(), from),
        };
        self.dependent = outer;
        Ok(path?.unwrap_or(AdjacencyId::NONE))
    }

    /// Updates the path of a segment list, after a lookup that it depends on has another result.
    pub(super) fn update_path(&mut self, policy: PolicyId) -> Result<(), TableFull> {
        let key = self.store.indices.policies.key(policy).cloned();
        let Some(key) = key.filter(|_| self.store.out.image.policies.contains_key(&policy)) else {
            self.resolver.lookups.forget(&Dependent::Policy(policy));
            return Ok(());
        };
        let adjacency = self.path(policy, &key)?;
        self.store.set_path(policy, adjacency);
        Ok(())
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
