//! Every golden vector on every target: natively, and through `BPF_PROG_TEST_RUN` for XDP and TC.

use std::collections::BTreeSet;
use std::path::Path;

use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::{Limits, Native, Verdict};
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

fn show(expect: &Expect) -> String {
    match expect {
        Expect::Forward { port, frame } => {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("forward {port} {hex}")
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
