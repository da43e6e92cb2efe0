//! SR proxies with a real service behind them: a namespace in which the kernel forwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use sidestep_testkit::FrameSocket;

use crate::support::frames;
use crate::support::service::{Direction, SERVICE, Served, outer};
use crate::support::{ROUTER, begin, eventually, modes, reasons};

#[test]
fn a_packet_crosses_a_service_under_the_address_of_its_last_segment() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("liveam");
        let _daemon = served.run(mode);
        for direction in Direction::BOTH {
            let ([there, back], [nh6, _]) = (direction.ports(), direction.service());
            served.add(&format!(
                "{}/128 encap seg6local action End.AM oif {there} iif {back} nh6 {nh6} dev {there}",
                direction.sid()
            ));
        }
        for direction in Direction::BOTH {
            let [from, to] = direction.inner6();
            let inner = frames::udp(from, to, 64, b"masqueraded");
            let arrived = served.cross(direction, &served.to_proxy(direction, &inner));
            // Three nodes decrement the hop limit: End.AM, the service, and the return path. The
            // inner packet has no route.
            let expected = outer(direction.next(), 61, direction, 0, &inner);
            assert_eq!(
                arrived,
                served.at_the_end(direction, &expected),
                "{mode} {direction:?}"
            );
        }
    }
}

#[test]
fn a_static_proxy_takes_headers_off_and_puts_others_on_for_both_families_and_ways() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        for ipv4 in [false, true] {
            let served = Served::new("liveas");
            let _daemon = served.run(mode);
            for direction in Direction::BOTH {
                let [there, back] = direction.ports();
                let service = direction.next_hop(ipv4);
                served.add(&format!(
                    "{}/128 encap seg6local action End.AS oif {there} iif {back} {service} segs {} src fc00:5::1 dev {there}",
                    direction.sid(),
                    direction.next(),
                ));
            }
            for direction in Direction::BOTH {
                let [from, to] = direction.inner(ipv4);
                let packet = |hop_limit| frames::udp(from, to, hop_limit, b"static");
                let arrived = served.cross(direction, &served.to_proxy(direction, &packet(64)));
                // Decapsulation, the service and encapsulation each decrement the hop limit.
                let srh = frames::srh(
                    if ipv4 { frames::IPV4 } else { frames::IPV6 },
                    &[direction.next()],
                    0,
                );
                let pushed = [&srh[..], &packet(61)].concat();
                let source = "fc00:5::1".parse().expect("an address");
                let mut expected =
                    frames::ipv6(source, direction.next(), frames::ROUTING, 64, &pushed);
                // RFC 6437: computed from the inner packet.
                expected[1..4].copy_from_slice(&arrived[15..18]);
                assert_eq!(
                    arrived,
                    served.at_the_end(direction, &expected),
                    "{mode} {direction:?}"
                );
            }
        }
    }
}

#[test]
fn a_dynamic_proxy_puts_on_again_what_it_took_off_for_both_families_and_ways() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        for ipv4 in [false, true] {
            let served = Served::new("livead");
            let _daemon = served.run(mode);
            for direction in Direction::BOTH {
                let [there, back] = direction.ports();
                let service = direction.next_hop(ipv4);
                served.add(&format!(
                    "{}/128 encap seg6local action End.AD oif {there} iif {back} {service} age 0 dev {there}",
                    direction.sid(),
                ));
            }
            for direction in Direction::BOTH {
                let [from, to] = direction.inner(ipv4);
                let packet = |hop_limit| frames::udp(from, to, hop_limit, b"dynamic");
                let arrived = served.cross(direction, &served.to_proxy(direction, &packet(64)));
                // The outer headers are those that End would send. The inner hop limit is lower by
                // three.
                let mut expected = outer(direction.next(), 63, direction, 0, &packet(61));
                // RFC 6437: computed from the inner packet.
                expected[1..4].copy_from_slice(&arrived[15..18]);
                assert_eq!(
                    arrived,
                    served.at_the_end(direction, &expected),
                    "{mode} {direction:?}"
                );
            }
        }
    }
}

/// Returns the node file for proxies of this behavior for IPv6, in both directions.
fn configured(behavior: &str) -> String {
    let routes = Direction::BOTH.map(|direction| {
        let ([there, back], [nh6, nh4]) = (direction.ports(), direction.service());
        let (sid, next) = (direction.sid(), direction.next());
        format!(
            "- {sid}/128 encap seg6local action {behavior} oif {there} iif {back} nh6 {nh6} dev {there}\n\
             - {sid}4/128 encap seg6local action End.AS oif {there} iif {back} nh4 {nh4} segs {next} src fc00:5::1 \
             dev {there}\n"
        )
    });
    format!(
        "ports: [eth0, eth1, vnf0, vnf1]\nroutes:\n{}",
        routes.concat()
    )
}

/// Interval between two packets of [`stream`].
const PACE: Duration = Duration::from_micros(300);

