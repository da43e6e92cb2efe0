//! Port records: flags, views, and the rules that select them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sidestep_datapath::abi::{
    DROP_sid_block, SIDESTEP_PORT_BRIDGED, SIDESTEP_PORT_ETHER, SIDESTEP_PORT_ETHER_VLANS,
    SIDESTEP_PORT_ETHER_WIRE, SIDESTEP_PORT_FORWARD4, SIDESTEP_PORT_FORWARD6,
    SIDESTEP_PORT_FRAGMENT, SIDESTEP_PORT_IGNORE_HMAC, SIDESTEP_PORT_ISOLATED,
    SIDESTEP_PORT_LOCAL_SRH, SIDESTEP_PORT_O_FLAG, SIDESTEP_PORT_REQUIRE_HMAC,
    SIDESTEP_PORT_RPF_LOOSE, SIDESTEP_PORT_RPF_STRICT, SIDESTEP_PORT_RULES4_PUNT,
    SIDESTEP_PORT_RULES6_PUNT, SIDESTEP_PORT_SEG6, SIDESTEP_PORTS, SIDESTEP_ROUTE_DROP,
    SIDESTEP_ROUTE_NEXT, SIDESTEP_ROUTE_SIDESTEP_ONLY, SIDESTEP_STATIONS, sidestep_port,
    sidestep_route,
};
use sidestep_datapath::{AdjacencyId, FibKey, RouteId, ViewId};
use sidestep_model::ether::{self, AttachedFrames, Attachment};
use sidestep_model::node::{IfIndex, Link};
use sidestep_model::route::Family;
use sidestep_model::settings::{Ipv4TooBig, LocalSrh};

use super::builder::ViewBuilder;
use super::chain::Chain;
use super::endpoints::{of_vlans, tag_toward_far_end};
use super::error::CompileError;
use super::index::{Continuation, ViewInfo};
use super::keys::{Via, ViewKey};
use super::record::record;
use super::resolver::PortChains;
use super::rules::{Chains, Source};

