//! `sidestep-bench report` and `compare`: files, output and exit status.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::{bench, stderr, stdout};

/// Writes a report with one series: nanoseconds per lookup at 1000 and at 2000 routes.
fn report(kernel: &str, rounds: [[f64; 4]; 2]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let point = |(x, rounds): (f64, [f64; 4])| json!({"x": x, "value": rounds[0], "low": rounds[0], "high": rounds[0], "rounds": rounds});
    let axis = |name: &str, unit: &str| json!({"name": name, "unit": unit, "scale": "log", "better": "lower"});
    let report = json!({
        "schema": 1, "title": "Lookups", "made": "2026-01-02T03:04:05Z", "command": ["sidestep"], "version": "0.1.0",
        "git": null, "seed": 1, "complete": true, "seconds": 1.0,
        "machine": {
            "cpu": "a", "cpus": 1, "kernel": kernel, "hypervisor": null, "memory": 1, "caches": [], "governor": null,
            "mitigations": {},
        },
        "sections": [{
            "id": "time", "title": "Time", "note": "", "kind": "line", "x": axis("routes", ""), "y": axis("lookup", "ns"),
            "baseline": null,
            "series": [{"name": "Sidestep", "subject": "x", "points": [point((1000.0, rounds[0])), point((2000.0, rounds[1]))]}],
        }],
    });
    fs::write(folder.path().join("report.json"), report.to_string()).unwrap();
    folder
}

const FAST: [f64; 4] = [10.0, 10.1, 9.9, 10.0];
const SLOW: [f64; 4] = [20.0, 20.1, 19.9, 20.0];

/// Changes the report in a folder.
fn change(folder: &Path, change: fn(&mut Value)) {
    let json = folder.join("report.json");
    let mut report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    change(&mut report);
    fs::write(&json, report.to_string()).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_report_is_rendered_next_to_its_json_or_into_another_folder() {
    let folder = report("6.18", [FAST, SLOW]);
    let made = bench(&["report", text(folder.path())]);
    assert!(made.status.success(), "{}", stderr(&made));
    let page = folder.path().join("report.html");
    assert_eq!(stdout(&made).trim_end(), text(&page));
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .contains("<title>Lookups</title>")
    );
    let elsewhere = folder.path().join("else/where");
    let json = folder.path().join("report.json");
    let made = bench(&["report", text(&json), "-o", text(&elsewhere)]);
    assert!(made.status.success(), "{}", stderr(&made));
    for name in [
        "report.html",
        "report.json",
        "report.md",
        "time.csv",
        "time.png",
    ] {
        assert!(elsewhere.join(name).exists(), "{name}");
    }
}

#[test]
fn slower_points_are_reported_and_fail() {
    let (before, after) = (report("6.18", [FAST, SLOW]), report("6.19", [SLOW, SLOW]));
    let (before, after) = (text(before.path()), text(after.path()));
    let slower = bench(&["compare", before, after]);
    assert_eq!(slower.status.code(), Some(1));
    assert_eq!(
        stderr(&slower),
        "sidestep-bench: 1 of 2 points have become worse\n"
    );
    let printed = stdout(&slower);
    assert!(
        printed.starts_with("not alike: kernel: 6.18, then 6.19\n1 worse\n"),
        "{printed}"
    );
    let row = printed
        .lines()
        .find(|line| line.starts_with("Time"))
        .unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells,
        [
            "Time", "Sidestep", "1,000", "10", "20", "ns", "+100.0", "%", ">", "99.9", "%"
        ]
    );
    assert!(printed.ends_with("1 the same\n"), "{printed}");

    let faster = bench(&["compare", after, before, "--json"]);
    assert!(faster.status.success(), "{}", stderr(&faster));
    let printed: Value = serde_json::from_str(&stdout(&faster)).unwrap();
    let outcomes: Vec<_> = printed["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| &point["outcome"])
        .collect();
    assert_eq!(outcomes, ["better", "same"]);
}

