//! The proxy cache while several CPUs learn and restore at once.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sidestep_datapath::learned::Flows;
use sidestep_datapath::{HeaderSetId, Image, Native, Verdict};
use sidestep_testkit::differential::headers::{
    ETHERNET, ETHERTYPE_IPV6, Ipv6, Srh, ethernet, ipv6, proto, srh,
};

use super::bench::with;

const SID: &str = "fc0f::d6";
const ROUTE: &str = "fc0f::d6/128 encap seg6local action End.AD oif eth2 nh6 fc02::1";

/// Frames at the two ports, and the tables that they meet.
struct Bench {
    image: Image,
    index: HeaderSetId,
    outside: u32,
    service: u32,
}

impl Bench {
    /// `more`: words of End.AD.
    fn new(more: &str) -> Self {
        let (_, node, compiled) = with(&[format!("{ROUTE} {more} dev eth2")]);
        let image = compiled.image;
        let ifindex = |port| node.link_by_name(port).expect("a port").ifindex.0;
        let learned: Vec<HeaderSetId> = image.learned.keys().copied().collect();
        let [index] = learned[..] else {
            panic!("{learned:?}");
        };
        Self {
            image,
            index,
            outside: ifindex("eth0"),
            service: ifindex("eth2"),
        }
    }

    /// This number of CPUs with one proxy cache.
    fn cpus(&self, cpus: usize) -> Vec<Native> {
        let mut all: Vec<Native> = (0..cpus).map(|_| Native::new(&self.image)).collect();
        let (first, others) = all.split_first_mut().expect("a CPU");
        for other in others {
            other.learn_with(first);
        }
        all
    }

    fn version(&self, cpu: &Native) -> u64 {
        cpu.learned(HeaderSetId(self.index.0))
            .expect("a proxy")
            .version
    }

    fn flows(&self, cpu: &Native) -> Flows {
        cpu.flows(HeaderSetId(self.index.0)).expect("by flow")
    }
}

/// Inside of them, of that flow: the service has decremented its hop limit.
fn inner(flow: u8, hop_limit: u8) -> Vec<u8> {
    let fields = Ipv6 {
        traffic_class: 0x28,
        flow_label: 0xbeef,
        hop_limit,
        source: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, flow.into()),
        destination: "2001:db8:a::1".parse().expect("an address"),
    };
    ipv6(&fields, proto::NO_NEXT_HEADER, &[])
}

fn frame(port: u8, packet: &[u8]) -> Vec<u8> {
    let to = [2, 0, 0, 0, 0, port];
    ethernet(to, [2, 0, 0, 0, 0, port + 0x10], ETHERTYPE_IPV6, packet)
}

/// A packet of a chain, with the chain's number in all headers; as received and as forwarded. The
/// chains of this number of flows, in turn.
fn chain(number: u8, flows: u8, arrives: bool) -> Vec<u8> {
    let filled = |prefix: [u8; 2]| {
        let mut octets = [number; 16];
        octets[..2].copy_from_slice(&prefix);
        Ipv6Addr::from(octets)
    };
    let sid: Ipv6Addr = SID.parse().expect("an address");
    let next = filled([0xfc, 0x0a]);
    let more = usize::from(number) % 5;
    let list = [&vec![filled([0xfc, 0x0b]); more][..], &[next, sid]].concat();
    let left = more as u8;
    let fields = Srh {
        list,
        segments_left: if arrives { left + 1 } else { left },
        flags: 0,
        tag: u16::from(number) << 8 | u16::from(number),
        tlvs: [&[0x80, 6][..], &[number; 6]].concat(),
    };
    let outer = Ipv6 {
        traffic_class: 0x28,
        flow_label: 0xbeef,
        hop_limit: if arrives { 64 } else { 63 },
        source: filled([0xfc, 0xaa]),
        destination: if arrives { sid } else { next },
    };
    let carried = inner(number % flows, if arrives { 64 } else { 62 });
    let packet = ipv6(&outer, proto::ROUTING, &srh(&fields, proto::IPV6, &carried));
    if arrives { frame(0, &packet) } else { packet }
}

#[test]
fn restored_headers_are_one_complete_set() {
    const CHAINS: u8 = 16;
    let bench = Bench::new("age 0");
    let (seen, cpu) = learn_and_restore(&bench, CHAINS, 1);
    assert!(seen.len() > 2, "{seen:?}");
    let learned = bench.version(&cpu);
    assert!(learned > 10_000, "{learned}");
}

