//! Fuzz target for node files: YAML, the lines in it, and the resulting tables.
//!
//! An accepted file compiles or is refused with an error. Forged packets satisfy the rules of the
//! packet path on its tables, as on the nodes of the vectors.

use std::collections::BTreeSet;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_model::config::File;
use sidestep_testkit::random::Random;

use crate::Target;
use crate::datapath::forge::Forge;
use crate::datapath::nodes::vectors;
use crate::datapath::rules::Bench;
use crate::text::Vocabulary;

/// Number of packets per node.
const PACKETS: usize = 8;

/// Fuzz target for node files.
pub struct NodeFile {
    files: Vec<(String, String)>,
    vocabulary: Vocabulary,
}

impl Target for NodeFile {
    const NAME: &'static str = "node";

    fn new() -> Self {
        let files: Vec<(String, String)> = vectors()
            .into_iter()
            .map(|file| (file.group, file.node_text.trim_start().to_owned()))
            .collect();
        Self {
            vocabulary: Vocabulary::of(files.iter().map(|(_, text)| text.as_str())),
            files,
        }
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        let Ok(node) = File::parse(text).and_then(|file| file.node()) else {
            return;
        };
        let ports: BTreeSet<_> = node.links.keys().copied().collect();
        let Ok(compiled) = Compiler::new(Limits::default()).compile(&node, &ports) else {
            return;
        };
        if compiled.image.ports.is_empty() {
            return;
        }
        let mut bench = Bench::new(text, compiled.image);
        let mut random = Random::new(input.len() as u64);
        for number in 0..PACKETS {
            let port = number % bench.image().ports.len();
            let frame = Forge::new(bench.image(), &mut random).frame(port);
            let ifindex = bench.port(port as u8);
            bench.run(ifindex, &frame);
        }
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.files
            .iter()
            .map(|(name, text)| (name.clone(), text.clone().into_bytes()))
            .collect()
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }
}