#[test]
fn missing_points_are_reported_and_fail_unless_allowed() {
    let (before, after) = (report("6.18", [FAST, SLOW]), report("6.18", [FAST, SLOW]));
    change(after.path(), |it| {
        let points = &mut it["sections"][0]["series"][0]["points"];
        points.as_array_mut().unwrap().pop();
    });
    let (before, after) = (text(before.path()), text(after.path()));

    let gone = bench(&["compare", before, after]);
    assert_eq!(gone.status.code(), Some(1));
    assert_eq!(
        stderr(&gone),
        "sidestep-bench: points missing from the second report: 1 (--partial allows that)\n"
    );
    let printed = stdout(&gone);
    let words: Vec<&str> = printed.split_whitespace().collect();
    let shown = "1 the same 1 gone: only in the first report what of at Time Sidestep 2,000";
    assert_eq!(words.join(" "), shown);

    let partial = bench(&["compare", before, after, "--partial", "-j"]);
    assert!(partial.status.success(), "{}", stderr(&partial));
    let printed: Value = serde_json::from_str(&stdout(&partial)).unwrap();
    let place = json!([{"section": "Time", "series": "Sidestep", "at": "2,000"}]);
    assert_eq!((&printed["gone"], &printed["new"]), (&place, &json!([])));

    let new = bench(&["compare", after, before]);
    assert!(new.status.success(), "{}", stderr(&new));
    assert!(
        stdout(&new).contains("\n1 new: only in the second report\n"),
        "{}",
        stdout(&new)
    );
}

#[test]
fn failed_and_incomparable_points_are_a_failure() {
    let (before, after) = (report("6.18", [FAST, SLOW]), report("6.18", [FAST, SLOW]));
    let (one, other) = (text(before.path()), text(after.path()));
    change(
        after.path(),
        |it| it["refusals"] = json!([{"subject": "x", "at": "run 2", "why": "another packet"}]),
    );
    let failed = bench(&["compare", one, other]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        stderr(&failed),
        "sidestep-bench: measurements that failed only in the second report: 1 (--partial allows that)\n"
    );
    let printed = stdout(&failed);
    let words: Vec<&str> = printed.split_whitespace().collect();
    let shown = "2 the same 1 failed: only in the second report of at why x run 2 another packet";
    assert_eq!(words.join(" "), shown);
    let partial = bench(&["compare", one, other, "--partial"]);
    assert!(partial.status.success(), "{}", stderr(&partial));

    change(after.path(), |it| {
        for point in it["sections"][0]["series"][0]["points"]
            .as_array_mut()
            .unwrap()
        {
            point["rounds"] = json!([10.0]);
        }
    });
    let unknown = bench(&["compare", one, other, "--partial"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(
        stderr(&unknown),
        "sidestep-bench: no point has two rounds in both reports: nothing can be compared\n"
    );
    assert!(
        stdout(&unknown).contains("2,000"),
        "they are listed: {}",
        stdout(&unknown)
    );
}

#[test]
fn thresholds_can_be_set_and_are_checked() {
    let (before, after) = (report("6.18", [FAST, SLOW]), report("6.18", [SLOW, SLOW]));
    let (before, after) = (text(before.path()), text(after.path()));
    let lenient = bench(&["compare", before, after, "--change", "100"]);
    assert_eq!(
        lenient.status.code(),
        Some(1),
        "twice as slow is 100 % slower"
    );
    let wrong = bench(&["compare", before, after, "--chance", "101"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        stderr(&wrong).contains("not from 0 to 100"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn unreadable_and_incomparable_reports_are_errors() {
    let folder = report("6.18", [FAST, FAST]);
    let missing = folder.path().join("missing.json");
    for command in [
        vec!["report", text(&missing)],
        vec!["compare", text(folder.path()), text(&missing)],
    ] {
        let failed = bench(&command);
        assert_eq!(failed.status.code(), Some(1));
        assert!(
            stderr(&failed).contains("missing.json: No such file"),
            "{}",
            stderr(&failed)
        );
    }
    let other = report("6.18", [FAST, FAST]);
    let json = other.path().join("report.json");
    let renamed = fs::read_to_string(&json)
        .unwrap()
        .replace("\"time\"", "\"other\"");
    fs::write(&json, renamed).unwrap();
    let failed = bench(&["compare", text(folder.path()), text(other.path())]);
    assert_eq!(
        stderr(&failed),
        "sidestep-bench: the reports have no measured point in common\n"
    );
}
