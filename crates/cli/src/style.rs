//! Colors of a terminal, only where there is one.

use std::fmt::{self, Display};
use std::io::IsTerminal;

/// Whether text is colored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No escape sequences.
    Plain,
    /// Colored.
    Color,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// The beginning of something.
    Title,
    /// Less important.
    Dim,
    /// New, or good.
    Added,
    /// Gone, or bad.
    Removed,
    /// Other than before.
    Changed,
}

impl Style {
    /// Colored if standard output is a terminal and nobody objects (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused {
            Self::Color
        } else {
            Self::Plain
        }
    }

    /// `text` in that ink.
    pub fn paint<T: Display>(self, ink: Ink, text: T) -> Painted<T> {
        Painted {
            style: self,
            ink,
            text,
        }
    }
}

/// Text with its ink.
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
    fn text_without_a_terminal_has_no_escape_sequences() {
        assert_eq!(Style::Plain.paint(Ink::Added, "x").to_string(), "x");
        assert_eq!(
            Style::Color.paint(Ink::Added, "x").to_string(),
            "\x1b[32mx\x1b[0m"
        );
        assert_eq!(format!("{:>3}", Style::Plain.paint(Ink::Added, "x")), "  x");
    }
}
