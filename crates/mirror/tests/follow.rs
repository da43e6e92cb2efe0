//! Following the kernel: many changes at once, lost notifications, random commands, and timing.

mod common;

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{assert_current, in_namespace, ip, lines, run_batch, two_pairs, until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sidestep_mirror::Mirror;
use sidestep_model::node::Node;

/// Returns `count` commands in which a distinct prefix replaces `{}`.
fn commands(count: u32, command: &str) -> String {
    lines(count, |i| {
        let prefix = format!("2001:db8:{:x}:{:x}::/64", i >> 16, i & 0xffff);
        command.replace("{}", &prefix)
    })
}

fn seg6_routes(node: &Node) -> usize {
    let encapsulated = |route: &&sidestep_model::route::Route| {
        route.next_hops.iter().any(|hop| hop.encap.is_some())
    };
    node.routes.values().filter(encapsulated).count()
}

#[test]
fn two_thousand_routes_are_added_changed_and_removed_at_once() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let started = Instant::now();
        run_batch(
            true,
            &commands(
                2000,
                "route add {} encap seg6 mode encap segs fc01::1,fc02::2 dev va",
            ),
            false,
        );
        let added = started.elapsed();
        let started = Instant::now();
        let changes = until(&mut mirror, "2000 routes", |node| seg6_routes(node) == 2000);
        assert!(changes.routes.len() >= 2000 && !changes.resynced);
        eprintln!(
            "2000 routes: ip took {added:?}, the mirror {:?} more",
            started.elapsed()
        );
        assert_current(&mut mirror, "with 2000 routes");
        run_batch(
            true,
            &commands(
                2000,
                "route replace {} encap seg6 mode inline segs fc01::1 dev vc",
            ),
            false,
        );
        run_batch(true, &commands(2000, "route del {}"), false);
        until(&mut mirror, "no routes", |node| seg6_routes(node) == 0);
        run_batch(
            true,
            &commands(2000, "route add {} encap seg6local action End dev va\n"),
            false,
        );
        ip("link set va down");
        until(&mut mirror, "none after the link went down", |node| {
            seg6_routes(node) == 0
        });
        assert_current(&mut mirror, "after 2000 routes went with their link");
    });
}

/// Changes state that notifications report only in part, repeatedly, until dropped.
struct Storm {
    ip: Child,
    writer: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Storm {
    fn of(commands: &'static str) -> Self {
        let mut ip = Command::new("ip")
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("iproute2");
        let mut input = ip.stdin.take().expect("piped");
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        // The storm ends by itself, so that a mirror that waits for its end fails instead of
        // hanging.
        let end = Instant::now() + Duration::from_secs(8);
        let writer = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                if input.write_all(commands.as_bytes()).is_err() {
                    return;
                }
                // This is faster than a mirror can read all routes, but slow enough for the
                // kernel's cleanup.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            ip,
            writer: Some(writer),
            over,
        }
    }

    fn is_over(&self) -> bool {
        self.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        let _ = self.ip.wait();
    }
}

/// Follows a storm for two seconds. Returns the numbers of calls and of resyncs.
fn follow(mirror: &mut Mirror, storm: &Storm) -> (usize, usize) {
    let (mut calls, mut resyncs) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let changes = mirror.process().unwrap();
        calls += 1;
        resyncs += usize::from(changes.resynced);
        assert!(!storm.is_over(), "the storm ended before the call");
        std::thread::sleep(Duration::from_millis(1));
    }
    (calls, resyncs)
}

#[test]
fn constant_changes_leave_time_for_the_caller() {
    in_namespace(|| {
        two_pairs();
        ip("nexthop add id 1 via fc00:1::2 dev va");
        ip("nexthop add id 2 via fc00:1::2 dev va");
        ip("nexthop add id 3 group 1");
        run_batch(true, &commands(500, "route add {} nhid 3"), false);
        let mut mirror = Mirror::open().unwrap();
        let storm = Storm::of(
            "nexthop replace id 1 via fc00:1::3 dev va\nnexthop replace id 1 via fc00:1::2 dev va\n",
        );
        let (calls, resyncs) = follow(&mut mirror, &storm);
        eprintln!("{calls} calls, {resyncs} resyncs");
        drop(storm);
        assert_current(&mut mirror, "after a storm of nexthop objects");
        assert!(mirror.is_current());
        // No route refers to this object.
        let storm = Storm::of(
            "nexthop replace id 2 via fc00:1::3 dev va\nnexthop replace id 2 via fc00:1::2 dev va\n",
        );
        let (_, resyncs) = follow(&mut mirror, &storm);
        assert_eq!(resyncs, 0, "an unused object causes no resync");
        assert!(mirror.is_current());
    });
}

