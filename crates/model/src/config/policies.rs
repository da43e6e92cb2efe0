//! SR policies of a node file, and checks for conflicts between policies and routes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::{File, twice, yaml};
use crate::error::ConfigError;
use crate::grammar::{Words, policy};
use crate::node::TableId;
use crate::policy::{Policy, PolicyId, is_steering, named};
use crate::route::{Route, RouteKey, RouteKind};

impl File {
    /// `routes`: existing routes.
    pub(super) fn policies(
        &self,
        routes: &BTreeMap<RouteKey, Route>,
    ) -> Result<BTreeMap<String, Policy>, ConfigError> {
        let mut all = BTreeMap::new();
        for line in &self.policies {
            let mut words = yaml::words(line);
            let (name, policy) = policy::parse(&mut words)?;
            if all.contains_key(&name) {
                return Err(twice(&words, "policy", name));
            }
            check_policy(&name, &policy, &words, &all)?;
            check_binding(&policy, &words, routes.values())?;
            all.insert(name, policy);
        }
        Ok(all)
    }
}

/// Checks a policy, parsed from these words, against the others: color and endpoint are unique, and
/// so is the binding SID.
///
/// # Errors
/// The offending word, and the conflicting policy.
pub fn check_policy(
    name: &str,
    policy: &Policy,
    words: &Words,
    others: &BTreeMap<String, Policy>,
) -> Result<(), ConfigError> {
    let stands_for = PolicyId::from_name(name).filter(|id| *id != policy.id);
    if let Some(id) = stands_for {
        let problem = format!("the name stands for {id}:");
        let expected = "another name, or that color and endpoint";
        return Err(ConfigError::new(words.start(), problem, name, expected));
    }
    for (other, there) in others.iter().filter(|(other, _)| *other != name) {
        let (keyword, value) = if there.id == policy.id {
            ("color", there.id.color.to_string())
        } else if let Some(bsid) = there.bsid.filter(|_| there.bsid == policy.bsid) {
            ("bsid", bsid.to_string())
        } else {
            continue;
        };
        let problem = match keyword {
            "color" => format!("policy {other} has that color and endpoint:"),
            _ => format!("policy {other} has that binding SID:"),
        };
        let (place, expected) = (words.place_of(keyword), "another one");
        return Err(ConfigError::new(place, problem, value, expected));
    }
    Ok(())
}

/// Checks that the binding SID of a policy, parsed from these words, has no other use on this node
/// (RFC 9256 6.2).
///
/// # Errors
/// It is an address of the node or another SID, or one of these routes steers it.
pub fn check_binding<'a>(
    policy: &Policy,
    words: &Words,
    mut routes: impl Iterator<Item = &'a Route>,
) -> Result<(), ConfigError> {
    let Some(sid) = policy.bsid else {
        return Ok(());
    };
    match routes.find(|route| claims(route, sid)) {
        Some(route) => {
            let problem = format!("a route to {} takes the packets to", route.key.prefix);
            let expected = "a SID that nothing else uses";
            let place = words.place_of("bsid");
            Err(ConfigError::new(place, problem, sid.to_string(), expected))
        }
        None => Ok(()),
    }
}

/// Returns true if a route and a binding SID, which is a route in table main, claim the same
/// packets. Table local precedes table main.
pub fn claims(route: &Route, sid: Ipv6Addr) -> bool {
    let prefix = route.key.prefix;
    match route.key.table {
        TableId::LOCAL => route.kind != RouteKind::Throw && prefix.contains(&IpAddr::V6(sid)),
        TableId::MAIN => {
            prefix == IpNet::from(IpAddr::V6(sid)) && (route.is_sid() || is_steering(route))
        }
        _ => false,
    }
}

/// Checks that the policies of a route, parsed from these words, exist, and that its prefix is not
/// one of their binding SIDs. A name that stands for color and endpoint needs no policy.
///
/// # Errors
/// The name of the missing policy, or of the policy with that binding SID.
pub fn check_policies(
    route: &Route,
    words: &Words,
    defined: &BTreeMap<String, Policy>,
) -> Result<(), ConfigError> {
    let bound = |policy: &Policy| policy.bsid.is_some_and(|sid| claims(route, sid));
    if let Some((name, policy)) = defined.iter().find(|(_, policy)| bound(policy)) {
        let sid = policy.bsid.map_or_else(String::new, |sid| sid.to_string());
        let problem = format!("the binding SID of policy {name} is");
        let expected = "another prefix, or the policy without it";
        return Err(ConfigError::new(words.start(), problem, sid, expected));
    }
    let mut named = named(route).into_iter();
    let Some(missing) =
        named.find(|name| !defined.contains_key(*name) && PolicyId::from_name(name).is_none())
    else {
        return Ok(());
    };
    let known: Vec<&str> = defined.keys().map(String::as_str).collect();
    let expected = match known[..] {
        [] => "a policy of this node (it has none)".to_owned(),
        _ => format!("one of {}", known.join(", ")),
    };
    Err(ConfigError::new(
        words.place_of(missing),
        "no such policy",
        missing,
        expected,
    ))
}
