//! Real hosts joined by `SRv6` over three routers. Every byte and frame between them is verified.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::report;
use sidestep_testkit::offload::Offload;
use sidestep_testkit::{FrameSocket, Lab, LinkEnd, Namespace};

use super::frames::{Checksums, checksums};
use super::ip::Ip;
use super::{Daemon, PATIENCE, counters};

pub const ROUTERS: [&str; 3] = ["pe1", "p", "pe2"];
/// Length of one TCP transfer in bytes.
const BYTES: usize = 6 << 20;
/// A transfer without progress for this time has failed. An emulated machine needs a part of it.
const STALLED: Duration = Duration::from_secs(60);
/// MTU of the core, with space for outer headers around a full packet of a host.
pub const CORE_MTU: u32 = 1700;

/// The segments in the middle: from `pe1` and from `pe2`, of IPv6 and of IPv4 packets.
pub type Segments = [[&'static str; 2]; 2];

/// Host `a` - pe1 - p - pe2 - host `b`, in plain `ip` commands: H.Encaps with two segments at the
/// edges, End.DT6 and End.DX4 at the other edge, in both directions. The test chooses the middle
/// behavior.
pub struct Chain {
    pub lab: Lab,
}

impl Chain {
    pub fn new(topic: &str, middle: &[&str], segments: Segments) -> Self {
        let mut lab = Lab::new(topic).expect("a lab");
        for node in ["a", "pe1", "p", "pe2", "b"] {
            lab.node(node).expect("a namespace");
            // A router uses its link-local address for solicitations if the packet's source belongs
            // to another node.
            lab.namespace(node)
                .and_then(|node| node.sysctl("net/ipv6/conf/default/addr_gen_mode", "0"))
                .expect("link-local addresses");
        }
        for (node, ifname, peer, peer_ifname, mtu) in [
            ("a", "eth0", "pe1", "eth0", 1500),
            ("pe1", "eth1", "p", "eth0", CORE_MTU),
            ("p", "eth1", "pe2", "eth0", CORE_MTU),
            ("pe2", "eth1", "b", "eth0", 1500),
        ] {
            let end = |node, ifname| LinkEnd {
                node,
                ifname,
                mac: None,
            };
            lab.link_with([end(node, ifname), end(peer, peer_ifname)], mtu, 1)
                .expect("a cable");
        }
        let chain = Self { lab };
        for router in ROUTERS {
            super::left::remove(chain.node(router));
            for path in [
                "net/ipv6/conf/all/forwarding",
                "net/ipv4/ip_forward",
                "net/ipv6/conf/all/seg6_enabled",
                "net/ipv6/conf/eth0/seg6_enabled",
                "net/ipv6/conf/eth1/seg6_enabled",
            ] {
                chain.node(router).sysctl(path, "1").expect("a sysctl");
            }
        }
        for (node, commands) in [
            ("a", host("a", 1)),
            ("b", host("b", 2)),
            ("pe1", edge(1, 3, ["a", "b"], ["eth0", "eth1"], segments[0])),
            ("pe2", edge(3, 1, ["b", "a"], ["eth1", "eth0"], segments[1])),
            ("p", middle.iter().map(|it| (*it).to_owned()).collect()),
        ] {
            Ip::new(chain.node(node)).all(commands.iter().map(String::as_str));
        }
        chain
    }

    pub fn node(&self, name: &str) -> &Namespace {
        self.lab.namespace(name).expect("a node")
    }

    /// Starts the program on all routers; the middle one has these additional ports.
    pub fn start(&self, mode: &str, middle: &[&str]) -> Vec<Daemon> {
        let start = |router: &&str| {
            let beside: &[&str] = if *router == "p" { middle } else { &[] };
            let args = [&["--mode", mode, "eth0", "eth1"], beside].concat();
            Daemon::start(self.node(router), &args)
        };
        ROUTERS.iter().map(start).collect()
    }

    pub fn offload(&self, nodes: &[&str], ports: &[&str], offload: Offload) {
        for node in nodes {
            for port in ports {
                self.lab.offload(node, port, offload).expect("a switch");
            }
        }
    }

    /// Returns the sum of the port counters of all routers.
    pub fn tally(&self) -> report::PortCounters {
        let mut sum = report::PortCounters::default();
        for router in ROUTERS {
            for port in ["eth0", "eth1"] {
                let of_port = counters(self.node(router), port);
                sum.received_packets += of_port.received_packets;
                sum.forwarded += of_port.forwarded;
                sum.punted += of_port.punted;
                sum.dropped += of_port.dropped;
            }
        }
        sum
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for router in ROUTERS {
            super::left::remove(self.node(router));
        }
    }
}

fn host(name: &str, number: u8) -> Vec<String> {
    vec![
        format!("address add 2001:db8:{name}::2/64 dev eth0"),
        format!("address add 10.0.{number}.2/24 dev eth0"),
        format!("route add default via 2001:db8:{name}::1"),
        format!("route add default via 10.0.{number}.1"),
    ]
}

/// Returns the commands for a router with the locator `fc00:OWN::/48`, the customers `[own, other]`
/// and the ports `[to the customer, to the core]`.
fn edge(
    own: u8,
    other: u8,
    [own_customer, customer]: [&str; 2],
    ports: [&str; 2],
    [segment6, segment4]: [&str; 2],
) -> Vec<String> {
    let [outside, core] = ports;
    let net = |customer: &str| if customer == "a" { 1 } else { 2 };
    let (own_net, net) = (net(own_customer), net(customer));
    let (link, number) = if own == 1 { ("12", 1) } else { ("23", 3) };
    vec![
        format!("address add 2001:db8:{own_customer}::1/64 dev {outside}"),
        format!("address add 10.0.{own_net}.1/24 dev {outside}"),
        format!("address add fc00:{link}::{number}/64 dev {core}"),
        format!("address add fc00:{own}::1/128 dev lo"),
        format!("sr tunsrc set fc00:{own}::1"),
        format!("route add fc00:2::/48 via fc00:{link}::2 dev {core}"),
        format!("route add fc00:{other}::/48 via fc00:{link}::2 dev {core}"),
        format!(
            "route add 2001:db8:{customer}::/64 encap seg6 mode encap segs {segment6},fc00:{other}::d6 dev {core}"
        ),
        format!(
            "route add 10.0.{net}.0/24 encap seg6 mode encap segs {segment4},fc00:{other}::d4 dev {core}"
        ),
        format!("route add fc00:{own}::d6/128 encap seg6local action End.DT6 table 254 dev {core}"),
        format!(
            "route add fc00:{own}::d4/128 encap seg6local action End.DX4 nh4 10.0.{own_net}.2 dev {core}"
        ),
    ]
}

/// Sends echo requests, each of which must get a reply. Neighbors on all links are resolved before.
fn ping(from: &Namespace, to: &str) {
    super::eventually(&format!("an answer of {to}"), || {
        let one = ["ping", "-n", "-q", "-c", "1", "-W", "0.3", to];
        from.exec(&one).ok()
    });
    let words = ["ping", "-n", "-q", "-c", "20", "-i", "0.01", "-W", "3", to];
    let text = from.exec(&words).unwrap_or_else(|error| error.to_string());
    assert!(
        text.contains("20 packets transmitted, 20 received"),
        "{text}"
    );
}

/// Returns byte number `at` of every transfer. The bytes repeat rarely, so that exchanged parts are
/// detected.
fn byte(at: usize) -> u8 {
    let at = at as u64;
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Sends [`BYTES`] bytes and compares each one at the receiver, which replies with their number.
pub fn transfer(from: &Namespace, to: &Namespace, address: IpAddr) {
    let listener = to
        .run(|| TcpListener::bind((address, 0)))
        .expect("the namespace can be entered")
        .expect("listen");
    let target = listener.local_addr().expect("an address");
    let mut sender = from
        .run(|| TcpStream::connect_timeout(&target, PATIENCE))
        .expect("the namespace can be entered")
        .expect("connect");
    let (mut receiver, _) = listener.accept().expect("accept");
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(STALLED)).expect("a timeout");
        stream.set_write_timeout(Some(STALLED)).expect("a timeout");
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
            sender.write_all(&bytes).expect("send");
            let mut answer = [0; 8];
            sender.read_exact(&mut answer).expect("an answer");
            assert_eq!(u64::from_be_bytes(answer), BYTES as u64);
        });
        let (mut chunk, mut at) = (vec![0; 1 << 16], 0);
        while at < BYTES {
            let length = receiver
                .read(&mut chunk)
                .unwrap_or_else(|error| panic!("receive, after {at} bytes: {error}"));
            assert!(length > 0, "it ended after {at} bytes");
            let wrong = (0..length).find(|&index| chunk[index] != byte(at + index));
            assert_eq!(wrong.map(|index| at + index), None, "the byte that changed");
            at += length;
        }
        receiver
            .write_all(&(at as u64).to_be_bytes())
            .expect("answer");
    });
}

