//! Faults of all sorts under traffic: routes and neighbors change, links go down, namespaces vanish, the program is killed,
//! and notifications are lost. Every packet that arrives is right, none of the undisturbed ones is missing, counters add up,
//! and nothing has grown.
//!
//! `SOAK=1800` runs it for half an hour instead of 150 seconds. `SEED` selects other faults and
//! another order.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::lab::mac_text;
use sidestep_testkit::random::Random;
use sidestep_testkit::routes::{Change, RouteSocket};

use crate::support::judged::{self, CONSTANT, DESTINATIONS, THROUGH_C, Verdict};
use crate::support::tables::{assert_same, fresh, meaning, pinned, wait_for_prefixes};
use crate::support::{Daemon, PORTS, Star, begin, eventually, memory, report};

/// In CI.
const SECONDS: u64 = 150;
/// Routes that appear and vanish at once, more than the program's socket has room for while it does not read.
const STORM: u32 = 5_000;

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Routes,
    Neighbor,
    Link,
    Namespace,
    Kill,
    Overrun,
}

const FAULTS: [(usize, Fault); 6] = [
    (6, Fault::Routes),
    (4, Fault::Neighbor),
    (3, Fault::Link),
    (3, Fault::Namespace),
    (2, Fault::Kill),
    (1, Fault::Overrun),
];

struct Soak<'a> {
    star: &'a Star,
    random: Random,
    daemon: Daemon,
    counts: BTreeMap<Fault, u64>,
    /// Pins of killed programs.
    resyncs: u64,
}

/// Resources of the idle program.
#[derive(Debug)]
struct Taken {
    prefixes: u64,
    resident: u64,
    maps: u64,
    files: usize,
}

/// The program, with all of its ports: it begins with those that are there.
fn start(star: &Star) -> Daemon {
    let guest = guest(star);
    let args = "--mode auto --receive-buffer 65536 eth0 eth1 eth2 eth3";
    let daemon = star.run(&args.split(' ').collect::<Vec<_>>());
    end(star, guest);
    daemon
}

/// A namespace behind `eth3`, kept by a process that sleeps there.
fn guest(star: &Star) -> Child {
    let mut child = star
        .router()
        .command("unshare")
        .args(["--net", "sleep", "infinity"])
        .stdin(Stdio::null())
        .spawn()
        .expect("a namespace");
    let pid = child.id();
    let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let router = star
        .router()
        .run(|| std::fs::read_link("/proc/thread-self/ns/net"));
    let router = router.expect("the router").expect("a namespace");
    eventually("the namespace", || {
        let of = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        (of != own && of != router).then_some(())
    });
    if let Ok(Some(status)) = child.try_wait() {
        panic!("{status}");
    }
    star.ip().all([
        format!("link add eth3 type veth peer name eth0 netns {pid}").as_str(),
        "address add fc00:dead::1/64 dev eth3 nodad",
        "link set eth3 up",
        "route replace fc00:dd::/32 dev eth3",
    ]);
    child
}

/// The namespace vanishes with all that is in it, a little after its last process.
fn end(star: &Star, mut guest: Child) {
    guest.kill().expect("it sleeps");
    guest.wait().expect("it has ended");
    eventually("the interface goes", || {
        star.router().ifindex("eth3").is_err().then_some(())
    });
}

