//! Trials between namespaces: offered load, counters, and detected disorder.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sidestep_testkit::Napi;
use sidestep_testkit::capability::two_cpus_or_skip;
use sidestep_testkit::traffic::{
    Distribution, Driver as _, Flows, Hook, LiveFrames, Load, Local, Offer, Receiver, Stamp,
    Stream, Template,
};
use sidestep_testkit::{FrameSocket, Lab, root_or_skip};
use sidestep_wire::{
    Ends, EtherType, Ethernet, Ipv4, Ipv4View, Ipv6, Ipv6View, Protocol, Udp, checksum,
};

/// Returns an Ethernet frame with UDP over IPv6. `length` includes the IP header.
fn ipv6(length: usize) -> Vec<u8> {
    let [source, destination] =
        [1, 2].map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let udp = udp(Ends::new(source, destination), length - Ipv6::LENGTH);
    let packet = Ipv6::new(source, destination, Protocol::UDP).emit(&udp);
    frame(EtherType::IPV6, &packet)
}

/// Returns an Ethernet frame with UDP over IPv4.
fn ipv4(length: usize) -> Vec<u8> {
    let [source, destination] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
    let udp = udp(Ends::new(source, destination), length - Ipv4::LENGTH);
    frame(
        EtherType::IPV4,
        &Ipv4::new(source, destination, Protocol::UDP).emit(&udp),
    )
}

/// Returns a UDP datagram from port 4096 to port 9.
fn udp(ends: Ends, length: usize) -> Vec<u8> {
    let header = Udp {
        source_port: 0x1000,
        destination_port: 9,
    };
    header.emit(&vec![0; length - Udp::LENGTH], ends)
}

fn frame(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let (destination, source) = ([2; 6], [2; 6]);
    Ethernet {
        destination,
        source,
        ethertype,
    }
    .emit(packet)
}

/// UDP source port, and the checksum that covers it.
fn flows(count: u32) -> Flows {
    Flows {
        count,
        offset: 54,
        checksum: Some(60),
    }
}

fn stream() -> Stream {
    Stream::of(Template::new(&ipv6(64), flows(16)).expect("template")).expect("stream")
}

fn pair(name: &str) -> Lab {
    let mut lab = Lab::new(name).expect("lab");
    lab.node("a")
        .and_then(|lab| lab.node("b"))
        .and_then(|lab| lab.link("a", "eth0", "b", "eth0"))
        .expect("two nodes");
    lab
}

fn local(lab: &Lab, stream: &Stream) -> Local {
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let receiver = Receiver::attach(b, "eth0", Hook::Xdp).expect("receiver");
    Local::new(
        LiveFrames::open(a, "eth0", stream, 0).expect("source"),
        receiver,
    )
}

/// Serializes tests that send, since all generators share a CPU.
static CPU: Mutex<()> = Mutex::new(());

fn cpu() -> MutexGuard<'static, ()> {
    CPU.lock().unwrap_or_else(PoisonError::into_inner)
}

const TRIES: usize = 20;

#[test]
fn the_requested_rate_is_offered_and_every_packet_is_counted_once() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = pair("rate");
    let mut local = local(&lab, &stream());
    for (rate, least) in [(1000.0, 0.9), (5000.0, 0.9), (200_000.0, 0.0)] {
        // At a low rate, the generator catches up after losing the CPU for a few milliseconds. It
        // never exceeds the rate.
        let mut best = 0.0f64;
        for _ in 0..TRIES {
            let trial = local
                .trial(Load::Rate(rate), Duration::from_millis(200), false)
                .expect("trial");
            assert_eq!(trial.received, trial.sent, "{trial:?}");
            assert!(trial.latency.is_none());
            let arrivals = local.arrivals();
            assert_eq!(arrivals.bytes, trial.sent * 78);
            assert_eq!(
                (arrivals.reordered, arrivals.duplicated, arrivals.late),
                (0, 0, 0)
            );
            let ratio = trial.sent_rate() / rate;
            assert!(ratio < 1.01, "{trial:?}");
            best = best.max(ratio);
            if best > 0.98 || least <= 0.0 {
                break;
            }
        }
        assert!(best > least, "{best} of {rate}");
    }
}

