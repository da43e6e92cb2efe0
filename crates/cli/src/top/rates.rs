//! Rates of ports, routes, reasons and segment lists between two reads of the counters.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::report::{
    Counters, Metrics, NextHop, PortCounters, Problem, Reason, Route, SegmentList, WatchedPath,
};

use crate::Outcome;
use crate::watch::sleep_until;

/// The counters at one time.
pub struct Snapshot {
    timestamp: SystemTime,
    metrics: Metrics,
    metrics_read: Instant,
    routes: Vec<Route>,
    routes_read: Instant,
}

impl Snapshot {
    /// Reads the counters of the daemon in this network namespace.
    ///
    /// # Errors
    /// The daemon does not run or does not reply.
    pub fn read() -> Result<Self, ApiError> {
        let timestamp = SystemTime::now();
        let metrics = api::ask(Request::ShowMetrics)?;
        let metrics_read = Instant::now();
        let counters: Counters = api::ask(Request::ShowCounters)?;
        Ok(Self {
            timestamp,
            metrics,
            metrics_read,
            routes: counters.routes,
            routes_read: Instant::now(),
        })
    }

    /// Returns the counters of the interfaces, in the order of [`Rates::ports`].
    pub fn ports(&self) -> &[PortCounters] {
        &self.metrics.port_counters
    }

    /// Returns the counters of the routes, in the order of [`Rates::routes`].
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns the reasons that have occurred, in the order of [`Rates::reasons`].
    pub fn reasons(&self) -> impl Iterator<Item = &Reason> {
        self.metrics
            .reasons
            .iter()
            .filter(|reason| reason.packets > 0)
    }
}

/// Rates of an interval. Packets and bits are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// End of the interval, in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// Length of the interval.
    pub seconds: f64,
    /// Version of the daemon.
    #[serde(skip)]
    pub version: String,
    /// Seconds since the start of the daemon.
    #[serde(skip)]
    pub uptime: u64,
    /// Problems of the last checks.
    #[serde(skip)]
    pub problems: Vec<Problem>,
    /// Rates per interface: the ports, and every egress.
    pub ports: Vec<PortRate>,
    /// Rates of routes with an SRv6 encapsulation and of Sidestep-only routes.
    pub routes: Vec<RouteRate>,
    /// Rates of the reasons that have occurred since the start of the data plane.
    pub reasons: Vec<ReasonRate>,
    /// Rates of the segment lists of SR policies.
    pub lists: Vec<ListRate>,
    /// States of the paths that are probed, with the rates of their probes.
    pub paths: Vec<PathRate>,
}

/// Rates of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortRate {
    /// Interface name.
    pub name: String,
    /// `up`, `down` or `absent`; none for an egress that is not a port.
    pub state: Option<&'static str>,
    /// Frames received.
    pub received_pps: f64,
    /// Bits received, with Ethernet headers.
    pub received_bps: f64,
    /// Received frames that were forwarded.
    pub forwarded_pps: f64,
    /// Received frames that were punted.
    pub punted_pps: f64,
    /// Received frames that were dropped.
    pub dropped_pps: f64,
    /// Frames transmitted.
    pub sent_pps: f64,
    /// Bits transmitted, with Ethernet headers.
    pub sent_bps: f64,
}

/// Rates of one route.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteRate {
    /// Route in iproute2 syntax.
    pub route: String,
    /// Destination prefix.
    pub prefix: String,
    /// Table id.
    pub table: u32,
    /// Behavior of its first next hop.
    pub behavior: Option<String>,
    /// Packets processed.
    pub pps: f64,
    /// Bits of these packets as received, from layer 3 on.
    pub bps: f64,
    /// Packets that a check of the behavior dropped.
    pub errors_pps: f64,
}

/// Rate of one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReasonRate {
    /// `drop` or `punt`.
    pub verdict: String,
    /// Stable name.
    pub name: String,
    /// Meaning, as one sentence.
    #[serde(skip)]
    pub sentence: String,
    /// Packets per second.
    pub pps: f64,
    /// Packets since the start of the data plane.
    pub packets: u64,
}

/// Rates of one segment list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListRate {
    /// Policy name.
    pub policy: String,
    /// Preference of the candidate path.
    pub preference: u32,
    /// Number of the list in the path, from 0.
    pub list: usize,
    /// Whether the candidate path is the active one.
    pub active: bool,
    /// Segments, in the order of travel.
    pub segments: Vec<String>,
    /// Packets sent.
    pub pps: f64,
    /// Bits of these packets as received, from layer 3 on.
    pub bps: f64,
}

