//! Traffic of many kinds. Every packet identifies itself, so that a receiver knows each expected
//! byte.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_testkit::FrameSocket;

use super::frames::{ETHERNET, IPV4, IPV6, ROUTING, ethernet, ipv6, srh, udp};
use super::{HOSTS, ROUTER, Star, hex};

/// Number of frames per burst, and the interval between bursts.
const BURST: usize = 32;
const PACE: Duration = Duration::from_millis(4);
/// Payload of a test packet: this magic number, its kind, its sequence number.
const MARK: &[u8; 6] = b"judged";
const CARRIED: usize = MARK.len() + 2 + 8;
/// Destinations of changing routes; the packet's sequence number selects one.
pub const DESTINATIONS: u64 = 256;

/// Routes of the traffic, in `ip`'s grammar: unchanged ones, and those via host `c`, which may be
/// absent.
pub const CONSTANT: [&str; 7] = [
    "route replace fc00:bb::/32 via fc00:b::2 dev eth1",
    "route replace fc0d::/16 via fc00:b::2 dev eth1",
    "route replace 10.9.0.0/16 via 10.0.2.2 dev eth1",
    "route replace fc0c::/16 encap seg6 mode encap segs fc00:bb::e dev eth1",
    "route replace 10.8.0.0/16 encap seg6 mode encap segs fc00:bb::d,fc00:bb::e dev eth1",
    "route replace fc00:5::1e/128 encap seg6local action End dev eth0",
    "route replace fc00:5::d6/128 encap seg6local action End.DX6 nh6 fc00:b::2 dev eth0",
];
pub const THROUGH_C: [&str; 2] = [
    "route replace fc00:cc::/32 via fc00:c::2 dev eth2",
    "route replace fc00:5::ec/128 encap seg6local action End.X nh6 fc00:c::2 dev eth0",
];

/// A sent packet and its allowed results.
struct Judged {
    sent: Vec<u8>,
    /// Packets of which one must arrive, at any of these hosts.
    arrives: Vec<Vec<u8>>,
    hosts: &'static [&'static str],
    /// Whether the first header is new, so that its flow label is computed (RFC 6437).
    outer: bool,
}

/// A kind of packets.
struct Kind {
    name: &'static str,
    /// Whether its configuration never changes.
    constant: bool,
    make: fn(&[u8], u64) -> Judged,
}

const KINDS: [Kind; 10] = [
    Kind {
        name: "plain IPv6",
        constant: true,
        make: |data, _| plain("fc00:a::2", "fc00:bb::9", &["b"], data),
    },
    Kind {
        name: "plain IPv4",
        constant: true,
        make: |data, _| plain("10.0.1.2", "10.9.0.9", &["b"], data),
    },
    Kind {
        name: "H.Encaps",
        constant: true,
        make: |data, _| wrapped("fc00:a::2", "fc0c::9", &["fc00:bb::e"], data),
    },
    Kind {
        name: "H.Encaps of IPv4",
        constant: true,
        make: |data, _| wrapped("10.0.1.2", "10.8.0.9", &["fc00:bb::d", "fc00:bb::e"], data),
    },
    Kind {
        name: "End",
        constant: true,
        make: |data, _| advanced("fc00:5::1e", "fc00:bb::5", &["b"], data),
    },
    Kind {
        name: "End.DX6",
        constant: true,
        make: |data, _| {
            let inner = |hop_limit| udp(ip("fc00:1::1"), ip("fc00:2::2"), hop_limit, data);
            Judged {
                sent: carrying("fc00:5::d6", &["fc00:5::d6"], 0, 64, &inner(64)),
                arrives: vec![inner(63)],
                hosts: &["b"],
                outer: false,
            }
        },
    },
    Kind {
        name: "by a route that flaps",
        constant: false,
        make: |data, number| {
            let to = format!("fc0d:{:x}::1", number % DESTINATIONS);
            plain("fc00:a::2", &to, &["b", "c"], data)
        },
    },
    Kind {
        name: "through c",
        constant: false,
        make: |data, _| plain("fc00:a::2", "fc00:cc::9", &["c"], data),
    },
    Kind {
        name: "End.X to c",
        constant: false,
        make: |data, _| advanced("fc00:5::ec", "fc00:bb::5", &["c"], data),
    },
    Kind {
        name: "to a namespace that vanishes",
        constant: false,
        make: |data, _| plain("fc00:a::2", "fc00:dd::9", &[], data),
    },
];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn six(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn plain(from: &str, to: &str, hosts: &'static [&'static str], data: &[u8]) -> Judged {
    let packet = |hop_limit| udp(ip(from), ip(to), hop_limit, data);
    Judged {
        sent: packet(64),
        arrives: vec![packet(63)],
        hosts,
        outer: false,
    }
}

/// Returns a packet encapsulated with an SRH, from the tunnel source. RFC 8986 5.1 decrements the
/// inner hop limit, Linux the outer one. Linux forwards packets while a route is new or its next
/// hop is being resolved.
fn wrapped(from: &str, to: &str, segments: &[&str], data: &[u8]) -> Judged {
    let inner = |hop_limit| udp(ip(from), ip(to), hop_limit, data);
    let next = if ip(from).is_ipv4() { IPV4 } else { IPV6 };
    let segments: Vec<Ipv6Addr> = segments.iter().map(|it| six(it)).collect();
    let header = srh(next, &segments, segments.len() as u8 - 1);
    let outer = |hop_limit, inner: Vec<u8>| {
        let pushed = [&header[..], &inner].concat();
        ipv6(six("fc00:5::1"), segments[0], ROUTING, hop_limit, &pushed)
    };
    Judged {
        sent: inner(64),
        arrives: vec![outer(64, inner(63)), outer(63, inner(64))],
        hosts: &["b"],
        outer: true,
    }
}

