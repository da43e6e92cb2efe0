//! The overlay: routes, rules, neighbors, VLAN tables and policies that exist only in Sidestep,
//! from the configuration file and from commands.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_mirror::Changes;
use sidestep_model::config::{
    Overlay, check_binding, check_policies, check_policy, check_services, effect, read_own_route,
};
use sidestep_model::domain::Entry;
use sidestep_model::ether::{Ether, EtherPath};
use sidestep_model::grammar::{Context, Names, Style, Words, domain, policy, route, rule, vlan};
use sidestep_model::hmac::{HmacAlgorithm, HmacKey, Secret};
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::policy::{is_steering, named};
use sidestep_model::route::{Encap, NextHop, Owner, Route, RouteKey};
use sidestep_model::service::Service;

use crate::api::{Noun, Verb};

/// The mirrored node with the overlay; a separate node only if the overlay is not empty.
#[derive(Debug, Default)]
pub(crate) struct OverlaidNode(Option<Node>);

impl OverlaidNode {
    /// `down`: services that do not reply.
    pub(crate) fn new(
        mirrored: &Node,
        own: &Overlay,
        devices: &Devices,
        down: BTreeSet<Service>,
    ) -> Self {
        // These keys do not concern the node, which a copy would double.
        let of_node = Overlay {
            metrics: None,
            fpm: None,
            fpm_hold: None,
            fpm_reply: false,
            ..own.clone()
        };
        Self((of_node != Overlay::default()).then(|| {
            let mut node = Node {
                services_down: down,
                former_names: devices.0.clone(),
                ..overlaid(mirrored, own)
            };
            node.steer();
            node
        }))
    }

    /// Whether it is a separate node.
    pub(crate) fn is_separate(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn node<'a>(&'a self, mirrored: &'a Node) -> &'a Node {
        self.0.as_ref().unwrap_or(mirrored)
    }

    /// Applies changed routes and neighbors of the mirrored node. Returns the routes that changed,
    /// including policy routes that now lead elsewhere.
    pub(crate) fn apply(
        &mut self,
        mirrored: &Node,
        own: &Overlay,
        changes: &Changes,
    ) -> Vec<RouteKey> {
        let mut routes = changes.routes.clone();
        let Some(node) = &mut self.0 else {
            return routes;
        };
        for key in changes.routes.iter().chain(&changes.followed) {
            let ours = own.routes.get(key).filter(|route| !is_steering(route));
            let route = ours.or_else(|| mirrored.routes.get(key));
            node.set_route(*key, route.cloned());
        }
        for key in &changes.neighbors {
            let neighbor = own
                .neighbors
                .get(key)
                .or_else(|| mirrored.neighbors.get(key));
            match neighbor.copied() {
                Some(neighbor) => node.neighbors.insert(*key, neighbor),
                None => node.neighbors.remove(key),
            };
        }
        for dev in &changes.links {
            let link = mirrored.links.get(dev).cloned();
            node.links.extend(link.map(|link| (*dev, link)));
        }
        let steered = node.steer_after(&changes.routes, &changes.neighbors);
        routes.extend(steered);
        routes
    }
}

/// Names of the interfaces in the overlay. The configuration uses names, and a recreated interface
/// has a new index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(BTreeMap<IfIndex, String>);

impl Devices {
    pub(super) fn names(&self) -> &BTreeMap<IfIndex, String> {
        &self.0
    }

    pub(super) fn into_names(self) -> BTreeMap<IfIndex, String> {
        self.0
    }

    /// Adds names of interfaces that do not exist.
    pub(crate) fn extend(&mut self, names: BTreeMap<IfIndex, String>) {
        self.0.extend(names);
    }

    /// Records the names of the interfaces of a route.
    pub(super) fn note(&mut self, route: &Route, mirrored: &Node) {
        for dev in mentioned(route) {
            let link = mirrored.links.get(&dev);
            self.0.extend(link.map(|link| (dev, link.name.clone())));
        }
    }