#[test]
fn permanent_loss_of_notifications_leaves_time_for_the_caller() {
    in_namespace(|| {
        two_pairs();
        run_batch(true, &commands(500, "route add {} dev va"), false);
        let mut mirror = Mirror::open_with_buffer(1).unwrap();
        let storm = Storm::of(
            "route add 192.0.2.0/24 dev va\nroute add 192.0.3.0/24 dev va\nroute del 192.0.2.0/24\nroute del 192.0.3.0/24\n",
        );
        let (calls, resyncs) = follow(&mut mirror, &storm);
        eprintln!("{calls} calls, {resyncs} resyncs");
        drop(storm);
        assert_current(&mut mirror, "after a storm that did not fit the buffer");
    });
}

#[test]
fn a_lost_notification_causes_a_resync() {
    in_namespace(|| {
        two_pairs();
        // The kernel uses its minimum.
        let mut mirror = Mirror::open_with_buffer(1).unwrap();
        run_batch(true, &commands(500, "route add {} dev va"), false);
        ip("-6 rule add pref 7 lookup 7");
        let changes = until(&mut mirror, "500 routes", |node| node.routes.len() > 500);
        assert!(changes.resynced && changes.other && changes.routes.len() >= 500);
        let fresh = Mirror::open().unwrap();
        common::assert_same(mirror.node(), fresh.node(), "after a loss");
        // The mirror continues to follow.
        ip("-6 route add 2001:db9::/32 dev va");
        until(&mut mirror, "one more", |node| node.routes.len() > 501);
        run_batch(true, &commands(500, "route del {}"), false);
        assert_current(&mut mirror, "after another loss");
    });
}

#[test]
fn a_mirror_opened_amid_changes_misses_none() {
    in_namespace(|| {
        two_pairs();
        for _ in 0..5 {
            let mut script = commands(
                300,
                "route add {} via fc00:1::2\nroute append {} via fc00:2::2\nroute del {} via fc00:1::2",
            );
            script += &lines(20, |i| {
                let mtu = 1400 + i;
                format!("link set vd mtu {mtu}\naddr add fc00:8::{i:x}/128 dev vc nodad")
            });
            script += &commands(150, "route del {}");
            let mut ip = Command::new("ip")
                .args(["-6", "-batch", "-"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("iproute2");
            let mut input = ip.stdin.take().expect("piped");
            let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
            let mut mirrors = Vec::new();
            while ip.try_wait().unwrap().is_none() {
                mirrors.push(Mirror::open().unwrap());
            }
            writer.join().unwrap().unwrap();
            // The kernel adds the route of an address a little later than the address.
            for mirror in &mut mirrors {
                assert_current(mirror, "at the end");
            }
            eprintln!("{} mirrors opened meanwhile", mirrors.len());
            ip_cleanup();
        }
    });
}

/// Restores the state of [`two_pairs`].
fn ip_cleanup() {
    ip("-6 route flush root 2001:db8::/32");
    let addresses = lines(20, |i| format!("addr del fc00:8::{i:x}/128 dev vc"));
    run_batch(true, &addresses, false);
}

#[test]
fn each_route_of_a_batch_is_mirrored_by_its_notification() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let mut ip = Command::new("ip")
            .args(["-6", "-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("iproute2");
        let mut input = ip.stdin.take().expect("piped");
        for round in 1..=50 {
            writeln!(
                input,
                "route add 2001:db8:{round:x}::/48 encap seg6 mode encap segs fc01::1 dev va"
            )
            .unwrap();
            while seg6_routes(mirror.node()) < round {
                let fds: Vec<_> = mirror.fds();
                let mut fds: Vec<_> = fds
                    .iter()
                    .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
                    .collect();
                assert!(
                    poll(&mut fds, PollTimeout::from(10_000u16)).unwrap() > 0,
                    "no notification"
                );
                mirror.process().unwrap();
            }
        }
        drop(input);
        ip.wait().unwrap();
    });
}

#[test]
fn a_notification_is_applied_at_once() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let mut took = Vec::new();
        for round in 1..=50 {
            ip(&format!(
                "-6 route add 2001:db8:{round:x}::/48 encap seg6 mode encap segs fc01::1 dev va"
            ));
            let started = Instant::now();
            mirror.process().unwrap();
            took.push(started.elapsed());
            assert_eq!(
                seg6_routes(mirror.node()),
                round,
                "in the first call after ip has returned"
            );
        }
        took.sort();
        eprintln!(
            "process() after one route: median {:?}, worst {:?}",
            took[25], took[49]
        );
    });
}

#[test]
fn a_large_table_is_read_quickly() {
    in_namespace(|| {
        two_pairs();
        // Most of the time is spent in ip.
        let count = if cfg!(debug_assertions) {
            10_000
        } else {
            100_000
        };
        run_batch(true, &commands(count, "route add {} via fc00:1::2"), false);
        let started = Instant::now();
        let mut mirror = Mirror::open().unwrap();
        eprintln!(
            "open() with {} routes: {:?}",
            mirror.node().routes.len(),
            started.elapsed()
        );
        assert!(mirror.node().routes.len() > count as usize);
        let started = Instant::now();
        ip("link set vc down");
        let ip_took = started.elapsed();
        let started = Instant::now();
        mirror.process().unwrap();
        eprintln!(
            "a link without many of them went down: ip {ip_took:?}, process() {:?}",
            started.elapsed()
        );
        let started = Instant::now();
        ip("link set va down");
        let ip_took = started.elapsed();
        let started = Instant::now();
        until(&mut mirror, "no routes", |node| node.routes.len() < 100);
        eprintln!(
            "the link with all of them went down: ip {ip_took:?}, process() {:?}",
            started.elapsed()
        );
        assert_current(&mut mirror, "at the end");
    });
}

