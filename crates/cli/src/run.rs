//! `sidestep run`: the daemon, in the foreground with a live status, or in the background
//! (`--detach`).

use std::error::Error;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Gid;
use sidestep_control::api::{self, Request};
use sidestep_control::daemon::{
    Configuration, Daemon, DaemonError, End, Mode, Options, PacketFormatter, RECEIVE_BUFFER,
};
use sidestep_control::report::{self, Severity};
use sidestep_datapath::Limits;
use sidestep_datapath::kernel::{Origin, PIN_ROOT};
use sidestep_model::config;
use sidestep_model::settings::{Ipv4TooBig, LocalSrh, RedirectPeer};

use crate::explain::headers;
use crate::foreground::Foreground;
use crate::log::Log;
use crate::metrics::http;
use crate::node_file::NodeFileError;
use crate::number::number;
use crate::tables::{count, names};
use crate::{Outcome, VERSION, explain_live, log, netns, node_file, trace};

/// Time within which a daemon answers on its socket; after it, the start has failed.
const START_PATIENCE: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);
/// Default address of the HTTP endpoint for metrics.
const METRICS: &str = "127.0.0.1:10143";
/// Default address of the FPM listener, which is that of zebra.
const FPM: &str = "127.0.0.1:2620";
/// First word of the line that the daemon prints when it forwards.
const BEGAN: &str = "forwarding";
/// Maximum length of a start message, in bytes.
const LOG_MAX: usize = 16 * 1024;
/// LIMIT: changes of the last daemon that are logged as not taken over.
const LEFT_OUT_MAX: usize = 10;

/// Name of the process.
const NAME: &str = "sidestep";
const NAME_C: &CStr = c"sidestep";

/// Arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Node file (YAML) with ports, and with routes, rules and neighbors that the kernel does not
    /// have
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Hook at which the ports attach [default: auto]
    #[arg(long, value_enum)]
    pub mode: Option<ModeWord>,
    /// Set the size of a table, by its name in `show limits` (prefixes=2000000); can be repeated
    #[arg(long, value_name = "TABLE=N", value_parser = limit)]
    pub limit: Vec<(String, u32)>,
    /// Directory on a BPF file system where programs and tables are pinned
    /// [default: /sys/fs/bpf/sidestep]
    #[arg(long, value_name = "DIR")]
    pub pin_root: Option<PathBuf>,
    /// Receive buffer for netlink notifications, in bytes; tests make it overflow
    #[arg(long, value_name = "BYTES", hide = true, default_value_t = RECEIVE_BUFFER)]
    pub receive_buffer: usize,
    /// Rate limit for ICMP errors, per second and port; 0 disables them [default: 1000]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub icmp_rate: Option<u32>,
    /// Burst size for --icmp-rate, in messages [default: 50]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub icmp_burst: Option<u32>,
    /// SRH with Segments Left > 0 at a local address that is not a SID: drop (RFC 8754 4.3.2), or
    /// linux, which forwards it [default: drop]
    #[arg(long, value_name = "drop|linux")]
    pub local_srh: Option<LocalSrh>,
    /// Process SIDs only on ports whose sysctl `seg6_enabled` is 1
    #[arg(long)]
    pub require_seg6_enabled: bool,
    /// Look encapsulated packets up in table main, also where the ingress port is in a VRF
    #[arg(long)]
    pub encap_lookup_main: bool,
    /// IPv4 packets without DF that exceed the egress MTU: fragment, or icmp, which drops them with
    /// an ICMP error [default: fragment]
    #[arg(long, value_name = "fragment|icmp")]
    pub ipv4_too_big: Option<Ipv4TooBig>,
    /// Redirects of TC to the peer of a veth in another network namespace (`bpf_redirect_peer`):
    /// auto, where nothing that they skip is in use, on, or off [default: auto]
    #[arg(long, value_name = "auto|on|off")]
    pub redirect_peer: Option<RedirectPeer>,
    /// Rate limit for packets sent in fragments, per second and port; 0 drops them [default: 1000]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub fragment_rate: Option<u32>,
    /// Burst size for --fragment-rate, in packets [default: 50]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub fragment_burst: Option<u32>,
    /// Serve the metrics for Prometheus by HTTP [default address: 127.0.0.1:10143]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = METRICS, value_parser = metrics_address)]
    pub metrics: Option<SocketAddr>,
    /// Take routes of FRR by FPM, from zebra's module `dplane_fpm_nl` [default address: 127.0.0.1:2620]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = FPM, value_parser = fpm_address)]
    pub fpm: Option<SocketAddr>,
    /// Time that routes of FPM stay after zebra has disconnected, in seconds [default: 120]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub fpm_hold: Option<u32>,
    /// Report to zebra which of its routes are in the tables, so that BGP can wait for them
    #[arg(long)]
    pub fpm_reply: bool,
    /// Give the members of this group access to the control socket: full control of the daemon
    #[arg(long, value_name = "GROUP", value_parser = api::gid)]
    pub group: Option<u32>,
    /// Run in the background until `sidestep stop`
    #[arg(long)]
    pub detach: bool,
    /// Interface to attach to
    #[arg(value_name = "PORT")]
    pub ports: Vec<String>,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeWord {
    /// XDP if the device delivers complete frames, otherwise TC
    Auto,
    /// Native XDP, in the driver
    Xdp,
    /// As xdp, also on veth and tap: all senders complete checksums and segmentation
    XdpAlways,
    /// TC ingress
    Tc,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Auto => Self::Auto,
            ModeWord::Xdp => Self::Xdp,
            ModeWord::XdpAlways => Self::XdpAlways,
            ModeWord::Tc => Self::Tc,
        }
    }
}

