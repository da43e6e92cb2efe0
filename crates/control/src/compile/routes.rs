//! Routes as records: the action of a route, its next hop, its policy.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use sidestep_abi::{
    DROP_blackhole, DROP_vlan_miss, PUNT_egress, PUNT_hmac, PUNT_local, PUNT_multicast,
    PUNT_neighbor, PUNT_route_miss, PUNT_route_type, PUNT_table_full, PUNT_unsupported,
    SIDESTEP_ADJACENCY_VALID, SIDESTEP_ADJACENCY_XDP, SIDESTEP_FLOW_LABEL_COMPUTE,
    SIDESTEP_FLOW_LABEL_COPY, SIDESTEP_FLOW_LABEL_ZERO, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_END,
    SIDESTEP_ROUTE_END_B6_ENCAPS, SIDESTEP_ROUTE_END_B6_INSERT, SIDESTEP_ROUTE_END_DT4,
    SIDESTEP_ROUTE_END_DT6, SIDESTEP_ROUTE_END_DT46, SIDESTEP_ROUTE_END_DX2,
    SIDESTEP_ROUTE_END_DX2V, SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_T,
    SIDESTEP_ROUTE_END_X, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_HEADEND, SIDESTEP_ROUTE_NEXT_CSID,
    SIDESTEP_ROUTE_OURS, SIDESTEP_ROUTE_PSP, SIDESTEP_ROUTE_PUNT, SIDESTEP_ROUTE_REPLACE_CSID,
    SIDESTEP_ROUTE_USD, SIDESTEP_ROUTE_USP, sidestep_action, sidestep_adjacency, sidestep_reason,
    sidestep_route,
};
use sidestep_datapath::FibKey;
use sidestep_model::behavior::{Behavior, EncapMode, SEGMENTS_MAX, Seg6Encap, Seg6Local};
use sidestep_model::node::{IfIndex, LinkKind, TableId};
use sidestep_model::route::{Encap, Family, NextHop, Owner, Route, RouteKey, RouteKind};
use sidestep_model::vlan::{Vids, VlanTableId};

use super::chain::{self, Chain, Source};
use super::group::{self, Way};
use super::ids::Full;
use super::index::{AdjacencyInfo, PolicyInfo, RouteInfo};
use super::tables::{self, Prefix, Say, Table};
use super::{CompileError, Pass, ViewKey, header};

/// What tells one route record from another: all of it.
pub(crate) type RouteRecord = sidestep_route;
/// Egress, next hop, MTU of the route if it has one of its own.
pub(crate) type AdjacencyKey = (IfIndex, Option<IpAddr>, Option<u32>);
/// Encapsulation, source, hop limit, flow label mode, adjacency, view.
pub(crate) type PolicyKey = (Seg6Encap, Ipv6Addr, u8, u8, u32, u32);

/// `VLAN_KEY_PRESENT` of `datapath/behavior/end_dx2v.h`.
const VLAN_KEY_PRESENT: u16 = 0x1000;

/// A route that looks at more than the destination.
pub(crate) fn is_selective(key: &RouteKey) -> bool {
    key.tos != 0 || key.from.is_some_and(|from| from.prefix_len() > 0)
}

/// A route that the packet path leaves to the kernel: the packet's reason, and words for the operator.
pub(super) enum Unsupported {
    /// The fast path cannot express it.
    Because(sidestep_reason, String),
    /// A table has no room for it.
    Full(Full),
}

pub(super) fn unsupported<T>(words: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported::Because(PUNT_unsupported, words.into()))
}

/// `Err(Err(_))` ends the compilation, `Err(Ok(_))` only this route.
pub(super) type Outcome<T> = Result<T, Result<Unsupported, CompileError>>;

pub(super) fn left<T>(result: Result<T, Unsupported>) -> Outcome<T> {
    result.map_err(Ok)
}

/// Where a table is full, the route is the kernel's.
pub(super) fn room<T>(result: Result<T, Full>) -> Outcome<T> {
    result.map_err(|full| Ok(Unsupported::Full(full)))
}