/// Numbers of frames at a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    pub right: usize,
    pub left_to_device: usize,
    pub longest: usize,
}

/// Checks every frame that arrives at a host until `done`. A wrong checksum fails the test.
fn judge(socket: &FrameSocket, done: &AtomicBool) -> Judged {
    let mut judged = Judged::default();
    loop {
        // Query first, then read: frames up to that moment are verified.
        let last = done.load(Ordering::Acquire);
        while let Some(frame) = socket.receive(Duration::from_millis(10)).expect("receive") {
            match checksums(&frame) {
                Ok(Checksums::Right) => judged.right += 1,
                Ok(Checksums::LeftToDevice) => judged.left_to_device += 1,
                Ok(Checksums::None) => {}
                Err(wrong) => panic!("{wrong} in {}", super::hex(&frame[..frame.len().min(100)])),
            }
            judged.longest = judged.longest.max(frame.len());
        }
        if last {
            return judged;
        }
    }
}

/// Runs ping and TCP of both families in both directions, and checks every frame at both hosts.
pub fn cross(chain: &Chain) -> [Judged; 2] {
    let (a, b) = (chain.node("a"), chain.node("b"));
    let [at_a, at_b] = [a, b].map(|host| FrameSocket::open(host, "eth0").expect("a socket"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let judges = [&at_a, &at_b].map(|socket| scope.spawn(|| judge(socket, &done)));
        let crossed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for to in ["2001:db8:b::2", "10.0.2.2"] {
                ping(a, to);
            }
            for to in ["2001:db8:b::2", "10.0.2.2"] {
                transfer(a, b, to.parse().expect("an address"));
            }
            transfer(b, a, "2001:db8:a::2".parse().expect("an address"));
            transfer(b, a, "10.0.1.2".parse().expect("an address"));
        }));
        done.store(true, Ordering::Release);
        let ended = judges.map(std::thread::ScopedJoinHandle::join);
        if let Err(panic) = crossed {
            std::panic::resume_unwind(panic);
        }
        ended.map(|judged| judged.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

pub fn print_duration(what: &str, started: Instant, judged: [Judged; 2]) {
    let line = format!(
        "{what}: {:.1} s, {judged:?}\n",
        started.elapsed().as_secs_f64()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// If `THROUGHPUT` is set, prints the TCP throughput that iperf3 measures in two seconds.
pub fn throughput(chain: &Chain, what: &str) {
    if std::env::var_os("THROUGHPUT").is_none() {
        return;
    }
    let (a, b) = (chain.node("a"), chain.node("b"));
    for to in ["2001:db8:b::2", "10.0.2.2"] {
        let listen = ["iperf3", "-s", "-1", "-B", to, "--logfile", "/dev/null"];
        let mut server = b.spawn(&listen).expect("iperf3 (Debian package iperf3)");
        let bits = super::eventually("iperf3 listens", || {
            let report = a.exec(&["iperf3", "-c", to, "-t", "2", "-J"]).ok()?;
            let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
            report["end"]["sum_received"]["bits_per_second"].as_f64()
        });
        eprintln!("{what}, to {to}: {:.2} Gbit/s", bits / 1e9);
        super::wait(server.child()).expect("iperf3 -1 ends");
    }
}

/// `--mode auto` chose TC, since the peer of a veth may leave checksums and segmentation to the
/// receiver.
pub fn began_at_tc(daemons: &[Daemon]) {
    for daemon in daemons {
        assert!(daemon.began.contains("eth0 (tc)"), "{}", daemon.began);
    }
}

/// Checks that no node on the path computed a checksum or segmented, as offloads intend.
pub fn were_left_uncut(judged: &[Judged; 2]) {
    for at_host in judged {
        assert!(
            at_host.left_to_device > 0 && at_host.longest > 1514,
            "{judged:?}"
        );
    }
}
