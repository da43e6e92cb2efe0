//! State of the `top` screen: tables, keys, and rendering for a terminal size.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span, Text};
use ratatui::widgets::{Cell as TableCell, Paragraph, Row, Table};
use sidestep_control::report::Severity;

use super::grid::{Cell, Grid, Line, Sort, Tone, grids, human};
use super::rates::Rates;
use crate::tables::count;

/// Tables on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// All tables, each with the rows that fit.
    All,
    /// One table.
    One(usize),
}

/// State of the screen.
pub struct Screen {
    /// Rates of the last interval; none before its end.
    pub rates: Option<Rates>,
    /// Why the counters could not be read.
    pub problem: Option<String>,
    /// Order of the rows.
    pub sort: Sort,
    /// Interval, in seconds.
    pub delay: f64,
    /// Whether the rates stay as they are.
    pub is_paused: bool,
    /// Whether to use colors.
    pub has_color: bool,
    view: View,
    /// Rows above the first visible one, if one table is shown.
    scroll: usize,
    /// Rows that fitted last time.
    page: usize,
}

/// Names of the tables.
const TABLES: [&str; 5] = ["ports", "routes", "reasons", "policies", "paths"];
/// Lines above and below the tables.
const TOP_LINES: u16 = 3;
const KEY_LINES: u16 = 1;

impl Screen {
    /// Returns the screen before the first interval has ended.
    pub fn new(sort: Sort, delay: f64, has_color: bool) -> Self {
        Self {
            rates: None,
            problem: None,
            sort,
            delay,
            is_paused: false,
            has_color,
            view: View::All,
            scroll: 0,
            page: 0,
        }
    }