    /// Replaces interfaces that were recreated. Returns the new index for each old one.
    pub(crate) fn track(
        &mut self,
        own: &mut Overlay,
        mirrored: &Node,
    ) -> BTreeMap<IfIndex, IfIndex> {
        let mut moved = BTreeMap::new();
        let mut names = BTreeMap::new();
        for dev in devices(own) {
            let former = self.0.get(&dev);
            let now = mirrored
                .links
                .get(&dev)
                .or_else(|| mirrored.link_by_name(former?));
            let name = now.map(|link| &link.name).or(former);
            let index = now.map_or(dev, |link| link.ifindex);
            names.extend(name.map(|name| (index, name.clone())));
            if index != dev {
                moved.insert(dev, index);
            }
        }
        self.0 = names;
        if !moved.is_empty() {
            for dev in mentions(own) {
                *dev = *moved.get(dev).unwrap_or(dev);
            }
            let neighbors = std::mem::take(&mut own.neighbors).into_iter();
            own.neighbors = neighbors
                .map(|((dev, of), it)| ((*moved.get(&dev).unwrap_or(&dev), of), it))
                .collect();
        }
        moved
    }
}

/// Every interface that the overlay mentions.
fn devices(own: &mut Overlay) -> BTreeSet<IfIndex> {
    let of_neighbors: Vec<_> = own.neighbors.keys().map(|(dev, _)| *dev).collect();
    let others = mentions(own).map(|dev| *dev);
    others.chain(of_neighbors).collect()
}

/// Mutable references to interfaces in the overlay, except for the keys of neighbors. Rules and the
/// domain use names.
fn mentions(own: &mut Overlay) -> impl Iterator<Item = &mut IfIndex> {
    let of_routes = own.routes.values_mut().flat_map(mentions_of);
    of_routes.chain(own.vlans.values_mut())
}

/// Interfaces that a route mentions.
pub(super) fn mentioned(route: &Route) -> impl Iterator<Item = IfIndex> {
    let mut route = route.clone();
    let found: Vec<IfIndex> = mentions_of(&mut route).map(|dev| *dev).collect();
    found.into_iter()
}

/// As [`mentions`], in a route.
fn mentions_of(route: &mut Route) -> impl Iterator<Item = &mut IfIndex> {
    let hops = route.next_hops.make_mut().iter_mut();
    hops.flat_map(|hop| {
        let local = match &mut hop.encap {
            Some(Encap::Seg6Local(local)) => {
                [local.oif.as_mut(), local.iif.as_mut(), local.l2dev.as_mut()]
            }
            _ => [None, None, None],
        };
        hop.dev.iter_mut().chain(local.into_iter().flatten())
    })
}

fn overlaid(mirrored: &Node, own: &Overlay) -> Node {
    let mut node = mirrored.clone();
    let (steering, others): (Vec<_>, Vec<_>) = own.routes.values().cloned().partition(is_steering);
    node.ethers.clone_from(&own.ethers);
    node.add_ethers(own.all_policies(), steering);
    node.routes
        .extend(others.into_iter().map(|route| (route.key, route)));
    node.neighbors.extend(
        own.neighbors
            .iter()
            .map(|(key, neighbor)| (*key, *neighbor)),
    );
    for rule in &own.rules {
        node.rules
            .entry((rule.family, rule.priority))
            .or_default()
            .push(rule::with_own_names(rule, mirrored));
    }
    node.vlans
        .extend(own.vlans.iter().map(|(key, dev)| (*key, *dev)));
    node.domain = own.domain.clone();
    node.oam_rate = own.oam_rate;
    node.settings = own.settings;
    node.hmac_keys.extend(own.hmac_keys.clone());
    node.tunsrc = own.tunsrc.or(node.tunsrc);
    node.vrf_tunsrc.clone_from(&own.vrf_tunsrc);
    node.seg6_flowlabel = own.seg6_flowlabel.unwrap_or(node.seg6_flowlabel);
    node.multipath_hash_seed = own.multipath_hash_seed.unwrap_or(node.multipath_hash_seed);
    node
}

fn context(names: &dyn Names) -> Context<'_> {
    Context {
        names,
        family: None,
        owner: Owner::Sidestep,
    }
}

/// Applies `sidestep NOUN VERB ARGS`.
///
/// # Errors
/// The arguments are invalid, or the entry exists or is missing. The overlay is unchanged.
pub(crate) fn change(
    own: &mut Overlay,
    node: &Node,
    names: &dyn Names,
    noun: Noun,
    verb: Verb,
    args: &[String],
) -> Result<Changed, String> {
    match noun {
        Noun::Route => return change_route(own, node, names, verb, args).map(Changed::Route),
        Noun::Rule => change_rule(own, node, verb, args),
        Noun::Policy => change_policy(own, node, verb, args),
        Noun::Vlan => change_vlan(own, names, verb, args),
        Noun::Domain => change_domain(own, node, verb, args),
        Noun::Ether => super::ether::change(own, node, verb, args),
    }?;
    Ok(Changed::Other)
}

