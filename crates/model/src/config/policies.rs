//! SR policies of a file, and whether policies and the routes into them get along.

use std::collections::BTreeMap;

use super::{File, twice, yaml};
use crate::error::ConfigError;
use crate::grammar::{Words, policy};
use crate::policy::{Policy, named};
use crate::route::Route;

impl File {
    pub(super) fn policies(&self) -> Result<BTreeMap<String, Policy>, ConfigError> {
        let mut all = BTreeMap::new();
        for line in &self.policies {
            let mut words = yaml::words(line);
            let (name, policy) = policy::parse(&mut words)?;
            if all.contains_key(&name) {
                return Err(twice(&words, "policy", name));
            }
            check_policy(&name, &policy, &words, &all)?;
            all.insert(name, policy);
        }
        Ok(all)
    }
}

/// A policy, read from these words, gets along with the others: no other one has its color and endpoint, or its binding SID.
///
/// # Errors
/// The word at fault, and the policy that it does not get along with.
pub fn check_policy(
    name: &str,
    policy: &Policy,
    words: &Words,
    others: &BTreeMap<String, Policy>,
) -> Result<(), ConfigError> {
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

/// The policies that a route, read from these words, leads into are there.
///
/// # Errors
/// The name of one that is not.
pub fn check_policies(
    route: &Route,
    words: &Words,
    defined: &BTreeMap<String, Policy>,
) -> Result<(), ConfigError> {
    let mut named = named(route).into_iter();
    let Some(missing) = named.find(|name| !defined.contains_key(*name)) else {
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
