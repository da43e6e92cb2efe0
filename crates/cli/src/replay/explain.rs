//! `--explain`: every step of each captured packet, as text or as one line of JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::capture_read::Packet;
use crate::explain::{Explanation, text};
use crate::style::{Ink, Style};

/// A packet with its explanation.
#[derive(Serialize)]
struct Line<'a> {
    packet: u64,
    offset: u64,
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    timestamp: Option<u64>,
    port: &'a str,
    bytes: usize,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

/// A packet that was not replayed.
#[derive(Serialize)]
struct NotReplayedLine<'a> {
    packet: u64,
    offset: u64,
    timestamp: Option<u64>,
    port: &'a str,
    bytes: usize,
    not_replayed: &'a str,
}

/// Output format of explanations.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    /// JSON instead of text.
    pub json: bool,
    /// Colors of the text.
    pub style: Style,
}

impl Printer {
    /// Prints a packet with the ingress `port`.
    pub fn packet(
        self,
        out: &mut dyn Write,
        packet: &Packet<'_>,
        port: &str,
        explanation: &Explanation,
    ) -> io::Result<()> {
        if self.json {
            let line = Line {
                packet: packet.number,
                offset: packet.offset,
                timestamp: packet.timestamp,
                port,
                bytes: packet.data.len(),
                explanation,
            };
            return json_line(out, &line);
        }
        self.title(out, packet)?;
        text::print(out, explanation, self.style)?;
        writeln!(out)
    }

    /// Prints a packet that was not replayed, with the reason.
    pub fn not_replayed(
        self,
        out: &mut dyn Write,
        packet: &Packet<'_>,
        port: &str,
        reason: &str,
        sentence: &str,
    ) -> io::Result<()> {
        if self.json {
            let line = NotReplayedLine {
                packet: packet.number,
                offset: packet.offset,
                timestamp: packet.timestamp,
                port,
                bytes: packet.data.len(),
                not_replayed: reason,
            };
            return json_line(out, &line);
        }
        self.title(out, packet)?;
        let label = self.style.paint(Ink::Changed, "not replayed");
        writeln!(
            out,
            "  {label} {reason}: {sentence} ({} of {} bytes)\n",
            packet.data.len(),
            packet.original_length
        )
    }

    fn title(self, out: &mut dyn Write, packet: &Packet<'_>) -> io::Result<()> {
        let time = packet.timestamp.map_or_else(String::new, |ns| {
            format!(", time {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        });
        let title = format!(
            "packet {} (byte {} of the capture{time})",
            packet.number, packet.offset
        );
        writeln!(out, "{}", self.style.paint(Ink::Title, title))
    }
}

/// Writes one line of JSON.
pub fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}
