//! Routes of FRR by FPM: a peer that sends frames as zebra does.

use std::io::{ErrorKind, Read as _, Write as _};
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
    Daemon, ROUTER, Star, begin, constant, eventually, explain, modes, output, printed, report,
    target_of,
};

/// `RTPROT_BGP`.
const BGP: u8 = 186;
/// zebra before and after a restart.
const ZEBRA: Encoder = Encoder { sender: 7 };
const RESTARTED: Encoder = Encoder { sender: 8 };
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

    /// Waits until the daemon has closed the connection.
    fn wait_for_end(mut self) {
        match self.stream.read(&mut [0; 16]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("the session goes on: {other:?}"),
        }
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

#[test]
fn stale_routes_of_fpm_are_swept_after_the_hold_time() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefpmhold");
    let _daemon = run(&star, "tc", "2");
    let mut peer = Peer::connect(&star, ZEBRA);
    peer.send(&peer.replay(true));
    wait_for_routes(&star, 6, 0);
    drop(peer);
    // Another zebra, which may still learn its routes: they stay for the hold time.
    let mut restarted = Peer::connect(&star, RESTARTED);
    restarted.send(&restarted.replay(false));
    let state = wait_for_routes(&star, 6, 1);
    assert!(state.sweep_within.is_some_and(|it| it <= 2), "{state:?}");
    wait_for_routes(&star, 5, 0);
    drop(restarted);
    wait_for_routes(&star, 5, 5);
    let problems: report::Problems =
        report::<report::Status>(star.router(), Request::ShowStatus).problems;
    assert!(
        problems.iter().any(|it| it.code == "fpm_no_session"),
        "{problems:?}"
    );
    wait_for_routes(&star, 0, 0);
    assert_eq!(verdict(&star, "fc00:bb::1"), "punt");
}

#[test]
fn a_route_of_fpm_is_shown_with_its_owner_and_precedes_the_kernels() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefpmowner");
    star.ip()
        .run("route add fc00:bb::/32 via fc00:c::2 dev eth2 metric 20");
    let _daemon = run(&star, "tc", "60");
    let egress = || explain(star.router(), "eth0", &frame(&star, "fc00:bb::1")).1;
    assert_eq!(egress(), "eth2");
    let mut peer = Peer::connect(&star, ZEBRA);
    peer.send(&peer.replay(false));
    wait_for_routes(&star, 5, 0);
    eventually("FPM's route", || (egress() == "eth1").then_some(()));
    let routes: report::Routes = report(star.router(), Request::ShowRoutes { all: true });
    let owner = |prefix: &str| {
        let found = routes.iter().find(|it| it.prefix == prefix);
        found.expect("a route").owner.clone()
    };
    assert_eq!(
        (owner("fc00:bb::/32"), owner("fc00:b::/64")),
        ("fpm".into(), "kernel".into())
    );
    let shown = printed(star.router(), &["route", "show"]);
    assert!(
        shown.contains("fpm") && shown.contains("fc00:1::e nhid 5 encap seg6local action End"),
        "{shown}"
    );
    let shown = printed(star.router(), &["show", "fpm"]);
    assert!(shown.contains("127.0.0.1:2620"), "{shown}");
    let withdrawn = ZEBRA.withdraw(&route("fc00:bb::/32", 1).key, BGP);
    peer.send(&[withdrawn]);
    eventually("the kernel's route", || (egress() == "eth2").then_some(()));
}

/// Reads this many replies. Returns the end of each route's destination address, and whether zebra
/// would take it for installed.
fn replies(peer: &mut Peer<'_>, count: usize) -> Vec<(u8, bool)> {
    let reply = || {
        let mut header = [0; 4];
        peer.stream.read_exact(&mut header).expect("a reply");
        assert_eq!(header[..2], [1, 1]);
        let mut message = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 4];
        peer.stream.read_exact(&mut message).expect("a reply");
        // struct nlmsghdr, struct rtmsg with its flags, and RTA_DST.
        let installed = match u32::from_ne_bytes(*message[24..].first_chunk().expect("a route")) {
            0x4000 => true,
            0x2000_0000 => false,
            flags => panic!("flags {flags:#x}"),
        };
        (message[28 + 4 + 5], installed)
    };
    std::iter::repeat_with(reply).take(count).collect()
}

