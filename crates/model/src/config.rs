//! The YAML node file: a whole node (`sidestep replay --config`), or the overlay on a running one
//! (`sidestep run --config`).
//!
//! ```yaml
//! ports:                       # for `run` a plain list of names will do
//!   eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"], mtu: 1500, seg6_enabled: true}
//!   eth1: {addresses: ["fc01::2/64", "192.0.2.1/24"]}
//!   eth1.7: {vlan: {link: eth1, id: 7, protocol: 802.1Q}}
//! neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
//! routes:
//! - fc0a::/16 via fc01::1 dev eth1
//! - fc00:0:1::/128 encap seg6local action End.DT46 table 100 dev eth0
//! - fc0b::/16 via fc01::1 dev eth1 owner sidestep
//! rules: ["iif eth0 lookup 100"]
//! vlans: ["table 10 vid 100 dev eth1"]
//! domain: ["sid-block fc00::/16", "inside eth1"]
//! ethers: ["lan0 segs fc00:2::d2 mtu 1400"]
//! policies: ["low-delay color 100 endpoint fc00:3::1 segs fc00:2::e,fc00:3::d6 weight 3 segs fc00:4::e,fc00:3::d6"]
//! tunsrc: "fc00::2"
//! seg6_flowlabel: 0
//! multipath_hash_seed: 0
//! oam_rate: 0
//! local_srh: drop
//! require_seg6_enabled: false
//! encap_lookup_main: false
//! ipv4_too_big: fragment
//! redirect_peer: auto
//! fragment_rate: 1000
//! fragment_burst: 50
//! icmp_rate: 1000
//! icmp_burst: 50
//! metrics: "127.0.0.1:10143"
//! fpm: "127.0.0.1:2620"
//! fpm_hold: 120
//! fpm_reply: false
//! mode: auto
//! limits: {prefixes: 2000000}
//! hmac: {7: {algorithm: sha256, secret_file: /etc/sidestep/key7}}
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::behavior::check::Wrong;
use crate::domain::Domain;
use crate::error::{ConfigError, Place};
use crate::ether::Ethers;
use crate::grammar::{
    Context, Names, Words, domain, neighbor, path, protection, reflector, route, rule, vlan, vrf,
};
use crate::hmac::HmacKeys;
use crate::liveness::{Paths, Reflectors};
use crate::node::{IfIndex, Neighbor, Node, TableId};
use crate::policy::{ControllerPaths, Policy, is_steering, with_paths};
use crate::protection::{ControllerBackups, PROTECTIONS_MAX, Protections};
use crate::route::{Owner, Route, RouteKey, RouteKind, Rule};
use crate::settings::{Ipv4TooBig, LocalSrh, Mode, RedirectPeer, Settings};
use crate::vlan::VlanTables;

pub mod effect;
pub mod entries;
mod ethers;
pub mod implied;
mod keys;
mod owner;
mod paths;
mod policies;
mod ports;
mod services;
mod start;
pub mod yaml;

pub use ethers::{check_attachment, check_ether};
pub use keys::SecretSource;
pub use paths::check_path;
pub use policies::{check_binding, check_policies, check_policy, claims};
pub use ports::{INTERFACE_NAME, INTERFACE_NAME_MAX, Ports, is_interface_name};
pub use start::Running;

