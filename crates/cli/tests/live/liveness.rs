//! Liveness of paths between live nodes.

use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::ip::Ip;
use crate::support::{
    Daemon, Star, begin, eventually, left, modes, output, printed, report as ask, status_field,
    text_of,
};
use sidestep_testkit::{Lab, Namespace};

/// A probe for discriminator 1001 from discriminator 7, in state Down (RFC 5880 4.1).
const PROBE: [u8; 24] = [
    0x20, 0x42, 3, 24, 0, 0, 0, 7, 0, 0, 3, 0xe9, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Sends the probe from the kernel of a host to the router. Returns the answer.
fn asks(star: &Star, host: &str, probe: &[u8]) -> Option<Vec<u8>> {
    let address = format!("fc00:{host}::1");
    let answer = star.host(host).run(|| {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        socket.connect((address.as_str(), 7784)).expect("connected");
        let timeout = Some(Duration::from_millis(300));
        socket.set_read_timeout(timeout).expect("a timeout");
        socket.send(probe).expect("send");
        let mut answer = [0; 1500];
        let length = socket.recv(&mut answer).ok()?;
        Some(answer[..length].to_vec())
    });
    answer.expect("the namespace")
}

#[test]
fn a_reflector_answers_hosts_of_the_domain_also_without_a_daemon() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new("livereflector");
        let router = star.router();
        // XDP gets packets of a veth without their checksum.
        for host in ["a", "b"] {
            star.host(host)
                .sysctl("net/ipv6/conf/eth0/disable_ipv6", "0")
                .expect("IPv6");
            let address = format!("address add fc00:{host}::2/64 dev eth0 nodad");
            Ip::six(star.host(host)).run(&address);
            let turn_off = ["-K", "eth0", "tx", "off"];
            let done = star.host(host).command("ethtool").args(turn_off).output();
            assert!(mode == "tc" || done.expect("ethtool").status.success());
        }
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        // The kernels of the hosts and of the router resolve each other.
        assert_eq!(asks(&star, "a", &PROBE), None, "{mode}: no reflector");
        printed(router, &["reflector", "add", "1001"]);
        let again = output(router, &["reflector", "add", "1001"]);
        assert!(text_of(&again).contains("exists already: 1001 (use `replace`)"));

        let answer = asks(&star, "a", &PROBE).expect("an answer");
        let mut expected = PROBE;
        expected[1] = 0xc0;
        expected[4..12].copy_from_slice(&[0, 0, 3, 0xe9, 0, 0, 0, 7]);
        expected[16..20].copy_from_slice(&1000_u32.to_be_bytes());
        assert_eq!(answer, expected, "{mode}");
        let long = [&PROBE[..], &[0xa5; 1000]].concat();
        let answer = asks(&star, "a", &long).expect("an answer");
        assert_eq!(answer[..24], expected, "{mode}");
        assert_eq!(answer[24..], long[24..], "{mode}");

        printed(router, &["domain", "add", "inside", "eth1"]);
        printed(router, &["domain", "add", "sid-block", "fc0f::/16"]);
        assert_eq!(asks(&star, "a", &PROBE), None, "{mode}: from outside");
        printed(router, &["reflector", "replace", "1001", "admin-down"]);
        let answer = asks(&star, "b", &PROBE).expect("from inside");
        assert_eq!(answer[..2], [0x27, 0], "{mode}: AdminDown, with its reason");

        let shown: report::Reflectors =
            serde_json::from_value(star.call(Request::ShowReflectors).expect("a report"))
                .expect("reflectors");
        assert_eq!(shown.len(), 1, "{mode}");
        assert_eq!(
            (shown[0].discriminator, shown[0].answers),
            (1001, 3),
            "{mode}"
        );
        assert!(printed(router, &["reflector", "show"]).contains("admin-down"));

        daemon.signal(Signal::SIGKILL);
        assert!(asks(&star, "b", &PROBE).is_some(), "{mode}: no daemon");
        drop(daemon);
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        printed(router, &["reflector", "del", "1001"]);
        assert_eq!(asks(&star, "b", &PROBE), None, "{mode}: removed");
        drop(daemon);
    }
}

/// Client `c` - headend `h` - two transit routers `x` and `y` of Linux alone - edge `e`. One prefix behind the
/// edge takes a policy by `x`, protected by one by `y`, the other one a kernel route by `x`. Answers return by `y`.
struct Diamond {
    daemons: Vec<Daemon>,
    lab: Lab,
}

