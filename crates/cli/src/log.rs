//! The daemon's log: lines on standard error. In the journal they have priorities.

use std::io::stderr;

use nix::sys::stat::fstat;
use sidestep_control::report::Severity;

/// Log of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Standard error is the journal, which takes priorities as a prefix (sd-daemon(3)).
    is_journal: bool,
}

impl Log {
    /// Returns the log on standard error.
    pub fn open() -> Self {
        let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let is_journal =
            fstat(stderr()).is_ok_and(|file| journal == format!("{}:{}", file.st_dev, file.st_ino));
        Self { is_journal }
    }

    /// Writes a line.
    pub fn line(self, severity: Severity, text: &str) {
        eprintln!("{}sidestep: {text}", self.prefix(severity));
    }

    fn prefix(self, severity: Severity) -> &'static str {
        match severity {
            _ if !self.is_journal => "",
            Severity::Error => "<3>",
            Severity::Warning => "<4>",
            Severity::Note => "<6>",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_priorities_in_the_journal_only() {
        let prefixes = |is_journal| {
            let severities = [Severity::Error, Severity::Warning, Severity::Note];
            severities.map(|severity| Log { is_journal }.prefix(severity))
        };
        assert_eq!(prefixes(true), ["<3>", "<4>", "<6>"]);
        assert_eq!(prefixes(false), [""; 3]);
    }
}
