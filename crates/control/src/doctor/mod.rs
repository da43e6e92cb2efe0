//! Checks of the configuration that decides whether packets are forwarded: `sidestep doctor`, `show
//! status`, and the daemon's log.
//!
//! A check is a function from [`Facts`] to problems. It reads nothing itself, so that tests feed it
//! facts. [`facts`] collects them. Each family of checks has a file.

mod bypass;
mod ether;
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

use std::collections::{BTreeMap, BTreeSet};

pub use self::facts::Facts;
pub use self::offline::{Checked, Plan};
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
        Problem::new(self.severity, self.name, sentence)
    }
}

/// Number of findings with one cause, up to which each is a problem of its own, and number of the
/// examples of more findings.
const EXAMPLES: usize = 3;

/// Findings with one cause: their number, and the first of them.
struct Group<T> {
    first: Vec<T>,
    count: usize,
}

impl<T> Group<T> {
    fn of(findings: impl Iterator<Item = T>, facts: &Facts<'_>) -> Self {
        let mut group = Self {
            first: Vec::new(),
            count: 0,
        };
        findings.for_each(|finding| group.add(finding, facts));
        group
    }

    fn add(&mut self, finding: T, facts: &Facts<'_>) {
        self.count += 1;
        if self.count <= EXAMPLES || facts.separate {
            self.first.push(finding);
        }
    }

    /// Returns a problem for each finding, or one for many. `all` is its sentence.
    fn problems(
        self,
        facts: &Facts<'_>,
        code: Code,
        all: impl Into<String>,
        name: impl Fn(&T) -> String,
        one: impl Fn(&T) -> Problem,
    ) -> Vec<Problem> {
        if self.count <= EXAMPLES || facts.separate {
            return self.first.iter().map(one).collect();
        }
        let has_repair = self
            .first
            .iter()
            .any(|finding| one(finding).repair.is_some());
        let problem = Problem {
            count: self.count as u64,
            examples: self.first.iter().map(name).collect(),
            repair: all_repairs(facts, code.name).filter(|_| has_repair),
            ..code.without_command(all)
        };
        vec![problem]
    }
}

/// Returns the command that repairs all findings of a kind.
fn all_repairs(facts: &Facts<'_>, code: &str) -> Option<String> {
    let daemon = facts.daemon.as_ref();
    daemon.map(|_| format!("sidestep doctor --repairs {code} | sh"))
}

/// A family of checks: its codes, and the function that finds them.
struct Family {
    codes: &'static [Code],
    check: fn(&Facts<'_>) -> Vec<Problem>,
}

const FAMILIES: [Family; 8] = [
    sysctls::FAMILY,
    ports::FAMILY,
    bypass::FAMILY,
    routes::FAMILY,
    tables::FAMILY,
    system::FAMILY,
    fpm::FAMILY,
    ether::FAMILY,
];

/// Returns all codes, family by family.
pub fn codes() -> impl Iterator<Item = &'static Code> {
    FAMILIES.iter().flat_map(|family| family.codes)
}

/// Returns the problems of these facts, errors first.
pub fn examine(facts: &Facts<'_>) -> BTreeSet<Problem> {
    let mut found: BTreeMap<&str, Vec<Problem>> = BTreeMap::new();
    for family in FAMILIES {
        for problem in (family.check)(facts) {
            let code = family.codes.iter().find(|code| code.name == problem.code);
            let code = code.expect("a code of the family");
            found.entry(code.name).or_default().push(problem);
        }
    }
    let of_code = |(name, problems)| {
        let code = codes().find(|code| code.name == name);
        bounded(facts, *code.expect("a code"), problems)
    };
    found.into_iter().flat_map(of_code).collect()
}

/// Returns the problems of a kind, or one for many: its sentence is the meaning of the kind.
fn bounded(facts: &Facts<'_>, code: Code, mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_unstable();
    problems.dedup();
    if problems.len() <= EXAMPLES || facts.separate {
        return problems;
    }
    let has_repair = problems.iter().any(|problem| problem.repair.is_some());
    let first = problems.iter().take(EXAMPLES);
    vec![Problem {
        count: problems.iter().map(|problem| problem.count).sum(),
        examples: first.map(|problem| problem.sentence.clone()).collect(),
        repair: all_repairs(facts, code.name).filter(|_| has_repair),
        ..code.without_command(code.meaning)
    }]
}

/// Returns the repairs of all findings of a kind.
pub fn repairs(facts: &Facts<'_>, code: &str) -> Vec<String> {
    let families = FAMILIES.iter();
    let family = families
        .into_iter()
        .find(|family| family.codes.iter().any(|it| it.name == code));
    let found = family.map_or_else(Vec::new, |family| (family.check)(facts));
    let of_code = found.into_iter().filter(|problem| problem.code == code);
    of_code.filter_map(|problem| problem.repair).collect()
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
