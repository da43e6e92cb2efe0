//! Tables and colors on the terminal.

use std::fmt::Display;
use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with these column heads and no lines. The columns named in `right` are aligned right.
pub fn table(heads: &[&str], right: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heads.to_vec());
    for (index, head) in heads.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if right.contains(head) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// Whether standard output shows colors.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colored: bool,
}

/// The role of a piece of text. The number is its parameter of SGR (ECMA-48 8.3.117).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// A heading.
    Title = 1,
    /// Less important text.
    Dim = 2,
    /// Worse than before, or gone.
    Removed = 31,
    /// Better than before, or new.
    Added = 32,
    /// Different from before.
    Changed = 33,
}

impl Style {
    /// Colors if standard output is a terminal and `NO_COLOR` is unset (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colored: std::io::stdout().is_terminal() && !refused,
        }
    }

    /// Returns `text` with the escape sequence of this role, if colors are shown.
    pub fn paint(self, ink: Ink, text: impl Display) -> String {
        if self.colored {
            format!("\x1b[{}m{text}\x1b[0m", ink as u8)
        } else {
            text.to_string()
        }
    }
}
