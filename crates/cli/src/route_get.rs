//! `sidestep route get`: the route that the tables select for an address.

use std::io::Write;
use std::net::IpAddr;

use comfy_table::Table;
use sidestep_control::api::{self, Request};
use sidestep_control::report::{NextHop, SelectedRoute};
use sidestep_model::error::{ConfigError, Place};
use sidestep_model::node::TableId;
use sidestep_model::route::Family;

use crate::explain::{kernel, table_name};
use crate::port::{attached, ports};
use crate::{Outcome, tables};

/// Arguments of `route get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sidestep route get 2001:db8:b::1
  sidestep route get 192.0.2.1 from 198.51.100.7 iif eth1 -j")]
pub struct Args {
    /// ADDRESS [ from SOURCE ] [ iif PORT ]
    ///
    /// Without `iif`, the packet enters the first attached port. Without `from`, its source is a
    /// dummy address, `100::1` or `192.0.0.8`, and the reverse path filter is not applied.
    #[arg(required = true, value_name = "ARG")]
    pub args: Vec<String>,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    destination: IpAddr,
    from: Option<IpAddr>,
    iif: Option<String>,
}

/// The keywords, as of `ip route get`.
const KEYWORDS: [&str; 2] = ["from", "iif"];

/// Returns the words that may follow these words of `route get`, for shell completion. Addresses
/// and ports have no candidates.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    match words.last() {
        None => vec![],
        Some(last) if KEYWORDS.contains(last) => vec![],
        Some(_) => {
            let mut keywords = KEYWORDS.to_vec();
            keywords.retain(|keyword| !words.contains(keyword));
            keywords
        }
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let question = parse(&args.args)?;
    let is_default = question.iif.is_none();
    let port = match question.iif {
        Some(name) => name,
        None => attached(&ports()?, None)?.name.clone(),
    };
    let selected: SelectedRoute = api::ask(Request::GetRoute {
        destination: question.destination,
        from: question.from,
        port,
    })?;
    if selected.route.is_none() {
        return Err(no_route(&selected).into());
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&selected)?)?;
    } else {
        let table = table(&selected, question.from, is_default);
        writeln!(out, "{}", table.trim_fmt())?;
    }
    Ok(())
}

/// Parses the arguments, whose first is the address.
fn parse(args: &[String]) -> Result<Question, ConfigError> {
    let wrong = |at: usize, problem: &str, expected: &str| ConfigError {
        place: Place::Word(at + 1),
        problem: problem.into(),
        value: args.get(at).cloned().unwrap_or_default(),
        expected: expected.into(),
    };
    let any = "an IPv6 or IPv4 address";
    let address = |at: usize, problem: &str| -> Result<IpAddr, ConfigError> {
        let text = args.get(at).ok_or_else(|| wrong(at, problem, any))?;
        text.parse().map_err(|_| wrong(at, problem, any))
    };
    let destination = address(0, "invalid address")?;
    let mut question = Question {
        destination,
        from: None,
        iif: None,
    };
    let mut at = 1;
    while at < args.len() {
        let is_repeated = args[1..at].iter().step_by(2).any(|word| *word == args[at]);
        match &*args[at] {
            keyword if is_repeated => {
                let expected = format!("`{keyword}` only once");
                return Err(wrong(at, "duplicate keyword", &expected));
            }
            "from" => {
                let source = address(at + 1, "invalid `from`")?;
                let family = Family::of(&destination);
                if Family::of(&source) != family {
                    let expected = match family {
                        Family::V6 => "an IPv6 address",
                        Family::V4 => "an IPv4 address",
                    };
                    return Err(wrong(at + 1, "`from` of the wrong family", expected));
                }
                question.from = Some(source);
            }
            "iif" => {
                let port = args.get(at + 1);
                let port = port.ok_or_else(|| wrong(at + 1, "`iif` needs a value", "a port"))?;
                question.iif = Some(port.clone());
            }
            _ => return Err(wrong(at, "unknown keyword", "from or iif")),
        }
        at += 2;
    }
    Ok(question)
}

/// Returns the error that the tables have no route, or that the address is not looked up.
fn no_route(selected: &SelectedRoute) -> String {
    let (destination, port) = (selected.destination, &selected.port);
    let why = match (&selected.reason, &selected.sentence) {
        (Some(reason), Some(sentence)) => format!("{reason}: {sentence}"),
        _ => "packets of this port take the return path of an SR proxy".into(),
    };
    let kernel = match &*selected.handled_by {
        "kernel" => "; the kernel handles its packets",
        _ => "",
    };
    if selected.tables.is_empty() {
        return format!("{destination} at {port}: no lookup: {why}{kernel}");
    }
    let (source, tables) = (selected.source, table_names(&selected.tables));
    format!("no route to {destination} from {source} at {port} in tables {tables}: {why}{kernel}")
}

fn table_names(ids: &[u32]) -> String {
    let names: Vec<_> = ids.iter().map(|id| table_name(TableId(*id))).collect();
    names.join(", ")
}

