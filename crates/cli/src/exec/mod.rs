//! `sidestep exec`: runs a program whose TCP and UDP sockets send through a segment list.
//!
//! The program replaces this process and keeps its terminal, signals and exit code. It loads the
//! preload library (`crates/socket`) from an anonymous file that stays open. Programs that it
//! starts can open the file too.

mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use ipnet::Ipv6Net;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sidestep_socket::exec::{LIBRARY, Options, PREFIXES_MAX, VARIABLE};
use sidestep_socket::{Header, SegmentsError};
use thiserror::Error;

use crate::Outcome;
use crate::number::number;
pub use program::{Kind, Unfit, kind};

/// First descriptor for the library. Scripts and inherited sockets rarely use numbers this high.
const DESCRIPTOR: i32 = 200;
const PRELOAD: &str = "LD_PRELOAD";

/// Arguments of `exec`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Segments in order of travel; the destination of each packet follows the last one
    #[arg(long, value_name = "A,B,...", required = true, value_delimiter = ',')]
    pub segs: Vec<Ipv6Addr>,
    /// Sign with this key of `ip sr hmac`
    #[arg(long, value_name = "KEYID", allow_negative_numbers = true, value_parser = number(1..=u32::MAX))]
    pub hmac: Option<u32>,
    /// Only for packets to this prefix; can be repeated
    #[arg(long, value_name = "PREFIX")]
    pub to: Vec<Ipv6Net>,
    /// Program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Error that prevents the start of a program.
#[derive(Debug, Error)]
pub enum ExecError {
    /// The program is not found.
    #[error("{}: no such program", .0.display())]
    NotFound(PathBuf),
    /// The program cannot be executed.
    #[error("{}: {source}", path.display())]
    CannotRun {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The program can be executed, but the library cannot act on its sockets.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Reason.
        why: Unfit,
    },
}

impl ExecError {
    /// Returns the exit code that a shell uses: 127 for not found, 126 for not executable.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::CannotRun { .. } | Self::Unfit { .. } => 126,
        }
    }
}

/// Runs the command. Returns only if the program was not started.
pub fn run(args: &Args) -> Outcome {
    if args.to.len() > PREFIXES_MAX {
        return Err(format!("--to: {} prefixes; at most {PREFIXES_MAX}", args.to.len()).into());
    }
    let header = Header::new(&args.segs, args.hmac)?;
    // If the kernel refuses the header, the error appears here and not at each socket of the
    // program.
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    header.apply(&socket).map_err(SegmentsError::from)?;
    drop(socket);

    let (name, words) = args.command.split_first().ok_or("no program")?;
    let path = program::find(name, env::var_os("PATH").as_deref())?;
    program::check(&path)?;
    let options = Options {
        segments: args.segs.clone(),
        hmac: args.hmac,
        to: args.to.clone(),
    };
    let library = library()?;
    let mut preload = OsString::from(format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        library.as_raw_fd()
    ));
    // Other libraries stay, after this one.
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let source = Command::new(&path)
        .arg0(name)
        .args(words)
        .env(PRELOAD, preload)
        .env(VARIABLE, options.to_string())
        .exec();
    Err(ExecError::CannotRun { path, source }.into())
}

/// Returns the library as a sealed file in memory, which stays open across exec.
fn library() -> Result<OwnedFd, Box<dyn std::error::Error + Send + Sync>> {
    let file = memfd_create(c"sidestep-exec", MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(LIBRARY)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    // With a lower limit on descriptors, any number will do.
    let Ok(moved) = fcntl(&file, FcntlArg::F_DUPFD(DESCRIPTOR)) else {
        return Ok(file.into());
    };
    // SAFETY: fcntl has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(moved) })
}

/// Formats a path for messages.
fn shown(path: &OsStr) -> String {
    path.to_string_lossy().into_owned()
}
