//! Filters of `sidestep trace`.
//!
//! ```text
//! FILTER := TERM...                          every term must match
//! TERM := port IF | src PREFIX | dst PREFIX | sid PREFIX | proto PROTOCOL
//!       | verdict { forward | punt | drop } | reason NAME
//! ```

use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_datapath::VerdictKind;
use sidestep_datapath::abi::{REASONS, Reason};
use sidestep_datapath::kernel::{Sample, TraceFilter};
use thiserror::Error;

/// LIMIT: packets printed per second.
pub const RATE_MAX: u32 = 1000;
/// LIMIT: packets per second that the daemon examines if the packet path cannot apply the whole
/// filter (`proto`, a pcap filter).
pub(crate) const EXAMINED_MAX: u32 = 1000;

/// Keywords of the terms, with their arguments.
pub const TERMS: [(&str, &str); 7] = [
    ("port", "IF"),
    ("src", "PREFIX"),
    ("dst", "PREFIX"),
    ("sid", "PREFIX"),
    ("proto", "PROTOCOL"),
    ("verdict", "forward|punt|drop"),
    ("reason", "NAME"),
];

/// Names of upper-layer protocols as operators write them, with their numbers (IANA "Assigned
/// Internet Protocol Numbers").
pub const PROTOCOLS: [(&str, u8); 9] = [
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("icmp6", 58),
    ("sctp", 132),
    ("gre", 47),
    ("esp", 50),
    ("ospf", 89),
    ("vrrp", 112),
];

/// Selects the packets to print: every term must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Name of the ingress port.
    pub port: Option<String>,
    /// Prefix of the source, in the IP header that arrived.
    pub source: Option<IpNet>,
    /// Prefix of the destination, in the IP header that arrived.
    pub destination: Option<IpNet>,
    /// Prefix of an address that was looked up for the packet: any destination that it had at this
    /// node.
    pub sid: Option<IpNet>,
    /// Protocol number in the header chain as received, including the headers of an encapsulated
    /// packet.
    pub protocol: Option<u8>,
    /// Verdict.
    pub verdict: Option<VerdictKind>,
    /// Reason.
    pub reason: Option<&'static Reason>,
}

/// Why a filter is invalid, and which values are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// The keyword of a term is unknown.
    #[error("filter: unknown word {word:?}; a term is one of: {}", terms())]
    Unknown {
        /// As given.
        word: String,
    },
    /// The last keyword lacks its argument.
    #[error("filter: {term} requires {wanted}")]
    Missing {
        /// Keyword of the term.
        term: &'static str,
        /// Form of the argument.
        wanted: &'static str,
    },
    /// The same keyword occurs twice.
    #[error("filter: {term} occurs twice")]
    Twice {
        /// Keyword of the term.
        term: &'static str,
    },
    /// The argument of a term is invalid.
    #[error("filter: {term} {value:?}: {allowed}")]
    Value {
        /// Keyword of the term.
        term: &'static str,
        /// As given.
        value: String,
        /// Allowed values.
        allowed: String,
    },
    /// No packet can match.
    #[error("filter: no packet can match: {why}")]
    Contradiction {
        /// Reason.
        why: String,
    },
}

fn terms() -> String {
    let terms = TERMS.map(|(word, value)| format!("{word} {value}"));
    terms.join(", ")
}

