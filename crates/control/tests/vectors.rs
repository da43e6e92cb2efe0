//! Every golden vector on every target. One trial is one vector on one target: `TARGET::FILE::VECTOR`.
//!
//! - `native`: the packet path compiled for this machine.
//! - `xdp`, `tc`: the program in the kernel, by `BPF_PROG_TEST_RUN`.
//! - `xdp_traced`, `tc_traced`: the traced program in the kernel reports the steps and frames of the native target.

#[allow(dead_code, reason = "other tests use more of it")]
mod common;

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use common::{TEST_RUN_MIN, TestRuns, compile, describe, swapped, unlimited};
use libtest_mimic::{Arguments, Failed, Trial};
use sidestep_control::compile::{Compiled, Counted};
use sidestep_control::fragment::fragments;
use sidestep_control::icmp::answer::answer;
use sidestep_datapath::abi::{Reason, SIDESTEP_SAMPLE_BYTES};
use sidestep_datapath::kernel::{Head, Sampling, Target, TraceFilter};
use sidestep_datapath::{Copied, CounterId, Image, Native, Oversized, Report, Verdict, ViewId};
use sidestep_model::config;
use sidestep_model::node::{IfIndex, Node};
use sidestep_testkit::capability::missing;
use sidestep_testkit::hexdiff::{decode, diff, plain};
use sidestep_testkit::vectors::{Answer, Case, Expect, OamCopy, SHARE, VectorFile};

/// `BPF_PROG_TEST_RUN` of Linux 6.18 puts an skb with its headroom into one page.
const TEST_RUN_MAX: usize = 3 * 1024;
/// Identification of the fragments in vectors (`fragment_header` in `vectors/gen/wire.py`).
const IDENTIFICATION: u32 = 0x5eed;