const LINKS: [[&str; 4]; 5] = [
    ["c", "eth0", "h", "eth2"],
    ["h", "eth0", "x", "eth0"],
    ["h", "eth1", "y", "eth0"],
    ["x", "eth1", "e", "eth0"],
    ["y", "eth1", "e", "eth1"],
];
const COMMANDS: [(&str, &[&str]); 5] = [
    (
        "c",
        &[
            "address add fc00:c::2/64 dev eth0 nodad",
            "route add default via fc00:c::1",
        ],
    ),
    (
        "h",
        &[
            "link set lo up",
            "address add fc00:a::1/128 dev lo",
            "address add fc00:c::1/64 dev eth2 nodad",
            "address add fc00:1::1/64 dev eth0 nodad",
            "address add fc00:2::1/64 dev eth1 nodad",
            OBJECT,
            BY_OBJECT,
            "route add fc00:f1::/32 via fc00:1::2",
            "route add fc00:f2::/32 via fc00:2::2",
            "sr tunsrc set fc00:a::1",
        ],
    ),
    (
        "x",
        &[
            "address add fc00:1::2/64 dev eth0 nodad",
            "address add fc00:3::1/64 dev eth1 nodad",
            "route add fc00:fb::/32 via fc00:3::2",
            "route add 2001:db8:e::/48 via fc00:3::2",
            "route add fc00:a::/32 via fc00:1::1",
            "route add fc00:f1::e/128 encap seg6local action End dev eth1",
        ],
    ),
    (
        "y",
        &[
            "address add fc00:2::2/64 dev eth0 nodad",
            "address add fc00:4::1/64 dev eth1 nodad",
            "route add fc00:fb::/32 via fc00:4::2",
            "route add fc00:a::/32 via fc00:2::1",
            "route add fc00:c::/32 via fc00:2::1",
            "route add fc00:f2::e/128 encap seg6local action End dev eth1",
        ],
    ),
    (
        "e",
        &[
            "link set lo up",
            "address add fc00:b::1/128 dev lo",
            "address add 2001:db8:b::1/128 dev lo",
            "address add 2001:db8:e::1/128 dev lo",
            "address add fc00:3::2/64 dev eth0 nodad",
            "address add fc00:4::2/64 dev eth1 nodad",
            "route add fc00:a::/32 via fc00:4::1",
            "route add fc00:c::/32 via fc00:4::1",
            "route add fc00:fb::d6/128 encap seg6local action End.DT6 table main dev eth0",
        ],
    ),
];
/// As FRR adds it. With the carrier, the kernel removes the route.
const OBJECT: &str = "nexthop add id 7 via fc00:1::2 dev eth0";
const BY_OBJECT: &str = "route add 2001:db8:e::/48 nhid 7";
const BY_POLICY: &str = "2001:db8:b::1";
const BY_KERNEL: &str = "2001:db8:e::1";
const WEST: &str = "segs fc00:f1::e,fc00:fb::d6";
const EAST: &str = "segs fc00:f2::e,fc00:fb::d6";

