//! `sidestep trace [FILTER]`: prints packets of the live path step by step.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;
use sidestep_control::api::{self, Request, TraceLine, TracedPort};
use sidestep_control::compile::Compiled;
use sidestep_control::trace::{Filter, PROTOCOLS, RATE_MAX, TERMS, TracedPacket};
use sidestep_datapath::kernel::{Head, Sample};
use sidestep_datapath::{Verdict, VerdictKind};
use sidestep_model::node::Node;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::explain::headers::Value;
use crate::explain::{Explanation, Names, Run, Step};
use crate::explain_live::{printed, take_text};
use crate::number::number;
use crate::replay::capture_write::{CaptureWriter, Direction};
use crate::style::{Ink, Style};
use crate::tables::count;
use crate::{Outcome, pcap};

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// Maximum packets to print per second; also the burst size
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true, value_parser = number(1..=RATE_MAX))]
    pub rate: u32,
    /// Stop after N packets [default: at Ctrl-C]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Also write each packet to a pcapng file, as it arrived and as it was transmitted
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Expression of libpcap's filter language that the frame that arrived must also match; needs
    /// tcpdump
    #[arg(long, value_name = "EXPR")]
    pub pcap: Option<String>,
    /// Print JSON, one line per packet
    #[arg(short, long)]
    pub json: bool,
    /// Terms that a packet must match, all of them [default: every packet]
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

fn help() -> String {
    let names = PROTOCOLS.map(|(name, _)| name).join(", ");
    format!(
        "Filter:
  port IF          ingress port
  src PREFIX       source of the IP header that arrived
  dst PREFIX       destination of the IP header that arrived
  sid PREFIX       an address that was looked up for the packet: a SID or another destination
  proto PROTOCOL   a protocol of its outer or inner headers on arrival: {names}, or a number
  verdict VERDICT  forward, punt or drop
  reason NAME      a reason that `sidestep show drops` prints"
    )
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    // A wrong filter is reported without a daemon.
    Filter::parse(&args.filter)?;
    let pcap = args.pcap.as_deref().map(pcap::compile).transpose()?;
    let (begun, answers) = api::stream(Request::Trace {
        filter: args.filter.clone(),
        pcap,
        rate: args.rate,
        count: args.count,
        whole: args.write.is_some(),
    })?;
    let TraceLine::Begun { ports } = serde_json::from_value(begun)? else {
        return Err("unexpected reply of the daemon to a trace request".into());
    };
    let close = answers.closer()?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            close();
        }
    });
    let mut capture = match &args.write {
        Some(path) => Some(Capture::create(path, &ports)?),
        None => None,
    };
    let names: Vec<_> = ports
        .iter()
        .map(|port| format!("{} ({})", port.name, port.target))
        .collect();
    // Standard output has only the packets, which may go to a program.
    eprintln!("tracing on {}; Ctrl-C ends it", names.join(", "));
    for answer in answers {
        match serde_json::from_value(answer?)? {
            TraceLine::Begun { .. } => {}
            TraceLine::Packet(packet) => {
                if let Some(capture) = &mut capture {
                    capture.write(&packet)?;
                }
                show(packet, args.json, out)?;
            }
            TraceLine::End { sent, lost } => {
                eprintln!("{}", end(sent, lost));
                return Ok(());
            }
        }
    }
    Err("the daemon has exited, and the trace has ended".into())
}

fn end(shown: u64, lost: u64) -> String {
    let packets = count(shown, "packet");
    match lost {
        0 => format!("{packets} shown"),
        lost => {
            format!("{packets} shown; {lost} lost because they arrived faster than they were read")
        }
    }
}

fn show(mut packet: Json, json: bool, out: &mut dyn Write) -> Outcome {
    let text = take_text(&mut packet);
    match text {
        Some(text) if !json => writeln!(out, "{text}")?,
        _ => writeln!(out, "{packet}")?,
    }
    // The reader waits for this line.
    out.flush()?;
    Ok(())
}

