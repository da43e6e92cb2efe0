//! The metrics: names, labels and meaning. docs/reference/metrics.md lists them.

use std::collections::BTreeMap;

use sidestep_control::report::{
    Candidate, Drops, Fragments, Icmp, Limits, Metrics, Oam, Policies, PortCounters, Ports,
    ReturnCounters, SegmentList, Service, Severity, Sid, Status, WatchedPath,
};

use super::text::Kind::{Counter, Gauge};
use super::text::{Format, Kind, Text};

/// Returns all metrics as text.
pub fn text(report: &Metrics, format: Format) -> String {
    let mut text = Text::new(format);
    status(&mut text, &report.status);
    ports(&mut text, &report.ports);
    port_counters(&mut text, &report.port_counters);
    reasons(&mut text, &report.reasons);
    let alone = [
        (
            "sidestep_routes",
            "Routes with an SRv6 encapsulation, and routes that exist only in Sidestep.",
            report.routes,
        ),
        (
            "sidestep_punted_routes",
            "Routes among these whose packets are punted to the kernel.",
            report.punted_routes,
        ),
        (
            "sidestep_hmac_keys",
            "HMAC keys.",
            report.hmac_keys.len() as u64,
        ),
    ];
    for (name, help, value) in alone {
        single(&mut text, name, Gauge, help, value);
    }
    sids(&mut text, &report.sids);
    services(&mut text, &report.sids);
    paths(&mut text, &report.paths);
    return_paths(&mut text, &report.return_paths);
    policies(&mut text, &report.policies);
    limits(&mut text, &report.limits);
    icmp(&mut text, &report.icmp);
    fragments(&mut text, &report.fragments);
    oam(&mut text, &report.oam);
    text.end()
}

/// Metric with one sample.
fn single(text: &mut Text, name: &str, kind: Kind, help: &str, value: u64) {
    text.family(name, kind, help);
    text.sample(name, &[], value);
}

/// Counter with one label.
fn labelled(text: &mut Text, name: &str, help: &str, label: &str, counts: &BTreeMap<String, u64>) {
    text.family(name, Counter, help);
    for (value, count) in counts {
        text.sample(name, &[(label, value)], *count);
    }
}

fn status(text: &mut Text, status: &Status) {
    let (version, commit) = status
        .version
        .split_once(" (")
        .unwrap_or((&status.version, ""));
    let commit = commit.trim_end_matches(')');
    let name = "sidestep_build_info";
    text.family(name, Gauge, "Version of the daemon.");
    text.sample(name, &[("version", version), ("commit", commit)], 1);
    let alone = [
        (
            "sidestep_uptime_seconds",
            Gauge,
            "Time since the start.",
            status.uptime,
        ),
        (
            "sidestep_compilations_total",
            Counter,
            "Compilations of the tables.",
            status.compilations,
        ),
        (
            "sidestep_mirror_resyncs_total",
            Counter,
            "Full dumps after lost notifications.",
            status.resyncs,
        ),
    ];
    for (name, kind, help, value) in alone {
        single(text, name, kind, help, value);
    }
    let name = "sidestep_problems";
    let help = "Problems that `sidestep doctor` finds, by severity.";
    text.family(name, Gauge, help);
    for severity in [Severity::Error, Severity::Warning, Severity::Note] {
        let found = status.problems.iter().filter(|it| it.severity == severity);
        text.sample(name, &[("severity", severity.name())], found.count() as u64);
    }
}

fn ports(text: &mut Text, ports: &Ports) {
    let name = "sidestep_port_attached";
    let help = "Whether the packet path is attached to the port.";
    text.family(name, Gauge, help);
    for port in ports {
        let labels = [("port", &*port.name), ("target", &*port.target)];
        text.sample(name, &labels, u64::from(port.target != "none"));
    }
    let name = "sidestep_port_up";
    text.family(name, Gauge, "Whether the port is up and has a carrier.");
    for port in ports {
        text.sample(name, &[("port", &port.name)], u64::from(port.up));
    }
}

fn port_counters(text: &mut Text, ports: &[PortCounters]) {
    type Count = fn(&PortCounters) -> u64;
    let families: [(&str, &str, Count); 7] = [
        ("received_packets", "Frames received.", |it| {
            it.received_packets
        }),
        (
            "received_bytes",
            "Bytes received, with Ethernet headers.",
            |it| it.received_bytes,
        ),
        (
            "forwarded_packets",
            "Received frames that were forwarded.",
            |it| it.forwarded,
        ),
        (
            "punted_packets",
            "Received frames that were punted to the kernel.",
            |it| it.punted,
        ),
        (
            "dropped_packets",
            "Received frames that were dropped.",
            |it| it.dropped,
        ),
        ("sent_packets", "Frames transmitted.", |it| it.sent_packets),
        (
            "sent_bytes",
            "Bytes transmitted, with Ethernet headers.",
            |it| it.sent_bytes,
        ),
    ];
    for (word, help, count) in families {
        let name = format!("sidestep_port_{word}_total");
        text.family(&name, Counter, help);
        for port in ports {
            text.sample(&name, &[("port", &port.name)], count(port));
        }
    }
}