impl Filter {
    /// Parses the arguments of `sidestep trace`.
    pub fn parse(words: &[String]) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        let mut seen = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (term, wanted) = TERMS
                .into_iter()
                .find(|(term, _)| term == word)
                .ok_or_else(|| FilterError::Unknown { word: word.clone() })?;
            if seen.contains(&term) {
                return Err(FilterError::Twice { term });
            }
            seen.push(term);
            let value = words.next().ok_or(FilterError::Missing { term, wanted })?;
            filter.term(term, value)?;
        }
        filter.check()?;
        Ok(filter)
    }

    fn term(&mut self, term: &'static str, value: &str) -> Result<(), FilterError> {
        let wrong = |allowed: String| FilterError::Value {
            term,
            value: value.to_owned(),
            allowed,
        };
        let prefix = || {
            let address = || value.parse::<IpAddr>().map(IpNet::from);
            let prefix = value.parse::<IpNet>().or_else(|_| address());
            let allowed = "an IPv6 or IPv4 address, or ADDRESS/LENGTH";
            prefix.map(Some).map_err(|_| wrong(allowed.into()))
        };
        match term {
            "port" => self.port = Some(value.to_owned()),
            "src" => self.source = prefix()?,
            "dst" => self.destination = prefix()?,
            "sid" => self.sid = prefix()?,
            "proto" => {
                let names = PROTOCOLS.map(|(name, _)| name).join(", ");
                let by_name = PROTOCOLS.iter().find(|(name, _)| *name == value);
                let number = by_name.map(|(_, number)| *number);
                let number = number.or_else(|| value.parse().ok());
                let allowed = || wrong(format!("one of {names}, or a number from 0 to 255"));
                self.protocol = Some(number.ok_or_else(allowed)?);
            }
            "verdict" => {
                let kind = VerdictKind::ALL
                    .into_iter()
                    .find(|kind| kind.name() == value);
                let names = VerdictKind::ALL.map(VerdictKind::name).join(", ");
                self.verdict = Some(kind.ok_or_else(|| wrong(format!("one of {names}")))?);
            }
            _ => {
                let names: Vec<_> = REASONS.iter().map(|reason| reason.name).collect();
                let allowed = || wrong(format!("one of {}", names.join(", ")));
                self.reason = Some(Reason::from_name(value).ok_or_else(allowed)?);
            }
        }
        Ok(())
    }

    /// Rejects terms that exclude each other: such a filter would match no packet.
    fn check(&self) -> Result<(), FilterError> {
        let contradiction = |why: String| Err(FilterError::Contradiction { why });
        if let (Some(source), Some(destination)) = (self.source, self.destination)
            && source.addr().is_ipv4() != destination.addr().is_ipv4()
        {
            return contradiction(format!(
                "src {source} and dst {destination} have different address families"
            ));
        }
        if let (Some(verdict), Some(reason)) = (self.verdict, self.reason) {
            let of_reason = if reason.is_drop() {
                VerdictKind::Drop
            } else {
                VerdictKind::Punt
            };
            if verdict != of_reason {
                return contradiction(format!(
                    "reason {} belongs to verdict {}",
                    reason.name,
                    of_reason.name()
                ));
            }
        }
        Ok(())
    }

    /// Returns the part of the filter that the packet path applies; `ifindex` is that of the port.
    pub(crate) fn in_packet_path(&self, ifindex: Option<u32>) -> TraceFilter {
        TraceFilter {
            ifindex,
            source: self.source,
            destination: self.destination,
            met: self.sid,
            verdict: self.verdict,
            reason: self.reason,
        }
    }

    /// Whether the packet path applies all terms.
    pub(crate) fn is_decided_in_packet_path(&self) -> bool {
        self.protocol.is_none()
    }
}

/// A sampled packet with its place in a trace.
#[derive(Clone, Copy, Debug)]
pub struct TracedPacket<'a> {
    /// Number in the trace, from 1.
    pub number: u64,
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// Sample from the packet path.
    pub sample: &'a Sample,
    /// Target of the ingress port.
    pub target: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Filter, String> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        Filter::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn every_term_is_read_in_any_order() {
        let filter = parse(
            "reason srh_tlv sid fc00:2::/64 port eth0 proto icmp6 dst fc00:2::e src 2001:db8::/32 verdict drop",
        )
        .expect("a filter");
        let net = |text: &str| Some(text.parse().expect("a prefix"));
        let expected = Filter {
            port: Some("eth0".into()),
            source: net("2001:db8::/32"),
            destination: net("fc00:2::e/128"),
            sid: net("fc00:2::/64"),
            protocol: Some(58),
            verdict: Some(VerdictKind::Drop),
            reason: Reason::from_name("srh_tlv"),
        };
        assert_eq!(filter, expected);
        assert_eq!(parse(""), Ok(Filter::default()));
        assert_eq!(
            parse("proto 253").map(|filter| filter.protocol),
            Ok(Some(253))
        );
    }

    #[test]
    fn an_invalid_filter_names_the_allowed_values() {
        let terms = "port IF, src PREFIX, dst PREFIX, sid PREFIX, proto PROTOCOL, verdict forward|punt|drop, reason NAME";
        for (words, expected) in [
            (
                "host fc00::1",
                format!("filter: unknown word \"host\"; a term is one of: {terms}"),
            ),
            ("port", "filter: port requires IF".into()),
            (
                "src fc00::1 src fc00::2",
                "filter: src occurs twice".into(),
            ),
            (
                "dst fc00::1/129",
                "filter: dst \"fc00::1/129\": an IPv6 or IPv4 address, or ADDRESS/LENGTH".into(),
            ),
            (
                "proto tpc",
                "filter: proto \"tpc\": one of tcp, udp, icmp, icmp6, sctp, gre, esp, ospf, vrrp, or a number from 0 to 255".into(),
            ),
            (
                "proto 256",
                "filter: proto \"256\": one of tcp, udp, icmp, icmp6, sctp, gre, esp, ospf, vrrp, or a number from 0 to 255".into(),
            ),
            (
                "verdict pass",
                "filter: verdict \"pass\": one of forward, punt, drop".into(),
            ),
            (
                "src fc00::/16 dst 10.0.0.1",
                "filter: no packet can match: src fc00::/16 and dst 10.0.0.1/32 have different address families".into(),
            ),
            (
                "verdict forward reason blackhole",
                "filter: no packet can match: reason blackhole belongs to verdict drop".into(),
            ),
        ] {
            assert_eq!(parse(words), Err(expected), "{words}");
        }
        let error = parse("reason srh").expect_err("no such reason");
        assert!(
            error.starts_with("filter: reason \"srh\": one of ipv6_header, "),
            "{error}"
        );
        assert!(
            error.contains(", jumbogram") && error.contains("srh_tlv"),
            "{error}"
        );
    }
}