/// Extent of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// One route.
    Route(RouteKey),
    /// Something else.
    Other,
}

/// Executes `sidestep route VERB WORDS`. On an error nothing changes.
fn change_route(
    own: &mut Overlay,
    node: &Node,
    names: &dyn Names,
    verb: Verb,
    words: &[String],
) -> Result<RouteKey, String> {
    if verb == Verb::Del {
        return delete(own, node, names, words);
    }
    let ctx = context(names);
    let mut words = Words::from_args(words);
    let route = read_own_route(&mut words, &ctx, node).map_err(|error| error.to_string())?;
    if verb == Verb::Add
        && let Some(there) = own.routes.get(&route.key)
    {
        let words = route::print(there, node, Style::Add);
        return Err(format!(
            "a route with this prefix, table and metric exists already: {words} (use `replace`)"
        ));
    }
    check_services(&route, &words, &own.routes, node).map_err(|error| error.to_string())?;
    check_policies(&route, &words, &own.all_policies()).map_err(|error| error.to_string())?;
    let key = route.key;
    own.routes.insert(key, route);
    Ok(key)
}

/// Executes `sidestep vlan VERB WORDS`. On an error nothing changes.
fn change_vlan(
    own: &mut Overlay,
    names: &dyn Names,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let ctx = context(names);
    let mut words = Words::from_args(words);
    if verb == Verb::Del {
        let key = vlan::parse_key(&mut words, &ctx).map_err(|error| error.to_string())?;
        return match own.vlans.remove(&key) {
            Some(_) => Ok(()),
            None => Err("there is no such entry (see `sidestep vlan show`)".into()),
        };
    }
    let (key, dev) = vlan::parse(&mut words, &ctx).map_err(|error| error.to_string())?;
    if verb == Verb::Add
        && let Some(there) = own.vlans.get(&key)
    {
        let words = vlan::print(&key, *there, names);
        return Err(format!("the entry exists already: {words} (use `replace`)"));
    }
    own.vlans.insert(key, dev);
    Ok(())
}

/// Executes `sidestep domain VERB WORDS`. On an error nothing changes.
fn change_domain(
    own: &mut Overlay,
    node: &Node,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let is_named = |entry: &Entry| match (entry, words) {
        (Entry::Inside(port), [_, name]) => {
            let link = node.link_by_name(port);
            link.is_some_and(|link| words[0] == "inside" && link.is_named(name))
        }
        _ => false,
    };
    // A port that no longer exists can still be removed.
    let known = own.domain.entries();
    let there = known
        .into_iter()
        .find(|it| is_named(it) || domain::print(it) == words.join(" "));
    if verb == Verb::Del {
        return match there {
            Some(entry) if own.domain.remove(&entry) => Ok(()),
            _ => Err("there is no such entry (see `sidestep domain show`)".into()),
        };
    }
    let entry = domain::parse(&mut Words::from_args(words), &context(node));
    let entry = entry.map_err(|error| error.to_string())?;
    let text = domain::print(&entry);
    if !own.domain.add(entry) && verb == Verb::Add {
        return Err(format!("the entry exists already: {text}"));
    }
    Ok(())
}

/// Executes `sidestep policy VERB WORDS`. On an error nothing changes.
fn change_policy(
    own: &mut Overlay,
    node: &Node,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let mut words = Words::from_args(words);
    if verb == Verb::Del {
        return delete_policy(own, node, &mut words);
    }
    let (name, policy) = policy::parse(&mut words).map_err(|error| error.to_string())?;
    if verb == Verb::Add
        && let Some(there) = own.policies.get(&name)
    {
        let words = policy::print(&name, there);
        return Err(format!(
            "the policy exists already: {words} (use `replace`)"
        ));
    }
    let mut others = own.all_policies();
    others.retain(|other, there| there.id != policy.id || own.policies.contains_key(other));
    check_policy(&name, &policy, &words, &others).map_err(|error| error.to_string())?;
    let routes = node.routes.values().chain(own.routes.values());
    check_binding(&policy, &words, routes).map_err(|error| error.to_string())?;
    own.policies.insert(name, policy);
    Ok(())
}

