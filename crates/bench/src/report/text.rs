//! Tables as Markdown and as CSV.

use std::fmt::Write;

use super::number;
use crate::result::{Cell, Table};

/// A cell for people.
pub fn readable(cell: &Cell) -> String {
    match cell {
        Cell::Number(value) => number::rounded(*value),
        Cell::Text(text) => text.clone(),
    }
}

/// Whether a column holds numbers, and so is aligned to the right: no text in it, save nothing.
pub fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().map(|row| &row[column]);
    cells.all(|cell| matches!(cell, Cell::Number(_)) || *cell == Cell::Text(String::new()))
}

/// The table in Markdown, without its title and note.
pub fn markdown(table: &Table) -> String {
    let mut text = String::new();
    line(&mut text, table.heads.iter().map(String::as_str));
    let rules = (0..table.heads.len()).map(|column| {
        if is_numeric(table, column) {
            "---:"
        } else {
            "---"
        }
    });
    line(&mut text, rules);
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(readable).collect();
        line(&mut text, cells.iter().map(String::as_str));
    }
    text
}

/// Text that Markdown does not take for HTML.
pub fn masked(text: &str) -> String {
    text.replace('<', "\\<")
}

/// The table for programs: numbers in full, RFC 4180.
pub fn csv(table: &Table) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Vec::new());
    let rows = table.rows.iter().map(|row| row.iter().map(exact).collect());
    for row in std::iter::once(table.heads.clone()).chain(rows) {
        writer
            .write_record(row)
            .expect("memory takes rows of any length");
    }
    writer.into_inner().expect("memory can be flushed")
}

fn exact(cell: &Cell) -> String {
    match cell {
        Cell::Number(value) => value.to_string(),
        Cell::Text(text) => text.clone(),
    }
}

fn line<'a>(text: &mut String, cells: impl Iterator<Item = &'a str>) {
    text.push('|');
    for cell in cells {
        // A bar would end the cell, a line feed the row.
        let cell = masked(cell).replace('|', "\\|").replace('\n', " ");
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}