#[test]
fn a_flow_gets_a_complete_header_set_of_its_own() {
    // One flow more than there is room for; an odd number, so that each is learned by both CPUs. More chains than are known at
    // a time in some of their sets.
    const FLOWS: u8 = 9;
    const CHAINS: u8 = 22 * FLOWS;
    let bench = Bench::new("age 0 flows 8");
    let (seen, cpu) = learn_and_restore(&bench, CHAINS, FLOWS);
    let flows: BTreeSet<usize> = seen
        .iter()
        .map(|chain| chain % usize::from(FLOWS))
        .collect();
    assert!(flows.len() > 2 && seen.len() > flows.len(), "{seen:?}");
    let known = bench.flows(&cpu);
    assert_eq!((known.limit, known.used), (8, 8));
    assert!(known.evicted > 10_000, "{known:?}");
}

/// Two CPUs learn chains of this number of flows, and two restore them. Returns the restored
/// chains, each complete and of its flow, and a CPU with the learned state.
fn learn_and_restore(bench: &Bench, chains: u8, flows: u8) -> (BTreeSet<usize>, Native) {
    const RESTORED: usize = 150_000;
    let mut cpus = bench.cpus(5);
    let witness = cpus.pop().expect("a CPU");
    let learners = cpus.split_off(2);
    let stop = AtomicBool::new(false);
    let chain = |number, arrives| chain(number, flows, arrives);
    let expected: Vec<Vec<u8>> = (0..chains).map(|number| chain(number, false)).collect();
    let back: Vec<Vec<u8>> = (0..flows).map(|flow| frame(2, &inner(flow, 63))).collect();
    let (stop, expected, back) = (&stop, &expected, &back);
    let seen = thread::scope(|scope| {
        let learning: Vec<_> = learners
            .into_iter()
            .enumerate()
            .map(|(half, mut cpu)| {
                scope.spawn(move || {
                    let mine = (0..chains).filter(|number| usize::from(number % 2) == half);
                    let frames: Vec<_> = mine.map(|number| chain(number, true)).collect();
                    while !stop.load(Ordering::Relaxed) {
                        for frame in &frames {
                            let verdict = cpu.run(bench.outside, frame);
                            assert!(matches!(verdict, Verdict::Forward { .. }), "{verdict:?}");
                        }
                    }
                })
            })
            .collect();
        let restoring: Vec<_> = cpus
            .into_iter()
            .map(|mut cpu| scope.spawn(move || restore(bench, &mut cpu, back, expected, RESTORED)))
            .collect();
        // However it ends, the learners end.
        let seen: Vec<_> = restoring
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Ordering::Relaxed);
        for learner in learning {
            learner.join().expect("a learner");
        }
        let seen = seen.into_iter().flat_map(|it| it.expect("whole chains"));
        seen.collect()
    });
    (seen, witness)
}

/// Restores headers this many times, flow by flow. Returns their chains.
fn restore(
    bench: &Bench,
    cpu: &mut Native,
    back: &[Vec<u8>],
    expected: &[Vec<u8>],
    times: usize,
) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut restored = 0;
    for (flow, frame) in back.iter().enumerate().cycle() {
        match cpu.run(bench.service, frame) {
            Verdict::Forward { .. } => {}
            // The learners had come round, or have not begun, or the flow made room for another one.
            Verdict::Drop(reason) if ["rewrite", "not_learned"].contains(&reason.name) => continue,
            verdict => panic!("{verdict:?}"),
        }
        let packet = &cpu.frame()[ETHERNET..];
        let number = usize::from(packet[23]);
        assert_eq!(number % back.len(), flow, "the chain of another flow");
        assert_eq!(Some(packet), expected.get(number).map(Vec::as_slice));
        seen.insert(number);
        restored += 1;
        if restored == times {
            break;
        }
    }
    seen
}

#[test]
fn headers_learned_after_the_clock_was_read_are_not_old() {
    let bench = Bench::new("age 3600");
    let mut cpus = bench.cpus(2);
    cpus[0].set_now(10_000_000_001);
    cpus[0].run(bench.outside, &chain(1, 1, true));
    // Has read the clock before the other learned.
    cpus[1].set_now(10_000_000_000);
    cpus[1].run(bench.outside, &chain(2, 1, true));
    assert_eq!(bench.version(&cpus[1]), 1);
    cpus[1].set_now(10_000_000_001 + 3600 * 1_000_000_000);
    cpus[1].run(bench.outside, &chain(2, 1, true));
    assert_eq!(bench.version(&cpus[0]), 2);
}