/// Capture file with the packets as they arrived and as they were transmitted.
struct Capture {
    path: PathBuf,
    writer: CaptureWriter<File>,
    /// Names of its interfaces, by number.
    interfaces: Vec<String>,
}

impl Capture {
    fn create(path: &Path, ports: &[TracedPort]) -> Result<Self, String> {
        let interfaces: Vec<_> = ports.iter().map(|port| port.name.clone()).collect();
        let numbered = (0..).zip(interfaces.iter().map(String::as_str));
        let writer = File::create(path).and_then(|file| CaptureWriter::new(file, numbered));
        Ok(Self {
            path: path.to_owned(),
            writer: writer.map_err(|error| format!("{}: {error}", path.display()))?,
            interfaces,
        })
    }

    /// Writes the frame that arrived, then the one that was transmitted, both with the time of
    /// arrival.
    fn write(&mut self, packet: &Json) -> Outcome {
        let timestamp = packet["timestamp"].as_u64().unwrap_or_default();
        let directions = [
            (packet, Direction::Inbound),
            // Null unless the packet was forwarded.
            (&packet["transmitted"], Direction::Outbound),
        ];
        for (frame, direction) in directions {
            let Some(port) = frame["port"].as_str() else {
                continue;
            };
            let bytes = hex::decode(frame["frame"].as_str().unwrap_or_default())?;
            let length = frame["bytes"].as_u64().unwrap_or_default() as u32;
            self.interface(port)
                .and_then(|interface| {
                    let direction = Some(direction);
                    let writer = &mut self.writer;
                    writer.write_head(interface, timestamp, &bytes, length, direction)
                })
                .map_err(|error| format!("{}: {error}", self.path.display()))?;
        }
        Ok(())
    }

    /// Returns the number of an interface. It adds an egress that is no port, and a port that was
    /// attached after the start.
    fn interface(&mut self, name: &str) -> io::Result<u32> {
        let known = self.interfaces.iter().position(|it| it == name);
        let number = known.unwrap_or(self.interfaces.len()) as u32;
        if known.is_none() {
            self.writer.add_interface(number, name)?;
            self.interfaces.push(name.to_owned());
        }
        Ok(number)
    }
}

/// JSON line of a trace: the fields of `replay --explain -j`, and the frame.
#[derive(Serialize)]
struct Line<'a> {
    packet: u64,
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    timestamp: u64,
    port: &'a str,
    target: &'a str,
    bytes: u32,
    /// Frame on arrival, in hexadecimal; the first bytes of a long one.
    frame: String,
    /// Frame that was forwarded; `None` for a drop or a punt.
    transmitted: Option<Transmitted>,
    #[serde(flatten)]
    explanation: &'a Explanation,
    text: String,
    text_color: String,
}

/// Frame that left by an egress.
#[derive(Serialize)]
struct Transmitted {
    /// Egress.
    port: String,
    bytes: u32,
    /// In hexadecimal; the first bytes of a long one.
    frame: String,
}

/// Formats a traced packet; runs in the daemon. Returns `None` if the packet does not match the
/// filter. The packet path checks only a part of it.
pub fn sample(
    node: &Node,
    compiled: &Compiled,
    filter: &Filter,
    traced: TracedPacket<'_>,
) -> Option<Json> {
    let sample = traced.sample;
    let names = Names {
        node,
        index: &compiled.index,
    };
    let explanation = Explanation::of(
        names,
        &Run {
            steps: &sample.steps,
            verdict: sample.verdict,
            arrived: bytes_and_length(&sample.arrived),
            left: sample.left.as_ref().map(bytes_and_length),
        },
    );
    if !fits(filter, &explanation) {
        return None;
    }
    let port = names.port(sample.ifindex);
    let text = |style: Style| {
        let time = Duration::from_nanos(traced.timestamp);
        let title = format!(
            "packet {} by {port} ({}), time {}.{:09}",
            traced.number,
            traced.target,
            time.as_secs(),
            time.subsec_nanos()
        );
        format!(
            "{}\n{}",
            style.paint(Ink::Title, title),
            printed(&explanation, style)
        )
    };
    let line = Line {
        packet: traced.number,
        timestamp: traced.timestamp,
        port: &port,
        target: traced.target,
        bytes: sample.arrived.length,
        frame: hex::encode(&sample.arrived.bytes),
        transmitted: transmitted(names, sample),
        text: text(Style::Plain),
        text_color: text(Style::Color),
        explanation: &explanation,
    };
    serde_json::to_value(&line).ok()
}