impl Diamond {
    fn new(topic: &str) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        for (node, _) in COMMANDS {
            lab.node(node).expect("a namespace");
            // A router solicits a next hop from its link-local address.
            lab.namespace(node)
                .and_then(|node| node.sysctl("net/ipv6/conf/default/addr_gen_mode", "0"))
                .expect("link-local addresses");
        }
        for [node, ifname, peer, peer_ifname] in LINKS {
            lab.link(node, ifname, peer, peer_ifname).expect("a cable");
        }
        for (node, commands) in COMMANDS {
            let namespace = lab.namespace(node).expect("a node");
            left::remove(namespace);
            let ports = LINKS
                .iter()
                .flat_map(|[a, on_a, b, on_b]| [(a, on_a), (b, on_b)]);
            let ports = ports.filter(|(of, _)| **of == node).map(|(_, port)| *port);
            for port in ports.chain(["all"]) {
                let path = format!("net/ipv6/conf/{port}/seg6_enabled");
                namespace.sysctl(&path, "1").expect("a sysctl");
            }
            if node != "c" {
                let path = "net/ipv6/conf/all/forwarding";
                namespace.sysctl(path, "1").expect("a sysctl");
            }
            Ip::six(namespace).all(commands.iter().copied());
        }
        Self {
            daemons: vec![],
            lab,
        }
    }

    fn node(&self, name: &str) -> &Namespace {
        self.lab.namespace(name).expect("a node")
    }

    /// Starts the edge and the headend, whose policy has a path for each list.
    fn start(&mut self, settings: &str) {
        let run = |node, ports: &[&str]| {
            Daemon::start(
                self.lab.namespace(node).expect("a node"),
                &[&["--mode", "tc"], ports].concat(),
            )
        };
        let edge = run("e", &["eth0", "eth1"]);
        let headend = run("h", &["eth0", "eth1", "eth2"]);
        self.daemons.extend([edge, headend]);
        let words = |node, line: &str| {
            printed(self.node(node), &line.split(' ').collect::<Vec<_>>());
        };
        words("e", "reflector add 1001");
        for line in [
            format!("path add west {WEST} sbfd fc00:b::1 remote-discriminator 1001 {settings}"),
            format!("path add east {EAST} loopback {settings}"),
            format!(
                "policy add gold color 1 endpoint fc00:b::1 preference 200 {WEST} preference 100 {EAST}"
            ),
            "route add 2001:db8:b::/48 policy gold".into(),
        ] {
            words("h", &line);
        }
    }

    fn paths(&self) -> Vec<report::WatchedPath> {
        ask(self.node("h"), Request::ShowPaths)
    }

    fn state(&self, name: &str) -> String {
        let found = self.paths().into_iter().find(|path| path.name == name);
        found.expect("a path").state
    }

    /// Sends a numbered packet each millisecond while the action runs, and half a second longer.
    /// Returns the number sent, and the longest run of numbers that did not arrive.
    fn under_traffic(&self, to: &str, action: impl FnOnce()) -> (u32, u32) {
        let done = AtomicBool::new(false);
        let destination: Ipv6Addr = to.parse().expect("an address");
        let (from, to) = (self.node("c").handle(), self.node("e").handle());
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let send = || {
                    let socket = UdpSocket::bind("[::]:0").expect("a socket");
                    let (mut number, start) = (0_u32, Instant::now());
                    while !done.load(Ordering::Relaxed) {
                        let _ = socket.send_to(&number.to_be_bytes(), (destination, 9999));
                        number += 1;
                        let next = start + Duration::from_millis(number.into());
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                    number
                };
                from.run(send).expect("the namespace")
            });
            let receiver = scope.spawn(|| {
                let receive = || {
                    let socket = UdpSocket::bind("[::]:9999").expect("a socket");
                    let timeout = Some(Duration::from_millis(200));
                    socket.set_read_timeout(timeout).expect("a timeout");
                    let (mut next, mut longest) = (0_u32, 0);
                    let mut bytes = [0; 4];
                    loop {
                        match socket.recv(&mut bytes) {
                            Ok(4) => {
                                let number = u32::from_be_bytes(bytes);
                                longest = longest.max(number.saturating_sub(next));
                                next = number + 1;
                            }
                            _ if done.load(Ordering::Relaxed) => return longest,
                            _ => {}
                        }
                    }
                };
                to.run(receive).expect("the namespace")
            });
            thread::sleep(Duration::from_millis(500));
            action();
            thread::sleep(Duration::from_millis(500));
            done.store(true, Ordering::Relaxed);
            let sent = sender.join().expect("the sender");
            (sent, receiver.join().expect("the receiver"))
        })
    }

    /// Sets the state of the link behind the transit router `x`. The headend notices nothing.
    fn far(&self, state: &str) {
        Ip::six(self.node("x")).run(&format!("link set eth1 {state}"));
    }

    /// Waits until the list of a path is in use.
    fn is_up(&self, name: &str) {
        eventually("the path", || (self.state(name) == "up").then_some(()));
    }

    /// Repairs the link behind `x`.
    fn mend(&self) {
        self.far("up");
        Ip::six(self.node("x")).all([
            "address replace fc00:3::1/64 dev eth1 nodad",
            "route replace fc00:fb::/32 via fc00:3::2",
            "route replace 2001:db8:e::/48 via fc00:3::2",
            "route replace fc00:f1::e/128 encap seg6local action End dev eth1",
        ]);
        self.is_up("west");
    }
}

