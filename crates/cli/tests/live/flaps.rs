//! Routes that flap under traffic as fast as it comes: no packet is lost, whether its route changes or not, and the tables
//! end up as those of a fresh start.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::routes::{Change, RouteSocket};

use crate::support::flood::{self, BLOCK, Flood};
use crate::support::frames::Mac;
use crate::support::tables::{assert_same, fresh, meaning, pinned, prefixes, wait_for_prefixes};
use crate::support::{Star, begin, memory, report};

/// Changes of routes a second.
const FLAPS: f64 = 10_000.0;
/// Rounds in which each of the routes that flap changes three times.
const ROUNDS: usize = 3;
/// The first blocks of destinations flap. Others have a stable route per destination, and one has a
/// policy.
const FLAPPING: u8 = 20;
const PLAIN: u8 = 80;
const WRAPPED: u8 = PLAIN;
/// Changes in one datagram.
const BATCH: u32 = 64;

/// The next hop of those that flap while they are away: of the route that covers them.
const COVER: u8 = 4;
/// Third byte of the address of the policy's first segment.
const SEGMENT: [u8; 2] = [0xee, 5];

/// Next hops of a block: its own, and another one for a while.
fn next_hops(block: u8) -> [u8; 2] {
    [block % 4, (block + 1) % 4]
}

fn mac(next_hop: u8) -> Mac {
    [2, 0xb1, 0, 0, 0, next_hop]
}

fn via(next_hop: u8) -> String {
    format!("fc00:b::b{next_hop}")
}

/// A router with a route for each destination.
fn star() -> Star {
    let star = Star::new("liveflaps");
    let neighbors: Vec<String> = (0..=SEGMENT[1])
        .map(|number| {
            let (via, mac) = (via(number), mac_text(mac(number)));
            format!("neighbor add {via} lladdr {mac} dev eth1 nud permanent")
        })
        .collect();
    star.ip().all(neighbors.iter().map(String::as_str));
    let routes = (0..u32::from(PLAIN) * BLOCK).map(|number| {
        let (address, length) = flood::prefix(number);
        let via = via(next_hops((number / BLOCK) as u8)[0]);
        format!("route add {address}/{length} via {via} dev eth1")
    });
    let segment = format!("fc00:{:x}00::", SEGMENT[0]);
    let others = [
        format!("route add fc0d::/16 via {} dev eth1", via(COVER)),
        format!("route add {segment}/24 via {} dev eth1", via(SEGMENT[1])),
        format!(
            "route add {} encap seg6 mode encap segs {segment}1 dev eth1",
            flood::block(WRAPPED)
        ),
    ];
    let all: Vec<String> = routes.chain(others).collect();
    star.ip().all(all.iter().map(String::as_str));
    star
}

/// Number of cycles per flapping route: another next hop, removed, added again.
fn flap(star: &Star, rounds: usize) {
    let egress = star.router().ifindex("eth1").expect("eth1");
    let mut socket = RouteSocket::open(star.router()).expect("a netlink socket");
    let (began, mut flaps) = (Instant::now(), 0);
    for step in 0..3 * rounds {
        for first in (0..u32::from(FLAPPING) * BLOCK).step_by(BATCH as usize) {
            for number in first..first + BATCH {
                let [own, other] = next_hops((number / BLOCK) as u8)
                    .map(|number| Change::Replace(via(number).parse().expect("an address")));
                let change = [other, Change::Delete, own][step % 3];
                socket.prepare(flood::prefix(number), change, egress);
            }
            socket.send().expect("the kernel takes all of them");
            flaps += BATCH;
            let due = Duration::from_secs_f64(f64::from(flaps) / FLAPS);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    eprintln!("  {flaps} flaps in {:?}", began.elapsed());
}

/// Waits until everything is followed. `there`: prefixes in the tables, as many as before.
fn settle(star: &Star, there: u64) {
    // The last change of all: the number of the others is the same while they are still to come.
    let mut ip = star.ip();
    ip.run(&format!("route add fdef::/16 via {} dev eth1", via(0)));
    wait_for_prefixes(star, there + 1);
    ip.run("route del fdef::/16");
    wait_for_prefixes(star, there);
}

fn status(star: &Star) -> report::Status {
    report(star.router(), Request::ShowStatus)
}

#[test]
fn at_full_rate_no_packet_is_lost_while_ten_thousand_routes_a_second_flap() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = star();
    let tally = flood::tally(&star, "b");
    let daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1"]);
    let (there, compiled) = (prefixes(&star), status(&star).compilations);
    let destinations = u32::from(WRAPPED + 1) * BLOCK;
    let constant = |block: u8| match block {
        WRAPPED => vec![SEGMENT],
        block => vec![[block, next_hops(block)[0]]],
    };

    let flood = Flood::start(&star, "a", &tally, destinations);
    thread::sleep(Duration::from_millis(500));
    let quiet = flood.stop();
    eprintln!(
        "  without flaps: {} sent, {} did not fit",
        quiet.sent, quiet.spilled
    );
    quiet.assert_none_lost(constant);

    let flood = Flood::start(&star, "a", &tally, destinations);
    flap(&star, ROUNDS);
    settle(&star, there);
    let arrived = flood.stop();
    eprintln!(
        "  meanwhile {} sent, {} did not fit",
        arrived.sent, arrived.spilled
    );
    let by_others = arrived.assert_none_lost(|block| {
        let mut kinds = constant(block);
        if block < FLAPPING {
            kinds.extend([[block, next_hops(block)[1]], [block, COVER]]);
        }
        kinds
    });
    assert!(by_others > 0, "packets met the flaps");

    // All except batches, which cost less.
    let status = status(&star);
    let whole = status.compilations - compiled;
    assert!(whole < 10, "{whole} times everything was compiled");
    assert_eq!(status.resyncs, 0);
    let lasting = ["change_failed", "table_full", "port_not_attached"];
    let mut codes = status.problems.iter().map(|problem| problem.code.as_str());
    assert!(codes.all(|code| !lasting.contains(&code)));
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let ports = ["eth0", "eth1"];
    assert_same(
        "after the flaps",
        &meaning(&pinned(star.router())),
        &meaning(&fresh(star.router(), &ports)),
    );
}

#[test]
fn memory_of_the_program_and_its_maps_stays_where_it_was_while_routes_flap() {
    let Some(_turn) = begin() else {
        return;
    };
    // Changes: a million take 100 seconds.
    let changes = std::env::var("FLAPS").map_or(30_000, |text| text.parse().expect("a number"));
    let star = star();
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let there = prefixes(&star);
    let taken = || {
        settle(&star, there);
        let pid = daemon.pid();
        (memory::of_maps(pid), memory::resident(pid))
    };
    // Lists and trees get as long as they will be, and once more where more changes than ever wait
    // for their turn. A leak grows each time.
    flap(&star, 3);
    let mut all = vec![taken()];
    let stays = (0..4).any(|_| {
        flap(
            &star,
            changes / (3 * usize::from(FLAPPING) * BLOCK as usize),
        );
        let (before, after) = (all[all.len() - 1], taken());
        all.push(after);
        after.0 == before.0 && after.1 < before.1 + before.1 / 20
    });
    eprintln!("  bytes of maps, and of its own: {all:?}");
    assert!(stays, "{all:?}");
}
