//! Every golden vector on every target: natively, and through `BPF_PROG_TEST_RUN` for XDP and TC.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sidestep_abi::{Reason, SIDESTEP_SAMPLE_BYTES, SIDESTEP_SAMPLE_HEAD};
use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::kernel::{Action, Head, Kernel, Sampling, Target, TraceFilter};
use sidestep_datapath::{Image, Limits, Native, Verdict};
use sidestep_lab::capability::root_or_skip;
use sidestep_lab::hexdiff::plain;
use sidestep_lab::vectors::{Case, Expect, VectorFile};
use sidestep_model::config;
use sidestep_model::node::Node;

fn vectors() -> Vec<VectorFile> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    VectorFile::read_all(&directory).expect("the vector files are of the format")
}

fn node(file: &VectorFile) -> Node {
    let parsed =
        config::File::parse(&file.node_text).unwrap_or_else(|e| panic!("{}: {e}", file.group));
    parsed
        .node()
        .unwrap_or_else(|e| panic!("{}: {e}", file.group))
}

fn compile(node: &Node) -> Compiled {
    let ports: BTreeSet<_> = node.links.keys().copied().collect();
    Compiler::new(Limits::default())
        .compile(node, &ports)
        .expect("a vector's node compiles")
}

/// What a target made of a case, in the words of the vector.
fn describe(node: &Node, verdict: Verdict, frame: &[u8]) -> Expect {
    match verdict {
        Verdict::Forward { ifindex } => {
            let port = node.links.values().find(|link| link.ifindex.0 == ifindex);
            Expect::Forward {
                port: port.map_or_else(|| format!("ifindex {ifindex}"), |link| link.name.clone()),
                frame: frame.to_vec(),
            }
        }
        Verdict::Kernel(reason) => Expect::Kernel(reason.name.into()),
        Verdict::Drop(reason) => Expect::Drop(reason.name.into()),
    }
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

fn show(expect: &Expect) -> String {
    match expect {
        Expect::Forward { port, frame } => {
            format!("forward {port} {}", plain(frame))
        }
        Expect::Drop(reason) => format!("drop {reason}"),
        Expect::Kernel(reason) => format!("kernel {reason}"),
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
            let verdict = native.run(port.ifindex.0, &case.frame);
            if matches!(verdict, Verdict::Kernel(reason) if reason.name != "decapsulated") {
                assert_eq!(
                    native.frame(),
                    case.frame,
                    "{}: left to the kernel, changed",
                    case.name
                );
            }
            wrong += judge(&file, case, &describe(&node, verdict, native.frame()));
            cases += 1;

            let counters = native.port_counters(port.ifindex.0);
            assert_eq!(
                counters.received_packets,
                counters.forwarded + counters.kernel + counters.dropped,
                "{}: received is the sum of the verdicts",
                case.name
            );
            let Some(expected) = &case.counters else {
                continue;
            };
            let prefix = expected.route.split(' ').next().expect("split yields one");
            let slot = compiled
                .index
                .counters
                .iter()
                .find(|(key, _)| key.prefix.to_string() == prefix);
            let slot = slot
                .unwrap_or_else(|| panic!("{}: no route {prefix}", case.name))
                .1;
            let found = native.route_counters(*slot);
            if (found.packets, found.errors) != (expected.packets, expected.errors) {
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

/// A test run arrives on interface 1: that index changes places with the ingress port's.
fn with_ingress_1(image: &Image, ingress: u32) -> Image {
    let swapped = |ifindex| match ifindex {
        1 => ingress,
        other if other == ingress => 1,
        other => other,
    };
    let mut image = image.clone();
    image.ports = image
        .ports
        .into_iter()
        .map(|(ifindex, mut port)| {
            port.ifindex = swapped(ifindex);
            (port.ifindex, port)
        })
        .collect();
    for adjacency in image.adjacencies.values_mut() {
        adjacency.ifindex = swapped(adjacency.ifindex);
    }
    image
}

/// Counters that say what a test run does not: where the frame went, and why.
struct Before {
    sent: BTreeMap<u32, u64>,
    reasons: Vec<u64>,
}

impl Before {
    fn read(kernel: &Kernel, image: &Image) -> Self {
        let sent = |ifindex| {
            kernel
                .port_counters(ifindex)
                .expect("counters")
                .sent_packets
        };
        Self {
            sent: image
                .ports
                .keys()
                .map(|&ifindex| (ifindex, sent(ifindex)))
                .collect(),
            reasons: kernel.reason_counters().expect("counters"),
        }
    }

    fn verdict(&self, after: &Self, action: Action) -> Verdict {
        let reason = || {
            let number = (0..self.reasons.len()).find(|&n| after.reasons[n] > self.reasons[n]);
            Reason::from_number(number.expect("a reason was counted") as u32)
                .expect("it is in the table")
        };
        match action {
            Action::Forward => {
                let egress = self
                    .sent
                    .iter()
                    .find(|(ifindex, sent)| after.sent[*ifindex] > **sent);
                Verdict::Forward {
                    ifindex: *egress.expect("a sent frame was counted").0,
                }
            }
            Action::Kernel => Verdict::Kernel(reason()),
            Action::Drop => Verdict::Drop(reason()),
            Action::Unknown(code) => panic!("return code {code}"),
        }
    }
}

/// XDP keeps 256 bytes in front of a frame, some for itself: what a behavior adds beyond is the kernel's to do.
const XDP_HEADROOM: usize = 200;

/// `bpf_skb_adjust_room` leaves no less than an IPv4 header behind the Ethernet header.
const TC_RUNT: usize = 14 + 20;
/// `BPF_PROG_TEST_RUN` builds an skb only from a frame whose IP header, as its `EtherType` has it, is whole.
const TEST_RUN_MIN: usize = 14 + 40;

fn every_vector_holds_on(target: Target) {
    let pins = PathBuf::from(format!(
        "/sys/fs/bpf/sidestep-vectors-{}-{}",
        std::process::id(),
        target.name()
    ));
    let mut kernel =
        Kernel::load(Limits::default(), &pins).expect("the kernel takes the packet path");
    let (mut cases, mut wrong, mut no_room) = (0, 0, 0);
    for file in vectors() {
        let node = node(&file);
        let compiled = compile(&node);
        let ingress: BTreeSet<&str> = file.cases.iter().map(|case| case.port.as_str()).collect();
        for port in ingress {
            let index = node
                .link_by_name(port)
                .expect("checked by the reader")
                .ifindex
                .0;
            let image = with_ingress_1(&compiled.image, index);
            kernel
                .apply(&Image::default(), &image)
                .expect("the tables take a vector's node");
            for case in file.cases.iter().filter(|case| case.port == port) {
                let before = Before::read(&kernel, &image);
                let Ok(run) = kernel.test_run(target, &case.frame, 1) else {
                    assert!(
                        case.frame.len() < TEST_RUN_MIN,
                        "{}: the kernel runs it",
                        case.name
                    );
                    println!(
                        "{}: skipped {}: a test run takes no such frame",
                        target.name(),
                        case.name
                    );
                    continue;
                };
                let after = Before::read(&kernel, &image);
                let mut verdict = before.verdict(&after, run.action);
                if let Verdict::Forward { ifindex } = &mut verdict {
                    *ifindex = match *ifindex {
                        1 => index,
                        other if other == index => 1,
                        other => other,
                    };
                }
                cases += 1;
                let found = describe(&node, verdict, &run.frame);
                if let Expect::Forward { frame, .. } = &case.expect
                    && want_of_room(&found)
                    && (frame.len() > case.frame.len() + XDP_HEADROOM || frame.len() < TC_RUNT)
                {
                    assert_eq!(
                        run.frame, case.frame,
                        "{}: not forwarded, and changed",
                        case.name
                    );
                    no_room += 1;
                    continue;
                }
                wrong += judge(&file, case, &found);
            }
            kernel
                .apply(&image, &Image::default())
                .expect("emptying works");
        }
    }
    kernel.detach_all().expect("the pins go");
    let _ = std::fs::remove_dir(&pins);
    println!(
        "{}: {} of {cases} vectors hold; {no_room} of them not forwarded for want of headroom",
        target.name(),
        cases - wrong
    );
    assert_eq!(wrong, 0);
}

#[test]
fn every_vector_holds_on_xdp() {
    if root_or_skip("every_vector_holds_on_xdp") {
        every_vector_holds_on(Target::Xdp);
    }
}

#[test]
fn every_vector_holds_on_tc() {
    if root_or_skip("every_vector_holds_on_tc") {
        every_vector_holds_on(Target::Tc);
    }
}

/// What the traced program tells of each vector is what the native target tells: verdict, steps, frames.
fn every_vector_is_told_on(target: Target) {
    let pins = PathBuf::from(format!(
        "/sys/fs/bpf/sidestep-told-{}-{}",
        std::process::id(),
        target.name()
    ));
    let mut kernel =
        Kernel::load(Limits::default(), &pins).expect("the kernel takes the packet path");
    let many = Sampling {
        rate: std::num::NonZeroU32::new(1_000_000).expect("not 0"),
        bytes: SIDESTEP_SAMPLE_BYTES,
    };
    kernel
        .trace_start(&TraceFilter::default(), many)
        .expect("the kernel takes the traced packet path");
    let (mut told, mut no_room) = (0, 0);
    for file in vectors() {
        let node = node(&file);
        let compiled = compile(&node);
        let ingress: BTreeSet<&str> = file.cases.iter().map(|case| case.port.as_str()).collect();
        for port in ingress {
            let index = node
                .link_by_name(port)
                .expect("checked by the reader")
                .ifindex
                .0;
            let image = with_ingress_1(&compiled.image, index);
            kernel
                .apply(&Image::default(), &image)
                .expect("the tables take a vector's node");
            for case in file.cases.iter().filter(|case| case.port == port) {
                if kernel.test_run(target, &case.frame, 1).is_err() {
                    // Said by every_vector_holds_on.
                    continue;
                }
                let samples = kernel.trace_samples(10);
                let [sample] = &samples[..] else {
                    panic!("{}: told {} times", case.name, samples.len());
                };
                if want_of_room(&describe(&node, sample.verdict, &[])) {
                    no_room += 1;
                    continue;
                }
                let mut native = Native::new(&image);
                let verdict = native.run(1, &case.frame);
                assert_eq!(sample.verdict, verdict, "{}", case.name);
                assert_eq!(sample.steps, native.trace(), "{}", case.name);
                let head = |frame: &[u8], bytes: u32| Head {
                    bytes: frame[..frame.len().min(bytes as usize)].to_vec(),
                    length: frame.len() as u32,
                };
                let arrived = head(&case.frame, SIDESTEP_SAMPLE_BYTES);
                assert_eq!(sample.arrived, arrived, "{}", case.name);
                let changed = match verdict {
                    Verdict::Forward { .. } => true,
                    Verdict::Kernel(reason) => reason.name == "decapsulated",
                    Verdict::Drop(_) => false,
                };
                let left = changed.then(|| head(native.frame(), SIDESTEP_SAMPLE_HEAD));
                assert_eq!(sample.left, left, "{}", case.name);
                told += 1;
            }
            kernel
                .apply(&image, &Image::default())
                .expect("emptying works");
        }
    }
    kernel.detach_all().expect("the pins go");
    let _ = std::fs::remove_dir(&pins);
    println!(
        "{}: {told} vectors told as natively, {no_room} not forwarded for want of headroom",
        target.name()
    );
    assert!(told > 200, "{told}");
}

#[test]
fn every_vector_is_told_on_xdp_as_natively() {
    if root_or_skip("every_vector_is_told_on_xdp_as_natively") {
        every_vector_is_told_on(Target::Xdp);
    }
}

#[test]
fn every_vector_is_told_on_tc_as_natively() {
    if root_or_skip("every_vector_is_told_on_tc_as_natively") {
        every_vector_is_told_on(Target::Tc);
    }
}
