//! Tables and counters, seen through test runs.

use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use sidestep_datapath::abi::{
    SIDESTEP_LEARNED, SIDESTEP_PORTS, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_FORWARD,
    sidestep_adjacency, sidestep_flow, sidestep_flow_set, sidestep_learned, sidestep_route,
};
use sidestep_datapath::kernel::{Action, Kernel, KernelError, TEST_RUN_IFINDEX, Table};
use sidestep_datapath::{
    AdjacencyId, CounterId, FlowTableId, HeaderSetId, Image, Limits, PolicyId, RouteId, Target,
};
use sidestep_testkit::root_or_skip;

use crate::support::{
    FAR, LIMITS, Router, SID, UDP, adjacency, ended, forwarded, image, image_with_headend, ipv6,
    plain, prefix, route, to_end, to_end_dx6,
};

const TARGETS: [Target; 2] = [Target::Xdp, Target::Tc];

/// Egress of the test runs: nothing is sent there.
const EGRESS_IFINDEX: u32 = 7;

fn run(kernel: &Kernel, target: Target, frame: &[u8]) -> (Action, Vec<u8>) {
    let run = kernel.test_run(target, frame, 1).expect("test run");
    (run.action, run.frame)
}

#[test]
fn both_targets_forward_and_count_plain_packets_and_end() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_run");
    router.run(|| {
        let mut kernel = router.load();
        let image = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        // Before anything is applied, everything is the kernel's, unchanged.
        assert_eq!(
            run(&kernel, Target::Xdp, &plain()),
            (Action::Kernel, plain())
        );
        let applied = kernel.apply(&Image::default(), &image).expect("apply");
        assert_eq!(
            (applied.written, applied.prefixes, applied.grace_periods),
            (5, 3, 0)
        );
        for target in TARGETS {
            let expected = (Action::Forward, forwarded(&plain()));
            assert_eq!(run(&kernel, target, &plain()), expected, "{target}");
            let expected = (Action::Forward, ended());
            assert_eq!(run(&kernel, target, &to_end()), expected, "{target}");
            let (action, frame) = run(&kernel, target, &to_end_dx6());
            assert_eq!((action, frame.len()), (Action::Forward, plain().len()));
        }
        let port = kernel.port_counters(TEST_RUN_IFINDEX).expect("counters");
        assert_eq!(
            (
                port.received_packets,
                port.forwarded,
                port.punted,
                port.dropped
            ),
            (6, 6, 0, 0)
        );
        let sent = kernel.port_counters(EGRESS_IFINDEX).expect("counters");
        assert_eq!(sent.sent_packets, 6);
        // End meets the SID's route, then the route to the next segment.
        assert_eq!(kernel.route_counters(CounterId(2)).expect("SID").packets, 2);
        assert_eq!(
            kernel.route_counters(CounterId(1)).expect("route").packets,
            4
        );
        let reasons = kernel.reason_counters().expect("reasons");
        assert_eq!(reasons.iter().sum::<u64>(), 1, "the first one, above");
    });
}

#[test]
fn a_next_hop_that_packets_need_is_marked_until_somebody_looks() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_used");
    router.run(|| {
        let mut kernel = router.load();
        let mut image = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        kernel.apply(&Image::default(), &image).expect("apply");
        assert!(!kernel.take_used(AdjacencyId(1)));
        for target in TARGETS {
            for _ in 0..2 {
                run(&kernel, target, &plain());
            }
            assert_eq!(kernel.image(), image, "no content");
            assert!(kernel.take_used(AdjacencyId(1)), "{target}");
            assert!(!kernel.take_used(AdjacencyId(1)), "{target}");
        }
        assert!(
            !kernel.take_used(AdjacencyId(LIMITS.adjacencies + 1)),
            "no such record"
        );
        // Not resolved: packets need it all the more.
        let before = image.clone();
        image
            .adjacencies
            .get_mut(&AdjacencyId(1))
            .expect("it is there")
            .flags = 0;
        kernel.apply(&before, &image).expect("apply");
        for target in TARGETS {
            assert_eq!(run(&kernel, target, &plain()).0, Action::Kernel);
            assert!(kernel.take_used(AdjacencyId(1)), "{target}");
        }
    });
}

