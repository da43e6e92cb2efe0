//! What is measured: the rows of the table, most of them cases of the engines' behaviors.

use crate::engine::behavior::Behavior;
use crate::engine::customer::{HOST_6, TUNSRC};
use crate::engine::{Case, Flows, Size};

/// All behaviors, in the order of the table.
///
/// # Panics
/// Never: a test makes all of them.
pub fn all() -> Vec<Behavior> {
    let mut rows = cases(&[("plain IPv6", "ipv6", 0), ("plain IPv4", "ipv4", 0)]);
    rows.extend(ruled());
    rows.extend(cases(&[
        ("H.Encaps, 1 segment", "h.encaps", 1),
        ("H.Encaps, 2 segments", "h.encaps", 2),
        ("H.Encaps of IPv4, 1 segment", "h.encaps.v4", 1),
        ("H.Encaps.Red, 1 segment", "h.encaps.red", 1),
        ("H.Encaps.Red, 2 segments", "h.encaps.red", 2),
        ("H.Insert, 1 segment", "h.insert", 1),
        ("H.Encaps.L2, 1 segment", "h.encaps.l2", 1),
        ("End", "end", 2),
    ]));
    rows.push(by_a_gateway("End.X, nh6 by a gateway", "end.x"));
    rows.extend(cases(&[
        ("End.X, nh6 on the link", "end.x", 2),
        ("End.T", "end.t", 2),
        ("End.DX2", "end.dx2", 2),
        ("End.DX4, nh4 by a gateway", "end.dx4", 2),
    ]));
    rows.push(by_a_gateway("End.DX6, nh6 by a gateway", "end.dx6"));
    rows.extend(cases(&[
        ("End.DX6, nh6 on the link", "end.dx6", 2),
        ("End.DT6", "end.dt6", 2),
    ]));
    rows.extend(hmac());
    rows.extend(chain());
    rows
}

fn cases(rows: &[(&str, &str, u32)]) -> Vec<Behavior> {
    let rows = rows.iter();
    rows.map(|&(name, behavior, sids)| row(name, behavior, sids))
        .collect()
}

/// A case with the customer's packet of [`LENGTH`].
fn row(name: &str, behavior: &str, sids: u32) -> Behavior {
    let case = Case {
        behavior: behavior.to_owned(),
        sids,
        size: Size::Bytes(LENGTH as u32),
        flows: Flows::Uniform(1),
        rules: 0,
        routes: 0,
        cores: 1,
    };
    let made = Behavior::of(&case, LENGTH).expect("a case that the engines have");
    named(name, made)
}

fn named(name: &str, behavior: Behavior) -> Behavior {
    let name = name.to_owned();
    Behavior { name, ..behavior }
}

/// The next hop of the SID is not on the link: its route has to be found.
fn by_a_gateway(name: &str, behavior: &str) -> Behavior {
    let mut made = row(name, behavior, 2);
    for route in &mut made.routes {
        *route = route.replace("fc01::1", "fc0e::1");
    }
    made.routes
        .push("fc0e::/16 via fc01::1 dev eth1".to_owned());
    made
}

/// Rules of which the last one names the packet, and the table that its route is in.
fn ruled() -> Vec<Behavior> {
    let iif: Selector = |n| format!("iif absent{n}");
    let from: Selector = |n| format!("from fd00:{n:x}::/32");
    let to: Selector = |n| format!("to fd00:{n:x}::/32");
    let rows = [
        ("1 iif rule", 1, iif, "iif eth0"),
        ("80 iif rules", 80, iif, "iif eth0"),
        ("160 iif rules", 160, iif, "iif eth0"),
        ("10,000 iif rules", 10_000, iif, "iif eth0"),
        ("80 from rules", 80, from, "from fc00::/16"),
        ("10,000 from rules", 10_000, from, "from fc00::/16"),
        ("80 to rules", 80, to, "to 2001:db8:d::/48"),
        ("10,000 to rules", 10_000, to, "to 2001:db8:d::/48"),
    ];
    let rows = rows.map(|(name, count, others, last)| {
        let mut made = row(name, "ipv6", 0);
        made.ruled((1..count).map(others).chain([last.to_owned()]));
        made
    });
    rows.into()
}

/// The part of a rule that says what it is for, by number.
type Selector = fn(usize) -> String;