#[test]
fn generators_on_two_cpus_share_the_flows_and_are_counted_separately() {
    if !root_or_skip() || !two_cpus_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = Lab::pair("cores", 2).expect("two nodes");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let whole = Template::new(&ipv6(64), flows(5)).expect("template");
    let parts = [0, 1].map(|number| Stream::of(whole.part(number, 2).expect("part")));
    let parts = parts.map(|stream| stream.expect("stream"));
    let streams = [(&parts[0], 0), (&parts[1], 1)];
    let receiver = Receiver::attach(b, "eth0", Hook::Xdp).expect("receiver");
    let source = LiveFrames::on_cpus(a, "eth0", &streams).expect("source");
    let mut local = Local::new(source, receiver);
    for load in [Load::Rate(10_000.0), Load::Maximum, Load::Rate(300_000.0)] {
        let window = Duration::from_millis(200);
        let mut trials = Vec::new();
        // If the host takes a CPU away, a ring fills up. This does not happen in every trial.
        let undisturbed = (0..TRIES).any(|_| {
            let trial = local.trial(load, window, true).expect("trial");
            // Both generators count from 0. In a common window, packets of one would count as
            // duplicates of the other's.
            let arrivals = local.arrivals();
            assert_eq!((arrivals.duplicated, arrivals.late), (0, 0), "{load:?}");
            assert_eq!(arrivals.reordered, 0, "each comes by a queue of its own");
            assert!(trial.received <= trial.sent, "{trial:?}");
            if let Load::Rate(rate) = load {
                assert!(trial.sent_rate() < rate * 1.01, "{trial:?}");
            }
            assert!((trial.seconds - 0.2).abs() < 1e-9, "{trial:?}");
            trials.push((trial.sent, trial.received));
            trial.received >= trial.sent - trial.sent / 10
        });
        assert!(undisturbed, "{load:?}: {trials:?}");
    }
    // The flows of the second generator follow those of the first one.
    drop(local);
    let _napi = Napi::attach(b, "eth0").expect("NAPI");
    let socket = FrameSocket::open(b, "eth0").expect("socket");
    let mut source = LiveFrames::on_cpus(a, "eth0", &streams).expect("source");
    let offer = Offer {
        trial: 7,
        load: Load::Rate(400.0),
        duration: Duration::from_millis(100),
        timed: false,
    };
    let sent = source.offer(&offer, None).expect("offer").sent;
    let mut seen = BTreeMap::<u16, Vec<(u16, u64)>>::new();
    while let Some(frame) = socket.receive(Duration::from_millis(100)).expect("receive") {
        let Some(stamp) = Stamp::of(&frame) else {
            continue;
        };
        assert_eq!(udp_sum(&frame[14..]), 0, "the checksum is right");
        let port = u16::from_be_bytes([frame[54], frame[55]]);
        seen.entry(stamp.trial)
            .or_default()
            .push((port, stamp.sequence));
    }
    assert_eq!(seen.values().map(Vec::len).sum::<usize>() as u64, sent);
    for (trial, ports) in [(7, 4096..4098), (8, 4098..4101)] {
        let seen = &seen[&trial];
        let count = ports.len() as u64;
        for (turn, (port, sequence)) in (0..).zip(seen) {
            let expected = ports.start + (turn % count) as u16;
            assert_eq!((*port, *sequence), (expected, turn), "trial {trial}");
        }
    }
}

