//! `sidestep-bench fib`: refused options, a short complete run, and an interrupted run.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sidestep_bench::result::{Report, SCHEMA};
use sidestep_testkit::root_or_skip;

use crate::program::BENCH;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.arg("fib").args(arguments);
    command.output().expect("sidestep starts")
}

/// Reads the report that a run wrote into a folder.
fn report(folder: &Path) -> Report {
    let text = fs::read_to_string(folder.join("report.json")).expect("report.json");
    serde_json::from_str(&text).expect("it is a report")
}

/// Returns the network namespaces that a process of the benchmark created.
fn namespaces(pid: u32) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with(&format!("ss-bench-{pid}-")))
        .collect()
}

fn huge_pages() -> String {
    fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default()
}

#[test]
fn unknown_tables_and_scenarios_are_refused_with_the_known_ones() {
    for (option, known) in [("--against", "lpm-trie"), ("--scenario", "full-view")] {
        let output = bench(&[option, "nothing"]);
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output_text}");
        let help = bench(&["--help"]);
        let helped = String::from_utf8_lossy(&help.stdout);
        assert!(
            output_text.contains("'nothing'") && helped.contains(known),
            "{output_text}"
        );
    }
}

#[test]
fn an_invalid_list_of_prefixes_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("routes.txt");
    fs::write(&path, "2001:db8::/32\nnonsense\n").expect("write");
    let output = bench(&["--quick", "--routes", path.to_str().expect("UTF-8")]);
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    assert!(
        output_text.contains("routes.txt:2: \"nonsense\" is not an IPv6 prefix"),
        "{output_text}"
    );
}

#[test]
fn a_short_run_measures_everything_compares_every_answer_and_leaves_nothing_behind() {
    if !root_or_skip() {
        return;
    }
    let before = huge_pages();
    let child = Command::new(BENCH)
        .args(["fib", "--quick", "-j"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sidestep starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("sidestep ends");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    assert_eq!(namespaces(pid), Vec::<String>::new());
    assert_eq!(huge_pages(), before);

    let report: Report = serde_json::from_slice(&output.stdout).expect("it is a report");
    assert_eq!(report.schema, SCHEMA);
    assert!(report.complete);
    let wrong = report
        .refusals
        .iter()
        .find(|it| it.why.contains("wrong answers"));
    assert_eq!(wrong, None);
    for id in ["full-view", "slash48-0-1", "slash128"] {
        let id = format!("{id}-uniform-one-by-one");
        let section = report.sections.iter().find(|section| section.id == id);
        let section = section.unwrap_or_else(|| panic!("{id}: {:?}", report.refusals));
        for subject in [
            "sidestep",
            "sidestep-xdp",
            "linux",
            "lpm-trie",
            "prefix-trie",
            "treebitmap",
        ] {
            let series = section.series.iter().find(|series| series.name == subject);
            let series =
                series.unwrap_or_else(|| panic!("{id}: no {subject}: {:?}", report.refusals));
            assert!(
                series.points.iter().all(|point| point.value > 0.0),
                "{series:?}"
            );
        }
    }
}

/// A run in progress that has created a namespace.
struct Run {
    child: Option<Child>,
    folder: tempfile::TempDir,
}

impl Run {
    /// Starts `program` with these additional arguments.
    fn start(program: &mut Command, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let child = program
            .args(["fib", "--scenario", "slash48"])
            .args(["--against", "linux", "--points", "20000"])
            .args(more)
            .arg("-o")
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sidestep starts");
        let run = Self {
            child: Some(child),
            folder,
        };
        let begun = Instant::now();
        while namespaces(run.pid()).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(300), "it never began");
            thread::sleep(Duration::from_millis(10));
        }
        run
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("kill");
    }

    fn end(&mut self) -> Output {
        let child = self.child.take().expect("it runs");
        child.wait_with_output().expect("sidestep ends")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The process has ended, unless the test failed.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn an_interrupted_run_keeps_its_results_and_removes_its_namespaces() {
    if !root_or_skip() {
        return;
    }
    // Ctrl-C, a service stop, and a closed terminal.
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // Tests started by nohup ignore the last signal.
        let mut command = Command::new("env");
        let mut run = Run::start(command.args(["--default-signal=HUP", BENCH]), &[]);
        let pid = run.pid();
        run.signal(signal);
        let output = run.end();
        assert_eq!(output.status.code(), Some(1), "{signal}");
        assert_eq!(namespaces(pid), Vec::<String>::new(), "{signal}");
        let report = report(run.folder.path());
        assert!(!report.complete);
        assert_eq!(report.sections[0].id, "memory-latency");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(&report.sections[0].title), "{printed}");
    }
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_run() {
    if !root_or_skip() {
        return;
    }
    let mut living = Run::start(&mut Command::new(BENCH), &[]);
    let mut killed = Run::start(&mut Command::new(BENCH), &[]);
    let pid = killed.pid();
    // Kill it at once, while it has a namespace. The next run may be that of another test.
    killed.signal(Signal::SIGKILL);
    assert_eq!(killed.end().status.code(), None);
    let next = ["--quick", "--scenario", "slash128", "--points", "100"];
    let next = bench(&[&next[..], &["--against", "linux"]].concat());
    let output_text = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success(), "{output_text}");
    assert_eq!(namespaces(pid), Vec::<String>::new());
    assert_ne!(
        namespaces(living.pid()),
        Vec::<String>::new(),
        "those of a run that lives stay"
    );
    living.signal(Signal::SIGINT);
    living.end();
}

#[test]
fn a_run_started_by_nohup_continues_after_the_terminal_closes() {
    if !root_or_skip() {
        return;
    }
    let mut run = Run::start(Command::new("nohup").arg(BENCH), &["--quick"]);
    run.signal(Signal::SIGHUP);
    assert!(run.end().status.success());
    assert!(report(run.folder.path()).complete);
}
