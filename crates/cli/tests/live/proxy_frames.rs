//! SR proxies with a bump-in-the-wire service, and with a service addressed by MAC.

use crate::support::frames;
use crate::support::service::{Direction, SERVICE, Served, outer};
use crate::support::{begin, modes};

/// Returns customers' frames for a direction.
fn customer_frames(direction: Direction) -> [Vec<u8>; 3] {
    let macs = [[2, 0, 0, 0, 0xaa, 1], [2, 0, 0, 0, 0xaa, 2]];
    let [from, to] = match direction {
        Direction::Forth => macs,
        Direction::Back => [macs[1], macs[0]],
    };
    let [six, four] = [direction.inner6(), direction.inner4()];
    let udp = |[source, destination]: [std::net::IpAddr; 2]| {
        frames::ethernet(to, from, &frames::udp(source, destination, 1, b"bridged"))
    };
    let asked = frames::arp_request(from, [10, 9, 0, 1].into(), [10, 9, 0, 2].into());
    [udp(six), udp(four), asked]
}

/// Sends each of the frames through the service. `expected` returns the packet that must arrive at
/// the other end for a frame.
fn all_cross(served: &Served, expected: impl Fn(Direction, &[u8]) -> Vec<u8>, what: &str) {
    for direction in Direction::BOTH {
        for frame in customer_frames(direction) {
            let arrived = served.cross(direction, &served.to_proxy(direction, &frame));
            let mut expected = expected(direction, &frame);
            // RFC 6437: computed from the frame.
            expected[1..4].copy_from_slice(&arrived[15..18]);
            assert_eq!(
                arrived,
                served.at_the_end(direction, &expected),
                "{what} {direction:?}"
            );
        }
    }
}

#[test]
fn frames_cross_a_bridge_between_two_ports_as_they_are() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        for statically in [false, true] {
            let served = Served::bridging("livewire");
            let _daemon = served.run(mode);
            for direction in Direction::BOTH {
                let ([there, back], sid) = (direction.ports(), direction.sid());
                let proxy = if statically {
                    format!("End.AS segs {} src fc00:5::1", direction.next())
                } else {
                    "End.AD".to_owned()
                };
                served.add(&format!(
                    "{sid}/128 encap seg6local action {proxy} oif {there} iif {back} inner l2 dev {there}"
                ));
            }
            let expected = |direction: Direction, frame: &[u8]| {
                if statically {
                    let source = "fc00:5::1".parse().expect("an address");
                    let srh = frames::srh(frames::CARRIES_ETHERNET, &[direction.next()], 0);
                    let payload = [&srh[..], frame].concat();
                    frames::ipv6(source, direction.next(), frames::ROUTING, 64, &payload)
                } else {
                    outer(direction.next(), 63, direction, 0, frame)
                }
            };
            all_cross(&served, expected, &format!("{mode} static {statically}"));
        }
    }
}

#[test]
fn a_service_told_by_its_ethernet_address_is_not_asked_for_it() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("livemac");
        let _daemon = served.run(mode);
        let direction = Direction::Forth;
        let [there, back] = direction.ports();
        let mac: Vec<String> = (served.star.mac(SERVICE, "eth0").iter())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        served.add(&format!(
            "{}/128 encap seg6local action End.AD oif {there} iif {back} nheth {} dev {there}",
            direction.sid(),
            mac.join(":"),
        ));
        let [from, to] = direction.inner6();
        let packet = |hop_limit| frames::udp(from, to, hop_limit, b"by its Ethernet address");
        let arrived = served.cross(direction, &served.to_proxy(direction, &packet(64)));
        let mut expected = outer(direction.next(), 63, direction, 0, &packet(61));
        expected[1..4].copy_from_slice(&arrived[15..18]);
        assert_eq!(arrived, served.at_the_end(direction, &expected), "{mode}");
        let mut neighbors = served.star.router().command("ip");
        let neighbors = neighbors
            .args(["-6", "neighbor", "show", "fc00:d::2", "dev", there])
            .output()
            .expect("ip");
        assert!(
            neighbors.status.success() && neighbors.stdout.is_empty(),
            "{neighbors:?}"
        );
    }
}
