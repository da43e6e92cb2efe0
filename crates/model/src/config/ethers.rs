//! Ether devices of a node file, and their checks.

use std::collections::BTreeMap;

use super::{File, twice, yaml};
use crate::error::ConfigError;
use crate::ether::{AttachedFrames, Attachment, Ether, EtherPath, Ethers};
use crate::grammar::{Words, ether};
use crate::policy::Policy;

impl File {
    /// `policies`: those of the node.
    pub(super) fn ethers(
        &self,
        policies: &BTreeMap<String, Policy>,
    ) -> Result<Ethers, ConfigError> {
        let mut all = Ethers::new();
        for line in &self.ethers {
            let mut words = yaml::words(line);
            let (name, ether) = ether::parse(&mut words, None)?;
            check_ether(&ether, &words, policies)?;
            if all.contains_key(&name) {
                return Err(twice(&words, "ether device", name));
            }
            check_attachment(&name, &ether, &words, &all)?;
            all.insert(name, ether);
        }
        Ok(all)
    }

    /// Returns the names of the ether devices, which a route may name before they exist.
    pub fn ether_names(&self) -> impl Iterator<Item = &str> {
        let lines = self.ethers.iter();
        lines.filter_map(|line| line.value.split_whitespace().next())
    }
}

/// Checks that no other device has the frames of an attachment, parsed from these words.
///
/// # Errors
/// The device that has some of them.
pub fn check_attachment(
    name: &str,
    ether: &Ether,
    words: &Words,
    others: &Ethers,
) -> Result<(), ConfigError> {
    let Some(Attachment { port, frames, .. }) = &ether.attached else {
        return Ok(());
    };
    for (other, there) in others.iter().filter(|(other, _)| *other != name) {
        let there = there.attached.as_ref().filter(|there| there.port == *port);
        let is_whole = |frames: &AttachedFrames| *frames == AttachedFrames::All;
        if let Some(there) = there
            && (there.frames == *frames || is_whole(frames) || is_whole(&there.frames))
        {
            let taken = ether::frames_text(there.frames);
            let problem = format!("ether device {other} has frames of it ({taken}):");
            let expected = "another interface, or another VLAN";
            let place = words.place_of(port);
            return Err(ConfigError::new(place, problem, port, expected));
        }
    }
    Ok(())
}

/// Checks that the policy of an ether device, parsed from these words, exists.
///
/// # Errors
/// The name of the missing policy.
pub fn check_ether(
    ether: &Ether,
    words: &Words,
    policies: &BTreeMap<String, Policy>,
) -> Result<(), ConfigError> {
    match &ether.path {
        EtherPath::Policy(name) if !policies.contains_key(name) => {
            let known: Vec<&str> = policies.keys().map(String::as_str).collect();
            let expected = match known[..] {
                [] => "a policy of this node (it has none)".to_owned(),
                _ => format!("one of {}", known.join(", ")),
            };
            let place = words.place_of(name);
            Err(ConfigError::new(place, "no such policy", name, expected))
        }
        _ => Ok(()),
    }
}
