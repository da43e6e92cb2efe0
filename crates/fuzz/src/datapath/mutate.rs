//! Mutations of an input that know the structure of a frame. libFuzzer mutates bytes: it passes one
//! check at a time and stops at a checksum.

use sidestep_testkit::random::Random;

use super::forge::Forge;
use super::input::{HEADER, HEADROOMS, Input, SEGMENT_SIZES};
use super::nodes::{Nodes, Variant};
use super::packet::make_right;

/// See [`crate::Target::mutate`].
pub(super) fn mutate(
    nodes: &mut Nodes,
    input: &mut Vec<u8>,
    limit: usize,
    random: &mut Random,
    engine: &dyn Fn(&mut Vec<u8>, usize),
) {
    let kind = random.below(16);
    if kind < 3 {
        return engine(input, limit);
    }
    let Some(read) = Input::read(input) else {
        return engine(input, limit);
    };
    let (mut node, mut port, mut variant) = (read.node, read.port, read.variant);
    let (mut headroom, mut segment_size) = (read.headroom, read.segment_size);
    let mut frame = read.frame.to_vec();
    let image = nodes.bench(node, variant).image();
    match kind {
        3..=6 => engine(&mut frame, limit - HEADER),
        7 => frame = Forge::new(image, random).frame(port.into()),
        8 => Forge::new(image, random).wrap(&mut frame),
        9 => Forge::new(image, random).insert(&mut frame),
        10 | 11 => Forge::new(image, random).redirect(&mut frame),
        12 | 13 => Forge::new(image, random).tweak(&mut frame),
        14 => {
            let hashes: Vec<u32> = nodes.hashes().collect();
            node = *random.pick(&hashes);
        }
        _ => match random.below(4) {
            0 => port = random.below(8) as u8,
            1 => headroom = *random.pick(&HEADROOMS),
            2 => segment_size = *random.pick(&SEGMENT_SIZES),
            _ => variant = *random.pick(&Variant::ALL),
        },
    }
    if !random.one_in(4) {
        make_right(&mut frame);
        // Set the destination MAC to that of the ingress port.
        let bench = nodes.bench(node, variant);
        let ifindex = bench.port(port);
        if let (Some(port), Some(mac)) =
            (bench.image().ports.get(&ifindex), frame.first_chunk_mut())
        {
            *mac = port.mac;
        }
    }
    frame.truncate(limit - HEADER);
    let changed = Input {
        node,
        port,
        variant,
        headroom,
        segment_size,
        frame: &frame,
    };
    *input = changed.bytes();
}
