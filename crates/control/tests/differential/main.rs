//! Random nodes and random packets: Linux's own seg6 and Sidestep answer the same question, and the frames are compared.
//!
//! `./dev differential --help` says how to run more of it. Everything follows from the seed: the failing case is printed
//! as a vector, made as small as it can be.

mod arrived;
mod bench;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod failure;
mod judge;
mod linux_form;
mod options;
mod run;

use std::path::Path;

use options::Options;
use run::Run;
use sidestep_testkit::root_or_skip;

#[test]
fn linux_and_sidestep_treat_random_packets_alike() {
    if !root_or_skip() {
        return;
    }
    let options = Options::from_environment();
    let run = sidestep_testkit::linux::on_one_cpu(|| Run::new(&options).finish())
        .expect("a thread of one CPU");
    println!("{run}");
    run.check();
}

#[test]
fn every_accepted_difference_is_documented() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance/differences.yaml");
    let text = std::fs::read_to_string(path).expect("the page is there");
    for topic in judge::TOPICS {
        assert!(text.contains(&format!("- topic: {topic}\n")), "{topic}");
    }
}