/// A small generator of pseudo-random numbers (xorshift): the same seed gives the same commands.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

/// Returns a random command, which may fail: whether it is for IPv6, and its arguments.
fn random_command(dice: &mut Dice) -> (bool, String) {
    let v6 = dice.roll(3) > 0;
    let dev = dice.pick(&["va", "vb", "vc", "vd"]);
    let net = if matches!(dev, "va" | "vb") { 1 } else { 2 };
    let host = 2 + dice.roll(3);
    let (via, prefix, source) = if v6 {
        let prefix = dice.pick(&[
            "2001:db8::/32",
            "2001:db8::/48",
            "default",
            "2001:db8:1::1",
            "fc00:1::/64",
        ]);
        (
            format!("fc00:{net}::{host}"),
            prefix,
            format!("fc00:{net}::1"),
        )
    } else {
        let prefix = dice.pick(&[
            "192.0.2.0/24",
            "192.0.2.0/25",
            "default",
            "198.51.100.1",
            "10.1.0.0/24",
        ]);
        (
            format!("10.{net}.0.{host}"),
            prefix,
            format!("10.{net}.0.1"),
        )
    };
    let verb = dice.pick(&[
        "add", "add", "append", "append", "prepend", "replace", "replace", "change", "del", "del",
    ]);
    let table = dice.pick(&["", "", "", "table 100"]);
    let metric = dice.pick(&["", "", "metric 7"]);
    let hops = match dice.roll(9) {
        0 | 1 => format!("via {via} dev {dev}"),
        2 => format!("dev {dev}"),
        3 => format!("via {via} dev {dev} src {source}"),
        4 => format!("nexthop via {via} dev {dev} nexthop via {via} dev vc onlink weight 3"),
        5 => format!("encap seg6 mode encap segs fc01::{host} dev {dev}"),
        6 => format!("encap seg6 mode encap segs fc01::1 via {via} dev {dev}"),
        7 => format!("nhid {}", 1 + dice.roll(4)),
        _ => String::new(),
    };
    let command = match dice.roll(40) {
        0 => format!("link set {dev} down"),
        1..=3 => format!("link set {dev} up"),
        4 => format!("link set {dev} mtu {}", 1200 + 100 * dice.roll(5)),
        5 => format!("link set {dev} {}", dice.pick(&["master br0", "nomaster"])),
        6 => format!("addr del {source}/{} dev {dev}", if v6 { 64 } else { 24 }),
        7 | 8 => format!("addr add {source}/{} dev {dev}", if v6 { 64 } else { 24 }),
        9 => format!("neigh replace {via} lladdr 02:00:00:00:00:0{host} dev {dev}"),
        10 => format!("neigh del {via} dev {dev}"),
        11 => format!(
            "rule add pref {host} {} lookup 100",
            dice.pick(&["iif va", "fwmark 7", "not to all"])
        ),
        12 => format!("rule del pref {host}"),
        13 => format!(
            "nexthop {} id {host} via {via} dev {dev}",
            dice.pick(&["add", "replace"])
        ),
        14 => format!("nexthop add id 1 group 2/3,{host}"),
        15 => format!("nexthop del id {}", 1 + dice.roll(4)),
        16 => format!(
            "route {verb} {} {prefix} {metric} {table}",
            dice.pick(&["blackhole", "unreachable", "throw"])
        ),
        17 => format!("route flush dev {dev}"),
        _ => format!("route {verb} {prefix} {hops} {metric} {table}"),
    };
    (v6, command)
}

#[test]
fn after_any_commands_the_node_equals_a_fresh_dump() {
    // The seed is fixed, so that a failure can be repeated. A variable can set another one.
    let seed = std::env::var("SIDESTEP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let rounds = std::env::var("SIDESTEP_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    in_namespace(move || {
        let seed: u64 = seed.unwrap_or(0x9e37_79b9_7f4a_7c15);
        eprintln!("SIDESTEP_SEED={seed}");
        let mut dice = Dice(seed);
        two_pairs();
        ip("link add br0 type bridge");
        ip("link set br0 up");
        let mut mirror = Mirror::open().unwrap();
        for round in 0..rounds.unwrap_or(25) {
            let mut done = Vec::new();
            for _ in 0..=dice.roll(30) {
                let (v6, command) = random_command(&mut dice);
                run_batch(v6, &command, true);
                done.push(if v6 { format!("-6 {command}") } else { command });
                if dice.roll(4) == 0 {
                    mirror.process().unwrap();
                }
            }
            assert_current(
                &mut mirror,
                &format!("after round {round}:\n{}", done.join("\n")),
            );
        }
    });
}
