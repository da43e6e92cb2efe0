//! Routes of FRR by FPM: a peer that sends frames as zebra does.

use std::io::Write as _;
use std::net::{Ipv6Addr, TcpStream};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_mirror::fpm::encode::Encoder;
use sidestep_model::behavior::{Behavior, EncapMode, Seg6Encap, Seg6Local};
use sidestep_model::node::IfIndex;
use sidestep_model::route::{Encap, NextHop, NextHops, Owner, Route, RouteKey, RouteKind};
use sidestep_testkit::Napi;

use crate::support::frames::{ROUTING, destination6, ethernet, ipv6, srh, udp};
use crate::support::{
    Daemon, ROUTER, Star, begin, constant, eventually, explain, modes, report, target_of,
};

/// `RTPROT_BGP`.
const BGP: u8 = 186;
/// zebra.
const ZEBRA: Encoder = Encoder { sender: 7 };
/// Prefix that only the first session has.
const FIRST_ONLY: &str = "2001:db8:e::/48";
const SID: &str = "fc00:1::e";

/// A connection to the listener.
struct Peer<'a> {
    star: &'a Star,
    stream: TcpStream,
    zebra: Encoder,
}

impl<'a> Peer<'a> {
    fn connect(star: &'a Star, zebra: Encoder) -> Self {
        let connect = || TcpStream::connect("127.0.0.1:2620").expect("the listener");
        let stream = star.router().run(connect).expect("the namespace");
        let patience = Some(Duration::from_secs(10));
        stream.set_read_timeout(patience).expect("a timeout");
        Self {
            star,
            stream,
            zebra,
        }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        self.stream.write_all(&frames.concat()).expect("send");
    }

    /// Next hop to the host at a port.
    fn hop(&self, port: &str, via: &str) -> NextHop {
        let index = || if_nametoindex(port).expect("a port");
        let index = self.star.router().run(index).expect("the namespace");
        NextHop {
            via: via.parse().ok(),
            dev: Some(IfIndex(index)),
            ..NextHop::new()
        }
    }

    fn encap(&self, encap: Encap) -> NextHop {
        NextHop {
            encap: Some(encap),
            ..self.hop("eth1", "")
        }
    }

    /// The frames of a replay: nexthop objects, then routes.
    fn replay(&self, with_first_only: bool) -> Vec<Vec<u8>> {
        let zebra = self.zebra;
        let segments = Encap::Seg6(Seg6Encap {
            mode: EncapMode::Encap,
            segments: vec![address("fc00:bb::e")],
            hmac: None,
            tunsrc: None,
            lookup: None,
        });
        let end = Encap::Seg6Local(Seg6Local::new(Behavior::End));
        let mut frames = vec![
            zebra.next_hop(1, &self.hop("eth1", "fc00:b::2")),
            zebra.next_hop(2, &self.hop("eth2", "fc00:c::2")),
            zebra.group(3, &[1, 2]),
            zebra.next_hop(4, &self.encap(segments)),
            zebra.next_hop(5, &self.encap(end)),
            zebra.next_hop(6, &self.hop("eth1", "10.0.2.2")),
            zebra.route(&route("fc00:bb::/32", 1)),
            zebra.route(&route("fc0c::/16", 4)),
            zebra.route(&route("fc00:1::e/128", 5)),
            zebra.route(&route("203.0.113.0/24", 6)),
            zebra.route(&route("2001:db8:33::/48", 3)),
        ];
        if with_first_only {
            frames.push(zebra.route(&route(FIRST_ONLY, 2)));
        }
        frames
    }
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn route(prefix: &str, object: u32) -> Route {
    Route {
        key: RouteKey {
            metric: 20,
            ..RouteKey::new(prefix.parse().expect("a prefix"))
        },
        kind: RouteKind::Unicast,
        next_hops: NextHops::default(),
        prefsrc: None,
        mtu: None,
        nhid: Some(object),
        protocol: BGP,
        owner: Owner::Fpm { in_kernel: false },
    }
}

fn fpm(star: &Star) -> report::Fpm {
    let state: Option<report::Fpm> = report(star.router(), Request::ShowFpm);
    state.expect("FPM is on")
}

/// Waits for this number of routes and of stale routes.
fn wait_for_routes(star: &Star, routes: u64, stale: u64) -> report::Fpm {
    eventually(&format!("{routes} routes, {stale} stale"), || {
        let found = fpm(star);
        ((found.routes, found.stale_routes) == (routes, stale)).then_some(found)
    })
}

/// A frame from host `a` to this address.
fn frame(star: &Star, to: &str) -> Vec<u8> {
    let from = if to.contains(':') {
        "fc00:a::2"
    } else {
        "10.0.1.2"
    };
    let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
    let packet = udp(from, to, 64, b"fpm");
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// A frame to the SID with one more segment, which leaves by `eth1`.
fn to_sid(star: &Star) -> Vec<u8> {
    let next = address("fc00:bb::7");
    let inner = udp(address("fc00:a::2").into(), next.into(), 64, b"fpm");
    let payload = [srh(41, &[address(SID), next], 1), inner].concat();
    let packet = ipv6(address("fc00:a::2"), address(SID), ROUTING, 64, &payload);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

fn check_forwarded(star: &Star) {
    for (to, port) in [
        ("fc00:bb::1", "eth1"),
        ("fc0c::1", "eth1"),
        ("203.0.113.9", "eth1"),
    ] {
        let (verdict, egress, text) = explain(star.router(), "eth0", &frame(star, to));
        assert_eq!((&verdict[..], &egress[..]), ("forward", port), "{text}");
    }
    let out = star.socket("b");
    star.socket("a").send(&to_sid(star)).expect("send");
    eventually("the packet to the second segment", || {
        let frame = out.receive(Duration::from_millis(100)).expect("receive")?;
        (destination6(&frame) == Some(address("fc00:bb::7"))).then_some(())
    });
}

fn verdict(star: &Star, to: &str) -> String {
    explain(star.router(), "eth0", &frame(star, to)).0
}

fn run(star: &Star, mode: &str, hold: &str) -> Daemon {
    star.run(&[
        "--fpm",
        "--fpm-hold",
        hold,
        "--mode",
        mode,
        "eth0",
        "eth1",
        "eth2",
    ])
}

#[test]
fn routes_of_fpm_forward_and_stay_across_a_reconnect() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = Star::new(&format!("livefpm{}", target_of(mode)));
        let _napi = ["b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        let _daemon = run(&star, mode, "60");
        let mut peer = Peer::connect(&star, ZEBRA);
        peer.send(&peer.replay(true));
        let state = wait_for_routes(&star, 6, 0);
        assert_eq!((state.nexthop_objects, state.messages), (6, 12));
        check_forwarded(&star);
        assert_eq!(verdict(&star, "2001:db8:e::1"), "forward");

        constant::during(&star, "a reconnect", || {
            drop(peer);
            wait_for_routes(&star, 6, 6);
            assert_eq!(verdict(&star, "2001:db8:e::1"), "forward");
            let mut again = Peer::connect(&star, ZEBRA);
            again.send(&again.replay(false));
            wait_for_routes(&star, 6, 1);
            // The same zebra: the replay ends after five seconds without a message.
            wait_for_routes(&star, 5, 0);
            assert_eq!(verdict(&star, "2001:db8:e::1"), "punt");
        });
        check_forwarded(&star);
    }
}
