//! The `sidestep` command: the command tree, and one module for each command.
//!
//! Commands print to standard output, as text or, with `-j`, as JSON from the same data. Exit codes
//! are stable: 0 for success, 1 for a failed operation or an invalid file, 2 for wrong usage.
//! `config diff` exits like diff(1): 1 for differences, 2 if it failed.
//! `doctor` exits with 1 for warnings, 2 for errors, and 3 if it failed.
//! `exec` exits with the code of the program that it runs, or like a shell: 126 if the program
//! cannot be executed, 127 if it is not found.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod batch;
mod check;
pub mod completion;
pub mod config;
pub mod doctor;
pub mod entry;
pub mod ether;
pub mod exec;
pub mod explain;
pub mod explain_live;
mod foreground;
pub mod hmac;
pub mod log;
pub mod manual;
pub mod metrics;
pub mod monitor;
pub mod netns;
pub mod node_file;
mod number;
pub mod oam;
mod path;
mod pcap;
pub mod policy;
pub mod port;
pub mod replay;
pub mod route;
pub mod route_get;
pub mod run;
pub mod secret;
pub mod show;
mod show_watch;
pub mod stop;
pub mod style;
mod systemd;
pub mod tables;
pub mod top;
pub mod trace;
pub mod watch;

/// Result of a command. The error is one line with the cause and the place.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Version of Sidestep, followed in parentheses by the commit it was built from, if known.
pub const VERSION: &str = env!("SIDESTEP_VERSION");