#[test]
fn changes_under_way_reach_the_next_packet() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_change");
    router.run(|| {
        let mut kernel = router.load();
        let mut now = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        kernel.apply(&Image::default(), &now).expect("apply");

        // Another neighbor: one store.
        let mut next = now.clone();
        next.adjacencies.insert(
            AdjacencyId(1),
            sidestep_adjacency {
                destination: [6; 6],
                ..adjacency(EGRESS_IFINDEX)
            },
        );
        let applied = kernel.apply(&now, &next).expect("neighbor");
        assert_eq!((applied.written, applied.grace_periods), (1, 0));
        assert_eq!(run(&kernel, Target::Xdp, &plain()).1[..6], [6; 6]);
        now = next;

        // Another egress interface: taken back for a grace period.
        let mut next = now.clone();
        next.adjacencies
            .insert(AdjacencyId(1), adjacency(EGRESS_IFINDEX + 1));
        let applied = kernel.apply(&now, &next).expect("egress");
        assert_eq!((applied.written, applied.grace_periods), (1, 1));
        run(&kernel, Target::Xdp, &plain());
        let sent = kernel.port_counters(EGRESS_IFINDEX + 1).expect("counters");
        assert_eq!(sent.sent_packets, 1);
        now = next;

        // The prefix gets another route; the old record and its counters go.
        assert_eq!(
            kernel
                .route_counters(CounterId(1))
                .expect("counters")
                .packets,
            2
        );
        let mut next = now.clone();
        next.routes.remove(&RouteId(1));
        next.routes.insert(
            RouteId(9),
            sidestep_route {
                reason: 15,
                ..route(SIDESTEP_ROUTE_DROP, 9)
            },
        );
        next.fib.insert(prefix(&FAR, 16), RouteId(9));
        let applied = kernel.apply(&now, &next).expect("route");
        assert_eq!(
            (applied.prefixes, applied.cleared, applied.grace_periods),
            (1, 1, 1)
        );
        assert_eq!(run(&kernel, Target::Tc, &plain()), (Action::Drop, plain()));
        assert_eq!(
            kernel
                .route_counters(CounterId(1))
                .expect("counters")
                .packets,
            0
        );
        assert_eq!(kernel.image(), next);
        now = next;

        // Nothing left.
        let applied = kernel.apply(&now, &Image::default()).expect("empty");
        assert_eq!((applied.deleted, applied.cleared), (3, 5));
        assert_eq!(kernel.image(), Image::default());
        assert_eq!(
            run(&kernel, Target::Xdp, &to_end()),
            (Action::Kernel, to_end())
        );
    });
}

#[test]
fn an_image_that_does_not_fit_changes_nothing() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_full");
    router.run(|| {
        let mut kernel = router.load();
        let now = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        kernel.apply(&Image::default(), &now).expect("apply");

        let mut wide = now.clone();
        for number in 0..LIMITS.fib {
            let mut address = [0xfc; 16];
            address[8..12].copy_from_slice(&number.to_be_bytes());
            wide.fib.insert(prefix(&address, 128), RouteId(1));
        }
        wide.routes
            .insert(RouteId(5), route(SIDESTEP_ROUTE_FORWARD, 5));
        let error = kernel.apply(&now, &wide).expect_err("too many prefixes");
        assert!(
            matches!(
                error,
                KernelError::Full {
                    table: Table::Fib,
                    limit: 64,
                    wanted: 67
                }
            ),
            "{error}"
        );
        assert_eq!(kernel.image(), now);

        // Full to the brim, then all others: old and new together are more than the limit.
        let numbered = |first: u32| {
            let mut image = now.clone();
            image.fib.clear();
            for number in first..first + LIMITS.fib {
                let mut address = [0xfc; 16];
                address[8..12].copy_from_slice(&number.to_be_bytes());
                image.fib.insert(prefix(&address, 128), RouteId(1));
            }
            image
        };
        let (first, second) = (numbered(0), numbered(1000));
        kernel.apply(&now, &first).expect("full");
        kernel.apply(&first, &second).expect("full of others");
        assert_eq!(kernel.image(), second);

        let mut changed = second.clone();
        changed
            .routes
            .insert(RouteId(1), route(SIDESTEP_ROUTE_DROP, 1));
        let error = kernel.apply(&second, &changed).expect_err("in use");
        assert!(matches!(
            error,
            KernelError::InUse {
                table: Table::Routes,
                index: 1
            }
        ));

        let mut ports = second.clone();
        let mut twin = ports.ports[&TEST_RUN_IFINDEX];
        twin.ifindex += SIDESTEP_PORTS;
        ports.ports.insert(twin.ifindex, twin);
        let error = kernel.apply(&second, &ports).expect_err("one slot");
        assert!(matches!(error, KernelError::PortSlot { .. }));
        assert_eq!(kernel.image(), second);
    });
}

