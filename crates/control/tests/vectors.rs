//! Every golden vector on every target: natively, and through `BPF_PROG_TEST_RUN` for XDP and TC.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{TEST_RUN_MIN, TestRuns, compile, describe, show, swapped};
use sidestep_control::compile::Counted;
use sidestep_control::icmp::answer::answer;
use sidestep_datapath::abi::{SIDESTEP_SAMPLE_BYTES, SIDESTEP_SAMPLE_HEAD};
use sidestep_datapath::kernel::{Head, ReportRate, Sampling, Target, TraceFilter};
use sidestep_datapath::{Copied, CounterId, Image, Native, Report, Verdict, ViewId};
use sidestep_model::config;
use sidestep_model::node::Node;
use sidestep_testkit::capability::root_or_skip;
use sidestep_testkit::vectors::{Answer, Case, Expect, OamCopy, SHARE, VectorFile};

fn vectors() -> Vec<VectorFile> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    VectorFile::read_share(&directory).expect("the vector files are of the format")
}

fn node(file: &VectorFile) -> Node {
    let parsed =
        config::File::parse(&file.node_text).unwrap_or_else(|e| panic!("{}: {e}", file.group));
    parsed
        .node()
        .unwrap_or_else(|e| panic!("{}: {e}", file.group))
}

fn ifindex(node: &Node, port: &str) -> u32 {
    let link = node.link_by_name(port).expect("checked by the reader");
    link.ifindex.0
}

/// The driver left too little room in front of the frame.
fn want_of_room(found: &Expect) -> bool {
    match found {
        Expect::Kernel(reason) => reason == "headroom",
        // At a route that the kernel does not have.
        Expect::Drop(reason) => reason == "no_headroom",
        Expect::Forward { .. } => false,
    }
}

/// Prints what does not agree and counts it.
fn judge(file: &VectorFile, case: &Case, found: &Expect) -> usize {
    if *found == case.expect {
        return 0;
    }
    println!(
        "{}/{}\n  expected {}\n  found    {}",
        file.group,
        case.name,
        show(&case.expect),
        show(found)
    );
    1
}

/// Prints what the sender is told if it is not what the vector says, and counts it.
fn judge_answer(case: &Case, report: Option<&Report>) -> usize {
    let Some(expected) = &case.answer else {
        return 0;
    };
    // Who sent the packet as it arrived is not behind the tables of a SID.
    let is_around = |report: &&Report| {
        case.frame
            .get(14..)
            .unwrap_or_default()
            .starts_with(&report.packet)
    };
    if let Some(report) = report.filter(is_around) {
        assert_eq!(report.view, ViewId(0), "{}", case.name);
    }
    let found = report.and_then(answer);
    let found = found.map_or(Answer::Silence, |message| Answer::Message {
        to: message.to,
        from: message.from,
        message: message.bytes,
    });
    if found == *expected {
        return 0;
    }
    let name = &case.name;
    println!("{name}\n  expected {expected:x?}\n  found    {found:x?}");
    1
}

/// Prints the copies for the O-flag if they are not what the vector says, and counts them.
fn judge_copies(case: &Case, copies: Vec<Copied>) -> usize {
    let Some(expected) = &case.copies else {
        return 0;
    };
    let copy = |copied: Copied| OamCopy {
        sid: copied.sid,
        segments_left: copied.segments_left,
        packet: copied.packet,
    };
    let found: Vec<OamCopy> = copies.into_iter().map(copy).collect();
    if found == *expected {
        return 0;
    }
    let name = &case.name;
    println!("{name}: copies\n  expected {expected:x?}\n  found    {found:x?}");
    1
}

