//! A full table's worth of routes at once, and notifications that do not fit the socket: the program ends up with what the
//! kernel has, and the traffic of other routes does not notice.

mod live;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_lab::lab::mac_text;
use sidestep_lab::routes::{Change, RouteSocket};
use sidestep_lab::traffic::Napi;

use live::frames::{Mac, destination6, ethernet, to_mac, udp};
use live::{PATIENCE, ROUTER, Star, begin, constant, counters, report};

/// Routes added at once.
const MANY: usize = 100_000;
/// Of them, looked at with a packet each.
const SAMPLE: usize = 1_000;
/// Until all routes are in effect after the last is added: some compilations of all of them, without optimization, beside
/// other programs.
const PROMISED: Duration = Duration::from_secs(30);

/// Next hop of a route.
fn next_hop(number: usize) -> Mac {
    [2, 0xb1, 0, 0, 0, (number % 4) as u8]
}

fn prefix(number: usize) -> String {
    format!("fd{:02x}:{:x}:", number >> 12, number & 0xfff)
}

fn add(number: usize) -> String {
    let next = number % 4;
    format!(
        "route add {}:/32 via fc00:b::b{next} dev eth1",
        prefix(number)
    )
}

fn prefixes(star: &Star) -> u64 {
    let limits: report::Limits = report(star.router(), Request::ShowLimits);
    let found = limits.iter().find(|limit| limit.name == "prefixes");
    found.and_then(|limit| limit.used).expect("a number")
}

