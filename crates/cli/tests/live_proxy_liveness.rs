//! Services of SR proxies that are looked at: what is shown, and what is done with packets, when one dies and comes back.

mod live;

use std::io::Write as _;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;

use live::frames;
use live::ip::Ip;
use live::service::{Direction, Served, outer};
use live::{PATIENCE, begin, eventually, reasons, report};

const INTERVAL: Duration = Duration::from_millis(400);
/// What a busy machine may take on top of what is promised.
const SLACK: Duration = Duration::from_millis(400);

/// The SIDs with their services, in each way of looking, and what is done without the service.
const SIDS: [(&str, &str); 4] = [
    (
        "fc00:5::f/128",
        "End.AM oif vnf0 iif vnf1 nh6 fc00:d::2 liveness icmp interval 400 on-down bypass dev vnf0",
    ),
    (
        "fc00:5::b/128",
        "End.AM oif vnf1 iif vnf0 nh6 fc00:e::2 liveness arp interval 400 dev vnf1",
    ),
    (
        "fc00:5::4f/128",
        "End.AS oif vnf0 iif vnf1 nh4 10.0.4.2 segs fc00:bb::1 src fc00:5::1 liveness arp interval 400 dev vnf0",
    ),
    (
        "fc00:5::4b/128",
        "End.AS oif vnf1 iif vnf0 nh4 10.0.5.2 segs fc00:aa::1 src fc00:5::1 liveness icmp interval 400 dev vnf1",
    ),
];

/// The service of each SID, as `route show` has it.
fn services(served: &Served) -> Vec<report::Service> {
    let routes: report::Routes = report(served.star.router(), Request::ShowRoutes { all: false });
    let all = routes.into_iter().filter_map(|route| route.service);
    all.collect()
}

fn states(served: &Served) -> Vec<String> {
    services(served).into_iter().map(|it| it.state).collect()
}

/// Waits until all services are in this state; returns how long that took.
fn until(served: &Served, state: &str, services: usize) -> Duration {
    let started = Instant::now();
    eventually(&format!("{services} services are {state}"), || {
        let states = states(served);
        (states == vec![state; services]).then_some(())
    });
    started.elapsed()
}

fn dropped(served: &Served) -> u64 {
    let all = reasons(served.star.router());
    let of_service = all.into_iter().find(|(_, name, _)| name == "service_down");
    of_service.map_or(0, |(_, _, packets)| packets)
}

#[test]
fn a_service_that_dies_is_passed_by_or_its_packets_dropped_within_two_intervals_until_it_is_back() {
    let Some(_turn) = begin("a_service_that_dies_is_passed_by_or_its_packets_dropped") else {
        return;
    };
    let served = Served::new("livedown");
    let _daemon = served.run("tc");
    for (sid, words) in SIDS {
        served.add(&format!("{sid} encap seg6local action {words}"));
    }
    until(&served, "up", SIDS.len());
    let [from, to] = Direction::Forth.inner6();
    let inner = frames::udp(from, to, 64, b"alive");
    let frame = |direction| served.to_proxy(direction, &inner);
    for direction in Direction::BOTH {
        let through = outer(direction.next(), 61, direction, 0, &inner);
        let through = served.at_the_end(direction, &through);
        assert_eq!(served.cross(direction, &frame(direction)), through);
    }

    served.dies();
    let took = until(&served, "down", SIDS.len());
    let _ = writeln!(
        std::io::stderr(),
        "down after {} ms, at an interval of {} ms",
        took.as_millis(),
        INTERVAL.as_millis()
    );
    assert!(took < 2 * INTERVAL + SLACK, "{took:?}");
    for service in services(&served) {
        assert!(
            service.downs == 1 && service.answers > 0 && service.probes > service.answers,
            "{service:?}"
        );
    }
    let table = served.tell("route show -s");
    assert!(
        table.contains("down, ") && table.contains("1 times down"),
        "{table}"
    );

    // On to the next segment, as End does it.
    let passed = outer(Direction::Forth.next(), 63, Direction::Forth, 0, &inner);
    assert_eq!(
        served.cross(Direction::Forth, &frame(Direction::Forth)),
        served.at_the_end(Direction::Forth, &passed)
    );
    let before = dropped(&served);
    let [near, far] = ["b", "a"].map(|host| served.star.socket(host));
    near.send(&frame(Direction::Back)).expect("send");
    eventually("the packet is dropped for its service", || {
        (dropped(&served) == before + 1).then_some(())
    });
    assert_eq!(
        far.receive(Duration::from_millis(100)).expect("receive"),
        None
    );

    served.comes_back();
    let took = until(&served, "up", SIDS.len());
    assert!(took < 2 * INTERVAL + SLACK, "{took:?}");
    for direction in Direction::BOTH {
        let through = outer(direction.next(), 61, direction, 0, &inner);
        let through = served.at_the_end(direction, &through);
        assert_eq!(served.cross(direction, &frame(direction)), through);
    }
}

#[test]
fn a_service_whose_link_is_gone_is_down_at_once_and_nobody_asks_it() {
    let Some(_turn) = begin("a_service_whose_link_is_gone_is_down_at_once") else {
        return;
    };
    let served = Served::new("livelink");
    let _daemon = served.run("tc");
    let direction = Direction::Forth;
    served.add(
        "fc00:5::f/128 encap seg6local action End.AM oif vnf0 iif vnf1 nh6 fc00:d::2 liveness link interval 60000 \
         on-down bypass dev vnf0",
    );
    until(&served, "up", 1);
    let [from, to] = direction.inner6();
    let inner = frames::udp(from, to, 64, b"linked");
    let frame = served.to_proxy(direction, &inner);
    let at_the_end = |hop_limit| {
        served.at_the_end(
            direction,
            &outer(direction.next(), hop_limit, direction, 0, &inner),
        )
    };
    assert_eq!(served.cross(direction, &frame), at_the_end(61));
    Ip::new(served.service()).run("link set eth0 down");
    let took = until(&served, "down", 1);
    assert!(took < PATIENCE, "{took:?}");
    assert_eq!(services(&served)[0].probes, 0);
    assert_eq!(served.cross(direction, &frame), at_the_end(63));
}

#[test]
fn a_service_that_cannot_be_asked_says_why_and_is_down() {
    let Some(_turn) = begin("a_service_that_cannot_be_asked_says_why_and_is_down") else {
        return;
    };
    let served = Served::new("livemute");
    let _daemon = served.run("tc");
    served.add(
        "fc00:5::f/128 encap seg6local action End.AM oif vnf0 iif vnf1 nh6 fc00:77::2 liveness icmp interval 50 dev vnf0",
    );
    until(&served, "down", 1);
    let service = services(&served).remove(0);
    let trouble = service.trouble.expect("a reason");
    assert!(trouble.contains("nreachable"), "{trouble}");
    assert_eq!(service.answers, 0);
}