#[test]
fn a_headend_pushes_its_policy() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_headend");
    router.run(|| {
        let mut kernel = router.load();
        let image = image_with_headend(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        kernel.apply(&Image::default(), &image).expect("apply");
        let frame = ipv6(&[0xfd; 16], 17, &UDP);
        for target in TARGETS {
            let (action, out) = run(&kernel, target, &frame);
            assert_eq!(action, Action::Forward, "{target}");
            assert_eq!(out.len(), frame.len() + 64, "{target}");
            assert_eq!(out[38..54], FAR, "{target}: outer destination");
        }
    });
}

/// Writes a record of zeros but for one word of 8 bytes, as packets might have left it.
fn teach(kernel: &Kernel, table: Table, index: u32, size: usize, at: usize, word: u64) {
    let pin = kernel.folder().join(format!("map-{table}"));
    let map = MapHandle::from_pinned_path(pin).expect("a pin");
    let mut record = vec![0; size];
    record[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    map.update(&index.to_ne_bytes(), &record, MapFlags::ANY)
        .expect("a record");
}

#[test]
fn removing_a_proxy_clears_the_header_sets_of_its_flows() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_forget");
    router.run(|| {
        let mut kernel = router.load();
        let without = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        let mut with = without.clone();
        let proxy = sidestep_learned {
            used: 1,
            flows: 8,
            table: FlowTableId(2),
            ..Default::default()
        };
        with.learned.insert(HeaderSetId(3), proxy);
        kernel.apply(&Image::default(), &with).expect("apply");

        let (chains, sets) = (SIDESTEP_LEARNED + 1 + 256, 1024);
        let version = offset_of!(sidestep_learned, version);
        let size = size_of::<sidestep_learned>();
        for chain in [chains, chains + 255] {
            teach(&kernel, Table::Learned, chain, size, version, 1);
        }
        let flow = offset_of!(sidestep_flow_set, flows) + offset_of!(sidestep_flow, header_set);
        let size = size_of::<sidestep_flow_set>();
        teach(&kernel, Table::FlowSets, sets, size, flow, 1 << 16);
        let used = |kernel: &Kernel| kernel.flows(HeaderSetId(3)).expect("by flow").used;
        assert_eq!((kernel.chains(HeaderSetId(3)).len(), used(&kernel)), (2, 1));

        // Another proxy gets its place, and its table of flows.
        kernel.apply(&with, &without).expect("apply");
        kernel.apply(&without, &with).expect("apply");
        assert_eq!((kernel.chains(HeaderSetId(3)).len(), used(&kernel)), (0, 0));
    });
}

/// Runs a pinned program on a frame until it is stopped. Returns the number of runs.
fn traffic(program: &Path, frame: &[u8], stop: &AtomicBool) -> u64 {
    let program = libbpf_rs::Program::fd_from_pinned_path(program).expect("program");
    let mut sent = 0;
    while !stop.load(Ordering::Acquire) {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            ..Default::default()
        };
        // SAFETY: an open descriptor, and a frame that lives for the call.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        assert_eq!(result, 0);
        sent += 1;
    }
    sent
}

