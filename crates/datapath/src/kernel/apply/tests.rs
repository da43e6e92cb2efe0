//! Tests of errors that are found before the first write, and of changes that are undone.

use crate::abi::{CounterId, sidestep_port, sidestep_route};
use sidestep_testkit::root_or_skip;

use super::*;
use crate::kernel::scratch::Scratch;

#[test]
fn an_image_beyond_a_limit_fails_with_the_table_and_the_limit() {
    let limits = Limits {
        fib: 1,
        routes: 2,
        groups: 1,
        adjacencies: 1,
        policies: 1,
        route_counters: 3,
    };
    let mut image = Image::default();
    image.routes.insert(
        RouteId(2),
        sidestep_route {
            counter: CounterId(3),
            ..Default::default()
        },
    );
    let check = |image: &Image| check(&Delta::between(&Image::default(), image), image, limits);
    assert!(check(&image).is_ok(), "limits are inclusive");
    image.routes.insert(RouteId(3), sidestep_route::default());
    let error = check(&image).expect_err("three routes").to_string();
    assert_eq!(error, "table routes is full: 3 wanted, the limit is 2");
    image.routes.remove(&RouteId(3));
    image.routes.insert(
        RouteId(1),
        sidestep_route {
            counter: CounterId(4),
            ..Default::default()
        },
    );
    let error = check(&image).expect_err("counter 4").to_string();
    assert_eq!(
        error,
        "table route_counters is full: 4 wanted, the limit is 3"
    );
}

#[test]
fn two_ports_in_one_slot_are_refused() {
    let mut image = Image::default();
    for ifindex in [5, 5 + SIDESTEP_PORTS] {
        image.ports.insert(
            ifindex,
            sidestep_port {
                ifindex,
                ..Default::default()
            },
        );
    }
    let delta = Delta::between(&Image::default(), &image);
    let error = check(&delta, &image, Limits::default()).expect_err("same slot");
    assert!(
        matches!(error, KernelError::PortSlot { first: 5, second } if second == 5 + SIDESTEP_PORTS)
    );
}

#[test]
fn a_route_in_use_cannot_change_its_meaning() {
    let image = |action| {
        let mut image = Image::default();
        image.routes.insert(
            RouteId(7),
            sidestep_route {
                action,
                ..Default::default()
            },
        );
        image
    };
    let (from, to) = (image(1), image(2));
    assert!(matches!(
        check(&Delta::between(&from, &to), &to, Limits::default()),
        Err(KernelError::InUse {
            table: Table::Routes,
            index: 7
        })
    ));
}

/// Returns a host in a separate /64, which occupies a line of the prefix table.
fn host(view: u32, number: u32) -> FibKey {
    let address = 0xfc << 120 | u128::from(number) << 64 | 1;
    FibKey {
        view: ViewId(view),
        address: address.to_be_bytes(),
        length: 128,
    }
}

#[test]
fn a_failed_removal_of_a_prefix_restores_the_tables() {
    if !root_or_skip() {
        return;
    }
    let scratch = Scratch::new("undo_out");
    scratch.run(|| {
        let mut kernel = scratch.load();
        kernel.limits.fib = 100_000;
        kernel.fib_lines_max = super::super::fib::LINES;
        let adjacency = |mac| sidestep_adjacency {
            destination: [mac; 6],
            mtu: 1500,
            ..Default::default()
        };
        let port = |ifindex, view6| sidestep_port {
            ifindex,
            view6,
            ..Default::default()
        };
        let mut from = Image::default();
        let route = sidestep_route {
            action: 1,
            adjacency: AdjacencyId(1),
            ..Default::default()
        };
        from.routes.insert(RouteId(1), route);
        from.adjacencies.insert(AdjacencyId(1), adjacency(1));
        from.ports.insert(3, port(3, ViewId(1)));
        from.fib
            .extend((0..9).map(|number| (host(1, number), RouteId(1))));
        from.fib
            .extend((0..1000).map(|number| (host(2, number), RouteId(1))));
        kernel.apply(&Image::default(), &from).expect("apply");
        let before = [1, 2].map(|view| kernel.intervals(ViewId(view)));

        // The free space is enough to change the small view, but not the large one.
        let fillers = 10..4000;
        let room = |kernel: &Kernel| kernel.fib_usage().lines - kernel.fib_usage().used;
        for (view, number) in fillers
            .clone()
            .flat_map(|view| (0..50).map(move |n| (view, n)))
        {
            let prefix = host(view, number).into();
            if kernel.maps.fib.put_back(view, prefix, Some(1)).is_err() {
                kernel.reclaim_lines().expect("a grace period");
                if room(&kernel) < 500 {
                    break;
                }
            }
        }
        assert!((400..700).contains(&room(&kernel)), "{}", room(&kernel));

        let mut to = from.clone();
        to.fib.remove(&host(1, 5));
        to.fib.remove(&host(2, 5));
        to.ports = [port(4, ViewId(1)), port(3 + SIDESTEP_PORTS, ViewId(2))]
            .map(|port| (port.ifindex, port))
            .into();
        to.adjacencies.insert(AdjacencyId(1), adjacency(2));
        let error = kernel.publish(&Delta::between(&from, &to), &to);
        assert!(matches!(error, Err(KernelError::Full { .. })), "{error:?}");
        assert_eq!([1, 2].map(|view| kernel.intervals(ViewId(view))), before);
        for view in fillers {
            kernel.maps.fib.replace(view, []).expect("taken out");
        }
        assert_eq!(kernel.image(), from);
        // The failed change does not prevent the next one.
        kernel.apply(&from, &to).expect("apply");
        assert_eq!(kernel.image(), to);
    });
}