/// State of one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathRate {
    /// Name.
    pub path: String,
    /// As in `path show`.
    pub state: String,
    /// Whether policies use the list.
    pub in_use: bool,
    /// Why not.
    pub why: Option<String>,
    /// Segments, in the order of travel.
    pub segments: Vec<String>,
    /// Probes sent.
    pub probes_pps: f64,
    /// Milliseconds since the last answer on the flow that waits longest.
    pub answered_ms: Option<f64>,
}

impl Rates {
    /// Returns the rates between two snapshots. An entry that the first lacks has the rate 0.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let interval = after.metrics_read.duration_since(before.metrics_read);
        let since_epoch = after.timestamp.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            timestamp: since_epoch.unwrap_or_default().as_nanos() as u64,
            seconds: rounded(interval.as_secs_f64()),
            version: after.metrics.status.version.clone(),
            uptime: after.metrics.status.uptime,
            problems: after.metrics.status.problems.clone(),
            ports: ports(&before.metrics, &after.metrics, interval),
            routes: routes(
                &before.routes,
                &after.routes,
                after.routes_read.duration_since(before.routes_read),
            ),
            reasons: reasons(&before.metrics.reasons, &after.metrics.reasons, interval),
            lists: lists(&before.metrics, &after.metrics, interval),
            paths: paths(&before.metrics, &after.metrics, interval),
        }
    }

    /// Returns the end of the interval as text (RFC 3339), and its length.
    pub fn time(&self) -> String {
        let end = SystemTime::UNIX_EPOCH + Duration::from_nanos(self.timestamp);
        let end = humantime::format_rfc3339_millis(end);
        format!("{end}  {:.2} s", self.seconds)
    }

    /// Returns the sums of all ports.
    pub fn total(&self) -> PortRate {
        let mut total = PortRate::default();
        for port in &self.ports {
            total.received_pps += port.received_pps;
            total.received_bps += port.received_bps;
            total.forwarded_pps += port.forwarded_pps;
            total.punted_pps += port.punted_pps;
            total.dropped_pps += port.dropped_pps;
            total.sent_pps += port.sent_pps;
            total.sent_bps += port.sent_bps;
        }
        total
    }
}

