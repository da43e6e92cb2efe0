//! Explanations as text.
//!
//! ```text
//!   lookup       fc0f::1 in local, main
//!                matches fc0f::1/128 in main: fc0f::1 encap seg6local action End dev eth0
//!   End          forward to the next segment  [RFC 8986 4.1]
//!   advance      segments left 1 -> 0, destination fc0f::1 -> fc0a::1  [RFC 8986 4.1 S13-S14]
//!   …
//!       IPv6       source        fc00:aaaa::1
//!                  destination   fc0f::1 -> fc0a::1
//!                  next header 43 Routing, hop limit 64 -> 63, …
//! ```

use std::io::{self, Write};

use super::diff::{Change, changes};
use super::headers::{Header, Value};
use super::{Explanation, Outcome, RouteName, Step, Why};
use crate::style::{Ink, Style};
use crate::tables::count;

/// Width of the label of a step.
const LABEL: usize = 12;
/// Width of a header's name.
const HEADER: usize = 10;
/// Width of the name of a field that has its own line.
const FIELD: usize = 13;

/// Prints steps, headers and verdict, each line indented by two.
pub fn print(out: &mut dyn Write, explanation: &Explanation, style: Style) -> io::Result<()> {
    for step in &explanation.steps {
        let (label, text, source) = words(step);
        line(out, style, Ink::Title, label, &text, source)?;
    }
    let before = &explanation.before;
    print_headers(
        out,
        before,
        explanation.after.as_ref().unwrap_or(before),
        style,
    )?;
    match &explanation.verdict {
        Outcome::Forward { port } => line(
            out,
            style,
            Ink::Added,
            "forwarded",
            &format!("by {port}"),
            "",
        ),
        Outcome::Drop(why) => print_why(out, style, Ink::Removed, "dropped", why),
        Outcome::Punt(why) => print_why(out, style, Ink::Changed, "punted", why),
    }
}

/// Prints headers and their changes: `+` added, `-` removed, `old -> new` changed.
pub fn print_headers(
    out: &mut dyn Write,
    before: &[Header],
    after: &[Header],
    style: Style,
) -> io::Result<()> {
    for change in changes(before, after) {
        match change {
            Change::Kept { before, after } => kept(out, style, before, after)?,
            Change::Removed(header) => whole(out, style, Ink::Removed, '-', header)?,
            Change::Added(header) => whole(out, style, Ink::Added, '+', header)?,
        }
    }
    Ok(())
}

fn line(
    out: &mut dyn Write,
    style: Style,
    ink: Ink,
    label: &str,
    text: &str,
    source: &str,
) -> io::Result<()> {
    let label = style.paint(ink, format!("{label:<LABEL$}"));
    match source {
        "" | "-" => writeln!(out, "  {label} {text}"),
        source => writeln!(
            out,
            "  {label} {text}  {}",
            style.paint(Ink::Dim, format!("[{source}]"))
        ),
    }
}

fn print_why(
    out: &mut dyn Write,
    style: Style,
    ink: Ink,
    label: &str,
    why: &Why,
) -> io::Result<()> {
    line(
        out,
        style,
        ink,
        label,
        &format!("{}: {}", why.reason, why.sentence),
        why.source,
    )?;
    match why.at_kernel {
        Some(sentence) => line(out, style, ink, "the kernel", sentence, ""),
        None => Ok(()),
    }
}

