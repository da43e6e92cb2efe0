//! The report as Markdown: the result with one embedded plot, then each section with its table and
//! a link to its PNG.

use std::fmt::Write;

use super::html::hint;
use super::text::masked;
use super::{findings, how_to_read, machine, table, text};
use crate::result::{Report, Section};

/// Returns the whole report.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    paragraph(&mut out, &format!("# {}", masked(&report.title)));
    paragraph(&mut out, &machine::run(report));
    if !report.complete {
        paragraph(
            &mut out,
            "**Not complete.** It contains the results so far.",
        );
    }
    result(&mut out, report);
    paragraph(
        &mut out,
        &format!("```sh\n{}\n```", machine::command(report)),
    );
    for note in &report.notes {
        paragraph(&mut out, &masked(note));
    }
    for section in &report.sections {
        self::section(&mut out, section);
    }
    for table in &report.tables {
        titled(&mut out, &table.title, &table.note);
        paragraph(&mut out, text::markdown(table).trim_end());
    }
    if !report.refusals.is_empty() {
        titled(&mut out, "Not measured", "");
        paragraph(
            &mut out,
            text::markdown(&table::refusals(&report.refusals)).trim_end(),
        );
    }
    titled(&mut out, "Machine", "");
    let facts = machine::facts(report)
        .into_iter()
        .chain(report.machine.mitigations.clone());
    let facts: Vec<String> = facts
        .map(|(name, value)| format!("- {name}: {}", masked(&value)))
        .collect();
    paragraph(&mut out, &facts.join("\n"));
    titled(&mut out, "How to read this", "");
    paragraph(&mut out, &how_to_read().join("\n\n"));
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Appends the result in words, the comparison with Linux, and the only embedded plot.
fn result(out: &mut String, report: &Report) {
    let sentences = findings::sentences(report);
    let items: Vec<String> = sentences
        .iter()
        .map(|sentence| format!("- {}", masked(sentence)))
        .collect();
    if !items.is_empty() {
        paragraph(out, &items.join("\n"));
    }
    if let Some(summary) = findings::summary(report) {
        paragraph(out, &format!("{}:", masked(&summary.title)));
        paragraph(out, text::markdown(&summary).trim_end());
    }
    let overview = findings::overview(report);
    if let Some(overview) = overview.filter(super::plot::is_drawn) {
        let title = masked(&overview.title);
        paragraph(out, &format!("![{title}]({}.png)", overview.id));
    }
}

fn section(out: &mut String, section: &Section) {
    titled(out, &section.title, &section.note);
    if super::plot::is_drawn(section) {
        let id = &section.id;
        paragraph(out, &format!("Plot: [{id}.png]({id}.png)"));
    }
    if let Some(hint) = hint(section) {
        paragraph(out, &hint);
    }
    if let Some(overview) = table::overview(section) {
        paragraph(out, &format!("{}:", masked(&overview.title)));
        paragraph(out, text::markdown(&overview).trim_end());
    }
    paragraph(out, text::markdown(&table::points(section)).trim_end());
}

fn titled(out: &mut String, title: &str, note: &str) {
    paragraph(out, &format!("## {}", masked(title)));
    if !note.is_empty() {
        paragraph(out, &masked(note));
    }
}

fn paragraph(out: &mut String, text: &str) {
    let _ = write!(out, "{text}\n\n");
}
