//! The overlay as entries of a node file, and the difference of two overlays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use super::{Overlay, SecretSource};
use crate::behavior::check::linux_can_express;
use crate::grammar::{
    Names, Style, domain, ether, neighbor, path, policy, protection, reflector, route, rule, vlan,
    vrf,
};
use crate::hmac::HmacAlgorithm;
use crate::route::Route;

/// One entry of a node file: an item of a list, a key of HMAC, or the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// Key of the node file.
    pub key: String,
    /// The item or the value.
    pub value: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.value)
    }
}

/// The entries that one configuration has and the other one lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Entries of the first configuration only.
    pub removed: Vec<Entry>,
    /// Entries of the second configuration only.
    pub added: Vec<Entry>,
}

impl Difference {
    /// Whether the configurations are equal.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// All lines: removed entries with `-`, added ones with `+`, in the order of the keys.
    pub fn lines(&self) -> Vec<String> {
        let signed =
            |sign: char| move |entry| (rank(entry), sign == '+', format!("{sign} {entry}"));
        let mut lines: Vec<_> = self.removed.iter().map(signed('-')).collect();
        lines.extend(self.added.iter().map(signed('+')));
        // A stable order, so that the items of a list keep theirs.
        lines.sort_by_key(|(rank, is_added, _)| (*rank, *is_added));
        lines.into_iter().map(|(.., line)| line).collect()
    }
}

/// Keys whose value is a list.
const LISTS: [&str; 12] = [
    PORTS,
    "neighbors",
    "routes",
    "rules",
    "vlans",
    "vrfs",
    "domain",
    "reflectors",
    "paths",
    "protections",
    "policies",
    "ethers",
];
/// Keys with one value.
const SETTINGS: [&str; 21] = [
    "tunsrc",
    "seg6_flowlabel",
    "multipath_hash_seed",
    "oam_rate",
    "local_srh",
    "require_seg6_enabled",
    "encap_lookup_main",
    "ipv4_too_big",
    "redirect_peer",
    "fragment_rate",
    "fragment_burst",
    "icmp_rate",
    "icmp_burst",
    "metrics",
    "fpm",
    "fpm_hold",
    "fpm_reply",
    "group",
    "pin_root",
    "mode",
    "limits",
];
const HMAC: &str = "hmac";
const PORTS: &str = "ports";

/// Place of an entry's key in a printed file.
fn rank(entry: &Entry) -> usize {
    let keys = LISTS.iter().chain(&SETTINGS).chain([&HMAC]);
    keys.take_while(|key| **key != entry.key).count()
}

/// Returns the entries of a configuration, in the order of a printed file. Settings that have their
/// default are not entries. A key of HMAC has no secret.
pub fn entries(ports: &[String], own: &Overlay, names: &dyn Names) -> Vec<Entry> {
    let mut all = vec![];
    let mut add = |key: &str, value: String| {
        all.push(Entry {
            key: key.to_owned(),
            value,
        });
    };
    for port in ports {
        add(PORTS, port.clone());
    }
    for (key, it) in &own.neighbors {
        add("neighbors", neighbor::print(key, it, names, Style::Add));
    }
    for it in own.routes.values() {
        add("routes", route_text(it, names));
    }
    for it in &own.rules {
        add("rules", rule::print(it, names, Style::Add));
    }
    for (key, dev) in &own.vlans {
        add("vlans", vlan::print(key, *dev, names));
    }
    for (table, tunsrc) in &own.vrf_tunsrc {
        add("vrfs", vrf::print(*table, *tunsrc, names));
    }
    for it in own.domain.entries() {
        add("domain", domain::print(&it));
    }
    for (discriminator, it) in &own.reflectors {
        add("reflectors", reflector::print(*discriminator, *it));
    }
    for (name, it) in &own.watched_paths {
        add("paths", path::print(name, it, names));
    }
    for (key, it) in &own.protections {
        add("protections", protection::print(key, it, names));
    }
    for (name, it) in &own.policies {
        add("policies", policy::print(name, it));
    }
    for (name, it) in &own.ethers {
        add("ethers", ether::print(name, it));
    }
    for (key, value) in settings(own) {
        add(key, value);
    }
    for (id, key) in &own.hmac_keys {
        add(
            HMAC,
            format!("{id}: {{algorithm: {}}}", key.algorithm.name()),
        );
    }
    all
}

/// A file for `replay` would otherwise give the kernel the routes that Linux can express.
fn route_text(route: &Route, names: &dyn Names) -> String {
    let mut text = route::print(route, names, Style::Add);
    if linux_can_express(route) {
        text.push_str(" owner sidestep");
    }
    text
}