#[test]
fn every_vector_holds_on_the_native_target() {
    let (mut cases, mut wrong) = (0, 0);
    for file in vectors() {
        let node = node(&file);
        let compiled = compile(&node);
        for case in &file.cases {
            let mut native = Native::new(&compiled.image);
            let port = node
                .link_by_name(&case.port)
                .expect("checked by the reader");
            for (port, frame) in &case.earlier {
                native.run(ifindex(&node, port), frame);
            }
            let verdict = native.run(port.ifindex.0, &case.frame);
            if matches!(verdict, Verdict::Punt(reason) if reason.name != "decapsulated") {
                assert_eq!(
                    native.frame(),
                    case.frame,
                    "{}: left to the kernel, changed",
                    case.name
                );
            }
            wrong += judge(&file, case, &describe(&node, verdict, native.frame()));
            wrong += judge_answer(case, native.report().as_ref());
            wrong += judge_copies(case, native.copies());
            cases += 1;

            let counters = native.port_counters(port.ifindex.0);
            assert_eq!(
                counters.received_packets,
                counters.forwarded + counters.punted + counters.dropped,
                "{}: received is the sum of the verdicts",
                case.name
            );
            let Some(expected) = &case.counters else {
                continue;
            };
            let prefix = expected.route.split(' ').next().expect("split yields one");
            let slots = compiled.index.counters.iter().filter(|(of, _)| {
                matches!(of, Counted::Route(key) | Counted::List(key, _) if key.prefix.to_string() == prefix)
            });
            let slots: Vec<CounterId> = slots.map(|(_, slot)| *slot).collect();
            assert!(!slots.is_empty(), "{}: no route {prefix}", case.name);
            let counters = || slots.iter().map(|slot| native.route_counters(*slot));
            let packets: u64 = counters().map(|it| it.packets).sum();
            let errors: u64 = counters().map(|it| it.errors).sum();
            let found = (packets, errors);
            if found != (expected.packets, expected.errors) {
                println!(
                    "{}: counters of {prefix}: expected {expected:?}, found {found:?}",
                    case.name
                );
                wrong += 1;
            }
        }
    }
    println!("native: {} of {cases} vectors hold", cases - wrong);
    assert_eq!(wrong, 0);
}

/// Puts each vector to a kernel target whose tables are those of its node: vector file, node, case, the tables.
fn with_each_vector(
    runs: &mut TestRuns,
    mut run: impl FnMut(&mut TestRuns, &VectorFile, &Node, &Case, &Image),
) {
    for file in vectors() {
        let node = node(&file);
        let compiled = compile(&node);
        let ingress: BTreeSet<&str> = file.cases.iter().map(|case| case.port.as_str()).collect();
        for port in ingress {
            let link = node.link_by_name(port).expect("checked by the reader");
            let image = runs.enter(&compiled.image, link.ifindex.0).clone();
            for case in file.cases.iter().filter(|case| case.port == port) {
                for (port, frame) in &case.earlier {
                    runs.go_to(ifindex(&node, port));
                    runs.run(frame).expect("a test run takes it");
                }
                runs.go_to(link.ifindex.0);
                run(runs, &file, &node, case, &image);
                if !case.earlier.is_empty() {
                    runs.enter(&compiled.image, link.ifindex.0);
                }
            }
        }
    }
}

fn every_vector_holds_on(target: Target) {
    let mut runs = TestRuns::load("vectors", target);
    // More than runs there are in a second.
    let unlimited = || ReportRate {
        per_second: 1_000_000_000,
        burst: 1,
    };
    runs.kernel().limit_reports(unlimited());
    runs.kernel().limit_copies(unlimited());
    let (mut answers, mut copies) = (0, 0);
    let (mut cases, mut wrong, mut no_room) = (0, 0, 0);
    with_each_vector(&mut runs, |runs, file, node, case, _| {
        let name = &case.name;
        // Of what came before.
        runs.kernel().reports(case.earlier.len() + 1);
        runs.kernel().copies(10);
        let Some((verdict, frame)) = runs.run(&case.frame) else {
            assert!(
                case.frame.len() < TEST_RUN_MIN,
                "{name}: the kernel runs it"
            );
            let target = runs.target().name();
            println!("{target}: skipped {name}: a test run takes no such frame");
            return;
        };
        cases += 1;
        let found = describe(node, verdict, &frame);
        if let Expect::Forward { frame: sent, .. } = &case.expect
            && want_of_room(&found)
            && TestRuns::may_want_headroom(&case.frame, sent)
        {
            assert_eq!(frame, case.frame, "{name}: not forwarded, and changed");
            no_room += 1;
            return;
        }
        wrong += judge(file, case, &found);
        let reports = runs.kernel().reports(10);
        assert!(reports.len() <= 1, "{name}: reported {reports:?}");
        wrong += judge_answer(case, reports.first());
        answers += usize::from(case.answer.is_some());
        wrong += judge_copies(case, runs.kernel().copies(10));
        copies += usize::from(case.copies.is_some());
    });
    println!(
        "{}: {answers} answers, or silence; {copies} with the O-flag",
        target.name()
    );
    assert!(
        (answers > 40 && copies > 20) || std::env::var_os(SHARE).is_some(),
        "{answers}, {copies}"
    );
    println!(
        "{}: {} of {cases} vectors hold; {no_room} of them not forwarded for want of headroom",
        target.name(),
        cases - wrong
    );
    assert_eq!(wrong, 0);
}