/// Parses `TABLE=N`.
fn limit(word: &str) -> Result<(String, u32), String> {
    let (name, size) = word.split_once('=').ok_or("expected TABLE=N")?;
    // 0 is no size.
    let size = size.parse().unwrap_or(0);
    Limits::default().set(name, size)?;
    Ok((name.to_owned(), size))
}

/// Parses the address of the HTTP endpoint.
fn metrics_address(word: &str) -> Result<SocketAddr, String> {
    let expected = |_| format!("expected ADDRESS:PORT, such as {METRICS} or [::1]:10143");
    word.parse().map_err(expected)
}

/// Parses the address of the FPM listener.
fn fpm_address(word: &str) -> Result<SocketAddr, String> {
    let expected = |_| format!("expected ADDRESS:PORT, such as {FPM} or [::1]:2620");
    word.parse().map_err(expected)
}

/// Replaces keys of the node file by options.
fn apply_options(args: &Args, config: &mut config::File) {
    config.local_srh = args.local_srh.or(config.local_srh);
    config.require_seg6_enabled |= args.require_seg6_enabled;
    config.encap_lookup_main |= args.encap_lookup_main;
    config.ipv4_too_big = args.ipv4_too_big.or(config.ipv4_too_big);
    config.redirect_peer = args.redirect_peer.or(config.redirect_peer);
    config.fragment_rate = args.fragment_rate.or(config.fragment_rate);
    // A reload compares keys that only a start applies with the running values.
    if args.group.is_some() {
        config.group = None;
    }
    if args.pin_root.is_some() {
        config.pin_root = None;
    }
    if args.mode.is_some() {
        config.mode = None;
    }
    let is_given = |table: &String| args.limit.iter().any(|(given, _)| given == table);
    config.limits.retain(|table, _| !is_given(table));
    config.icmp_rate = args.icmp_rate.or(config.icmp_rate);
    config.icmp_burst = args.icmp_burst.or(config.icmp_burst);
    config.fragment_burst = args.fragment_burst.or(config.fragment_burst);
    config.metrics = args.metrics.or(config.metrics);
    config.fpm = args.fpm.or(config.fpm);
    config.fpm_hold = args.fpm_hold.or(config.fpm_hold);
    config.fpm_reply |= args.fpm_reply;
}

/// Reads the node file. Options and ports of the command line precede it.
pub(crate) fn read_configuration(
    args: &Args,
) -> Result<Configuration, Box<dyn Error + Send + Sync>> {
    let mut file = read_config(args.config.as_deref())?;
    apply_options(args, &mut file);
    let ports = ports_of(&args.ports, &file)?;
    let configuration = Configuration { ports, file };
    configuration
        .check_ports()
        .map_err(|error| match &args.config {
            Some(path) => format!("{}: {error}", path.display()),
            None => error.to_string(),
        })?;
    Ok(configuration)
}

/// Reads a node file with its secrets; none is an empty one.
pub(crate) fn read_config(path: Option<&Path>) -> Result<config::File, NodeFileError> {
    let read = |path| node_file::read_text(path).map(|(_, file)| file);
    path.map_or_else(|| Ok(config::File::default()), read)
}

/// Returns the mode of the command line, or else that of the node file.
pub(crate) fn mode_of(word: Option<ModeWord>, config: &config::File) -> Mode {
    word.map(Mode::from).or(config.mode()).unwrap_or_default()
}

/// Returns the directory of the pins: that of the command line, or else that of the node file.
pub(crate) fn pin_root_of(given: Option<&Path>, config: &config::File) -> PathBuf {
    let given = given.or(config.pin_root());
    given.unwrap_or(Path::new(PIN_ROOT)).to_owned()
}

