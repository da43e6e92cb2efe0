//! Colors on a terminal.

use std::fmt::{self, Display};
use std::io::IsTerminal;

/// Use of colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No escape sequences.
    Plain,
    /// Colored.
    Color,
}

/// Meaning of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Heading.
    Title,
    /// Less important.
    Dim,
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// Changed.
    Changed,
}

impl Style {
    /// Returns `Color` if standard output is a terminal that has colors and `NO_COLOR` is unset
    /// (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused && !is_monochrome(&terminal()) {
            Self::Color
        } else {
            Self::Plain
        }
    }

    /// Returns the text in the color of its meaning.
    pub fn paint<T: Display>(self, ink: Ink, text: T) -> Painted<T> {
        Painted {
            style: self,
            ink,
            text,
        }
    }
}

/// Type of the terminal, from the environment variable `TERM`.
fn terminal() -> String {
    std::env::var("TERM").unwrap_or_default()
}

/// Whether the terminal cannot move its cursor.
pub fn is_dumb() -> bool {
    matches!(&*terminal(), "" | "dumb")
}

/// Whether a type of terminal has no colors: `dumb`, and the terminals of DEC such as `vt100`.
fn is_monochrome(terminal: &str) -> bool {
    terminal == "dumb" || terminal.starts_with("vt") || terminal.ends_with("-m")
}

/// Text with its color.
pub struct Painted<T> {
    style: Style,
    ink: Ink,
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ECMA-48 8.3.117 SGR.
        let code = match (self.style, self.ink) {
            (Style::Plain, _) => return self.text.fmt(f),
            (Style::Color, Ink::Title) => 1,
            (Style::Color, Ink::Dim) => 2,
            (Style::Color, Ink::Removed) => 31,
            (Style::Color, Ink::Added) => 32,
            (Style::Color, Ink::Changed) => 33,
        };
        write!(f, "\x1b[{code}m")?;
        self.text.fmt(f)?;
        f.write_str("\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_terminals_have_no_colors() {
        for (name, expected) in [
            ("xterm-256color", false),
            ("xterm", false),
            ("linux", false),
            ("", false),
            ("vt100", true),
            ("vt220", true),
            ("linux-m", true),
            ("dumb", true),
        ] {
            assert_eq!(is_monochrome(name), expected, "{name}");
        }
    }

    #[test]
    fn text_without_a_terminal_has_no_escape_sequences() {
        assert_eq!(Style::Plain.paint(Ink::Added, "x").to_string(), "x");
        assert_eq!(
            Style::Color.paint(Ink::Added, "x").to_string(),
            "\x1b[32mx\x1b[0m"
        );
        assert_eq!(format!("{:>3}", Style::Plain.paint(Ink::Added, "x")), "  x");
    }
}
