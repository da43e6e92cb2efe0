//! Redirects to the peers of veths (`bpf_redirect_peer`): where they are possible, and what
//! prevents them elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::kernel::Target;
use sidestep_mirror::egress::{Egress, Peer};
use sidestep_model::node::{IfIndex, Link, Mac};
use sidestep_model::settings::RedirectPeer;

use super::{Instance, NodeMirror, System};

/// Result of the last survey: for each veth, its peer's address, or why packets are not redirected
/// to it.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<IfIndex, Result<Mac, String>>);

impl<S: System> Instance<S> {
    /// Surveys the ports and egresses that are veths. Returns the links with another peer. A failed
    /// survey ends all redirects.
    pub(super) fn survey_peers(&mut self) -> Vec<IfIndex> {
        let setting = self.configured.own.settings.redirect_peer;
        let verdict = |(link, egress): (IfIndex, Egress)| {
            let has_tcx = self.system.has_tcx_egress(link);
            let mtu = self.mirror.node().links.get(&link).map(|link| link.mtu);
            (link, peer(&egress, setting, mtu, has_tcx))
        };
        let found = self.system.egresses(&self.surveyed());
        self.ports.peers = Peers(found.into_iter().map(verdict).collect());
        let peers = self.ports.peers.0.iter();
        let peers = peers.filter_map(|(link, peer)| Some((*link, *peer.as_ref().ok()?)));
        self.mirror.set_peers(peers.collect())
    }

    /// Ports and egresses; none if no port is in TC.
    fn surveyed(&self) -> Vec<IfIndex> {
        let mut ports = self.ports.attached.values();
        if !ports.any(|port| port.target == Target::Tc) {
            return Vec::new();
        }
        let adjacencies = self.tables.compiled.index.adjacencies.values();
        let ports = self.ports.attached.values().map(|port| port.ifindex);
        let links: BTreeSet<_> = adjacencies.map(|it| it.ifindex).chain(ports).collect();
        links.into_iter().collect()
    }

    /// Returns whether packets that leave by this link are redirected to its peer, and why. There is
    /// no reason for an interface that is not a veth, or if no port is in TC.
    pub(super) fn peer_report(&self, link: Option<&Link>) -> (bool, Option<String>) {
        let Some((link, peer)) =
            link.and_then(|link| Some((link, self.ports.peers.0.get(&link.ifindex)?)))
        else {
            return (false, None);
        };
        let mac = match peer {
            Ok(mac) => *mac,
            Err(why) => return (false, Some(why.clone())),
        };
        let node = self.node();
        let adjacencies = self.tables.compiled.image.adjacencies.values();
        let mut here = adjacencies.filter(|it| it.ifindex == link.ifindex.0);
        let why = if link.peer != Some(mac) {
            "it has changed, and is surveyed again"
        } else if !node.redirects_to_peer(link, mac) {
            "its peer runs XDP or GRO"
        } else if !here.any(|adjacency| Mac(adjacency.destination) == mac) {
            "no next hop has the address of its peer"
        } else if node.settings.redirect_peer == RedirectPeer::On {
            return (true, Some("as requested".into()));
        } else {
            return (true, Some("it skips nothing that is in use".into()));
        };
        (false, Some(why.into()))
    }
}

/// Returns the address of the peer if TC may redirect to it, or what prevents that. `mtu`: of the
/// egress.
fn peer(
    egress: &Egress,
    setting: RedirectPeer,
    mtu: Option<u32>,
    has_tcx: bool,
) -> Result<Mac, String> {
    let Some(peer) = egress.peer else {
        return Err("its peer is in this network namespace, or cannot be read".into());
    };
    match setting {
        RedirectPeer::Off => Err("as requested".into()),
        RedirectPeer::On => Ok(peer.mac),
        RedirectPeer::Auto => match obstacle(egress, peer, mtu, has_tcx) {
            None => Ok(peer.mac),
            Some(why) => Err(why),
        },
    }
}

/// Names a feature in use that a redirect to the peer would skip.
fn obstacle(egress: &Egress, peer: Peer, mtu: Option<u32>, has_tcx: bool) -> Option<String> {
    // A veth has no queueing discipline by default.
    if !["noqueue", ""].contains(&egress.qdisc.as_str()) {
        return Some(format!("it has the queueing discipline {}", egress.qdisc));
    }
    let obstacles = [
        (egress.is_captured, "a packet socket captures its packets"),
        (peer.has_xdp, "its peer runs XDP"),
        (
            egress.has_filters || has_tcx,
            "it has TC filters at its egress",
        ),
        (egress.has_chain, "it has an nftables chain at its egress"),
        (
            !egress.has_offloads,
            "its checksum or segmentation offload is off",
        ),
        (
            mtu.is_none_or(|mtu| mtu > peer.mtu),
            "its peer has a smaller MTU",
        ),
    ];
    let found = obstacles.iter().find(|(prevents, _)| *prevents);
    found.map(|(_, why)| (*why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn veth() -> Egress {
        Egress {
            peer: Some(Peer {
                mac: MAC,
                mtu: 1500,
                has_xdp: false,
            }),
            qdisc: "noqueue".into(),
            has_offloads: true,
            ..Egress::default()
        }
    }

    fn of(egress: &Egress, setting: RedirectPeer) -> Result<Mac, String> {
        peer(egress, setting, Some(1500), false)
    }

    #[test]
    fn everything_that_a_redirect_skips_prevents_it() {
        assert_eq!(of(&veth(), RedirectPeer::Auto), Ok(MAC));
        let peer_with = |change: fn(&mut Peer)| {
            let mut egress = veth();
            change(egress.peer.as_mut().expect("a peer"));
            egress
        };
        let in_use = [
            Egress {
                is_captured: true,
                ..veth()
            },
            Egress {
                has_filters: true,
                ..veth()
            },
            Egress {
                has_chain: true,
                ..veth()
            },
            Egress {
                has_offloads: false,
                ..veth()
            },
            Egress {
                qdisc: "tbf".into(),
                ..veth()
            },
            peer_with(|peer| peer.has_xdp = true),
            peer_with(|peer| peer.mtu = 1400),
        ];
        for egress in &in_use {
            assert!(of(egress, RedirectPeer::Auto).is_err(), "{egress:?}");
            assert_eq!(of(egress, RedirectPeer::On), Ok(MAC), "{egress:?}");
        }
        assert!(peer(&veth(), RedirectPeer::Auto, Some(1500), true).is_err());
    }

    #[test]
    fn a_setting_forbids_redirects_but_cannot_force_them_without_a_peer() {
        assert!(of(&veth(), RedirectPeer::Off).is_err());
        let same_namespace = Egress {
            peer: None,
            ..veth()
        };
        assert!(of(&same_namespace, RedirectPeer::On).is_err());
    }
}