/// Returns the named ports, then those of the node file.
pub(crate) fn ports_of(named: &[String], config: &config::File) -> Result<Vec<String>, String> {
    let mut ports = named.to_vec();
    for name in config.port_names() {
        if !ports.iter().any(|port| port == name) {
            ports.push(name.to_owned());
        }
    }
    let twice = |(index, port): &(usize, &String)| ports[..*index].contains(port);
    match ports.iter().enumerate().find(twice) {
        Some((_, port)) => Err(format!("port {port}: duplicate")),
        None => Ok(ports),
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    // `--detach` reads it twice.
    let path = args.config.as_ref().filter(|_| args.detach);
    path.map_or(Ok(()), |path| node_file::check_regular(path))?;
    let Configuration { ports, file } = read_configuration(args)?;
    // A reload reads the same file, wherever the process is then.
    let config_path = args.config.as_ref().map(std::path::absolute).transpose()?;
    let mut limits = Limits::default();
    file.limits(|table, size| limits.set(table, size))?;
    for (table, size) in &args.limit {
        limits.set(table, *size)?;
    }
    let group = match args.group {
        Some(group) => Some(group),
        None => file.group(api::gid)?,
    };
    let options = Options {
        ports,
        mode: mode_of(args.mode, &file),
        config_path: config_path.clone(),
        limits,
        pin_root: pin_root_of(args.pin_root.as_deref(), &file),
        config: file,
        receive_buffer: args.receive_buffer,
        group: group.map(Gid::from_raw),
        version: VERSION,
        arguments: arguments(std::env::args(), &args.ports),
    };
    if args.detach {
        return detach(&options, out);
    }
    let formatter = PacketFormatter {
        explain: explain_live::live,
        headers: headers::learned,
        sample: trace::sample,
    };
    // `--detach` starts /proc/self/exe, and the kernel would name the process after it.
    nix::sys::prctl::set_name(NAME_C)?;
    let mut daemon = Daemon::start(options, formatter).map_err(|error| {
        match (&error, &args.config) {
            // The error has the line and column in that file.
            (DaemonError::Config(_), Some(path)) => format!("{}: {error}", path.display()).into(),
            _ => Box::<dyn Error + Send + Sync>::from(error),
        }
    })?;
    if let Some(listener) = daemon.take_metrics() {
        // The data plane runs already, and does not depend on it.
        if let Err(error) = http::serve(listener) {
            Log::open().line(Severity::Error, &format!("metrics: {error}"));
        }
    }
    // Before the line that `--detach` waits for.
    log_left_out(&daemon);
    let line = format!("{BEGAN} {}", began(&daemon));
    match Log::open() {
        Log::File => Log::File.line(Severity::Note, &line),
        _ => writeln!(out, "{line}")?,
    }
    out.flush()?;

    let mut foreground = Foreground::new(Args {
        config: config_path,
        ..args.clone()
    });
    let end = daemon.run(&mut foreground)?;
    foreground.end();
    match end {
        End::Detached => writeln!(out, "detached; forwarding is back in the kernel")?,
        End::Kept => writeln!(
            out,
            "ended; programs, tables and changes stay for the next daemon"
        )?,
    }
    Ok(())
}

/// Logs the changes of the last daemon that this one has not.
fn log_left_out(daemon: &Daemon) {
    let left_out: Vec<_> = daemon
        .taken_over()
        .iter()
        .flat_map(|it| &it.left_out)
        .collect();
    let log = Log::open();
    for change in left_out.iter().take(LEFT_OUT_MAX) {
        log.line(Severity::Warning, &format!("not taken over: {change}"));
    }
    if let Some(more @ 1..) = left_out.len().checked_sub(LEFT_OUT_MAX) {
        let text = format!("not taken over: {} more", count(more as u64, "change"));
        log.line(Severity::Warning, &text);
    }
}

/// Returns the arguments of `run` in these words of a command, without ports, `--mode` and
/// `--detach`.
fn arguments(words: impl Iterator<Item = String>, ports: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.skip_while(|word| word != "run").skip(1);
    while let Some(word) = words.next() {
        if word == "--mode" {
            words.next();
        } else if word != "--detach" && !word.starts_with("--mode=") && !ports.contains(&word) {
            kept.push(word);
        }
    }
    kept
}

fn began(daemon: &Daemon) -> String {
    let status = daemon.status();
    let (there, absent): (Vec<_>, Vec<_>) = status
        .targets
        .iter()
        .partition(|port| port.ifindex.is_some());
    let there: Vec<_> = there
        .iter()
        .map(|port| format!("{} ({})", port.name, port.target))
        .collect();
    let there: Vec<_> = there.iter().map(String::as_str).collect();
    let there = match &there[..] {
        [] => "no port yet".to_owned(),
        ports => names(ports),
    };
    let absent: Vec<_> = absent.iter().map(|port| port.name.as_str()).collect();
    let waiting = match &absent[..] {
        [] => String::new(),
        ports => format!("; waiting for {} (no such interface)", names(ports)),
    };
    let origin = match daemon.origin() {
        Origin::Fresh => "",
        Origin::Adopted => "; adopted the data plane of an instance that died",
        Origin::Replaced => "; replaced the data plane of another version",
    };
    let taken_over = daemon.taken_over().map_or(0, |it| it.entries);
    let taken_over = match taken_over {
        0 => String::new(),
        _ => format!(
            "; took over {} by commands",
            count(taken_over as u64, "change")
        ),
    };
    let ctrl_c = if std::io::stdin().is_terminal() {
        "Ctrl-C or "
    } else {
        ""
    };
    format!(
        "on {there}{waiting}; {} prefixes mirrored{origin}{taken_over}; {ctrl_c}`sidestep stop` detaches",
        status.prefixes
    )
}

/// Starts the same command in the background and waits until its socket answers.
fn detach(options: &Options, out: &mut dyn Write) -> Outcome {
    // Errors that need no daemon are reported before any file exists.
    options.check()?;
    let directory = api::run_directory();
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    // Not the log itself, which may belong to another instance.
    let log_path = directory.join(format!("log.{}", std::process::id()));
    let started = start_behind(&log_path);
    if started.is_ok() {
        let log = directory.join("log");
        log::keep_former(&log)?;
        std::fs::rename(&log_path, log)?;
    } else {
        // The daemon may have removed both. A directory that another instance uses is not empty and
        // stays.
        let _ = std::fs::remove_file(&log_path);
        let _ = std::fs::remove_dir(&directory);
    }
    writeln!(out, "{}", started?)?;
    let status: report::Status = api::ask(Request::ShowStatus)?;
    for problem in status.problems.into_iter().map(netns::from_outside) {
        eprintln!("sidestep: {problem}");
    }
    Ok(())
}

/// Starts the daemon; returns its first log line with its process id.
fn start_behind(log_path: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(true);
    // The log is read through this handle, because the daemon removes its directory when it exits.
    let failed = |error| format!("{}: {error}", log_path.display());
    let log = open.open(log_path).map_err(failed)?;
    // On a full file system the child could not log its error.
    log.write_all_at(b"?", 0).map_err(failed)?;
    log.set_len(0).map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(
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
            let text = read_log(&log);
            return Err(text
                .strip_prefix("sidestep: ")
                .unwrap_or(&text)
                .to_owned()
                .into());
        }
        // An answer before the child has logged anything comes from another instance. A connection
        // that breaks off belongs to a child that fails to start; its log has the reason once it
        // has exited.
        if api::call(Request::ShowPorts).is_ok() && has_begun(&read_log(&log)) {
            break;
        }
        if Instant::now() > deadline {
            child.kill()?;
            return Err(format!(
                "the daemon did not start within {} s; its log: {}",
                START_PATIENCE.as_secs(),
                read_log(&log)
            )
            .into());
        }
        std::thread::sleep(START_POLL);
    }
    // Lines before it name entries that were not taken over, further ones problems.
    let text = read_log(&log);
    let mut lines = text.lines().map(log::text);
    for line in lines.by_ref().take_while(|line| !has_begun(line)) {
        eprintln!("sidestep: {line}");
    }
    let began = text.lines().map(log::text).find(|line| has_begun(line));
    Ok(format!("{} (pid {pid})", began.unwrap_or_default()))
}

/// Whether a log has the first line of a daemon that forwards.
fn has_begun(log: &str) -> bool {
    log.lines().any(|line| log::text(line).starts_with(BEGAN))
}

/// Returns the log so far. The read is positioned, because the daemon shares the handle's position.
fn read_log(log: &File) -> String {
    let mut text = vec![0; LOG_MAX];
    let bytes = log.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_has_the_arguments_other_than_ports_mode_and_detach() {
        let line = "sidestep -n r run --mode tc --config a.yaml eth0 --detach --mode=xdp eth1 \
            --limit routes=9";
        let words = line.split(' ').map(str::to_owned);
        let ports = ["eth0", "eth1"].map(str::to_owned);
        let kept = ["--config", "a.yaml", "--limit", "routes=9"];
        assert_eq!(arguments(words, &ports), kept);
    }
}
