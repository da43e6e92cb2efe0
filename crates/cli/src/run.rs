//! `sidestep run`: the daemon, in the foreground with a short live status, or behind (`--detach`).

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use nix::unistd::{Gid, Group};
use sidestep_control::api::{self, Request};
use sidestep_control::daemon::{
    Daemon, DaemonError, Mode, Options, PacketFormatter, RECEIVE_BUFFER, Status,
};
use sidestep_datapath::Limits;
use sidestep_datapath::kernel::{Origin, PIN_ROOT, ReportRate};
use sidestep_model::config;

use crate::explain::headers;
use crate::{Outcome, explain_live, node_file, secret, trace};

/// A daemon that has not answered by then did not start.
const START_PATIENCE: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);
/// What a daemon says when it starts or cannot start is shorter.
const LOG_MAX: usize = 16 * 1024;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Routes, rules and neighbors of Sidestep's own, and ports, as YAML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where in the kernel the ports run
    #[arg(long, value_enum, default_value = "auto")]
    pub mode: ModeWord,
    /// Size of a table, by its name in `show limits`, as in prefixes=2000000; can be repeated
    #[arg(long, value_name = "TABLE=N", value_parser = limit)]
    pub limit: Vec<(Resize, u32)>,
    /// Folder on a BPF file system where programs and tables are pinned
    #[arg(long, value_name = "DIR", default_value = PIN_ROOT)]
    pub pin_root: PathBuf,
    /// Receive buffer for the kernel's notifications, in bytes: a small one overflows, for tests
    #[arg(long, value_name = "BYTES", hide = true, default_value_t = RECEIVE_BUFFER)]
    pub receive_buffer: usize,
    /// Packets per second and port whose senders are told of an error (ICMP); 0: none
    #[arg(long, value_name = "N", default_value_t = ReportRate::default().per_second)]
    pub icmp_rate: u32,
    /// And so many of them at once
    #[arg(long, value_name = "N", default_value_t = ReportRate::default().burst)]
    pub icmp_burst: u32,
    /// Let the members of this group use the control socket, and with it everything that Sidestep does
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub group: Option<Gid>,
    /// Run in the background; `sidestep stop` ends it
    #[arg(long)]
    pub detach: bool,
    /// Interfaces to attach to
    #[arg(value_name = "PORT")]
    pub ports: Vec<String>,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeWord {
    /// XDP where frames come complete, else TC
    Auto,
    /// XDP in the driver
    Xdp,
    /// XDP behind the driver: works everywhere, slowly
    Generic,
    /// TC
    Tc,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Auto => Self::Auto,
            ModeWord::Xdp => Self::Xdp,
            ModeWord::Generic => Self::Generic,
            ModeWord::Tc => Self::Tc,
        }
    }
}

/// The size of a table among all of them.
pub type Resize = fn(&mut Limits) -> &mut u32;

/// Reads `TABLE=N`.
fn limit(word: &str) -> Result<(Resize, u32), String> {
    const TABLES: [(&str, Resize); 6] = [
        ("prefixes", |limits| &mut limits.fib),
        ("routes", |limits| &mut limits.routes),
        ("groups", |limits| &mut limits.groups),
        ("adjacencies", |limits| &mut limits.adjacencies),
        ("policies", |limits| &mut limits.policies),
        ("route-counters", |limits| &mut limits.route_counters),
    ];
    let (name, value) = word.split_once('=').ok_or("not of the form TABLE=N")?;
    let found = TABLES.iter().find(|(table, _)| *table == name);
    let (_, table) = found.ok_or_else(|| {
        let names = TABLES.map(|(name, _)| name);
        format!("no such table; there are {}", names.join(", "))
    })?;
    // Larger, the sizes of the maps in bytes do not fit.
    let value = value
        .parse()
        .ok()
        .filter(|value| (2..=1 << 24).contains(value));
    Ok((
        *table,
        value.ok_or("a size is a number from 2 to 16777216")?,
    ))
}

