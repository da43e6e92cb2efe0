//! A full table of routes at once, for which the prefix table grows, and notifications that
//! overflow the socket. The program converges to the kernel's state without loss for other routes.

use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::lab::mac_text;

use crate::support::flood::{self, Flood};
use crate::support::frames::{Mac, destination6, ethernet, to_mac, udp};
use crate::support::tables::{prefixes, wait_for_prefixes};
use crate::support::{Daemon, PATIENCE, ROUTER, Star, begin, constant, counters, memory, report};

/// Routes added at once.
const MANY: usize = 150_000;
/// Time limit from the last change in the kernel to its effect, on a busy machine.
const BEHIND: Duration = Duration::from_secs(20);
/// Number of routes that are probed with a packet each.
const SAMPLE: usize = 1_000;

/// Returns the next hop of a route.
fn next_hop(number: usize) -> Mac {
    [2, 0xb1, 0, 0, 0, (number % 4) as u8]
}

fn prefix(number: usize) -> String {
    format!("fd{:02x}:{:x}0:", number >> 12, number & 0xfff)
}

fn add(number: usize) -> String {
    let next = number % 4;
    format!(
        "route add {}:/64 via fc00:b::b{next} dev eth1",
        prefix(number)
    )
}

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    let neighbors: Vec<String> = (0..4)
        .map(|number| {
            let mac = mac_text(next_hop(number));
            format!("neighbor add fc00:b::b{number} lladdr {mac} dev eth1 nud permanent")
        })
        .collect();
    star.ip().all(neighbors.iter().map(String::as_str));
    star.ip().all(constant::ROUTES);
    star
}

/// Checks that packets of these routes are forwarded to their next hops.
fn check(star: &Star, numbers: impl Iterator<Item = usize>) {
    let (a, b) = (star.socket("a"), star.socket("b"));
    for number in numbers {
        let to = format!("{}:1", prefix(number));
        let ends = ["fc00:a::2", &to].map(|text| text.parse().expect("an address"));
        let packet = udp(ends[0], ends[1], 64, b"sample");
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
        a.send(&frame).expect("send");
        let deadline = Instant::now() + PATIENCE;
        // Skip the packets of other senders.
        let out = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let out = b.receive(left).expect("receive");
            let out = out.unwrap_or_else(|| panic!("route {number}: no packet"));
            if destination6(&out).map(std::net::IpAddr::from) == Some(ends[1]) {
                break out;
            }
        };
        assert_eq!(to_mac(&out), next_hop(number), "route {number}");
    }
}

/// Routes whose packets enter at `eth2`, for `a`: plain, and by a policy.
const THROUGH: [&str; 3] = [
    "route add fc0d::/24 via fc00:a::2 dev eth0",
    "route add fc0d:100::/24 encap seg6 mode encap segs fc00:ee00::1 dev eth0",
    "route add fc00:ee00::/24 via fc00:a::2 dev eth0",
];

#[test]
fn for_150_000_routes_the_table_grows_and_no_packet_at_full_rate_is_lost() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = star("livemany");
    let router = star.router();
    star.ip().all(THROUGH);
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let tally = flood::tally(&star, "a");
    let daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1", "eth2"]);
    let (few, small) = (prefixes(&star), memory::of_maps(daemon.pid()));
    let all: Vec<String> = (0..MANY).map(add).collect();
    let mut ip = star.ip();
    let flood = Flood::start(&star, "c", &tally, 2 * flood::BLOCK);
    let began = Instant::now();
    ip.all(all.iter().map(String::as_str));
    let added = began.elapsed();
    wait_for_prefixes(&star, few + MANY as u64);
    eprintln!(
        "  added in {added:?}, in effect after {:?}",
        began.elapsed()
    );
    let before = counters(router, "eth0");
    check(&star, (0..SAMPLE).map(|sample| sample * (MANY / SAMPLE)));
    let after = counters(router, "eth0");
    assert_eq!(after.punted, before.punted, "all by itself");

    // Add one more route to the large table.
    let began = Instant::now();
    ip.run(&add(MANY));
    wait_for_prefixes(&star, few + MANY as u64 + 1);
    eprintln!("  one more in effect after {:?}", began.elapsed());
    check(&star, std::iter::once(MANY));

    let began = Instant::now();
    router
        .exec(&["ip", "-6", "route", "flush", "root", "fd00::/8"])
        .expect("ip route flush");
    let flushed = began.elapsed();
    wait_for_prefixes(&star, few);
    eprintln!(
        "  flushed in {flushed:?}, in effect after {:?}",
        began.elapsed()
    );
    let arrived = flood.stop();
    let large = memory::of_maps(daemon.pid());
    eprintln!(
        "  maps of {small} bytes, then {large}; {} packets, {} did not fit",
        arrived.sent, arrived.spilled
    );
    assert!(large >= small + (1 << 20), "the table has grown");
    let mac = star.mac("a", "eth0")[5];
    arrived.assert_none_lost(|block| vec![[[0, 0xee][usize::from(block)], mac]]);
}

