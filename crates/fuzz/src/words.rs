//! Fuzz target for iproute2's syntax: routes, rules and neighbors as in `sidestep route` and node
//! files, and SR policies.
//!
//! Every accepted line can be printed, and parsing the printed text gives an equal result.

use sidestep_model::behavior::text::completion_words;
use sidestep_model::grammar::{Context, Names, Style, Words, neighbor, policy, route, rule};
use sidestep_model::node::IfIndex;
use sidestep_model::route::Owner;
use sidestep_testkit::vectors::VectorFile;

use crate::Target;
use crate::datapath::nodes::vectors;
use crate::text::Vocabulary;

/// Fuzz target for lines. The first byte of an input selects the kind of line.
pub struct Grammar {
    lines: Vec<String>,
    vocabulary: Vocabulary,
}

/// Interfaces eth0, eth1 and eth2, numbered from 1.
struct Three;

impl Names for Three {
    fn ifindex(&self, name: &str) -> Option<IfIndex> {
        let number = self.interfaces().iter().position(|known| known == name)?;
        Some(IfIndex(number as u32 + 1))
    }

    fn name(&self, ifindex: IfIndex) -> Option<String> {
        let place = ifindex.0.checked_sub(1)? as usize;
        self.interfaces().get(place).cloned()
    }

    fn interfaces(&self) -> Vec<String> {
        ["eth0", "eth1", "eth2"].map(str::to_owned).to_vec()
    }
}

impl Target for Grammar {
    const NAME: &'static str = "words";

    fn new() -> Self {
        let mut lines = Vec::new();
        for VectorFile { node, .. } in vectors() {
            for (kind, more) in [
                ('r', node.routes),
                ('u', node.rules),
                ('n', node.neighbors),
                ('p', node.policies),
            ] {
                lines.extend(more.iter().map(|line| format!("{kind}{line}")));
            }
        }
        lines.sort_unstable();
        lines.dedup();
        let words = completion_words();
        let lines_in = lines.iter().map(|line| &line[1..]);
        Self {
            vocabulary: Vocabulary::of(lines_in.chain([words.as_str()])),
            lines,
        }
    }

    fn run(&mut self, input: &[u8]) {
        let Some((kind, line)) = input.split_first() else {
            return;
        };
        let Ok(line) = std::str::from_utf8(line) else {
            return;
        };
        let owner = if kind.is_ascii_uppercase() {
            Owner::Sidestep
        } else {
            Owner::Kernel
        };
        let ctx = Context {
            names: &Three,
            family: None,
            owner,
        };
        match kind.to_ascii_lowercase() {
            b'u' => a_rule(line, &ctx),
            b'n' => a_neighbor(line, &ctx),
            b'p' => a_policy(line),
            _ => a_route(line, &ctx),
        }
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.lines
            .iter()
            .enumerate()
            .map(|(number, line)| (format!("line-{number}"), line.clone().into_bytes()))
            .collect()
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }
}

fn a_route(line: &str, ctx: &Context) {
    let Ok(found) = route::parse_line(line, ctx) else {
        return;
    };
    let text = route::print(&found, ctx.names, Style::Add);
    let again = route::parse_line(&text, ctx);
    assert!(
        again.is_ok(),
        "{line:?} is {found:?}, but {text:?}: {again:?}"
    );
    let again = again.expect("tested");
    assert_eq!(
        route::print(&again, ctx.names, Style::Add),
        text,
        "{line:?}"
    );
    assert_eq!(again, found, "{line:?} is written {text:?}");
}

fn a_rule(line: &str, ctx: &Context) {
    let rules = rule::kernel_rules();
    let Ok(found) = rule::parse_line(line, ctx, &rules) else {
        return;
    };
    for rule in found {
        let ctx = Context {
            family: Some(rule.family),
            ..*ctx
        };
        for style in [Style::Add, Style::Show] {
            let text = rule::print(&rule, ctx.names, style);
            let again = rule::parse_line(&text, &ctx, &rules);
            assert_eq!(
                again.as_deref(),
                Ok(&[rule.clone()][..]),
                "{line:?} is written {text:?}"
            );
        }
    }
}

fn a_neighbor(line: &str, ctx: &Context) {
    let Ok((key, found)) = neighbor::parse_line(line, ctx) else {
        return;
    };
    let text = neighbor::print(&key, &found, ctx.names, Style::Add);
    assert_eq!(
        neighbor::parse_line(&text, ctx),
        Ok((key, found)),
        "{line:?} is written {text:?}"
    );
}

fn a_policy(line: &str) {
    let Ok((name, found)) = policy::parse(&mut Words::from_line(line)) else {
        return;
    };
    let text = policy::print(&name, &found);
    assert_eq!(
        policy::parse(&mut Words::from_line(&text)),
        Ok((name, found)),
        "{line:?} is written {text:?}"
    );
}