/// `del NAME`, or all arguments of the `add`.
fn delete_policy(own: &mut Overlay, node: &Node, words: &mut Words) -> Result<(), String> {
    let name = policy::parse_name(words).map_err(|error| error.to_string())?;
    if !own.policies.contains_key(&name) {
        return Err(format!(
            "there is no policy {name} (see `sidestep policy show`)"
        ));
    }
    let mut routes = own.routes.values();
    if let Some(route) = routes.find(|route| named(route).contains(name.as_str())) {
        let words = route::print(route, node, Style::Add);
        return Err(format!("a route leads into policy {name}: {words}"));
    }
    let leads = |device: &Ether| device.path == EtherPath::Policy(name.clone());
    if let Some((device, _)) = own.ethers.iter().find(|(_, device)| leads(device)) {
        return Err(format!("ether device {device} leads into policy {name}"));
    }
    own.policies.remove(&name);
    Ok(())
}

/// Executes `sidestep rule VERB WORDS`. On an error nothing changes.
fn change_rule(own: &mut Overlay, node: &Node, verb: Verb, words: &[String]) -> Result<(), String> {
    let ctx = context(node);
    let mut words = Words::from_args(words);
    if verb == Verb::Del {
        let gone = rule::Pattern::parse(&mut words, &ctx).map_err(|error| error.to_string())?;
        let before = own.rules.len();
        own.rules.retain(|rule| !gone.fits(rule, node));
        return if own.rules.len() < before {
            Ok(())
        } else {
            Err("no such rule in Sidestep (use `ip rule del` for rules of the kernel)".into())
        };
    }
    let rules = rule::parse(&mut words, &ctx, &node.rules).map_err(|error| error.to_string())?;
    let checked = rules
        .iter()
        .try_for_each(|rule| effect::check_rule(rule, &words));
    checked.map_err(|error| error.to_string())?;
    let (there, new): (Vec<_>, Vec<_>) = rules.into_iter().partition(|r| own.rules.contains(r));
    if verb == Verb::Add
        && let [there, ..] = &there[..]
    {
        let words = rule::print(there, node, Style::Add);
        return Err(format!("the rule exists already: {words}"));
    }
    own.rules.extend(new);
    Ok(())
}

/// Executes `sidestep hmac set`.
pub(crate) fn set_hmac(
    own: &mut Overlay,
    key: u32,
    algorithm: HmacAlgorithm,
    secret: &Secret,
) -> Result<(), String> {
    if key == 0 {
        return Err("HMAC key id 0 means no key".into());
    }
    let secret = secret.clone();
    own.hmac_keys.insert(key, HmacKey { algorithm, secret });
    Ok(())
}

/// Executes `sidestep hmac del`. On an error nothing changes.
pub(crate) fn del_hmac(own: &mut Overlay, key: u32) -> Result<(), String> {
    match own.hmac_keys.remove(&key) {
        Some(_) => Ok(()),
        None => Err(
            "no such key in Sidestep (use `ip sr hmac set KEYID` without a secret for keys of the \
             kernel)"
                .into(),
        ),
    }
}

/// `del PREFIX [table T] [metric N]`, or all arguments of the `add`.
fn delete(
    own: &mut Overlay,
    node: &Node,
    names: &dyn Names,
    words: &[String],
) -> Result<RouteKey, String> {
    let ctx = context(names);
    let wanted = read_own_route(&mut Words::from_args(words), &ctx, node);
    let keys: Vec<RouteKey> = match &wanted {
        Ok(route) => vec![route.key],
        Err(error) => {
            let (prefix, table, metric) = selector(words).ok_or_else(|| error.to_string())?;
            let matches = |key: &&RouteKey| {
                key.prefix == prefix
                    && key.table == table
                    && metric.is_none_or(|metric| key.metric == metric)
            };
            own.routes.keys().filter(matches).copied().collect()
        }
    };
    let [key] = keys[..] else {
        return Err(match keys.len() {
            0 => NO_SUCH_ROUTE.into(),
            several => format!("{several} routes fit; say which `metric`"),
        });
    };
    let there = own.routes.get(&key).ok_or(NO_SUCH_ROUTE)?;
    if wanted.is_ok_and(|wanted| !is_described(there, &wanted)) {
        let words = route::print(there, node, Style::Add);
        return Err(format!(
            "the route of this prefix, table and metric is another one: {words}"
        ));
    }
    own.routes.remove(&key);
    Ok(key)
}

const NO_SUCH_ROUTE: &str =
    "no such route in Sidestep (use `ip route del` for routes of the kernel)";