#[test]
fn every_vector_holds_on_xdp() {
    if root_or_skip() {
        every_vector_holds_on(Target::Xdp);
    }
}

#[test]
fn every_vector_holds_on_tc() {
    if root_or_skip() {
        every_vector_holds_on(Target::Tc);
    }
}

/// What the traced program tells of each vector is what the native target tells: verdict, steps, frames.
fn every_vector_is_told_on(target: Target) {
    let mut runs = TestRuns::load("told", target);
    let many = Sampling {
        rate: std::num::NonZeroU32::new(1_000_000).expect("not 0"),
        bytes: SIDESTEP_SAMPLE_BYTES,
    };
    runs.kernel()
        .trace_start(&TraceFilter::default(), many)
        .expect("the kernel takes the traced packet path");
    let (mut told, mut no_room) = (0, 0);
    with_each_vector(&mut runs, |runs, _, node, case, image| {
        let name = &case.name;
        // Of what came before.
        runs.kernel().trace_samples(case.earlier.len() + 1);
        if runs.kernel().test_run(target, &case.frame, 1).is_err() {
            // Said by every_vector_holds_on.
            return;
        }
        let samples = runs.kernel().trace_samples(10);
        let [sample] = &samples[..] else {
            panic!("{name}: told {} times", samples.len());
        };
        if want_of_room(&describe(node, sample.verdict, &[])) {
            no_room += 1;
            return;
        }
        let mut native = Native::new(image);
        let ingress = ifindex(node, &case.port);
        for (port, frame) in &case.earlier {
            native.run(swapped(ifindex(node, port), ingress), frame);
        }
        let verdict = native.run(1, &case.frame);
        assert_eq!(sample.verdict, verdict, "{name}");
        assert_eq!(sample.steps, native.trace(), "{name}");
        let head = |frame: &[u8], bytes: u32| Head {
            bytes: frame[..frame.len().min(bytes as usize)].to_vec(),
            length: frame.len() as u32,
        };
        let arrived = head(&case.frame, SIDESTEP_SAMPLE_BYTES);
        assert_eq!(sample.arrived, arrived, "{name}");
        let changed = match verdict {
            Verdict::Forward { .. } => true,
            Verdict::Punt(reason) => reason.name == "decapsulated",
            Verdict::Drop(_) => false,
        };
        let left = changed.then(|| head(native.frame(), SIDESTEP_SAMPLE_HEAD));
        assert_eq!(sample.left, left, "{name}");
        told += 1;
    });
    println!(
        "{}: {told} vectors told as natively, {no_room} not forwarded for want of headroom",
        target.name()
    );
    let least = if std::env::var_os(SHARE).is_some() {
        0
    } else {
        200
    };
    assert!(told > least, "{told}");
}

#[test]
fn every_vector_is_told_on_xdp_as_natively() {
    if root_or_skip() {
        every_vector_is_told_on(Target::Xdp);
    }
}

#[test]
fn every_vector_is_told_on_tc_as_natively() {
    if root_or_skip() {
        every_vector_is_told_on(Target::Tc);
    }
}