/// The settings that differ from their default.
fn settings(own: &Overlay) -> impl Iterator<Item = (&'static str, String)> {
    fn text<T: ToString>(value: Option<T>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    fn other<T: ToString + Default + PartialEq>(value: T) -> Option<String> {
        text((value != T::default()).then_some(value))
    }
    let values = [
        text(own.tunsrc),
        text(own.seg6_flowlabel),
        text(own.multipath_hash_seed),
        other(own.oam_rate),
        other(own.settings.local_srh),
        other(own.settings.require_seg6_enabled),
        other(own.settings.encap_lookup_main),
        other(own.settings.ipv4_too_big),
        other(own.settings.redirect_peer),
        text(own.fragment_rate),
        text(own.fragment_burst),
        text(own.icmp_rate),
        text(own.icmp_burst),
        text(own.metrics),
        text(own.fpm),
        text(own.fpm_hold),
        other(own.fpm_reply),
    ];
    let keys = SETTINGS.into_iter().zip(values);
    keys.filter_map(|(key, value)| Some((key, value?)))
}

/// Compares two configurations, each with its ports. A changed secret changes the key of HMAC.
pub fn difference(
    before: (&[String], &Overlay),
    after: (&[String], &Overlay),
    names: &dyn Names,
) -> Difference {
    let entries = |of: (&[String], &Overlay)| entries(of.0, of.1, names);
    let mut difference = difference_of_entries(entries(before), entries(after));
    for (id, key) in &before.1.hmac_keys {
        let now = after.1.hmac_keys.get(id);
        if now.is_some_and(|now| now.algorithm == key.algorithm && now.secret != key.secret) {
            let name = key.algorithm.name();
            let entry = |which: &str| Entry {
                key: HMAC.to_owned(),
                value: format!("{id}: {{algorithm: {name}, {which}}}"),
            };
            difference.removed.push(entry("the running secret"));
            difference.added.push(entry("another secret"));
        }
    }
    difference
}

/// Compares two lists of entries. An entry may occur several times.
pub fn difference_of_entries(mut before: Vec<Entry>, mut after: Vec<Entry>) -> Difference {
    let mut count: BTreeMap<Entry, usize> = BTreeMap::new();
    for entry in &before {
        *count.entry(entry.clone()).or_default() += 1;
    }
    after.retain(|entry| match count.get_mut(entry) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    });
    before.retain(|entry| match count.get_mut(entry) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    });
    Difference {
        removed: before,
        added: after,
    }
}

/// Applies a difference to the entries of a configuration, which may have changed since the
/// comparison. Removed entries may be absent, and added ones may exist. The result has the order of
/// a printed file, for [`yaml`].
pub fn merged(mut entries: Vec<Entry>, changes: &Difference) -> Vec<Entry> {
    for gone in &changes.removed {
        if let Some(at) = entries.iter().position(|entry| entry == gone) {
            entries.remove(at);
        }
    }
    let there: BTreeSet<Entry> = entries.iter().cloned().collect();
    let new = changes.added.iter().filter(|entry| !there.contains(entry));
    entries.extend(new.cloned());
    // A stable order, so that the items of a list keep theirs.
    entries.sort_by_key(rank);
    entries
}

/// Returns id and algorithm of an entry that is a key of HMAC.
pub fn hmac_key(entry: &Entry) -> Option<(u32, HmacAlgorithm)> {
    let value = (entry.key == HMAC).then_some(&entry.value)?;
    let (id, key) = value.split_once(": {algorithm: ")?;
    Some((id.parse().ok()?, key.strip_suffix('}')?.parse().ok()?))
}

/// Adds the place of the secret to the entry of an HMAC key.
pub fn add_secret(entry: &mut Entry, source: SecretSource<'_>) {
    let (key, text) = match source {
        SecretSource::File(path) => ("secret_file", path.to_string_lossy()),
        SecretSource::Here(secret) => ("secret", String::from_utf8_lossy(secret.expose())),
    };
    if let Some(value) = entry.value.strip_suffix('}') {
        entry.value = format!("{value}, {key}: {}}}", quoted(&text));
    }
}

/// Prints entries as a node file.
pub fn yaml(entries: &[Entry]) -> String {
    let mut text = String::new();
    let mut last = "";
    if !entries.iter().any(|entry| entry.key == PORTS) {
        let _ = writeln!(text, "{PORTS}: []");
    }
    for Entry { key, value } in entries {
        let is_first = key != last;
        last = key;
        if SETTINGS.contains(&key.as_str()) {
            let value = if ["tunsrc", "metrics", "fpm", "group", "pin_root"].contains(&key.as_str())
            {
                quoted(value)
            } else {
                value.clone()
            };
            let _ = writeln!(text, "{key}: {value}");
            continue;
        }
        if is_first {
            let _ = writeln!(text, "{key}:");
        }
        let _ = match key.as_str() {
            HMAC => writeln!(text, "  {value}"),
            _ => writeln!(text, "- {}", scalar(value)),
        };
    }
    text
}

/// A text as YAML reads it back: plain where it cannot be anything else.
fn scalar(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || " ./:,_-".contains(c);
    let has_blank = text.contains(' ');
    let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.contains(|c: char| c.is_ascii_digit());
    let is_plain = text.chars().all(safe)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && (has_blank || is_name)
        && !text.contains(": ")
        && !text.ends_with([':', ' ']);
    if is_plain {
        text.to_owned()
    } else {
        quoted(text)
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests;
