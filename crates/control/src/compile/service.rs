//! SR proxies: SIDs that lead to a service, and the return paths of ports.

use std::net::IpAddr;

use sidestep_datapath::abi::{
    PUNT_local, SIDESTEP_FLOW_WAYS, SIDESTEP_PORT_SERVICE, SIDESTEP_ROUTE_END_AD,
    SIDESTEP_ROUTE_END_AM, SIDESTEP_ROUTE_END_AS, SIDESTEP_ROUTE_NAT, SIDESTEP_ROUTE_RETURN_AD,
    SIDESTEP_ROUTE_RETURN_AM, SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_learned, sidestep_route,
};
use sidestep_datapath::{FibKey, HeaderSetId, ViewId};
use sidestep_model::behavior::proxy::{Chain, InnerType};
use sidestep_model::behavior::{EncapMode, Seg6Encap, Seg6Local};
use sidestep_model::node::IfIndex;
use sidestep_model::route::{Encap, Family, NextHop, Route, RouteKey};
use sidestep_wire::Protocol;

use super::error::{Skip, unsupported};
use super::headend::Headend;
use super::index::{Counted, ProxyInfo};
use super::keys::{LearnedKey, Service, Via, ViewKey};
use super::record::{punt, record};
use super::routes::RouteCompiler;
use super::tables::{self, Prefix};

impl Service {
    fn of(local: &Seg6Local) -> Result<Self, Skip> {
        if local.proxy.chain == Some(Chain::FromVnf) {
            return unsupported("the return path of an SR proxy, which its port determines");
        }
        // End.AM has no inner type; its service gets IPv6.
        let seen = [InnerType::L2, InnerType::Ipv4];
        let seen = seen.into_iter().find(|inner| local.sees(*inner));
        // The grammar rejects other forms, but a node file may have them.
        match (local.oif, local.back()) {
            (Some(oif), Some(iif)) => Ok(Self {
                oif,
                iif,
                via: via(local),
                inner_type: seen.unwrap_or(InnerType::Ipv6),
            }),
            _ => unsupported(format!(
                "an unsupported form of {}",
                local.action.descriptor().name
            )),
        }
    }

    /// Counter of the return path. SIDs with the same return path share it.
    fn counted(&self) -> Counted {
        Counted::ReturnPath(self.iif, self.inner_type)
    }

    /// Protocol number of the packets for the service.
    fn inner(&self) -> u8 {
        match self.inner_type {
            InnerType::Ipv6 => Protocol::IPV6.0,
            InnerType::Ipv4 => Protocol::IPV4.0,
            InnerType::L2 => Protocol::ETHERNET.0,
        }
    }

    /// Address family of the packets for the service; IPv6 for frames.
    fn family(&self) -> Family {
        match self.inner_type {
            InnerType::Ipv4 => Family::V4,
            InnerType::Ipv6 | InnerType::L2 => Family::V6,
        }
    }
}

/// Receiver on the link to the service.
fn via(local: &Seg6Local) -> Via {
    let address = [local.nh6.map(IpAddr::from), local.nh4.map(IpAddr::from)];
    let address = address.into_iter().flatten().next();
    address
        .map(Via::Address)
        .or(local.proxy.nheth.map(Via::Ethernet))
        .unwrap_or(Via::Link)
}

/// Whether a route is the SID of a proxy.
pub(super) fn is_proxy_route(route: &Route) -> bool {
    let mut encaps = route.next_hops.iter().map(|next_hop| &next_hop.encap);
    encaps.any(|encap| matches!(encap, Some(Encap::Seg6Local(local)) if local.action.is_proxy()))
}

