//! Parser and printer of neighbors, in the grammar of `ip neigh add` and `ip neigh show`.

use std::fmt::Write;
use std::net::IpAddr;

use super::words::{Once, Words, invalid, unknown};
use super::{Context, Names, Style, value};
use crate::error::ConfigError;
use crate::node::{IfIndex, Mac, Neighbor};

const STATES: &str = "permanent, noarp, reachable, stale, delay, probe, failed, incomplete or none";

/// Parses a neighbor: `ADDRESS lladdr MAC dev DEV [nud STATE]`. The default state is permanent, as
/// in `ip`.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(
    words: &mut Words,
    ctx: &Context,
) -> Result<((IfIndex, IpAddr), Neighbor), ConfigError> {
    let mut seen = Once::default();
    let (mut address, mut lladdr, mut dev, mut state) = (None, None, None, None);
    while let Some(word) = words.take() {
        let name = match word.text {
            "lladdr" => "lladdr",
            "dev" => "dev",
            "nud" => "nud",
            "to" => "to",
            // Flags that `ip neigh show` prints. They do not affect forwarding.
            "router" | "extern_learn" | "managed" => continue,
            // `ip neigh show` prints the state without a keyword, in capitals.
            text if State::from_word(&text.to_ascii_lowercase()).is_some() => {
                seen.note("nud", word)?;
                state = State::from_word(&text.to_ascii_lowercase());
                continue;
            }
            text if text.contains([':', '.']) => {
                seen.note("to", word)?;
                address = Some(value::address(word, "neighbor", ctx.family)?);
                continue;
            }
            _ => {
                let expected = "lladdr, dev, nud or an IP address";
                return Err(unknown(word, expected));
            }
        };
        seen.note(name, word)?;
        match name {
            "lladdr" => {
                let expected = "an Ethernet address of one host, such as 02:00:00:00:00:01";
                lladdr = Some(words.parsed(name, expected, |text| {
                    text.parse().ok().filter(Mac::is_unicast)
                })?);
            }
            "dev" => dev = Some(words.interface(name, ctx.names)?),
            "nud" => state = Some(words.parsed(name, STATES, State::from_word)?),
            _ => {
                let word = words.value(name, "an IP address")?;
                address = Some(value::address(word, name, ctx.family)?);
            }
        }
    }
    let state = state.unwrap_or(State::Permanent);
    let address = address.ok_or_else(|| words.missing("address", "an IP address"))?;
    let dev = dev.ok_or_else(|| words.missing("`dev`", "dev DEV"))?;
    if address.is_multicast() || address.is_unspecified() {
        let word = seen.word("to");
        let place = word.map_or(words.end(), |word| word.place);
        let problem = "no neighbor has the address";
        return Err(ConfigError::new(
            place,
            problem,
            address.to_string(),
            "a unicast address",
        ));
    }
    match (state, lladdr) {
        (State::Unresolved, Some(_)) => {
            // INVARIANT: the parser read an address after the keyword.
            let word = seen.word("lladdr").expect("noted");
            Err(invalid(
                word,
                "nud",
                "no `lladdr` for a neighbor that is not resolved",
            ))
        }
        (State::Unresolved, None) => Ok(None),
        (_, Some(mac)) => Ok(Some(mac)),
        (_, None) => Err(words.missing("`lladdr`", "lladdr MAC")),
    }
    .map(|lladdr| {
        let permanent = state == State::Permanent;
        ((dev, address), Neighbor { lladdr, permanent })
    })
}

/// Parses one line.
///
/// # Errors
/// See [`parse`].
pub fn parse_line(line: &str, ctx: &Context) -> Result<((IfIndex, IpAddr), Neighbor), ConfigError> {
    parse(&mut Words::from_line(line), ctx)
}

/// Neighbor states that the model distinguishes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Never goes stale.
    Permanent,
    /// Usable.
    Valid,
    /// Being resolved, or failed.
    Unresolved,
}

impl State {
    fn from_word(text: &str) -> Option<Self> {
        match text {
            "permanent" | "noarp" => Some(Self::Permanent),
            "reachable" | "stale" | "delay" | "probe" => Some(Self::Valid),
            "failed" | "incomplete" | "none" => Some(Self::Unresolved),
            _ => None,
        }
    }
}

