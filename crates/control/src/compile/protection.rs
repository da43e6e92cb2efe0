//! Backups of protected next hops: a route for each, to which their adjacencies refer.

use sidestep_datapath::abi::{
    SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_route,
};
use sidestep_model::protection::Backup;

use super::error::{CompileError, Skip, unsupported};
use super::keys::{AdjacencyKey, Via};
use super::record::record;
use super::routes::RouteCompiler;

impl RouteCompiler<'_> {
    /// Compiles the backups, and gives them to the next hops that are there. [`super::store::Store`]
    /// gives them to those that come later.
    pub(super) fn protections(&mut self) -> Result<(), CompileError> {
        let node = self.node;
        for (key, protection) in &node.protections {
            let record = self.backup(&protection.by);
            let compiled = self.keep_record(record)?.map(|(route, _)| route);
            self.store.out.index.backups.insert(key.clone(), compiled);
        }
        let there = &self.store.out.image.adjacencies;
        let all = self.store.indices.adjacencies.iter();
        let protected = all.filter(|(key, index)| match key.via {
            Via::Address(via) => {
                there.contains_key(index) && node.protection(key.dev, via).is_some()
            }
            Via::Link | Via::Ethernet(_) => false,
        });
        let protected: Vec<AdjacencyKey> = protected.map(|(key, _)| *key).collect();
        for AdjacencyKey { dev, via, mtu } in protected {
            self.known_adjacency(dev, via, mtu)?;
        }
        Ok(())
    }

    fn backup(&mut self, by: &Backup) -> Result<sidestep_route, Skip> {
        match by {
            Backup::NextHop { dev, via } => {
                let Some(link) = self.node.link_by_name(dev) else {
                    return unsupported("the interface does not exist");
                };
                let via = Via::Address(*via);
                Ok(sidestep_route {
                    adjacency: self.store.adjacency(link.ifindex, via, None)?,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                })
            }
            Backup::List(encap) => {
                let mut record = self.headend_of_node(encap.clone())?;
                // Linux does not know the backup.
                record.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
                Ok(record)
            }
        }
    }
}