pub(super) fn record(action: sidestep_action) -> sidestep_route {
    sidestep_route {
        action: action as u8,
        ..Default::default()
    }
}

pub(super) fn punt(reason: sidestep_reason) -> sidestep_route {
    sidestep_route {
        reason: reason as u8,
        ..record(SIDESTEP_ROUTE_PUNT)
    }
}

impl Pass<'_> {
    /// All routes of one table, compiled, with a host route for each neighbor on a connected prefix.
    pub(super) fn table(
        &mut self,
        family: Family,
        table: TableId,
    ) -> Result<Table<Say>, CompileError> {
        let mut out = Table::default();
        let Some(source) = self.tables.get(&(family, table)) else {
            return Ok(out);
        };
        let winners: Vec<(Prefix, &Route)> = source.iter().map(|(p, r)| (*p, *r)).collect();
        // Our own first: where there is no room for all, the kernel can stand in for the others.
        for owner in [Owner::Sidestep, Owner::Kernel] {
            for (prefix, route) in winners.iter().filter(|(_, route)| route.owner == owner) {
                let entry = match route.kind {
                    RouteKind::Throw if !is_selective(&route.key) => None,
                    _ => Some(self.route(route, None)?),
                };
                out.insert(*prefix, entry);
            }
        }
        for (&(dev, address), neighbor) in &self.node.neighbors {
            let host = Prefix::host(address);
            if neighbor.lladdr.is_none()
                || matches!(address, IpAddr::V4(_)) != (family == Family::V4)
            {
                continue;
            }
            let Some((_, &route)) = self.tables[&(family, table)].longest_match(host) else {
                continue;
            };
            let on_link = route.kind == RouteKind::Unicast
                && !is_selective(&route.key)
                && matches!(&route.next_hops[..], [NextHop { via: None, dev: Some(d), encap: None, .. }] if *d == dev);
            if on_link && !is_link_local(address) {
                let entry = self.route(route, Some(address))?;
                out.insert(host, Some(entry));
            }
        }
        Ok(out)
    }

    /// The index of the record for a route, narrowed to a neighbor on its link or not.
    fn route(&mut self, route: &Route, neighbor: Option<IpAddr>) -> Result<u32, CompileError> {
        // A full counter table costs the counters of the routes that come last, never their forwarding.
        let counter = self.ids.counters.get(&route.key).unwrap_or(0);
        let mut record = match self.action(route, neighbor, counter) {
            Ok(record) => record,
            Err(Ok(Unsupported::Because(reason, words))) => {
                self.out.index.unsupported.insert(route.key, words);
                punt(reason)
            }
            Err(Ok(Unsupported::Full(full))) => return Ok(self.no_room(route, full)),
            Err(Err(error)) => return Err(error),
        };
        if route.owner == Owner::Sidestep {
            record.flags |= SIDESTEP_ROUTE_OURS as u8;
        }
        record.counter = counter;
        if record.counter != 0 {
            self.out.index.counters.insert(route.key, record.counter);
        }
        let index = match self.intern(record) {
            Ok(index) => index,
            Err(full) => return Ok(self.no_room(route, full)),
        };
        self.out
            .index
            .routes
            .entry(index)
            .or_insert_with(|| RouteInfo {
                route: Some(route.clone()),
                neighbor,
                next_hop: None,
                counter: record.counter,
            });
        Ok(index)
    }

    /// The record of a route that a table has no room for. (Of one of our own, which the kernel does not have, packets are
    /// dropped.)
    fn no_room(&mut self, route: &Route, full: Full) -> u32 {
        self.out.index.full.insert(route.key, full.table);
        let words = CompileError::from(full).to_string();
        self.out.index.unsupported.insert(route.key, words);
        self.full()
    }

    /// The record for what does not fit, which is in the tables if anything refers to it.
    pub(super) fn full(&mut self) -> u32 {
        self.out
            .image
            .routes
            .insert(self.full, punt(PUNT_table_full));
        let nobodys = RouteInfo {
            route: None,
            neighbor: None,
            next_hop: None,
            counter: 0,
        };
        self.out.index.routes.insert(self.full, nobodys);
        self.full
    }

    pub(super) fn intern(&mut self, r: sidestep_route) -> Result<u32, Full> {
        let index = self.ids.routes.get(&r)?;
        self.out.image.routes.insert(index, r);
        Ok(index)
    }

    /// A rule's own `blackhole`.
    pub(super) fn bare_drop(&mut self) -> Result<u32, Full> {
        self.bare(sidestep_route {
            reason: DROP_blackhole as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        })
    }

    /// A rule's own `unreachable` or `prohibit`.
    pub(super) fn bare_punt(&mut self, reason: sidestep_reason) -> Result<u32, Full> {
        self.bare(punt(reason))
    }

    fn bare(&mut self, record: sidestep_route) -> Result<u32, Full> {
        let index = self.intern(record)?;
        self.out.index.routes.insert(
            index,
            RouteInfo {
                route: None,
                neighbor: None,
                next_hop: None,
                counter: 0,
            },
        );
        Ok(index)
    }

    fn action(
        &mut self,
        route: &Route,
        neighbor: Option<IpAddr>,
        counter: u32,
    ) -> Outcome<sidestep_route> {
        if is_selective(&route.key) {
            return left(unsupported("selects by source prefix or TOS"));
        }
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Local | RouteKind::Anycast => return Ok(punt(PUNT_local)),
            RouteKind::Broadcast | RouteKind::Multicast => return Ok(punt(PUNT_multicast)),
            RouteKind::Blackhole => {
                return Ok(sidestep_route {
                    reason: DROP_blackhole as u8,
                    ..record(SIDESTEP_ROUTE_DROP)
                });
            }
            RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw => {
                return Ok(punt(PUNT_route_type));
            }
            RouteKind::Other(number) => return left(unsupported(format!("route type {number}"))),
        }
        match &group::alive(&route.next_hops)[..] {
            [] => left(unsupported("no next hop")),
            [next_hop] => self.way(route, next_hop, neighbor),
            several => self.multipath(route, several, counter),
        }
    }

    /// The record for one next hop of a route.
    pub(super) fn way(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Outcome<sidestep_route> {
        match &next_hop.encap {
            None => self.plain(route, next_hop, neighbor),
            Some(Encap::Seg6(encap)) => {
                self.headend(tables::family(&route.key.prefix), next_hop, encap)
            }
            Some(Encap::Seg6Local(local)) => self.endpoint(next_hop, local),
            Some(Encap::Unsupported(words)) => left(unsupported(words.clone())),
        }
    }

    fn plain(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Outcome<sidestep_route> {
        let Some(dev) = next_hop.dev else {
            return left(unsupported("no device"));
        };
        match self.node.links.get(&dev).map(|link| &link.kind) {
            Some(LinkKind::Loopback) => return Ok(punt(PUNT_local)),
            Some(LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }) => return Ok(punt(PUNT_egress)),
            Some(_) => {}
            None => return left(unsupported("its device is not there")),
        }
        match next_hop.via.or(neighbor) {
            Some(via) => {
                let adjacency = self.adjacency(dev, Some(via), route.mtu)?;
                Ok(sidestep_route {
                    adjacency,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                })
            }
            None => Ok(punt(PUNT_neighbor)),
        }
    }

    pub(super) fn adjacency(
        &mut self,
        dev: IfIndex,
        via: Option<IpAddr>,
        mtu: Option<u32>,
    ) -> Outcome<u32> {
        let Some(link) = self.node.links.get(&dev) else {
            return left(unsupported("its device is not there"));
        };
        let index = room(self.ids.adjacencies.get(&(dev, via, mtu)))?;
        let lladdr = match via {
            Some(via) => self
                .node
                .neighbors
                .get(&(dev, via))
                .and_then(|neighbor| neighbor.lladdr),
            // An interface as such (End.DX2) needs no neighbor.
            None => Some(link.mac),
        };
        let valid = link.up && lladdr.is_some();
        let flags = [
            (valid, SIDESTEP_ADJACENCY_VALID),
            (link.xdp_transmit, SIDESTEP_ADJACENCY_XDP),
        ];
        self.out.image.adjacencies.insert(
            index,
            sidestep_adjacency {
                destination: lladdr.unwrap_or_default().0,
                flags: flags
                    .iter()
                    .filter(|(on, _)| *on)
                    .map(|(_, flag)| *flag as u16)
                    .sum(),
                source: link.mac.0,
                ifindex: dev.0,
                mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
                ..Default::default()
            },
        );
        self.out.index.adjacencies.insert(
            index,
            AdjacencyInfo {
                ifindex: dev,
                via,
                valid,
            },
        );
        Ok(index)
    }

    fn headend(
        &mut self,
        family: Family,
        next_hop: &NextHop,
        encap: &Seg6Encap,
    ) -> Outcome<sidestep_route> {
        if encap.hmac.is_some() {
            return Err(Ok(Unsupported::Because(PUNT_hmac, "HMAC".into())));
        }
        if encap.segments.is_empty() || encap.segments.len() > SEGMENTS_MAX {
            return left(unsupported(format!(
                "{} segments; 1 to {SEGMENTS_MAX} are possible",
                encap.segments.len()
            )));
        }
        if encap.mode.inserts() && family == Family::V4 {
            return left(unsupported("an SRH cannot be inserted into IPv4"));
        }
        let first = encap.segments[0];
        let chain = match encap.lookup {
            Some(table) => Some(Chain::table(Family::V6, table)),
            None => self.common.get(&Family::V6).cloned(),
        };
        let toward = match &chain {
            Some(chain) => self.toward(chain, first.into())?,
            None => None,
        };
        // Of several ways the packet takes one by its outer header: when it is looked up.
        let adjacency = match toward {
            Some(Way::Adjacency(adjacency)) => adjacency,
            Some(Way::Group(_)) | None => 0,
        };
        let view = match encap.lookup {
            Some(table) => room(self.view(Chain::table(Family::V6, table)))?,
            None => 0,
        };
        let source = encap
            .tunsrc
            .or(self.node.tunsrc)
            .or_else(|| self.source_address(next_hop.dev, first));
        let Some(source) = source else {
            return left(unsupported(
                "no IPv6 address to be the source (see `ip sr tunsrc`)",
            ));
        };
        let hop_limit = next_hop
            .dev
            .and_then(|dev| self.node.links.get(&dev))
            .map_or(64, |link| link.hop_limit.max(1));
        let label = match self.node.seg6_flowlabel {
            0 => SIDESTEP_FLOW_LABEL_COPY,
            1.. => SIDESTEP_FLOW_LABEL_COMPUTE,
            _ => SIDESTEP_FLOW_LABEL_ZERO,
        } as u8;
        let key = (encap.clone(), source, hop_limit, label, adjacency, view);
        let policy = room(self.ids.policies.get(&key))?;
        let mut content = header::policy(encap, source, hop_limit);
        content.flow_label = label;
        content.adjacency = adjacency;
        content.view = view;
        self.out.image.policies.insert(policy, content);
        self.out.index.policies.insert(
            policy,
            PolicyInfo {
                encap: encap.clone(),
                source,
            },
        );
        Ok(sidestep_route {
            policy,
            adjacency,
            ..record(SIDESTEP_ROUTE_HEADEND)
        })
    }

    /// RFC 6724 as far as it matters for the source of an outer header: of a scope that fits, on the egress interface
    /// if it has one, with the longest common prefix.
    fn source_address(&self, dev: Option<IfIndex>, toward: Ipv6Addr) -> Option<Ipv6Addr> {
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
                let common = (u128::from(*address) ^ u128::from(toward)).leading_zeros();
                (
                    address.is_unicast_link_local(),
                    Some(*on) != dev,
                    Reverse(common),
                    *address,
                )
            })
            .map(|(_, address)| address)
    }

    fn endpoint(&mut self, next_hop: &NextHop, local: &Seg6Local) -> Outcome<sidestep_route> {
        let mut out = match local.action {
            Behavior::End => record(SIDESTEP_ROUTE_END),
            Behavior::EndX => {
                let Some(nh6) = local.nh6 else {
                    return left(unsupported("End.X without nh6"));
                };
                let way = match local.oif {
                    Some(oif) => Way::Adjacency(self.adjacency(oif, Some(nh6.into()), None)?),
                    None => self.cross_connect(nh6.into())?,
                };
                way.of(record(SIDESTEP_ROUTE_END_X))
            }
            Behavior::EndT => sidestep_route {
                view6: self.endpoint_view(local, Family::V6)?,
                // With USD it may decapsulate IPv4.
                view4: if local.flavors.usd {
                    self.endpoint_view(local, Family::V4)?
                } else {
                    0
                },
                ..record(SIDESTEP_ROUTE_END_T)
            },
            Behavior::EndDx2 => {
                let Some(oif) = local.oif else {
                    return left(unsupported("End.DX2 without oif"));
                };
                sidestep_route {
                    adjacency: self.adjacency(oif, None, None)?,
                    ..record(SIDESTEP_ROUTE_END_DX2)
                }
            }
            Behavior::EndDx2v => {
                let Some(table) = local.vlantable else {
                    return left(unsupported("End.DX2V without vlantable"));
                };
                sidestep_route {
                    view6: self.vlan_view(table)?,
                    ..record(SIDESTEP_ROUTE_END_DX2V)
                }
            }
            Behavior::EndDx6 => match local.nh6 {
                Some(nh6) if !nh6.is_unspecified() => self
                    .cross_connect(nh6.into())?
                    .of(record(SIDESTEP_ROUTE_END_DX6)),
                _ => record(SIDESTEP_ROUTE_END_DX6),
            },
            Behavior::EndDx4 => match local.nh4 {
                Some(nh4) if !nh4.is_unspecified() => self
                    .cross_connect(nh4.into())?
                    .of(record(SIDESTEP_ROUTE_END_DX4)),
                _ => record(SIDESTEP_ROUTE_END_DX4),
            },
            Behavior::EndDt4 => sidestep_route {
                view4: self.endpoint_view(local, Family::V4)?,
                ..record(SIDESTEP_ROUTE_END_DT4)
            },
            Behavior::EndDt6 => sidestep_route {
                view6: self.endpoint_view(local, Family::V6)?,
                ..record(SIDESTEP_ROUTE_END_DT6)
            },
            Behavior::EndDt46 => sidestep_route {
                view4: self.endpoint_view(local, Family::V4)?,
                view6: self.endpoint_view(local, Family::V6)?,
                ..record(SIDESTEP_ROUTE_END_DT46)
            },
            Behavior::EndB6 => self.bound(
                local,
                next_hop,
                EncapMode::Inline,
                SIDESTEP_ROUTE_END_B6_INSERT,
            )?,
            Behavior::EndB6Encaps => self.bound(
                local,
                next_hop,
                EncapMode::Encap,
                SIDESTEP_ROUTE_END_B6_ENCAPS,
            )?,
            Behavior::EndB6EncapsRed => self.bound(
                local,
                next_hop,
                EncapMode::EncapRed,
                SIDESTEP_ROUTE_END_B6_ENCAPS,
            )?,
        };
        let flavors = local.flavors;
        let flags = [
            (flavors.psp, SIDESTEP_ROUTE_PSP),
            (flavors.usp, SIDESTEP_ROUTE_USP),
            (flavors.usd, SIDESTEP_ROUTE_USD),
            (flavors.next_csid.is_some(), SIDESTEP_ROUTE_NEXT_CSID),
            (flavors.replace_csid.is_some(), SIDESTEP_ROUTE_REPLACE_CSID),
        ];
        out.flags |= flags
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| *flag as u8)
            .sum::<u8>();
        if let Some((block, function)) = flavors.next_csid.or(flavors.replace_csid) {
            (out.block_bits, out.function_bits) = (block, function);
        }
        Ok(out)
    }

    /// The view with the entries of a VLAN table: prefixes of the VLAN ids, as `datapath/behavior/end_dx2v.h` makes its key.
    fn vlan_view(&mut self, table: VlanTableId) -> Outcome<u32> {
        let view = room(self.ids.views.get(&ViewKey::Vlans(table)))?;
        if self.out.index.vlan_views.insert(view, table).is_some() {
            return Ok(view);
        }
        // With a part of its entries a frame would leave by the wrong one.
        self.fill_vlan_view(view, table)
            .inspect_err(|_| self.out.image.fib.retain(|key, _| key.view != view))?;
        Ok(view)
    }

    fn fill_vlan_view(&mut self, view: u32, table: VlanTableId) -> Outcome<()> {
        let node = self.node;
        for (key, &dev) in node.vlans.iter().filter(|(key, _)| key.table == table) {
            let id = |vid: u16| (vid | VLAN_KEY_PRESENT).to_be_bytes();
            let (ids, length) = match key.vids {
                Vids::Untagged => ([[0; 2]; 2], 16),
                Vids::Outer(outer) => ([id(outer), [0; 2]], 16),
                Vids::OuterInner(outer, inner) => ([id(outer), id(inner)], 32),
            };
            let mut address = [0; 16];
            address[..4].copy_from_slice(ids.as_flattened());
            // An interface that has gone: as if the entry were not there.
            if !node.links.contains_key(&dev) {
                continue;
            }
            let adjacency = self.adjacency(dev, None, None)?;
            let route = room(self.bare(sidestep_route {
                adjacency,
                ..record(SIDESTEP_ROUTE_FORWARD)
            }))?;
            self.out.image.fib.insert(
                FibKey {
                    view,
                    address,
                    length,
                },
                route,
            );
        }
        let miss = room(self.bare(sidestep_route {
            reason: DROP_vlan_miss as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        }))?;
        let all = FibKey {
            view,
            address: [0; 16],
            length: 0,
        };
        self.out.image.fib.insert(all, miss);
        Ok(())
    }

    /// A binding SID: a behavior with the policy of its `srh segs`.
    fn bound(
        &mut self,
        local: &Seg6Local,
        next_hop: &NextHop,
        mode: EncapMode,
        action: sidestep_action,
    ) -> Outcome<sidestep_route> {
        let encap = Seg6Encap {
            mode,
            segments: local.segments.clone(),
            hmac: None,
            tunsrc: None,
            lookup: None,
        };
        let steered = self.headend(Family::V6, next_hop, &encap)?;
        Ok(sidestep_route {
            action: action as u8,
            ..steered
        })
    }

    /// The way of a cross-connect to its next hop.
    fn cross_connect(&mut self, next_hop: IpAddr) -> Outcome<Way> {
        let family = if next_hop.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        // Linux looks it up as for a packet from the ingress port (seg6_lookup_any_nexthop).
        let Some(chain) = self.common.get(&family).cloned() else {
            return left(unsupported(
                "its next hop depends on the ingress port, whose rules differ",
            ));
        };
        match self.toward(&chain, next_hop)? {
            Some(way) => Ok(way),
            None if self.resolve(&chain, next_hop).is_none() => left(Err(Unsupported::Because(
                PUNT_route_miss,
                format!("no route to its next hop {next_hop}"),
            ))),
            None => left(unsupported(format!(
                "no plain route to its next hop {next_hop}"
            ))),
        }
    }

    /// The view of a SID's `table`, or of the VRF with its `vrftable`.
    fn endpoint_view(&mut self, local: &Seg6Local, family: Family) -> Outcome<u32> {
        let chain = match (local.table, local.vrftable) {
            (Some(table), _) => chain::of_table(self.node, family, table),
            (None, Some(table)) => match chain::chain(self.node, family, Source::Vrf(table)) {
                Ok(chain) if chain.tables.contains(&table) => chain,
                Ok(_) => Chain::table(family, table),
                Err(why) => return left(unsupported(why)),
            },
            (None, None) => return left(unsupported("no table")),
        };
        room(self.view(chain))
    }
}

pub(super) fn is_ethernet(kind: &LinkKind) -> bool {
    !matches!(
        kind,
        LinkKind::Loopback | LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }
    )
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}