impl Mac {
    /// Returns true for a unicast address: the group bit is clear and it is not zero.
    pub fn is_unicast(&self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// Prints a neighbor on one line. States that the model does not distinguish are printed as one of
/// them.
pub fn print(
    key: &(IfIndex, IpAddr),
    neighbor: &Neighbor,
    names: &dyn Names,
    style: Style,
) -> String {
    let dev = value::interface_text(key.0, names);
    let state = match (neighbor.lladdr, neighbor.permanent) {
        (None, _) => "failed",
        (Some(_), true) => "permanent",
        (Some(_), false) => "reachable",
    };
    let mut text = key.1.to_string();
    match style {
        Style::Add => {
            if let Some(mac) = neighbor.lladdr {
                let _ = write!(text, " lladdr {mac}");
            }
            let _ = write!(text, " dev {dev} nud {state}");
        }
        Style::Show => {
            let _ = write!(text, " dev {dev}");
            if let Some(mac) = neighbor.lladdr {
                let _ = write!(text, " lladdr {mac}");
            }
            let _ = write!(text, " {}", state.to_ascii_uppercase());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::tests::{ctx, names};

    #[test]
    fn neighbors_are_parsed_and_printed_as_by_ip() {
        for (line, add, show) in [
            (
                "fc01::1 lladdr 02:00:00:00:00:11 dev eth1",
                "fc01::1 lladdr 02:00:00:00:00:11 dev eth1 nud permanent",
                "fc01::1 dev eth1 lladdr 02:00:00:00:00:11 PERMANENT",
            ),
            (
                "10.0.0.1 dev eth0 lladdr 02:0:0:0:0:11 router STALE",
                "10.0.0.1 lladdr 02:00:00:00:00:11 dev eth0 nud reachable",
                "10.0.0.1 dev eth0 lladdr 02:00:00:00:00:11 REACHABLE",
            ),
            (
                "fc01::1 dev eth1 nud incomplete",
                "fc01::1 dev eth1 nud failed",
                "fc01::1 dev eth1 FAILED",
            ),
        ] {
            let (key, neighbor) =
                parse_line(line, &ctx()).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(print(&key, &neighbor, &names(), Style::Add), add);
            assert_eq!(print(&key, &neighbor, &names(), Style::Show), show);
            for text in [add, show] {
                assert_eq!(parse_line(text, &ctx()), Ok((key, neighbor)), "{text}");
            }
        }
    }

    #[test]
    fn a_neighbor_needs_address_device_and_a_unicast_lladdr() {
        for (line, want) in [
            ("", "word 1: missing address; expected an IP address"),
            (
                "fc01::1 dev eth1",
                "word 4: missing `lladdr`; expected lladdr MAC",
            ),
            (
                "fc01::1 lladdr 02:00:00:00:00:11",
                "word 4: missing `dev`; expected dev DEV",
            ),
            (
                "fc01::1 lladdr 01:00:00:00:00:11 dev eth0",
                "word 3: invalid `lladdr` \"01:00:00:00:00:11\"",
            ),
            (
                "fc01::1 lladdr 02:00:00:00:00 dev eth0",
                "word 3: invalid `lladdr`",
            ),
            (
                "ff02::1 lladdr 02:00:00:00:00:11 dev eth0",
                "word 1: no neighbor has the address",
            ),
            ("fc01::1 fc01::2 dev eth0", "word 2: duplicate keyword"),
            (
                "fc01::1 lladdr 02:00:00:00:00:11 dev eth0 nud failed",
                "word 2: invalid `nud`",
            ),
            (
                "fc01::1/64 lladdr 02:00:00:00:00:11 dev eth0",
                "word 1: invalid `neighbor`",
            ),
            ("fc01::1 frob", "word 2: unknown keyword \"frob\""),
        ] {
            let found = parse_line(line, &ctx()).expect_err(line).to_string();
            assert!(
                found.starts_with(want),
                "{line}\nfound {found}\nwant  {want}"
            );
        }
    }
}