    /// Handles a key. Returns whether it ends the program.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('p') => self.sort = Sort::Packets,
            KeyCode::Char('b') => self.sort = Sort::Bits,
            KeyCode::Char('e') => self.sort = Sort::Errors,
            KeyCode::Char('n') => self.sort = Sort::Name,
            KeyCode::Char('0') => self.show(View::All),
            KeyCode::Char(digit @ '1'..='5') => {
                self.show(View::One(digit as usize - '1' as usize));
            }
            KeyCode::Tab => self.show(match self.view {
                View::All => View::One(0),
                View::One(table) if table + 1 < TABLES.len() => View::One(table + 1),
                View::One(_) => View::All,
            }),
            KeyCode::Down => self.scroll += 1,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += self.page,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        false
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.scroll = 0;
    }

    /// Draws the screen.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, tables, keys] = Layout::vertical([
            Constraint::Length(TOP_LINES),
            Constraint::Fill(1),
            Constraint::Length(KEY_LINES),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.top()), top);
        frame.render_widget(self.keys(), keys);
        let Some(rates) = &self.rates else {
            return;
        };
        let grids = grids(rates, self.sort);
        match self.view {
            View::All => self.draw_all(frame, tables, &grids),
            View::One(table) => self.draw_one(frame, tables, &grids[table]),
        }
    }

    /// Draws every table that has rows.
    fn draw_all(&self, frame: &mut Frame<'_>, area: Rect, grids: &[Grid]) {
        let grids: Vec<_> = grids.iter().filter(|grid| !grid.rows.is_empty()).collect();
        let wanted: Vec<_> = grids.iter().map(|grid| grid.rows.len() + 1).collect();
        let heights = shares(&wanted, area.height.into());
        let areas = Layout::vertical(heights.iter().map(|it| Constraint::Length(*it as u16)));
        for (grid, area) in grids.into_iter().zip(areas.split(area).iter()) {
            frame.render_widget(self.table(grid, 0, area.as_size()), *area);
        }
    }

    fn draw_one(&mut self, frame: &mut Frame<'_>, area: Rect, grid: &Grid) {
        if grid.rows.is_empty() {
            frame.render_widget(Paragraph::new("none"), area);
            return;
        }
        self.page = usize::from(area.height.saturating_sub(1)).max(1);
        self.scroll = self.scroll.min(grid.rows.len().saturating_sub(self.page));
        frame.render_widget(self.table(grid, self.scroll, area.as_size()), area);
    }

    /// Lines above the tables: the daemon, the sum of all ports, and the problems.
    fn top(&self) -> Text<'static> {
        let paused = if self.is_paused { ", paused" } else { "" };
        let state = format!(
            "every {} s{paused}, sorted by {}",
            self.delay,
            self.sort.name()
        );
        let Some(rates) = &self.rates else {
            let wait = format!("the first rates follow after {} s", self.delay);
            let lines = ["sidestep".to_owned(), wait, String::new()];
            let mut lines = lines.map(TextLine::from);
            lines[2] = self.problem_line(None);
            return Text::from(lines.to_vec());
        };
        let uptime = humantime::format_duration(std::time::Duration::from_secs(rates.uptime));
        let total = rates.total();
        let sums = format!(
            "in {} pps, {} bit/s   out {} pps, {} bit/s   punted {}   dropped {}",
            human(total.received_pps),
            human(total.received_bps),
            human(total.sent_pps),
            human(total.sent_bps),
            human(total.punted_pps),
            human(total.dropped_pps),
        );
        let name = Span::styled("sidestep", Style::new().add_modifier(Modifier::BOLD));
        let first = format!(" {}, up {uptime}, {state}", short(&rates.version));
        Text::from(vec![
            TextLine::from(vec![name, first.into()]),
            sums.into(),
            self.problem_line(Some(rates)),
        ])
    }

    /// The line with the number of problems, or why there are no rates.
    fn problem_line(&self, rates: Option<&Rates>) -> TextLine<'static> {
        if let Some(problem) = &self.problem {
            return TextLine::styled(problem.clone(), self.style(Tone::Wrong));
        }
        let Some(rates) = rates else {
            return TextLine::default();
        };
        let of = |severity| {
            let problems = rates.problems.iter();
            problems.filter(|it| it.severity == severity).count() as u64
        };
        let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
        let tone = match (errors, warnings) {
            (0, 0) => return "no problems".into(),
            (0, _) => Tone::Notice,
            _ => Tone::Wrong,
        };
        let text = format!(
            "{}, {}: see `sidestep doctor`",
            count(errors, "error"),
            count(warnings, "warning")
        );
        TextLine::styled(text, self.style(tone))
    }

    fn keys(&self) -> TextLine<'static> {
        let view = match self.view {
            View::All => "all",
            View::One(table) => TABLES[table],
        };
        let text =
            format!("q quit  space pause  sort: p b e n  view: 0-5 Tab ({view})  scroll: arrows");
        TextLine::styled(text, Style::new().add_modifier(Modifier::REVERSED))
    }

    /// Returns a table with the rows from `first` on that fit below the heads.
    fn table(&self, grid: &Grid, first: usize, size: Size) -> Table<'static> {
        let height = size.height;
        let rows = usize::from(height.saturating_sub(1));
        let shown: Vec<_> = grid.rows.iter().skip(first).take(rows).collect();
        let mut heads: Vec<String> = grid.heads.iter().map(|head| (*head).to_owned()).collect();
        if let Some(last) = heads.last_mut().filter(|_| shown.len() < grid.rows.len()) {
            let (from, to) = (first + 1, first + shown.len());
            *last = format!("{last} ({from}-{to} of {})", grid.rows.len());
        }
        let width = |column: usize| {
            let cells = shown.iter().map(|line| line.cells[column].text.len());
            let widest = cells.max().unwrap_or(0).max(heads[column].len());
            // The widths of numbers change at every interval; the columns should not.
            let least = if grid.numbers.contains(&column) { 6 } else { 0 };
            widest.max(least) as u16
        };
        let last = heads.len() - 1;
        let taken: u16 = (0..last).map(|column| width(column) + SPACING).sum();
        let room = usize::from(size.width.saturating_sub(taken));
        let widths: Vec<_> = (0..last)
            .map(|column| Constraint::Length(width(column)))
            .chain([Constraint::Fill(1)])
            .collect();
        let align = |column: usize| {
            if grid.numbers.contains(&column) {
                Alignment::Right
            } else {
                Alignment::Left
            }
        };
        let head = heads.iter().enumerate().map(|(column, head)| {
            TableCell::from(Text::from(head.clone()).alignment(align(column)))
        });
        let cell = |(column, cell): (usize, &Cell)| {
            let text = if column == last {
                cut(&cell.text, room)
            } else {
                cell.text.clone()
            };
            let text = Text::from(text).alignment(align(column));
            TableCell::from(text).style(self.style(cell.tone))
        };
        let row = |line: &&Line| Row::new(line.cells.iter().enumerate().map(cell));
        let head_style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        Table::new(shown.iter().map(row), widths)
            .header(Row::new(head).style(head_style))
            .column_spacing(SPACING)
    }

    fn style(&self, tone: Tone) -> Style {
        match (tone, self.has_color) {
            (Tone::Normal, _) => Style::new(),
            (_, false) => Style::new().add_modifier(Modifier::BOLD),
            (Tone::Notice, true) => Style::new().fg(Color::Yellow),
            (Tone::Wrong, true) => Style::new().fg(Color::Red),
        }
    }
}

/// The version without its commit.
fn short(version: &str) -> &str {
    version.split(' ').next().unwrap_or(version)
}

/// Divides the lines of the screen among tables that want this many. Small tables get all lines
/// that they want, and the others the same number each.
fn shares(wanted: &[usize], lines: usize) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    let mut left = lines;
    while left > 0 {
        let hungry = (0..wanted.len()).filter(|table| shares[*table] < wanted[*table]);
        let Some(next) = hungry.min_by_key(|table| shares[*table]) else {
            break;
        };
        shares[next] += 1;
        left -= 1;
    }
    shares
}

/// Blanks between two columns.
const SPACING: u16 = 2;

/// Returns a text of at most so many characters. An ellipsis ends one that was longer.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept = text.chars().take(room.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests;