impl Soak<'_> {
    /// One fault, and what mends it.
    fn fault(&mut self) {
        let fault = self.random.weighted(&FAULTS);
        *self.counts.entry(fault).or_default() += 1;
        match fault {
            Fault::Routes => self.routes(),
            Fault::Neighbor => self.neighbor(),
            Fault::Link => self.link(),
            Fault::Namespace => self.namespace(),
            Fault::Kill => self.kill(),
            Fault::Overrun => self.overrun(),
        }
    }

    /// Routes of the flapping destinations leave for other next hops, or go.
    fn routes(&mut self) {
        let devices =
            ["eth1", "eth2"].map(|port| self.star.router().ifindex(port).expect("a port"));
        let mut socket = RouteSocket::open(self.star.router()).expect("a netlink socket");
        for _ in 0..10 {
            for _ in 0..64 {
                let number = self.random.below(DESTINATIONS as usize) as u16;
                let prefix = ([0xfc0d, number, 0, 0, 0, 0, 0, 0].into(), 32);
                let (change, device) = match self.random.below(3) {
                    0 => (Change::Replace(address("fc00:b::2")), devices[0]),
                    1 => (Change::Replace(address("fc00:c::2")), devices[1]),
                    _ => (Change::Delete, devices[0]),
                };
                socket.prepare(prefix, change, device);
            }
            // Some of those to be deleted are not there.
            let _ = socket.send();
        }
    }

    fn neighbor(&mut self) {
        let mut ip = self.star.ip();
        ip.attempt(["neighbor del fc00:c::2 dev eth2"]);
        self.pause(150);
        self.mend_c(&mut ip);
    }

    fn link(&mut self) {
        let mut ip = self.star.ip();
        ip.run("link set eth2 down");
        self.pause(200);
        ip.run("link set eth2 up");
        self.mend_c(&mut ip);
    }

    /// Objects that disappear with the neighbor and link of `c`.
    fn mend_c(&self, ip: &mut crate::support::ip::Ip) {
        let mac = mac_text(self.star.mac("c", "eth0"));
        let neighbor = format!("neighbor replace fc00:c::2 lladdr {mac} dev eth2 nud permanent");
        let address = "address replace fc00:c::1/64 dev eth2 nodad";
        ip.all([address, &neighbor].into_iter().chain(THROUGH_C));
    }

    /// A namespace comes, and goes.
    fn namespace(&mut self) {
        let guest = guest(self.star);
        self.pause(300);
        end(self.star, guest);
    }

    fn kill(&mut self) {
        self.resyncs += self.status().resyncs;
        self.daemon.signal(Signal::SIGKILL);
        self.pause(200);
        self.daemon = start(self.star);
    }

    /// The program does not read while more changes come than there is room for.
    fn overrun(&mut self) {
        let before = self.status().resyncs;
        self.daemon.signal(Signal::SIGSTOP);
        let device = self.star.router().ifindex("eth1").expect("a port");
        let mut socket = RouteSocket::open(self.star.router()).expect("a netlink socket");
        for change in [Change::Replace(address("fc00:b::2")), Change::Delete] {
            for first in (0..STORM).step_by(64) {
                for number in first..(first + 64).min(STORM) {
                    let prefix = ([0xfc0e, number as u16, 0, 0, 0, 0, 0, 0].into(), 32);
                    socket.prepare(prefix, change, device);
                }
                socket.send().expect("the kernel takes all of them");
            }
        }
        self.daemon.signal(Signal::SIGCONT);
        eventually("all is read again", || {
            (self.status().resyncs > before).then_some(())
        });
    }

    fn pause(&mut self, at_most: usize) {
        let pause = self.random.below(at_most);
        thread::sleep(Duration::from_millis(pause as u64));
    }

    fn status(&self) -> report::Status {
        report(self.star.router(), Request::ShowStatus)
    }

    /// Restores the initial state and measures the program's resources. `there`: prefixes as then,
    /// if known.
    fn settled(&self, there: Option<u64>) -> Taken {
        let mut ip = self.star.ip();
        let flapping = (0..DESTINATIONS).map(|number| format!("route del fc0d:{number:x}::/32"));
        let flapping: Vec<String> = flapping.collect();
        ip.attempt(flapping.iter().map(String::as_str));
        let there = there.unwrap_or_else(|| {
            thread::sleep(Duration::from_secs(2));
            self.status().prefixes
        });
        // The last change of all: when it is followed, so are the others.
        ip.run("route add fdef::/16 via fc00:b::2 dev eth1");
        wait_for_prefixes(self.star, there + 1);
        ip.run("route del fdef::/16");
        wait_for_prefixes(self.star, there);
        let pid = self.daemon.pid();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        Taken {
            prefixes: there,
            resident: memory::resident(pid),
            maps: memory::of_maps(pid),
            files: files.count(),
        }
    }
}

