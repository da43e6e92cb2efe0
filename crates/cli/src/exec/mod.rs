//! `sidestep exec`: runs a program whose TCP and UDP sockets send by way of segments.
//!
//! The program takes the place of this process, so its exit code, its signals and its terminal are its own. It loads the
//! preload library (`crates/socket`) from memory: a file without a name that stays open in it, under a path that the
//! programs it starts can open, too.

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
pub use program::{Kind, Unfit, kind};

/// Descriptors from here on are rarely what a script or an inherited socket uses.
const DESCRIPTOR: i32 = 200;
const PRELOAD: &str = "LD_PRELOAD";

/// Arguments of `exec`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Segments in the order of travel; each packet's destination comes after the last
    #[arg(long, value_name = "A,B,...", required = true, value_delimiter = ',')]
    pub segs: Vec<Ipv6Addr>,
    /// Sign with this key of `ip sr hmac`
    #[arg(long, value_name = "KEYID", value_parser = clap::value_parser!(u32).range(1..))]
    pub hmac: Option<u32>,
    /// Only what is sent to this prefix; can be repeated
    #[arg(long, value_name = "PREFIX")]
    pub to: Vec<Ipv6Net>,
    /// The program, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Why a program was not started.
#[derive(Debug, Error)]
pub enum ExecError {
    /// There is no such program.
    #[error("{}: no such program", .0.display())]
    NotFound(PathBuf),
    /// It is there, and cannot be run.
    #[error("{}: {source}", path.display())]
    CannotRun {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It could be run, but its sockets would not get the segments.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why.
        why: Unfit,
    },
}

impl ExecError {
    /// The shell's exit codes: 127 for what is not found, 126 for what is and cannot be run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::CannotRun { .. } | Self::Unfit { .. } => 126,
        }
    }
}

/// Runs the command. Comes back only if the program was not started.
pub fn run(args: &Args) -> Outcome {
    if args.to.len() > PREFIXES_MAX {
        return Err(format!("--to: {} prefixes; at most {PREFIXES_MAX}", args.to.len()).into());
    }
    let header = Header::new(&args.segs, args.hmac)?;
    // What the kernel would refuse is said here, and not by each socket of the program.
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
    // Others keep their place behind ours.
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

/// The library in memory, for whoever runs in this process after us. Nobody can change it.
fn library() -> Result<OwnedFd, Box<dyn std::error::Error + Send + Sync>> {
    let file = memfd_create(c"sidestep-exec", MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(LIBRARY)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    // Where fewer descriptors are allowed, any will do.
    let Ok(moved) = fcntl(&file, FcntlArg::F_DUPFD(DESCRIPTOR)) else {
        return Ok(file.into());
    };
    // SAFETY: a descriptor that was made right now, and is nobody else's.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(moved) })
}

/// As text, for messages.
fn shown(path: &OsStr) -> String {
    path.to_string_lossy().into_owned()
}
