//! `sidestep-bench converge`: packets move with the kernel's routes, and a refused name is told.

use sidestep_bench::result::{Cell, Report};
use sidestep_testkit::root_or_skip;

use crate::program::{bench, router, stderr};

#[test]
fn unknown_changes_and_engines_are_refused_with_the_known_ones() {
    let change = bench(&["converge", "--change", "nothing"]);
    assert_eq!(change.status.code(), Some(2), "{}", stderr(&change));
    let help = bench(&["converge", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("service-member"));
    let engine = bench(&["converge", "--engine", "nothing"]);
    assert_eq!(engine.status.code(), Some(2), "{}", stderr(&engine));
}

#[test]
fn each_engine_moves_packets_and_loses_none_if_linux_does_not() {
    if !root_or_skip() {
        return;
    }
    router();
    let run = bench(&[
        "converge",
        "--change",
        "underlay-route,service-member,neighbor",
        "--routes",
        "300",
        "--rounds",
        "1",
        "--after",
        "1",
        "--rate",
        "1000",
        "--json",
    ]);
    assert!(run.status.success(), "{}", stderr(&run));
    let report: Report = serde_json::from_slice(&run.stdout).expect("a report");
    assert!(report.complete && report.refusals.is_empty(), "{report:?}");
    let titles: Vec<&str> = report.sections.iter().map(|it| &*it.id).collect();
    assert_eq!(
        titles,
        ["underlay-route", "service-member"],
        "neighbor: the same way"
    );
    for section in &report.sections {
        let engines: Vec<&str> = section.series.iter().map(|it| &*it.name).collect();
        assert_eq!(engines, ["linux", "sidestep-tc", "sidestep-xdp"]);
    }
    for row in &report.tables[0].rows {
        // A neighbor that is found again may cost the packets beyond the kernel's queue.
        let is_neighbor = row[0] == Cell::Text("neighbor".into());
        assert!(is_neighbor || row[5] == Cell::Number(0.0), "{row:?}");
    }
}
