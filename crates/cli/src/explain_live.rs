//! `sidestep explain`: runs one frame through the live tables of the daemon, without sending it.

use std::io::{self, Write};

use serde_json::{Value, json};
use sidestep_control::api::{self, Request};
use sidestep_control::compile::Index;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::node::{IfIndex, Node};

use crate::Outcome;
use crate::explain::{Explanation, Names, text};
use crate::style::Style;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  tcpdump -r in.pcap -xx -c 1 | sidestep explain --port eth0 --frame -")]
pub struct Args {
    /// Port on which the frame would arrive
    #[arg(long)]
    pub port: String,
    /// Ethernet frame without FCS: hexadecimal digits, the output of `tcpdump -xx` for one packet, or
    /// `-` to read either from standard input
    #[arg(long, value_name = "HEX")]
    pub frame: String,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let frame = match &*args.frame {
        "-" => digits(&io::read_to_string(io::stdin())?)?,
        text => digits(text)?,
    };
    let mut answer = api::call(Request::Explain {
        port: args.port.clone(),
        frame,
    })?;
    match take_text(&mut answer) {
        Some(text) if !args.json => write!(out, "{text}")?,
        _ => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
    }
    Ok(())
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
    use super::digits;

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
}
