//! `sidestep explain`: runs one frame through the live tables of the daemon, without sending it.

use std::io::Write;

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
pub struct Args {
    /// Port on which the frame would arrive
    #[arg(long)]
    pub port: String,
    /// Ethernet frame in hexadecimal, without FCS
    #[arg(long, value_name = "HEX")]
    pub frame: String,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let mut answer = api::call(Request::Explain {
        port: args.port.clone(),
        frame: args.frame.clone(),
    })?;
    match take_text(&mut answer) {
        Some(text) if !args.json => write!(out, "{text}")?,
        _ => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
    }
    Ok(())
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