#[test]
fn after_notifications_that_did_not_fit_everything_is_read_again_and_then_it_rests() {
    const SOME: usize = 20_000;
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livelost");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let daemon = star.run(&["--mode", "tc", "--receive-buffer", "4096", "eth0", "eth1"]);
    let few = prefixes(&star);
    let mut ip = star.ip();
    constant::during(&star, "lost notifications", || {
        let all: Vec<String> = (0..SOME).map(add).collect();
        ip.all(all.iter().map(String::as_str));
        wait_for_prefixes(&star, few + SOME as u64);
        // Notifications of changes and deletions are lost too.
        let changes: Vec<String> = (0..SOME)
            .map(|number| match number % 3 {
                0 => format!("route del {}:/64", prefix(number)),
                _ => format!(
                    "route replace {}:/64 via fc00:b::b{} dev eth1",
                    prefix(number),
                    number % 4
                ),
            })
            .collect();
        ip.all(changes.iter().map(String::as_str));
        wait_for_prefixes(&star, few + (SOME - SOME.div_ceil(3)) as u64);
    });
    check(
        &star,
        (0..SOME).filter(|number| number % 3 != 0).step_by(97),
    );
    let shown: report::Status = report(router, Request::ShowStatus);
    assert!(shown.resyncs > 0, "nothing was lost: {shown:?}");
    // The daemon is idle: it uses only the CPU time for polling.
    let before = processor_time(daemon.pid());
    thread::sleep(Duration::from_secs(1));
    let taken = processor_time(daemon.pid()).saturating_sub(before);
    assert!(taken < Duration::from_millis(300), "{taken:?} in a second");
}

/// Returns the CPU time of a process.
fn processor_time(pid: nix::unistd::Pid) -> Duration {
    let path = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(path).expect("the process runs");
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// Routes of one nexthop object that are inserted and withdrawn, as BGP of FRR does it.
const SIZES: [usize; 2] = [10_000, 50_000];

/// Duration of a change of many routes, and its cost.
struct Followed {
    /// Until the kernel had applied the last change.
    kernel: Duration,
    /// Until the tables had all changes.
    tables: Duration,
    /// CPU time of the daemon.
    processor: Duration,
}

/// Runs `ip` commands and waits until the tables have `count` prefixes.
fn follow(star: &Star, daemon: &Daemon, commands: &[String], count: u64) -> Followed {
    let mut ip = star.ip();
    let before = processor_time(daemon.pid());
    let began = Instant::now();
    ip.all(commands.iter().map(String::as_str));
    let kernel = began.elapsed();
    wait_for_prefixes(star, count);
    Followed {
        kernel,
        tables: began.elapsed(),
        processor: processor_time(daemon.pid()).saturating_sub(before),
    }
}

#[test]
fn routes_of_a_nexthop_object_are_inserted_and_withdrawn_at_the_rate_of_the_kernel() {
    let Some(_turn) = begin() else {
        return;
    };
    // `SIDESTEP_MANY_ROUTES=200000` measures with another number of routes.
    let wanted = std::env::var("SIDESTEP_MANY_ROUTES").ok();
    let wanted = wanted.map(|text| text.parse().expect("a number of routes"));
    for size in wanted.map_or(SIZES.to_vec(), |size| vec![size]) {
        let star = star("livebulk");
        star.ip()
            .run("nexthop add id 3 encap seg6 mode encap segs fc00:bb::e via fc00:b::2 dev eth1");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1"]);
        let few = prefixes(&star);
        let routes = |action: &str| -> Vec<String> {
            let route = |number| format!("route {action} {}:/32 nhid 3", prefix(number));
            (0..size).map(route).collect()
        };
        let small = memory::resident(daemon.pid());
        let what = format!("{size} routes");
        let ((inserted, large, withdrawn), sent) = constant::during(&star, &what, || {
            let inserted = follow(&star, &daemon, &routes("add"), few + size as u64);
            let large = memory::resident(daemon.pid());
            let withdrawn = follow(&star, &daemon, &routes("del"), few);
            (inserted, large, withdrawn)
        });
        for (change, it) in [("inserted", &inserted), ("withdrawn", &withdrawn)] {
            eprintln!(
                "  {what} {change} in {:.2?}, in the tables after {:.2?}, {:.0} % of a CPU",
                it.kernel,
                it.tables,
                100.0 * it.processor.as_secs_f64() / it.tables.as_secs_f64(),
            );
        }
        eprintln!(
            "  daemon of {} MiB, then {} MiB; {sent} packets of each unchanged route, none lost",
            small >> 20,
            large >> 20
        );
        let shown: report::Status = report(star.router(), Request::ShowStatus);
        assert_eq!(shown.resyncs, 0, "{what}: the tables were read again");
        for it in [inserted, withdrawn] {
            let behind = it.tables.saturating_sub(it.kernel);
            assert!(behind < BEHIND, "{what}: {behind:?} behind the kernel");
        }
    }
}
