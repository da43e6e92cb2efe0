//! Parser of the words that steer a route's packets into SR policies: `policy NAME`, `dscp LIST
//! policy NAME`.

use crate::error::ConfigError;
use crate::grammar::words::{Words, invalid};
use crate::grammar::{Word, policy, value};
use crate::policy::{DSCPS, Steering};
use crate::route::{Encap, NextHop, RouteKind};

/// The parsed part of a steering.
#[derive(Default)]
pub(super) struct Draft<'a> {
    steering: Steering,
    first: Option<Word<'a>>,
}

impl<'a> Draft<'a> {
    /// Takes the word if it belongs to a steering.
    pub(super) fn word(
        &mut self,
        word: Word<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, ConfigError> {
        match word.text {
            "policy" => {
                let name = policy::parse_name(words)?;
                if let Some(there) = self.steering.policy.replace(name) {
                    let problem = format!("there is `policy {there}` already:");
                    let expected = "one, and `dscp LIST policy NAME` for some DSCPs";
                    return Err(ConfigError::new(word.place, problem, word.text, expected));
                }
            }
            "dscp" => self.dscp(words)?,
            _ => return Ok(false),
        }
        self.first.get_or_insert(word);
        Ok(true)
    }

    fn dscp(&mut self, words: &mut Words<'a>) -> Result<(), ConfigError> {
        let expected = "DSCPs from 0 to 63, such as 46 or 10,12-14";
        let list = words.value("dscp", expected)?;
        let mut all = vec![];
        for part in list.text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |text| value::number(text).filter(|dscp| *dscp < DSCPS.into());
            match (number(from), number(to)) {
                (Some(from), Some(to)) if from <= to => {
                    all.extend(from as u8..=to as u8);
                }
                _ => return Err(invalid(list, "dscp", expected)),
            }
        }
        if words.take_if("policy").is_none() {
            let place = words.peek().map_or(words.end(), |word| word.place);
            let expected = "policy NAME behind the DSCPs";
            return Err(ConfigError::new(place, "missing `policy`", "", expected));
        }
        let name = policy::parse_name(words)?;
        for dscp in all {
            if self.steering.by_dscp.insert(dscp, name.clone()).is_some() {
                let problem = format!("DSCP {dscp} is there twice:");
                return Err(ConfigError::new(list.place, problem, list.text, "it once"));
            }
        }
        Ok(())
    }

    /// Returns true if any steering word was parsed.
    pub(super) fn is_any(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the next hop that represents the steering. `other` is a conflicting word of the
    /// route.
    pub(super) fn finish(
        &mut self,
        kind: RouteKind,
        other: Option<Word>,
        words: &Words,
    ) -> Result<NextHop, ConfigError> {
        let place = self.first.map_or(words.end(), |word| word.place);
        if kind != RouteKind::Unicast {
            let problem = format!("a route of type {} does not accept", value::kind_text(kind));
            return Err(ConfigError::new(place, problem, "policy", ""));
        }
        if let Some(other) = other {
            let problem = "a route into a policy does not accept";
            let expected = "prefix, from, table, metric, proto, policy and dscp";
            return Err(ConfigError::new(other.place, problem, other.text, expected));
        }
        Ok(NextHop {
            encap: Some(Encap::Policy(std::mem::take(&mut self.steering))),
            ..NextHop::new()
        })
    }
}
