//! `sidestep show` and `sidestep route show`: reports of the daemon, as text or JSON.

use std::io::Write;

use comfy_table::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::daemon::left;
use sidestep_control::report;

use crate::{Outcome, netns, show_watch, tables};

/// Subject of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The instance and its problems
    Status,
    /// The ports, each with its target and the reason for it
    Ports,
    /// Packets and bytes per port and per route
    Counters,
    /// Packets that were dropped or punted to the kernel, by reason
    Drops,
    /// Table sizes, their use, and what happens beyond them
    Limits,
    /// ICMP errors that were sent, relayed or suppressed
    Icmp,
    /// Packets that were sent in fragments, and those that were not
    Fragments,
    /// The FPM session of zebra, and its routes
    Fpm,
    /// `sidestep route show`
    #[value(hide = true, aliases = ["route", "rules", "rule", "domain", "policies", "policy", "vlans", "vlan"])]
    Routes,
    /// `sidestep config show`
    #[value(hide = true)]
    Config,
}

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sidestep show counters
  sidestep show drops --watch=5")]
pub struct Args {
    /// Subject
    pub what: What,
    /// Print JSON; with --watch, one line per interval
    #[arg(short, long)]
    pub json: bool,
    /// Repetition.
    #[command(flatten)]
    pub repeat: show_watch::Repeat,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(delay) = args.repeat.watch {
        return show_watch::run(args.what, delay, &args.repeat, args.json, out);
    }
    match args.what {
        What::Ports => show(
            Request::ShowPorts,
            args.json,
            out,
            |ports: &report::Ports| vec![port_table(ports), port_reasons(ports)],
        ),
        What::Counters => show(
            Request::ShowCounters,
            args.json,
            out,
            |counters: &report::Counters| {
                vec![
                    tables::port_counters(&counters.ports),
                    tables::routes(&counters.routes),
                ]
            },
        ),
        What::Drops => show(
            Request::ShowDrops,
            args.json,
            out,
            |drops: &report::Drops| vec![tables::reasons(drops)],
        ),
        What::Status => alive(status(args.json, out)),
        What::Limits => show(
            Request::ShowLimits,
            args.json,
            out,
            |limits: &report::Limits| limit_tables(limits),
        ),
        What::Icmp => show(Request::ShowIcmp, args.json, out, |icmp: &report::Icmp| {
            vec![icmp_table(icmp)]
        }),
        What::Fragments => show(
            Request::ShowFragments,
            args.json,
            out,
            |fragments: &report::Fragments| vec![tables::fragments(fragments)],
        ),
        What::Fpm => show(
            Request::ShowFpm,
            args.json,
            out,
            |fpm: &Option<report::Fpm>| fpm.iter().map(tables::fpm).collect(),
        ),
        What::Routes => {
            let nouns = "route, rule, domain, policy and vlan";
            Err(format!("{nouns} have a `show` of their own, as in `sidestep route show`").into())
        }
        What::Config => Err("`sidestep config show` prints the configuration".into()),
    }
}

/// Replaces the error that no daemon runs, if a dead one still has programs and pins.
fn alive(shown: Outcome) -> Outcome {
    let is_dead = |error: &(dyn std::error::Error + 'static)| {
        matches!(error.downcast_ref(), Some(ApiError::NotRunning))
    };
    match shown {
        Err(error) if is_dead(error.as_ref()) => match left(None) {
            Some(pins) => Err(format!(
                "a daemon died in this network namespace, and its programs still forward (pins in \
                 {}); \
                 `sidestep run` adopts them, `sidestep stop` removes them",
                pins.display()
            )
            .into()),
            None => Err(error),
        },
        shown => shown,
    }
}

/// Output options of a list.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

impl List {
    /// Sends the request and prints the lines of the reply below `head`, or as JSON.
    pub(crate) fn show(&self, request: Request, head: &str, out: &mut dyn Write) -> Outcome {
        show(request, self.json, out, |lines: &Vec<String>| {
            let mut table = tables::table(&[head], &[]);
            for line in lines {
                table.add_row([line]);
            }
            vec![table]
        })
    }
}

/// Sends the request and prints the reply as JSON or as tables.
pub(crate) fn show<T: DeserializeOwned + Serialize>(
    request: Request,
    json: bool,
    out: &mut dyn Write,
    text: impl Fn(&T) -> Vec<Table>,
) -> Outcome {
    print(&api::ask(request)?, json, out, text)
}

fn status(json: bool, out: &mut dyn Write) -> Outcome {
    let mut status: report::Status = api::ask(Request::ShowStatus)?;
    let problems = status.problems.into_iter();
    status.problems = problems.map(netns::from_outside).collect();
    print(&status, json, out, |status| vec![status_table(status)])
}

fn print<T: Serialize>(
    report: &T,
    json: bool,
    out: &mut dyn Write,
    text: impl Fn(&T) -> Vec<Table>,
) -> Outcome {
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(report)?)?;
        return Ok(());
    }
    let tables = text(report);
    if tables.iter().all(Table::is_empty) {
        writeln!(out, "none")?;
        return Ok(());
    }
    for (index, table) in tables.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", table.trim_fmt())?;
    }
    Ok(())
}

