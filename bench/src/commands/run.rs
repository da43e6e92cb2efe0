//! `sidestep-bench run FILE`: starts or resumes a campaign.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::campaign::file::Campaign;
use crate::campaign::local;
use crate::campaign::log::{Log, Record};
use crate::campaign::plan::Plan;
use crate::campaign::report;
use crate::campaign::run::{Pattern, Runner};
use crate::machine::Ticks;
use crate::report as files;

use super::Outcome;
use super::bar::Bar;
use super::print::tables;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Campaign file (`sidestep-bench init` writes a template)
    pub file: PathBuf,
    /// Folder for the results, new or to resume [default: the file's name with -results or -quick]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Use short trials and one run, to test that it works here
    #[arg(long)]
    pub quick: bool,
    /// Measure only points whose name, as printed by -n, contains this pattern; `*` matches any
    /// text. May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Check the file and print the plan with its estimated duration
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print JSON, as in report.json
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let name = args.file.display();
    let text = fs::read_to_string(&args.file).map_err(|error| format!("{name}: {error}"))?;
    let in_file = |error| format!("{name}: {error}");
    let campaign = Campaign::parse(&text).map_err(in_file)?;
    let campaign = if args.quick {
        campaign.quick()
    } else {
        campaign
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let engines = local::engines(&campaign, &interrupted).map_err(in_file)?;
    let plan = Plan::of(&campaign, &engines, &local::vocabulary()).map_err(in_file)?;
    let only: Vec<Pattern> = args.only.iter().map(|text| Pattern::new(text)).collect();
    if let Some(none) = only
        .iter()
        .find(|pattern| !plan.points.iter().any(|point| pattern.fits(point)))
    {
        return Err(format!("--only {none} matches no point of {name}; -n prints them").into());
    }
    let runner = Runner {
        only: &only,
        campaign: &campaign,
        quick: args.quick,
        plan: &plan,
        engines: &engines,
        ticks: &Ticks::now,
        interrupted: &interrupted,
    };
    if args.dry_run {
        return print_plan(&runner, out);
    }
    let folder = args
        .output
        .clone()
        .unwrap_or_else(|| folder(&args.file, args.quick));
    let mut log = Log::open(&folder, &text)?;
    super::take_signals(&interrupted)?;
    let before = log.records.len();
    let time = runner.estimated(&log.records)?;
    eprintln!("{}: about {}", folder.display(), minutes(time.as_secs()));
    let done = runner.run(&mut log, &mut Bar::new())?;
    if log.records.len() == before {
        // Print when these results were measured, so that they are not mistaken for new ones.
        eprintln!(
            "{} is complete, measured {}. To measure again, choose another folder with -o",
            folder.display(),
            when(&log.records)
        );
    }
    let Some(report) = report::report(&campaign, &log.records) else {
        return Err("interrupted before anything was measured".into());
    };
    files::write(&report, &folder)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        tables(&report, out)?;
        writeln!(out, "{}", folder.join(files::HTML).display())?;
    }
    if !done {
        return Err("interrupted; the same command resumes".into());
    }
    match failed(&log.records[before..]) {
        0 => Ok(()),
        failed => {
            Err(format!("{failed} measurements failed; the same command retries them").into())
        }
    }
}

/// Prints the plan of a campaign.
fn print_plan(runner: &Runner, out: &mut dyn Write) -> Outcome {
    let plan = runner.plan;
    let chosen = || plan.points.iter().filter(|point| runner.is_chosen(point));
    for point in chosen() {
        writeln!(out, "{point}")?;
    }
    let refused = plan.refused.iter();
    for refused in refused.filter(|refused| runner.is_chosen(&refused.point)) {
        let point = &refused.point;
        writeln!(
            out,
            "{}: not {} {}: {}",
            point.group, point.engine, point.case, refused.why
        )?;
    }
    let time = runner.estimated(&[])?;
    writeln!(
        out,
        "{} points, {} runs of each, about {}",
        chosen().count(),
        runner.campaign.runs(),
        minutes(time.as_secs())
    )?;
    Ok(())
}

/// Returns the number of failed measurements among these records.
fn failed(records: &[Record]) -> usize {
    let failed = |record: &&Record| matches!(record, Record::Failed(_));
    records.iter().filter(failed).count()
}

/// Describes when the existing measurements were made.
fn when(records: &[Record]) -> String {
    let times = records.iter().filter_map(|record| match record {
        Record::Begin(begin) => Some(&begin.at),
        Record::Measured(measured) => Some(&measured.at),
        Record::Ceiling { .. } | Record::Failed(_) | Record::End => None,
    });
    let times: Vec<&String> = times.collect();
    match times[..] {
        [first, .., last] => format!("from {first} to {last}"),
        [once] => format!("at {once}"),
        [] => "at an unknown time".into(),
    }
}

fn folder(file: &Path, quick: bool) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let what = if quick { "quick" } else { "results" };
    PathBuf::from(format!("{stem}-{what}"))
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