impl RouteCompiler<'_> {
    /// Sets the info of an SR proxy's SID. Changes of proxies need a full compilation.
    pub(super) fn set_proxy_info(
        &mut self,
        sid: RouteKey,
        local: &Seg6Local,
        record: &sidestep_route,
    ) {
        let Ok(service) = Service::of(local) else {
            return;
        };
        let info = ProxyInfo {
            behavior: local.action.descriptor().name,
            oif: service.oif,
            iif: service.iif,
            return_counter: service.counted(),
            learned: record.header_set(),
        };
        self.store.out.index.proxies.insert(sid, info);
    }

    /// Returns the record of End.AM.
    pub(super) fn masquerading(&mut self, local: &Seg6Local) -> Result<sidestep_route, Skip> {
        let service = Service::of(local)?;
        let nat = if local.flavors.nat {
            SIDESTEP_ROUTE_NAT
        } else {
            0
        };
        let back = sidestep_route {
            flags: nat as u8,
            ..record(SIDESTEP_ROUTE_RETURN_AM)
        };
        self.return_path(&service, back)?;
        for port in [service.oif, service.iif] {
            if let Some(port) = self.store.out.image.ports.get_mut(&port.0) {
                port.flags |= SIDESTEP_PORT_SERVICE;
            }
        }
        let adjacency = self.store.adjacency(service.oif, service.via, None)?;
        Ok(sidestep_route {
            adjacency,
            ..record(SIDESTEP_ROUTE_END_AM)
        })
    }

    /// Returns the record of End.AS, whose return path is a headend.
    pub(super) fn static_proxy(
        &mut self,
        sid: &RouteKey,
        local: &Seg6Local,
        next_hop: &NextHop,
    ) -> Result<sidestep_route, Skip> {
        let service = Service::of(local)?;
        let mode = match service.inner_type {
            InnerType::L2 => EncapMode::L2Encap,
            InnerType::Ipv6 | InnerType::Ipv4 => EncapMode::Encap,
        };
        let encap = Seg6Encap {
            tunsrc: local.proxy.src,
            ..Seg6Encap::new(mode, local.segments.clone())
        };
        let back = self.headend(Headend {
            table: sid.table,
            family: service.family(),
            next_hop,
            encap: &encap,
            alone: None,
            guard: None,
        })?;
        self.return_path(&service, back)?;
        let adjacency = self.store.adjacency(service.oif, service.via, None)?;
        Ok(sidestep_route {
            adjacency,
            inner: service.inner(),
            ..record(SIDESTEP_ROUTE_END_AS)
        })
    }

    /// Returns the record of End.AD, whose return path uses the learned headers.
    pub(super) fn dynamic_proxy(
        &mut self,
        local: &Seg6Local,
        sid: RouteKey,
    ) -> Result<sidestep_route, Skip> {
        let service = Service::of(local)?;
        let learned = self.learning(&service, local, sid)?;
        self.return_path(
            &service,
            sidestep_route {
                policy: learned.0,
                ..record(SIDESTEP_ROUTE_RETURN_AD)
            },
        )?;
        let adjacency = self.store.adjacency(service.oif, service.via, None)?;
        Ok(sidestep_route {
            adjacency,
            policy: learned.0,
            inner: service.inner(),
            ..record(SIDESTEP_ROUTE_END_AD)
        })
    }

    /// Returns the header set of a dynamic proxy.
    fn learning(
        &mut self,
        service: &Service,
        local: &Seg6Local,
        sid: RouteKey,
    ) -> Result<HeaderSetId, Skip> {
        let mut content = sidestep_learned {
            used: 1,
            age: local.proxy.age.unwrap_or(0),
            ..Default::default()
        };
        let key = match local.proxy.flows {
            None => LearnedKey::Sid {
                service: service.clone(),
                age: content.age,
                sid,
            },
            Some(flows) => {
                content.flows = flows.next_power_of_two().max(SIDESTEP_FLOW_WAYS);
                content.seed = self.node.multipath_hash_seed.into();
                let key = LearnedKey::Flows {
                    iif: service.iif,
                    age: content.age,
                    flows: content.flows,
                };
                content.table = self.store.indices.flow_tables.index_of(&key)?;
                key
            }
        };
        let index = self.store.indices.learned.index_of(&key)?;
        self.store.put_learned(index, Some(&content));
        Ok(index)
    }

    /// Sets the return path of a service. It comes before the path to the service, so that it stays
    /// if that interface is gone. Several SIDs may share a port if they have the same return path.
    fn return_path(&mut self, service: &Service, back: sidestep_route) -> Result<(), Skip> {
        let links = &self.node.links;
        let name = links
            .get(&service.iif)
            .map_or_else(|| service.iif.0.to_string(), |link| link.name.clone());
        if !self.store.out.image.ports.contains_key(&service.iif.0) {
            return unsupported(format!(
                "its service returns packets by {name}, which is not a port of Sidestep"
            ));
        }
        let counter = self.store.counter(service.counted());
        let back = self.store.unowned(sidestep_route {
            flags: back.flags | SIDESTEP_ROUTE_SIDESTEP_ONLY as u8,
            counter,
            ..back
        })?;
        let own = match service.inner_type {
            // The Ethernet address of a frame shows whether it is for the node.
            InnerType::L2 => ViewId::NONE,
            InnerType::Ipv6 | InnerType::Ipv4 => {
                self.local_addresses(service.iif, service.family())?
            }
        };
        let Some(port) = self.store.out.image.ports.get_mut(&service.iif.0) else {
            return Ok(());
        };
        let (way, others) = match service.inner_type {
            InnerType::Ipv6 => (&mut port.return6, port.return_l2.is_some()),
            InnerType::Ipv4 => (&mut port.return4, port.return_l2.is_some()),
            InnerType::L2 => (
                &mut port.return_l2,
                port.return6.is_some() || port.return4.is_some(),
            ),
        };
        if others || (way.is_some() && *way != back) {
            return unsupported(format!(
                "packets returned by {name} belong to the proxy of another SID; give this proxy an \
                 interface of its own (iif)"
            ));
        }
        if way.is_none() {
            *way = back;
            match service.inner_type {
                InnerType::Ipv6 => port.local_addrs6 = own,
                InnerType::Ipv4 => port.local_addrs4 = own,
                InnerType::L2 => {}
            }
            self.store.indices.routes.acquire(back);
            self.store.indices.views.acquire(own);
        }
        Ok(())
    }

    /// Returns the view of an interface's local addresses. Packets to them do not continue to the
    /// next segment.
    fn local_addresses(&mut self, dev: IfIndex, family: Family) -> Result<ViewId, Skip> {
        let view = self
            .store
            .indices
            .views
            .index_of(&ViewKey::Own(dev, family))?;
        // Marked as Sidestep-only, so that kernel routes yield to it if not all prefixes fit.
        let local = self.store.unowned(sidestep_route {
            flags: SIDESTEP_ROUTE_SIDESTEP_ONLY as u8,
            ..punt(PUNT_local)
        })?;
        let addresses = self.node.addresses.iter().filter(|(on, _)| *on == dev);
        for (_, net) in addresses.filter(|(_, net)| tables::family(net) == family) {
            let Prefix { address, length } = Prefix::host(net.addr());
            let key = FibKey {
                view,
                address,
                length,
            };
            self.store.put_prefix(key, Some(local));
        }
        Ok(view)
    }
}
