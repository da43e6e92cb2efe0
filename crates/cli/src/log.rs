//! The daemon's log: lines on standard error. In the journal they have priorities, in the file of a
//! detached daemon times.

use std::fs::{self, File, OpenOptions};
use std::io::{self, stderr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{dup2_stderr, dup2_stdout};
use sidestep_control::api::run_directory;
use sidestep_control::report::Severity;

/// LIMIT: bytes of the log file. Then it becomes the former file, and a new one begins.
const FILE_MAX: u64 = 512 << 10;
/// Name of the log file in the directory of the daemon.
const FILE: &str = "log";
/// Name of the former log file.
const FORMER: &str = "log.1";

/// Log of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The journal takes priorities as a prefix (sd-daemon(3)), and has times of its own.
    Journal,
    /// The file of a detached daemon.
    File,
    /// A terminal, or what standard error was redirected to.
    Plain,
}

impl Log {
    /// Returns the log on standard error.
    pub fn open() -> Self {
        let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let Ok(file) = fstat(stderr()) else {
            return Self::Plain;
        };
        let is_regular = SFlag::from_bits_truncate(file.st_mode).contains(SFlag::S_IFREG);
        if journal == format!("{}:{}", file.st_dev, file.st_ino) {
            Self::Journal
        } else if is_regular && path().is_some_and(|path| path.starts_with(run_directory())) {
            Self::File
        } else {
            Self::Plain
        }
    }

    /// Writes a line.
    pub fn line(self, severity: Severity, text: &str) {
        if self == Self::File {
            // Without a new file, the old one gets the line.
            let _ = renew();
        }
        eprintln!("{}", self.format(severity, text, SystemTime::now()));
    }

    fn format(self, severity: Severity, text: &str, now: SystemTime) -> String {
        let priority = match severity {
            Severity::Error => 3,
            Severity::Warning => 4,
            Severity::Note => 6,
        };
        match self {
            Self::Journal => format!("<{priority}>sidestep: {text}"),
            Self::Plain => format!("sidestep: {text}"),
            Self::File => {
                let (time, name) = (humantime::format_rfc3339_seconds(now), severity.name());
                let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(text);
                format!("{time} {name:<7} {text}")
            }
        }
    }
}

/// Returns a line of the log file without its time and severity.
pub fn text(line: &str) -> &str {
    let mut words = line.splitn(2, ' ');
    let time = words.next().unwrap_or_default();
    match (humantime::parse_rfc3339(time), words.next()) {
        (Ok(_), Some(rest)) => rest
            .split_once(' ')
            .map_or(rest, |(_, text)| text.trim_start()),
        _ => line,
    }
}

/// Path of the file that standard error is.
fn path() -> Option<PathBuf> {
    fs::read_link("/proc/self/fd/2").ok()
}

/// Begins a new file if the present one is full or was removed. `sidestep run --detach` gives the
/// file its name when the daemon forwards; until then it stays.
fn renew() -> io::Result<()> {
    let metadata = fstat(stderr())?;
    let is_removed = metadata.st_nlink == 0;
    let file = run_directory().join(FILE);
    let is_named = path().is_some_and(|path| path == file);
    let is_full = is_named && metadata.st_size as u64 > FILE_MAX;
    if !is_removed && !is_full {
        return Ok(());
    }
    if is_full {
        keep_former(&file)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(&file)?;
    redirect(&file)
}

/// Keeps a log file as the former one.
///
/// # Errors
/// The file exists and cannot be renamed.
pub fn keep_former(file: &Path) -> io::Result<()> {
    match fs::rename(file, file.with_file_name(FORMER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn redirect(file: &File) -> io::Result<()> {
    dup2_stdout(file.as_fd())?;
    dup2_stderr(file.as_fd())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_priorities_in_the_journal_and_times_in_a_file() {
        let now = SystemTime::UNIX_EPOCH;
        let text = "warning: port_down: port eth1 is down";
        for (log, expected) in [
            (
                Log::Journal,
                "<4>sidestep: warning: port_down: port eth1 is down",
            ),
            (
                Log::Plain,
                "sidestep: warning: port_down: port eth1 is down",
            ),
            (
                Log::File,
                "1970-01-01T00:00:00Z warning port_down: port eth1 is down",
            ),
        ] {
            assert_eq!(log.format(Severity::Warning, text, now), expected);
        }
        let line = Log::File.format(Severity::Note, "forwarding on eth0", now);
        assert_eq!(line, "1970-01-01T00:00:00Z note    forwarding on eth0");
        assert_eq!(super::text(&line), "forwarding on eth0");
        assert_eq!(super::text("sidestep: port x"), "sidestep: port x");
    }
}