#[test]
fn policies_and_protected_next_hops_leave_a_path_that_dies() {
    let Some(_turn) = begin() else {
        return;
    };
    let mut diamond = Diamond::new("livepaths");
    diamond.start("interval 10 multiplier 3");
    for name in ["west", "east"] {
        diamond.is_up(name);
    }
    let tasks = format!("/proc/{}/task", diamond.daemons[1].pid());
    let tasks = std::fs::read_dir(tasks).expect("threads");
    let rights = tasks.map(|task| status_field(task.expect("a thread").path(), "CapEff"));
    let rights: std::collections::BTreeSet<_> = rights.collect();
    assert_eq!(rights.len(), 1, "every thread has the same: {rights:?}");

    let mut daemons = std::mem::take(&mut diamond.daemons);

    // The headend sees no change: the link behind the transit router ends.
    let (sent, lost) = diamond.under_traffic(BY_POLICY, || diamond.far("down"));
    println!("# {lost} of {sent} packets lost in a row: 3 x 10 ms");
    assert!(lost > 5, "the path was cut");
    assert!(lost < 150, "{lost} of {sent} packets lost in a row");
    assert_eq!(diamond.state("west"), "down");
    assert_eq!(diamond.state("east"), "up");
    let shown = printed(diamond.node("h"), &["policy", "show"]);
    assert!(shown.contains("invalid, path west is down"), "{shown}");
    let shown = printed(diamond.node("h"), &["path", "show", "west"]);
    assert!(shown.contains("to fc00:f1::e\n  to fc00:fb::d6"), "{shown}");
    assert!(shown.contains("not in use: no answers"), "{shown}");
    let (sent, lost) = diamond.under_traffic(BY_POLICY, || diamond.mend());
    assert!(lost < 5, "{lost} of {sent} packets lost in a row");

    silent_failures(&diamond);
    restarts(&diamond, &mut daemons);
    kernel_routes(&diamond);
    many_sessions(&diamond, &mut daemons);
}

/// One direction is cut, and long packets are lost.
fn silent_failures(diamond: &Diamond) {
    // One direction is cut.
    let forward = |words: &str| Ip::six(diamond.node("x")).run(words);
    let (sent, lost) = diamond.under_traffic(BY_POLICY, || {
        forward("route replace blackhole fc00:fb::/32");
    });
    println!("# {lost} of {sent} packets lost in a row: one direction");
    assert!(
        (6..150).contains(&lost),
        "{lost} of {sent} packets lost in a row"
    );
    forward("route del blackhole fc00:fb::/32");
    diamond.mend();

    // Long packets are lost.
    let words = format!(
        "path replace west {WEST} sbfd fc00:b::1 remote-discriminator 1001 interval 10 size 1300"
    );
    printed(diamond.node("h"), &words.split(' ').collect::<Vec<_>>());
    diamond.is_up("west");
    forward("link set eth1 mtu 1300");
    eventually("the path", || {
        (diamond.state("west") == "down").then_some(())
    });
    forward("link set eth1 mtu 1500");
    let words = words.replace(" size 1300", "");
    printed(diamond.node("h"), &words.split(' ').collect::<Vec<_>>());
    diamond.is_up("west");
}

/// Both daemons die under traffic and start again.
fn restarts(diamond: &Diamond, daemons: &mut [Daemon]) {
    // Both ends start again, the reflector's daemon first: sessions and reflector are those of the packet path.
    let failures = |diamond: &Diamond| {
        let paths = diamond.paths().into_iter();
        paths.map(|path| path.failures).sum::<u64>()
    };
    let before = failures(diamond);
    for (number, ports) in [(0, &["eth0", "eth1"][..]), (1, &["eth0", "eth1", "eth2"])] {
        let mut next = None;
        let (sent, lost) = diamond.under_traffic(BY_POLICY, || {
            daemons[number].signal(Signal::SIGKILL);
            thread::sleep(Duration::from_millis(300));
            let node = diamond.node(["e", "h"][number]);
            next = Some(Daemon::start(node, &[&["--mode", "tc"], ports].concat()));
        });
        assert!(lost < 5, "{number}: {lost} of {sent} packets lost in a row");
        daemons[number] = next.expect("a daemon");
    }
    for name in ["west", "east"] {
        diamond.is_up(name);
    }
    assert!(failures(diamond) <= before, "no session failed");
}