/// Reads a group's name, or its number.
fn group(word: &str) -> Result<Gid, String> {
    if let Ok(number) = word.parse() {
        return Ok(Gid::from_raw(number));
    }
    let found = Group::from_name(word).map_err(|errno| errno.to_string())?;
    found
        .map(|group| group.gid)
        .ok_or_else(|| "there is no such group".into())
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let config = match &args.config {
        Some(path) => {
            let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
            let mut file = config::File::parse(&text).map_err(|error| wrong(&error))?;
            if file.holds_secrets() {
                let metadata = std::fs::metadata(path).map_err(|error| wrong(&error))?;
                secret::check_mode(&metadata).map_err(|error| wrong(&error))?;
            }
            node_file::read_secrets(&mut file, path).map_err(|error| wrong(&error))?;
            file
        }
        None => config::File::default(),
    };
    let mut ports = args.ports.clone();
    for name in config.port_names() {
        if !ports.iter().any(|port| port == name) {
            ports.push(name.to_owned());
        }
    }
    if let Some(twice) = ports
        .iter()
        .enumerate()
        .find(|(index, port)| ports[..*index].contains(port))
    {
        return Err(format!("port {}: named twice", twice.1).into());
    }
    let mut limits = Limits::default();
    for (table, size) in &args.limit {
        *table(&mut limits) = *size;
    }
    let options = Options {
        ports,
        mode: args.mode.into(),
        config,
        limits,
        pin_root: args.pin_root.clone(),
        receive_buffer: args.receive_buffer,
        icmp_rate: ReportRate {
            per_second: args.icmp_rate,
            burst: args.icmp_burst,
        },
        group: args.group,
    };
    if args.detach {
        return detach(&options, out);
    }
    let formatter = PacketFormatter {
        explain: explain_live::live,
        headers: headers::told,
        sample: trace::tell,
    };
    let daemon = Daemon::start(options, formatter).map_err(|error| {
        match (&error, &args.config) {
            // The line and column are of that file.
            (DaemonError::Config(_), Some(path)) => format!("{}: {error}", path.display()).into(),
            _ => Box::<dyn Error + Send + Sync>::from(error),
        }
    })?;
    writeln!(out, "{}", began(&daemon))?;
    out.flush()?;

    let live = std::io::stderr().is_terminal().then(live_status);
    let mut before: Option<(Instant, Status)> = None;
    let mut problems = Problems::default();
    daemon.run(|daemon| {
        let Some(bar) = &live else {
            problems.tell(&daemon.problems());
            return;
        };
        let (now, status) = (Instant::now(), daemon.status());
        bar.set_message(status_text(&status, before.as_ref(), now));
        before = Some((now, status));
    })?;
    if let Some(bar) = live {
        bar.finish_and_clear();
    }
    writeln!(out, "detached; the kernel forwards alone again")?;
    Ok(())
}

fn began(daemon: &Daemon) -> String {
    let status = daemon.status();
    let ports: Vec<_> = status
        .targets
        .iter()
        .map(|port| format!("{} ({}: {})", port.name, port.target, port.why))
        .collect();
    let origin = match daemon.origin() {
        Origin::Fresh => "",
        Origin::Adopted => "; took over what an instance that died had left running",
        Origin::Replaced => "; replaced what an instance of another version had left",
    };
    format!(
        "forwarding on {}; {} prefixes mirrored{origin}; Ctrl-C or `sidestep stop` detaches",
        ports.join(", "),
        status.prefixes
    )
}

/// What is not in effect, told when it begins and when it ends: for a log.
#[derive(Default)]
struct Problems(BTreeSet<String>);

impl Problems {
    fn tell(&mut self, now: &BTreeSet<String>) {
        for new in now.difference(&self.0) {
            eprintln!("sidestep: {new}");
        }
        for old in self.0.difference(now) {
            eprintln!("sidestep: no more: {old}");
        }
        self.0.clone_from(now);
    }
}

