//! Fuzzes the packet path on the native target, with any frame on any port of any node of the
//! golden vectors.
//!
//! The vectors check the exact output for a packet. [`rules`] lists the properties that hold for
//! every packet.

mod before_punt;
mod flow;
pub mod forge;
pub mod input;
mod mutate;
pub mod nodes;
pub mod packet;
mod redo;
pub mod rules;

use sidestep_testkit::random::Random;

use crate::Target;
use input::{HEADER, Input};
use nodes::{Nodes, Variant};

/// Fuzz target for the packet path.
pub struct Datapath {
    nodes: Nodes,
}

impl Target for Datapath {
    const NAME: &'static str = "datapath";

    fn new() -> Self {
        Self {
            nodes: Nodes::of_the_vectors(),
        }
    }

    fn run(&mut self, input: &[u8]) {
        let Some(input) = Input::read(input) else {
            return;
        };
        let bench = self.nodes.bench(input.node, input.variant);
        let ifindex = bench.port(input.port);
        bench.set_headroom(input.headroom);
        bench.set_segment_size(input.segment_size);
        bench.run(ifindex, input.frame);
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.nodes
            .cases()
            .map(|(node, port, case)| {
                let input = Input {
                    node,
                    port,
                    variant: Variant::AsItIs,
                    headroom: input::HEADROOMS[0],
                    segment_size: 0,
                    frame: &case.frame,
                };
                (case.name.clone(), input.bytes())
            })
            .collect()
    }

    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        if input.len() < HEADER || limit < HEADER {
            return engine(input, limit);
        }
        mutate::mutate(&mut self.nodes, input, limit, random, engine);
    }
}
