//! The report as one self-contained page, without network access and scripts.

use std::fmt::Write;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::ink::{COLORS, FRAME, Subjects};
use super::plot::{self, NARROW, WIDE};
use super::{findings, how_to_read, machine, table, text};
use crate::result::{Cell, Refusal, Report, Section, Table};

/// Layout; [`colors`] generates the colours.
const STYLE: &str = include_str!("style.css");
/// Number of rows to show; longer tables are folded if there is an overview.
const ROWS_OPEN: usize = 24;

/// Returns the whole page.
pub fn page(report: &Report) -> String {
    let subjects = Subjects::of(report);
    let body = html! {
        header { (head(report)) }
        main {
            (contents(report))
            @for section in &report.sections { (figure(section, &subjects)) }
            @for table in &report.tables { (rows(table)) }
            (refusals(&report.refusals))
            section id="machine" { h2 { "Machine" } (facts(&machine::facts(report))) (mitigations(report)) }
            section id="reading" { h2 { "How to read this" } @for line in how_to_read() { p { (line) } } }
        }
    };
    document(&report.title, &body)
}

/// Returns a whole page with this title and body, in the layout and colours of reports.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(colors())) (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn head(report: &Report) -> Markup {
    html! {
        h1 { (report.title) }
        p .run { (machine::run(report)) }
        @if !report.complete {
            p .warning role="note" { strong { "Not complete." } " It contains the results so far." }
        }
        (result(report))
        pre aria-label="Command that repeats this run" tabindex="0" { code { (machine::command(report)) } }
        @for note in &report.notes { p { (note) } }
    }
}

/// The result in words, and the comparison with Linux.
fn result(report: &Report) -> Markup {
    let sentences = findings::sentences(report);
    html! {
        @if !sentences.is_empty() {
            section id="result" {
                h2 { "Result" }
                ul { @for sentence in &sentences { li { (sentence) } } }
                @if let Some(summary) = findings::summary(report) { (grid(&summary, true)) }
            }
        }
    }
}

/// The table of contents. Plots and tables are listed separately, because those of a group have
/// equal titles.
fn contents(report: &Report) -> Markup {
    let pictures = report
        .sections
        .iter()
        .map(|section| (section.id.as_str(), section.title.as_str()));
    let tables = report
        .tables
        .iter()
        .map(|table| (table.id.as_str(), table.title.as_str()));
    let refusals = (!report.refusals.is_empty()).then_some(("refusals", "Not measured"));
    let lists: [(&str, Vec<_>); 2] = [
        ("Pictures", pictures.collect()),
        (
            "Tables",
            tables
                .chain(refusals)
                .chain([("machine", "Machine")])
                .collect(),
        ),
    ];
    html! {
        nav aria-label="Contents" {
            @for (name, entries) in lists {
                @if !entries.is_empty() {
                    p { (name) }
                    ul aria-label=(name) { @for (id, title) in entries { li { a href={ "#" (id) } { (title) } } } }
                }
            }
        }
    }
}

fn figure(section: &Section, subjects: &Subjects) -> Markup {
    let overview = table::overview(section);
    let points = table::points(section);
    let open = overview.is_none() || points.rows.len() <= ROWS_OPEN;
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @if !section.note.is_empty() { p { (section.note) } }
            (picture(section, subjects))
            @if let Some(hint) = hint(section) { p .hint { (hint) } }
            @if let Some(overview) = overview { (grid(&overview, true)) }
            @if !points.rows.is_empty() {
                details open[open] { summary { "Every point" } (grid(&points, false)) }
            }
        }
    }
}

fn picture(section: &Section, subjects: &Subjects) -> Markup {
    let drawn = [("wide", WIDE), ("narrow", NARROW)].map(|(class, width)| {
        (
            class,
            plot::svg(section, subjects, width, &format!("{}-{class}", section.id)),
        )
    });
    html! {
        @for (class, svg) in drawn {
            @match svg {
                Some(svg) => figure .(class) { (PreEscaped(svg)) },
                None => p .hint .(class) { "Nothing was measured." },
            }
        }
    }
}

/// Returns remarks on points that the plot omits.
pub fn hint(section: &Section) -> Option<String> {
    match plot::hidden(section) {
        0 => None,
        1 => Some("One point is in the table only: a logarithmic axis has no zero.".into()),
        hidden => Some(format!(
            "{hidden} points are in the table only: a logarithmic axis has no zero."
        )),
    }
}

fn rows(table: &Table) -> Markup {
    html! {
        section id=(table.id) {
            h2 { (table.title) }
            @if !table.note.is_empty() { p { (table.note) } }
            (grid(table, false))
        }
    }
}

fn refusals(refusals: &[Refusal]) -> Markup {
    html! {
        @if !refusals.is_empty() {
            section id="refusals" {
                h2 { "Not measured" }
                (grid(&table::refusals(refusals), false))
            }
        }
    }
}

/// A table that scrolls horizontally on narrow pages, also by keyboard. `titled`: the table needs
/// its own title because the heading above has another text.
fn grid(table: &Table, titled: bool) -> Markup {
    let numeric: Vec<bool> = (0..table.heads.len())
        .map(|column| text::is_numeric(table, column))
        .collect();
    html! {
        div .scroll tabindex="0" role="region" aria-label=(table.title) {
            table {
                @if titled { caption { (table.title) } }
                thead { tr { @for (head, &numeric) in table.heads.iter().zip(&numeric) {
                    th scope="col" .number[numeric] { (head) }
                } } }
                tbody { @for row in &table.rows { tr {
                    @for (column, cell) in row.iter().enumerate() { (self::cell(cell, column == 0, numeric[column])) }
                } } }
            }
        }
    }
}

fn cell(cell: &Cell, first: bool, numeric: bool) -> Markup {
    let text = text::readable(cell);
    html! {
        @if first { th scope="row" .number[numeric] { (text) } } @else { td .number[numeric] { (text) } }
    }
}

fn facts(facts: &[(String, String)]) -> Markup {
    html! {
        dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
    }
}

fn mitigations(report: &Report) -> Markup {
    let all = &report.machine.mitigations;
    html! {
        @if !all.is_empty() {
            details {
                summary { "Processor vulnerabilities (" (all.len()) ")" }
                (facts(&all.iter().map(|(name, state)| (name.clone(), state.clone())).collect::<Vec<_>>()))
            }
        }
    }
}

/// Returns the style sheet's colour variables for light and dark mode.
fn colors() -> String {
    let variables = |dark: bool| {
        let mut text = String::new();
        let pick = |(light, other)| if dark { other } else { light };
        for (name, light, other) in FRAME {
            let _ = write!(text, "--{name}:{};", pick((light, other)));
        }
        for (index, color) in COLORS.into_iter().enumerate() {
            let _ = write!(text, "--ink-{index}:{};", pick(color));
        }
        text
    };
    format!(
        ":root{{{}}}@media (prefers-color-scheme:dark){{:root{{{}}}}}",
        variables(false),
        variables(true)
    )
}
