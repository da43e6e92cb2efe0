//! A packet, its node, and the result of Sidestep.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use sidestep_control::compile::Compiled;
use sidestep_datapath::abi::{
    SIDESTEP_ADJACENCY_VALID, SIDESTEP_ROUTE_END_DT46, SIDESTEP_ROUTE_END_DX2,
    SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_CHOICE, SIDESTEP_TRACE_DECAP, SIDESTEP_TRACE_FORWARD,
    SIDESTEP_TRACE_PUSH, sidestep_adjacency,
};
use sidestep_datapath::{AdjacencyId, GroupId, RouteId, Trace};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::Encap;
use sidestep_testkit::differential::headers::ETHERNET;
use sidestep_testkit::linux::Output;
use sidestep_testkit::vectors::Expect;

use crate::linux_form::LinuxForm;

/// A packet and the result of Sidestep.
pub struct Case<'a> {
    /// The frame that arrived.
    pub frame: &'a [u8],
    pub ours: &'a Expect,
    pub trace: &'a [Trace],
    pub compiled: &'a Compiled,
    pub seg6_flowlabel: i32,
    pub node: &'a Node,
    /// The node's own addresses.
    pub own: &'a BTreeSet<IpAddr>,
}

impl Case<'_> {
    /// Returns the last step of a kind.
    pub fn last(&self, kind: u32) -> Option<&Trace> {
        self.trace.iter().rev().find(|step| step.kind == kind)
    }

    /// Returns the last step of kind `wanted` before the last one of `kind`.
    pub fn before(&self, kind: u32, wanted: u32) -> Option<&Trace> {
        let at = self.trace.iter().rposition(|step| step.kind == kind)?;
        self.trace[..at]
            .iter()
            .rev()
            .find(|step| step.kind == wanted)
    }

    /// Returns true if a SID or headend followed a push.
    pub fn processes_pushed_headers(&self) -> bool {
        let after = self.before(SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_PUSH);
        let pushes = self
            .trace
            .iter()
            .filter(|step| step.kind == SIDESTEP_TRACE_PUSH);
        after.is_some() || pushes.count() > 1
    }

    pub fn behavior(&self) -> Option<u32> {
        self.last(SIDESTEP_TRACE_BEHAVIOR).map(|step| step.a)
    }

    /// Returns the offset, in the arriving frame, of the packet that is current at the end.
    pub fn current(&self) -> usize {
        self.last(SIDESTEP_TRACE_DECAP)
            .map_or(ETHERNET, |step| step.b as usize)
    }

    /// Returns the number of steps of a kind that apply to the packet that is current at the end.
    pub fn since_decapsulation(&self, kind: u32) -> usize {
        let steps = self.trace.iter().rev();
        let steps = steps.take_while(|step| step.kind != SIDESTEP_TRACE_DECAP);
        steps.filter(|step| step.kind == kind).count()
    }

    /// Returns the next hops that another flow of the same route could have used.
    pub fn ways(&self) -> Vec<&sidestep_adjacency> {
        let image = &self.compiled.image;
        let group = self
            .last(SIDESTEP_TRACE_CHOICE)
            .map(|step| &image.groups[&GroupId(step.a)]);
        let routes = group.map_or(&[][..], |group| &group.routes[..group.slots as usize]);
        let adjacency = |route| {
            let route = &image.routes[route];
            let policy = image.policies.get(&route.policy_id());
            policy.map_or(route.adjacency, |policy| policy.adjacency)
        };
        let ways = routes.iter().map(adjacency);
        ways.filter_map(|way| image.adjacencies.get(&way)).collect()
    }

    /// Returns whether the frames were sent to another next hop, whose MTU is large enough.
    pub fn is_a_wider_way(&self, sent: &[Output]) -> bool {
        let fits = |way: &&sidestep_adjacency, (port, frame): &Output| {
            let link = self.node.links.get(&IfIndex(way.ifindex));
            let length = frame.len() - ETHERNET;
            link.is_some_and(|link| link.name == *port) && length <= way.mtu as usize
        };
        let ways = self.ways();
        ways.len() > 1 && matches!(sent, [one] if ways.iter().any(|way| fits(way, one)))
    }

    /// Returns true if `found` has this form and was sent to another of these next hops.
    pub fn is_another_way(&self, form: &LinuxForm, (port, found): &Output) -> bool {
        let is_this = |way: &&sidestep_adjacency| {
            let link = self.node.links.get(&IfIndex(way.ifindex));
            let ethernet = [way.destination, way.source].concat();
            let frame = [&ethernet, &form.frame[ethernet.len()..]].concat();
            link.is_some_and(|link| link.name == *port) && form.is_same(&frame, found)
        };
        self.ways().iter().any(is_this)
    }

    /// Returns whether another next hop is unresolved, or its MTU is too small for the frame.
    pub fn has_a_closed_way(&self, frame: &[u8]) -> bool {
        let closed = |way: &&sidestep_adjacency| {
            u32::from(way.flags) & SIDESTEP_ADJACENCY_VALID == 0
                || (way.mtu as usize) < frame.len() - ETHERNET
        };
        self.ways().iter().any(closed)
    }

    /// Returns true if Linux' frame exceeds the link's MTU and Sidestep's does not.
    pub fn is_too_large(&self, frame: &[u8]) -> bool {
        let adjacency = self
            .last(SIDESTEP_TRACE_FORWARD)
            .and_then(|step| self.compiled.image.adjacencies.get(&AdjacencyId(step.a)));
        adjacency.is_some_and(|adjacency| frame.len() - ETHERNET > adjacency.mtu as usize)
    }

    /// Returns the source of the current packet, if it is IPv4.
    pub fn ipv4_source(&self) -> Option<IpAddr> {
        let packet = self.frame.get(self.current()..)?;
        let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
        (packet[0] >> 4 == 4).then(|| source.into())
    }

    /// Whether the last behavior is an End.DX4 whose next hop is on a link of the node.
    pub fn to_nh4_on_link(&self) -> bool {
        let sid = self.last(SIDESTEP_TRACE_BEHAVIOR);
        let route = sid.and_then(|step| {
            let info = self.compiled.index.routes.get(&RouteId(step.b))?;
            info.route(self.node)
        });
        let encap = route.and_then(|route| route.next_hops.first()?.encap.as_ref());
        matches!(encap, Some(Encap::Seg6Local(local)) if local.nh4.is_some_and(on_link))
    }

    pub fn decapsulates(&self) -> bool {
        self.behavior().is_some_and(|action| {
            (SIDESTEP_ROUTE_END_DX2..=SIDESTEP_ROUTE_END_DT46).contains(&action)
        })
    }
}

/// On a link of a scenario's ports: `10.N.0.0/24`.
pub fn on_link(address: Ipv4Addr) -> bool {
    address.octets()[0] == 10
}