fn table(selected: &SelectedRoute, from: Option<IpAddr>, is_default: bool) -> Table {
    let mut table = tables::table(&["lookup", ""], &[]);
    let mut add = |name: &str, value: String| {
        table.add_row([name, &value]);
    };
    add("destination", selected.destination.to_string());
    if let Some(from) = from {
        add("source", from.to_string());
    }
    let first = if is_default { ", the first port" } else { "" };
    add("port", format!("{}{first}", selected.port));
    add("tables", table_names(&selected.tables));
    let Some(route) = &selected.route else {
        return table;
    };
    add("route", route.route.clone());
    add("table", table_name(TableId(route.table)));
    add("owner", route.owner.clone());
    let hop = selected.next_hop.as_ref().or(route.next_hops.first());
    if let Some(hop) = hop {
        if let Some(behavior) = &hop.behavior {
            add("behavior", behavior.clone());
        }
        if !hop.segments.is_empty() {
            let segments: Vec<_> = hop.segments.iter().map(ToString::to_string).collect();
            add("segments", segments.join(", "));
        }
        let words = next_hop_words(hop);
        let several = match (&selected.next_hop, route.next_hops.len()) {
            (Some(_), count @ 2..) => format!(", selected by the flow, one of {count}"),
            _ => String::new(),
        };
        if !words.is_empty() {
            add("next hop", format!("{words}{several}"));
        }
    }
    add("handled by", selected.handled_by.clone());
    add("verdict", verdict_words(selected));
    if let Some(reason) = &route.punt_reason {
        add("punted because", reason.clone());
    }
    let kernel = selected.reason.as_deref().and_then(kernel::at_kernel);
    if let Some(does) = kernel {
        add("the kernel", does.to_owned());
    }
    table
}

fn next_hop_words(hop: &NextHop) -> String {
    let via = hop.via.map(|via| format!("via {via}"));
    let dev = hop.dev.as_ref().map(|dev| format!("dev {dev}"));
    via.into_iter().chain(dev).collect::<Vec<_>>().join(" ")
}

/// Formats the verdict for a UDP packet with its egress or reason.
fn verdict_words(selected: &SelectedRoute) -> String {
    let reason = match (&selected.reason, &selected.sentence) {
        (Some(reason), Some(sentence)) => format!(": {reason}: {sentence}"),
        _ => String::new(),
    };
    match (selected.verdict.as_deref(), &selected.egress) {
        (Some("forward"), Some(egress)) => format!("forward by {egress}"),
        (Some(verdict), _) => format!("{verdict}{reason}"),
        (None, _) => "depends on the packet".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Question, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_words_are_those_of_ip_route_get() {
        let all = parsed("fc00::1 iif eth1 from fc00::2");
        let expected = Question {
            destination: "fc00::1".parse().expect("an address"),
            from: "fc00::2".parse().ok(),
            iif: Some("eth1".into()),
        };
        assert_eq!(all, Ok(expected));
        assert_eq!(parsed("192.0.2.1").expect("an address").from, None);
    }

    #[test]
    fn a_wrong_word_is_named_with_what_is_allowed() {
        for (line, expected) in [
            ("", "word 1: invalid address"),
            ("fc00::1/64", "word 1: invalid address \"fc00::1/64\""),
            ("eth0", "an IPv6 or IPv4 address"),
            ("fc00::1 from", "word 3: invalid `from`"),
            (
                "fc00::1 from 10.0.0.1",
                "word 3: `from` of the wrong family",
            ),
            ("10.0.0.1 from fc00::1", "an IPv4 address"),
            ("fc00::1 iif", "word 3: `iif` needs a value"),
            ("fc00::1 dev eth0", "word 2: unknown keyword \"dev\""),
            (
                "fc00::1 iif eth0 iif eth1",
                "word 4: duplicate keyword \"iif\"",
            ),
            ("fc00::1 fc00::2", "from or iif"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn keywords_complete_once() {
        assert_eq!(completions(&["fc00::1"]), ["from", "iif"]);
        assert_eq!(completions(&["fc00::1", "from"]), [""; 0]);
        assert_eq!(completions(&["fc00::1", "from", "fc00::2"]), ["iif"]);
        assert_eq!(completions(&[]), [""; 0]);
    }

    fn selected() -> SelectedRoute {
        SelectedRoute {
            destination: [10, 0, 9, 1].into(),
            source: [192, 0, 0, 8].into(),
            port: "eth0".into(),
            tables: vec![255, 254],
            route: None,
            next_hop: None,
            verdict: Some("punt".into()),
            egress: None,
            reason: Some("route_miss".into()),
            sentence: Some("no route".into()),
            handled_by: "kernel".into(),
        }
    }

    #[test]
    fn a_missing_route_is_an_error_with_its_tables() {
        let error = no_route(&selected());
        let expected = "no route to 10.0.9.1 from 192.0.0.8 at eth0 in tables local, main: \
                        route_miss: no route; the kernel handles its packets";
        assert_eq!(error, expected);
        let other = SelectedRoute {
            tables: vec![],
            reason: Some("multicast".into()),
            sentence: Some("to a group".into()),
            ..selected()
        };
        let expected = "10.0.9.1 at eth0: no lookup: multicast: to a group; the kernel handles its \
                        packets";
        assert_eq!(no_route(&other), expected);
    }

    #[test]
    fn a_verdict_has_its_egress_or_its_reason() {
        let mut selected = selected();
        assert_eq!(verdict_words(&selected), "punt: route_miss: no route");
        selected.verdict = None;
        selected.reason = None;
        assert_eq!(verdict_words(&selected), "depends on the packet");
        selected.verdict = Some("forward".into());
        selected.egress = Some("eth1".into());
        assert_eq!(verdict_words(&selected), "forward by eth1");
    }
}
