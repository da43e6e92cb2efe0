//! Words of command lines that are refused before anything happens.

use std::process::{Command, Output};

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_limit_that_is_none_is_refused_with_what_is_allowed() {
    for (word, reason) in [
        ("prefixes", "expected TABLE=N"),
        (
            "fib=9",
            "no such table; the tables are prefixes, routes, groups, adjacencies, policies, route-counters",
        ),
        ("routes=1", "the size must be a number from 2 to 16777216"),
    ] {
        let mut command = Command::new(crate::common::program());
        let refused = command.args(["run", "--limit", word, "eth0"]).output();
        let found = error(&refused.expect("it starts"));
        assert!(found.contains(reason), "{found}");
    }
}
