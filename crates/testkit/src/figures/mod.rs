//! Figures beside Linux: how many packets a second the kernel alone, Sidestep in TC and Sidestep in XDP take through one
//! router, behavior by behavior, in one run and with the same `ip` configuration.
//!
//! A router stands between a generator and a sink, each in a namespace, joined by veth. One CPU runs all three, so a
//! figure is the whole loop, and what is written beside it (the generator with nothing between, a bare redirect) says how
//! much of it is the loop itself. Before a path is measured, one packet is compared byte for byte, so that no wrong path
//! is; Sidestep's own counters must then say that Sidestep, not the kernel, forwarded every packet.

mod machine;
mod measure;
mod options;
mod report;
mod rows;
mod series;

use std::io::{self, Write as _};

pub use crate::program::Error;
pub use options::{Form, Options, USAGE};

use crate::engine::product::Sidestep;
use crate::program::Interrupt;
use machine::Machine;
use measure::Bench;
use report::Report;

/// Measures what is asked for and prints it on standard output; progress and warnings go to standard error. Whatever
/// happens, nothing stays behind.
///
/// # Errors
/// What ended the run before its end; the network is gone by then.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.help {
        print(&format!("{USAGE}\n"));
        return Ok(());
    }
    let all = rows::all();
    let (chosen, limits) = options.choose(&all)?;
    if let Some(missing) = crate::capability::missing() {
        return Err(Error::Usage(format!(
            "the figures need root on Linux: {missing}"
        )));
    }
    let sidestep = Sidestep::find()?;
    let machine = Machine::prepare()?;
    if let Some(warning) = machine.warning() {
        eprintln!("figures: warning: {warning}");
    }
    let interrupt = Interrupt::install()?;
    sidestep.clean();
    let bench = Bench {
        sidestep: &sidestep,
        interrupt: &interrupt,
        window: options.window,
        rounds: options.rounds,
        cpu: machine.cpu,
    };
    let mut report = Report::new(machine, sidestep.version()?, options);
    for (index, behavior) in chosen.iter().enumerate() {
        eprintln!(
            "figures: {} of {}: {}",
            index + 1,
            chosen.len(),
            behavior.name
        );
        let measured = bench.behavior(behavior);
        // What a program that got the same Ctrl-C then says is not the reason.
        interrupt.check()?;
        report.rows.push(measured?);
    }
    if limits {
        eprintln!("figures: the limits");
        let named = |name: &str| all.iter().find(|one| one.name == name);
        if let (Some(plain), Some(encapsulated)) =
            (named("plain IPv6"), named("H.Encaps, 1 segment"))
        {
            report.limits = bench.limits(plain, encapsulated)?;
        }
    }
    print(&report.print(options.form));
    Ok(())
}

/// Whoever closes our output early wants no more of it.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
