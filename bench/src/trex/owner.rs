//! Owner name of a port in TRex. It identifies process and machine, so that the next process can
//! detect ports of a dead one.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process that measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of its machine.
    pub host: String,
    /// Its id.
    pub process: u32,
}

impl Owner {
    /// Returns the owner for this process.
    pub fn this() -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            host: host.trim_end().to_owned(),
            process: std::process::id(),
        }
    }

    /// Parses an owner name. `None` if it is not from this program.
    pub fn of(name: &str) -> Option<Self> {
        let (host, process) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        Some(Self {
            host: host.to_owned(),
            process: process.parse().ok()?,
        })
    }

    /// Returns whether the owner was a process of this machine that has ended.
    pub fn is_dead_here(&self) -> bool {
        let runs = || Path::new("/proc").join(self.process.to_string()).exists();
        self.host == Self::this().host && !runs()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}", self.host, self.process)
    }
}

const PREFIX: &str = "sidestep-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_of_this_machine_is_recognized() {
        let this = Owner::this();
        assert_eq!(Owner::of(&this.to_string()), Some(this.clone()));
        assert!(!this.is_dead_here());
        let mut child = std::process::Command::new("true").spawn().expect("true");
        child.wait().expect("it ends");
        let dead = Owner {
            process: child.id(),
            ..this
        };
        assert!(dead.is_dead_here());
        let elsewhere = Owner {
            host: "another-host".into(),
            ..dead
        };
        let name = elsewhere.to_string();
        assert_eq!(Owner::of(&name), Some(elsewhere.clone()));
        assert!(!elsewhere.is_dead_here());
        assert_eq!(Owner::of("somebody"), None);
    }
}
