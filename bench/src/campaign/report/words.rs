//! Names of cases, made of the properties that differ within their group.

use std::collections::BTreeSet;

use crate::engine::{Case, Flows, Size, behavior};

use crate::campaign::file::Find;
use crate::result::{Axis, Scale};

/// Returns the name of a metric.
pub fn find(find: Find) -> &'static str {
    match find {
        Find::Pdr => "PDR",
        Find::Ndr => "NDR",
        Find::Mrr => "MRR",
        Find::Curve => "curve",
        Find::Latency => "latency",
    }
}

/// Returns the name of a behavior as in the RFCs. A campaign of another version may contain unknown
/// values.
pub fn title(behavior: &str) -> String {
    behavior::kind(behavior).map_or_else(|_| behavior.to_owned(), |kind| kind.title.to_owned())
}

/// Describes the traffic of a case.
pub fn sent(case: &Case) -> String {
    let flows = flows(case.flows);
    match case.cores {
        1 => format!("{}, {flows}", size(case.size)),
        cores => format!("{}, {flows}, {cores} cores", size(case.size)),
    }
}

/// Describes a share of the PDR of the same run.
pub fn of_pdr(share: f64) -> String {
    format!("{:.0} % of PDR", share * 100.0)
}

/// Axis positions of the cases of a group. The axis is numeric if only one number differs;
/// otherwise each case is a category.
pub struct Places<'a> {
    cases: &'a [&'a Case],
    number: Option<Number>,
}

/// Name, unit, and a function that returns this parameter of a case as a number.
type Number = (&'static str, &'static str, fn(&Case) -> Option<f64>);

const NUMBERS: [Number; 5] = [
    ("segments", "", |case| Some(case.sids.into())),
    ("size of the packets", "bytes", |case| match case.size {
        Size::Bytes(bytes) => Some(bytes.into()),
        Size::Imix => None,
    }),
    ("rules before the one that matches", "", |case| {
        Some(case.rules.into())
    }),
    ("routes in addition to the one that matches", "", |case| {
        Some(case.routes.into())
    }),
    ("cores", "", |case| Some(case.cores.into())),
];

/// Minimum number of positions for a line.
const LINE: usize = 3;

impl<'a> Places<'a> {
    pub fn of(cases: &'a [&'a Case]) -> Self {
        let behaviors: BTreeSet<_> = cases
            .iter()
            .map(|case| (&case.behavior, case.flows))
            .collect();
        let mut numbers = NUMBERS.into_iter().filter(|(_, _, number)| {
            let all: Option<Vec<f64>> = cases.iter().map(|case| number(case)).collect();
            all.is_some_and(|mut all| {
                all.sort_by(f64::total_cmp);
                all.dedup();
                all.len() == cases.len() && all.len() >= LINE
            })
        });
        Self {
            cases,
            number: numbers.next().filter(|_| behaviors.len() == 1),
        }
    }

    pub fn is_line(&self) -> bool {
        self.number.is_some()
    }

    pub fn axis(&self) -> Axis {
        if let Some((name, unit, _)) = self.number {
            return Axis::linear(name, unit);
        }
        let words = self.cases.iter().map(|case| self.label(case)).collect();
        Axis::new("case", "", Scale::Categories(words))
    }

    /// Returns the axis position of a case.
    pub fn at(&self, case: &Case) -> f64 {
        let number = self.number.and_then(|(_, _, number)| number(case));
        number.unwrap_or_else(|| {
            let index = self.cases.iter().position(|other| *other == case);
            index.unwrap_or_default() as f64
        })
    }

    /// Returns the behavior's name as in the RFCs, and the properties that differ within the group.
    pub fn label(&self, case: &Case) -> String {
        self.named(case, title(&case.behavior))
    }

    /// Returns the same as part of a file name, with the behavior's name as in campaigns.
    pub fn slug(&self, case: &Case) -> String {
        slug(&self.named(case, case.behavior.clone()))
    }

    fn named(&self, case: &Case, behavior: String) -> String {
        let differs = |of: fn(&Case) -> String| {
            let words: BTreeSet<String> = self.cases.iter().map(|case| of(case)).collect();
            (words.len() > 1).then(|| of(case))
        };
        // A behavior without segments has no variants with another number of segments.
        let numbers: BTreeSet<u32> = self.cases.iter().map(|case| case.sids).collect();
        let several = numbers.into_iter().filter(|sids| *sids > 0).count() > 1;
        let sids = (several && case.sids > 0).then(|| counted(case.sids, "SID", "SIDs"));
        let more = [
            sids,
            differs(|case| size(case.size)),
            differs(|case| flows(case.flows)),
            differs(|case| counted(case.rules, "rule", "rules")),
            differs(|case| counted(case.routes, "route", "routes")),
            differs(|case| counted(case.cores, "core", "cores")),
        ];
        let words = std::iter::once(behavior).chain(more.into_iter().flatten());
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Converts a text to a file name.
pub fn slug(text: &str) -> String {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let words: String = text.chars().map(plain).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-")
}

fn size(size: Size) -> String {
    match size {
        Size::Bytes(bytes) => format!("{bytes} bytes"),
        Size::Imix => "IMIX".into(),
    }
}

fn flows(flows: Flows) -> String {
    match flows {
        Flows::Uniform(count) => counted(count, "flow", "flows"),
        Flows::Zipf(count) => format!("{count} flows by Zipf"),
    }
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