fn reasons(text: &mut Text, reasons: &Drops) {
    let families = [
        (
            "drop",
            "sidestep_drops_total",
            "Packets dropped, by reason.",
        ),
        (
            "punt",
            "sidestep_punts_total",
            "Packets punted to the kernel, by reason.",
        ),
    ];
    for (verdict, name, help) in families {
        text.family(name, Counter, help);
        for reason in reasons.iter().filter(|reason| reason.verdict == verdict) {
            text.sample(name, &[("reason", &reason.name)], reason.packets);
        }
    }
}

/// SIDs only: a full table of routes would be hundreds of thousands of series.
fn sids(text: &mut Text, sids: &[Sid]) {
    type Count = fn(&Sid) -> u64;
    let families: [(&str, &str, Count); 3] = [
        ("packets", "Packets processed with a SID.", |it| it.packets),
        (
            "bytes",
            "Bytes of these packets as received, from layer 3 on.",
            |it| it.bytes,
        ),
        (
            "errors",
            "Packets that a check of the behavior dropped.",
            |it| it.errors,
        ),
    ];
    let tables: Vec<_> = sids.iter().map(|sid| sid.table.to_string()).collect();
    for (word, help, count) in families {
        let name = format!("sidestep_sid_{word}_total");
        text.family(&name, Counter, help);
        for (sid, table) in sids.iter().zip(&tables) {
            let labels = [
                ("sid", &*sid.sid),
                ("table", table),
                ("behavior", &sid.behavior),
            ];
            text.sample(&name, &labels, count(sid));
        }
    }
}

fn services(text: &mut Text, sids: &[Sid]) {
    type Count = fn(&Service) -> u64;
    let families: [(&str, Kind, &str, Count); 4] = [
        (
            "up",
            Gauge,
            "Whether the service of an SR proxy is up.",
            |it| u64::from(it.state == "up"),
        ),
        ("probes_total", Counter, "Probes sent to a service.", |it| {
            it.probes
        }),
        (
            "replies_total",
            Counter,
            "Replies of a service to probes.",
            |it| it.answers,
        ),
        (
            "downs_total",
            Counter,
            "How often a service went down.",
            |it| it.downs,
        ),
    ];
    for (word, kind, help, count) in families {
        let name = format!("sidestep_service_{word}");
        text.family(&name, kind, help);
        for sid in sids {
            if let Some(service) = &sid.service {
                let table = sid.table.to_string();
                let labels = [("sid", &*sid.sid), ("table", &table)];
                text.sample(&name, &labels, count(service));
            }
        }
    }
}

fn paths(text: &mut Text, paths: &[WatchedPath]) {
    type Count = fn(&WatchedPath) -> u64;
    let families: [(&str, Kind, &str, Count); 3] = [
        (
            "in_use",
            Gauge,
            "Whether policies use the list of a path.",
            |it| u64::from(it.in_use),
        ),
        (
            "failures_total",
            Counter,
            "How often a path went out of use.",
            |it| it.failures,
        ),
        ("probes_total", Counter, "Probes sent along a path.", |it| {
            it.flows.iter().map(|flow| flow.probes).sum()
        }),
    ];
    for (word, kind, help, count) in families {
        let name = format!("sidestep_path_{word}");
        text.family(&name, kind, help);
        for path in paths {
            text.sample(&name, &[("path", &*path.name)], count(path));
        }
    }
}

fn return_paths(text: &mut Text, paths: &[ReturnCounters]) {
    type Count = fn(&ReturnCounters) -> Option<u64>;
    let families: [(&str, Kind, &str, Count); 8] = [
        (
            "sidestep_return_packets_total",
            Counter,
            "Packets that services returned.",
            |it| Some(it.packets),
        ),
        (
            "sidestep_return_bytes_total",
            Counter,
            "Bytes of these packets as received, from layer 3 on.",
            |it| Some(it.bytes),
        ),
        (
            "sidestep_return_errors_total",
            Counter,
            "Returned packets that a check of the SR proxy dropped.",
            |it| Some(it.errors),
        ),
        (
            "sidestep_return_not_learned_total",
            Counter,
            "Errors for lack of learned headers.",
            |it| Some(it.not_learned),
        ),
        (
            "sidestep_return_no_srh_total",
            Counter,
            "Returned packets without an SRH that were routed unmodified.",
            |it| Some(it.no_srh),
        ),
        (
            "sidestep_flows",
            Gauge,
            "Flows in the table of a dynamic proxy.",
            |it| it.flows.map(|flows| flows.used.into()),
        ),
        (
            "sidestep_flows_limit",
            Gauge,
            "Capacity of the flow table.",
            |it| it.flows.map(|flows| flows.limit.into()),
        ),
        (
            "sidestep_flows_evicted_total",
            Counter,
            "Flows that were evicted to make room for others.",
            |it| it.flows.map(|flows| flows.evicted),
        ),
    ];
    for (name, kind, help, count) in families {
        text.family(name, kind, help);
        for path in paths {
            if let Some(count) = count(path) {
                let labels = [("port", &*path.port), ("inner", &*path.inner)];
                text.sample(name, &labels, count);
            }
        }
    }
}