#[test]
fn the_maximum_is_more_than_any_rate_and_latency_is_measured() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = pair("maximum");
    let mut local = local(&lab, &stream());
    let window = Duration::from_millis(200);
    let mut tries = Vec::new();
    let timed = (0..TRIES).find_map(|_| {
        let most = local.trial(Load::Maximum, window, false).expect("trial");
        assert_eq!(most.received, most.sent);
        let timed = local
            .trial(Load::Rate(50_000.0), window, true)
            .expect("trial");
        tries.push((most.sent_rate(), timed.sent_rate()));
        (most.sent_rate() > 4.0 * timed.sent_rate()).then_some(timed)
    });
    let timed = timed.unwrap_or_else(|| panic!("{tries:?}"));
    let latency = timed.latency.expect("latency");
    assert_eq!(latency.samples, timed.received);
    assert!(
        latency.p50 > 0.0 && latency.p50 <= latency.p99,
        "{latency:?}"
    );
    assert!(
        latency.p99 <= latency.p999 && latency.p999 <= latency.max,
        "{latency:?}"
    );
    assert!(
        latency.jitter > 0.0 && latency.jitter < latency.max,
        "{latency:?}"
    );
    assert_eq!(
        latency.histogram.last(),
        Some(&(latency.max, latency.samples))
    );
}

/// Returns the UDP checksum of an IP packet: 0 if the packet is valid.
fn udp_sum(packet: &[u8]) -> u16 {
    let (ends, datagram) = match packet[0] >> 4 {
        6 => Ipv6View::parse(packet).map(|(header, rest)| (header.ends(), rest)),
        _ => Ipv4View::parse(packet).map(|(header, rest)| (header.ends(), rest)),
    }
    .expect("an IP header");
    checksum::upper_layer(ends, Protocol::UDP, datagram)
}

#[test]
fn each_size_of_a_mix_arrives_complete_with_a_valid_checksum_and_stamp() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = pair("mix");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let _napi = Napi::attach(b, "eth0").expect("NAPI");
    let socket = FrameSocket::open(b, "eth0").expect("socket");
    let (mut by_length, mut by_flow) = (BTreeMap::new(), [0; 5]);
    let mut expected = 0;
    let templates: Vec<(Template, u32)> = [(64, 7), (577, 4), (1500, 1)]
        .map(|(length, share)| {
            (
                Template::new(&ipv6(length), flows(5)).expect("template"),
                share,
            )
        })
        .into();
    let stream = Stream::new(&templates, Distribution::Zipf).expect("stream");
    let mut source = LiveFrames::open(a, "eth0", &stream, 0).expect("source");
    let offer = Offer {
        trial: 0xabcd,
        load: Load::Rate(2000.0),
        duration: Duration::from_millis(300),
        timed: true,
    };
    let offered = source.offer(&offer, None).expect("offered");
    while let Some(frame) = socket.receive(Duration::from_millis(200)).expect("receive") {
        let stamp = Stamp::of(&frame).expect("a stamp");
        assert_eq!((stamp.trial, stamp.sequence), (0xabcd, expected));
        assert_ne!(stamp.time, 0);
        expected += 1;
        assert_eq!(udp_sum(&frame[14..]), 0, "{frame:02x?}");
        let template = ipv6(frame.len() - 14);
        assert_eq!(frame[..54], template[..54]);
        assert_eq!(frame[56..60], template[56..60]);
        assert_eq!(
            frame[62..frame.len() - 16],
            template[62..template.len() - 16]
        );
        *by_length.entry(frame.len()).or_insert(0) += 1;
        by_flow[usize::from(frame[55])] += 1;
    }
    assert_eq!(expected, offered.sent);
    assert!(expected > 100, "{expected}");
    assert_eq!(
        by_length.keys().copied().collect::<Vec<_>>(),
        [78, 591, 1514]
    );
    // Zipf: the first flow has 44 % of all, the last 9 %.
    assert!(by_flow[0] > 2 * by_flow[4], "{by_flow:?}");
    assert!(by_flow.iter().all(|count| *count > 0), "{by_flow:?}");
}

