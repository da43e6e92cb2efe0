//! `route get`: the route that the tables of a port select for an address. A UDP packet to the
//! address runs through the packet path, and its trace has the lookup.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidestep_datapath::abi::{PUNT_reverse_path, PUNT_seg6_disabled};
use sidestep_datapath::{RouteId, Trace, TraceEvent, Verdict};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::RouteKey;

use super::{Instance, System};
use crate::compile::{Index, Prefix};
use crate::packet::{Datagram, HOP_LIMIT};
use crate::report;

/// Source address without `from`, of a prefix that no node uses: IPv6 discard-only (RFC 6666) and
/// the IPv4 dummy address (RFC 7600).
const DUMMY6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);
const DUMMY4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

impl<S: System> Instance<S> {
    /// Returns the route for packets to `destination` that enter a port.
    pub(super) fn selected_route(
        &self,
        destination: IpAddr,
        from: Option<IpAddr>,
        name: &str,
    ) -> Result<report::SelectedRoute, String> {
        let port = self.attached_port(name)?;
        let node = self.node();
        let link = node.links.get(&port.ifindex);
        let link = link.ok_or_else(|| format!("port {name}: its interface is gone"))?;
        let source = from.unwrap_or(match destination {
            IpAddr::V6(_) => DUMMY6.into(),
            IpAddr::V4(_) => DUMMY4.into(),
        });
        let packet = Datagram {
            source,
            destination,
            segments: Vec::new(),
            hop_limit: HOP_LIMIT,
        };
        let frame = packet
            .frame(link.mac.0)
            .map_err(|error| error.to_string())?;
        let mut native = self.native();
        let verdict = native.run(port.ifindex.0, &frame);
        let selection = Selection::new(&self.tables.compiled.index, native.trace(), destination);
        // The filter would check the dummy address.
        let is_filtered =
            matches!(verdict, Verdict::Punt(reason) if reason.number == PUNT_reverse_path);
        let verdict = if selection.processes(verdict) || (from.is_none() && is_filtered) {
            None
        } else {
            Some(verdict)
        };
        let (egress, reason) = match verdict {
            Some(Verdict::Forward { ifindex }) => {
                let egress = node.links.get(&IfIndex(ifindex));
                (egress.map(|link| link.name.clone()), None)
            }
            Some(Verdict::Punt(reason) | Verdict::Drop(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        let is_punt = matches!(verdict, Some(Verdict::Punt(_)));
        let index = &self.tables.compiled.index;
        let hop = selection.hop.and_then(|hop| index.routes.get(&hop));
        let hop = hop.and_then(|info| info.next_hop.as_ref());
        let key = selection.key(index);
        Ok(report::SelectedRoute {
            destination,
            source,
            port: name.to_owned(),
            tables: selection.tables.iter().map(|table| table.0).collect(),
            route: key.map(|key| self.one_route(&key)).transpose()?,
            next_hop: hop.map(|hop| report::NextHop::new(hop, node)),
            verdict: verdict.map(|it| it.kind().name().into()),
            egress,
            reason: reason.map(|reason| reason.name.into()),
            sentence: reason.map(|reason| reason.sentence.into()),
            handled_by: if is_punt { "kernel" } else { "sidestep" }.into(),
        })
    }

    /// Returns the report on one route.
    fn one_route(&self, key: &RouteKey) -> Result<report::Route, String> {
        let counts = self.counts_of_routes(std::iter::once(key))?;
        self.route_report(self.node(), key, &counts)
    }
}

/// Lookup of a destination in a trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// Searched tables.
    tables: Vec<TableId>,
    /// Record that the lookup returned.
    route: Option<RouteId>,
    /// Record of the next hop that the flow selected.
    hop: Option<RouteId>,
    /// Whether the address is a SID.
    is_sid: bool,
}

impl Selection {
    /// Reads the first lookup of `destination` in a trace, through all its views.
    fn new(index: &Index, trace: &[Trace], destination: IpAddr) -> Self {
        use TraceEvent as Event;
        let wanted = Prefix::host(destination).address;
        let mut found = Self::default();
        let events = trace.iter().filter_map(TraceEvent::decode);
        let is_first = |event: &Event| matches!(event, Event::Lookup { key, .. } if *key == wanted);
        for event in events.skip_while(|event| !is_first(event)) {
            match event {
                Event::Lookup { view, route, .. } if found.is_open(index) => {
                    let tables = index.views.get(&view).map(|view| &view.tables);
                    for table in tables.into_iter().flatten() {
                        if !found.tables.contains(table) {
                            found.tables.push(*table);
                        }
                    }
                    found.route = Some(route);
                }
                Event::Source { route, .. } if found.is_open(index) => found.route = Some(route),
                Event::Dscp { route, .. } if found.hop.is_none() => found.route = Some(route),
                Event::Choice { route, .. } if found.hop.is_none() => found.hop = Some(route),
                Event::Behavior { .. } => {
                    found.is_sid = true;
                    break;
                }
                _ => break,
            }
        }
        found
    }

    /// Whether the lookup begins or continues in another view.
    fn is_open(&self, index: &Index) -> bool {
        self.route
            .is_none_or(|route| index.leads.contains_key(&route))
    }

    /// Returns the key of the selected route. The action of a rule has none.
    fn key(&self, index: &Index) -> Option<RouteKey> {
        let of = |id: RouteId| index.routes.get(&id)?.route;
        self.route.and_then(of).or_else(|| self.hop.and_then(of))
    }

    /// Whether Sidestep processes the address as a SID. The verdict for a packet without an SRH
    /// then says nothing about others.
    fn processes(&self, verdict: Verdict) -> bool {
        let is_disabled =
            matches!(verdict, Verdict::Punt(reason) if reason.number == PUNT_seg6_disabled);
        self.is_sid && !is_disabled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sidestep_datapath::{Limits, Native};
    use sidestep_model::config::File;

    use super::*;
    use crate::compile::{Compiled, Compiler};

    const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64", "10.0.1.1/24"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"]}
neighbors:
- fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1
- fc00:b::3 lladdr 02:00:00:00:00:13 dev eth1
routes:
- fc0a::/16 via fc00:b::2 dev eth1
- fc0b::/16 nexthop via fc00:b::2 dev eth1 nexthop via fc00:b::3 dev eth1
- fc0c::/16 encap seg6 mode encap segs fc0a::e dev eth1
- fc0d::/16 from fc00:a::/64 via fc00:b::3 dev eth1
- fc0f::1/128 encap seg6local action End dev eth0
- blackhole fc0e::/16
"#;

    /// Returns the verdict and the selection for a packet that enters `eth0`, and the tables.
    fn selected(from: &str, to: &str) -> (Verdict, Selection, Compiled) {
        let file = File::parse(NODE).expect("a node file");
        let node = file.node().expect("a node");
        let ports: BTreeSet<_> = node.links.keys().copied().collect();
        let compiled = Compiler::new(Limits::default()).compile(&node, &ports);
        let compiled = compiled.expect("it compiles");
        let [source, destination] = [from, to].map(|text| text.parse().expect("an address"));
        let link = node.link_by_name("eth0").expect("a port");
        let packet = Datagram {
            source,
            destination,
            segments: Vec::new(),
            hop_limit: HOP_LIMIT,
        };
        let frame = packet.frame(link.mac.0).expect("a frame");
        let mut native = Native::new(&compiled.image);
        let verdict = native.run(link.ifindex.0, &frame);
        let selection = Selection::new(&compiled.index, native.trace(), destination);
        (verdict, selection, compiled)
    }

    #[test]
    fn the_first_lookup_of_the_address_selects_the_route() {
        for (to, prefix, is_sid, expected) in [
            ("fc0a::1", Some("fc0a::/16"), false, "forward"),
            // Not the route of the segment.
            ("fc0c::1", Some("fc0c::/16"), false, "forward"),
            ("fc0f::1", Some("fc0f::1/128"), true, "drop"),
            ("fc0e::1", Some("fc0e::/16"), false, "drop"),
            ("fc00:a::1", Some("fc00:a::1/128"), false, "punt"),
            ("fdff::1", None, false, "punt"),
            ("fe80::1", None, false, "punt"),
        ] {
            let (verdict, selection, compiled) = selected("fc00:a::2", to);
            let key = selection.key(&compiled.index);
            let found = key.map(|key| key.prefix.to_string());
            assert_eq!(found.as_deref(), prefix, "{to}");
            assert_eq!((selection.hop, selection.is_sid), (None, is_sid), "{to}");
            assert_eq!(verdict.kind().name(), expected, "{to}");
            assert_eq!(selection.processes(verdict), is_sid, "{to}");
            assert_eq!(selection.tables.is_empty(), to == "fe80::1", "{to}");
        }
    }

    #[test]
    fn a_flow_selects_one_of_several_next_hops() {
        let (_, selection, compiled) = selected("fc00:a::2", "fc0b::1");
        let key = selection.key(&compiled.index).expect("a route");
        assert_eq!(key.prefix.to_string(), "fc0b::/16");
        let hop = &compiled.index.routes[&selection.hop.expect("a slot")];
        let via = hop.next_hop.as_ref().and_then(|hop| hop.via);
        let via = via.expect("a gateway").to_string();
        assert!(["fc00:b::2", "fc00:b::3"].contains(&&*via), "{via}");
    }

    #[test]
    fn a_route_for_some_sources_is_selected_for_these_only() {
        for (from, source) in [("fc00:a::2", Some("fc00:a::/64")), ("fc00:99::2", None)] {
            let (_, selection, compiled) = selected(from, "fc0d::1");
            let key = selection.key(&compiled.index);
            let found = key.and_then(|key| key.from).map(|from| from.to_string());
            assert_eq!(found.as_deref(), source, "{from}");
            assert!(selection.tables.contains(&TableId::MAIN));
        }
    }
}