/// Calls `print` with the counters and the rates of every interval of `delay` seconds, `count` times
/// or until `ended`.
///
/// # Errors
/// The daemon does not reply, or the error of `print`.
pub fn each_interval(
    delay: f64,
    count: Option<u64>,
    ended: &AtomicBool,
    mut print: impl FnMut(&Snapshot, &Rates) -> Outcome,
) -> Outcome {
    let mut before = Snapshot::read()?;
    let mut next = Instant::now();
    let mut left = count;
    while left != Some(0) {
        next += Duration::from_secs_f64(delay);
        if !sleep_until(next, ended) {
            break;
        }
        let after = Snapshot::read()?;
        print(&after, &Rates::between(&before, &after))?;
        before = after;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Entries of the earlier snapshot by their key.
struct Before<'a, K, T> {
    entries: HashMap<K, &'a T>,
    seconds: f64,
}

impl<'a, K: Hash + Eq, T> Before<'a, K, T> {
    fn new(
        entries: impl Iterator<Item = &'a T>,
        key: impl Fn(&'a T) -> K,
        interval: Duration,
    ) -> Self {
        Self {
            entries: entries.map(|entry| (key(entry), entry)).collect(),
            seconds: interval.as_secs_f64(),
        }
    }

    /// Returns the rate of a counter. A counter below its earlier value has started again from 0.
    fn rate(&self, key: &K, now: &T, count: impl Fn(&T) -> u64) -> f64 {
        let Some(before) = self.entries.get(key) else {
            return 0.0;
        };
        let now = count(now);
        let more = now.checked_sub(count(before)).unwrap_or(now);
        rounded(more as f64 / self.seconds)
    }
}

/// Rounds to thousandths, for short JSON.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn ports(before: &Metrics, after: &Metrics, interval: Duration) -> Vec<PortRate> {
    let before = Before::new(before.port_counters.iter(), |port| &port.name, interval);
    let state = |name: &str| {
        let port = after.ports.iter().find(|port| port.name == name)?;
        Some(match (port.ifindex, port.up) {
            (None, _) => "absent",
            (_, true) => "up",
            (_, false) => "down",
        })
    };
    let rates = |port: &PortCounters| {
        let rate = |count: fn(&PortCounters) -> u64| before.rate(&&port.name, port, count);
        PortRate {
            name: port.name.clone(),
            state: state(&port.name),
            received_pps: rate(|it| it.received_packets),
            received_bps: rate(|it| it.received_bytes * 8),
            forwarded_pps: rate(|it| it.forwarded),
            punted_pps: rate(|it| it.punted),
            dropped_pps: rate(|it| it.dropped),
            sent_pps: rate(|it| it.sent_packets),
            sent_bps: rate(|it| it.sent_bytes * 8),
        }
    };
    after.port_counters.iter().map(rates).collect()
}

fn routes(before: &[Route], after: &[Route], interval: Duration) -> Vec<RouteRate> {
    let before = Before::new(before.iter(), |route| &route.route, interval);
    let rates = |route: &Route| {
        let rate = |count: fn(&Route) -> u64| before.rate(&&route.route, route, count);
        let behavior = |hop: &NextHop| hop.behavior.clone();
        RouteRate {
            route: route.route.clone(),
            prefix: route.prefix.clone(),
            table: route.table,
            behavior: route.next_hops.iter().find_map(behavior),
            pps: rate(|it| it.packets),
            bps: rate(|it| it.bytes * 8),
            errors_pps: rate(|it| it.errors),
        }
    };
    after.iter().map(rates).collect()
}

fn reasons(before: &[Reason], after: &[Reason], interval: Duration) -> Vec<ReasonRate> {
    fn key(reason: &Reason) -> (&str, u32) {
        (&reason.verdict, reason.number)
    }
    let before = Before::new(before.iter(), key, interval);
    let rates = |reason: &Reason| ReasonRate {
        verdict: reason.verdict.clone(),
        name: reason.name.clone(),
        sentence: reason.sentence.clone(),
        pps: before.rate(&key(reason), reason, |it| it.packets),
        packets: reason.packets,
    };
    let occurred = after.iter().filter(|reason| reason.packets > 0);
    occurred.map(rates).collect()
}

/// Segment list with its policy, preference, and number in the candidate path.
struct Listed<'a> {
    key: (&'a str, u32, usize),
    active: bool,
    list: &'a SegmentList,
}

fn listed(metrics: &Metrics) -> Vec<Listed<'_>> {
    let mut all = Vec::new();
    for policy in &metrics.policies {
        for candidate in &policy.candidates {
            for (number, list) in candidate.lists.iter().enumerate() {
                all.push(Listed {
                    key: (&policy.name, candidate.preference, number),
                    active: candidate.active,
                    list,
                });
            }
        }
    }
    all
}

fn lists(before: &Metrics, after: &Metrics, interval: Duration) -> Vec<ListRate> {
    let before = listed(before);
    let before = Before::new(before.iter(), |listed| listed.key, interval);
    let rates = |listed: Listed<'_>| ListRate {
        policy: listed.key.0.to_owned(),
        preference: listed.key.1,
        list: listed.key.2,
        active: listed.active,
        segments: listed.list.segments.clone(),
        pps: before.rate(&listed.key, &listed, |it| it.list.packets),
        bps: before.rate(&listed.key, &listed, |it| it.list.bytes * 8),
    };
    listed(after).into_iter().map(rates).collect()
}

fn paths(before: &Metrics, after: &Metrics, interval: Duration) -> Vec<PathRate> {
    fn key(path: &WatchedPath) -> &str {
        &path.name
    }
    let before = Before::new(before.paths.iter(), key, interval);
    let rates = |path: &WatchedPath| {
        let answered = path.flows.iter().map(|flow| flow.answered_us);
        let longest = answered.max().flatten();
        PathRate {
            path: path.name.clone(),
            state: path.state.clone(),
            in_use: path.in_use,
            why: path.why.clone(),
            segments: path.segments.clone(),
            probes_pps: before.rate(&key(path), path, |it| {
                it.flows.iter().map(|flow| flow.probes).sum()
            }),
            answered_ms: longest.map(|us| us as f64 / 1e3),
        }
    };
    after.paths.iter().map(rates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_by_the_time() {
        let old = [("a", 1000), ("b", 50)];
        let before = Before::new(old.iter(), |it| it.0, Duration::from_millis(500));
        let rate = |name, count| before.rate(&name, &(name, count), |it| it.1) as u64;
        assert_eq!(rate("a", 1250), 500);
        assert_eq!(rate("a", 1000), 0);
        assert_eq!(rate("b", 10), 20, "it started again from 0");
        assert_eq!(rate("c", 70), 0, "new");
    }
}