fn main() -> ExitCode {
    let (arguments, words) = arguments();
    let files: Vec<_> = read_vectors().into_iter().map(NodeVectors::new).collect();
    let mut trials = vec![Trial::test("vectors_of_every_kind", of_every_kind)];
    for file in files.into_iter().map(Arc::new) {
        for (place, case) in file.vectors.cases.iter().enumerate() {
            for on in [None, Some((Target::Xdp, false)), Some((Target::Tc, false))]
                .into_iter()
                .chain([Some((Target::Xdp, true)), Some((Target::Tc, true))])
            {
                let name = trial_name(on, &file.vectors.group, &case.name);
                let file = Arc::clone(&file);
                trials.push(Trial::test(name, move || run(on, &file, place)));
            }
        }
    }
    trials.retain(|trial| words.selects(trial.name()));
    // By target, then by file: a kernel target keeps the tables of a node for all its vectors.
    trials.sort_by_cached_key(|trial| {
        let name = trial.name();
        let parts = name.rsplit_once("::").unwrap_or_default();
        parts.0.to_owned()
    });
    if let Some(reason) = missing().filter(|_| !arguments.list) {
        let native = |name: &str| !name.starts_with("xdp") && !name.starts_with("tc");
        let before = trials.len();
        trials.retain(|trial| native(trial.name()));
        if before > trials.len() {
            require_root(&reason);
            trials.push(Trial::test("vectors_in_the_kernel", move || {
                eprintln!("SKIP vectors_in_the_kernel: {reason}");
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Their pins go.
    lock(&IDLE).clear();
    conclusion.exit_code()
}

/// Names that the command line asks for. The harness itself takes one only.
struct Words {
    words: Vec<String>,
    exact: bool,
}

impl Words {
    fn selects(&self, name: &str) -> bool {
        let matches = |word: &String| {
            if self.exact {
                name == word
            } else {
                name.contains(word)
            }
        };
        self.words.is_empty() || self.words.iter().any(matches)
    }
}

/// Splits the command line into the harness's options and the names of trials.
fn arguments() -> (Arguments, Words) {
    let mut options = vec![std::env::args().next().unwrap_or_default()];
    let (mut words, mut exact) = (Vec::new(), false);
    let mut all = std::env::args().skip(1);
    while let Some(word) = all.next() {
        match word.as_str() {
            "--exact" => exact = true,
            "--skip" | "--test-threads" | "--format" | "--color" | "--logfile" => {
                options.push(word);
                options.extend(all.next());
            }
            option if option.starts_with('-') => options.push(word),
            _ => words.push(word),
        }
    }
    (Arguments::from_iter(options), Words { words, exact })
}

fn require_root(reason: &str) {
    let require = sidestep_testkit::capability::REQUIRE;
    assert!(
        std::env::var_os(require).is_none(),
        "vectors in the kernel cannot run, and {require} is set: {reason}"
    );
}

/// A target of the kernel, and whether its program is traced; `None` is the native target.
type On = Option<(Target, bool)>;

fn trial_name(on: On, group: &str, case: &str) -> String {
    let target = on.map_or("native", |(target, _)| target.name());
    let traced = if on.is_some_and(|(_, traced)| traced) {
        "_traced"
    } else {
        ""
    };
    format!("{target}{traced}::{group}::{case}")
}

/// Vectors of a file, with its node, compiled when a trial first needs it.
struct NodeVectors {
    vectors: VectorFile,
    compiled: OnceLock<(Node, Compiled)>,
}

impl NodeVectors {
    fn new(mut vectors: VectorFile) -> Self {
        // Vectors of one ingress port follow each other: a kernel target changes its tables for another port.
        vectors.cases.sort_by(|a, b| a.port.cmp(&b.port));
        Self {
            vectors,
            compiled: OnceLock::new(),
        }
    }

    fn compiled(&self) -> &(Node, Compiled) {
        self.compiled.get_or_init(|| {
            let group = &self.vectors.group;
            let parsed = config::File::parse(&self.vectors.node_text);
            let parsed = parsed.unwrap_or_else(|error| panic!("{group}: {error}"));
            let node = parsed
                .node()
                .unwrap_or_else(|error| panic!("{group}: {error}"));
            let compiled = compile(&node);
            (node, compiled)
        })
    }
}

fn read_vectors() -> Vec<VectorFile> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    VectorFile::read_share(&directory).expect("the vector files are of the format")
}

/// There are vectors with answers, silence and copies, so that no trial passes for want of expectations.
fn of_every_kind() -> Result<(), Failed> {
    if std::env::var_os(SHARE).is_some() {
        return Ok(());
    }
    let files = read_vectors();
    let cases = || files.iter().flat_map(|file| &file.cases);
    let answers = cases().filter(|case| case.answer.is_some()).count();
    let copies = cases().filter(|case| case.copies.is_some()).count();
    let forwards = cases()
        .filter(|case| matches!(case.expect, Expect::Forward { .. }))
        .count();
    if answers > 40 && copies > 20 && forwards > 1000 {
        return Ok(());
    }
    Err(
        format!("{answers} vectors with answers, {copies} with copies, {forwards} forwarded")
            .into(),
    )
}

/// Runs one vector on one target.
fn run(on: On, file: &NodeVectors, place: usize) -> Result<(), Failed> {
    let case = &file.vectors.cases[place];
    let wrong = match on {
        None => run_natively(file, case),
        Some((target, false)) => in_kernel(target, file, case),
        Some((target, true)) => traced(target, file, case),
    };
    if wrong.is_empty() {
        return Ok(());
    }
    Err(failure(on, file, case, &wrong).into())
}

/// Input of a vector, the difference, and the command that repeats the trial.
fn failure(on: On, file: &NodeVectors, case: &Case, wrong: &str) -> String {
    let name = trial_name(on, &file.vectors.group, &case.name);
    let mut out = format!("vectors/{}.yaml, {}", file.vectors.group, case.name);
    if !case.rfc.is_empty() {
        let _ = write!(out, ", RFC {}", case.rfc.join(", "));
    }
    if let Some(about) = &case.about {
        let _ = write!(out, "\n  {about}");
    }
    let _ = writeln!(out);
    for (port, frame) in &case.earlier {
        let _ = writeln!(out, "  earlier at {port}: {}", plain(frame));
    }
    let _ = writeln!(
        out,
        "  input at {}, {} bytes: {}\n{}{wrong}  again: ./dev test vectors::{name}",
        case.port,
        case.frame.len(),
        plain(&case.frame),
        decode(&case.frame)
    );
    out
}

fn ifindex(node: &Node, port: &str) -> u32 {
    let link = node.link_by_name(port).expect("checked by the reader");
    link.ifindex.0
}

/// Returns whether the kernel refused to resize the frame.
fn lacks_headroom(found: &Expect) -> bool {
    match found {
        Expect::Kernel(reason) => reason == "headroom",
        // At a route that the kernel does not have.
        Expect::Drop(reason) => reason == "no_headroom",
        Expect::Forward { .. } => false,
    }
}

/// Expected and actual verdict and frame, if they differ.
fn judge(case: &Case, found: &Expect) -> String {
    if *found == case.expect {
        return String::new();
    }
    let mut out = String::new();
    for (title, verdict) in [("expected", &case.expect), ("actual", found)] {
        let _ = match verdict {
            Expect::Forward { port, frame } => write!(
                out,
                "  {title}: forward by {port}, {} bytes: {}\n{}",
                frame.len(),
                plain(frame),
                decode(frame)
            ),
            Expect::Drop(reason) => writeln!(out, "  {title}: drop, reason {reason}"),
            Expect::Kernel(reason) => writeln!(out, "  {title}: punt, reason {reason}"),
        };
    }
    if let (
        Expect::Forward {
            frame: expected, ..
        },
        Expect::Forward { frame: actual, .. },
    ) = (&case.expect, found)
        && expected != actual
    {
        let _ = write!(out, "  differences:\n{}", diff(expected, actual));
    }
    out
}

/// Expected and actual ICMP message, if they differ.
fn judge_answer(case: &Case, report: Option<&Report>) -> String {
    let Some(expected) = &case.answer else {
        return String::new();
    };
    // The sender of the packet as it arrived is not behind the tables of a SID.
    let is_outer = |report: &&Report| {
        let packet = case.frame.get(14..).unwrap_or_default();
        packet.starts_with(&report.packet)
    };
    let mut out = String::new();
    if let Some(report) = report.filter(is_outer)
        && report.view != ViewId(0)
    {
        let _ = writeln!(
            out,
            "  the report names {:?} instead of view 0",
            report.view
        );
    }
    let found = report.and_then(answer);
    let found = found.map_or(Answer::Silence, |message| Answer::Message {
        to: message.to,
        from: message.from,
        message: message.bytes,
    });
    if found != *expected {
        let _ = writeln!(
            out,
            "  expected answer: {expected:x?}\n  actual answer:   {found:x?}"
        );
    }
    out
}

/// Expected and actual copies for the O-flag, if they differ.
fn judge_copies(case: &Case, copies: Vec<Copied>) -> String {
    let Some(expected) = &case.copies else {
        return String::new();
    };
    let copy = |copied: Copied| OamCopy {
        sid: copied.sid,
        segments_left: copied.segments_left,
        packet: copied.packet,
    };
    let found: Vec<OamCopy> = copies.into_iter().map(copy).collect();
    if found == *expected {
        return String::new();
    }
    format!("  expected copies: {expected:x?}\n  actual copies:   {found:x?}\n")
}

/// Expected and actual fragments, if they differ.
fn judge_fragments(case: &Case, node: &Node, oversized: Option<&Oversized>) -> String {
    let port = |ifindex: u32| node.links[&IfIndex(ifindex)].name.clone();
    let found = oversized.and_then(|oversized| {
        let frames = fragments(oversized, IDENTIFICATION)?.into_iter();
        Some(
            frames
                .map(|frame| (port(oversized.egress), frame))
                .collect(),
        )
    });
    let found: Vec<(String, Vec<u8>)> = found.unwrap_or_default();
    if found == case.fragments {
        return String::new();
    }
    let text = |frames: &[(String, Vec<u8>)]| {
        let lines = frames
            .iter()
            .map(|(port, frame)| format!("    {port} {}", plain(frame)));
        lines.collect::<Vec<_>>().join("\n")
    };
    format!(
        "  expected fragments:\n{}\n  actual fragments:\n{}\n",
        text(&case.fragments),
        text(&found)
    )
}

/// Whether the packet path rewrites a packet that it punts for this reason.
fn is_rewritten(reason: &Reason) -> bool {
    ["rewritten", "fragmented"].contains(&reason.name)
}

/// Says that two values differ, if they do.
fn differ<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, actual: &T) -> String {
    if expected == actual {
        return String::new();
    }
    format!("  expected {what}: {expected:?}\n  actual {what}:   {actual:?}\n")
}

// --- native ---

fn run_natively(file: &NodeVectors, case: &Case) -> String {
    let (node, compiled) = file.compiled();
    let mut native = Native::new(&compiled.image);
    let ingress = ifindex(node, &case.port);
    for (port, frame) in &case.earlier {
        native.run(ifindex(node, port), frame);
    }
    let verdict = native.run(ingress, &case.frame);
    let mut wrong = String::new();
    if matches!(verdict, Verdict::Punt(reason) if !is_rewritten(reason)) {
        wrong += &differ(
            "frame of a punted packet",
            &plain(&case.frame),
            &plain(native.frame()),
        );
    }
    wrong += &judge(case, &describe(node, verdict, native.frame()));
    wrong += &judge_answer(case, native.report().as_ref());
    wrong += &judge_copies(case, native.copies());
    wrong += &judge_fragments(case, node, native.oversized().as_ref());
    let counters = native.port_counters(ingress);
    let sum = counters.forwarded + counters.punted + counters.dropped;
    wrong += &differ(
        "packets received, by verdict",
        &counters.received_packets,
        &sum,
    );
    wrong + &judge_counters(case, compiled, &native)
}

/// Expected and actual counters of a route, if they differ.
fn judge_counters(case: &Case, compiled: &Compiled, native: &Native) -> String {
    let Some(expected) = &case.counters else {
        return String::new();
    };
    let prefix = expected.route.split(' ').next().expect("split yields one");
    let slots = compiled.index.counters.iter().filter(|(of, _)| {
        matches!(of, Counted::Route(key) | Counted::List(key, _) if key.prefix.to_string() == prefix)
    });
    let slots: Vec<CounterId> = slots.map(|(_, slot)| *slot).collect();
    if slots.is_empty() {
        return format!("  there is no route {prefix}\n");
    }
    let counters = || slots.iter().map(|slot| native.route_counters(*slot));
    let packets: u64 = counters().map(|it| it.packets).sum();
    let errors: u64 = counters().map(|it| it.errors).sum();
    differ(
        &format!("packets and errors of {prefix}"),
        &(expected.packets, expected.errors),
        &(packets, errors),
    )
}

// --- in the kernel ---

/// A packet path in the kernel, with the tables of one node.
struct Loaded {
    runs: TestRuns,
    target: Target,
    traced: bool,
    /// Vector file and ingress port whose tables it has; none after a vector from which it may have learned.
    entered: Option<(String, String)>,
    image: Image,
}

/// Packet paths that no trial uses now: one for each thread and kind at most.
static IDLE: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

fn lock(idle: &Mutex<Vec<Loaded>>) -> std::sync::MutexGuard<'_, Vec<Loaded>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loaded {
    /// Loads a packet path into the kernel.
    fn new(target: Target, traced: bool) -> Self {
        static LOADED: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
            *loaded += 1;
            *loaded
        };
        let mut runs = TestRuns::load(&format!("vectors{number}"), target);
        let kernel = runs.kernel();
        if traced {
            let sampling = Sampling {
                rate: NonZeroU32::new(1_000_000).expect("not 0"),
                bytes: SIDESTEP_SAMPLE_BYTES,
            };
            kernel
                .trace_start(&TraceFilter::default(), sampling)
                .expect("the kernel takes the traced packet path");
        } else {
            kernel.limit_reports(unlimited());
            kernel.limit_copies(unlimited());
        }
        Self {
            runs,
            target,
            traced,
            entered: None,
            image: Image::default(),
        }
    }

    /// Takes a packet path with the tables for this vector, after the frames that come first.
    fn take(target: Target, traced: bool, file: &NodeVectors, case: &Case) -> Self {
        let place = (file.vectors.group.clone(), case.port.clone());
        let found = {
            let mut idle = lock(&IDLE);
            let fits = |it: &Self| it.target == target && it.traced == traced;
            let entered = |it: &Self| fits(it) && it.entered.as_ref() == Some(&place);
            let at = idle.iter().position(entered);
            let at = at.or_else(|| idle.iter().position(fits));
            at.map(|at| idle.swap_remove(at))
        };
        let mut loaded = found.unwrap_or_else(|| Self::new(target, traced));
        let (node, compiled) = file.compiled();
        let ingress = ifindex(node, &case.port);
        if loaded.entered.as_ref() != Some(&place) {
            loaded.image = loaded.runs.enter(&compiled.image, ingress).clone();
        }
        loaded.entered = case.earlier.is_empty().then_some(place);
        for (port, frame) in &case.earlier {
            loaded.runs.go_to(ifindex(node, port));
            loaded.runs.run(frame).expect("a test run takes it");
        }
        if !case.earlier.is_empty() {
            loaded.runs.go_to(ingress);
        }
        loaded
    }

    /// Lets another trial use it.
    fn put_back(self) {
        lock(&IDLE).push(self);
    }
}

fn in_kernel(target: Target, file: &NodeVectors, case: &Case) -> String {
    let mut loaded = Loaded::take(target, false, file, case);
    let (node, _) = file.compiled();
    let runs = &mut loaded.runs;
    // Verdicts of earlier frames.
    runs.kernel().reports(case.earlier.len() + 1);
    runs.kernel().copies(10);
    let mut wrong = String::new();
    if let Some((verdict, frame)) = runs.run(&case.frame) {
        let found = describe(node, verdict, &frame);
        if let Expect::Forward { frame: sent, .. } = &case.expect
            && lacks_headroom(&found)
            && TestRuns::is_runt(sent)
        {
            wrong += &differ(
                "frame without headroom",
                &plain(&case.frame),
                &plain(&frame),
            );
            runs.kernel().reports(10);
            runs.kernel().copies(10);
        } else {
            let reports = runs.kernel().reports(10);
            if reports.len() > 1 {
                let _ = writeln!(wrong, "  reported {} times: {reports:?}", reports.len());
            }
            wrong += &judge(case, &found);
            wrong += &judge_answer(case, reports.first());
            wrong += &judge_copies(case, runs.kernel().copies(10));
            let oversized = runs.kernel().oversized(10);
            wrong += &judge_fragments(case, node, oversized.first());
        }
    } else if (TEST_RUN_MIN..=TEST_RUN_MAX).contains(&case.frame.len()) {
        wrong += "  the kernel refuses a test run of this frame\n";
    }
    loaded.put_back();
    wrong
}

/// The traced program reports the same as the native target: verdict, steps, frames.
fn traced(target: Target, file: &NodeVectors, case: &Case) -> String {
    let mut loaded = Loaded::take(target, true, file, case);
    let (node, _) = file.compiled();
    let kernel = loaded.runs.kernel();
    kernel.oversized(10);
    // Verdicts of earlier frames.
    kernel.trace_samples(case.earlier.len() + 1);
    // A frame that the kernel refuses is judged without tracing.
    let wrong = if kernel.test_run(target, &case.frame, 1).is_err() {
        String::new()
    } else {
        let mut samples = kernel.trace_samples(10);
        // XDP reports nothing about a frame that it defers.
        if target == Target::Xdp && samples.is_empty() {
            let deferred = kernel.test_run(Target::Tc, &case.frame, 1);
            deferred.expect("TC takes what XDP takes");
            samples = kernel.trace_samples(10);
        }
        match &samples[..] {
            [sample] if lacks_headroom(&describe(node, sample.verdict, &[])) => {
                match &case.expect {
                    Expect::Forward { frame, .. } if TestRuns::is_runt(frame) => String::new(),
                    expected if lacks_headroom(expected) => String::new(),
                    _ => "  the sample lacks headroom that this frame does not need\n".to_owned(),
                }
            }
            [sample] => {
                let ingress = ifindex(node, &case.port);
                let mut native = Native::new(&loaded.image);
                for (port, frame) in &case.earlier {
                    native.run(swapped(ifindex(node, port), ingress), frame);
                }
                let verdict = native.run(1, &case.frame);
                let head = |frame: &[u8], bytes: u32| Head {
                    bytes: frame[..frame.len().min(bytes as usize)].to_vec(),
                    length: frame.len() as u32,
                };
                let arrived = head(&case.frame, SIDESTEP_SAMPLE_BYTES);
                let changed = match verdict {
                    Verdict::Forward { .. } => true,
                    Verdict::Punt(reason) => is_rewritten(reason),
                    Verdict::Drop(_) => false,
                };
                let left = changed.then(|| head(native.frame(), SIDESTEP_SAMPLE_BYTES));
                differ("verdict", &verdict, &sample.verdict)
                    + &differ("steps", &native.trace(), &&sample.steps[..])
                    + &differ("frame that arrived", &arrived, &sample.arrived)
                    + &differ("frame that left", &left, &sample.left)
            }
            _ => format!("  sampled {} times instead of once\n", samples.len()),
        }
    };
    loaded.put_back();
    wrong
}