#[test]
fn zebra_learns_which_routes_are_in_the_tables() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefpmreply");
    let before = {
        let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
        let limits: report::Limits = report(star.router(), Request::ShowLimits);
        let prefixes = limits.iter().find(|limit| limit.name == "prefixes");
        prefixes.and_then(|limit| limit.used).expect("a number")
    };
    // Room for two more prefixes.
    let limit = format!("prefixes={}", before + 2);
    let _daemon = star.run(&[
        "--fpm",
        "--fpm-reply",
        "--limit",
        &limit,
        "--mode",
        "tc",
        "eth0",
        "eth1",
    ]);
    let mut peer = Peer::connect(&star, ZEBRA);
    let prefix = |number: u8| route(&format!("2001:db8:{number}::/48"), 1);
    peer.send(&[ZEBRA.next_hop(1, &peer.hop("eth1", "fc00:b::2"))]);
    peer.send(&[1, 2].map(|number| ZEBRA.route(&prefix(number))));
    assert_eq!(replies(&mut peer, 2), [(1, true), (2, true)]);
    peer.send(&[ZEBRA.route(&prefix(3))]);
    assert_eq!(replies(&mut peer, 1), [(3, false)]);
    peer.send(&[ZEBRA.withdraw(&prefix(1).key, BGP)]);
    // The place of the withdrawn route is free after a grace period.
    eventually("room for the route", || {
        peer.send(&[ZEBRA.route(&prefix(3))]);
        let (_, installed) = replies(&mut peer, 1)[0];
        installed.then_some(())
    });
    let state = fpm(&star);
    assert_eq!(state.reported_installed, 3);
    assert!(state.reported_failed > 0, "{state:?}");
}

#[test]
fn a_malformed_frame_ends_its_session_only() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livefpmbad");
    let _daemon = run(&star, "tc", "60");
    let mut peer = Peer::connect(&star, ZEBRA);
    peer.send(&peer.replay(true));
    wait_for_routes(&star, 6, 0);

    // A second client is refused, and the first session goes on.
    Peer::connect(&star, RESTARTED).wait_for_end();
    let state = fpm(&star);
    assert_eq!((state.refused, state.sessions), (1, 1));
    peer.send(&[ZEBRA.withdraw(&route(FIRST_ONLY, 2).key, BGP)]);
    wait_for_routes(&star, 5, 0);

    // A message of a type that SONiC has: it is skipped and counted.
    let ignored = fpm(&star).ignored;
    let message = [16, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    peer.send(&[[&[1, 1, 0, 20][..], &message].concat()]);
    eventually("the message", || {
        (fpm(&star).ignored == ignored + 1).then_some(())
    });

    // The first message of this frame is valid, the second one is a route without its fields.
    let mut frame = ZEBRA.route(&route("2001:db8:77::/48", 1));
    let place = frame.len() + 16;
    frame.extend([16, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let length = frame.len() as u16;
    frame[2..4].copy_from_slice(&length.to_be_bytes());
    peer.send(&[frame]);
    peer.wait_for_end();
    let state = wait_for_routes(&star, 5, 5);
    let error = state.last_error.expect("an error");
    let expected = format!("frame 15, byte {place}: route of 0 bytes; expected at least 12");
    assert!(error.starts_with(&expected), "{error}");
    let doctor = output(star.router(), &["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("fpm_session_failed"), "{doctor}");
    check_forwarded(&star);

    // Half a message, then the next session as if nothing had been.
    let mut half = Peer::connect(&star, ZEBRA);
    half.send(&[ZEBRA.route(&route(FIRST_ONLY, 2))[..30].to_vec()]);
    drop(half);
    let state = eventually("the end of the session", || {
        let state = fpm(&star);
        (state.sessions == 2 && state.peer.is_none()).then_some(state)
    });
    let end = "it closed the connection within frame 1, after 30 bytes";
    assert_eq!(state.last_error.as_deref(), Some(end));
    let mut again = Peer::connect(&star, ZEBRA);
    again.send(&again.replay(true));
    wait_for_routes(&star, 6, 0);
}
