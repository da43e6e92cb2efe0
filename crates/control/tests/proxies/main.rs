//! SR proxies on the native target: random packets beside a model of the draft's pseudocode, and several CPUs that learn.
//!
//! `PROXY_PACKETS=10000000 SEED=7 cargo test -p sidestep-control --test proxies` asks for more than CI does. Everything
//! follows from the seed.

mod bench;
#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod common;
mod flow;
mod headers;
mod learned;
mod model;
mod packet;
mod packets;
mod segments;
mod stripped;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bench::Bench;
use model::{Answer, Kind, Model, Proxy};
use sidestep_testkit::differential::headers::proto;
use sidestep_testkit::differential::shrink;
use sidestep_testkit::random::Random;

/// Packets that one node meets, one after the other.
const SEQUENCE: u64 = 1000;

/// A frame that arrives: when, where.
type Arrival = (u64, usize, Vec<u8>);

#[test]
fn random_packets_follow_the_pseudocode_of_the_draft() {
    let number = |name: &str, default: u64| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let (packets, seed) = (number("PROXY_PACKETS", 150_000), number("SEED", 1));
    let mut tally = BTreeMap::<String, u64>::new();
    for round in 0..packets.div_ceil(SEQUENCE) {
        let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let mut bench = Bench::random(&mut random);
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut now = 1;
        for _ in 0..SEQUENCE {
            now += if random.one_in(8) {
                random.next() % 2_000_000_000
            } else {
                1000
            };
            let (port, frame) = packets::random(&bench.model, &mut random);
            arrivals.push((now, port, frame));
            let (_, port, frame) = arrivals.last().expect("just pushed");
            let (_, expected, agree) = bench.ask(now, *port, frame);
            if !agree {
                let failing = small(&mut bench, arrivals);
                panic!(
                    "seed {seed}, round {round}\n{}",
                    vector(&mut bench, &failing)
                );
            }
            let place = place(&bench.model, *port, &expected);
            let kind = kind(&expected, frame.len());
            *tally.entry(format!("{place}{kind}")).or_default() += 1;
            *tally.entry(kind).or_default() += 1;
        }
    }
    for (kind, count) in &tally {
        println!("{count:8} {kind}");
    }
    for kind in KINDS {
        assert!(tally.contains_key(kind), "no {kind} in {tally:?}");
    }
}

/// Cases that must occur.
const KINDS: [&str; 33] = [
    "back with frames: forward, headers in front",
    "back by flow: forward, headers in front",
    "back by flow: drop not_learned",
    "back by flow: drop hop_limit",
    "back with NAT: forward",
    "back with NAT: forward, headers gone",
    "there with frames: forward, headers gone",
    "there by flow: forward, headers gone",
    "there with NAT: forward",
    "forward, headers in front",
    "forward, headers gone",
    "forward",
    "kernel rewritten",
    "kernel fragmented",
    "kernel local",
    "kernel multicast",
    "kernel link_local",
    "drop bad_address",
    "drop ecn",
    "drop ext_header",
    "drop hop_limit",
    "drop inner_header",
    "drop kernel_only",
    "drop learned_length",
    "drop no_route",
    "drop no_srh",
    "drop not_learned",
    "drop segments_left_zero",
    "drop srh_length",
    "drop srh_segments_left",
    "drop srh_tlv",
    "drop too_big",
    "drop upper_layer",
];

/// The first proxy that processed the packet.
fn place(model: &Model, port: usize, answer: &Answer) -> &'static str {
    let name = |port: usize, back: bool| {
        let mut proxies = model.proxies.iter();
        let of = |it: &&Proxy| port == if back { it.iface_in } else { it.iface_out };
        let proxy = proxies.find(of)?;
        Some(match (&proxy.kind, proxy.inner == proto::ETHERNET, back) {
            (_, true, true) => "back with frames: ",
            (_, true, false) => "there with frames: ",
            (Kind::ByFlow(_), _, true) => "back by flow: ",
            (Kind::ByFlow(_), _, false) => "there by flow: ",
            (Kind::Masquerading(true), _, true) => "back with NAT: ",
            (Kind::Masquerading(true), _, false) => "there with NAT: ",
            _ => "otherwise: ",
        })
    };
    let there = match answer {
        Answer::Forward { port, .. } => name(*port, false),
        _ => None,
    };
    name(port, true).or(there).unwrap_or("otherwise: ")
}

fn kind(answer: &Answer, arrived: usize) -> String {
    match answer {
        Answer::Drop(reason) => format!("drop {reason}"),
        Answer::Kernel(reason, ..) => format!("kernel {reason}"),
        Answer::Forward { frame, .. } if frame.len() > arrived => {
            "forward, headers in front".into()
        }
        Answer::Forward { frame, .. } if frame.len() + 40 <= arrived => {
            "forward, headers gone".into()
        }
        Answer::Forward { .. } => "forward".into(),
    }
}

/// Removes everything that is not needed to reproduce the failure of the last frame.
fn small(bench: &mut Bench, mut arrivals: Vec<Arrival>) -> Vec<Arrival> {
    let last = arrivals.pop().expect("a frame");
    let mut fails = |earlier: &[Arrival], frame: &[u8]| {
        bench.forget();
        for (now, port, frame) in earlier {
            bench.ask(*now, *port, frame);
        }
        !bench.ask(last.0, last.1, frame).2
    };
    let mut earlier = shrink::items(arrivals, |earlier| fails(earlier, &last.2));
    let frame = shrink::frame(&last.2, |frame| frame.len() >= 14 && fails(&earlier, frame));
    earlier.push((last.0, last.1, frame));
    earlier
}

/// The case as a vector, with the model's answer as the expected one.
fn vector(bench: &mut Bench, arrivals: &[Arrival]) -> String {
    bench.forget();
    let mut text = String::from("format: 1\ngroup: found\nabout: \"\"\nnode:\n");
    for line in bench.text.lines() {
        let _ = writeln!(text, "  {line}");
    }
    text += "cases:\n- name: found\n  earlier:\n";
    let mut answers = None;
    for (index, (now, port, frame)) in arrivals.iter().enumerate() {
        let frame_text = hex::encode(frame);
        let at = format!("{{port: \"eth{port}\", frame: \"{frame_text}\"}}");
        let lead = if index + 1 < arrivals.len() {
            "  -"
        } else {
            "  in:"
        };
        let _ = writeln!(text, "{lead} {at} # at {now} ns");
        answers = Some(bench.ask(*now, *port, frame));
    }
    let (found, expected, _) = answers.expect("a frame");
    let result = |answer: &Answer| match answer {
        Answer::Forward { port, frame, .. } => {
            format!(
                "{{forward: {{port: eth{port}, frame: \"{}\"}}}}",
                hex::encode(frame)
            )
        }
        Answer::Drop(reason) => format!("{{drop: {reason}}}"),
        Answer::Kernel(reason, ..) => format!("{{kernel: {reason}}}"),
    };
    let _ = writeln!(
        text,
        "  expect: {} # the packet path: {}",
        result(&expected),
        result(&found)
    );
    text
}
