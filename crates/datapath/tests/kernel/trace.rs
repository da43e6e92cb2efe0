//! Samples equal the trace of the native target, match the filter, and keep to the rate.

use std::num::NonZeroU32;
use std::time::Instant;

use sidestep_datapath::abi::{Reason, SIDESTEP_ROUTE_DROP, SIDESTEP_SAMPLE_HEAD, sidestep_route};
use sidestep_datapath::kernel::{Kernel, Sampling, TEST_RUN_IFINDEX, TraceFilter};
use sidestep_datapath::{Image, Native, RouteId, Target, Verdict, VerdictKind};
use sidestep_testkit::root_or_skip;

use crate::support::{
    Router, UDP, image_with_headend, ipv6, plain, prefix, route, to_end, to_end_dx6,
};

const TARGETS: [Target; 2] = [Target::Xdp, Target::Tc];
const EGRESS_IFINDEX: u32 = 7;
const MANY: Sampling = Sampling {
    rate: NonZeroU32::new(1_000_000).expect("not 0"),
    bytes: 512,
};

/// Where everything ends.
const NOWHERE: [u8; 16] = *b"\xfe\xed\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// Tables with a headend for `fd00::/8` and a blackhole for [`NOWHERE`].
fn tables() -> Image {
    let mut image = image_with_headend(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
    let blackhole = sidestep_route {
        reason: Reason::from_name("blackhole").expect("a reason").number as u8,
        ..route(SIDESTEP_ROUTE_DROP, 5)
    };
    image.routes.insert(RouteId(5), blackhole);
    image.fib.insert(prefix(&NOWHERE, 128), RouteId(5));
    image
}

fn to_nowhere() -> Vec<u8> {
    ipv6(&NOWHERE, 17, &UDP)
}

/// A frame that is encapsulated, of that many bytes.
fn to_headend(length: usize) -> Vec<u8> {
    let payload = vec![0x5a; length - 54];
    ipv6(&[0xfd; 16], 17, &payload)
}

/// Address without a route.
fn unknown() -> Vec<u8> {
    ipv6(&[0x20; 16], 17, &UDP)
}

fn ip4() -> Vec<u8> {
    let mut frame = plain();
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame.truncate(34);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 0xfc, 0x0b, 0, 0, 0xfc, 0x0a, 0, 0,
    ]);
    frame
}

/// Number of these frames that are sampled.
fn samples(kernel: &Kernel, target: Target, frames: &[Vec<u8>]) -> usize {
    for frame in frames {
        kernel.test_run(target, frame, 1).expect("test run");
    }
    kernel.trace_samples(1000).len()
}

#[test]
fn a_sample_equals_the_native_trace_and_forwarding_is_the_same() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_sample");
    router.run(|| {
        let mut kernel = router.load();
        let image = tables();
        kernel.apply(&Image::default(), &image).expect("apply");
        let frames = [
            plain(),
            to_end(),
            to_end_dx6(),
            to_headend(78),
            to_headend(1000),
            to_nowhere(),
            unknown(),
        ];
        for target in TARGETS {
            let plainly = frames
                .each_ref()
                .map(|frame| kernel.test_run(target, frame, 1).expect("test run"));
            kernel
                .trace_start(&TraceFilter::default(), MANY)
                .expect("trace");
            for (frame, plainly) in frames.iter().zip(plainly) {
                let run = kernel.test_run(target, frame, 1).expect("test run");
                assert_eq!((run.action, &run.frame), (plainly.action, &plainly.frame));
                let samples = kernel.trace_samples(1000);
                let [sample] = &samples[..] else {
                    panic!("{target}: one packet, {} samples", samples.len());
                };
                let mut native = Native::new(&image);
                let verdict = native.run(TEST_RUN_IFINDEX, frame);
                assert_eq!(sample.verdict, verdict, "{target}");
                assert_eq!(sample.steps, native.trace(), "{target}");
                assert_eq!(sample.ifindex, TEST_RUN_IFINDEX);
                let most = SIDESTEP_SAMPLE_HEAD as usize;
                assert_eq!(sample.arrived.bytes, frame[..frame.len().min(most)]);
                assert_eq!(sample.arrived.length as usize, frame.len());
                let left = sample
                    .left
                    .as_ref()
                    .map(|head| (&head.bytes[..], head.length as usize));
                let frame = native.frame();
                let expected = matches!(verdict, Verdict::Forward { .. })
                    .then(|| (&frame[..frame.len().min(most)], frame.len()));
                assert_eq!(left, expected, "{target}");
            }
            kernel.trace_stop().expect("stop");
            assert_eq!(samples(&kernel, target, &frames), 0, "no trace runs");
        }
    });
}