fn status_table(status: &report::Status) -> Table {
    let mut table = tables::table(&["status", ""], &[]);
    let rows = [
        ("version", status.version.clone()),
        ("process", status.pid.to_string()),
        ("uptime", format!("{} s", status.uptime)),
        ("origin", status.origin.clone()),
        ("pins", status.pins.clone()),
        (
            "node file",
            status.config.as_deref().unwrap_or("none").into(),
        ),
        ("prefixes", status.prefixes.to_string()),
        ("compilations", status.compilations.to_string()),
        ("lost notifications", status.resyncs.to_string()),
        (
            "encap lookup",
            if status.encap_lookup_main {
                "table main".into()
            } else {
                "by the rules of the ingress port, as in Linux".into()
            },
        ),
        (
            "seg6_enabled",
            if status.requires_seg6_enabled {
                "required for SIDs".into()
            } else {
                "not required for SIDs, as in Linux".into()
            },
        ),
    ];
    for (name, value) in rows {
        table.add_row([name, &value]);
    }
    if let Some(seconds) = status.confirm_within {
        table.add_row(["confirm within", &format!("{seconds} s")]);
    }
    if let Some(metrics) = &status.metrics {
        table.add_row(["metrics", metrics]);
    }
    if let Some(fpm) = &status.fpm {
        table.add_row(["fpm", &fpm_text(fpm)]);
    }
    for problem in &status.problems {
        let sentence = format!("{}: {}", problem.code, problem.description());
        table.add_row([problem.severity.name(), &sentence]);
        if let Some(repair) = &problem.repair {
            table.add_row(["repair", repair]);
        }
    }
    table
}

fn fpm_text(fpm: &report::Fpm) -> String {
    let zebra = match (&fpm.peer, fpm.connected_for) {
        (Some(peer), Some(seconds)) => format!("zebra at {peer} for {seconds} s"),
        _ => format!("no zebra at {}", fpm.address),
    };
    format!("{zebra}; {} routes, {} stale", fpm.routes, fpm.stale_routes)
}

fn port_table(ports: &[report::Port]) -> Table {
    let mut table = tables::table(&["port", "target", "mac", "mtu", "state", "seg6"], &["mtu"]);
    for port in ports {
        let state = match (port.ifindex, port.up) {
            (None, _) => "absent",
            (_, true) => "up",
            (_, false) => "down",
        };
        let seg6 = match (port.seg6_enabled, port.processes_sids) {
            _ if port.ifindex.is_none() => "-",
            (true, _) => "on",
            (false, true) => "off; not required",
            (false, false) => "off; SIDs handled by Linux",
        };
        table.add_row([
            &port.name,
            &port.target,
            &port.mac,
            &port
                .ifindex
                .map_or_else(|| "-".into(), |_| port.mtu.to_string()),
            state,
            seg6,
        ]);
    }
    table
}

/// Reasons for the target of a port, and for what it punts.
fn reasons_of(port: &report::Port) -> Vec<String> {
    let mut why = vec![format!("{}: {}", port.target, port.why)];
    why.extend(port.redirect_peer_why.iter().map(|reason| {
        let no = if port.redirect_peer { "" } else { "no " };
        format!("{no}redirect to its peer: {reason}")
    }));
    why.extend(
        port.punt_reasons
            .iter()
            .map(|words| format!("left to the kernel: {words}")),
    );
    why.extend(port.proxies.iter().map(|proxy| {
        let way = match (proxy.to_service, proxy.from_service) {
            (true, true) => "to and from",
            (true, false) => "to",
            _ => "from",
        };
        format!("{way} the service of {} {}", proxy.behavior, proxy.sid)
    }));
    why
}

/// Reasons for the state of ports, each with its ports.
fn port_reasons(ports: &[report::Port]) -> Table {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for port in ports {
        for reason in reasons_of(port) {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, of)) => of.push(&port.name),
                None => reasons.push((reason, vec![&port.name])),
            }
        }
    }
    let mut table = tables::table(&["ports", "reason"], &[]);
    for (reason, ports) in reasons {
        table.add_row([tables::names(&ports), reason]);
    }
    table
}

fn icmp_table(icmp: &report::Icmp) -> Table {
    let mut table = tables::table(&["icmp", "message", "packets"], &["packets"]);
    let named = [
        ("sent", &icmp.sent),
        ("relayed", &icmp.relayed),
        ("suppressed on port", &icmp.suppressed),
    ];
    for (what, counts) in named {
        for (name, count) in counts.iter().filter(|(_, count)| **count > 0) {
            table.add_row([what, name, &count.to_string()]);
        }
    }
    let alone = [
        ("not relayed", icmp.not_relayed),
        ("not sent, no route", icmp.failed),
    ];
    for (what, count) in alone.into_iter().filter(|(_, count)| *count > 0) {
        table.add_row([what, "", &count.to_string()]);
    }
    table
}

/// Tables of the limits: each limit, and what several of them have in common.
fn limit_tables(limits: &[report::Limit]) -> Vec<Table> {
    let mut table = tables::table(
        &["limit", "value", "used", "left out", "beyond it"],
        &["value", "used", "left out"],
    );
    let number = |sentence: &str| {
        limits
            .iter()
            .filter(|limit| limit.beyond == sentence)
            .count()
    };
    let common = limits.iter().map(|limit| limit.beyond.as_str());
    let common = common
        .max_by_key(|sentence| number(sentence))
        .unwrap_or_default();
    for limit in limits {
        let used = limit
            .used
            .map_or_else(|| "-".to_owned(), |used| used.to_string());
        let left_out = limit.left_out.to_string();
        let value = limit.limit.to_string();
        let beyond = match limit.beyond.as_str() {
            sentence if sentence == common => "*",
            sentence => sentence,
        };
        table.add_row([&limit.name, &value, &used, &left_out, beyond]);
    }
    vec![table, tables::table(&["*", common], &[])]
}