/// Ends the traffic, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn address(text: &str) -> std::net::Ipv6Addr {
    text.parse().expect("an address")
}

/// Counters of each port add up, of all programs that there were: they are pinned.
fn assert_counted(star: &Star) {
    let counters: report::Counters = report(star.router(), Request::ShowCounters);
    for port in PORTS {
        let of_port = counters.ports.iter().find(|it| it.name == port);
        let it = of_port.expect("a port");
        let sum = it.forwarded + it.punted + it.dropped;
        assert_eq!(it.received_packets, sum, "{it:?}");
    }
}

fn assert_right(verdict: &Verdict, star: &Star) {
    for (kind, counts) in &verdict.counts {
        let missing = counts.sent.saturating_sub(counts.arrived);
        eprintln!(
            "  {kind}: {} sent, {missing} not at their hosts",
            counts.sent
        );
    }
    let wrong = verdict.wrong.join("\n");
    assert_eq!(verdict.wrong_in_all, 0, "{wrong}");
    let reasons = crate::support::reasons(star.router());
    assert_eq!(verdict.lost(), [""; 0], "{reasons:?}");
    for kind in ["by a route that flaps", "through c", "End.X to c"] {
        assert!(verdict.counts[kind].arrived > 0, "{kind}");
    }
}

#[test]
fn whatever_goes_wrong_around_it_every_packet_is_right_and_nothing_grows() {
    let Some(_turn) = begin() else {
        return;
    };
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (time, seed) = (
        Duration::from_secs(number("SOAK", SECONDS)),
        number("SEED", 1),
    );
    let star = Star::new("livesoak");
    for port in ["eth2", "default"] {
        let path = format!("net/ipv6/conf/{port}/keep_addr_on_down");
        star.router().sysctl(&path, "1").expect("a sysctl");
    }
    star.ip().all(CONSTANT.into_iter().chain(THROUGH_C));
    let daemon = start(&star);
    let mut soak = Soak {
        star: &star,
        random: Random::new(seed),
        daemon,
        counts: BTreeMap::new(),
        resyncs: 0,
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let traffic = scope.spawn(|| judged::traffic(&star, &done));
        let ends = Ends(&done);
        // Each fault once: lists and tables get as long as they will be.
        for fault in [Soak::routes, Soak::neighbor, Soak::link, Soak::namespace] {
            fault(&mut soak);
        }
        soak.kill();
        soak.overrun();
        let before = soak.settled(None);
        let began = Instant::now();
        while began.elapsed() < time && !traffic.is_finished() {
            soak.fault();
            soak.pause(400);
        }
        // The last program saw the same events as the first, so their resources are comparable.
        soak.overrun();
        let after = soak.settled(Some(before.prefixes));
        soak.resyncs += soak.status().resyncs;
        drop(ends);
        let verdict = traffic.join().expect("no frame is refused");
        eprintln!("  {:?}, {} resyncs, seed {seed}", soak.counts, soak.resyncs);
        eprintln!("  before {before:?}\n  after {after:?}");
        assert_right(&verdict, &star);
        assert_counted(&star);
        let lasting = ["change_failed", "table_full", "port_not_attached"];
        let status = soak.status();
        let mut codes = status.problems.iter().map(|problem| problem.code.as_str());
        assert_eq!(codes.find(|code| lasting.contains(code)), None);
        assert_eq!(after.maps, before.maps);
        // A question and its answer take one for a moment.
        assert!(after.files < before.files + 3);
        assert!(after.resident < before.resident + before.resident / 10);
    });
    soak.daemon.signal(Signal::SIGKILL);
    soak.daemon.end();
    assert_same(
        "after all of it",
        &meaning(&pinned(star.router())),
        &meaning(&fresh(star.router(), &PORTS)),
    );
}