/// Sends packets through the service in one direction until `done`. Returns the numbers of sent and
/// received packets.
fn stream(served: &Served, direction: Direction, done: &AtomicBool) -> [u64; 2] {
    let [near, far] = direction.hosts().map(|host| served.star.socket(host));
    let [from, to] = direction.inner6();
    let frame = served.to_proxy(direction, &frames::udp(from, to, 64, b"stream"));
    let [mut sent, mut arrived] = [0; 2];
    let mut look = |wait| {
        let came = far.receive(wait).expect("receive");
        let ours = came
            .as_deref()
            .map(|out| frames::destination6(out) == Some(direction.next()));
        arrived += u64::from(ours == Some(true));
        came.is_some()
    };
    while !done.load(Ordering::Acquire) {
        near.send(&frame).expect("send");
        sent += 1;
        while look(Duration::ZERO) {}
        thread::sleep(PACE);
    }
    while look(Duration::from_millis(300)) {}
    [sent, arrived]
}

/// Kills a daemon with these proxies under load three times, and starts a new one each time.
/// Returns the sent and received packets per direction, and the packets dropped because nothing was
/// learned yet.
fn take_over(mode: &str, behavior: &str) -> ([[u64; 2]; 2], u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("node.yaml");
    std::fs::write(&file, configured(behavior)).expect("a file");
    let served = Served::new("livedie");
    let args = ["--mode", mode, "--config", file.to_str().expect("UTF-8")];
    let daemon = served.star.run(&args);
    for direction in Direction::BOTH {
        let [from, to] = direction.inner6();
        served.cross(
            direction,
            &served.to_proxy(direction, &frames::udp(from, to, 64, b"first")),
        );
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let streams = Direction::BOTH.map(|direction| {
            scope.spawn({
                let (served, done) = (&served, &done);
                move || stream(served, direction, done)
            })
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut daemon = daemon;
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(200));
                daemon.signal(Signal::SIGKILL);
                daemon.end();
                thread::sleep(Duration::from_millis(200));
                daemon = served.star.run(&args);
                assert!(
                    daemon.began.contains("adopted the data plane"),
                    "{}",
                    daemon.began
                );
            }
            thread::sleep(Duration::from_millis(200));
            done.store(true, Ordering::Release);
            daemon
        }));
        done.store(true, Ordering::Release);
        let counted = streams.map(|stream| stream.join().expect("a stream"));
        let _daemon = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let all = reasons(served.star.router());
        let found = all.into_iter().find(|(_, name, _)| name == "not_learned");
        (counted, found.map_or(0, |(.., packets)| packets))
    })
}

#[test]
fn a_daemon_that_dies_under_load_and_its_successor_lose_nothing_but_what_is_inside_a_service() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        for behavior in ["End.AM", "End.AD", "End.AD flows 8"] {
            let (counted, not_learned) = take_over(mode, behavior);
            let mut lost = 0;
            for [sent, arrived] in counted {
                assert!(sent > 100, "{mode}: {sent} packets are too few");
                lost += sent - arrived;
            }
            // On a busy machine one packet may be inside the service at that moment and returns
            // without headers.
            let inside = if behavior == "End.AM" { 0 } else { not_learned };
            assert_eq!(
                lost, inside,
                "{mode} {behavior}: {counted:?}, {not_learned} dropped"
            );
            assert!(inside <= 60, "{mode} {behavior}: {inside} dropped by three");
        }
    }
}

/// The upgrade procedure of `packaging/sidestep.service` and of the documentation.
#[test]
fn what_is_in_a_service_of_end_ad_while_a_daemon_takes_over_is_dropped_until_its_successor_has_learned()
 {
    let Some(_turn) = begin() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("node.yaml");
    std::fs::write(&file, configured("End.AD")).expect("a file");
    let served = Served::new("liveinside");
    let args = ["--mode", "tc", "--config", file.to_str().expect("UTF-8")];
    let daemon = served.star.run(&args);
    let forth = Direction::Forth;
    let [from, to] = forth.inner6();
    let frame = served.to_proxy(forth, &frames::udp(from, to, 64, b"there and back"));
    let learned = served.cross(forth, &frame);
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let daemon = served.star.run(&args);
    assert!(
        daemon.began.contains("adopted the data plane"),
        "{}",
        daemon.began
    );
    // A packet that the service has held back, and that its link now sends.
    let held = frames::ethernet(
        served.star.mac(ROUTER, "vnf1"),
        served.star.mac(SERVICE, "eth1"),
        &frames::udp(from, to, 62, b"there and back"),
    );
    let service = FrameSocket::open(served.service(), "eth1").expect("a packet socket");
    service.send(&held).expect("send");
    eventually("the packet is dropped", || {
        let dropped = ("drop".to_owned(), "not_learned".to_owned(), 1);
        reasons(served.star.router())
            .contains(&dropped)
            .then_some(())
    });
    assert_eq!(served.cross(forth, &frame), learned);
}