#[test]
fn an_ipv4_checksum_is_updated_too() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = pair("ipv4");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let _napi = Napi::attach(b, "eth0").expect("NAPI");
    let socket = FrameSocket::open(b, "eth0").expect("socket");
    let flows = Flows {
        count: 3,
        offset: 34,
        checksum: Some(40),
    };
    let template = Template::new(&ipv4(46), flows);
    let stream = Stream::of(template.expect("template")).expect("stream");
    let mut source = LiveFrames::open(a, "eth0", &stream, 0).expect("source");
    let offer = Offer {
        trial: 1,
        load: Load::Rate(1000.0),
        duration: Duration::from_millis(50),
        timed: true,
    };
    let offered = source.offer(&offer, None).expect("offered");
    for number in 0..offered.sent {
        let frame = socket.receive(Duration::from_secs(1)).expect("receive");
        let frame = frame.expect("a frame");
        assert_eq!(udp_sum(&frame[14..]), 0);
        assert_eq!(frame[35], (number % 3) as u8);
    }
}

#[test]
fn loss_reordering_and_duplicates_are_detected_and_foreign_packets_ignored() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    let lab = pair("order");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    for hook in [Hook::Xdp, Hook::Tc] {
        let mut receiver = Receiver::attach(b, "eth0", hook).expect("receiver");
        let socket = FrameSocket::open(a, "eth0").expect("socket");
        let old = receiver.begin(1, false).expect("begin");
        let trial = receiver.begin(1, false).expect("begin");
        assert_ne!(old, trial);
        let send = |trial, sequence| {
            let mut frame = ipv6(64);
            let stamp = Stamp {
                trial,
                sequence,
                time: 0,
            };
            frame[62..].copy_from_slice(&stamp.bytes());
            socket.send(&frame).expect("send");
        };
        // 3 is lost, 1 arrives after 2, 4 arrives twice, and 65,541 moves the window beyond 5.
        for sequence in [0, 2, 1, 4, 4, 65_541, 5] {
            send(trial, sequence);
        }
        send(old, 6);
        socket.send(&ipv6(64)).expect("send");
        socket.send(&[2; 14]).expect("send");
        let mut arrivals = receiver.arrivals().expect("arrivals");
        for _ in 0..100 {
            if arrivals.strangers >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            arrivals = receiver.arrivals().expect("arrivals");
        }
        assert_eq!(arrivals.packets, 5, "{hook:?} {arrivals:?}");
        assert_eq!(arrivals.bytes, 5 * 78);
        assert_eq!(
            (arrivals.reordered, arrivals.duplicated, arrivals.late),
            (1, 1, 1)
        );
        // The node at the other end may have sent packets too (MLD).
        assert!((2..10).contains(&arrivals.strangers), "{arrivals:?}");
        receiver.begin(1, false).expect("begin");
        assert_eq!(receiver.arrivals().expect("arrivals").packets, 0);
    }
}

#[test]
fn the_wait_for_lost_packets_ends_without_arrivals() {
    if !root_or_skip() {
        return;
    }
    let _cpu = cpu();
    // The receiver is at another interface than the destination of the packets.
    let lab = pair("lost");
    let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
    let receiver = Receiver::attach(a, "eth0", Hook::Xdp).expect("receiver");
    let _napi = Napi::attach(b, "eth0").expect("NAPI");
    let source = LiveFrames::open(a, "eth0", &stream(), 0).expect("source");
    let mut local = Local::new(source, receiver);
    let trial = local.trial(Load::Rate(1000.0), Duration::from_millis(50), true);
    let trial = trial.expect("trial");
    assert!(trial.sent > 10 && trial.received == 0, "{trial:?}");
    assert!(trial.latency.is_none());
    assert!(
        local
            .trial(Load::Rate(0.0), Duration::from_secs(1), false)
            .is_err()
    );
    assert!(local.trial(Load::Maximum, Duration::ZERO, false).is_err());
}
