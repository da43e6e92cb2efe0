//! Random routes and rules, in the kernel and in our tables, and random and boundary addresses:
//! both have to find the same. The packet's content does not matter; `../differential/` is about
//! that.
//!
//! `LOOKUPS=1000000 SEED=7 cargo test -p sidestep-control --test lookups` asks for more than CI does. Everything follows
//! from the seed.

mod configuration;
mod linux;
mod semantics;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Output;

use configuration::{Configuration, PORTS};
use linux::{Answer, Linux};
use sidestep_control::compile::Compiler;
use sidestep_datapath::{Limits, Native, Verdict};
use sidestep_mirror::Mirror;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::Family;
use sidestep_testkit::netns::Namespace;
use sidestep_testkit::random::Random;
use sidestep_testkit::root_or_skip;

/// Each has its own routes and rules; the lookups are divided among them.
const CONFIGURATIONS: u64 = 4;

#[test]
fn linux_and_sidestep_find_the_same_routes() {
    if !root_or_skip() {
        return;
    }
    let number = |name: &str, default: u64| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let (lookups, seed) = (number("LOOKUPS", 100_000), number("SEED", 1));
    let mut tally = Tally::default();
    for family in [Family::V6, Family::V4] {
        for round in 0..CONFIGURATIONS {
            let mut random = Random::new(seed * 1000 + round);
            let configuration = Configuration::random(family, &mut random);
            let count = lookups / CONFIGURATIONS / 2;
            compare(&configuration, count, &mut random, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(
        tally.forwarded > lookups / 4
            && tally.refused > lookups / 100
            && tally.not_asked < lookups / 4,
        "{tally:?}"
    );
}

/// Result of the lookups.
#[derive(Debug, Default)]
struct Tally {
    forwarded: u64,
    refused: u64,
    local: u64,
    /// Addresses that no router looks up.
    not_asked: u64,
}

fn compare(configuration: &Configuration, count: u64, random: &mut Random, tally: &mut Tally) {
    let namespace =
        Namespace::create(&format!("lookups_{}", std::process::id())).expect("a namespace");
    configuration.apply(&namespace);
    let compared = namespace.run(|| {
        let mirror = Mirror::open().expect("the kernel's configuration");
        let node = mirror.node();
        let ports: Vec<_> = PORTS
            .map(|name| node.link_by_name(name).expect("made").clone())
            .into();
        let compiled = Compiler::new(Limits::default())
            .compile(
                node,
                &ports
                    .iter()
                    .map(|port| port.ifindex)
                    .collect::<BTreeSet<_>>(),
            )
            .expect("tables");
        let left = &compiled.index.punt_reasons;
        assert!(left.is_empty(), "nothing is left to the kernel: {left:?}");
        let unsupported = &compiled.index.unsupported;
        assert!(unsupported.is_empty(), "{unsupported:?}");
        let mut native = Native::new(&compiled.image);
        let mut linux = Linux::open();
        for _ in 0..count {
            let port = random.pick(&ports);
            let (to, from) = configuration.addresses(random);
            let ours = native.run(port.ifindex.0, &configuration::frame(port.mac.0, to, from));
            let theirs = linux.lookup(to, from, port.ifindex.0);
            let mac = native.frame().first_chunk().copied();
            if let Err(what) = judge(node, to, (ours, mac), theirs, tally) {
                let trace: Vec<_> = native
                    .trace()
                    .iter()
                    .map(|step| (step.kind, step.a, step.b))
                    .collect();
                panic!(
                    "{to} from {from} iif {}: {what}\n{trace:?}\n{configuration}",
                    port.name
                );
            }
        }
    });
    compared.expect("the namespace can be entered");
}

/// Returns true if both agree. For forwarded packets, compares the interface and the next hop's
/// MAC.
fn judge(
    node: &Node,
    to: IpAddr,
    (ours, mac): (Verdict, Option<[u8; 6]>),
    theirs: Answer,
    tally: &mut Tally,
) -> Result<(), String> {
    let next_hop = |ifindex, gateway: Option<IpAddr>| {
        let neighbor = node
            .neighbors
            .get(&(IfIndex(ifindex), gateway.unwrap_or(to)));
        neighbor?.lladdr.map(|mac| mac.0)
    };
    let reason = match ours {
        Verdict::Forward { .. } => "forward",
        Verdict::Punt(reason) | Verdict::Drop(reason) => reason.name,
    };
    let count = match (reason, ours, theirs) {
        ("forward", Verdict::Forward { ifindex: ours }, Answer::Forward { ifindex, gateway })
            if ours == ifindex && mac.is_some() && mac == next_hop(ifindex, gateway) =>
        {
            &mut tally.forwarded
        }
        ("blackhole", _, Answer::Error(EINVAL)) => &mut tally.refused,
        ("route_miss" | "route_type", _, Answer::Error(errno)) if errno != EINVAL => {
            &mut tally.refused
        }
        ("local", _, Answer::Local) => &mut tally.local,
        // No address to be routed; on a link, unresolved.
        ("multicast" | "bad_source" | "link_local" | "bad_address", ..)
        | ("neighbor", _, Answer::Forward { .. }) => &mut tally.not_asked,
        _ => {
            let names: Vec<_> = node
                .links
                .values()
                .map(|link| (link.ifindex.0, &link.name))
                .collect();
            return Err(format!("{ours:?} to {mac:x?}, Linux {theirs:?}; {names:?}"));
        }
    };
    *count += 1;
    Ok(())
}

const EINVAL: i32 = nix::errno::Errno::EINVAL as i32;

fn succeeded(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
