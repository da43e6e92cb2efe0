//! `sidestep-bench init`, `run` and `list`: files, output and exit status.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sidestep_testkit::capability::skip;
use sidestep_testkit::root_or_skip;

use crate::program::{BENCH, Folder, bench, router, stderr, stdout};

/// A campaign that measures the rate at the highest load, without a search.
const CAMPAIGN: &str = "\
schema: 1
title: Plain IPv6
engines: [linux]
find: [mrr]
search: {trial: 50ms}
runs: 2
groups:
- {name: plain, behaviors: [ipv6]}
";

#[test]
fn init_writes_a_campaign_and_never_overwrites_a_file() {
    let folder = Folder::new();
    let file = folder.path("mine.yaml");
    let made = bench(&["init", &file]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(stdout(&made), format!("{file}\n"));
    let template = include_str!("../../../src/campaign/template.yaml");
    assert_eq!(fs::read_to_string(&file).unwrap(), template);

    fs::write(&file, "mine").unwrap();
    let again = bench(&["init", &file]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(
        stderr(&again),
        format!("sidestep-bench: {file}: File exists (os error 17)\n")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn errors_in_a_campaign_have_line_and_column() {
    let folder = Folder::new();
    let file = folder.write("wrong.yaml", CAMPAIGN.replace("[ipv6]", "[end.dx5]"));
    let results = folder.path("results");
    let wrong = bench(&["run", &file, "-o", &results]);
    assert_eq!(wrong.status.code(), Some(1));
    let printed = stderr(&wrong);
    let begin = format!(
        "sidestep-bench: {file}: line 8, column 29: unknown behavior \"end.dx5\"; expected "
    );
    assert!(
        printed.starts_with(&begin) && printed.contains("end.dx4"),
        "{printed}"
    );
    assert!(fs::metadata(&results).is_err(), "nothing has begun");

    let missing = bench(&["run", &folder.path("missing.yaml")]);
    assert!(stderr(&missing).ends_with("missing.yaml: No such file or directory (os error 2)\n"));
}

#[test]
fn list_prints_supported_behaviors_and_reasons() {
    let listed = bench(&["list"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let printed = stdout(&listed);
    let head = printed.lines().next().unwrap();
    for engine in ["linux", "sidestep-tc", "sidestep-xdp"] {
        assert!(head.contains(engine), "{printed}");
    }
    assert!(
        printed.lines().any(|line| line.starts_with("end.ad ")),
        "{printed}"
    );
    assert!(
        printed.contains("\nNot here\n") && printed.contains("\nlinux: "),
        "{printed}"
    );

    if root_or_skip() {
        let lines = printed
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines: Vec<String> = lines.collect();
        for line in [
            "behavior SIDs linux sidestep-tc sidestep-xdp none vpp",
            "ipv6 plain IPv6 yes yes yes –",
            "h.encaps H.Encaps 1 to 10 yes yes yes –",
            "end.ad.xdp.age1 End.AD, age 1, service in XDP 2 to 10 – yes yes –",
            "ceiling generator to sink, nothing between – – – yes",
            "linux: Linux has no flavor USD (end.usd)",
            "linux: Linux has no SR proxy (8 behaviors)",
        ] {
            // The last column is VPP, which may be installed.
            assert!(
                lines.iter().any(|it| it.starts_with(line)),
                "{line}\nis not in\n{printed}"
            );
        }
    }

    let json: Value = serde_json::from_str(&stdout(&bench(&["list", "-j"]))).unwrap();
    let proxy = json
        .as_array()
        .unwrap()
        .iter()
        .find(|offer| offer["behavior"] == "end.ad");
    let linux = proxy.unwrap()["engines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it[0] == "linux");
    assert!(linux.unwrap()[1].is_string(), "Linux has no End.AD");
}

#[test]
fn a_dry_run_prints_the_plan_and_measures_nothing() {
    if !root_or_skip() {
        return;
    }
    let folder = Folder::new();
    let file = folder.path("campaign.yaml");
    assert!(bench(&["init", &file]).status.success());
    let shown = bench(&["run", &file, "--dry-run", "-o", &folder.path("results")]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    let printed = stdout(&shown);
    assert!(
        printed.contains("behaviors: linux ipv6, 64 bytes\n"),
        "{printed}"
    );
    assert!(
        printed.contains("segments: sidestep-xdp h.encaps, 8 SIDs, 64 bytes\n"),
        "{printed}"
    );
    let last = printed.lines().last().unwrap();
    assert!(
        last.starts_with("24 points, 10 runs of each, about "),
        "{printed}"
    );
    assert!(fs::metadata(folder.path("results")).is_err());

    let part = bench(&["run", &file, "-n", "--only", "xdp*8 SIDs"]);
    let printed = stdout(&part);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "segments: sidestep-xdp h.encaps, 8 SIDs, 64 bytes"
    );
    assert!(
        lines[1].starts_with("1 points, 10 runs of each, "),
        "{printed}"
    );
    assert_eq!(lines.len(), 2);
    let none = bench(&["run", &file, "--only", "xdp*9 SIDs"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(
        stderr(&none),
        format!("sidestep-bench: --only xdp*9 SIDs matches no point of {file}; -n prints them\n")
    );
}

#[test]
fn a_dry_run_lists_unsupported_cases() {
    if !root_or_skip() {
        return;
    }
    let folder = Folder::new();
    let text = "\
schema: 1
title: Proxies
engines: [linux, sidestep-xdp]
find: [pdr, curve]
runs: 3
groups:
- {name: age, behaviors: [end.ad, end.ad.age1], sids: [3], rules: [80]}
- {name: limits, behaviors: [service.xdp], sizes: [imix], flows: [zipf 100], routes: [1]}
";
    let file = folder.write("proxies.yaml", text);
    let shown = bench(&["run", &file, "-n"]);
    assert_eq!(stderr(&shown), "");
    assert_eq!(
        stdout(&shown),
        "\
age: sidestep-xdp end.ad, 3 SIDs, 64 bytes, 80 rules
age: sidestep-xdp end.ad.age1, 3 SIDs, 64 bytes, 80 rules
limits: linux service.xdp, IMIX, 100 flows by Zipf, 1 route
limits: sidestep-xdp service.xdp, IMIX, 100 flows by Zipf, 1 route
age: not linux end.ad, 3 SIDs, 64 bytes, 80 rules: Linux has no SR proxy
age: not linux end.ad.age1, 3 SIDs, 64 bytes, 80 rules: Linux has no SR proxy
4 points, 3 runs of each, about 8 min
"
    );
}

#[test]
fn a_campaign_is_measured_once_and_its_folder_gives_the_report_again() {
    if !root_or_skip() {
        return;
    }
    let folder = Folder::new();
    let file = folder.write("plain.yaml", CAMPAIGN);
    let results = folder.path("results");
    let run = bench(&["run", &file, "-o", &results]);
    assert!(run.status.success(), "{}\n{}", stdout(&run), stderr(&run));
    let printed = stdout(&run);
    assert!(
        printed.contains("plain: MRR\n") && printed.contains("Generator to sink\n"),
        "{printed}"
    );
    assert!(
        printed.ends_with(&format!("{results}/report.html\n")),
        "{printed}"
    );
    let trials = format!("{results}/trials.jsonl");
    let measured = fs::read_to_string(&trials).unwrap();
    let lines: Vec<Value> = measured
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["record"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["begin", "ceiling", "measured", "measured", "end"]);
    assert!(
        lines[2]["trials"][0]["received"].as_u64() > Some(1000),
        "{}",
        lines[2]
    );

    let again = bench(&["run", &file, "-o", &results]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(
        fs::read_to_string(&trials).unwrap(),
        measured,
        "nothing is measured twice"
    );
    let (begun, ended) = (&lines[0]["at"], &lines[3]["at"]);
    let (begun, ended) = (begun.as_str().unwrap(), ended.as_str().unwrap());
    let printed = stderr(&again);
    assert!(
        printed.contains(&format!(
            "{results} is complete, measured from {begun} to {ended}."
        )),
        "{printed}"
    );
    assert!(!stderr(&run).contains("is complete"));

    let changed = folder.write("plain.yaml", CAMPAIGN.replace("runs: 2", "runs: 3"));
    let refused = bench(&["run", &changed, "-o", &results]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("differs in: runs: 2, now 3."),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_report_identifies_the_program_by_its_hash() {
    if !root_or_skip() {
        return;
    }
    let folder = Folder::new();
    let text = CAMPAIGN
        .replace("[linux]", "[sidestep-tc]")
        .replace("runs: 2", "runs: 1");
    let file = folder.write("plain.yaml", text);
    // A program of the same version with an additional byte at its end.
    let other = folder.path("sidestep");
    fs::copy(router(), &other).unwrap();
    let mut program = fs::OpenOptions::new().append(true).open(&other).unwrap();
    program.write_all(b"\n").unwrap();
    drop(program);
    let results = folder.path("results");
    let run = Command::new(BENCH)
        .args(["run", &file, "-o", &results])
        .env("SIDESTEP", &other)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let hash = |path: &str| {
        let output = Command::new("sha256sum").arg(path).output().unwrap();
        stdout(&output)[..64].to_owned()
    };
    let report = fs::read_to_string(format!("{results}/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["program"], hash(BENCH));
    let hash = hash(&other);
    let facts = &report["machine"]["facts"];
    assert_eq!(facts["sidestep-tc: program sha256"], *hash, "{facts}");

    let refused = bench(&["run", &file, "-o", &results]);
    assert_eq!(refused.status.code(), Some(1));
    let printed = stderr(&refused);
    assert!(
        printed.contains("the results in this folder were measured under other conditions")
            && printed.contains(&hash),
        "{printed}"
    );
}

#[test]
fn the_version_names_the_commit() {
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let Some(git) = git.ok().filter(|git| git.status.success()) else {
        skip("this is no repository");
        return;
    };
    for (name, path) in [
        ("sidestep-bench", PathBuf::from(BENCH)),
        ("sidestep", router()),
    ] {
        let printed = stdout(&Command::new(path).arg("--version").output().unwrap());
        let begin = format!(
            "{name} {} ({}",
            env!("CARGO_PKG_VERSION"),
            stdout(&git).trim()
        );
        assert!(
            [")\n", "-dirty)\n"].contains(&printed.strip_prefix(&begin).unwrap_or(&printed)),
            "{printed}"
        );
    }
}

#[test]
fn report_and_compare_take_the_folder_of_a_campaign() {
    let folders = [100_000.0, 50_000.0].map(|rate| {
        let folder = Folder::new();
        folder.write("campaign.yaml", CAMPAIGN);
        folder.write("trials.jsonl", trials(rate));
        folder
    });
    let [before, after] = &folders;
    let made = bench(&["report", &before.path("")]);
    assert!(made.status.success(), "{}", stderr(&made));
    for name in [
        "report.json",
        "report.html",
        "plain-mrr.png",
        "plain-mrr-table.csv",
    ] {
        assert!(fs::metadata(before.path(name)).is_ok(), "{name}");
    }
    let slower = bench(&["compare", &before.path(""), &after.path("")]);
    assert_eq!(slower.status.code(), Some(1));
    assert_eq!(
        stderr(&slower),
        "sidestep-bench: 1 of 1 points have become worse\n"
    );
}

/// Two recorded runs at about this rate.
fn trials(rate: f64) -> String {
    let case = json!({
        "behavior": "ipv6", "sids": 0, "size": {"bytes": 64}, "flows": {"uniform": 1}, "rules": 0, "routes": 0,
    });
    let point = json!({"group": "plain", "case": case, "engine": "linux"});
    let begin = json!({
        "record": "begin", "schema": 1, "at": "2026-01-02T03:04:05Z", "version": "0.1.0", "git": null,
        "command": ["sidestep"], "quick": false, "engines": {}, "recipes": [[]],
        "machine": {
            "cpu": "a", "cpus": 1, "kernel": "6.18", "hypervisor": null, "memory": 1, "caches": [], "governor": null,
            "mitigations": {},
        },
        "plan": {"points": [point], "refused": [], "ceilings": []},
    });
    let measured = |run: u32, rate: f64| {
        json!({
            "record": "measured", "group": "plain", "case": case, "engine": "linux", "run": run, "find": "mrr",
            "at": "2026-01-02T03:04:05Z", "seconds": 1.0,
            "trials": [{"load": "maximum", "seconds": 1.0, "sent": 1_000_000, "received": rate as u64}],
        })
    };
    let lines = [
        begin,
        measured(0, rate),
        measured(1, rate * 1.001),
        json!({"record": "end"}),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}