/// A node file. It can also be a part of another YAML document that `serde_saphyr` reads.
///
/// [`File::node`] and [`File::overlay`] parse the lines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Interfaces, in the order of the file.
    ports: Option<Spanned<Ports>>,
    /// `ip route add` lines.
    routes: Vec<Spanned<String>>,
    /// `ip rule add` lines.
    rules: Vec<Spanned<String>>,
    /// `ip neigh add` lines.
    neighbors: Vec<Spanned<String>>,
    /// `sidestep vlan add` lines.
    vlans: Vec<Spanned<String>>,
    /// Settings of VRFs, by table.
    vrfs: Vec<Spanned<String>>,
    /// `sidestep domain add` lines.
    domain: Vec<Spanned<String>>,
    /// `sidestep protect add` lines.
    protections: Vec<Spanned<String>>,
    /// `sidestep reflector add` lines.
    reflectors: Vec<Spanned<String>>,
    /// `sidestep path add` lines.
    paths: Vec<Spanned<String>>,
    /// `sidestep policy add` lines.
    policies: Vec<Spanned<String>>,
    /// `sidestep ether add` lines.
    ethers: Vec<Spanned<String>>,
    /// `ip sr tunsrc set`.
    tunsrc: Option<Spanned<String>>,
    /// `net.ipv6.seg6_flowlabel`.
    seg6_flowlabel: Option<Spanned<i32>>,
    /// `net.ipv4.fib_multipath_hash_seed`.
    multipath_hash_seed: Option<u32>,
    /// `sidestep oam rate`.
    oam_rate: u32,
    /// `sidestep run --local-srh`.
    pub local_srh: Option<LocalSrh>,
    /// `sidestep run --require-seg6-enabled`.
    pub require_seg6_enabled: bool,
    /// `sidestep run --encap-lookup-main`.
    pub encap_lookup_main: bool,
    /// `sidestep run --ipv4-too-big`.
    pub ipv4_too_big: Option<Ipv4TooBig>,
    /// `sidestep run --redirect-peer`.
    pub redirect_peer: Option<RedirectPeer>,
    /// `sidestep run --fragment-rate`.
    pub fragment_rate: Option<u32>,
    /// `sidestep run --fragment-burst`.
    pub fragment_burst: Option<u32>,
    /// `sidestep run --icmp-rate`.
    pub icmp_rate: Option<u32>,
    /// `sidestep run --icmp-burst`.
    pub icmp_burst: Option<u32>,
    /// `sidestep run --metrics`.
    pub metrics: Option<SocketAddr>,
    /// `sidestep run --fpm`.
    pub fpm: Option<SocketAddr>,
    /// `sidestep run --fpm-hold`.
    pub fpm_hold: Option<u32>,
    /// `sidestep run --fpm-reply`.
    pub fpm_reply: bool,
    /// `sidestep run --group`, a name or a number. It does not change while the daemon runs.
    pub group: Option<Spanned<String>>,
    /// `sidestep run --pin-root`. It does not change while the daemon runs.
    pub pin_root: Option<Spanned<PathBuf>>,
    /// `sidestep run --mode`. It does not change while the daemon runs.
    pub mode: Option<Spanned<Mode>>,
    /// `sidestep run --limit`. They do not change while the daemon runs.
    pub limits: BTreeMap<String, Spanned<u32>>,
    /// `sidestep hmac set`, by key id.
    hmac: BTreeMap<u32, Spanned<keys::Key>>,
}

/// The overlay that a file adds to an existing node. All of it is Sidestep-only: routes with
/// `owner kernel` are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Routes.
    pub routes: BTreeMap<RouteKey, Route>,
    /// Rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// Neighbors.
    pub neighbors: BTreeMap<(IfIndex, IpAddr), Neighbor>,
    /// `ip sr tunsrc`, if the file sets it.
    pub tunsrc: Option<Ipv6Addr>,
    /// See [`Node::vrf_tunsrc`].
    pub vrf_tunsrc: BTreeMap<TableId, Ipv6Addr>,
    /// `net.ipv6.seg6_flowlabel`, if the file sets it.
    pub seg6_flowlabel: Option<i32>,
    /// Seed of the multipath hash, if the file sets it.
    pub multipath_hash_seed: Option<u32>,
    /// Entries of VLAN tables.
    pub vlans: VlanTables,
    /// The SR domain.
    pub domain: Domain,
    /// Protected next hops.
    pub protections: Protections,
    /// Reflectors of S-BFD.
    pub reflectors: Reflectors,
    /// Paths that are probed.
    pub watched_paths: Paths,
    /// See [`Node::oam_rate`].
    pub oam_rate: u32,
    /// See [`Node::settings`].
    pub settings: Settings,
    /// Rate limit for packets sent in fragments, if the file sets it.
    pub fragment_rate: Option<u32>,
    /// Burst size of it, if the file sets it.
    pub fragment_burst: Option<u32>,
    /// Rate limit for ICMP errors, if the file sets it.
    pub icmp_rate: Option<u32>,
    /// Burst size of it, if the file sets it.
    pub icmp_burst: Option<u32>,
    /// Address of the HTTP endpoint for metrics, if the file sets it.
    pub metrics: Option<SocketAddr>,
    /// Address of the FPM listener, if the file sets it.
    pub fpm: Option<SocketAddr>,
    /// Time that stale routes of FPM stay, in seconds, if the file sets it.
    pub fpm_hold: Option<u32>,
    /// Whether zebra learns the results of its routes.
    pub fpm_reply: bool,
    /// SR policies by name. Routes into them are among `routes`.
    pub policies: BTreeMap<String, Policy>,
    /// Ether devices.
    pub ethers: Ethers,
    /// Candidate paths of controllers. A file has none.
    pub paths: ControllerPaths,
    /// Backups of next hops by controllers. A file has none.
    pub backups: ControllerBackups,
    /// HMAC keys.
    pub hmac_keys: HmacKeys,
}

