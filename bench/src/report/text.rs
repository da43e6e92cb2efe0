//! Tables as Markdown and as CSV.

use std::fmt::Write;

use super::number;
use crate::result::{Cell, Table};

/// Formats a cell for readers.
pub fn readable(cell: &Cell) -> String {
    match cell {
        Cell::Number(value) => number::rounded(*value),
        Cell::Text(text) => text.clone(),
    }
}

/// Whether a column contains only numbers and empty cells, and is therefore aligned to the right.
pub fn is_numeric(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().map(|row| &row[column]);
    cells.all(|cell| matches!(cell, Cell::Number(_)) || *cell == Cell::Text(String::new()))
}

/// Returns the table in Markdown, without its title and note.
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

/// Escapes text so that Markdown does not treat it as HTML.
pub fn masked(text: &str) -> String {
    text.replace('<', "\\<")
}

/// Returns the table as CSV (RFC 4180), with full precision.
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
        // A vertical bar would end the cell, and a line feed would end the row.
        let cell = masked(cell).replace('|', "\\|").replace('\n', " ");
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}
