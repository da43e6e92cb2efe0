//! `sidestep explain`: runs one packet through the live tables of the daemon, without sending it.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use serde_json::{Value, json};
use sidestep_control::api::{self, Request};
use sidestep_control::compile::Index;
use sidestep_control::packet::{Datagram, HOP_LIMIT};
use sidestep_control::pcap::PcapFilter;
use sidestep_control::report::Port;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::node::{IfIndex, Mac, Node};

use crate::explain::{Explanation, Names, text};
use crate::number::number;
use crate::port::{attached, attached_names, ports};
use crate::replay::capture_read::Link;
use crate::style::Style;
use crate::{Outcome, pcap, replay};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("selection").multiple(true).args(["packet", "pcap"]),
    group = ArgGroup::new("packet_source").required(true).args(["source", "frame", "input"]),
    override_usage = "sidestep explain [OPTIONS] SRC DST [SEGMENT]...
       sidestep explain [OPTIONS] --frame HEX
       sidestep explain [OPTIONS] --in FILE --packet N
       sidestep explain [OPTIONS] --in FILE --pcap EXPR",
    after_help = "Examples:
  sidestep explain 2001:db8:a::1 2001:db8:b::1 fc00:2::e fc00:3::d6 --port eth1
  sidestep explain --in in.pcapng --packet 7
  sidestep explain --in in.pcapng --pcap 'ip6 and host 2001:db8::1'
  tcpdump -r in.pcap -xx -c 1 | sidestep explain --port eth0 --frame -"
)]
pub struct Args {
    /// Source address of a UDP packet, IPv6 or IPv4
    #[arg(value_name = "SRC", requires = "destination", value_parser = address)]
    pub source: Option<IpAddr>,
    /// Destination address, of the same family
    #[arg(value_name = "DST", value_parser = address)]
    pub destination: Option<IpAddr>,
    /// Segments in order of travel, for a packet with an SRH; DST follows the last one
    #[arg(value_name = "SEGMENT", value_parser = segment)]
    pub segments: Vec<Ipv6Addr>,
    /// Hop limit or TTL of the UDP packet [default: 64]
    #[arg(long, value_name = "N", requires = "source", allow_negative_numbers = true, value_parser = number(0..=u8::MAX))]
    pub hop_limit: Option<u8>,
    /// Ingress port [default: the interface of the captured packet, otherwise the first port]
    #[arg(long, value_name = "NAME")]
    pub port: Option<String>,
    /// Ethernet frame without FCS: hexadecimal digits, the output of `tcpdump -xx` for one packet, or
    /// `-` to read either from standard input
    #[arg(long, value_name = "HEX")]
    pub frame: Option<String>,
    /// Capture with the packet: pcap or pcapng with Ethernet frames
    #[arg(long = "in", value_name = "FILE", requires = "selection")]
    pub input: Option<PathBuf>,
    /// Number of the packet in FILE, from 1; with --pcap, number of the first candidate
    #[arg(long, value_name = "N", requires = "input", conflicts_with_all = ["source", "frame"],
        allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub packet: Option<u64>,
    /// Take the first packet in FILE that matches this expression of libpcap's filter language; needs
    /// tcpdump
    #[arg(long, value_name = "EXPR", requires = "input", conflicts_with_all = ["source", "frame"])]
    pub pcap: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

fn address(text: &str) -> Result<IpAddr, String> {
    let expected = "expected an IPv6 or IPv4 address, without a prefix length";
    text.parse().map_err(|_| expected.into())
}

fn segment(text: &str) -> Result<Ipv6Addr, String> {
    let expected = "expected a segment, which is an IPv6 address";
    text.parse().map_err(|_| expected.into())
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (port, frame) = question(args)?;
    let mut answer = api::call(Request::Explain { port, frame })?;
    match take_text(&mut answer) {
        Some(text) if !args.json => write!(out, "{text}")?,
        _ => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
    }
    Ok(())
}

/// Returns the ingress port, and the frame in hexadecimal.
fn question(args: &Args) -> Result<(String, String), Box<dyn std::error::Error + Send + Sync>> {
    if let Some(path) = &args.input {
        let program = args.pcap.as_deref().map(pcap::compile).transpose()?;
        let filter = program.as_deref().map(PcapFilter::new).transpose();
        let filter = filter.map_err(|error| format!("the kernel refused the filter: {error}"))?;
        let from = args.packet.unwrap_or(1);
        let mut captured = replay::captured(path, from, filter.as_ref())?;
        let (number, interface) = (captured.number, captured.interface.name.clone());
        if filter.is_some() {
            // Standard output has only the explanation.
            eprintln!("packet {number} of {}", path.display());
        }
        let port = match &args.port {
            Some(port) => port.clone(),
            None => captured_port(&ports()?, interface, path, number)?,
        };
        if captured.link == Link::ToInterface {
            captured.address_to(attached(&ports()?, Some(&port))?.mac.parse()?);
        }
        return Ok((port, hex::encode(captured.frame)));
    }
    if let (Some(source), Some(destination)) = (args.source, args.destination) {
        let packet = Datagram {
            source,
            destination,
            segments: args.segments.clone(),
            hop_limit: args.hop_limit.unwrap_or(HOP_LIMIT),
        };
        // A wrong packet is an error without a daemon, too.
        let mut frame = packet.frame(Mac::default().0)?;
        let ports = ports()?;
        let port = attached(&ports, args.port.as_deref())?;
        let mac: Mac = port.mac.parse()?;
        frame[..6].copy_from_slice(&mac.0);
        return Ok((port.name.clone(), hex::encode(frame)));
    }
    let frame = match args.frame.as_deref().unwrap_or_default() {
        "-" => digits(&io::read_to_string(io::stdin())?)?,
        text => digits(text)?,
    };
    let port = match &args.port {
        Some(port) => port.clone(),
        None => attached(&ports()?, None)?.name.clone(),
    };
    Ok((port, frame))
}

/// Returns the port on which a packet was captured.
fn captured_port(
    ports: &[Port],
    interface: Option<String>,
    path: &Path,
    number: u64,
) -> Result<String, String> {
    let problem = match interface {
        Some(name) if attached(ports, Some(&name)).is_ok() => return Ok(name),
        Some(name) => format!("its interface {name:?} is not an attached port"),
        None => "the capture has no name for its interface".into(),
    };
    let (path, names) = (path.display(), attached_names(ports));
    Err(format!(
        "{path}: packet {number}: {problem}; use --port NAME; attached ports are {names}"
    ))
}

/// Returns the hexadecimal digits of a frame. Lines that begin with an offset, such as `0x0010:`, are
/// those of `tcpdump -xx` or `-XX`; its other lines are skipped.
fn digits(text: &str) -> Result<String, String> {
    let (mut dumped, mut packets) = (String::new(), 0);
    for line in text.lines().map(str::trim) {
        let Some((offset, bytes)) = line.strip_prefix("0x").and_then(|it| it.split_once(':'))
        else {
            continue;
        };
        packets += u32::from(u32::from_str_radix(offset, 16) == Ok(0));
        // Two spaces separate the bytes from their ASCII characters.
        dumped += bytes.trim_start().split("  ").next().unwrap_or_default();
    }
    if packets > 1 {
        return Err(format!("frame: {packets} packets; expected one"));
    }
    let words = if packets == 1 { &dumped } else { text };
    let digits: String = words.split([' ', '\t', '\n', '\r', ':']).collect();
    let is_hex = digits.bytes().all(|it| it.is_ascii_hexdigit()) && digits.len().is_multiple_of(2);
    if digits.is_empty() || !is_hex {
        let expected = "an even number of hexadecimal digits, or the output of `tcpdump -xx`";
        return Err(format!("frame: expected {expected} for one packet"));
    }
    Ok(digits)
}

/// Takes the text out of the daemon's reply; the colored text if standard output is a terminal.
pub fn take_text(answer: &mut Value) -> Option<String> {
    let fields = answer.as_object_mut()?;
    // `remove` would change the order of the other fields.
    let plain = fields.shift_remove("text");
    let color = fields.shift_remove("text_color");
    let text = if Style::of_stdout() == Style::Color {
        color
    } else {
        plain
    };
    text?.as_str().map(str::to_owned)
}

/// Returns the explanation as text.
pub fn printed(explanation: &Explanation, style: Style) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = text::print(&mut bytes, explanation, style);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Explains one frame on the live tables; runs in the daemon. The kernel targets do the same as the
/// native target, except for packet headroom and egress devices without XDP.
pub fn live(node: &Node, index: &Index, mut native: Native, ifindex: u32, frame: &[u8]) -> Value {
    let verdict = native.run(ifindex, frame);
    let explanation = Explanation::new(Names { node, index }, &native, frame, verdict);
    let (word, egress) = match verdict {
        Verdict::Forward { ifindex } => (
            "forward",
            node.links
                .get(&IfIndex(ifindex))
                .map(|link| link.name.clone()),
        ),
        Verdict::Punt(_) => ("punt", None),
        Verdict::Drop(_) => ("drop", None),
    };
    json!({
        "verdict": word,
        "egress": egress,
        "frame": hex::encode(native.frame()),
        "explanation": explanation,
        "text": printed(&explanation, Style::Plain),
        "text_color": printed(&explanation, Style::Color),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    #[test]
    fn a_frame_is_digits_or_the_output_of_tcpdump() {
        let dump = "17:00:00.000000 IP6 fc00:a::2 > fc00:b::2: ICMP6, echo request\n\
                    \t0x0000:  0200 0000 0001 0200 0000 0002 86dd 6000\n\
                    \t0x0010:  0000 00\n";
        let expected = Ok("02000000000102000000000286dd6000000000".to_owned());
        assert_eq!(digits(dump), expected);
        let ascii = "\t0x0000:  0200 0000 0001 0200 0000 0002 86dd 6000  ..............`.\n\
                     \t0x0010:  0000 00                                  ...\n";
        assert_eq!(digits(ascii), expected);
        assert_eq!(digits("02:00 0a\n0B"), Ok("02000a0B".to_owned()));
        let twice = digits(&dump.repeat(2));
        assert_eq!(twice, Err("frame: 2 packets; expected one".to_owned()));
        for wrong in ["", "abc", "zz", "IP6 fc00:a::2 > fc00:b::2"] {
            let error = digits(wrong).expect_err(wrong);
            assert!(error.contains("tcpdump -xx"), "{error}");
        }
    }

    fn port(name: &str, target: &str) -> Port {
        Port {
            name: name.into(),
            alt_names: vec![],
            ifindex: Some(2),
            target: target.into(),
            why: String::new(),
            mac: "02:00:00:00:00:0a".into(),
            mtu: 1500,
            up: true,
            seg6_enabled: true,
            processes_sids: true,
            redirect_peer: false,
            redirect_peer_why: None,
            punt_reasons: vec![],
            proxies: vec![],
        }
    }

    #[test]
    fn the_ingress_is_the_named_the_captured_or_the_first_port() {
        let ports = [
            port("eth9", "none"),
            port("eth1", "tc"),
            port("eth0", "xdp"),
        ];
        let name = |wanted| attached(&ports, wanted).map(|port| port.name.clone());
        assert_eq!(name(None), Ok("eth1".into()));
        assert_eq!(name(Some("eth0")), Ok("eth0".into()));
        let error = name(Some("eth9")).expect_err("not attached");
        assert_eq!(
            error,
            "port eth9: not attached; attached ports are eth1, eth0"
        );
        let error = attached(&ports[..1], None).expect_err("none is attached");
        assert!(error.contains("sidestep port add"), "{error}");
        let captured = |interface: Option<&str>| {
            captured_port(&ports, interface.map(str::to_owned), Path::new("a.pcap"), 7)
        };
        assert_eq!(captured(Some("eth0")), Ok("eth0".into()));
        for (interface, problem) in [(None, "no name"), (Some("ppp0"), "\"ppp0\" is not")] {
            let error = captured(interface).expect_err(problem);
            assert!(error.starts_with("a.pcap: packet 7: "), "{error}");
            assert!(error.contains(problem), "{error}");
            assert!(
                error.ends_with("use --port NAME; attached ports are eth1, eth0"),
                "{error}"
            );
        }
    }

    fn parsed(line: &str) -> Result<Args, String> {
        let words = ["sidestep", "explain"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .command
        {
            Some(Command::Explain(args)) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_packet_comes_from_exactly_one_place() {
        let args = parsed("fc00::1 fc00::2 fc00::e fc00::f --hop-limit 0").expect("a packet");
        assert_eq!((args.segments.len(), args.hop_limit), (2, Some(0)));
        assert!(parsed("10.0.0.1 10.0.0.2 --port eth0").is_ok());
        assert!(parsed("--frame 00 --port eth0").is_ok());
        for selection in ["--packet 1", "--pcap ip6", "--packet 1 --pcap ip6"] {
            assert!(parsed(&format!("--in a.pcap {selection}")).is_ok());
        }
        for (line, expected) in [
            ("", "required"),
            ("fc00::1", "<DST>"),
            ("fc00::1/64 fc00::2", "without a prefix length"),
            (
                "fc00::1 fc00::2 10.0.0.1",
                "a segment, which is an IPv6 address",
            ),
            ("fc00::1 fc00::2 --frame 00", "cannot be used with"),
            ("--frame 00 --hop-limit 3", "SRC"),
            (
                "fc00::1 fc00::2 --hop-limit 256",
                "expected a number from 0 to 255",
            ),
            ("--in a.pcap", "--packet"),
            ("--packet 3", "--in"),
            ("--pcap ip6", "--in"),
            ("--frame 00 --pcap ip6", "cannot be used with"),
            ("--in a.pcap --packet 0", "expected a number from 1"),
            ("--frame 00 --packet 3", "cannot be used with"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