#[test]
fn an_empty_view_that_is_still_referenced_is_emptied_at_once() {
    if !root_or_skip() {
        return;
    }
    let scratch = Scratch::new("empty");
    scratch.run(|| {
        let mut kernel = scratch.load();
        let mut from = Image::default();
        let route = |view6| sidestep_route {
            action: 1,
            view6,
            ..Default::default()
        };
        from.routes.insert(RouteId(1), route(ViewId::NONE));
        from.routes.insert(RouteId(2), route(ViewId(2)));
        for (view, route) in [(1, 2), (2, 1), (3, 1)] {
            from.fib.insert(host(view, 1), RouteId(route));
        }
        kernel.apply(&Image::default(), &from).expect("apply");
        let mut to = from.clone();
        to.fib.remove(&host(2, 1));
        to.fib.remove(&host(3, 1));
        let delta = Delta::between(&from, &to);
        kernel.publish(&delta, &to).expect("publish");
        let is_empty = |view| {
            let intervals = kernel.intervals(ViewId(view));
            intervals.iter().all(|(_, route)| route.is_none())
        };
        assert_eq!(
            [1, 2, 3].map(is_empty),
            [false, true, false],
            "what nothing leads into may still be on a packet's way until a grace period has passed"
        );
    });
}

#[test]
fn a_failed_insertion_of_a_prefix_restores_the_tables() {
    if !root_or_skip() {
        return;
    }
    let image = |first: u8, count: u32, route: u32| {
        let mut image = Image::default();
        image.routes.insert(
            RouteId(route),
            sidestep_route {
                action: 1,
                adjacency: AdjacencyId(1),
                ..Default::default()
            },
        );
        let mac = [first; 6];
        image.adjacencies.insert(
            AdjacencyId(1),
            sidestep_adjacency {
                destination: mac,
                mtu: 1500,
                ..Default::default()
            },
        );
        for n in 0..count {
            // Each host has a separate /64, which occupies a line of the prefix table.
            let address = u128::from(first) << 120 | u128::from(n) << 64 | 1;
            image.fib.insert(
                FibKey {
                    view: ViewId(1),
                    address: address.to_be_bytes(),
                    length: 128,
                },
                RouteId(route),
            );
        }
        image
    };
    let scratch = Scratch::new("undo");
    scratch.run(|| {
        let mut kernel = scratch.load();
        let from = image(1, 4, 1);
        kernel.apply(&Image::default(), &from).expect("apply");
        let before = kernel.intervals(ViewId(1));
        kernel.limits.fib = 100_000;
        kernel.fib_lines_max = super::super::fib::LINES;
        let error = kernel
            .apply(&from, &image(2, 50_000, 2))
            .expect_err("the table cannot grow");
        assert!(
            matches!(
                error,
                KernelError::Full {
                    table: Table::Fib,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(kernel.intervals(ViewId(1)), before);
        assert_eq!(kernel.image(), from);
    });
}
