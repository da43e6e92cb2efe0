//! Checks of table sizes.

use sidestep_datapath::Limits;

use super::facts::Facts;
use super::{Code, Family};
use crate::report::{Limit, Problem};

const TABLE_FULL: Code = Code::error(
    "table_full",
    "a table is full: Linux forwards what does not fit",
);
const TABLE_NEARLY_FULL: Code =
    Code::warning("table_nearly_full", "nine tenths of a table are in use");

pub(super) const FAMILY: Family = Family {
    codes: &[TABLE_FULL, TABLE_NEARLY_FULL],
    check,
};

fn check(facts: &Facts<'_>) -> Vec<Problem> {
    let Some(daemon) = &facts.daemon else {
        return Vec::new();
    };
    let grow = |limit: &Limit| {
        let option = limit.name.replace(' ', "-");
        Limits::default().size(&option)?;
        Some(facts.restart(&format!("--limit {option}={}", limit.limit * 2)))
    };
    let of_table = |code: Code, sentence: String, limit: Option<&Limit>| match limit.and_then(grow)
    {
        Some(repair) => code.problem(sentence, repair),
        None => code.without_command(sentence),
    };
    let full = daemon.full.iter().map(|(table, sentence)| {
        let limit = daemon.limits.iter().find(|limit| limit.name == *table);
        of_table(TABLE_FULL, sentence.clone(), limit)
    });
    let nearly = |limit: &&Limit| {
        let used = limit.used.unwrap_or_default();
        let is_full = daemon.full.iter().any(|(table, _)| *table == limit.name);
        !is_full && limit.limit > 1 && used * 10 >= limit.limit * 9
    };
    let nearly = daemon.limits.iter().filter(nearly).map(|limit| {
        let sentence = format!("{}: nine tenths of {} are in use", limit.name, limit.limit);
        of_table(TABLE_NEARLY_FULL, sentence, Some(limit))
    });
    full.chain(nearly).collect()
}
