//! The results of several engines as one self-contained page.

use maud::html;

use super::results::{Count, Results};
use crate::report::html::document;

/// LIMIT: failed cases with their bytes, of each engine.
const SHOWN: usize = 200;

/// Returns the page. The engines had the same cases, so they have the same clauses.
pub fn page(all: &[Results]) -> String {
    let cell = |count: Count| match count.passes + count.fails {
        0 => "not supported".to_owned(),
        asked => format!("{} of {asked}", count.passes),
    };
    let columns: Vec<_> = all.iter().map(Results::clauses).collect();
    let clauses = columns.first().map_or(&[][..], |column| column);
    let body = html! {
        header {
            h1 { "SRv6 conformance" }
            p {
                "Packets with the bytes that the RFCs ask for, sent through each engine. A case counts "
                "at every clause that it cites."
            }
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
                        @for (row, (clause, _)) in clauses.iter().enumerate() {
                            tr { td { (clause) } @for column in &columns { td { (cell(column[row].1)) } } }
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
    };
    document("SRv6 conformance", &body)
}