fn transmitted(names: Names<'_>, sample: &Sample) -> Option<Transmitted> {
    let (Verdict::Forward { ifindex }, Some(left)) = (sample.verdict, &sample.left) else {
        return None;
    };
    Some(Transmitted {
        port: names.port(ifindex),
        bytes: left.length,
        frame: hex::encode(&left.bytes),
    })
}

fn bytes_and_length(head: &Head) -> (&[u8], usize) {
    (&head.bytes, head.length as usize)
}

/// Checks the terms that the packet path does not check, or not exactly.
fn fits(filter: &Filter, explanation: &Explanation) -> bool {
    let met = |step: &Step| match (step, filter.sid) {
        (Step::Lookup { address, .. }, Some(prefix)) => prefix.contains(address),
        _ => false,
    };
    let protocol = |wanted: u8| {
        let fields = explanation.before.iter().flat_map(|header| &header.fields);
        fields
            .clone()
            .any(|(_, value)| matches!(value, Value::Protocol(number) if number.0 == wanted))
    };
    (filter.sid.is_none() || explanation.steps.iter().any(met))
        && filter.protocol.is_none_or(protocol)
}

/// Returns the possible next words on a line of `trace`.
pub fn completions(words: &[&str]) -> Vec<String> {
    let mut filter = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--rate" | "--count" | "--write" | "--pcap" => drop(words.next()),
            option if option.starts_with('-') => {}
            word => filter.push(word),
        }
    }
    let owned = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::to_owned).collect();
    match filter.chunks(2).last() {
        Some(["port"]) => interfaces(),
        Some(["verdict"]) => owned(&mut VerdictKind::ALL.map(VerdictKind::name).into_iter()),
        Some(["reason"]) => owned(
            &mut sidestep_datapath::abi::REASONS
                .iter()
                .map(|reason| reason.name),
        ),
        Some(["proto"]) => owned(&mut PROTOCOLS.map(|(name, _)| name).into_iter()),
        Some([_]) => Vec::new(),
        _ => {
            let given = |term: &&str| filter.iter().step_by(2).any(|word| word == term);
            owned(
                &mut TERMS
                    .map(|(term, _)| term)
                    .into_iter()
                    .filter(|term| !given(term)),
            )
        }
    }
}

fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_offers_unused_terms_and_the_values_of_a_term() {
        let after = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            completions(&words).join(" ")
        };
        assert_eq!(after(""), "port src dst sid proto verdict reason");
        assert_eq!(
            after("--rate 5 --pcap ip6 -j verdict drop"),
            "port src dst sid proto reason"
        );
        assert_eq!(after("src fc00::/16 verdict"), "forward punt drop");
        assert!(after("reason").starts_with("ipv6_header "));
        assert_eq!(after("src"), "", "addresses are not completed");
        assert!(after("port").split(' ').any(|name| name == "lo"));
    }

    #[test]
    fn the_last_line_counts_shown_and_lost_packets() {
        assert_eq!(end(1, 0), "1 packet shown");
        assert_eq!(
            end(20, 3),
            "20 packets shown; 3 lost because they arrived faster than they were read"
        );
    }
}