impl Overlay {
    /// Returns the protected next hops, with those of controllers. Configured ones precede.
    pub fn all_protections(&self) -> Protections {
        let of_controllers = self.backups.iter();
        let mut all: Protections = of_controllers
            .map(|(key, (_, it))| (key.clone(), it.clone()))
            .collect();
        all.extend(self.protections.clone());
        all
    }

    /// Checks the number of protected next hops.
    ///
    /// # Errors
    /// They are more than [`PROTECTIONS_MAX`].
    pub fn check_protections(&self) -> Result<(), String> {
        let number = self.protections.len() + self.backups.len();
        if number > PROTECTIONS_MAX {
            return Err(format!(
                "{number} protected next hops; expected up to {PROTECTIONS_MAX}, those of controllers \
                 included"
            ));
        }
        Ok(())
    }

    /// Returns the policies by name, with the candidate paths of controllers.
    pub fn all_policies(&self) -> BTreeMap<String, Policy> {
        with_paths(&self.policies, &self.paths)
    }
}

impl File {
    /// Parses a file: its YAML, its keys, and the values that are not lines of words.
    ///
    /// # Errors
    /// Returns the first error with its line and column.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: Self = yaml::parse(text)?;
        file.ports()?.node()?;
        file.tunsrc()?;
        file.seg6_flowlabel()?;
        Ok(file)
    }

    /// Whether the file has the key `ports`.
    pub fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// Returns the names of the ports in the order of the file.
    pub fn port_names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().flat_map(|ports| ports.value.names())
    }

    /// Returns the node that the file describes, with the routes and rules that the kernel would
    /// create.
    ///
    /// Interfaces are numbered from 1 in the order of the file. [`Owner::Kernel`] owns everything
    /// that Linux can express, [`Owner::Sidestep`] the rest and the routes with `owner sidestep`.
    ///
    /// # Errors
    /// Returns the first error with its line and column.
    pub fn node(&self) -> Result<Node, ConfigError> {
        let mut node = self.ports()?.node()?;
        node.tunsrc = self.tunsrc()?;
        node.vrf_tunsrc = self.vrf_tunsrc(&node)?;
        node.seg6_flowlabel = self.seg6_flowlabel()?.unwrap_or_default();
        node.multipath_hash_seed = self.multipath_hash_seed.unwrap_or_default();
        node.oam_rate = self.oam_rate;
        node.settings = self.settings();
        node.hmac_keys = self.hmac_keys()?;
        for line in &self.neighbors {
            let (key, neighbor) = read_neighbor(line, &context(&node, Owner::Kernel))?;
            if node.neighbors.insert(key, neighbor).is_some() {
                return Err(twice(&yaml::words(line), "neighbor", key.1.to_string()));
            }
        }
        for line in &self.rules {
            let rules = rule::parse(
                &mut yaml::words(line),
                &context(&node, Owner::Kernel),
                &node.rules,
            )?;
            for rule in rules {
                node.rules
                    .entry((rule.family, rule.priority))
                    .or_default()
                    .push(rule);
            }
        }
        let policies = self.policies(&node.routes)?;
        let mut steering = BTreeMap::new();
        let mut lines = vec![];
        for line in &self.routes {
            let mut words = yaml::words(line);
            let owner = owner::take(&mut words)?;
            let mut route = route::parse(&mut words, &context(&node, Owner::Kernel))?;
            route.owner = owner::of(&route, owner)?;
            no_nexthop_object(&route, &words)?;
            find_devices(&mut route, &node.routes, &words)?;
            check_policies(&route, &words, &policies)?;
            if is_steering(&route) {
                let prefix = route.key.prefix.to_string();
                if steering.insert(route.key, route).is_some() {
                    return Err(twice(&words, "route", prefix));
                }
                continue;
            }
            let there = node.routes.get(&route.key);
            // Lines pasted from `ip route show` include the routes that the kernel created.
            if there.is_some_and(|there| implied::holds(there, &route)) {
                continue;
            }
            if there.is_some() {
                return Err(twice(&words, "route", route.key.prefix.to_string()));
            }
            let key = route.key;
            node.routes.insert(key, route);
            lines.push((words, key));
        }
        check_all_services(&lines, &node.routes, &node)?;
        node.vlans = self.vlans(&context(&node, Owner::Sidestep))?;
        node.domain = self.domain(&context(&node, Owner::Sidestep))?;
        node.reflectors = self.reflectors()?;
        node.paths = self.paths(&context(&node, Owner::Sidestep), &node.reflectors)?;
        node.protections = self.protections(&context(&node, Owner::Sidestep))?;
        node.ethers = self.ethers(&policies)?;
        node.add_ethers(policies, steering.into_values());
        node.steer();
        Ok(node)
    }

    /// Returns the overlay that the file adds to `live`. `names` are its interfaces, and others that
    /// the file may name. Attributes of ports are only for replay and ignored here.
    ///
    /// # Errors
    /// Returns the first error with its line and column.
    pub fn overlay(&self, live: &Node, names: &dyn Names) -> Result<Overlay, ConfigError> {
        let ctx = Context {
            names,
            family: None,
            owner: Owner::Sidestep,
        };
        let mut overlay = Overlay {
            tunsrc: self.tunsrc()?,
            vrf_tunsrc: self.vrf_tunsrc(names)?,
            seg6_flowlabel: self.seg6_flowlabel()?,
            multipath_hash_seed: self.multipath_hash_seed,
            oam_rate: self.oam_rate,
            settings: self.settings(),
            fragment_rate: self.fragment_rate,
            fragment_burst: self.fragment_burst,
            icmp_rate: self.icmp_rate,
            icmp_burst: self.icmp_burst,
            metrics: self.metrics,
            fpm: self.fpm,
            fpm_hold: self.fpm_hold,
            fpm_reply: self.fpm_reply,
            hmac_keys: self.hmac_keys()?,
            policies: self.policies(&live.routes)?,
            ..Overlay::default()
        };
        overlay.ethers = self.ethers(&overlay.policies)?;
        for line in &self.neighbors {
            let (key, neighbor) = read_neighbor(line, &ctx)?;
            if overlay.neighbors.insert(key, neighbor).is_some() {
                return Err(twice(&yaml::words(line), "neighbor", key.1.to_string()));
            }
        }
        let mut rules = live.rules.clone();
        for line in &self.rules {
            let mut words = yaml::words(line);
            for rule in rule::parse(&mut words, &ctx, &rules)? {
                effect::check_rule(&rule, &words)?;
                rules
                    .entry((rule.family, rule.priority))
                    .or_default()
                    .push(rule.clone());
                overlay.rules.push(rule);
            }
        }
        let mut lines = vec![];
        for line in &self.routes {
            let mut words = yaml::words(line);
            let owner = owner::take(&mut words)?;
            let route = read_own_route(&mut words, &ctx, live)?;
            if owner::of(&route, owner.or(Some((Owner::Sidestep, words.start()))))? == Owner::Kernel
            {
                // The kernel's configuration has it, or lacks it.
                continue;
            }
            check_policies(&route, &words, &overlay.policies)?;
            if overlay.routes.contains_key(&route.key) {
                return Err(twice(&words, "route", route.key.prefix.to_string()));
            }
            lines.push((words, route.key));
            overlay.routes.insert(route.key, route);
        }
        check_all_services(&lines, &overlay.routes, names)?;
        overlay.vlans = self.vlans(&ctx)?;
        overlay.domain = self.domain(&ctx)?;
        overlay.reflectors = self.reflectors()?;
        overlay.watched_paths = self.paths(&ctx, &overlay.reflectors)?;
        overlay.protections = self.protections(&ctx)?;
        let checked = overlay.check_protections();
        checked.map_err(|problem| ConfigError::new(Place::Whole, problem, "", ""))?;
        Ok(overlay)
    }

    fn settings(&self) -> Settings {
        Settings {
            local_srh: self.local_srh.unwrap_or_default(),
            require_seg6_enabled: self.require_seg6_enabled,
            encap_lookup_main: self.encap_lookup_main,
            ipv4_too_big: self.ipv4_too_big.unwrap_or_default(),
            redirect_peer: self.redirect_peer.unwrap_or_default(),
        }
    }

    fn ports(&self) -> Result<Ports, ConfigError> {
        let Some(ports) = &self.ports else {
            return Ok(Ports::default());
        };
        Ports::check(ports)?;
        Ok(ports.value.clone())
    }

    fn vlans(&self, ctx: &Context) -> Result<VlanTables, ConfigError> {
        let mut tables = VlanTables::new();
        for line in &self.vlans {
            let mut words = yaml::words(line);
            let (key, dev) = vlan::parse(&mut words, ctx)?;
            if tables.insert(key, dev).is_some() {
                return Err(twice(
                    &words,
                    "VLAN entry",
                    vlan::print(&key, dev, ctx.names),
                ));
            }
        }
        Ok(tables)
    }

    fn domain(&self, ctx: &Context) -> Result<Domain, ConfigError> {
        let mut all = Domain::default();
        for line in &self.domain {
            let mut words = yaml::words(line);
            let entry = domain::parse(&mut words, ctx)?;
            let text = domain::print(&entry);
            if !all.add(entry) {
                return Err(twice(&words, "entry of the domain", text));
            }
        }
        Ok(all)
    }

    fn reflectors(&self) -> Result<Reflectors, ConfigError> {
        let mut all = Reflectors::new();
        for line in &self.reflectors {
            let mut words = yaml::words(line);
            let (discriminator, it) = reflector::parse(&mut words)?;
            if all.insert(discriminator, it).is_some() {
                return Err(twice(&words, "reflector", discriminator.to_string()));
            }
        }
        Ok(all)
    }

    fn paths(&self, ctx: &Context, reflectors: &Reflectors) -> Result<Paths, ConfigError> {
        let mut all = Paths::new();
        for line in &self.paths {
            let mut words = yaml::words(line);
            let (name, it) = path::parse(&mut words, ctx)?;
            if all.contains_key(&name) {
                return Err(twice(&words, "path", name));
            }
            check_path(&name, &it, &words, &all, reflectors)?;
            all.insert(name, it);
        }
        Ok(all)
    }

    fn protections(&self, ctx: &Context) -> Result<Protections, ConfigError> {
        let mut all = Protections::new();
        for line in &self.protections {
            let mut words = yaml::words(line);
            let (key, it) = protection::parse(&mut words, ctx)?;
            if all.contains_key(&key) {
                return Err(twice(&words, "protection of", protection::print_key(&key)));
            }
            all.insert(key, it);
        }
        Ok(all)
    }

    fn tunsrc(&self) -> Result<Option<Ipv6Addr>, ConfigError> {
        let Some(text) = &self.tunsrc else {
            return Ok(None);
        };
        let address: Option<Ipv6Addr> = text.value.trim().parse().ok();
        let unicast = address.filter(|address| !address.is_multicast() && !address.is_loopback());
        match unicast {
            // `ip sr tunsrc set ::`: none.
            Some(Ipv6Addr::UNSPECIFIED) => Ok(None),
            Some(address) => Ok(Some(address)),
            None => Err(yaml::wrong(
                text,
                "invalid `tunsrc`",
                &text.value,
                "an IPv6 unicast address",
            )),
        }
    }

    fn vrf_tunsrc(&self, names: &dyn Names) -> Result<BTreeMap<TableId, Ipv6Addr>, ConfigError> {
        let mut all = BTreeMap::new();
        for line in &self.vrfs {
            let mut words = yaml::words(line);
            let (table, tunsrc) = vrf::parse(&mut words, names)?;
            if all.insert(table, tunsrc).is_some() {
                let text = vrf::print(table, tunsrc, names);
                return Err(twice(&words, "table", text));
            }
        }
        Ok(all)
    }

    fn seg6_flowlabel(&self) -> Result<Option<i32>, ConfigError> {
        let given = self.seg6_flowlabel.as_ref();
        match given.filter(|value| !(-1..=1).contains(&value.value)) {
            Some(bad) => {
                let expected = "-1, 0 or 1";
                Err(yaml::wrong(
                    bad,
                    "invalid `seg6_flowlabel`",
                    &bad.value.to_string(),
                    expected,
                ))
            }
            None => Ok(given.map(|value| value.value)),
        }
    }
}

