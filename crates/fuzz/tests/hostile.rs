//! Hostile frames on the native target: truncated, with flipped bits, spliced, random, and whole
//! packets of nested headers with wrong fields. The same rules as in fuzzing, without a sanitizer,
//! on the same frames each time.

use std::fs;
use std::path::Path;

use sidestep_datapath::FRAME_MAX;
use sidestep_fuzz::Target;
use sidestep_fuzz::datapath::Datapath;
use sidestep_fuzz::datapath::forge::Forge;
use sidestep_fuzz::datapath::nodes::{Nodes, Variant};
use sidestep_fuzz::datapath::packet::make_right;
use sidestep_fuzz::datapath::rules::Bench;
use sidestep_testkit::random::Random;

/// Number of leading bytes to truncate at and to flip: all headers of the longest vector.
const HEADERS: usize = 14 + 40 + 8 + 16 * 16 + 40;
/// Forged packets per node.
const PACKETS: usize = 1000;

/// Ingress interface and frame.
type Arrival = (u32, Vec<u8>);

/// Returns every node of the vectors, with its cases.
fn benches() -> Vec<(Bench, Vec<Arrival>)> {
    Nodes::of_the_vectors()
        .each()
        .map(|(name, image, cases)| {
            let cases = cases
                .into_iter()
                .map(|(ifindex, case)| (ifindex, case.frame.clone()))
                .collect();
            (Bench::new(name, image.clone()), cases)
        })
        .collect()
}

#[test]
fn every_vector_after_earlier_packets_keeps_the_rules() {
    for (name, image, arrivals) in Nodes::of_the_vectors().arrivals() {
        let mut bench = Bench::new(name, image.clone());
        for (port, frame) in arrivals {
            bench.run(port, frame);
        }
    }
}

#[test]
fn every_input_that_once_failed_keeps_the_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs/datapath");
    let mut target = Datapath::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        target.run(&fs::read(entry.expect("an entry").path()).expect("a file"));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn every_vector_truncated_at_each_byte_keeps_the_rules() {
    for (mut bench, cases) in benches() {
        for (port, frame) in &cases {
            for length in 0..frame.len().min(HEADERS) {
                bench.run(*port, &frame[..length]);
            }
            bench.run(*port, frame);
        }
    }
}

#[test]
fn every_vector_with_each_byte_changed_keeps_the_rules() {
    let mut random = Random::new(1);
    for (mut bench, cases) in benches() {
        for (port, frame) in &cases {
            let mut changed = frame.clone();
            for at in 0..frame.len().min(HEADERS) {
                changed[at] = match random.below(4) {
                    0 => frame[at] ^ (1 << random.below(8)),
                    1 => frame[at].wrapping_add(1),
                    2 => !frame[at],
                    _ => random.byte(),
                };
                bench.run(*port, &changed);
                changed[at] = frame[at];
            }
        }
    }
}

#[test]
fn vectors_spliced_and_noise_keep_the_rules() {
    let mut random = Random::new(2);
    for (mut bench, cases) in benches() {
        for _ in 0..PACKETS {
            let (port, first) = random.pick(&cases);
            let (_, second) = random.pick(&cases);
            let at = random.below(first.len().min(HEADERS));
            let from = random.below(second.len().min(HEADERS));
            let mut frame = [&first[..at], &second[from..]].concat();
            for _ in 0..random.below(4) {
                let at = random.below(frame.len());
                if let Some(byte) = frame.get_mut(at) {
                    *byte = random.byte();
                }
            }
            if random.one_in(2) {
                make_right(&mut frame);
            }
            bench.run(*port, &frame);

            let length = random.below(400);
            let mut noise = random.bytes(length);
            let header = first.len().min(length).min(14 + random.below(60));
            noise[..header].copy_from_slice(&first[..header]);
            make_right(&mut noise);
            bench.run(*port, &noise);
        }
    }
}

#[test]
fn forged_header_chains_keep_the_rules_on_every_variant_of_a_node() {
    let mut forwarded = 0;
    for (seed, (bench, _)) in benches().into_iter().enumerate() {
        let mut benches = Variant::ALL
            .map(|variant| Bench::new(&format!("{variant:?}"), variant.apply(bench.image())));
        let mut random = Random::new(seed as u64);
        for number in 0..PACKETS {
            let port = random.below(bench.image().ports.len());
            let frame = Forge::new(bench.image(), &mut random).frame(port);
            let ifindex = bench.port(port as u8);
            for variant in [0, 1, 2 + number % (Variant::ALL.len() - 2)] {
                benches[variant].run(ifindex, &frame);
            }
        }
        forwarded += benches[0].forwarded();
    }
    assert!(
        forwarded > 1000,
        "the packets are good enough to be sent: {forwarded}"
    );
}

#[test]
fn repeatedly_mutated_inputs_stay_within_the_limit_and_keep_the_rules() {
    const LIMIT: usize = 400;
    let mut target = Datapath::new();
    let mut random = Random::new(3);
    for (_, mut input) in target.seeds() {
        for _ in 0..40 {
            let seed = random.next();
            let engine = |input: &mut Vec<u8>, limit: usize| {
                let mut random = Random::new(seed);
                input.truncate(random.below(limit));
                for _ in 0..3 {
                    let at = random.below(input.len() + 1);
                    input.insert(at, random.byte());
                }
                input.truncate(limit);
            };
            input.truncate(LIMIT);
            target.mutate(&mut input, LIMIT, &mut random, &engine);
            assert!(input.len() <= LIMIT, "{}", input.len());
            target.run(&input);
        }
    }
}

#[test]
fn frames_of_the_largest_size_keep_the_rules() {
    for (mut bench, cases) in benches() {
        for (port, frame) in cases.iter().take(4) {
            let mut large = frame.clone();
            for length in [9000, 0xffff, 0xffff + 14, 0xffff + 200] {
                large.resize(length, 0);
                make_right(&mut large);
                let length = length.min(FRAME_MAX);
                bench.run(*port, &large[..length]);
            }
        }
    }
}
