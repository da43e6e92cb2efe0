//! Commands that change Sidestep-only entries: `sidestep NOUN VERB ARGS`, batches, and HMAC keys.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;
use sidestep_mirror::Changes;
use sidestep_model::config::{
    Overlay, check_binding, check_path, check_policies, check_policy, check_services, effect,
    read_own_route,
};
use sidestep_model::domain::Entry;
use sidestep_model::error::ConfigError;
use sidestep_model::ether::{Ether, EtherPath};
use sidestep_model::grammar::{
    Context, Names, Style, Words, domain, path, policy, protection, reflector, route, rule, vlan,
};
use sidestep_model::hmac::{HmacAlgorithm, HmacKey, Secret};
use sidestep_model::liveness::configured_discriminators;
use sidestep_model::node::{Node, TableId};
use sidestep_model::policy::{is_steering, named};
use sidestep_model::route::{NextHop, Owner, Route, RouteKey};

use super::config::awaited;
use super::names::KnownNames;
use super::own::mentioned;
use super::{Instance, NodeMirror, System};
use crate::api::{BatchLine, Noun, Verb};

impl<S: System> Instance<S> {
    /// Changes the overlay and applies it; on an error nothing changes.
    pub(super) fn change_own(
        &mut self,
        change: impl FnOnce(&mut Overlay, &Node) -> Result<(), String>,
    ) -> Result<Value, String> {
        let mut own = self.configured.own.clone();
        change(&mut own, self.node())?;
        self.exchange_and_save(self.configured.options.ports.clone(), own)?;
        Ok(Value::Null)
    }

    /// Executes `sidestep NOUN VERB ARGS`. It may name interfaces that do not exist here, as far as the
    /// configuration has them: ports, and ether devices in other network namespaces.
    pub(super) fn change_entry(
        &mut self,
        noun: Noun,
        verb: Verb,
        args: &[String],
    ) -> Result<Value, String> {
        let mut own = self.configured.own.clone();
        let names = self.known_names();
        let changed = change(&mut own, self.node(), &names, noun, verb, args)?;
        self.configured.devices.extend(names.into_absent());
        let own = match changed {
            Changed::Route(key) => match self.exchange_route(key, own) {
                None => {
                    self.save_changes();
                    return Ok(Value::Null);
                }
                Some(own) => own,
            },
            Changed::Other => own,
        };
        self.exchange_and_save(self.configured.options.ports.clone(), own)?;
        Ok(Value::Null)
    }

    /// Executes changes as [`Self::change_entry`] does, all or none.
    pub(super) fn change_batch(&mut self, changes: &[BatchLine]) -> Result<Value, String> {
        let mut own = self.configured.own.clone();
        let mut names = self.known_names();
        for line in changes {
            let (noun, verb) = (line.noun, line.verb);
            change(&mut own, self.node(), &names, noun, verb, &line.args)
                .map_err(|error| format!("line {}: {error}", line.line))?;
            // Later lines may name a new ether device.
            if noun == Noun::Ether {
                let awaited = awaited(&self.configured.options.ports, &own);
                names = KnownNames::new(self.mirror.node(), &self.configured.devices, awaited);
            }
        }
        self.configured.devices.extend(names.into_absent());
        self.exchange_and_save(self.configured.options.ports.clone(), own)?;
        Ok(Value::Null)
    }