/// Reads a Sidestep-only route (`sidestep route add`, or a line of a file for `sidestep run`).
/// Names are resolved in `live`.
///
/// # Errors
/// Returns the first invalid word.
pub fn read_own_route(words: &mut Words, ctx: &Context, live: &Node) -> Result<Route, ConfigError> {
    let mut route = route::parse(words, ctx)?;
    route.owner = Owner::Sidestep;
    no_nexthop_object(&route, words)?;
    find_devices(&mut route, &live.routes, words)?;
    effect::check_route(&route, words, live)?;
    Ok(route)
}

fn context(node: &Node, owner: Owner) -> Context<'_> {
    Context {
        names: node,
        family: None,
        owner,
    }
}

fn read_neighbor(
    line: &Spanned<String>,
    ctx: &Context,
) -> Result<((IfIndex, IpAddr), Neighbor), ConfigError> {
    neighbor::parse(&mut yaml::words(line), ctx)
}

fn twice(words: &Words, what: &str, value: String) -> ConfigError {
    let expected = match what {
        "route" => "another metric or table, or `nexthop` for each of several next hops",
        _ => "it once",
    };
    ConfigError::new(words.start(), format!("duplicate {what}:"), value, expected)
}

fn at_word(wrong: Wrong, words: &Words) -> ConfigError {
    ConfigError::new(
        words.place_of(wrong.keyword),
        wrong.problem,
        "",
        wrong.expected,
    )
}

