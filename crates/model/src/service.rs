//! Liveness of the service behind an SR proxy.

use std::net::IpAddr;

use crate::behavior::Seg6Local;
use crate::behavior::proxy::{Liveness, OnDown};
use crate::node::{IfIndex, Node};

/// Subject of a liveness probe. SIDs with equal values share one probe and one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// Interface toward the service.
    pub dev: IfIndex,
    /// Address of the service: IPv6 if it has both families, `None` if only the link is watched.
    pub address: Option<IpAddr>,
    /// Probe type and interval.
    pub liveness: Liveness,
}

impl Seg6Local {
    /// Returns the service to probe, or `None` if this is no SR proxy or has no `liveness`.
    pub fn service(&self) -> Option<Service> {
        let of_ipv6 = self.nh6.map(IpAddr::from);
        Some(Service {
            dev: self.oif?,
            address: of_ipv6.or(self.nh4.map(IpAddr::from)),
            liveness: self.proxy.liveness?,
        })
    }
}

impl Node {
    /// Returns the action for packets of a SID whose service is down. `None` if it is up or not
    /// probed.
    pub fn on_down(&self, local: &Seg6Local) -> Option<OnDown> {
        let down = self.services_down.contains(&local.service()?);
        down.then(|| local.proxy.on_down.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behavior::Behavior;
    use crate::behavior::proxy::Probe;

    #[test]
    fn a_sid_is_down_with_its_service_and_no_other() {
        let mut local = Seg6Local::new(Behavior::EndAd);
        local.oif = Some(IfIndex(3));
        local.nh4 = Some([10, 0, 0, 2].into());
        assert_eq!(local.service(), None, "no probes");
        local.proxy.liveness = Some(Liveness {
            probe: Probe::Arp,
            interval: 100,
        });
        let service = local.service().expect("it is looked at");
        assert_eq!(service.address, Some([10, 0, 0, 2].into()));
        let mut node = Node::default();
        assert_eq!(node.on_down(&local), None);
        node.services_down.insert(service);
        assert_eq!(node.on_down(&local), Some(OnDown::Drop));
        local.proxy.on_down = Some(OnDown::Bypass);
        assert_eq!(node.on_down(&local), Some(OnDown::Bypass));
        local.nh4 = Some([10, 0, 0, 3].into());
        assert_eq!(node.on_down(&local), None, "another service");
    }
}
