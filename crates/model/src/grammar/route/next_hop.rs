//! Parser of one next hop: `via`, `dev`, `weight`, `onlink`, `encap`.

use std::net::IpAddr;

use super::wrong_family;
use crate::error::ConfigError;
use crate::grammar::words::{Once, Words};
use crate::grammar::{Context, Word, encap, value};
use crate::route::{Family, NextHop};

/// The parsed part of a next hop.
#[derive(Default)]
pub(super) struct Hop<'a> {
    pub(super) seen: Once<'a>,
    /// Values that need no check against the rest of the route.
    pub(super) plain: NextHop,
    pub(super) via: Option<Via<'a>>,
    pub(super) encap: Option<encap::Parsed<'a>>,
    /// `dev lo` on a node without `lo`. Valid where the kernel prints it although it sends nothing
    /// there.
    no_loopback: Option<ConfigError>,
}

pub(super) struct Via<'a> {
    word: Word<'a>,
    pub(super) address: IpAddr,
    /// Address family from `inet6` or `inet`.
    family_given: bool,
}

impl<'a> Hop<'a> {
    /// Takes the word if it belongs to a next hop. Returns false otherwise.
    pub(super) fn word(
        &mut self,
        word: Word<'a>,
        words: &mut Words<'a>,
        ctx: &Context,
    ) -> Result<bool, ConfigError> {
        let name = match word.text {
            "via" => "via",
            "dev" | "oif" => "dev",
            "weight" => "weight",
            "onlink" => "onlink",
            // `ip route show` prints these flags.
            "dead" => "dead",
            "linkdown" => "linkdown",
            "encap" => "encap",
            _ => return Ok(false),
        };
        self.seen.note(name, word)?;
        match name {
            "via" => {
                let expected = "an IP address, or `inet6` and an IPv6 address";
                let mut value = words.value(name, expected)?;
                let family = match value.text {
                    "inet" => Some(Family::V4),
                    "inet6" => Some(Family::V6),
                    _ => None,
                };
                if family.is_some() {
                    value = words.value(value.text, "an IP address")?;
                }
                self.via = Some(Via {
                    word: value,
                    address: value::address(value, name, family)?,
                    family_given: family.is_some(),
                });
            }
            "dev" => {
                let loopback = words.peek().is_some_and(|word| word.text == "lo");
                match words.interface(name, ctx.names) {
                    Ok(dev) => self.plain.dev = Some(dev),
                    Err(error) if loopback => self.no_loopback = Some(error),
                    Err(error) => return Err(error),
                }
            }
            "weight" => self.plain.weight = words.number(name, 1, 256)? as u16,
            "onlink" => self.plain.onlink = true,
            "encap" => self.encap = Some(encap::parse(words, ctx)?),
            _ => self.plain.dead = true,
        }
        Ok(true)
    }

    pub(super) fn finish(mut self, family: Family, words: &Words) -> Result<NextHop, ConfigError> {
        if let Some(error) = self.no_loopback {
            return Err(error);
        }
        if let Some(via) = self.via {
            let other = Family::of(&via.address) != family;
            // IPv4 via an IPv6 next hop (RFC 8950) needs `inet6`. IPv6 via IPv4 does not exist.
            if other && (family == Family::V6 || !via.family_given) {
                return Err(wrong_family(via.word, "via", family));
            }
            self.plain.via = Some(via.address);
        } else if self.plain.dev.is_none() {
            let expected = "dev DEV, via ADDRESS or nhid NUMBER";
            return Err(ConfigError::new(
                words.end(),
                "missing next hop",
                "",
                expected,
            ));
        }
        if let Some(parsed) = self.encap {
            parsed.check(family)?;
            self.plain.encap = Some(parsed.encap);
        }
        Ok(self.plain)
    }
}