impl ViewBuilder<'_> {
    pub(super) fn ports(&mut self, ports: &BTreeSet<IfIndex>) -> Result<(), CompileError> {
        let mut slots: BTreeMap<u32, &Link> = BTreeMap::new();
        let mut of_ports: BTreeMap<Family, PortChains> = BTreeMap::new();
        for &port in ports {
            let link = self
                .routes
                .node
                .links
                .get(&port)
                .ok_or(CompileError::NoSuchPort(port.0))?;
            if let Some(other) = slots.insert(port.0 % SIDESTEP_PORTS, link) {
                return Err(CompileError::PortSlot(
                    other.name.clone(),
                    link.name.clone(),
                ));
            }
            // Linux decapsulates on the interface that received the outer IPv6 packet, and looks up
            // IPv4 next hops from there (input_action_end_dx4_finish).
            let source = Source::port(self.routes.node, port, Family::V6)
                .ok_or(CompileError::NoSuchPort(port.0))?;
            for family in [Family::V4, Family::V6] {
                let resolver = &mut self.routes.resolver;
                let chains = resolver.chains(self.routes.node, family, source);
                of_ports.entry(family).or_default().set(port, chains.ok());
            }
        }
        let of_ports = of_ports.into_iter();
        self.routes.resolver.of_ports = of_ports
            .map(|(family, chains)| (family, Arc::new(chains)))
            .collect();
        let hmac_keys = self.routes.hmac_view()?;
        let discriminators = self.routes.discriminators()?;
        self.routes.paths()?;
        self.routes.protections()?;
        for &port in ports {
            let mut record = sidestep_port {
                hmac_keys,
                ..self.port(port)?
            };
            if record.domain.is_none() {
                record.discriminators = discriminators;
            }
            for view in record.views() {
                self.routes.store.indices.views.acquire(view);
            }
            self.routes.store.indices.routes.acquire(record.return_l2);
            let adjacencies = &mut self.routes.store.indices.adjacencies;
            adjacencies.acquire(record.egress);
            self.routes.store.out.image.ports.insert(port.0, record);
        }
        let (node, out) = (self.routes.node, &mut self.routes.store.out);
        out.index.ways_to_stations = node.ways_to_stations(ports);
        let stations = node.stations.iter();
        let stations = stations.filter_map(|(key, port)| {
            let (key, way) = out.index.station(*key, Some(*port));
            Some((key, way?))
        });
        out.image.stations = stations.take(SIDESTEP_STATIONS as usize).collect();
        // Only ports refer to views so far.
        self.routes.views.rooted = self.routes.views.by_chain.values().copied().collect();
        Ok(())
    }

    /// Returns the view of the SR domain's SID blocks.
    fn domain(&mut self) -> Result<ViewId, CompileError> {
        let view = self.routes.store.indices.views.index_of(&ViewKey::Domain)?;
        // Marked as Sidestep-only, so that kernel routes yield to it if not all prefixes fit.
        let kept_out = self.routes.store.unowned(sidestep_route {
            flags: SIDESTEP_ROUTE_SIDESTEP_ONLY as u8,
            reason: DROP_sid_block as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        })?;
        for block in &self.routes.node.domain.sid_blocks {
            let key = FibKey {
                view,
                address: block.network().octets(),
                length: block.prefix_len(),
            };
            self.routes.store.put_prefix(key, Some(kept_out));
        }
        Ok(view)
    }

    /// Returns the route of the frames of an ether device, by its port: it leads into the view of
    /// the device's table, so that a policy can change the route behind it. `segmenter`: the device,
    /// for frames of other interfaces that need segmentation.
    fn ether_route(
        &mut self,
        port: IfIndex,
        segmenter: Option<IfIndex>,
    ) -> Result<RouteId, CompileError> {
        let chain = Chain::table(Family::V6, ether::table_of(port));
        let (views, store) = (&mut self.routes.views, &mut self.routes.store);
        let view = views.view_of(store, &Arc::new(chain.into()))?;
        let segmenter = segmenter.and_then(|dev| store.adjacency(dev, Via::Link, None).ok());
        let device = self.routes.node.ether_of_port(port);
        let attachment = device.and_then(|(_, device)| device.attached.as_ref());
        let index = store.unowned(sidestep_route {
            view6: view,
            adjacency: segmenter.unwrap_or(AdjacencyId::NONE),
            tag: attachment.map_or(0, tag_toward_far_end),
            ..record(SIDESTEP_ROUTE_NEXT)
        })?;
        store.set_continuation(index, Some(Continuation::Next));
        Ok(index)
    }

    /// Sets the routes of the attached frames of a port. Other frames stay with the port.
    fn attach(
        &mut self,
        record: &mut sidestep_port,
        attachments: &[(&Attachment, IfIndex, Option<IfIndex>)],
    ) -> Result<(), CompileError> {
        let mut prefixes = Vec::new();
        for (attachment, port, device) in attachments {
            let route = self.ether_route(*port, *device)?;
            match attachment.frames {
                AttachedFrames::All => {
                    record.flags |= SIDESTEP_PORT_ETHER;
                    record.return_l2 = route;
                    return Ok(());
                }
                AttachedFrames::Only(vids) => prefixes.push((of_vlans(vids), route)),
            }
        }
        let info = ViewInfo::new(Family::V6, []);
        let store = &mut self.routes.store;
        let view = store.leading_view(prefixes, info)?;
        record.flags |= SIDESTEP_PORT_ETHER_VLANS;
        record.return_l2 = store.lead(SIDESTEP_ROUTE_NEXT, Family::V6, view)?;
        Ok(())
    }

    fn port(&mut self, port: IfIndex) -> Result<sidestep_port, CompileError> {
        let link = self
            .routes
            .node
            .links
            .get(&port)
            .ok_or(CompileError::NoSuchPort(port.0))?;
        let node = self.routes.node;
        let source =
            |family| Source::port(node, port, family).ok_or(CompileError::NoSuchPort(port.0));
        let (source6, source4) = (source(Family::V6)?, source(Family::V4)?);
        let mut record = sidestep_port {
            ifindex: port.0,
            mac: link.mac.0,
            ..Default::default()
        };
        record.flags = self.port_flags(link);
        // A frame is no packet of a sender outside the SR domain, until it is decapsulated.
        if let Some((_, device)) = node.ether_of_port(port) {
            record.flags |= SIDESTEP_PORT_ETHER;
            if device.attached.is_some() {
                record.flags |= SIDESTEP_PORT_ETHER_WIRE;
            }
            record.return_l2 = self.ether_route(port, None)?;
        } else if let attachments @ [_, ..] = &node.attachments_of(link)[..] {
            self.attach(&mut record, attachments)?;
        } else if self.routes.node.domain.is_outside(link) {
            record.domain = self.domain()?;
        }
        self.beside_bridge(&mut record);
        let chains = [
            (
                Family::V6,
                SIDESTEP_PORT_RULES6_PUNT,
                self.routes
                    .resolver
                    .chains(self.routes.node, Family::V6, source6),
            ),
            (
                Family::V4,
                SIDESTEP_PORT_RULES4_PUNT,
                self.chains_with_reverse_path(link, source4),
            ),
        ];
        for (family, punt, chains) in chains {
            let view = chains.and_then(|chains| {
                if let Some(why) = chains.punt_reason() {
                    let why = why.to_owned();
                    self.routes
                        .store
                        .out
                        .index
                        .punt_reasons
                        .insert((port, family), why);
                }
                self.routes
                    .views
                    .view_of(&mut self.routes.store, &chains)
                    .map_err(|full| {
                        self.routes
                            .store
                            .out
                            .index
                            .full_for_rules
                            .insert(full.table);
                        CompileError::from(full).to_string()
                    })
            });
            match (view, family) {
                (Ok(view), Family::V6) => record.view6 = view,
                (Ok(view), Family::V4) => record.view4 = view,
                (Err(why), _) => {
                    record.flags |= punt;
                    self.routes
                        .store
                        .out
                        .index
                        .punt_reasons
                        .insert((port, family), why);
                }
            }
        }
        Ok(record)
    }

    /// Lets frames between known stations pass beside the bridge of a port. Without room for its
    /// adjacency they pass the bridge.
    fn beside_bridge(&mut self, record: &mut sidestep_port) {
        let (node, port) = (self.routes.node, IfIndex(record.ifindex));
        if node.bridge_ports.contains_key(&port) {
            record.flags |= SIDESTEP_PORT_BRIDGED;
        }
        let Some((_, of_bridge)) = node.bridge_port(port) else {
            return;
        };
        if record.flags & SIDESTEP_PORT_ETHER == 0 {
            let Ok(egress) = self.routes.store.adjacency(port, Via::Link, None) else {
                return;
            };
            record.egress = egress;
        }
        if of_bridge.isolated {
            record.flags |= SIDESTEP_PORT_ISOLATED;
        }
        record.bridge = of_bridge.bridge.0;
    }

    /// Returns the flags of a port record, without those for rules.
    fn port_flags(&self, link: &Link) -> u32 {
        let node = self.routes.node;
        // RFC 8754 5.1: local addresses never relay packets from outside the SR domain.
        let linux_relays =
            node.settings.local_srh == LocalSrh::Linux && !node.domain.is_outside(link);
        let takes_sids = link.seg6_enabled || !node.settings.require_seg6_enabled;
        let flags = [
            (takes_sids, SIDESTEP_PORT_SEG6),
            (link.forwarding6, SIDESTEP_PORT_FORWARD6),
            (link.forwarding4, SIDESTEP_PORT_FORWARD4),
            (link.rp_filter == 1, SIDESTEP_PORT_RPF_STRICT),
            (link.rp_filter == 2, SIDESTEP_PORT_RPF_LOOSE),
            (link.seg6_require_hmac > 0, SIDESTEP_PORT_REQUIRE_HMAC),
            (link.seg6_require_hmac < 0, SIDESTEP_PORT_IGNORE_HMAC),
            (node.oam_rate > 0, SIDESTEP_PORT_O_FLAG),
            (linux_relays, SIDESTEP_PORT_LOCAL_SRH),
            (
                node.settings.ipv4_too_big == Ipv4TooBig::Fragment,
                SIDESTEP_PORT_FRAGMENT,
            ),
        ];
        flags
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag)
            .sum()
    }

    /// Returns the chains of a port's IPv4 packets. With `rp_filter`, Linux looks up the reverse
    /// path as for a packet that arrives where this one leaves (`__fib_validate_source`). The
    /// chains must therefore be the same, otherwise the kernel gets the port's packets.
    fn chains_with_reverse_path(
        &mut self,
        link: &Link,
        source: Source<'_>,
    ) -> Result<Arc<Chains>, String> {
        let node = self.routes.node;
        let own = self
            .routes
            .resolver
            .chains(self.routes.node, Family::V4, source)?;
        let mut same = |other: &Link| {
            let source = Source::port(node, other.ifindex, Family::V4);
            let others = source.map(|source| {
                self.routes
                    .resolver
                    .chains(self.routes.node, Family::V4, source)
            });
            // Ports with the same source share one allocation; compare only others.
            matches!(others, Some(Ok(others)) if Arc::ptr_eq(&others, &own) || others == own)
        };
        let mut others = node.links.values();
        let mut differs = |other: &Link| other.master == link.master && !same(other);
        match others.find(|other| link.rp_filter != 0 && differs(other)) {
            Some(other) => Ok(Arc::new(own.after_punt(&format!(
                "rp_filter is on, and {} has other rules, which the reverse path lookup would use",
                other.name
            )))),
            None => Ok(own),
        }
    }
}
