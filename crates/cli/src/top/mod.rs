//! `sidestep top`: rates of ports, routes, reasons and segment lists, on a live screen or, in batch
//! mode, as text or JSON.

mod grid;
mod rates;
mod screen;

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comfy_table::Table;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

pub(crate) use self::grid::human;
use self::grid::{Grid, Sort, grids};
pub(crate) use self::rates::{Rates, Snapshot, each_interval};
use self::screen::Screen;
use crate::number::number;
use crate::style::{Style, is_dumb};
use crate::watch::{ended_by_signal, seconds};
use crate::{Outcome, tables};

/// Longest wait for a key. A signal does not end a wait.
const PATIENCE: Duration = Duration::from_millis(250);

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sidestep top                       live screen; the last line lists the keys
  sidestep top -b --count 3          print the rates of three seconds
  sidestep top -j -d 10 | jq -c '.ports[] | [.name, .received_pps]'")]
pub struct Args {
    /// Interval in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub delay: f64,
    /// Stop after N intervals [default: at Ctrl-C]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Order of the rows
    #[arg(short, long, value_enum, default_value = "packets")]
    pub sort: Sort,
    /// Print one block of text per interval instead of a screen, without idle routes, reasons and
    /// segment lists
    #[arg(short, long)]
    pub batch: bool,
    /// Print one line of JSON per interval instead of a screen
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if args.batch || args.json {
        return batch(args, out);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() || is_dumb() {
        return Err("top needs a terminal with a cursor; --batch and --json print lines".into());
    }
    // An error such as a missing daemon is reported before the screen is cleared.
    let first = Snapshot::read()?;
    let ended = ended_by_signal()?;
    // `try_init` also restores the terminal when the program panics.
    let mut terminal = ratatui::try_init()?;
    let outcome = live(args, first, &mut terminal, &ended);
    ratatui::try_restore()?;
    outcome
}

/// Runs the live screen until a key or a signal ends it.
fn live(
    args: &Args,
    first: Snapshot,
    terminal: &mut DefaultTerminal,
    ended: &AtomicBool,
) -> Outcome {
    let has_color = Style::of_stdout() == Style::Color;
    let mut screen = Screen::new(args.sort, args.delay, has_color);
    let delay = Duration::from_secs_f64(args.delay);
    let mut before = Some(first);
    let mut next = Instant::now() + delay;
    let mut left = args.count;
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| screen.draw(frame))?;
        let wait = next.saturating_duration_since(Instant::now()).min(PATIENCE);
        if !has_terminal(wait)? {
            break;
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                // Some terminals also report that a key is released.
                Event::Key(key) if key.kind == KeyEventKind::Press && screen.press(key) => {
                    return Ok(());
                }
                _ => {}
            }
        }
        if Instant::now() < next {
            continue;
        }
        if screen.is_paused {
            // The first interval after a pause has its usual length.
            before = None;
            next = Instant::now() + delay;
            continue;
        }
        next += delay;
        advance(&mut screen, &mut before);
        left = left.map(|left| left - 1);
        if left == Some(0) {
            break;
        }
    }
    Ok(())
}

/// Waits for a key, at most this long. Returns false if the terminal is gone: crossterm would read
/// it for ever.
fn has_terminal(wait: Duration) -> Result<bool, Errno> {
    let stdin = std::io::stdin();
    let mut input = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    match poll(&mut input, wait) {
        Ok(_) => {}
        // A signal, for example because the size of the terminal has changed.
        Err(Errno::EINTR) => return Ok(true),
        Err(error) => return Err(error),
    }
    let found = input[0].revents().unwrap_or(PollFlags::empty());
    Ok(!found.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}

/// Reads the counters, and shows the rates since `before`.
fn advance(screen: &mut Screen, before: &mut Option<Snapshot>) {
    match Snapshot::read() {
        Ok(after) => {
            if let Some(before) = before {
                screen.rates = Some(Rates::between(before, &after));
            }
            screen.problem = None;
            *before = Some(after);
        }
        Err(error) => {
            screen.rates = None;
            screen.problem = Some(error.to_string());
            *before = None;
        }
    }
}

/// Prints the rates of each interval.
fn batch(args: &Args, out: &mut dyn Write) -> Outcome {
    each_interval(
        args.delay,
        args.count,
        &AtomicBool::new(false),
        |_, rates| {
            if args.json {
                writeln!(out, "{}", serde_json::to_string(rates)?)?;
            } else {
                block(rates, args.sort, out)?;
            }
            // The reader waits for this interval.
            Ok(out.flush()?)
        },
    )
}

/// Prints the rates of an interval as text.
fn block(rates: &Rates, sort: Sort, out: &mut dyn Write) -> std::io::Result<()> {
    let total = rates.total();
    writeln!(
        out,
        "{}  in {} pps, {} bit/s  out {} pps, {} bit/s",
        rates.time(),
        human(total.received_pps),
        human(total.received_bps),
        human(total.sent_pps),
        human(total.sent_bps)
    )?;
    let [ports, others @ ..] = grids(rates, sort);
    writeln!(out, "\n{}", text_table(&ports, false).trim_fmt())?;
    for grid in &others {
        let table = text_table(grid, true);
        if !table.is_empty() {
            writeln!(out, "\n{}", table.trim_fmt())?;
        }
    }
    writeln!(out)
}

fn text_table(grid: &Grid, only_busy: bool) -> Table {
    let numbers = &grid.heads[grid.numbers.clone()];
    let mut table = tables::table(&grid.heads, numbers);
    let rows = grid.rows.iter();
    for line in rows.filter(|line| line.is_busy || !only_busy) {
        table.add_row(line.cells.iter().map(|cell| cell.text.as_str()));
    }
    table
}
