//! Parser of routes in the grammar of `ip route add`. [`print`] writes them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::words::{Once, Words, invalid, unknown};
use super::{Context, Word, value};
use crate::error::ConfigError;
use crate::node::TableId;
use crate::policy;
use crate::route::{Family, NextHop, Owner, Route, RouteKey, RouteKind};

mod next_hop;
mod print;
mod steering;

use next_hop::Hop;
pub use print::{print, print_next_hop, print_resolved};

/// LIMIT: next hops of a route. A group has as many slots.
const NEXT_HOPS_MAX: usize = 256;

const EXPECTED: &str = "from, table, metric, tos, proto, src, mtu, via, dev, onlink, nhid, encap, policy, dscp, nexthop or a prefix";

/// Parses a route.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, ctx: &Context) -> Result<Route, ConfigError> {
    let mut draft = Draft {
        family: ctx.family,
        ..Draft::default()
    };
    while let Some(word) = words.take() {
        draft.word(word, words, ctx)?;
    }
    draft.finish(words, ctx)
}

/// Parses one line.
///
/// # Errors
/// See [`parse`].
pub fn parse_line(line: &str, ctx: &Context) -> Result<Route, ConfigError> {
    parse(&mut Words::from_line(line), ctx)
}

/// The parsed part of a route. The family may be unknown until the end.
#[derive(Default)]
struct Draft<'a> {
    seen: Once<'a>,
    family: Option<Family>,
    kind: Option<RouteKind>,
    /// The prefix. `default` has none until the family is known.
    prefix: Option<(Word<'a>, Option<IpNet>)>,
    from: Option<(Word<'a>, Option<IpNet>)>,
    table: Option<TableId>,
    metric: Option<u32>,
    tos: u8,
    protocol: Option<u8>,
    prefsrc: Option<(Word<'a>, IpAddr)>,
    mtu: Option<u32>,
    nhid: Option<u32>,
    hop: Hop<'a>,
    hops: Vec<Hop<'a>>,
    /// The word before the first next hop.
    nexthop: Option<Word<'a>>,
    steering: steering::Draft<'a>,
}

impl<'a> Draft<'a> {
    fn word(
        &mut self,
        word: Word<'a>,
        words: &mut Words<'a>,
        ctx: &Context,
    ) -> Result<(), ConfigError> {
        match word.text {
            "nexthop" => {
                self.nexthop.get_or_insert(word);
                if self.hops.len() >= NEXT_HOPS_MAX {
                    let problem = format!("more than {NEXT_HOPS_MAX} next hops:");
                    return Err(ConfigError::new(word.place, problem, word.text, ""));
                }
                self.hops.push(Hop::default());
                return Ok(());
            }
            text if !self.hops.is_empty() => {
                // INVARIANT: the list is not empty.
                let hop = self.hops.last_mut().expect("a nexthop has begun");
                return if hop.word(word, words, ctx)? {
                    Ok(())
                } else {
                    let expected = "via, dev, weight, onlink, encap or nexthop";
                    Err(ConfigError::new(
                        word.place,
                        "unknown keyword in `nexthop`",
                        text,
                        expected,
                    ))
                };
            }
            "weight" => {
                let expected = "it behind `nexthop` only";
                return Err(ConfigError::new(
                    word.place,
                    "misplaced keyword",
                    word.text,
                    expected,
                ));
            }
            _ if self.hop.word(word, words, ctx)? => return Ok(()),
            _ if self.steering.word(word, words)? => return Ok(()),
            _ => {}
        }
        let Some(name) = canonical(word.text) else {
            return self.prefix_or_kind(word, words);
        };
        self.seen.note(name, word)?;
        match name {
            "to" => {
                let word = words.value(name, "a prefix")?;
                self.prefix(word)?;
            }
            "from" => {
                let word = words.value(name, "a prefix")?;
                self.from = Some((word, parse_prefix(word, name)?));
            }
            "table" => self.table = Some(words.table(name, ctx.names)?),
            "metric" => self.metric = Some(words.number(name, 0, u32::MAX)?),
            "tos" => {
                let expected =
                    "a byte in hexadecimal whose two lowest bits (ECN) are zero, such as 0x10";
                self.tos = words.parsed(name, expected, |text| {
                    value::tos(text).filter(|tos| tos.trailing_zeros() >= 2)
                })?;
            }
            "proto" => {
                self.protocol =
                    Some(words.parsed(name, value::PROTOCOL_EXPECTED, value::protocol)?);
            }
            "src" => {
                let word = words.value(name, "an IP address")?;
                self.prefsrc = Some((word, value::address(word, name, None)?));
            }
            "mtu" => self.mtu = Some(words.number(name, 1, 65535)?),
            "nhid" => self.nhid = Some(words.number(name, 1, u32::MAX)?),
            // `ip route show` prints the scope. It follows from type and next hop.
            "scope" => {
                words.parsed(name, "global, link, host, site, nowhere or a number", scope)?;
            }
            // `ip route show` prints it for routes from router advertisements.
            _ => words.parsed(name, "medium (Sidestep knows no other)", |text| {
                (text == "medium").then_some(())
            })?,
        }
        Ok(())
    }

    fn prefix_or_kind(&mut self, word: Word<'a>, words: &Words<'a>) -> Result<(), ConfigError> {
        // `default` and `local` also name tables, but only after `table`.
        if let Some(kind) = value::kind(word.text) {
            if self.kind.is_some() || self.prefix.is_some() {
                let expected = "one type, in front of the prefix";
                return Err(ConfigError::new(
                    word.place,
                    "misplaced type",
                    word.text,
                    expected,
                ));
            }
            self.kind = Some(kind);
            return Ok(());
        }
        let prefix_like =
            word.text.contains([':', '/', '.']) || matches!(word.text, "default" | "all" | "any");
        if prefix_like || (self.prefix.is_none() && words.peek().is_none()) {
            self.seen.note("to", word)?;
            return self.prefix(word);
        }
        Err(unknown(word, EXPECTED))
    }

    fn prefix(&mut self, word: Word<'a>) -> Result<(), ConfigError> {
        self.prefix = Some((word, parse_prefix(word, "prefix")?));
        Ok(())
    }

    fn finish(mut self, words: &Words, ctx: &Context) -> Result<Route, ConfigError> {
        let Some((prefix_word, prefix)) = self.prefix else {
            let expected = "default, an address or a prefix";
            return Err(words.missing("prefix", expected));
        };
        let family = match (self.family_of(prefix), ctx.owner) {
            (Some(family), _) => family,
            (None, Owner::Kernel) => Family::V4,
            (None, _) => {
                let problem = format!("ambiguous `{}`", prefix_word.text);
                let expected = "::/0 or 0.0.0.0/0";
                return Err(ConfigError::new(prefix_word.place, problem, "", expected));
            }
        };
        let prefix = of_family(prefix_word, prefix, family, "prefix")?;
        let kind = self.kind.unwrap_or(RouteKind::Unicast);
        let from = self.source_prefix(family)?;
        if self.tos != 0 && family == Family::V6 {
            // Linux: "Invalid dsfield (tos): option not available for IPv6".
            return Err(self.refuse("tos", "not available for IPv6:"));
        }
        if let Some((word, address)) = self.prefsrc
            && Family::of(&address) != family
        {
            return Err(wrong_family(word, "src", family));
        }
        let protocol = self.protocol.unwrap_or(value::PROTOCOL_BOOT);
        let table = self.table.unwrap_or(default_table(kind));
        let metric = match self.metric {
            _ if self.steering.is_any() => self.metric.unwrap_or(policy::METRIC),
            // Routes that the kernel creates may have metric 0. An IPv6 route added with metric 0
            // gets 1024.
            Some(0) if protocol != value::PROTOCOL_KERNEL => RouteKey::default_metric(family),
            Some(metric) => metric,
            None => RouteKey::default_metric(family),
        };
        let next_hops = self.next_hops(kind, family, words)?;
        Ok(Route {
            key: RouteKey {
                table,
                prefix,
                from,
                tos: self.tos,
                metric,
            },
            kind,
            next_hops: next_hops.into(),
            prefsrc: self.prefsrc.map(|(_, address)| address),
            mtu: self.mtu,
            nhid: self.nhid,
            protocol,
            owner: ctx.owner,
        })
    }

    /// Determines the family as `ip` does: from the option, the prefix, or any other address.
    fn family_of(&self, prefix: Option<IpNet>) -> Option<Family> {
        let hops = || std::iter::once(&self.hop).chain(&self.hops);
        self.family
            .or_else(|| prefix.as_ref().map(Family::of_prefix))
            .or_else(|| {
                hops()
                    .find_map(|hop| hop.via.as_ref())
                    .map(|via| Family::of(&via.address))
            })
            .or_else(|| self.prefsrc.map(|(_, address)| Family::of(&address)))
            .or_else(|| {
                self.from
                    .and_then(|(_, from)| from)
                    .as_ref()
                    .map(Family::of_prefix)
            })
            .or_else(|| hops().find_map(|hop| hop.encap.as_ref()?.family()))
    }

    fn source_prefix(&self, family: Family) -> Result<Option<IpNet>, ConfigError> {
        let Some((word, from)) = self.from else {
            return Ok(None);
        };
        let from = of_family(word, from, family, "from")?;
        if family == Family::V4 {
            // Linux accepts and ignores it.
            return Err(self.refuse("from", "not available for IPv4:"));
        }
        Ok(Some(from).filter(|from| from.prefix_len() != 0))
    }

    fn refuse(&self, name: &str, problem: &str) -> ConfigError {
        let word = self.seen.word(name);
        let place = word.map_or(crate::error::Place::Whole, |word| word.place);
        ConfigError::new(place, problem, name, "")
    }

    fn next_hops(
        &mut self,
        kind: RouteKind,
        family: Family,
        words: &Words,
    ) -> Result<Vec<NextHop>, ConfigError> {
        let first = std::mem::take(&mut self.hop);
        let hops = std::mem::take(&mut self.hops);
        if self.steering.is_any() {
            let other = ["via", "dev", "encap", "onlink"];
            let other = other.iter().find_map(|name| first.seen.word(name));
            let other = other.or_else(|| {
                ["nhid", "tos", "src", "mtu"]
                    .iter()
                    .find_map(|name| self.seen.word(name))
            });
            let other = other.or(self.nexthop);
            return Ok(vec![self.steering.finish(kind, other, words)?]);
        }
        let to_nowhere = kind != RouteKind::Unicast;
        if to_nowhere
            && let Some(word) = first.seen.word("via").or_else(|| first.seen.word("encap"))
        {
            let problem = format!("a route of type {} does not accept", value::kind_text(kind));
            return Err(ConfigError::new(word.place, problem, word.text, ""));
        }
        if !hops.is_empty() {
            if let Some(word) = ["via", "dev", "encap", "onlink"]
                .iter()
                .find_map(|name| first.seen.word(name))
            {
                let expected = "it behind a `nexthop`";
                return Err(ConfigError::new(
                    word.place,
                    "misplaced keyword",
                    word.text,
                    expected,
                ));
            }
            if to_nowhere {
                let problem = format!("a route of type {} does not accept", value::kind_text(kind));
                return Err(ConfigError::new(
                    self.nexthop.map_or(words.end(), |word| word.place),
                    problem,
                    "nexthop",
                    "",
                ));
            }
            let finished = hops.into_iter().map(|hop| hop.finish(family, words));
            let mut hops: Vec<_> = finished.collect::<Result<_, _>>()?;
            // A single next hop needs no weight, so the route is printed without it.
            if let [alone] = hops.as_mut_slice() {
                alone.weight = 1;
            }
            return Ok(hops);
        }
        let nothing = first.via.is_none() && first.plain.dev.is_none();
        match () {
            // The kernel prints `dev lo` here.
            () if rejects(kind) => Ok(vec![]),
            () if nothing && (to_nowhere || self.nhid.is_some()) => Ok(vec![]),
            () => Ok(vec![first.finish(family, words)?]),
        }
    }
}

/// Returns the default table of a route.
const fn default_table(kind: RouteKind) -> TableId {
    match kind {
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast => TableId::LOCAL,
        _ => TableId::MAIN,
    }
}

/// Returns true if a route of this type does not forward packets.
const fn rejects(kind: RouteKind) -> bool {
    matches!(
        kind,
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw
    )
}

/// Returns the canonical name of a route keyword that has several spellings.
fn canonical(text: &str) -> Option<&'static str> {
    Some(match text {
        "to" => "to",
        "from" => "from",
        "table" => "table",
        "metric" | "priority" | "preference" => "metric",
        "tos" | "dsfield" => "tos",
        "proto" | "protocol" => "proto",
        "src" => "src",
        "mtu" => "mtu",
        "nhid" => "nhid",
        "scope" => "scope",
        "pref" => "pref",
        _ => return None,
    })
}

fn scope(text: &str) -> Option<()> {
    let named = matches!(text, "global" | "link" | "host" | "site" | "nowhere");
    (named || value::number(text).is_some_and(|number| number < 256)).then_some(())
}

fn parse_prefix(word: Word, keyword: &str) -> Result<Option<IpNet>, ConfigError> {
    match word.text {
        "default" | "all" | "any" => Ok(None),
        _ => value::prefix(word, keyword, None).map(Some),
    }
}

fn of_family(
    word: Word,
    prefix: Option<IpNet>,
    family: Family,
    keyword: &str,
) -> Result<IpNet, ConfigError> {
    match prefix {
        None => Ok(value::any(family)),
        Some(_) => value::prefix(word, keyword, Some(family)),
    }
}

fn wrong_family(word: Word, keyword: &str, family: Family) -> ConfigError {
    let expected = match (family, keyword) {
        (Family::V6, _) => "an IPv6 address",
        (Family::V4, "via") => "an IPv4 address, or `inet6` in front of an IPv6 one",
        (Family::V4, _) => "an IPv4 address",
    };
    let mut error = invalid(word, keyword, expected);
    error.problem = format!("`{keyword}` of the wrong family");
    error
}

#[cfg(test)]
mod tests;