/// Name, filter, and which of the frames `plain`, `to_end`, `to_nowhere`, `unknown`, `ip4` fit.
fn filters() -> Vec<(&'static str, TraceFilter, [usize; 5])> {
    let with = |set: &dyn Fn(&mut TraceFilter)| {
        let mut filter = TraceFilter::default();
        set(&mut filter);
        filter
    };
    let net = |text: &str| Some(text.parse().expect("a prefix"));
    let source = |text: &str| with(&|filter| filter.source = net(text));
    let destination = |text: &str| with(&|filter| filter.destination = net(text));
    let port = |ifindex| with(&|filter| filter.ifindex = Some(ifindex));
    let verdict = |kind| with(&|filter| filter.verdict = Some(kind));
    let several = |filter: &mut TraceFilter| {
        filter.source = net("fc0b::/16");
        filter.destination = net("fc0a::9/128");
        filter.verdict = Some(VerdictKind::Forward);
    };
    vec![
        ("any", with(&|_| ()), [1, 1, 1, 1, 1]),
        ("port", port(TEST_RUN_IFINDEX), [1, 1, 1, 1, 1]),
        ("other port", port(TEST_RUN_IFINDEX + 1), [0; 5]),
        ("source", source("fc0b::5/128"), [1, 1, 1, 1, 0]),
        (
            "IPv4 source, same bytes",
            source("252.11.0.0/16"),
            [0, 0, 0, 0, 1],
        ),
        ("other source", source("fc0b::6/128"), [0; 5]),
        ("destination", destination("fc02::/16"), [0, 1, 0, 0, 0]),
        (
            "IPv4 destination",
            destination("252.10.0.0/31"),
            [0, 0, 0, 0, 1],
        ),
        (
            "met: the SID's next segment too",
            with(&|filter| filter.met = net("fc0a::9/128")),
            [1, 1, 0, 0, 0],
        ),
        ("forward", verdict(VerdictKind::Forward), [1, 1, 0, 0, 0]),
        ("drop", verdict(VerdictKind::Drop), [0, 0, 1, 0, 1]),
        ("kernel", verdict(VerdictKind::Punt), [0, 0, 0, 1, 0]),
        (
            "reason",
            with(&|filter| filter.reason = Reason::from_name("blackhole")),
            [0, 0, 1, 0, 0],
        ),
        (
            "a reason whose number an adjacency has",
            with(&|filter| filter.reason = Reason::from_number(1)),
            [0; 5],
        ),
        ("several", with(&several), [1, 0, 0, 0, 0]),
    ]
}

#[test]
fn only_packets_that_match_the_whole_filter_are_sampled() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_filter");
    router.run(|| {
        let mut kernel = router.load();
        kernel.apply(&Image::default(), &tables()).expect("apply");
        let frames = [plain(), to_end(), to_nowhere(), unknown(), ip4()];
        for (name, filter, fits) in &filters() {
            kernel.trace_start(filter, MANY).expect("trace");
            for target in TARGETS {
                for (number, (frame, fits)) in frames.iter().zip(fits).enumerate() {
                    let found = samples(&kernel, target, std::slice::from_ref(frame));
                    assert_eq!(found, *fits, "{target}, {name}, frame {number}");
                }
            }
        }
    });
}

#[test]
fn samples_keep_to_the_rate_and_do_not_repeat() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_rate");
    router.run(|| {
        let mut kernel = router.load();
        kernel.apply(&Image::default(), &tables()).expect("apply");
        let rate = Sampling {
            rate: NonZeroU32::new(20).expect("not 0"),
            bytes: 64,
        };
        for target in TARGETS {
            kernel
                .trace_start(&TraceFilter::default(), rate)
                .expect("trace");
            let begun = Instant::now();
            let frames = vec![plain(); 200];
            let found = samples(&kernel, target, &frames);
            let most = 20 + 1 + (begun.elapsed().as_secs_f64() * 20.0) as usize;
            // The clock that is asked first goes in ticks: the last of the first 20 may come one
            // tick later.
            assert!(
                (19..=most).contains(&found),
                "{target}: {found}, at most {most}"
            );
            assert_eq!(kernel.trace_lost().expect("lost"), 0);
        }
    });
}

#[test]
fn unread_samples_count_as_lost_and_packets_are_forwarded() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_lost");
    router.run(|| {
        let mut kernel = router.load();
        kernel.apply(&Image::default(), &tables()).expect("apply");
        kernel
            .trace_start(&TraceFilter::default(), MANY)
            .expect("trace");
        let packets = 1000;
        for _ in 0..packets {
            kernel.test_run(Target::Xdp, &plain(), 1).expect("test run");
        }
        let lost = kernel.trace_lost().expect("lost");
        assert!(lost > 0, "a MiB holds no {packets} samples");
        let first = kernel.trace_samples(10).len();
        let rest = kernel.trace_samples(10_000).len();
        assert_eq!((first, first + rest + lost as usize), (10, packets));
        let port = kernel.port_counters(TEST_RUN_IFINDEX).expect("counters");
        assert_eq!(port.forwarded, packets as u64);
    });
}