/// Label, text and RFC section of a step.
#[allow(
    clippy::too_many_lines,
    reason = "one arm for each step, of a few lines each"
)]
fn words(step: &Step) -> (&str, String, &str) {
    match step {
        Step::Port { port, bytes } => (
            "port",
            format!("{port}, frame of {}", count(u64::from(*bytes), "byte")),
            "",
        ),
        Step::Parsed {
            header,
            offset,
            destination,
            source,
        } => (
            "parsed",
            format!("{header} at byte {offset}, destination {destination}"),
            source,
        ),
        Step::Lookup {
            address,
            tables,
            route,
        } => {
            let found = route.as_ref().map_or("no route".into(), route_words);
            let among = if tables.is_empty() {
                String::new()
            } else {
                format!(" in {}", tables.join(", "))
            };
            (
                "lookup",
                format!(
                    "{address}{among}\n{:indent$}{found}",
                    "",
                    indent = LABEL + 3
                ),
                "",
            )
        }
        Step::Source { address, route } => {
            let found = route.as_ref().map_or("no route".into(), route_words);
            let indent = LABEL + 3;
            ("source", format!("{address}\n{:indent$}{found}", ""), "")
        }
        Step::Choice {
            next_hop,
            slots: (own, all),
            source,
        } => (
            "next hop",
            format!("{next_hop}, selected by the flow: {own} of {all} slots"),
            source,
        ),
        Step::Tag { summary } => ("tag", summary.clone(), ""),
        Step::Backup {
            down,
            source,
            backup,
        } => (
            "backup",
            format!("the {down} is down; {backup} takes over"),
            source,
        ),
        Step::Reflect {
            discriminator,
            to,
            source,
        } => (
            "S-BFD",
            format!("reflector {discriminator} answers to {to}"),
            source,
        ),
        Step::PortHop { summary } => ("next hop", (*summary).to_owned(), ""),
        Step::Class {
            dscp,
            route,
            source,
        } => (
            "class",
            format!("DSCP {dscp}: {}", route_words(route)),
            source,
        ),
        Step::Behavior {
            name,
            summary,
            source,
        } => (name, (*summary).to_owned(), source),
        Step::Advance {
            segments_left,
            destination,
            source,
        } => {
            let (left, destinations) = (segments_left, destination);
            let text = format!(
                "segments left {} -> {}, destination {} -> {}",
                left.0, left.1, destinations.0, destinations.1
            );
            ("advance", text, source)
        }
        Step::Compressed {
            flavor,
            at,
            destination: (before, after),
            source,
        } => {
            let at = container_text(*at);
            let text = format!("{flavor}: {at}destination {before} -> {after}");
            ("C-SID", text, source)
        }
        Step::Learn { bytes, source } => {
            ("learn", format!("outer headers of {bytes} bytes"), source)
        }
        Step::Restore {
            bytes,
            destination,
            source,
        } => {
            let text = format!("learned headers of {bytes} bytes, destination {destination}");
            ("restore", text, source)
        }
        Step::Back { summary, source } => ("return path", (*summary).to_owned(), source),
        Step::Masquerade {
            segments_left,
            destination: (before, after),
            source,
        } => {
            let text = format!("segments left {segments_left}, destination {before} -> {after}");
            ("masquerade", text, source)
        }
        Step::LastSegment { segment, source } => {
            ("masquerade", format!("last segment {segment}"), source)
        }
        Step::Hmac { key, wrong, source } => {
            let text = match wrong {
                None => format!("key {key}: valid"),
                Some(reason) => format!("key {key}: {reason}"),
            };
            ("hmac", text, source)
        }
        Step::Vlans {
            table,
            vids,
            source,
        } => {
            let text = format!("{} in VLAN table {table}", vids_text(*vids));
            ("VLAN", text, source)
        }
        Step::Pop { bytes, source } => ("PSP", format!("SRH of {bytes} bytes removed"), source),
        Step::Decapsulate {
            inner,
            offset,
            destination,
        } => {
            let to = destination.map_or_else(String::new, |destination| {
                format!(", destination {destination}")
            });
            ("decapsulate", format!("{inner} at byte {offset}{to}"), "")
        }
        Step::Push {
            name,
            segments,
            outer_source,
            bytes,
            source,
        } => {
            let list: Vec<_> = segments.iter().map(ToString::to_string).collect();
            let from = outer_source.map_or_else(String::new, |address| format!(" from {address}"));
            (
                name,
                format!("{bytes} bytes{from}, segments {}", list.join(" then ")),
                source,
            )
        }
        Step::Forward { port, via, bytes } => {
            let via = via.map_or_else(String::new, |via| format!(" via {via}"));
            (
                "next hop",
                format!("{port}{via}, {bytes} bytes of layer 3"),
                "",
            )
        }
    }
}

/// Formats the position of a REPLACE-C-SID in the segment list.
fn container_text(at: Option<(u32, u32)>) -> String {
    at.map_or_else(String::new, |(left, index)| {
        format!("segments left {left}, index {index}, ")
    })
}

/// Formats VLAN ids in the syntax of `sidestep vlan`.
fn vids_text(vids: (u16, u16)) -> String {
    match vids {
        (0, _) => "untagged".into(),
        (outer, 0) => format!("vid {outer}"),
        (outer, inner) => format!("vid {outer} inner {inner}"),
    }
}