fn policies(text: &mut Text, policies: &Policies) {
    type Count = fn(&SegmentList) -> u64;
    let name = "sidestep_policy_valid";
    text.family(name, Gauge, "Whether the SR policy is valid.");
    for policy in policies {
        let labels = [("policy", &*policy.name)];
        text.sample(name, &labels, u64::from(policy.active.is_some()));
    }
    let families: [(&str, Kind, &str, Count); 3] = [
        (
            "packets_total",
            Counter,
            "Packets sent by a segment list.",
            |it| it.packets,
        ),
        (
            "bytes_total",
            Counter,
            "Bytes of these packets as received.",
            |it| it.bytes,
        ),
        ("valid", Gauge, "Whether the segment list is valid.", |it| {
            u64::from(it.invalid.is_none())
        }),
    ];
    for (word, kind, help, count) in families {
        let name = format!("sidestep_policy_list_{word}");
        text.family(&name, kind, help);
        for policy in policies {
            for candidate in &policy.candidates {
                let preference = candidate.preference.to_string();
                let path = controller_path(candidate);
                for (number, list) in candidate.lists.iter().enumerate() {
                    let number = number.to_string();
                    let mut labels = vec![
                        ("policy", policy.name.as_str()),
                        ("preference", &preference),
                        ("list", &number),
                    ];
                    labels.extend(path.as_ref().map(|path| ("path", path.as_str())));
                    text.sample(&name, &labels, count(list));
                }
            }
        }
    }
}

/// Returns the label of a controller's candidate path, which others of equal preference do not have.
fn controller_path(candidate: &Candidate) -> Option<String> {
    let path = candidate.path.id();
    (!path.is_configured()).then(|| path.to_string())
}

fn limits(text: &mut Text, limits: &Limits) {
    let tables = || limits.iter().filter(|limit| limit.used.is_some());
    let families = [
        ("sidestep_table_entries", "Entries in use."),
        ("sidestep_table_limit", "Capacity of the table."),
        (
            "sidestep_table_left_out",
            "Routes that are punted because the table is full.",
        ),
    ];
    for (number, (name, help)) in families.into_iter().enumerate() {
        text.family(name, Gauge, help);
        for limit in tables() {
            let value = [limit.used.unwrap_or_default(), limit.limit, limit.left_out][number];
            text.sample(name, &[("table", &limit.name)], value);
        }
    }
}

fn icmp(text: &mut Text, icmp: &Icmp) {
    labelled(
        text,
        "sidestep_icmp_sent_total",
        "ICMP messages sent.",
        "type",
        &icmp.sent,
    );
    labelled(
        text,
        "sidestep_icmp_relayed_total",
        "ICMP errors relayed.",
        "type",
        &icmp.relayed,
    );
    labelled(
        text,
        "sidestep_icmp_suppressed_total",
        "ICMP messages suppressed by the rate limit.",
        "port",
        &icmp.suppressed,
    );
    single(
        text,
        "sidestep_icmp_not_relayed_total",
        Counter,
        "ICMP errors not relayed because of the rate limit.",
        icmp.not_relayed,
    );
    single(
        text,
        "sidestep_icmp_failed_total",
        Counter,
        "ICMP messages that the kernel refused to send.",
        icmp.failed,
    );
}

fn fragments(text: &mut Text, fragments: &Fragments) {
    let alone = [
        (
            "sidestep_fragmented_packets_total",
            "Packets that were sent in fragments.",
            fragments.packets,
        ),
        (
            "sidestep_fragments_sent_total",
            "Fragments that were sent.",
            fragments.fragments,
        ),
        (
            "sidestep_fragments_failed_total",
            "Packets that could not be sent in fragments.",
            fragments.failed,
        ),
        (
            "sidestep_fragments_expired_total",
            "Packets dropped because they waited too long for fragmentation.",
            fragments.expired,
        ),
    ];
    for (name, help, value) in alone {
        single(text, name, Counter, help, value);
    }
    labelled(
        text,
        "sidestep_fragments_suppressed_total",
        "Packets that the rate limit for fragmentation dropped.",
        "port",
        &fragments.suppressed,
    );
}

fn oam(text: &mut Text, oam: &Oam) {
    labelled(
        text,
        "sidestep_oam_copied_total",
        "Copies of packets with the O-flag.",
        "port",
        &oam.copied,
    );
    labelled(
        text,
        "sidestep_oam_suppressed_total",
        "Packets with the O-flag that the rate limit left without a copy.",
        "port",
        &oam.suppressed,
    );
    single(
        text,
        "sidestep_oam_unread_total",
        Counter,
        "Copies that a listening client did not read in time.",
        oam.unread,
    );
}
