//! `sidestep explain --port PORT --frame HEX`: one frame through the live tables of the daemon, without sending it.

use std::io::Write;

use serde_json::{Value, json};
use sidestep_control::api::{self, Request};
use sidestep_control::compile::Compiled;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::node::{IfIndex, Node};

use crate::Outcome;
use crate::explain::{Explanation, Names, text};
use crate::style::Style;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port that the frame would arrive on
    #[arg(long)]
    pub port: String,
    /// The frame from its destination MAC on, in hexadecimal
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
    let text = answer.as_object_mut().and_then(|fields| {
        let plain = fields.remove("text");
        let color = fields.remove("text_color");
        if Style::of_stdout() == Style::Color {
            color
        } else {
            plain
        }
    });
    match text {
        Some(Value::String(text)) if !args.json => write!(out, "{text}")?,
        _ => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
    }
    Ok(())
}

/// The daemon's side: explains one frame on the tables that run now. What the kernel targets do is what the native
/// target does; only room in front of a packet and egress devices without XDP are theirs alone.
pub fn live(node: &Node, compiled: &Compiled, ifindex: u32, frame: &[u8]) -> Value {
    let mut native = Native::new(&compiled.image);
    let verdict = native.run(ifindex, frame);
    let explanation = Explanation::new(
        Names {
            node,
            index: &compiled.index,
        },
        &native,
        frame,
        verdict,
    );
    let printed = |style| {
        let mut bytes = Vec::new();
        // Writing into memory does not fail.
        let _ = text::print(&mut bytes, &explanation, style);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (word, egress) = match verdict {
        Verdict::Forward { ifindex } => (
            "forward",
            node.links
                .get(&IfIndex(ifindex))
                .map(|link| link.name.clone()),
        ),
        Verdict::Kernel(_) => ("kernel", None),
        Verdict::Drop(_) => ("drop", None),
    };
    json!({
        "verdict": word,
        "egress": egress,
        "frame": hex::encode(native.frame()),
        "explanation": explanation,
        "text": printed(Style::Plain),
        "text_color": printed(Style::Color),
    })
}
