//! `sidestep-bench list`: prints engines, behaviors, and which engine supports which behavior here.

use std::collections::BTreeMap;
use std::io::Write;

use crate::campaign::local::{Offer, offers};

use super::terminal::{Ink, Style};
use super::{Outcome, terminal};

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let offers = offers();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &offers)?;
        writeln!(out)?;
        return Ok(());
    }
    let Some(first) = offers.first() else {
        return Ok(());
    };
    let engines: Vec<&str> = first
        .engines
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let heads: Vec<&str> = ["behavior", "", "SIDs"]
        .into_iter()
        .chain(engines)
        .collect();
    let mut table = terminal::table(&heads, &[]);
    for offer in &offers {
        let (least, most) = offer.sids;
        let sids = match offer.sids {
            (0, 0) => String::new(),
            _ if least == most => least.to_string(),
            _ => format!("{least} to {most}"),
        };
        let engines = offer
            .engines
            .iter()
            .map(|(_, why)| if why.is_none() { "yes" } else { "–" });
        let cells = [offer.behavior.clone(), offer.title.clone(), sids];
        table.add_row(cells.into_iter().chain(engines.map(str::to_owned)));
    }
    writeln!(out, "{}", table.trim_fmt())?;
    reasons(&offers, out)
}

/// Prints each reason with the behaviors for which it excludes an engine.
fn reasons(offers: &[Offer], out: &mut dyn Write) -> Outcome {
    let mut reasons = BTreeMap::<(&str, &str), Vec<&str>>::new();
    for offer in offers {
        for (engine, why) in &offer.engines {
            if let Some(why) = why {
                reasons
                    .entry((engine, why))
                    .or_default()
                    .push(&offer.behavior);
            }
        }
    }
    if !reasons.is_empty() {
        let title = Style::of_stdout().paint(Ink::Title, "Not here");
        writeln!(out, "\n{title}")?;
    }
    for ((engine, why), behaviors) in reasons {
        match &behaviors[..] {
            all if all.len() > MANY => writeln!(out, "{engine}: {why} ({} behaviors)", all.len())?,
            few => writeln!(out, "{engine}: {why} ({})", few.join(", "))?,
        }
    }
    Ok(())
}

/// If a reason applies to more behaviors than this, print their number instead of their names.
const MANY: usize = 6;
