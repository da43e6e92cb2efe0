//! Checks of the configuration that decides whether packets are forwarded: `sidestep doctor`, `show
//! status`, and the daemon's log.
//!
//! A check is a function from [`Facts`] to problems. It reads nothing itself, so that tests feed it
//! facts. [`facts`] collects them. Each family of checks has a file.

mod bypass;
pub mod facts;
mod fpm;
pub mod offline;
mod ports;
mod routes;
mod sysctls;
mod system;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use self::facts::Facts;
pub use self::offline::Plan;
pub use self::system::other_version;
use crate::report::{Problem, Severity};

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Stable name.
    pub name: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Condition that the check looks for.
    pub meaning: &'static str,
}

impl Code {
    const fn error(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Severity::Error, meaning)
    }

    const fn warning(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Severity::Warning, meaning)
    }

    const fn note(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Severity::Note, meaning)
    }

    const fn new(name: &'static str, severity: Severity, meaning: &'static str) -> Self {
        Self {
            name,
            severity,
            meaning,
        }
    }

    /// Returns a problem of this kind, with the command that repairs it.
    fn problem(self, sentence: impl Into<String>, repair: impl Into<String>) -> Problem {
        Problem {
            repair: Some(repair.into()),
            ..self.without_command(sentence)
        }
    }

    /// Returns a problem of this kind that no single command repairs.
    fn without_command(self, sentence: impl Into<String>) -> Problem {
        Problem {
            severity: self.severity,
            code: self.name.into(),
            sentence: sentence.into(),
            repair: None,
        }
    }
}

/// A family of checks: its codes, and the function that finds them.
struct Family {
    codes: &'static [Code],
    check: fn(&Facts<'_>) -> Vec<Problem>,
}

const FAMILIES: [Family; 7] = [
    sysctls::FAMILY,
    ports::FAMILY,
    bypass::FAMILY,
    routes::FAMILY,
    tables::FAMILY,
    system::FAMILY,
    fpm::FAMILY,
];

/// Returns all codes, family by family.
pub fn codes() -> impl Iterator<Item = &'static Code> {
    FAMILIES.iter().flat_map(|family| family.codes)
}

/// Returns the problems of these facts, errors first.
pub fn examine(facts: &Facts<'_>) -> BTreeSet<Problem> {
    FAMILIES
        .iter()
        .flat_map(|family| (family.check)(facts))
        .collect()
}

/// Name of a sysctl of an interface, as sysctl(8) takes it. A dot in the name of the interface
/// would otherwise separate.
fn sysctl(family: &str, name: &str, setting: &str) -> String {
    if name.contains('.') {
        format!("net/{family}/conf/{name}/{setting}")
    } else {
        format!("net.{family}.conf.{name}.{setting}")
    }
}
