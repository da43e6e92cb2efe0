//! `sidestep metrics`: counters and states of the daemon in the text format of Prometheus.

use std::fmt::Write as _;
use std::io::Write;

use serde::de::DeserializeOwned;
use sidestep_control::api::{self, Request};
use sidestep_control::report::{
    Counters, Drops, Icmp, Limits, Policies, Ports, Route, Severity, Status,
};

use crate::Outcome;

/// Arguments of `metrics`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args, out: &mut dyn Write) -> Outcome {
    let mut text = Text::default();
    text.status(&ask(Request::ShowStatus)?);
    text.ports(&ask(Request::ShowPorts)?);
    let counters: Counters = ask(Request::ShowCounters)?;
    text.port_counters(&counters);
    text.reasons(&ask(Request::ShowDrops)?);
    text.sids(&counters.routes);
    text.policies(&ask(Request::ShowPolicies)?);
    text.limits(&ask(Request::ShowLimits)?);
    text.icmp(&ask(Request::ShowIcmp)?);
    out.write_all(text.0.as_bytes())?;
    Ok(())
}

fn ask<T: DeserializeOwned>(
    request: Request,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(serde_json::from_value(api::call(request)?)?)
}

/// Metrics in the text format.
#[derive(Debug, Default)]
struct Text(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    /// Begins a metric.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        let label = |(label, value): &(&str, &str)| format!("{label}=\"{}\"", escaped(value));
        let labels: Vec<_> = labels.iter().map(label).collect();
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{}}} {value}", labels.join(","))
        };
    }

    fn status(&mut self, status: &Status) {
        let (version, commit) = status
            .version
            .split_once(" (")
            .unwrap_or((&status.version, ""));
        let commit = commit.trim_end_matches(')');
        self.family("sidestep_build_info", "gauge", "Version of the daemon.");
        let labels = [("version", version), ("commit", commit)];
        self.sample("sidestep_build_info", &labels, 1);
        self.family("sidestep_uptime_seconds", "gauge", "Time since the start.");
        self.sample("sidestep_uptime_seconds", &[], status.uptime);
        let counts = [
            (
                "sidestep_compilations_total",
                "Compilations of the tables.",
                status.compilations,
            ),
            (
                "sidestep_mirror_resyncs_total",
                "Full dumps after lost notifications.",
                status.resyncs,
            ),
        ];
        for (name, help, value) in counts {
            self.family(name, "counter", help);
            self.sample(name, &[], value);
        }
        let name = "sidestep_problems";
        self.family(
            name,
            "gauge",
            "Problems that `sidestep doctor` finds, by severity.",
        );
        for severity in [Severity::Error, Severity::Warning, Severity::Note] {
            let found = status.problems.iter().filter(|it| it.severity == severity);
            self.sample(name, &[("severity", severity.name())], found.count() as u64);
        }
    }

    fn ports(&mut self, ports: &Ports) {
        let name = "sidestep_port_attached";
        self.family(
            name,
            "gauge",
            "Whether the packet path is attached to the port.",
        );
        for port in ports {
            let labels = [
                ("port", port.name.as_str()),
                ("target", port.target.as_str()),
            ];
            self.sample(name, &labels, u64::from(port.target != "none"));
        }
    }

    fn port_counters(&mut self, counters: &Counters) {
        type Count = fn(&sidestep_control::report::PortCounters) -> u64;
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
            self.family(&name, "counter", help);
            for port in &counters.ports {
                self.sample(&name, &[("port", &port.name)], count(port));
            }
        }
    }

    fn reasons(&mut self, reasons: &Drops) {
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
            self.family(name, "counter", help);
            for reason in reasons.iter().filter(|reason| reason.verdict == verdict) {
                self.sample(name, &[("reason", &reason.name)], reason.packets);
            }
        }
    }

    /// SIDs only: a full table of routes would be hundreds of thousands of series.
    fn sids(&mut self, routes: &[Route]) {
        type Count = fn(&Route) -> u64;
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
        let sids: Vec<_> = routes
            .iter()
            .filter_map(|route| Some((route, behavior(&route.route)?, route.table.to_string())))
            .collect();
        for (word, help, count) in families {
            let name = format!("sidestep_sid_{word}_total");
            self.family(&name, "counter", help);
            for (route, behavior, table) in &sids {
                let labels = [
                    ("sid", route.prefix.as_str()),
                    ("table", table),
                    ("behavior", behavior),
                ];
                self.sample(&name, &labels, count(route));
            }
        }
        let name = "sidestep_service_up";
        self.family(name, "gauge", "Whether the service of an SR proxy is up.");
        for (route, ..) in &sids {
            if let Some(service) = &route.service {
                self.sample(
                    name,
                    &[("sid", &route.prefix)],
                    u64::from(service.state == "up"),
                );
            }
        }
    }

    fn policies(&mut self, policies: &Policies) {
        type Count = fn(&sidestep_control::report::SegmentList) -> u64;
        let families: [(&str, &str, &str, Count); 3] = [
            (
                "packets_total",
                "counter",
                "Packets sent by a segment list.",
                |it| it.packets,
            ),
            (
                "bytes_total",
                "counter",
                "Bytes of these packets as received.",
                |it| it.bytes,
            ),
            (
                "valid",
                "gauge",
                "Whether the segment list is valid.",
                |it| u64::from(it.invalid.is_none()),
            ),
        ];
        for (word, kind, help, count) in families {
            let name = format!("sidestep_policy_list_{word}");
            self.family(&name, kind, help);
            for policy in policies {
                for candidate in &policy.candidates {
                    let preference = candidate.preference.to_string();
                    for (number, list) in candidate.lists.iter().enumerate() {
                        let number = number.to_string();
                        let labels = [
                            ("policy", policy.name.as_str()),
                            ("preference", &preference),
                            ("list", &number),
                        ];
                        self.sample(&name, &labels, count(list));
                    }
                }
            }
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let tables: Vec<_> = limits.iter().filter(|limit| limit.used.is_some()).collect();
        let families = [
            ("sidestep_table_entries", "Entries in use."),
            ("sidestep_table_limit", "Capacity of the table."),
        ];
        for (number, (name, help)) in families.into_iter().enumerate() {
            self.family(name, "gauge", help);
            for limit in &tables {
                let value = [limit.used.unwrap_or_default(), limit.limit][number];
                self.sample(name, &[("table", &limit.name)], value);
            }
        }
    }

    fn icmp(&mut self, icmp: &Icmp) {
        let families = [
            (
                "sidestep_icmp_sent_total",
                "type",
                "ICMP messages sent.",
                &icmp.sent,
            ),
            (
                "sidestep_icmp_relayed_total",
                "type",
                "ICMP errors relayed.",
                &icmp.relayed,
            ),
            (
                "sidestep_icmp_suppressed_total",
                "port",
                "ICMP messages suppressed by the rate limit.",
                &icmp.suppressed,
            ),
        ];
        for (name, label, help, counts) in families {
            self.family(name, "counter", help);
            for (word, count) in counts {
                self.sample(name, &[(label, word)], *count);
            }
        }
        let name = "sidestep_icmp_failed_total";
        self.family(
            name,
            "counter",
            "ICMP messages that the kernel refused to send.",
        );
        self.sample(name, &[], icmp.failed);
    }
}

/// Behavior of a SID, from its route in iproute2 syntax.
fn behavior(route: &str) -> Option<&str> {
    let (_, rest) = route.split_once(" encap seg6local action ")?;
    rest.split_whitespace().next()
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_labels_in_quotes() {
        let mut text = Text::default();
        text.family("a_total", "counter", "Packets.");
        text.sample("a_total", &[("port", "e\"0"), ("table", "254")], 7);
        text.sample("b", &[], 1);
        let expected = "# HELP a_total Packets.\n# TYPE a_total counter\n\
                        a_total{port=\"e\\\"0\",table=\"254\"} 7\nb 1\n";
        assert_eq!(text.0, expected);
        let sid = "fc00::1/128 encap seg6local action End.DT6 table 100 dev eth0";
        assert_eq!(behavior(sid), Some("End.DT6"));
        assert_eq!(behavior("fc00::/16 via fe80::1"), None);
    }
}