    /// Replaces the overlay by one that differs in this route only, without a full compilation, as a
    /// change of a route of the kernel. Returns the overlay, with nothing changed, if that is not
    /// possible.
    fn exchange_route(&mut self, key: RouteKey, own: Overlay) -> Option<Overlay> {
        // Steering depends on policies, and an interface that does not exist here on names.
        let links = &self.mirror.node().links;
        let is_alone = |own: &Overlay| {
            own.routes.get(&key).is_none_or(|route| {
                let is_here = mentioned(route).all(|dev| links.contains_key(&dev));
                is_here && !is_steering(route)
            })
        };
        let is_possible = self.health.problem.is_none()
            && self.configured.state.trial.is_none()
            && self.tables.overlaid.is_separate()
            && is_alone(&self.configured.own)
            && is_alone(&own);
        if !is_possible {
            return Some(own);
        }
        self.clients.monitor.touch();
        self.watchers.ethers.touch();
        let before = std::mem::replace(&mut self.configured.own, own);
        let changes = Changes {
            routes: vec![key],
            ..Changes::default()
        };
        let is_applied = self.apply_incremental(&changes);
        if is_applied && !self.tables.compiled.index.full.contains_key(&key) {
            if let Some(route) = self.configured.own.routes.get(&key) {
                self.configured.devices.note(route, self.mirror.node());
            }
            return None;
        }
        let own = std::mem::replace(&mut self.configured.own, before);
        if is_applied {
            // The full compilation waits for room, or has the error.
            self.apply_incremental(&changes);
        }
        Some(own)
    }
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
        Noun::Reflector => change_reflector(own, verb, args),
        Noun::Path => change_path(own, names, verb, args),
        Noun::Protect => change_protection(own, names, verb, args),
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

/// Fails if `add` meets an entry with its key. The error begins with `what`, and has the entry.
fn expect_absent<T>(
    verb: Verb,
    what: &str,
    there: Option<T>,
    print: impl FnOnce(T) -> String,
) -> Result<(), String> {
    match there {
        Some(entry) if verb == Verb::Add => {
            Err(format!("{what}: {} (use `replace`)", print(entry)))
        }
        _ => Ok(()),
    }
}

/// Parses the words of a `del`: a key alone, or all arguments of the `add`. Returns the key.
fn parse_del<K, T>(
    words: Words,
    key: impl FnOnce(&mut Words) -> Result<K, ConfigError>,
    all: impl FnOnce(&mut Words) -> Result<T, ConfigError>,
) -> Result<K, String> {
    let text = |error: ConfigError| error.to_string();
    let mut rest = words.clone();
    let key = key(&mut rest).map_err(text)?;
    if !rest.is_at_end() {
        all(&mut { words }).map_err(text)?;
    }
    Ok(key)
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
    let what = "a route with this prefix, table and metric exists already";
    expect_absent(verb, what, own.routes.get(&route.key), |there| {
        route::print(there, node, Style::Add)
    })?;
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
    expect_absent(
        verb,
        "the entry exists already",
        own.vlans.get(&key),
        |there| vlan::print(&key, *there, names),
    )?;
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

/// Executes `sidestep reflector VERB WORDS`. On an error nothing changes.
fn change_reflector(own: &mut Overlay, verb: Verb, words: &[String]) -> Result<(), String> {
    let (discriminator, it) =
        reflector::parse(&mut Words::from_args(words)).map_err(|error| error.to_string())?;
    if verb == Verb::Del {
        return match own.reflectors.remove(&discriminator) {
            Some(_) => Ok(()),
            None => Err("there is no such reflector (see `sidestep reflector show`)".into()),
        };
    }
    let there = own.reflectors.get(&discriminator);
    expect_absent(verb, "the reflector exists already", there, |there| {
        reflector::print(discriminator, *there)
    })?;
    own.reflectors.insert(discriminator, it);
    let paths = own.watched_paths.iter();
    let paths = paths.map(|(name, path)| (name.as_str(), path));
    let checked = configured_discriminators(paths, &own.reflectors);
    checked.map(drop).map_err(|conflict| conflict.to_string())
}

/// Executes `sidestep path VERB WORDS`.
fn change_path(
    own: &mut Overlay,
    names: &dyn Names,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let mut words = Words::from_args(words);
    let ctx = context(names);
    if verb == Verb::Del {
        let name = parse_del(words, path::parse_name, |all| path::parse(all, &ctx))?;
        return match own.watched_paths.remove(&name) {
            Some(_) => Ok(()),
            None => Err(format!(
                "there is no path {name} (see `sidestep path show`)"
            )),
        };
    }
    let (name, it) = path::parse(&mut words, &ctx).map_err(|error| error.to_string())?;
    let there = own.watched_paths.get(&name);
    expect_absent(verb, "the path exists already", there, |there| {
        path::print(&name, there, names)
    })?;
    check_path(&name, &it, &words, &own.watched_paths, &own.reflectors)
        .map_err(|error| error.to_string())?;
    own.watched_paths.insert(name, it);
    Ok(())
}

/// Executes `sidestep protect VERB WORDS`.
fn change_protection(
    own: &mut Overlay,
    names: &dyn Names,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let given = words.join(" ");
    let mut words = Words::from_args(words);
    let ctx = context(names);
    if verb == Verb::Del {
        // The interface may be gone.
        let mut there = own.protections.keys();
        let key = match there.find(|key| protection::print_key(key) == given) {
            Some(key) => key.clone(),
            None => parse_del(
                words,
                |words| protection::parse_key(words, &ctx),
                |all| protection::parse(all, &ctx),
            )?,
        };
        return match own.protections.remove(&key) {
            Some(_) => Ok(()),
            None => Err(format!(
                "nothing protects {} (see `sidestep protect show`)",
                protection::print_key(&key)
            )),
        };
    }
    let (key, it) = protection::parse(&mut words, &ctx).map_err(|error| error.to_string())?;
    let there = own.protections.get(&key);
    expect_absent(verb, "it is protected already", there, |there| {
        protection::print(&key, there, names)
    })?;
    own.protections.insert(key, it);
    own.check_protections()
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
        return delete_policy(own, node, words);
    }
    let (name, policy) = policy::parse(&mut words).map_err(|error| error.to_string())?;
    let there = own.policies.get(&name);
    expect_absent(verb, "the policy exists already", there, |there| {
        policy::print(&name, there)
    })?;
    let mut others = own.all_policies();
    others.retain(|other, there| there.id != policy.id || own.policies.contains_key(other));
    check_policy(&name, &policy, &words, &others).map_err(|error| error.to_string())?;
    let routes = node.routes.values().chain(own.routes.values());
    check_binding(&policy, &words, routes).map_err(|error| error.to_string())?;
    own.policies.insert(name, policy);
    Ok(())
}

fn delete_policy(own: &mut Overlay, node: &Node, words: Words) -> Result<(), String> {
    let name = parse_del(words, policy::parse_name, policy::parse)?;
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
