//! The results of several engines as one self-contained page.

use std::collections::BTreeMap;

use maud::{DOCTYPE, PreEscaped, html};

use super::results::{Count, Results};

/// Layout.
const STYLE: &str = include_str!("../report/style.css");
/// LIMIT: failed cases with their bytes, of each engine.
const SHOWN: usize = 200;

/// Returns the page.
pub fn page(all: &[Results]) -> String {
    let clauses = clauses(all);
    let cells = |count: Option<&Count>| match count {
        None => String::new(),
        Some(count) if count.fails == 0 && count.passes == 0 => "not supported".to_owned(),
        Some(count) => format!("{} of {}", count.passes, count.passes + count.fails),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "SRv6 conformance" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "SRv6 conformance" }
                    p { "Packets with the bytes that the RFCs ask for, sent through each engine. A case "
                        "counts at every clause that it cites." }
                }
                main {
                    section {
                        h2 { "Engines" }
                        table {
                            thead { tr { th { "Engine" } th { "Passes" } th { "Fails" } th { "Not supported" } th { "About" } } }
                            tbody {
                                @for results in all {
                                    @let total = results.total();
                                    tr {
                                        td { (results.engine) }
                                        td { (total.passes) } td { (total.fails) } td { (total.not_supported) }
                                        td { @for (name, value) in &results.facts { (name) " " (value) "; " } }
                                    }
                                }
                            }
                        }
                    }
                    section {
                        h2 { "Clauses" }
                        table {
                            thead { tr { th { "RFC, section" } @for results in all { th { (results.engine) } } } }
                            tbody {
                                @for (clause, counts) in &clauses {
                                    tr { td { (clause) } @for count in counts { td { (cells(count.as_ref())) } } }
                                }
                            }
                        }
                    }
                    @for results in all {
                        section {
                            h2 { "Failed: " (results.engine) }
                            @for case in results.outcomes.iter().filter(|it| it.result == "fail").take(SHOWN) {
                                details {
                                    summary { (case.name) " (" (case.rfc.join(", ")) ")" }
                                    pre { (case.why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// The clauses in order, each with the counts of the engines.
fn clauses(all: &[Results]) -> Vec<(String, Vec<Option<Count>>)> {
    let mut order: Vec<String> = Vec::new();
    let mut counts: BTreeMap<String, Vec<Option<Count>>> = BTreeMap::new();
    for (at, results) in all.iter().enumerate() {
        for (clause, count) in results.clauses() {
            let row = counts.entry(clause.clone()).or_insert_with(|| {
                order.push(clause);
                vec![None; all.len()]
            });
            row[at] = Some(count);
        }
    }
    let row = |clause: String| {
        let counts = counts.remove(&clause).unwrap_or_default();
        (clause, counts)
    };
    order.into_iter().map(row).collect()
}