/// A protected next hop, whose path dies, or whose link.
fn kernel_routes(diamond: &Diamond) {
    // A route of the kernel.
    let headend = diamond.node("h");
    let words = format!("protect add eth0 by {EAST} path west");
    printed(headend, &words.split(' ').collect::<Vec<_>>());
    let state = || {
        let all: report::Protections = ask(headend, Request::ShowProtections);
        all[0].state.clone()
    };
    assert_eq!(state(), "ready");
    let (sent, lost) = diamond.under_traffic(BY_KERNEL, || diamond.far("down"));
    println!("# {lost} of {sent} packets of a kernel route lost in a row");
    assert!(lost > 5, "the path was cut");
    assert!(lost < 150, "{lost} of {sent} packets lost in a row");
    assert_eq!(state(), "in use");
    let (sent, lost) = diamond.under_traffic(BY_KERNEL, || diamond.mend());
    assert!(lost < 5, "{lost} of {sent} packets lost in a row");
    assert_eq!(state(), "ready");

    // The carrier of the headend's link ends, and no probe is needed.
    let near = |state| Ip::six(diamond.node("x")).run(&format!("link set eth0 {state}"));
    for to in [BY_KERNEL, BY_POLICY] {
        let (sent, lost) = diamond.under_traffic(to, || near("down"));
        println!("# {lost} of {sent} packets to {to} lost in a row without a carrier");
        assert!(lost < 50, "{lost} of {sent} packets lost in a row");
        assert_eq!(state(), "in use");
        near("up");
        Ip::six(headend).all([OBJECT, BY_OBJECT]);
        Ip::six(diamond.node("x")).all([
            "address replace fc00:1::2/64 dev eth0 nodad",
            "route replace fc00:a::/32 via fc00:1::1",
        ]);
        diamond.is_up("west");
    }
}

/// Sessions in each direction, and their interval in milliseconds for a daemon that is not optimized.
const MANY: usize = 2_000;
const MANY_INTERVAL: u32 = 100;

/// Both ends start many sessions at once. Then both daemons die, and start at once.
fn many_sessions(diamond: &Diamond, daemons: &mut [Daemon]) {
    for (node, commands) in [
        (
            "h",
            [
                "route add fc00:b::/32 via fc00:2::2",
                "route add fc00:fa:7::/48 encap seg6local action End.DT6 table main dev eth0",
            ],
        ),
        (
            "y",
            [
                "route add fc00:b::/32 via fc00:4::2",
                "route add fc00:fa::/32 via fc00:2::1",
            ],
        ),
        (
            "e",
            [
                "route add fc00:fa::/32 via fc00:4::1",
                "route add fc00:fb:7::/48 encap seg6local action End.DT6 table main dev eth0",
            ],
        ),
    ] {
        Ip::six(diamond.node(node)).all(commands);
    }
    printed(diamond.node("h"), &["reflector", "add", "1002"]);
    let folder = tempfile::tempdir().expect("a folder");
    thread::scope(|scope| {
        for (node, first, last, probe) in [
            (
                "h",
                "fc00:f1::e,",
                "fc00:fb:7",
                "fc00:b::1 remote-discriminator 1001",
            ),
            ("e", "", "fc00:fa:7", "fc00:a::1 remote-discriminator 1002"),
        ] {
            let lines: Vec<String> = (1..=MANY)
                .map(|number| {
                    format!(
                        "path add many{number} segs {first}{last}::{number:x} sbfd {probe} interval {MANY_INTERVAL}"
                    )
                })
                .collect();
            let file = folder.path().join(node);
            std::fs::write(&file, lines.join("\n")).expect("a file");
            scope.spawn(move || {
                let began = Instant::now();
                printed(diamond.node(node), &["-b", file.to_str().expect("UTF-8")]);
                println!("# {MANY} paths by a batch on {node}: {:?}", began.elapsed());
            });
        }
    });
    let up = |node| -> Option<u64> {
        let mut many: Vec<report::WatchedPath> = ask(diamond.node(node), Request::ShowPaths);
        many.retain(|path| path.name.starts_with("many"));
        let all = many.len() == MANY && many.iter().all(|path| path.state == "up");
        all.then(|| many.iter().map(|path| path.failures).sum())
    };
    let failures = ["e", "h"].map(|node| eventually("all paths are up", || up(node)));
    assert_eq!(failures, [0, 0]);
    for daemon in &mut *daemons {
        daemon.signal(Signal::SIGKILL);
    }
    thread::scope(|scope| {
        let started = [
            ("e", &["eth0", "eth1"][..]),
            ("h", &["eth0", "eth1", "eth2"]),
        ]
        .map(|(node, ports)| {
            let args = [&["--mode", "tc"], ports].concat();
            scope.spawn(move || Daemon::start(diamond.node(node), &args))
        });
        for (daemon, started) in daemons.iter_mut().zip(started) {
            *daemon = started.join().expect("a daemon");
        }
    });
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        for node in ["e", "h"] {
            assert_eq!(up(node), Some(0), "{node}: no session failed");
        }
    }
}
