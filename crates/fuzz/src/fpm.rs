//! Fuzz target for FPM: frames of netlink messages, as zebra sends them.
//!
//! No stream panics, a refused frame changes nothing, and every resulting node compiles or is
//! refused.

use std::collections::BTreeSet;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_mirror::fpm::encode::Encoder;
use sidestep_mirror::fpm::{decode, frame_length, node_of};
use sidestep_model::config::File;
use sidestep_testkit::random::Random;

use crate::Target;
use crate::datapath::nodes::vectors;
use crate::netlink::{links, make_lengths_fit};

/// Everything that zebra of FRR 10.7 sent to a new listener.
const ZEBRA: &[u8] = include_bytes!("../../mirror/tests/data/zebra-10.7.fpm");
/// Length of the header of a frame.
const HEADER: usize = 4;

/// Fuzz target for FPM. An input is a stream.
pub struct Fpm {
    links: Vec<u8>,
    seeds: Vec<(String, Vec<u8>)>,
}

impl Target for Fpm {
    const NAME: &'static str = "fpm";

    fn new() -> Self {
        let zebra = Encoder { sender: 7 };
        let mut seeds = vec![("zebra".to_owned(), ZEBRA.to_vec())];
        let mut all_links = Vec::new();
        for file in vectors() {
            let node = File::parse(&file.node_text)
                .and_then(|parsed| parsed.node())
                .expect("a vector's node is read");
            if links(&node).len() > all_links.len() {
                all_links = links(&node);
            }
            let (mut inline, mut by_object) = (Vec::new(), Vec::new());
            for (number, route) in node.routes.values().enumerate() {
                inline.extend(zebra.route(route));
                let id = number as u32 + 1;
                for (hop, member) in route.next_hops.iter().zip([id, id + 1000]) {
                    by_object.extend(zebra.next_hop(member, hop));
                }
                by_object.extend(zebra.group(id + 2000, &[id, id + 1000]));
                let mut route = route.clone();
                route.nhid = Some(id + 2000);
                by_object.extend(zebra.route(&route));
            }
            seeds.push((file.group.clone(), inline));
            seeds.push((format!("{}-objects", file.group), by_object));
        }
        Self {
            links: all_links,
            seeds,
        }
    }

    fn run(&mut self, input: &[u8]) {
        let (node, result) = node_of(&self.links, input);
        if let Err(error) = result {
            assert!(error.offset <= 0xffff, "{error}");
            // The node is that of the frames before the refused one.
            let (before, again) = node_of(&self.links, &input[..valid(input)]);
            assert_eq!((before.routes, again), (node.routes.clone(), Ok(())));
        }
        let ports: BTreeSet<_> = node.links.keys().copied().take(8).collect();
        let _ = Compiler::new(Limits::default()).compile(&node, &ports);
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.seeds.clone()
    }

    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        if random.one_in(4) {
            let (_, other) = random.pick(&self.seeds);
            input.extend(other);
            input.truncate(limit);
        }
        engine(input, limit);
        if !random.one_in(4) {
            make_frames_fit(input);
        }
    }
}

/// Returns the length of the frames before the first one that is refused or incomplete.
fn valid(stream: &[u8]) -> usize {
    let mut at = 0;
    while let Ok(Some(length)) = frame_length(&stream[at..]) {
        let Some(frame) = stream[at..].get(..length) else {
            break;
        };
        if decode(frame).is_err() {
            break;
        }
        at += length;
    }
    at
}

/// Repairs the header of every frame, and the lengths in it.
fn make_frames_fit(stream: &mut [u8]) {
    let mut at = 0;
    while at + HEADER + 16 <= stream.len() {
        let rest = stream.len() - at;
        let claimed = u16::from_be_bytes([stream[at + 2], stream[at + 3]]);
        let length = usize::from(claimed).clamp(HEADER + 16, rest.min(0xffff));
        stream[at..at + 2].copy_from_slice(&[1, 1]);
        stream[at + 2..at + 4].copy_from_slice(&(length as u16).to_be_bytes());
        make_lengths_fit(&mut stream[at + HEADER..at + length], fixed);
        at += length;
    }
}

/// Returns the number of bytes between the header of a message of this type and its attributes.
fn fixed(kind: u16) -> usize {
    match kind {
        104 | 105 => 8,
        _ => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_valid_streams_and_keep_their_lengths() {
        for (name, seed) in Fpm::new().seeds() {
            let mut changed = seed.clone();
            make_frames_fit(&mut changed);
            assert_eq!(changed, seed, "{name}");
            assert_eq!(valid(&seed), seed.len(), "{name}");
        }
    }

    #[test]
    fn random_changes_of_the_seeds_keep_the_rules() {
        let mut target = Fpm::new();
        let mut random = Random::new(1);
        for round in 0..400 {
            let (_, seed) = random.pick(&target.seeds).clone();
            let mut input = seed;
            for _ in 0..random.between(1, 8) {
                if !input.is_empty() {
                    let at = random.below(input.len());
                    input[at] = random.byte();
                }
            }
            input.truncate(random.between(0, input.len()));
            if round % 2 == 0 {
                make_frames_fit(&mut input);
            }
            target.run(&input);
        }
    }
}
