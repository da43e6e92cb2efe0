//! What the demo says: headings, commands, tables; colour only on a terminal, and nothing wider than [`WIDTH`].

use std::env;
use std::io::{self, IsTerminal as _, Write as _};

/// Columns of the screen that everything has to fit on.
pub const WIDTH: usize = 100;

/// Where the demo prints. Whether anybody still reads it does not matter: the network has to be taken down anyway, so
/// errors of the terminal are not looked at.
#[derive(Debug)]
pub struct Screen {
    colour: bool,
}

/// How a line looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Dim,
    Heading,
    Good,
    Bad,
}

impl Screen {
    /// Standard output; with colour if it is a terminal that has it (`NO_COLOR` and `TERM=dumb` are heeded).
    pub fn stdout() -> Self {
        let wanted =
            env::var_os("NO_COLOR").is_none() && env::var_os("TERM").is_some_and(|t| t != "dumb");
        Self {
            colour: wanted && io::stdout().is_terminal(),
        }
    }

    /// The first line.
    pub fn title(&self, text: &str) {
        self.put(Style::Bold, text);
        self.put(Style::Dim, &"=".repeat(text.chars().count().min(WIDTH)));
    }

    /// The begin of a part.
    pub fn heading(&self, text: &str) {
        self.put(Style::Plain, "");
        let rule = "-".repeat(WIDTH.saturating_sub(text.chars().count() + 4));
        self.put(Style::Heading, &format!("-- {text} {rule}"));
    }

    /// A plain line.
    pub fn line(&self, text: &str) {
        self.put(Style::Plain, text);
    }

    /// A line that stands out.
    pub fn strong(&self, text: &str) {
        self.put(Style::Bold, text);
    }

    /// A remark: why something is as it is. Wrapped.
    pub fn note(&self, text: &str) {
        for line in wrap(text, WIDTH - 2) {
            self.put(Style::Dim, &format!("  {line}"));
        }
    }

    /// Something was checked, and holds; a text too long for the screen goes on in the next line.
    pub fn good(&self, text: &str) {
        let mut begin = "ok";
        for line in wrap(text, WIDTH - 6) {
            self.put(Style::Good, &format!("  {begin:2}  {line}"));
            begin = "";
        }
    }

    /// The last line of a demo that did not come to its end.
    pub fn bad(&self, text: &str) {
        self.put(Style::Bad, text);
    }

    /// A command as it is executed on a node; one too long for the screen goes on in the next line.
    pub fn command(&self, node: &str, command: &str) {
        self.quote(&format!("{node:<4}# {command}"));
    }

    /// Text of another program, two columns in. As it came, but that a line too long for the screen goes on in the
    /// next one.
    pub fn quote(&self, text: &str) {
        for line in text.lines() {
            for part in hang(line, WIDTH - 2) {
                self.put(Style::Plain, format!("  {part}").trim_end());
            }
        }
    }

    /// Rows under a first row of titles: the first column to the left, the others to the right.
    pub fn table(&self, rows: &[Vec<String>]) {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        for (number, row) in rows.iter().enumerate() {
            let mut line = String::from(" ");
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width(column) - cell.chars().count());
                line.push(' ');
                if column > 0 {
                    line.push(' ');
                    line.push_str(&pad);
                }
                line.push_str(cell);
                if column == 0 {
                    line.push_str(&pad);
                }
            }
            let style = if number == 0 {
                Style::Bold
            } else {
                Style::Plain
            };
            self.put(style, line.trim_end());
        }
    }

    fn put(&self, style: Style, text: &str) {
        let code = match style {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Heading => "1;36",
            Style::Good => "32",
            Style::Bad => "1;31",
        };
        let mut out = io::stdout().lock();
        let _ = if self.colour && !code.is_empty() {
            writeln!(out, "\x1b[{code}m{text}\x1b[0m")
        } else {
            writeln!(out, "{text}")
        };
        let _ = out.flush();
    }
}

/// Breaks a text between words into lines of at most `width` columns; a longer word gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Breaks a line that is longer than `width` columns; what goes on is four columns further in than the line began.
fn hang(line: &str, width: usize) -> Vec<String> {
    let indent = |text: &str| text.len() - text.trim_start().len();
    let further = " ".repeat(indent(line) + 4);
    let (mut parts, mut rest) = (Vec::new(), line.to_owned());
    while rest.chars().count() > width {
        let begin = indent(&rest);
        let fitting = rest.char_indices().take(width + 1);
        let Some((cut, _)) = fitting.filter(|(at, c)| *c == ' ' && *at > begin).last() else {
            break;
        };
        parts.push(rest[..cut].trim_end().to_owned());
        // At least a word shorter each time, so this ends.
        rest = format!("{further}{}", rest[cut..].trim_start());
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_is_broken_between_words_and_never_inside_one() {
        assert_eq!(
            wrap("one two three fourteenletter", 9),
            ["one two", "three", "fourteenletter"]
        );
        assert!(wrap("", 9).is_empty());
    }

    #[test]
    fn a_quoted_line_that_is_too_long_goes_on_further_in() {
        assert_eq!(hang("  short  line", 13), ["  short  line"]);
        assert_eq!(
            hang("  one two three four", 13),
            ["  one two", "      three", "      four"]
        );
        assert_eq!(hang("  fourteenletters", 13), ["  fourteenletters"]);
    }
}
