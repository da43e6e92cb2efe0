//! The `sidestep` command: its command tree, and one module for each command.
//!
//! Commands print to standard output, as text or with `-j` as JSON from the same data. Exit codes are stable:
//! 0 success, 1 the operation failed or the file is wrong, 2 wrong usage. `exec` ends as the program that it runs does,
//! or as a shell's: 126 if that cannot be run, 127 if it is not there.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sidestep_control::api::{self, Request};

pub mod check;
pub mod completion;
pub mod domain;
pub mod exec;
pub mod explain;
pub mod explain_live;
pub mod hmac;
pub mod node_file;
pub mod oam;
pub mod policy;
pub mod replay;
pub mod route;
pub mod rule;
pub mod run;
pub mod secret;
pub mod show;
pub mod style;
pub mod tables;
pub mod trace;
pub mod vlan;

/// What a command gives back: nothing, or one line that says what was wrong and where.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Version of Sidestep, followed in parentheses by the commit it was built from, if known.
pub const VERSION: &str = env!("SIDESTEP_VERSION");

/// SRv6 data plane for an unmodified Linux kernel.
#[derive(Debug, Parser)]
#[command(name = "sidestep", version = VERSION, about, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mirror the kernel's configuration and forward on these ports
    Run(run::Args),
    /// End the daemon of this network namespace: detach everything
    Stop,
    /// Show what runs
    Show(show::Args),
    /// Routes that Linux cannot express, and counters of all
    #[command(subcommand)]
    Route(route::Command),
    /// Policy rules of Sidestep's own
    #[command(subcommand)]
    Rule(rule::Command),
    /// SR policies: segment lists by weight, preference and validity
    #[command(subcommand)]
    Policy(policy::Command),
    /// The SR domain whose SIDs are kept from packets of ports outside
    #[command(subcommand)]
    Domain(domain::Command),
    /// VLAN tables of End.DX2V
    #[command(subcommand)]
    Vlan(vlan::Command),
    /// Keys that sign SRHs and verify them
    #[command(subcommand)]
    Hmac(hmac::Command),
    /// Copies of packets with the O-flag at SIDs
    #[command(subcommand)]
    Oam(oam::Command),
    /// Run one frame through the live tables and tell every step
    Explain(explain_live::Args),
    /// Tell packets of the live path step by step, while they are forwarded
    Trace(trace::Args),
    /// Run a program whose TCP and UDP sockets send by way of segments
    Exec(exec::Args),
    /// Validate a node file
    Check(check::Args),
    /// Run captured packets through the node of a file: no root, no interfaces
    Replay(replay::Args),
    /// Print a completion script for a shell
    Completion(completion::Args),
    /// Print what may come next on a line of `route`, `rule`, `policy`, `vlan`, `domain` or `trace`
    #[command(hide = true)]
    CompleteWords(completion::WordArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> Outcome {
        let out: &mut dyn Write = &mut io::BufWriter::new(io::stdout().lock());
        let outcome = match &self.command {
            Command::Run(args) => run::run(args, out),
            Command::Stop => api::call(Request::Stop).map(|_| ()).map_err(Into::into),
            Command::Show(args) => show::run(args, out),
            Command::Route(command) => route::run(command, out),
            Command::Rule(command) => rule::run(command, out),
            Command::Policy(command) => policy::run(command, out),
            Command::Domain(command) => domain::run(command, out),
            Command::Vlan(command) => vlan::run(command, out),
            Command::Hmac(command) => hmac::run(command, out),
            Command::Oam(command) => oam::run(command, out),
            Command::Explain(args) => explain_live::run(args, out),
            Command::Trace(args) => trace::run(args, out),
            Command::Completion(args) => completion::run(args, out),
            Command::CompleteWords(args) => completion::words(args, out),
            Command::Exec(args) => exec::run(args),
            Command::Check(args) => check::run(args, out),
            Command::Replay(args) => replay::run(args, out),
        };
        outcome.and(out.flush().map_err(Into::into))
    }
}

/// How the process ends that could not do what it was asked for.
pub fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    match error.downcast_ref::<exec::ExecError>() {
        Some(error) => error.exit_code().into(),
        None => ExitCode::FAILURE,
    }
}

/// Standard output was closed by its reader.
pub fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let stdout = match error.downcast_ref() {
        Some(replay::ReplayError::Stdout(error)) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    stdout.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
