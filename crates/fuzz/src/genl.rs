//! Fuzz target for generic netlink messages of the kernel: HMAC keys and the tunnel source
//! (`SEG6`), features of drivers (`netdev`), and the IDs of families.
//!
//! No message panics. Secrets stay within their length limit, and a node with the keys compiles or
//! is refused.

use std::collections::BTreeSet;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_mirror::generic_of;
use sidestep_model::config::File;
use sidestep_model::hmac::SECRET_MAX;
use sidestep_model::node::Node;
use sidestep_testkit::random::Random;

use crate::Target;
use crate::datapath::nodes::vectors;
use crate::netlink::{attribute, make_lengths_fit, message};

/// Length of `struct genlmsghdr`.
const GENERIC: usize = 4;
/// Message type of a family. The parser of replies ignores its value.
const FAMILY: u16 = 0x20;

/// Fuzz target for generic netlink. An input is one datagram.
pub struct Genl {
    /// A node with a route that signs packets.
    node: Node,
}

impl Target for Genl {
    const NAME: &'static str = "genl";

    fn new() -> Self {
        let files = vectors();
        let signs = files.iter().find(|file| file.group == "hmac_sign");
        let text = signs.map_or("", |file| file.node_text.as_str());
        Self {
            node: File::parse(text)
                .and_then(|file| file.node())
                .expect("a vector's node is read"),
        }
    }

    fn run(&mut self, input: &[u8]) {
        let parsed = generic_of(input);
        assert_eq!(parsed, generic_of(input), "read twice");
        for key in parsed.hmac_keys.values() {
            let length = key.secret.expose().len();
            assert!(length <= SECRET_MAX, "the secret has {length} bytes");
        }
        for (id, _) in &parsed.families {
            assert_ne!(*id, 0, "a family without an ID");
        }
        if parsed.hmac_keys != self.node.hmac_keys {
            self.node.hmac_keys = parsed.hmac_keys;
            let ports: BTreeSet<_> = self.node.links.keys().copied().collect();
            let _ = Compiler::new(Limits::default()).compile(&self.node, &ports);
        }
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        let head = [1, 1, 0, 0];
        let key = |id: u32, algorithm: u8, secret: &[u8]| {
            let attributes = [
                (3, id.to_ne_bytes().to_vec()),
                (5, vec![secret.len() as u8]),
                (6, vec![algorithm]),
                (4, secret.to_vec()),
            ];
            message(FAMILY, &head, &attributes)
        };
        let named = [(1, b"mgmt\0".to_vec()), (2, 7_u32.to_ne_bytes().to_vec())]
            .map(|(kind, value)| attribute(kind, &value))
            .concat();
        let family = [
            (1, FAMILY.to_ne_bytes().to_vec()),
            (2, b"netdev\0".to_vec()),
            (7, attribute(1, &named)),
        ];
        let device = [
            (1, 2_u32.to_ne_bytes().to_vec()),
            (3, 0x7f_u64.to_ne_bytes().to_vec()),
        ];
        let source = [(1, [0xfc; 16].to_vec())];
        [
            ("key", key(7, 2, b"a secret")),
            (
                "keys",
                [
                    key(1, 1, b"y"),
                    key(7, 2, &[7; SECRET_MAX]),
                    key(9, 3, b"x"),
                ]
                .concat(),
            ),
            ("tunsrc", message(FAMILY, &head, &source)),
            ("family", message(FAMILY, &head, &family)),
            ("device", message(FAMILY, &head, &device)),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .into()
    }

    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        engine(input, limit);
        if !random.one_in(4) {
            make_lengths_fit(input, |_| GENERIC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_parsed_as_intended() {
        let seeds = Genl::new().seeds();
        let parsed: Vec<_> = seeds.iter().map(|(_, seed)| generic_of(seed)).collect();
        assert_eq!(parsed[0].hmac_keys[&7].secret.expose(), b"a secret");
        // The third key has an unknown algorithm.
        assert_eq!(parsed[1].hmac_keys.keys().collect::<Vec<_>>(), [&1, &7]);
        assert_eq!(parsed[2].tunsrc.len(), 1);
        assert_eq!(parsed[3].families, [(FAMILY, 1)]);
        assert_eq!(parsed[4].devices[0].1, 0x7f);
    }
}
