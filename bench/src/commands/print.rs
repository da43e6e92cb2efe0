//! Prints a report as text.

use std::io::Write;

use crate::campaign::report::COMMANDS;
use crate::report::{number, table, text};
use crate::result::{Report, Section};
use comfy_table::Table;

use super::Outcome;
use super::terminal::table as empty;
use super::terminal::{Ink, Style};

/// Prints a report as text, with one table per plot.
pub fn print(report: &Report, out: &mut dyn Write) -> Outcome {
    let style = Style::of_stdout();
    for section in &report.sections {
        let title = style.paint(Ink::Title, &section.title);
        writeln!(out, "{title}: {}", table::head(&section.y))?;
        writeln!(out, "{}\n", rows(section))?;
    }
    tables(report, out)
}

/// Prints tables, and the points that were not measured. The commands of each point are only in the
/// report's files, because they would fill the terminal.
pub fn tables(report: &Report, out: &mut dyn Write) -> Outcome {
    let style = Style::of_stdout();
    let refusals = Some(table::refusals(&report.refusals)).filter(|table| !table.rows.is_empty());
    let all = report.tables.iter().chain(&refusals);
    for table in all.filter(|table| table.id != COMMANDS) {
        writeln!(out, "{}", style.paint(Ink::Title, &table.title))?;
        writeln!(out, "{}\n", listed(table))?;
    }
    Ok(())
}

/// Returns a row per series and a column per axis position, because there are more series than
/// positions.
fn rows(section: &Section) -> Table {
    let places = table::places(section);
    let mut heads = vec![table::head(&section.x)];
    heads.extend(places.iter().map(|place| number::rounded(*place)));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut rows = empty(&heads, &heads[1..]);
    for series in &section.series {
        let values = places.iter().map(|place| {
            let point = table::at(series, *place);
            point.map_or_else(String::new, |point| number::rounded(point.value))
        });
        rows.add_row(std::iter::once(table::legend(series)).chain(values));
    }
    rows
}

fn listed(from: &crate::result::Table) -> Table {
    let heads: Vec<&str> = from.heads.iter().map(String::as_str).collect();
    let numbers = (0..heads.len()).filter(|column| text::is_numeric(from, *column));
    let numbers: Vec<&str> = numbers.map(|column| heads[column]).collect();
    let mut table = empty(&heads, &numbers);
    for row in &from.rows {
        table.add_row(row.iter().map(text::readable));
    }
    table
}
