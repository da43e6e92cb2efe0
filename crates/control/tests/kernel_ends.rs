//! The end of every packet that a golden vector punts, at the kernel of this machine.
//!
//! Sidestep's native target gets the frame, and the kernel gets what Sidestep hands over: the same frame, except with
//! reason `rewritten`. The kernel has the routes of the vector's node that are the kernel's. The ends are recorded
//! in `vectors/kernel/VERSION.json`. With `SIDESTEP_RECORD` the test prints them for `vectors/record.py` instead of
//! comparing.

#[allow(dead_code, reason = "other tests use more of it")]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use common::compile;
use serde::Deserialize;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::behavior::check::linux_can_express;
use sidestep_model::config;
use sidestep_model::grammar::{Context, route};
use sidestep_model::node::Node;
use sidestep_model::route::Owner;
use sidestep_testkit::linux::{End, Sut, on_one_cpu};
use sidestep_testkit::root_or_skip;
use sidestep_testkit::vectors::{Case, Expect, VectorFile};

/// Ends by vector.
type Ends = BTreeMap<String, End>;

/// `vectors/kernel/VERSION.json`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    kernel: String,
    ends: Ends,
}

#[test]
fn every_punted_packet_ends_at_the_kernel_as_recorded() {
    if !root_or_skip() {
        return;
    }
    let version = running_version();
    let recorded = by_distance(&version);
    let (mut wrong, mut seen, mut unobserved) = (String::new(), 0, vec![]);
    for file in VectorFile::read_share(&vectors()).expect("the vectors are of the format") {
        let ends = on_one_cpu(|| observe(&file)).expect("a thread of one CPU");
        for (case, end) in ends {
            let Some(end) = end else {
                unobserved.push(case.name.clone());
                continue;
            };
            seen += 1;
            if std::env::var_os(RECORD).is_some() {
                let end = serde_json::to_string(&end).expect("JSON");
                println!("\nEND {version} {} {end}", case.name);
                continue;
            }
            let mut files = recorded.iter();
            let file = files.find(|file| file.ends.contains_key(&case.name));
            let known = file.map(|file| (&file.kernel, &file.ends[&case.name]));
            if known.is_none_or(|(_, known)| *known != end) {
                let _ = writeln!(
                    wrong,
                    "{}\n  recorded: {known:?}\n  here: {end:?}",
                    case.name
                );
            }
        }
    }
    eprintln!(
        "Linux {version}: {seen} ends, not observed on this kernel: {}",
        unobserved.join(", ")
    );
    assert!(
        wrong.is_empty(),
        "{wrong}record the ends of this kernel: ./dev record-kernel"
    );
}

#[test]
fn every_punted_vector_has_a_recorded_end() {
    let all = recorded_files();
    let mut missing = vec![];
    for file in VectorFile::read_all(&vectors()).expect("the vectors are of the format") {
        let punted = file.cases.iter().filter(|case| is_punted(case));
        let none = punted.filter(|case| all.iter().all(|file| !file.ends.contains_key(&case.name)));
        missing.extend(none.map(|case| case.name.clone()));
    }
    assert!(
        missing.is_empty(),
        "without a recorded end: {}; ./dev record-kernel [KERNEL] writes them",
        missing.join(", ")
    );
}

/// Whether the kernel gets the packet of a case. The daemon gets those that leave in fragments.
fn is_punted(case: &Case) -> bool {
    matches!(&case.expect, Expect::Kernel(reason) if reason != "fragmented")
}

/// The ends of the punted packets of a file; `None` if this kernel lacks a route that the packet needs.
fn observe(file: &VectorFile) -> Vec<(&Case, Option<End>)> {
    let cases: Vec<&Case> = file.cases.iter().filter(|case| is_punted(case)).collect();
    if cases.is_empty() {
        return vec![];
    }
    let group = &file.group;
    let parsed = config::File::parse(&file.node_text).and_then(|file| file.node());
    let node = parsed.unwrap_or_else(|error| panic!("{group}: {error}"));
    let compiled = compile(&node);
    let mut kernels = file.node.clone();
    kernels.routes.retain(|line| is_kernels(line, &node));
    let sut = Sut::build(&kernels).unwrap_or_else(|error| panic!("{group}: {error}"));
    sut.reach_senders(&kernels)
        .unwrap_or_else(|error| panic!("{group}: {error}"));
    cases
        .into_iter()
        .map(|case| {
            let mut native = Native::new(&compiled.image);
            let link = node
                .link_by_name(&case.port)
                .expect("checked by the reader");
            let verdict = native.run(link.ifindex.0, &case.frame);
            assert!(
                matches!(verdict, Verdict::Punt(_)),
                "{}: {verdict:?}",
                case.name
            );
            let frame = native.frame();
            let lacks = [frame, &case.frame]
                .into_iter()
                .any(|frame| sut.lacks(frame).is_some());
            let end = || sut.end(&case.port, frame);
            let end =
                (!lacks).then(|| end().unwrap_or_else(|error| panic!("{}: {error}", case.name)));
            (case, end)
        })
        .collect()
}

/// Returns true if the route of this line is the kernel's.
fn is_kernels(line: &str, node: &Node) -> bool {
    if line.ends_with(" owner sidestep") {
        return false;
    }
    let context = Context {
        names: node,
        family: None,
        owner: Owner::Kernel,
    };
    let route = route::parse_line(line, &context);
    linux_can_express(&route.unwrap_or_else(|error| panic!("{line}: {error}")))
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Major and minor version of the running kernel.
fn running_version() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split(['.', '-']);
    let mut next = || numbers.next().unwrap_or_default().to_owned();
    format!("{}.{}", next(), next())
}

fn recorded_files() -> Vec<Recorded> {
    let entries = fs::read_dir(vectors().join("kernel")).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .map(|path| {
            let text = fs::read_to_string(&path).expect("readable");
            serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

/// All recorded versions: this one and older ones from the newest on, then newer ones.
fn by_distance(version: &str) -> Vec<Recorded> {
    let numbers = |version: &str| -> Vec<u32> {
        let numbers = version.split('.');
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let mut files = recorded_files();
    files.sort_by_key(|file| {
        let (of_file, running) = (numbers(&file.kernel), numbers(version));
        (of_file > running, std::cmp::Reverse(of_file))
    });
    files
}

/// Environment variable: print the ends instead of comparing them.
const RECORD: &str = "SIDESTEP_RECORD";