#[test]
fn under_traffic_every_packet_takes_the_old_or_the_new_way() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_traffic");
    router.run(|| {
        let mut kernel = router.load();
        // Twice the same node with nothing in common but the port and one adjacency: routes 1 to 4
        // and policy 1, or routes 5 to 8 and policy 2; the neighbor's MAC differs.
        let first = image_with_headend(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        let mut second = Image {
            ports: first.ports.clone(),
            ..Image::default()
        };
        let neighbor = sidestep_adjacency {
            destination: [6; 6],
            ..adjacency(EGRESS_IFINDEX)
        };
        second.adjacencies.insert(AdjacencyId(1), neighbor);
        second
            .policies
            .insert(PolicyId(2), first.policies[&PolicyId(1)]);
        for (index, record) in &first.routes {
            let policy = if record.policy == 0 { 0 } else { 2 };
            let counter = CounterId(record.counter.0 + 4);
            let record = sidestep_route {
                policy,
                counter,
                ..*record
            };
            second.routes.insert(RouteId(index.0 + 4), record);
        }
        second.fib.extend(
            first
                .fib
                .iter()
                .map(|(key, route)| (*key, RouteId(route.0 + 4))),
        );

        kernel.apply(&Image::default(), &first).expect("apply");
        let program = kernel.folder().join("program-xdp");
        let frames = [plain(), to_end(), ipv6(&[0xfd; 16], 17, &UDP)];
        // The first run loads and pins the program. It counts as one packet.
        kernel.test_run(Target::Xdp, &frames[0], 1).expect("a run");
        let stop = AtomicBool::new(false);
        let sent: u64 = std::thread::scope(|scope| {
            let senders: Vec<_> = frames
                .iter()
                .map(|frame| scope.spawn(|| traffic(&program, frame, &stop)))
                .collect();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                kernel.apply(&first, &second).expect("there");
                kernel.apply(&second, &first).expect("and back");
            }
            stop.store(true, Ordering::Release);
            senders
                .into_iter()
                .map(|sender| sender.join().expect("sender"))
                .sum()
        });
        let port = kernel.port_counters(TEST_RUN_IFINDEX).expect("counters");
        let verdicts = (
            port.received_packets,
            port.forwarded,
            port.punted,
            port.dropped,
        );
        assert_eq!(verdicts, (sent + 1, sent + 1, 0, 0));
        assert_eq!(kernel.image(), first);
    });
}

#[test]
fn a_hundred_thousand_prefixes_are_applied_at_once() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_many");
    router.run(|| {
        let limits = Limits {
            fib: 200_000,
            ..LIMITS
        };
        let mut kernel = Kernel::load(limits, router.pin_root()).expect("load");
        let mut image = image(TEST_RUN_IFINDEX, EGRESS_IFINDEX);
        for number in 0..100_000u32 {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&(0x2000_0000 | number).to_be_bytes());
            image.fib.insert(prefix(&address, 32), RouteId(1));
        }
        let applied = kernel.apply(&Image::default(), &image).expect("apply");
        assert_eq!(applied.prefixes, image.fib.len());

        let mut next = image.clone();
        next.fib.remove(&prefix(&SID, 128));
        let applied = kernel.apply(&image, &next).expect("apply");
        assert_eq!((applied.deleted, applied.prefixes), (1, 0));
        assert_eq!(run(&kernel, Target::Xdp, &to_end()).0, Action::Kernel);
    });
}

#[test]
fn a_grace_period_ends() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_grace");
    router.run(|| {
        let kernel = router.load();
        let begin = Instant::now();
        for _ in 0..3 {
            kernel.synchronize().expect("synchronize");
        }
        let took = begin.elapsed();
        // Not at once either: that would be no grace period.
        assert!(
            took > Duration::from_micros(3) && took < Duration::from_secs(60),
            "{took:?}"
        );
    });
}

#[test]
fn a_frame_that_the_kernel_does_not_run_is_an_error() {
    if !root_or_skip() {
        return;
    }
    let router = Router::new("dp_size");
    router.run(|| {
        let kernel = router.load();
        for target in TARGETS {
            assert!(
                kernel.test_run(target, &[0; 13], 1).is_err(),
                "{target}: too short"
            );
            assert!(
                kernel.test_run(target, &vec![0; 70_000], 1).is_err(),
                "{target}: too long"
            );
        }
        // XDP with fragments.
        let jumbo = vec![0; 9014];
        assert_eq!(run(&kernel, Target::Xdp, &jumbo), (Action::Kernel, jumbo));
    });
}