/// Whether a route has everything that the words of another one say.
fn is_described(there: &Route, said: &Route) -> bool {
    let says = |said: &NextHop, there: &NextHop| {
        (said.via.is_none() || said.via == there.via)
            && (said.dev.is_none() || said.dev == there.dev)
            && (said.encap.is_none() || said.encap == there.encap)
    };
    let hops = said.next_hops.iter().zip(&there.next_hops);
    let mut hops = hops.map(|(said, there)| says(said, there));
    said.kind == there.kind
        && (said.mtu.is_none() || said.mtu == there.mtu)
        && (said.prefsrc.is_none() || said.prefsrc == there.prefsrc)
        && said.next_hops.len() <= there.next_hops.len()
        && hops.all(|says| says)
}

/// Parses `PREFIX [table T] [metric N]` in any order, and nothing else.
fn selector(words: &[String]) -> Option<(IpNet, TableId, Option<u32>)> {
    let (first, rest) = words.split_first()?;
    let address = || first.parse::<IpAddr>().map(IpNet::from);
    let prefix = match first.as_str() {
        // It has no family.
        "default" => return None,
        _ => first.parse().or_else(|_| address()).ok()?,
    };
    let (mut table, mut metric) = (TableId::MAIN, None);
    for pair in rest.chunks(2) {
        match pair {
            [key, value] if key == "table" => {
                table = match value.as_str() {
                    "main" => TableId::MAIN,
                    "local" => TableId::LOCAL,
                    "default" => TableId::DEFAULT,
                    number => TableId(number.parse().ok()?),
                };
            }
            [key, value] if key == "metric" => metric = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some((prefix, table, metric))
}

#[cfg(test)]
mod tests {
    use sidestep_model::node::{Link, Neighbor};
    use sidestep_model::route::{NextHop, Route};
    use sidestep_model::vlan::{Vids, VlanKey, VlanTableId};

    use super::*;

    fn node(links: &[(u32, &str)]) -> Node {
        let links = links.iter().map(|(index, name)| {
            let link = Link::new(IfIndex(*index), name);
            (link.ifindex, link)
        });
        Node {
            links: links.collect(),
            ..Node::default()
        }
    }

    #[test]
    fn the_overlay_identifies_interfaces_by_name() {
        let before = node(&[(2, "eth0"), (3, "eth1")]);
        let mut own = Overlay::default();
        let words =
            "fc00:9::/64 encap seg6local action End.AM oif eth0 iif eth1 nh6 fc00::2 dev eth0";
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        change_route(&mut own, &before, &before, Verb::Add, &words).expect("a route");
        let neighbor = Neighbor {
            lladdr: None,
            permanent: true,
        };
        let address: IpAddr = "fc00::2".parse().expect("an address");
        own.neighbors.insert((IfIndex(2), address), neighbor);
        let key = VlanKey {
            table: VlanTableId(1),
            vids: Vids::Untagged,
        };
        own.vlans.insert(key, IfIndex(3));

        let mut known = Devices::default();
        assert_eq!(known.track(&mut own, &before), BTreeMap::new());
        let written = own.clone();
        // Both disappear, then one returns, then the other.
        assert_eq!(
            known.track(&mut own, &node(&[(7, "eth7")])),
            BTreeMap::new()
        );
        assert_eq!(own, written);
        let moved = known.track(&mut own, &node(&[(3, "eth1"), (8, "eth0")]));
        assert_eq!(moved, BTreeMap::from([(IfIndex(2), IfIndex(8))]));
        assert_eq!(known.0[&IfIndex(8)], "eth0");
        assert!(own.neighbors.contains_key(&(IfIndex(8), address)));
        let moved = known.track(&mut own, &node(&[(9, "eth1"), (8, "eth0")]));
        assert_eq!(moved, BTreeMap::from([(IfIndex(3), IfIndex(9))]));
        assert_eq!(own.vlans[&key], IfIndex(9));
        let [Route { next_hops, .. }] = &own.routes.values().collect::<Vec<_>>()[..] else {
            panic!("{own:?}")
        };
        let [
            NextHop {
                dev,
                encap: Some(Encap::Seg6Local(local)),
                ..
            },
        ] = &next_hops[..]
        else {
            panic!("{own:?}")
        };
        let devices = (*dev, local.oif, local.iif);
        assert_eq!(
            devices,
            (Some(IfIndex(8)), Some(IfIndex(8)), Some(IfIndex(9)))
        );
        // A renamed interface has its new name.
        known.track(&mut own, &node(&[(9, "eth1"), (8, "wan")]));
        assert_eq!(known.0[&IfIndex(8)], "wan");
    }
}