/// Returns an encapsulated packet on its way to one of these segments.
fn carrying(to: &str, segments: &[&str], left: u8, hop_limit: u8, inner: &[u8]) -> Vec<u8> {
    let segments: Vec<Ipv6Addr> = segments.iter().map(|it| six(it)).collect();
    let payload = [&srh(IPV6, &segments, left)[..], inner].concat();
    ipv6(six("fc00:a::2"), six(to), ROUTING, hop_limit, &payload)
}

fn advanced(sid: &str, next: &str, hosts: &'static [&'static str], data: &[u8]) -> Judged {
    let inner = udp(ip("fc00:1::1"), ip("fc00:2::2"), 64, data);
    Judged {
        sent: carrying(sid, &[sid, next], 1, 64, &inner),
        arrives: vec![carrying(next, &[sid, next], 0, 63, &inner)],
        hosts,
        outer: false,
    }
}

/// Builds a packet with a payload.
fn judged(kind: usize, number: u64) -> Judged {
    let data = [
        &MARK[..],
        &(kind as u16).to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat();
    (KINDS[kind].make)(&data, number)
}

/// Returns the identity in a frame, or `None` if it is not a test packet.
fn label(frame: &[u8]) -> Option<(usize, u64)> {
    let carried = frame.last_chunk::<CARRIED>()?.strip_prefix(MARK)?;
    let (kind, number) = carried.split_first_chunk::<2>()?;
    let kind = u16::from_be_bytes(*kind).into();
    Some((kind, u64::from_be_bytes(number.try_into().ok()?))).filter(|_| kind < KINDS.len())
}

/// Counters of one kind.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    pub arrived: u64,
}

/// Result of the traffic.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Counters by kind.
    pub counts: BTreeMap<&'static str, Counts>,
    /// The first unexpected frames, with the reason.
    pub wrong: Vec<String>,
    pub wrong_in_all: u64,
}

impl Verdict {
    /// Returns the undisturbed kinds with missing packets.
    pub fn lost(&self) -> Vec<String> {
        let constant = KINDS.iter().filter(|kind| kind.constant);
        let lost = constant.filter_map(|kind| {
            let counts = self.counts.get(kind.name)?;
            (counts.sent != counts.arrived).then(|| format!("{}: {counts:?}", kind.name))
        });
        lost.collect()
    }

    fn add(&mut self, other: Self) {
        for (name, counts) in other.counts {
            let sum = self.counts.entry(name).or_default();
            sum.sent += counts.sent;
            sum.arrived += counts.arrived;
        }
        self.wrong.extend(other.wrong);
        self.wrong_in_all += other.wrong_in_all;
    }
}

/// Sends from host `a` until `done`, and checks the packets that arrive at the other hosts.
pub fn traffic(star: &Star, done: &AtomicBool) -> Verdict {
    let all_sent = AtomicBool::new(false);
    thread::scope(|scope| {
        let receivers: Vec<_> = HOSTS[1..]
            .iter()
            .map(|host| {
                let socket = star.socket(host);
                let all_sent = &all_sent;
                scope.spawn(move || receive(&socket, host, all_sent))
            })
            .collect();
        let mut verdict = send(star, done);
        all_sent.store(true, Ordering::Release);
        for receiver in receivers {
            verdict.add(receiver.join().expect("a receiver"));
        }
        verdict
    })
}

fn send(star: &Star, done: &AtomicBool) -> Verdict {
    let mut verdict = Verdict::default();
    let socket = star.socket("a");
    let (to, from) = (star.mac(ROUTER, "eth0"), star.mac("a", "eth0"));
    let mut number = 0;
    while !done.load(Ordering::Acquire) {
        for _ in 0..BURST {
            let kind = (number % KINDS.len() as u64) as usize;
            let packet = judged(kind, number / KINDS.len() as u64).sent;
            socket
                .send(&ethernet(to, from, &packet))
                .expect("a frame leaves");
            verdict.counts.entry(KINDS[kind].name).or_default().sent += 1;
            number += 1;
        }
        thread::sleep(PACE);
    }
    verdict
}

fn receive(socket: &FrameSocket, host: &str, all_sent: &AtomicBool) -> Verdict {
    let mut verdict = Verdict::default();
    loop {
        let last = all_sent.load(Ordering::Acquire);
        while let Ok(Some(frame)) = socket.receive(Duration::from_millis(200)) {
            let Some((kind, number)) = label(&frame) else {
                continue;
            };
            match judge(host, kind, number, &frame[ETHERNET..]) {
                Ok(()) => verdict.counts.entry(KINDS[kind].name).or_default().arrived += 1,
                Err(why) => {
                    verdict.wrong_in_all += 1;
                    if verdict.wrong.len() < 3 {
                        let frame = hex(&frame);
                        verdict
                            .wrong
                            .push(format!("{} at {host}: {why}: {frame}", KINDS[kind].name));
                    }
                }
            }
        }
        if last {
            return verdict;
        }
    }
}

/// Checks whether a packet may arrive at this host in this form.
fn judge(host: &str, kind: usize, number: u64, packet: &[u8]) -> Result<(), String> {
    let judged = judged(kind, number);
    if !judged.hosts.contains(&host) {
        return Err("it belongs elsewhere".to_owned());
    }
    let mut arrives = judged.arrives;
    if judged.outer && packet.len() > 4 {
        for expected in &mut arrives {
            expected[1..4].copy_from_slice(&packet[1..4]);
        }
    }
    if arrives.iter().any(|expected| expected == packet) {
        Ok(())
    } else {
        Err(format!("{} expected", hex(&arrives[0])))
    }
}