fn route_words(route: &RouteName) -> String {
    let neighbor = route
        .neighbor
        .map_or_else(String::new, |address| format!(", neighbor {address}"));
    match (&route.prefix, &route.table) {
        (Some(prefix), Some(table)) => {
            format!("matches {prefix} in {table}{neighbor}: {}", route.words)
        }
        _ => route.words.clone(),
    }
}

/// Returns whether a field has its own line because its values are long. The other fields share
/// lines.
fn is_long(header: &Header, name: &str) -> bool {
    matches!(name, "source" | "destination") || matches!(header.field(name), Some(Value::List(_)))
}

/// Printer for the rows of a header.
struct Rows<'a> {
    out: &'a mut dyn Write,
    style: Style,
    /// Prefix of the first row.
    title: String,
    ink: Ink,
}

impl Rows<'_> {
    fn row(&mut self, text: &str) -> io::Result<()> {
        let title = format!(
            "{:<width$}",
            std::mem::take(&mut self.title),
            width = HEADER + 2
        );
        writeln!(self.out, "    {} {text}", self.style.paint(self.ink, title))
    }

    fn field(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.row(&format!("{name:<FIELD$} {value}"))
    }
}

/// Prints a header of both frames, with changed values as `before -> after`.
fn kept(out: &mut dyn Write, style: Style, before: &Header, after: &Header) -> io::Result<()> {
    let mut rows = Rows {
        out,
        style,
        title: format!("  {}", after.name),
        ink: Ink::Title,
    };
    let mut short = Vec::new();
    for (name, value) in &after.fields {
        let old = before.field(name).filter(|old| *old != value);
        let arrow =
            |old: String, new: String| format!("{} -> {}", old, style.paint(Ink::Changed, new));
        match (old, value) {
            (None, Value::List(list)) => {
                segment_list(
                    &mut rows,
                    list.iter().map(ToString::to_string),
                    active(after),
                )?;
            }
            (Some(Value::List(olds)), Value::List(list)) if olds.len() == list.len() => {
                let both = olds.iter().zip(list).map(|(old, new)| {
                    if old == new {
                        new.to_string()
                    } else {
                        arrow(old.to_string(), new.to_string())
                    }
                });
                segment_list(&mut rows, both, active(after))?;
            }
            (old, value) => {
                let shown = old.map_or(value.to_string(), |old| {
                    arrow(old.to_string(), value.to_string())
                });
                if is_long(after, name) {
                    rows.field(name, &shown)?;
                } else {
                    short.push(format!("{name} {shown}"));
                }
            }
        }
    }
    share_lines(&mut rows, &short)
}

/// Prints a header of only one of the frames.
fn whole(
    out: &mut dyn Write,
    style: Style,
    ink: Ink,
    sign: char,
    header: &Header,
) -> io::Result<()> {
    let mut rows = Rows {
        out,
        style,
        title: format!("{sign} {}", header.name),
        ink,
    };
    let mut short = Vec::new();
    for (name, value) in &header.fields {
        match value {
            Value::List(list) => segment_list(
                &mut rows,
                list.iter().map(ToString::to_string),
                active(header),
            )?,
            value if is_long(header, name) => rows.field(name, &value.to_string())?,
            value => short.push(format!("{name} {value}")),
        }
    }
    share_lines(&mut rows, &short)
}

/// Returns the index that Segments Left points to.
fn active(srh: &Header) -> Option<u64> {
    match srh.field("segments left") {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

/// Prints the segments with their index in order of travel, which is from the end of the list.
fn segment_list(
    rows: &mut Rows,
    segments: impl DoubleEndedIterator<Item = String> + ExactSizeIterator,
    active: Option<u64>,
) -> io::Result<()> {
    for (index, segment) in segments.enumerate().rev() {
        let mark = if active == Some(index as u64) {
            "  (active)"
        } else {
            ""
        };
        rows.field(&format!("segment [{index}]"), &format!("{segment}{mark}"))?;
    }
    Ok(())
}

/// Prints the short fields, four on a line.
fn share_lines(rows: &mut Rows, fields: &[String]) -> io::Result<()> {
    for some in fields.chunks(4) {
        rows.row(&some.join(", "))?;
    }
    Ok(())
}
