//! `sidestep-bench conform`: sends the golden vectors through engines and prints the results.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flate2::read::GzDecoder;
use sidestep_testkit::vectors::VectorFile;

use crate::conform::page::page;
use crate::conform::plane::{Commands, LinuxAlone, OfSidestep, Plane};
use crate::conform::results::Results;
use crate::conform::{Options, run as send};

use super::terminal::{Ink, Style};
use super::{Outcome, take_signals, terminal};

/// Arguments of `conform`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Engines: linux, sidestep-tc, sidestep-xdp, or a file with the keys name, up, down and info
    #[arg(
        short,
        long,
        value_name = "ENGINE",
        value_delimiter = ',',
        default_value = "linux"
    )]
    pub engine: Vec<String>,
    /// Only cases whose name, group or RFC contains this text, such as `8986 4.13`
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Folder of vectors [default: those that this program contains]
    #[arg(long, value_name = "DIR")]
    pub vectors: Option<PathBuf>,
    /// Wait this long for what leaves. Engines in the kernel need no time
    #[arg(long, value_name = "MS")]
    pub patience: Option<u64>,
    /// Write results as JSON, one file for each engine, and one page of all
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print the differences of failed cases
    #[arg(short, long)]
    pub verbose: bool,
}

/// The vectors of this version: file names and contents, compressed.
const VECTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vectors.json.gz"));

/// LIMIT: time for a packet through an engine outside the kernel.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let files = match &args.vectors {
        Some(folder) => VectorFile::read_all(folder)?,
        None => built_in()?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    take_signals(&stop)?;
    let mut all = Vec::new();
    for name in &args.engine {
        let (plane, in_kernel) = engine(name)?;
        let patience = args.patience.map(Duration::from_millis);
        let options = Options {
            only: args.only.clone(),
            patience: patience.or((!in_kernel).then_some(PATIENCE)),
        };
        let style = Style::of_stdout();
        let results = send(&files, plane.as_ref(), &options, &stop, |group, cases| {
            if cases > 0 {
                let line = format!("{}: {group}, {cases} cases", plane.name());
                eprintln!("{}", style.paint(Ink::Dim, line));
            }
        })?;
        all.push(results);
    }
    print(&all, args.verbose, out)?;
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder)?;
        for results in &all {
            fs::write(
                folder.join(format!("{}.json", results.engine)),
                results.json()?,
            )?;
        }
        fs::write(folder.join("conformance.html"), page(&all))?;
        writeln!(out, "{}", folder.join("conformance.html").display())?;
    }
    Ok(())
}

/// Returns the engine of this name or file, and whether it is in the kernel.
fn engine(name: &str) -> Result<(Box<dyn Plane>, bool), Box<dyn std::error::Error + Send + Sync>> {
    Ok(match name {
        "linux" => (Box::new(LinuxAlone), true),
        "sidestep-tc" => (Box::new(OfSidestep::find(name, "tc")?), true),
        "sidestep-xdp" => (Box::new(OfSidestep::find(name, "xdp-always")?), true),
        file if Path::new(file).is_file() => {
            let text = fs::read_to_string(file)?;
            let commands: Commands =
                serde_saphyr::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
            let in_kernel = commands.in_kernel;
            (Box::new(commands), in_kernel)
        }
        other => {
            return Err(format!(
                "no engine {other}: allowed are linux, sidestep-tc, sidestep-xdp, or a file"
            )
            .into());
        }
    })
}

fn built_in() -> Result<Vec<VectorFile>, Box<dyn std::error::Error + Send + Sync>> {
    let texts: Vec<(String, String)> = serde_json::from_reader(GzDecoder::new(VECTORS))?;
    let parse = |(name, text): &(String, String)| VectorFile::parse(Path::new(name), text);
    Ok(texts.iter().map(parse).collect::<Result<_, _>>()?)
}

/// Prints a row for each clause, then the totals, and failed cases if they are wanted.
fn print(all: &[Results], verbose: bool, out: &mut dyn Write) -> Outcome {
    let style = Style::of_stdout();
    for results in all {
        writeln!(out, "{}", style.paint(Ink::Title, &results.engine))?;
        let right = ["passes", "fails", "not supported"];
        let heads = ["RFC, section", "passes", "fails", "not supported"];
        let mut table = terminal::table(&heads, &right);
        for (clause, count) in results.clauses() {
            let numbers = [count.passes, count.fails, count.not_supported];
            let numbers = numbers.map(|number| number.to_string());
            table.add_row([clause].into_iter().chain(numbers));
        }
        let total = results.total();
        let numbers = [total.passes, total.fails, total.not_supported];
        let numbers = numbers.map(|number| number.to_string());
        table.add_row(["all cases".to_owned()].into_iter().chain(numbers));
        writeln!(out, "{}", table.trim_fmt())?;
        writeln!(
            out,
            "{} cases were left out: they end at the operating system, or exceed the link.\n",
            results.left
        )?;
        for case in results
            .outcomes
            .iter()
            .filter(|it| verbose && it.result == "fail")
        {
            let head = format!("{} ({})", case.name, case.rfc.join(", "));
            writeln!(out, "{}\n{}", style.paint(Ink::Removed, head), case.why)?;
        }
    }
    Ok(())
}
