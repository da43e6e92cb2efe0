//! Program times: the measuring method is correct. Figures are printed, not asserted.

use sidestep_datapath::abi::{SIDESTEP_ROUTE_DROP, sidestep_route};
use sidestep_datapath::kernel::{KernelError, Method, TEST_RUN_IFINDEX};
use sidestep_datapath::{Image, RouteId, Target};
use sidestep_testkit::root_or_skip;

use crate::support::{
    Router, UDP, image_with_headend, ipv6, plain, prefix, route, to_end, to_end_dx6,
};

const REPEAT: u32 = 200_000;

#[test]
fn program_time_measures_the_same_packet_every_time() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_time");
    router.run(|| {
        let mut kernel = router.load();
        let mut image = image_with_headend(TEST_RUN_IFINDEX, 7);
        let blackhole = sidestep_route {
            reason: 15,
            ..route(SIDESTEP_ROUTE_DROP, 5)
        };
        image.routes.insert(RouteId(5), blackhole);
        image.fib.insert(prefix(&[0xfb; 16], 8), RouteId(5));
        kernel.apply(&Image::default(), &image).expect("apply");
        let cases = [
            ("plain", plain()),
            ("End", to_end()),
            ("End.DX6", to_end_dx6()),
            ("H.Encaps", ipv6(&[0xfd; 16], 17, &UDP)),
            ("blackhole", ipv6(&[0xfb; 16], 17, &UDP)),
        ];
        for (name, frame) in &cases {
            let before = kernel.port_counters(TEST_RUN_IFINDEX).expect("counters");
            let xdp = kernel
                .program_time(Target::Xdp, frame, REPEAT)
                .expect("XDP");
            let after = kernel.port_counters(TEST_RUN_IFINDEX).expect("counters");
            let tc = kernel.program_time(Target::Tc, frame, 2000).expect("TC");
            println!(
                "{name:10} XDP {xdp:?} = {} ns; TC {tc:?} = {} ns",
                xdp.nanoseconds(),
                tc.nanoseconds()
            );
            assert_eq!((xdp.method, tc.method), (Method::Restored, Method::Single));
            // The time of one packet, not of all: an emulated processor takes some microseconds.
            assert!(
                xdp.nanoseconds() > 0.0 && xdp.nanoseconds() < 1_000_000.0,
                "{xdp:?}"
            );
            // Each of them had the same fate: nothing ran into the hop limit or an encapsulation of
            // itself.
            assert_eq!(after.punted, before.punted, "{name}");
            let verdicts = after.forwarded + after.dropped - before.forwarded - before.dropped;
            assert_eq!(verdicts, u64::from(REPEAT / 9 * 9) + 1, "{name}");
        }

        // A packet that is not changed can also be repeated plainly: both ways must agree.
        let (_, frame) = &cases[4];
        let restored = kernel
            .program_time(Target::Xdp, frame, REPEAT)
            .expect("restored");
        let plain = kernel.test_run(Target::Xdp, frame, REPEAT).expect("plain");
        println!(
            "blackhole: {} ns restored, {:?} repeated plainly, loop included",
            restored.nanoseconds(),
            plain.duration
        );
    });
}

#[test]
fn a_frame_with_padding_behind_its_packet_cannot_be_measured() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_padding");
    router.run(|| {
        let mut kernel = router.load();
        kernel
            .apply(&Image::default(), &image_with_headend(TEST_RUN_IFINDEX, 7))
            .expect("apply");
        let mut frame = plain();
        frame.extend([0; 10]);
        let error = kernel
            .program_time(Target::Xdp, &frame, 1000)
            .expect_err("padding");
        assert!(matches!(error, KernelError::Unmeasurable { .. }), "{error}");
    });
}