/// Waits until this many prefixes are in the tables.
fn wait_for(star: &Star, count: u64) {
    let begin = Instant::now();
    while prefixes(star) != count {
        assert!(
            begin.elapsed() < PROMISED,
            "{} prefixes, {count} wanted",
            prefixes(star)
        );
        thread::sleep(Duration::from_millis(20));
    }
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

/// Each of these routes' packets leaves for its next hop.
fn check(star: &Star, numbers: impl Iterator<Item = usize>) {
    let (a, b) = (star.socket("a"), star.socket("b"));
    for number in numbers {
        let to = format!("{}:1", prefix(number));
        let ends = ["fc00:a::2", &to].map(|text| text.parse().expect("an address"));
        let packet = udp(ends[0], ends[1], 64, b"sample");
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
        a.send(&frame).expect("send");
        let deadline = Instant::now() + PATIENCE;
        // Others send at the same time.
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

/// Runs `body` under constant traffic, of which nothing may be lost.
fn under_traffic(star: &Star, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let (sent, arrived) = thread::scope(|scope| {
        let traffic = scope.spawn(|| constant::traffic(star, &done));
        // The traffic ends with a failure, too.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        done.store(true, Ordering::Release);
        let counted = traffic.join().expect("the traffic");
        told.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted
    });
    assert!(sent > 500, "{sent} packets are too few to tell");
    assert_eq!(arrived, [sent; 2], "of {sent} each");
}

#[test]
fn a_hundred_thousand_routes_at_once_are_all_in_effect_and_no_other_packet_is_lost() {
    let Some(_turn) = begin("a_hundred_thousand_routes_at_once") else {
        return;
    };
    let star = star("livemany");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let _daemon = star.run(&["--mode", "xdp", "eth0", "eth1"]);
    let few = prefixes(&star);
    let all: Vec<String> = (0..MANY).map(add).collect();
    let mut ip = star.ip();
    under_traffic(&star, || {
        let began = Instant::now();
        ip.all(all.iter().map(String::as_str));
        let added = began.elapsed();
        wait_for(&star, few + MANY as u64);
        eprintln!(
            "  added in {added:?}, in effect after {:?}",
            began.elapsed()
        );
        let before = counters(router, "eth0");
        check(&star, (0..SAMPLE).map(|sample| sample * (MANY / SAMPLE)));
        let after = counters(router, "eth0");
        assert_eq!(after.kernel, before.kernel, "all by itself");

        // One more, among that many.
        let began = Instant::now();
        ip.run(&add(MANY));
        wait_for(&star, few + MANY as u64 + 1);
        eprintln!("  one more in effect after {:?}", began.elapsed());
        check(&star, std::iter::once(MANY));

        let began = Instant::now();
        router
            .exec(&["ip", "-6", "route", "flush", "root", "fd00::/8"])
            .expect("ip route flush");
        let flushed = began.elapsed();
        wait_for(&star, few);
        eprintln!(
            "  flushed in {flushed:?}, in effect after {:?}",
            began.elapsed()
        );
    });
}

#[test]
fn after_notifications_that_did_not_fit_everything_is_read_again_and_then_it_rests() {
    const SOME: usize = 20_000;
    let Some(_turn) = begin("after_notifications_that_did_not_fit") else {
        return;
    };
    let star = star("livelost");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let daemon = star.run(&["--mode", "tc", "--receive-buffer", "4096", "eth0", "eth1"]);
    let few = prefixes(&star);
    let mut ip = star.ip();
    under_traffic(&star, || {
        let all: Vec<String> = (0..SOME).map(add).collect();
        ip.all(all.iter().map(String::as_str));
        wait_for(&star, few + SOME as u64);
        // Lost are also those of changes and deletions.
        let changes: Vec<String> = (0..SOME)
            .map(|number| match number % 3 {
                0 => format!("route del {}:/32", prefix(number)),
                _ => format!(
                    "route replace {}:/32 via fc00:b::b{} dev eth1",
                    prefix(number),
                    number % 4
                ),
            })
            .collect();
        ip.all(changes.iter().map(String::as_str));
        wait_for(&star, few + (SOME - SOME.div_ceil(3)) as u64);
    });
    check(
        &star,
        (0..SOME).filter(|number| number % 3 != 0).step_by(97),
    );
    let shown: report::Status = report(router, Request::ShowStatus);
    assert!(shown.resyncs > 0, "nothing was lost: {shown:?}");
    // It rests: no more of the processor than polling takes.
    let before = processor_time(daemon.pid());
    thread::sleep(Duration::from_secs(1));
    let taken = processor_time(daemon.pid()).saturating_sub(before);
    assert!(taken < Duration::from_millis(300), "{taken:?} in a second");
}

/// Time that a process has run.
fn processor_time(pid: nix::unistd::Pid) -> Duration {
    let path = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(path).expect("the process runs");
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// Flaps a second, and for how long.
const FLAPS: (usize, Duration) = (10_000, Duration::from_secs(4));

#[test]
fn ten_thousand_flaps_a_second_are_followed_and_no_other_packet_is_lost() {
    const ROUTES: usize = 20_000;
    const FLAPPING: usize = 5_000;
    const BATCH: usize = 100;
    let Some(_turn) = begin("ten_thousand_flaps_a_second_are_followed") else {
        return;
    };
    let star = star("liveflaps");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let all: Vec<String> = (0..ROUTES).map(add).collect();
    star.ip().all(all.iter().map(String::as_str));
    let _daemon = star.run(&["--mode", "xdp", "eth0", "eth1"]);
    let (before, compiled) = (prefixes(&star), compilations(&star));
    let egress = router.ifindex("eth1").expect("eth1");
    let mut socket = RouteSocket::open(router).expect("a netlink socket");
    let prefix = |number: usize| {
        let address = format!("{}:", prefix(number));
        (address.parse().expect("an address"), 32)
    };
    let via = |number: usize| {
        let via = format!("fc00:b::b{}", number % 4);
        Change::Replace(via.parse().expect("an address"))
    };
    under_traffic(&star, || {
        let began = Instant::now();
        let mut flaps = 0;
        // Each goes, comes back with another next hop, and gets its own again.
        for round in 0.. {
            if began.elapsed() >= FLAPS.1 && round % 3 == 0 {
                break;
            }
            for first in (0..FLAPPING).step_by(BATCH) {
                for number in first..first + BATCH {
                    let change = match round % 3 {
                        0 => Change::Delete,
                        1 => via(number + 1),
                        _ => via(number),
                    };
                    socket.prepare(prefix(number), change, egress);
                }
                socket.send().expect("the kernel takes all of them");
                flaps += BATCH;
                let due = Duration::from_secs_f64(flaps as f64 / FLAPS.0 as f64);
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        eprintln!("  {flaps} flaps in {:?}", began.elapsed());
        wait_for(&star, before);
        check(&star, (0..SAMPLE).map(|sample| sample * (ROUTES / SAMPLE)));
    });
    // All but where so many came at once that it cost less.
    let whole = compilations(&star) - compiled;
    assert!(whole < 10, "{whole} times everything was compiled");
    let status: report::Status = report(router, Request::ShowStatus);
    assert_eq!((status.resyncs, status.troubles.len()), (0, 0));
}

fn compilations(star: &Star) -> u64 {
    let status: report::Status = report(star.router(), Request::ShowStatus);
    status.compilations
}