/// Checks a Sidestep-only route, parsed from these words, against the others: each packet that a
/// service returns belongs to one proxy.
///
/// # Errors
/// The offending word, and the conflicting SID.
pub fn check_services(
    route: &Route,
    words: &Words,
    others: &BTreeMap<RouteKey, Route>,
    names: &dyn Names,
) -> Result<(), ConfigError> {
    services::check(route, others, names).map_err(|wrong| at_word(wrong, words))
}

fn check_all_services(
    lines: &[(Words, RouteKey)],
    routes: &BTreeMap<RouteKey, Route>,
    names: &dyn Names,
) -> Result<(), ConfigError> {
    lines
        .iter()
        .try_for_each(|(words, key)| check_services(&routes[key], words, routes, names))
}

fn no_nexthop_object(route: &Route, words: &Words) -> Result<(), ConfigError> {
    match route.nhid {
        None => Ok(()),
        Some(nhid) => {
            let problem = "nexthop objects are the kernel's: no `nhid`";
            let expected = "via ADDRESS dev DEV";
            Err(ConfigError::new(
                words.place_of("nhid"),
                problem,
                nhid.to_string(),
                expected,
            ))
        }
    }
}

/// Gives every `via` without `dev` the interface of the on-link route that reaches it, as the kernel does.
fn find_devices(
    route: &mut Route,
    routes: &BTreeMap<RouteKey, Route>,
    words: &Words,
) -> Result<(), ConfigError> {
    for hop in route.next_hops.make_mut() {
        if let (Some(via), None) = (hop.via, hop.dev) {
            hop.dev = on_link(via, routes);
            if hop.dev.is_none() {
                let problem = "no interface is known to reach";
                let expected = "dev DEV behind it, or an address in a connected prefix";
                return Err(ConfigError::new(
                    words.place_of("via"),
                    problem,
                    via.to_string(),
                    expected,
                ));
            }
        }
    }
    Ok(())
}

fn on_link(via: IpAddr, routes: &BTreeMap<RouteKey, Route>) -> Option<IfIndex> {
    // A link-local address is on every link.
    let link_local = match via {
        IpAddr::V6(via) => via.is_unicast_link_local(),
        IpAddr::V4(via) => via.is_link_local(),
    };
    let best = routes
        .values()
        .filter(|route| route.key.table == TableId::MAIN && route.kind == RouteKind::Unicast)
        .filter(|route| route.key.prefix.contains(&via) && !link_local)
        .max_by_key(|route| {
            (
                route.key.prefix.prefix_len(),
                std::cmp::Reverse(route.key.metric),
            )
        })?;
    match &best.next_hops[..] {
        [hop] if hop.via.is_none() && hop.encap.is_none() => hop.dev,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
