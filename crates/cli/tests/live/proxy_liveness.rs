//! Liveness of services behind SR proxies: output and verdicts when a service dies and returns.

use std::io::Write as _;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sidestep_control::api::Request;
use sidestep_control::report;

use crate::support::frames;
use crate::support::service::{Direction, Served, outer};
use crate::support::{Daemon, begin, eventually, reasons, report};

const INTERVAL: Duration = Duration::from_millis(400);
/// Tolerance for a busy machine in addition to the promise.
const SLACK: Duration = Duration::from_millis(400);

/// SIDs with services for each probe type, and their action while the service is down.
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

/// Returns the service of each SID, as `route show` prints it.
fn services(served: &Served) -> Vec<report::Service> {
    let routes: report::Routes = report(served.star.router(), Request::ShowRoutes { all: false });
    let all = routes.into_iter().filter_map(|route| route.service);
    all.collect()
}

fn states(served: &Served) -> Vec<String> {
    services(served).into_iter().map(|it| it.state).collect()
}

/// Waits until all services are in this state, and returns the duration.
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
    let Some(_turn) = begin() else {
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
    let table = served.sidestep("route show -s");
    assert!(
        table.contains("down, ") && table.contains("down 1 time"),
        "{table}"
    );

    // The packet goes to the next segment, as with End.
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
fn a_service_whose_interfaces_are_deleted_is_passed_by_and_carries_traffic_when_they_are_made_again()
 {
    let Some(_turn) = begin() else {
        return;
    };
    let mut served = Served::new("livegone");
    let _daemon = served.run("tc");
    for (sid, words) in SIDS {
        served.add(&format!("{sid} encap seg6local action {words}"));
    }
    let (forth, back) = (Direction::Forth, Direction::Back);
    let inner = [forth, back].map(|direction| {
        let [from, to] = direction.inner6();
        frames::udp(from, to, 64, b"there")
    });
    let through = |served: &Served| {
        for (direction, inner) in [forth, back].iter().zip(&inner) {
            let through = outer(direction.next(), 61, *direction, 0, inner);
            let through = served.at_the_end(*direction, &through);
            let frame = served.to_proxy(*direction, inner);
            assert_eq!(served.cross(*direction, &frame), through);
        }
    };
    until(&served, "up", SIDS.len());
    through(&served);
    let shown = served.sidestep("route show");

    for _ in 0..2 {
        let downs = services(&served)[0].downs;
        served.vanishes();
        let took = until(&served, "down", SIDS.len());
        assert!(took < 2 * INTERVAL + SLACK, "{took:?}");
        assert_eq!(services(&served)[0].downs, downs + 1);
        let passed = outer(forth.next(), 63, forth, 0, &inner[0]);
        let frame = served.to_proxy(forth, &inner[0]);
        assert_eq!(
            served.cross(forth, &frame),
            served.at_the_end(forth, &passed)
        );
        let before = dropped(&served);
        let near = served.star.socket("b");
        near.send(&served.to_proxy(back, &inner[1])).expect("send");
        eventually("the packet is dropped for its service", || {
            (dropped(&served) == before + 1).then_some(())
        });
        // The routes are printed as they were entered.
        let routes = served.sidestep("route show");
        assert!(
            routes.contains("oif vnf0") && !routes.contains(" if"),
            "{routes}"
        );

        served.is_made_again();
        until(&served, "up", SIDS.len());
        through(&served);
        assert_eq!(served.sidestep("route show"), shown);
    }
}

#[test]
fn a_service_that_cannot_be_asked_says_why_and_is_down() {
    let Some(_turn) = begin() else {
        return;
    };
    let served = Served::new("livemute");
    let _daemon = served.run("tc");
    served.add(
        "fc00:5::f/128 encap seg6local action End.AM oif vnf0 iif vnf1 nh6 fc00:77::2 liveness icmp interval 50 dev vnf0",
    );
    until(&served, "down", 1);
    let service = services(&served).remove(0);
    let problem = service.problem.expect("a reason");
    assert!(problem.contains("nreachable"), "{problem}");
    assert_eq!(service.answers, 0);
}

#[test]
fn a_service_is_asked_from_an_address_of_its_interface_whatever_source_the_routes_say() {
    let Some(_turn) = begin() else {
        return;
    };
    let served = Served::new("livesource");
    // The service has no route to these addresses, so it could not reply to them.
    served.star.ip().all([
        "route add fc00:d::/64 dev vnf0 src fc00:a::1 metric 1",
        "route replace 10.0.4.0/24 dev vnf0 src 10.0.1.1",
    ]);
    let _daemon = served.run("tc");
    for (sid, words) in SIDS {
        let words = words.replace("liveness arp", "liveness icmp");
        served.add(&format!("{sid} encap seg6local action {words}"));
    }
    until(&served, "up", SIDS.len());
    // Add another address, and remove the current source address of the probes.
    served.star.ip().all([
        "address add fc00:d::9/64 dev vnf0 nodad",
        "address del fc00:d::1/64 dev vnf0",
    ]);
    let before = services(&served);
    eventually("services answer at the new address", || {
        let now = services(&served);
        let answers = now.iter().zip(&before).all(|(now, before)| {
            now.state == "up" && now.answers >= before.answers + 3 && now.downs == 0
        });
        answers.then_some(())
    });
}

/// Returns `Max open files` of a process: the soft limit and the hard limit.
fn descriptors(daemon: &Daemon) -> [u64; 2] {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.expect("a limit of files").split_whitespace().skip(3);
    [(); 2].map(|()| words.next().expect("a limit").parse().expect("a number"))
}

#[test]
fn services_that_there_is_no_socket_for_stay_what_they_were_until_there_is_one() {
    const MANY: usize = 40;
    /// Number of probe descriptors in the daemon.
    const RESERVE: usize = 64;
    let Some(_turn) = begin() else {
        return;
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    let few = soft.min(hard - 1).min(1024);
    setrlimit(Resource::RLIMIT_NOFILE, few, hard).expect("it is less");
    let served = Served::new("livefew");
    let daemon = served.run("tc");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("as it was");
    assert_eq!(descriptors(&daemon), [hard, hard]);

    let folder = format!("/proc/{}/fd", daemon.pid());
    let open = std::fs::read_dir(folder).expect("its descriptors").count();
    let limit = |soft: u64| {
        let words = [
            "--pid",
            &daemon.pid().to_string(),
            &format!("--nofile={soft}:"),
        ]
        .map(String::from);
        let done = std::process::Command::new("prlimit").args(words).status();
        assert!(done.expect("prlimit of util-linux").success());
    };
    limit((open + RESERVE + 10) as u64);
    for number in 0..MANY {
        served.add(&format!(
            "fc00:5::f{number:02} encap seg6local action End.AM oif vnf0 iif vnf1 nh6 fc00:d::2 liveness icmp \
             interval {} dev vnf0",
            50 + number
        ));
    }
    let problem = || {
        served
            .sidestep("show status")
            .contains("no socket to probe them")
    };
    eventually("the daemon says what it lacks", || problem().then_some(()));
    eventually("some are asked", || {
        let some = states(&served).iter().any(|state| state == "up");
        some.then_some(())
    });
    std::thread::sleep(Duration::from_millis(3 * (50 + MANY as u64)));
    let now = services(&served);
    let few = now.iter().filter(|it| it.state == "up").count();
    assert!(few > 0 && few < MANY, "{few} have answered");
    assert!(
        now.iter().all(|it| it.downs == 0 && it.state != "down"),
        "{now:?}"
    );
    limit(hard);
    until(&served, "up", MANY);
    assert!(!problem());
}