/// SRv6 data plane for an unmodified Linux kernel.
#[derive(Debug, Parser)]
#[command(name = "sidestep", version = VERSION, about, max_term_width = 120)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// Network namespace of `ip netns` to work in
    #[arg(short = 'n', long, global = true, value_name = "NETNS")]
    pub netns: Option<String>,
    /// Change entries by the lines of a file, `-` for standard input: NOUN VERB ENTRY, all or none
    #[arg(short, long, value_name = "FILE")]
    pub batch: Option<PathBuf>,
    /// Command to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: mirror the kernel's configuration and forward on these ports
    Run(run::Args),
    /// Stop the daemon of this network namespace, or remove the programs of a dead one
    Stop(stop::Args),
    /// Check what keeps packets from being forwarded, and print the commands that repair it
    Doctor(doctor::Args),
    /// Show the status, ports, counters, drops, limits or ICMP errors of the daemon
    Show(show::Args),
    /// Add ports to the daemon, and remove them
    #[command(subcommand)]
    Port(port::Command),
    /// Show, compare, change, save and reload the running configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Manage Sidestep-only routes, show all routes, and find the route of an address
    #[command(subcommand)]
    Route(route::Command),
    /// Manage Sidestep-only policy rules
    #[command(subcommand)]
    Rule(entry::Command<entry::Rule>),
    /// Manage SR policies: segment lists with weights, preferences and validity
    #[command(subcommand)]
    Policy(policy::Command),
    /// Manage ether devices: Ethernet devices whose frames take a segment list
    #[command(subcommand)]
    Ether(ether::Command),
    /// Manage the SR domain, which protects its SIDs from packets of outside ports
    #[command(subcommand)]
    Domain(entry::Command<entry::Domain>),
    /// Manage paths: segment lists that are probed, so that policies leave dead ones
    #[command(subcommand)]
    Path(entry::Command<path::Path>),
    /// Manage the backups of next hops, which take over in the moment in which a link or a path fails
    #[command(subcommand)]
    Protect(entry::Command<entry::Protect>),
    /// Manage the reflectors of S-BFD, which answer probes of other nodes
    #[command(subcommand)]
    Reflector(entry::Command<entry::Reflector>),
    /// Manage the VLAN tables of End.DX2V
    #[command(subcommand)]
    Vlan(entry::Command<entry::Vlan>),
    /// Manage the HMAC keys that sign and verify SRHs
    #[command(subcommand)]
    Hmac(hmac::Command),
    /// Copy packets that have the O-flag
    #[command(subcommand)]
    Oam(oam::Command),
    /// Show the rates of ports, routes, drop and punt reasons and SR policies, live
    Top(top::Args),
    /// Print counters and states in the text format of Prometheus
    Metrics(metrics::Args),
    /// Print changes of ports, routes, policies, services and problems as they happen
    Monitor(monitor::Args),
    /// Run one packet through the live tables and print every step
    Explain(explain_live::Args),
    /// Print packets of the live path step by step
    Trace(trace::Args),
    /// Run a program whose TCP and UDP sockets send through a segment list
    Exec(exec::Args),
    /// Validate a node file
    Check(check::Args),
    /// Run captured packets through the node of a file, without root and interfaces
    Replay(replay::Args),
    /// Print a completion script for a shell
    Completion(completion::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Manual(manual::Args),
    /// Print the possible next words of `route`, `rule`, `policy`, `ether`, `vlan`, `domain`, `path`, `protect`, `reflector` or `trace`
    #[command(hide = true)]
    CompleteWords(completion::WordArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> Outcome {
        if let Some(name) = &self.netns {
            netns::enter(name).map_err(|error| match &self.command {
                // Status 1 of `doctor` means warnings.
                Some(Command::Doctor(_)) => doctor::DoctorError::Failed(error).into(),
                _ => error,
            })?;
        }
        let out: &mut dyn Write = &mut io::BufWriter::new(io::stdout().lock());
        let command = match (&self.command, &self.batch) {
            (Some(command), None) => command,
            (None, Some(file)) => return batch::run(file),
            _ => usage(),
        };
        let outcome = match command {
            Command::Run(args) => run::run(args, out),
            Command::Stop(args) => stop::run(args, out),
            Command::Doctor(args) => doctor::run(args, out),
            Command::Show(args) => show::run(args, out),
            Command::Port(command) => port::run(command, out),
            Command::Config(command) => config::run(command, out),
            Command::Route(command) => command.run(out),
            Command::Rule(command) => command.run(out),
            Command::Policy(command) => command.run(out),
            Command::Ether(command) => command.run(out),
            Command::Domain(command) => command.run(out),
            Command::Path(command) => command.run(out),
            Command::Protect(command) => command.run(out),
            Command::Reflector(command) => command.run(out),
            Command::Vlan(command) => command.run(out),
            Command::Hmac(command) => hmac::run(command, out),
            Command::Oam(command) => oam::run(command, out),
            Command::Top(args) => top::run(args, out),
            Command::Metrics(args) => metrics::run(args, out),
            Command::Monitor(args) => monitor::run(args, out),
            Command::Explain(args) => explain_live::run(args, out),
            Command::Trace(args) => trace::run(args, out),
            Command::Completion(args) => completion::run(args, out),
            Command::Manual(args) => manual::run(args),
            Command::CompleteWords(args) => completion::words(args, out),
            Command::Exec(args) => exec::run(args),
            Command::Check(args) => check::run(args, out),
            Command::Replay(args) => replay::run(args, out),
        };
        outcome.and(out.flush().map_err(Into::into))
    }
}

/// Ends the program, because the command line has neither a command nor a batch file, or both.
fn usage() -> ! {
    let problem = "expected a COMMAND or `--batch FILE`";
    let mut command = <Cli as clap::CommandFactory>::command();
    command
        .error(clap::error::ErrorKind::MissingSubcommand, problem)
        .exit()
}

/// Returns the exit code for an error.
pub fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    if let Some(error) = error.downcast_ref::<exec::ExecError>() {
        return error.exit_code().into();
    }
    if let Some(error) = error.downcast_ref::<config::DiffError>() {
        return error.exit_code().into();
    }
    match error.downcast_ref::<doctor::DoctorError>() {
        Some(error) => error.exit_code().into(),
        None => ExitCode::FAILURE,
    }
}

/// Returns whether the reader of standard output has closed it.
pub fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let stdout = match error.downcast_ref() {
        Some(replay::ReplayError::Stdout(error)) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    stdout.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