/// Signed and verified, beside the same without: over 1, 2, 4 and 10 segments.
fn hmac() -> Vec<Behavior> {
    let mut rows = Vec::new();
    for (title, plain, with) in [
        ("H.Encaps", "h.encaps", "h.encaps.hmac.sha256"),
        ("End", "end", "end.hmac.sha256"),
    ] {
        for sids in [1, 2, 4, 10] {
            let segments = if sids == 1 { "segment" } else { "segments" };
            for (behavior, hmac) in [(plain, "no HMAC"), (with, "HMAC")] {
                rows.push(row(
                    &format!("{title}, {sids} {segments}, {hmac}"),
                    behavior,
                    sids,
                ));
            }
        }
    }
    rows
}

/// SR proxies, which Linux has not: a service behind the router, and what one of many services sends back.
///
/// Beside a proxy stands, as in what is published of them, a service that knows SRv6 and does End itself, behind a router
/// that only forwards; both are Linux. Beside the way back, which Sidestep finds from the port alone, stands a Linux that
/// finds it by a policy rule for each service.
fn chain() -> Vec<Behavior> {
    let mut rows = cases(&[
        ("chain, End.AD", "end.ad", 2),
        ("chain, End.AD, age 1", "end.ad.age1", 2),
        ("chain, End.AS", "end.as", 2),
        ("chain, End.AM", "end.am", 3),
        ("chain, End.AD, VNF in XDP", "end.ad.xdp", 2),
        ("chain, End.AS, VNF in XDP", "end.as.xdp", 2),
        ("chain, End.AM, VNF in XDP", "end.am.xdp", 3),
    ]);
    rows.extend([
        from_one_of("back, 1 service", 1),
        from_one_of("back, 80 services", 80),
        from_one_of("back, 160 services", 160),
    ]);
    rows
}

/// A static proxy, so that Linux has a counterpart of what the way back does: H.Encaps.
fn from_one_of(name: &str, services: usize) -> Behavior {
    let proxies = (1..services).map(|n| {
        format!("fc0f::1:{n:x}/128 encap seg6local action End.AS oif idle{n} nh6 fd00::{n:x}:2 segs fc0b::1 src {TUNSRC} dev idle{n}")
    });
    let measured = format!(
        "fc0f::1/128 encap seg6local action End.AS oif eth0 nh6 {HOST_6} segs fc0b::1 src {TUNSRC} dev eth0"
    );
    let mut made = row(name, "h.encaps", 1);
    let absent = (1..services).map(|n| format!("iif absent{n}"));
    made.ruled(absent.chain(["iif eth0".to_owned()]));
    Behavior {
        own: proxies.chain([measured]).collect(),
        idle: services - 1,
        ..made
    }
}

/// Of the customer's packet, in bytes: 78 with the Ethernet header.
const LENGTH: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::network::Network;
    use crate::engine::plane::{Plane, Standing};
    use crate::engine::verify::verify;
    use crate::root_or_skip;

    #[test]
    fn names_are_unique_and_plain_frames_have_78_bytes() {
        let rows = all();
        for (index, row) in rows.iter().enumerate() {
            let name = &row.name;
            assert!(
                rows[..index].iter().all(|other| other.name != *name),
                "{name}"
            );
            let through_a_service = row.service.is_some();
            let length = if name.contains("HMAC") {
                row.sent.len()
            } else if name.contains("End.AM") {
                174
            } else if name.starts_with("End") || through_a_service {
                158
            } else {
                78
            };
            // End.DX2 carries an Ethernet header too.
            let inner = if name == "End.DX2" { 14 } else { 0 };
            assert_eq!(row.sent.len(), length + inner, "{name}");
            assert_eq!(row.from_linux.len(), row.from_sidestep.len(), "{name}");
        }
    }

    #[test]
    fn linux_does_what_every_row_says_of_it() {
        if !root_or_skip() {
            return;
        }
        let wrong: Vec<String> = all()
            .into_iter()
            .filter_map(|row| {
                // Ports that no packet comes by take Linux nothing but the time to make them.
                let busy = Behavior { idle: 0, ..row };
                let network = Arc::new(Network::routed(&busy).expect("network"));
                let linux = Standing::linux(&network, &busy).expect("linux");
                let verified = verify(Plane::Linux, &linux, &busy);
                verified.err().map(|error| error.to_string())
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
