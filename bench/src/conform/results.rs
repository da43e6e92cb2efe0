//! The results of an engine, by clause.

use std::collections::BTreeMap;

use serde::Serialize;
use sidestep_testkit::vectors::Case;

use super::judge::Finding;

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the case, which is unique.
    pub name: String,
    /// Vector file without `.yaml`.
    pub group: String,
    /// Clauses: RFC, section, line.
    pub rfc: Vec<String>,
    /// `pass`, `fail` or `not_supported`.
    pub result: &'static str,
    /// Difference, or reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Outcome {
    /// The outcome of a case of this group.
    pub fn new(group: &str, case: &Case, finding: Finding) -> Self {
        let (result, why) = match finding {
            Finding::Pass => ("pass", String::new()),
            Finding::Fail(why) => ("fail", why),
            Finding::NotSupported(why) => ("not_supported", why),
        };
        Self {
            name: case.name.clone(),
            group: group.to_owned(),
            rfc: case.rfc.clone(),
            result,
            why,
        }
    }
}

/// Number of cases by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Right.
    pub passes: usize,
    /// Wrong.
    pub fails: usize,
    /// Without the configuration that they need.
    pub not_supported: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        match outcome.result {
            "pass" => self.passes += 1,
            "fail" => self.fails += 1,
            _ => self.not_supported += 1,
        }
    }
}

/// All results of one engine.
#[derive(Clone, Debug)]
pub struct Results {
    /// Name of the engine.
    pub engine: String,
    /// Its version, its mode, the kernel.
    pub facts: BTreeMap<String, String>,
    /// The cases, in the order of the files.
    pub outcomes: Vec<Outcome>,
    /// Cases that were left out: they end at the operating system, or exceed the link.
    pub left: usize,
}

/// The results as JSON.
#[derive(Serialize)]
struct Record<'a> {
    format: u32,
    engine: &'a str,
    facts: &'a BTreeMap<String, String>,
    total: Count,
    left_out: usize,
    clauses: BTreeMap<String, Count>,
    cases: &'a [Outcome],
}

impl Results {
    /// No results yet.
    pub fn new(engine: &str, facts: BTreeMap<String, String>) -> Self {
        Self {
            engine: engine.to_owned(),
            facts,
            outcomes: vec![],
            left: 0,
        }
    }

    /// All cases together.
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.outcomes.iter().for_each(|it| total.add(it));
        total
    }

    /// The cases of each clause `RFC SECTION`, in numerical order. A case counts at each clause that
    /// it cites.
    pub fn clauses(&self) -> Vec<(String, Count)> {
        let mut clauses: BTreeMap<(Vec<u32>, String), Count> = BTreeMap::new();
        for outcome in &self.outcomes {
            for cited in &outcome.rfc {
                let clause: Vec<&str> = cited.split(' ').take(2).collect();
                let clause = clause.join(" ");
                let numbers = clause.split(|c: char| !c.is_ascii_digit());
                let numbers = numbers.filter_map(|number| number.parse().ok()).collect();
                clauses.entry((numbers, clause)).or_default().add(outcome);
            }
        }
        let named = |((_, clause), count)| (clause, count);
        clauses.into_iter().map(named).collect()
    }

    /// The results as JSON.
    ///
    /// # Errors
    /// None in practice: every value can be written.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Record {
            format: 1,
            engine: &self.engine,
            facts: &self.facts,
            total: self.total(),
            left_out: self.left,
            clauses: self.clauses().into_iter().collect(),
            cases: &self.outcomes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rfc: &[&str], result: &'static str) -> Outcome {
        Outcome {
            name: "one".into(),
            group: "few".into(),
            rfc: rfc.iter().map(|&it| it.to_owned()).collect(),
            result,
            why: String::new(),
        }
    }

    #[test]
    fn a_case_counts_at_each_of_its_clauses_in_numerical_order() {
        let mut results = Results::new("any", BTreeMap::new());
        results.outcomes = vec![
            outcome(&["8986 4.13 S02", "8754 2.1"], "pass"),
            outcome(&["8986 4.2 S01"], "fail"),
            outcome(&["8986 4.2"], "not_supported"),
            outcome(&["791 3.1"], "pass"),
        ];
        let clauses = results.clauses();
        let names: Vec<&str> = clauses.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["791 3.1", "8754 2.1", "8986 4.2", "8986 4.13"]);
        let both = Count {
            passes: 0,
            fails: 1,
            not_supported: 1,
        };
        assert_eq!(clauses[2].1, both);
        assert_eq!((results.total().passes, results.total().fails), (2, 1));
    }
}
