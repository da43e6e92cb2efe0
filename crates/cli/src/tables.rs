//! Text tables of counters. `-j` prints the same structures as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use sidestep_control::report::{
    Fpm, Fragments, HmacKey, Oam, PortCounters, Protection, Reason, Reflector, ReturnPath, Route,
    Service,
};

/// Returns a table with these column heads and without borders. The columns in `right` are
/// right-aligned.
pub fn table(heads: &[&str], right: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heads.to_vec());
    for (index, head) in heads.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if right.contains(head) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// LIMIT: names in a list for people.
const NAMES_MAX: usize = 8;

/// Returns names as a list, the first of many.
pub fn names(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len().checked_sub(NAMES_MAX) {
        Some(more @ 1..) => format!("{first} and {more} more"),
        _ => first,
    }
}

/// Returns the reflectors of S-BFD.
pub fn reflectors(reflectors: &[Reflector]) -> Table {
    let mut table = table(
        &["discriminator", "state", "answers"],
        &["discriminator", "answers"],
    );
    for it in reflectors {
        let state = if it.admin_down { "admin-down" } else { "up" };
        table.add_row([
            it.discriminator.to_string(),
            state.to_owned(),
            it.answers.to_string(),
        ]);
    }
    table
}

/// Returns the protected next hops.
pub fn protections(protections: &[Protection]) -> Table {
    let mut table = table(&["protection", "state", "next hops", "why"], &["next hops"]);
    for it in protections {
        table.add_row([
            it.words.clone(),
            it.state.clone(),
            it.next_hops.to_string(),
            it.why.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// Returns the counters of ports.
pub fn port_counters(ports: &[PortCounters]) -> Table {
    let heads = [
        "port",
        "received",
        "bytes",
        "forwarded",
        "punted",
        "dropped",
        "sent",
        "sent bytes",
    ];
    let mut table = table(&heads, &heads[1..]);
    for port in ports {
        let numbers = [
            port.received_packets,
            port.received_bytes,
            port.forwarded,
            port.punted,
            port.dropped,
            port.sent_packets,
            port.sent_bytes,
        ];
        table.add_row(
            std::iter::once(port.name.clone()).chain(numbers.map(|number| number.to_string())),
        );
    }
    table
}

/// Returns the HMAC keys.
pub fn hmac_keys(keys: &[HmacKey]) -> Table {
    let heads = ["key", "algorithm", "owner", "policies"];
    let mut table = table(&heads, &["key", "policies"]);
    for key in keys {
        table.add_row([
            key.key.to_string(),
            key.algorithm.clone(),
            key.owner.clone(),
            key.policies.to_string(),
        ]);
    }
    table
}

/// Returns the counts of packets with the O-flag, by port.
pub fn oam(oam: &Oam) -> Table {
    let numbers = ["rate", "copied", "too many"];
    let mut table = table(&["port", "rate", "copied", "too many"], &numbers);
    let ports: BTreeSet<_> = oam.copied.keys().chain(oam.suppressed.keys()).collect();
    for port in ports {
        let of = |counts: &BTreeMap<String, u64>| counts.get(port).copied().unwrap_or_default();
        let numbers = [oam.rate.into(), of(&oam.copied), of(&oam.suppressed)];
        let [rate, copied, suppressed] = numbers.map(|number: u64| number.to_string());
        table.add_row([port.clone(), rate, copied, suppressed]);
    }
    table
}

/// Returns the counts of packets that exceed the egress MTU.
pub fn fragments(report: &Fragments) -> Table {
    let mut table = table(&["fragments", "port", "value"], &["value"]);
    let mut add = |what: &str, port: &str, value: String| {
        table.add_row([what, port, &value]);
    };
    add("IPv4 without DF", "", report.ipv4_too_big.clone());
    let rate = format!("{}/s, burst {}", report.rate, report.burst);
    add("limit", "", rate);
    add("packets sent", "", report.packets.to_string());
    add("fragments sent", "", report.fragments.to_string());
    for (port, count) in &report.suppressed {
        add("packets over the limit", port, count.to_string());
    }
    add("packets not sent", "", report.failed.to_string());
    add("packets too late", "", report.expired.to_string());
    table
}

/// Returns the state of FPM.
pub fn fpm(fpm: &Fpm) -> Table {
    let mut table = table(&["fpm", "value"], &[]);
    let none = || "none".to_owned();
    let seconds = |value: u64| format!("{value} s");
    let rows = [
        ("listens at", fpm.address.clone()),
        ("zebra", fpm.peer.clone().unwrap_or_else(none)),
        (
            "connected for",
            fpm.connected_for.map_or_else(none, seconds),
        ),
        ("routes", fpm.routes.to_string()),
        ("stale routes", fpm.stale_routes.to_string()),
        ("nexthop objects", fpm.nexthop_objects.to_string()),
        (
            "stale nexthop objects",
            fpm.stale_nexthop_objects.to_string(),
        ),
        ("hold time", seconds(fpm.hold)),
        ("sweep within", fpm.sweep_within.map_or_else(none, seconds)),
        ("messages of this session", fpm.messages.to_string()),
        ("messages without effect", fpm.ignored.to_string()),
        (
            "routes reported installed",
            fpm.reported_installed.to_string(),
        ),
        ("routes reported failed", fpm.reported_failed.to_string()),
        ("sessions", fpm.sessions.to_string()),
        ("refused connections", fpm.refused.to_string()),
        (
            "end of the last session",
            fpm.last_end.clone().unwrap_or_else(none),
        ),
    ];
    for (name, value) in rows {
        table.add_row([name, &value]);
    }
    table
}

/// Returns the counters of routes, with a column for the state of services if one is probed. Below
/// the SID of a proxy are the return path of its service and the header sets that it applies.
pub fn routes(routes: &[Route]) -> Table {
    let is_probed = routes.iter().any(|route| route.service.is_some());
    let heads = ["packets", "bytes", "errors", "service", "route"];
    let heads = heads
        .into_iter()
        .filter(|head| is_probed || *head != "service");
    let mut table = table(&heads.collect::<Vec<_>>(), &["packets", "bytes", "errors"]);
    for route in routes {
        let numbers = [route.packets, route.bytes, route.errors].map(|number| number.to_string());
        let service = is_probed.then(|| route.service.as_ref().map_or_else(String::new, service));
        table.add_row(
            numbers
                .into_iter()
                .chain(service)
                .chain([route.route.clone()]),
        );
        for (numbers, text) in route.return_path.iter().flat_map(return_path) {
            let text = format!("  {text}");
            table.add_row(
                numbers
                    .into_iter()
                    .chain(is_probed.then(String::new))
                    .chain([text]),
            );
        }
    }
    table
}

/// Returns the lines of a return path: packets, bytes and errors, then the text.
fn return_path(path: &ReturnPath) -> Vec<([String; 3], String)> {
    let numbers = [path.packets, path.bytes, path.errors].map(|number| number.to_string());
    let misses = match path.not_learned {
        0 => String::new(),
        packets => format!(", {packets} before anything was learned"),
    };
    let stripped = match path.no_srh {
        0 => String::new(),
        packets => format!(", {packets} from other sources without an SRH"),
    };
    let came = (
        numbers,
        format!("return path on {}{misses}{stripped}", path.port),
    );
    let flows = path.flows.map(|flows| {
        let text = format!(
            "{} of {} flows, {} evicted",
            flows.used, flows.limit, flows.evicted
        );
        (Default::default(), text)
    });
    let verb = if flows.is_some() { "used" } else { "learned" };
    let learned = path.learned.iter().take(CHAINS_LISTED).map(|learned| {
        let age = Duration::from_millis(learned.age).as_secs_f64();
        let text = format!("{verb} {age:.1} s ago: {}", learned.text);
        (Default::default(), text)
    });
    let more = path.learned.len().saturating_sub(CHAINS_LISTED);
    let more = (more > 0).then(|| (Default::default(), format!("and {more} more")));
    let lines = std::iter::once(came).chain(flows);
    lines.chain(learned).chain(more).collect()
}

/// Maximum number of header sets that a table lists for a service; JSON has all of them.
const CHAINS_LISTED: usize = 8;

/// Formats the state of a service: `up, 12 of 12 answered`, or `up` for a link, which is not
/// probed.
fn service(service: &Service) -> String {
    let Service {
        state,
        probes,
        answers,
        downs,
        problem,
    } = service;
    let answered = (*probes > 0).then(|| format!("{answers} of {probes} answered"));
    let often = (*downs > 0).then(|| format!("down {}", count(*downs, "time")));
    let parts = [Some(state.clone()), answered, often, problem.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats a count with its noun: `1 port`, `2 ports`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns the packets by reason.
pub fn reasons(reasons: &[Reason]) -> Table {
    let mut table = table(
        &["packets", "verdict", "reason", "source", "meaning"],
        &["packets"],
    );
    for reason in reasons {
        let packets = reason.packets.to_string();
        table.add_row([
            &packets,
            &reason.verdict,
            &reason.name,
            &reason.source,
            &reason.sentence,
        ]);
    }
    table
}