fn live_status() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} running {elapsed}\n{msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// A line per port: packets per second since the last time.
fn status_text(status: &Status, before: Option<&(Instant, Status)>, now: Instant) -> String {
    let mut text = String::new();
    for port in &status.ports {
        let old =
            before.and_then(|(_, status)| status.ports.iter().find(|old| old.name == port.name));
        let seconds = before.map_or(1.0, |(then, _)| now.duration_since(*then).as_secs_f64());
        let rate = |new: u64, old: Option<u64>| {
            HumanCount(((new - old.unwrap_or(new).min(new)) as f64 / seconds) as u64).to_string()
        };
        let _ = writeln!(
            text,
            "  {:<12} in {:>12}/s  forwarded {:>12}/s  punted {:>10}/s  dropped {:>10}/s  out {:>12}/s",
            port.name,
            rate(port.received_packets, old.map(|old| old.received_packets)),
            rate(port.forwarded, old.map(|old| old.forwarded)),
            rate(port.punted, old.map(|old| old.punted)),
            rate(port.dropped, old.map(|old| old.dropped)),
            rate(port.sent_packets, old.map(|old| old.sent_packets)),
        );
    }
    for problem in &status.problems {
        let _ = writeln!(text, "  {problem}");
    }
    text.trim_end().to_owned()
}

/// Starts the same command in the background and waits until it answers.
fn detach(options: &Options, out: &mut dyn Write) -> Outcome {
    // What needs no daemon to be known is said before there is a file of it.
    options.check()?;
    let directory = api::run_directory();
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    // Not the log itself: that may be another instance's.
    let log_path = directory.join(format!("log.{}", std::process::id()));
    let started = start_behind(&log_path);
    if started.is_ok() {
        std::fs::rename(&log_path, directory.join("log"))?;
    } else {
        // Both are gone if the daemon came far enough to remove them; the folder stays if it is another's.
        let _ = std::fs::remove_file(&log_path);
        let _ = std::fs::remove_dir(&directory);
    }
    writeln!(out, "{}", started?)?;
    Ok(())
}

/// The daemon's first words and its process id.
fn start_behind(log_path: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(true);
    // Read through this handle: the daemon removes its directory, log included, when it ends.
    let failed = |error| format!("{}: {error}", log_path.display());
    let log = open.open(log_path).map_err(failed)?;
    // On a full file system the child could not say so.
    log.write_all_at(b"?", 0).map_err(failed)?;
    log.set_len(0).map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.args(
        std::env::args_os()
            .skip(1)
            .filter(|word| word != "--detach"),
    );
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe { command.pre_exec(|| nix::unistd::setsid().map(|_| ()).map_err(Into::into)) };
    let mut child = command.spawn()?;
    let pid = child.id();
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        if child.try_wait()?.is_some() {
            let said = read_log(&log);
            return Err(said
                .strip_prefix("sidestep: ")
                .unwrap_or(&said)
                .to_owned()
                .into());
        }
        // An answer while our child has said nothing yet is another instance's; a socket that breaks off is that of a
        // child that cannot start. Why, is known when it has ended.
        if api::call(Request::ShowPorts).is_ok() && read_log(&log).starts_with("forwarding") {
            break;
        }
        if Instant::now() > deadline {
            child.kill()?;
            return Err(format!(
                "it did not start within {} s; it said: {}",
                START_PATIENCE.as_secs(),
                read_log(&log)
            )
            .into());
        }
        std::thread::sleep(START_POLL);
    }
    Ok(format!("{} (pid {pid})", read_log(&log)))
}

/// What the daemon has said so far. Positioned reads: the handle's position is the daemon's.
fn read_log(log: &File) -> String {
    let mut text = vec![0; LOG_MAX];
    let bytes = log.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
}
