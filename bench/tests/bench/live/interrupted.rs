//! `sidestep-bench run`, interrupted while it measures. After Ctrl-C it cleans up; after a kill,
//! the next run does. Both resume.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sidestep_datapath::kernel::PIN_ROOT;
use sidestep_testkit::root_or_skip;

use crate::program::{BENCH, Folder, bench, router, stderr};

/// A campaign of two cases and two engines with three runs.
const CAMPAIGN: &str = "\
schema: 1
title: Interrupted
engines: [linux, sidestep-xdp]
find: [mrr]
search: {trial: 100ms}
runs: 3
groups:
- {name: small, behaviors: [h.encaps, end]}
";
const MEASUREMENTS: usize = 12;

/// A campaign in progress.
struct Run {
    child: Child,
    folder: Folder,
}

impl Run {
    fn start() -> Self {
        let folder = Folder::new();
        let file = folder.write("small.yaml", CAMPAIGN);
        let child = Command::new(BENCH)
            .env("SIDESTEP", router())
            .args(["run", &file, "-o", &folder.path("results")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sidestep starts");
        Self { child, folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("it runs");
    }

    /// Waits for a first result and until Sidestep forwards. Returns its router.
    fn until_sidestep_forwards(&self) -> Router {
        let begun = Instant::now();
        loop {
            let measured = !measured(&self.records()).is_empty();
            if let Some(router) = Router::of(self.pid()).filter(|it| measured && it.pins.exists()) {
                return router;
            }
            assert!(begun.elapsed() < Duration::from_secs(300), "it never began");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn records(&self) -> String {
        fs::read_to_string(self.folder.path("results/trials.jsonl")).unwrap_or_default()
    }

    /// Runs the command again to its end and checks the results.
    fn goes_on(&self, before: &str) {
        let [file, results] = ["small.yaml", "results"].map(|name| self.folder.path(name));
        let again = bench(&["run", &file, "-o", &results]);
        assert!(again.status.success(), "{}", stderr(&again));
        let records = self.records();
        assert!(records.starts_with(before), "what was measured stays");
        let all = measured(&records);
        let once: BTreeSet<&String> = all.iter().collect();
        assert_eq!((all.len(), once.len()), (MEASUREMENTS, MEASUREMENTS));
        assert!(records.ends_with("{\"record\":\"end\"}\n"), "{records}");
        let report = fs::read_to_string(format!("{results}/report.json")).expect("a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["complete"], true);
        assert_eq!(report["refusals"].as_array().map_or(0, Vec::len), 0);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The process has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The namespace in which Sidestep forwards, and its pins.
struct Router {
    inode: u64,
    pins: PathBuf,
    files: PathBuf,
}

impl Router {
    /// Returns the router that this process created.
    fn of(pid: u32) -> Option<Self> {
        let mut names = namespaces(pid).into_iter();
        let name = names.find(|name| name.ends_with("-router"))?;
        let inode = fs::metadata(Path::new(NAMESPACES).join(name)).ok()?.ino();
        Some(Self {
            inode,
            pins: Path::new(PIN_ROOT).join(format!("net-{inode}")),
            files: Path::new("/run/sidestep").join(inode.to_string()),
        })
    }

    /// Returns the processes in the namespace.
    fn processes(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let inside = all.filter(|entry| {
            let inode = fs::metadata(entry.path().join("ns/net"));
            inode.is_ok_and(|it| it.ino() == self.inode)
        });
        let names = inside.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    /// Waits until namespace and pins are gone. The kernel may give the namespace's number to
    /// another one, which soon disappears as well.
    fn goes(&self) {
        let begun = Instant::now();
        loop {
            let left = (self.pins.exists(), self.files.exists(), self.processes());
            if left == (false, false, Vec::new()) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{left:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the network namespaces that a process created.
fn namespaces(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let part = format!("-{pid}-");
    names.filter(|name| name.contains(&part)).collect()
}

/// Returns the measured points as text without figures. A truncated line does not count.
fn measured(records: &str) -> Vec<String> {
    let lines = records.lines().flat_map(serde_json::from_str::<Value>);
    lines
        .filter(|line| line["record"] == "measured")
        .map(|line| {
            ["case", "engine", "run", "find"]
                .map(|key| line[key].to_string())
                .join(" ")
        })
        .collect()
}

#[test]
fn ctrl_c_removes_everything_and_the_same_command_resumes() {
    if !root_or_skip() {
        return;
    }
    let mut run = Run::start();
    let router = run.until_sidestep_forwards();
    run.kill(Signal::SIGINT);
    let ended = run.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(1));
    assert_eq!(namespaces(run.pid()), Vec::<String>::new());
    router.goes();
    let report = fs::read_to_string(run.folder.path("results/report.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["complete"], false);
    assert_eq!(
        report["refusals"].as_array().map_or(0, Vec::len),
        0,
        "a signal is no failure"
    );
    let before = run.records();
    run.goes_on(&before);
}

#[test]
fn the_next_run_removes_leftovers_of_a_kill_and_resumes() {
    if !root_or_skip() {
        return;
    }
    let mut run = Run::start();
    let router = run.until_sidestep_forwards();
    run.kill(Signal::SIGKILL);
    let ended = run.child.wait().expect("it ends");
    assert_eq!(ended.code(), None);
    let before = run.records();
    let whole = before.rfind('\n').map_or(0, |at| at + 1);
    run.goes_on(&before[..whole]);
    assert_eq!(namespaces(run.pid()), Vec::<String>::new());
    router.goes();
}

const NAMESPACES: &str = "/run/netns";
