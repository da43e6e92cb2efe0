//! FPM: sessions, stale routes and hold times. The sockets are real ones on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use sidestep_mirror::fpm::encode::Encoder;
use sidestep_model::behavior::{Behavior, EncapMode, Seg6Encap, Seg6Local};
use sidestep_model::route::{Encap, NextHop, NextHops, Owner, Route, RouteKey, RouteKind};

use super::SECOND;
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

/// `RTPROT_BGP`.
const BGP: u8 = 186;
/// zebra before and after a restart.
const ZEBRA: Encoder = Encoder { sender: 7 };
const RESTARTED: Encoder = Encoder { sender: 8 };
/// Prefix that only the first session has.
const FIRST_ONLY: &str = "2001:db8:e::/48";

fn start(options: &str) -> Simulation {
    let text = format!("ports: [eth0, eth1, eth2]\nfpm: 127.0.0.1:0\n{options}");
    Simulation::with(STAR, &[], &text)
}

fn fpm(node: &mut Simulation) -> report::Fpm {
    let state: Option<report::Fpm> = node.report(Request::ShowFpm);
    state.expect("FPM is on")
}

/// Rounds of the event loop, without time passing, until the bytes in the sockets have had this
/// effect.
fn wait(node: &mut Simulation, what: &str, is_so: impl Fn(&report::Fpm) -> bool) -> report::Fpm {
    let deadline = Instant::now() + SECOND * 10;
    loop {
        node.turn();
        let state = fpm(node);
        if is_so(&state) {
            return state;
        }
        assert!(Instant::now() < deadline, "{what}: {state:?}");
    }
}

fn wait_for_routes(node: &mut Simulation, routes: u64, stale: u64) -> report::Fpm {
    let what = format!("{routes} routes, {stale} stale");
    wait(node, &what, |state| {
        (state.routes, state.stale_routes) == (routes, stale)
    })
}

/// A connection to the listener.
struct Peer {
    stream: TcpStream,
    zebra: Encoder,
}

impl Peer {
    fn connect(node: &mut Simulation, zebra: Encoder) -> Self {
        let address = fpm(node).address;
        let stream = TcpStream::connect(address).expect("the listener");
        stream
            .set_read_timeout(Some(SECOND * 10))
            .expect("a timeout");
        Self { stream, zebra }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        self.stream.write_all(&frames.concat()).expect("send");
    }

    /// Whether the daemon has closed the connection.
    fn has_ended(&mut self) -> bool {
        match self.stream.read(&mut [0; 16]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    /// The frames of a replay: nexthop objects, then routes.
    fn replay(&self, node: &Simulation, with_first_only: bool) -> Vec<Vec<u8>> {
        let zebra = self.zebra;
        let hop = |port: &str, via: &str| NextHop {
            via: via.parse().ok(),
            dev: Some(node.dev(port)),
            ..NextHop::new()
        };
        let with = |encap| NextHop {
            encap: Some(encap),
            ..hop("eth1", "")
        };
        let segments = Encap::Seg6(Seg6Encap {
            mode: EncapMode::Encap,
            segments: vec!["fc00:bb::e".parse().expect("a segment")],
            hmac: None,
            tunsrc: None,
            lookup: None,
        });
        let end = Encap::Seg6Local(Seg6Local::new(Behavior::End));
        let mut frames = vec![
            zebra.next_hop(1, &hop("eth1", "fc00:b::2")),
            zebra.next_hop(2, &hop("eth2", "fc00:c::2")),
            zebra.group(3, &[1, 2]),
            zebra.next_hop(4, &with(segments)),
            zebra.next_hop(5, &with(end)),
            zebra.route(&route("fc00:bb::/32", 1)),
            zebra.route(&route("fc0c::/16", 4)),
            zebra.route(&route("fc00:1::e/128", 5)),
            zebra.route(&route("2001:db8:33::/48", 3)),
        ];
        if with_first_only {
            frames.push(zebra.route(&route(FIRST_ONLY, 2)));
        }
        frames
    }
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

/// A node with a session that has sent everything.
fn with_session(options: &str) -> (Simulation, Peer) {
    let mut node = start(options);
    let mut peer = Peer::connect(&mut node, ZEBRA);
    let replay = peer.replay(&node, true);
    peer.send(&replay);
    wait_for_routes(&mut node, 5, 0);
    (node, peer)
}

#[test]
fn routes_of_a_session_forward_and_stay_when_it_ends() {
    let (mut node, peer) = with_session("");
    let all = ["fc00:bb::1", "fc0c::1", "2001:db8:33::1", "2001:db8:e::1"];
    let verdicts = |node: &Simulation| all.map(|to| node.verdict(to));
    let before = verdicts(&node);
    assert_eq!(before[..2], ["forward eth1", "forward eth1"]);
    assert_eq!(before[3], "forward eth2");
    assert_eq!(node.verdict("fc00:1::e"), "drop no_srh");
    drop(peer);
    let state = wait_for_routes(&mut node, 5, 5);
    assert_eq!(state.last_end.as_deref(), Some("it closed the connection"));
    node.run(SECOND * 100);
    assert_eq!(verdicts(&node), before);
    assert!(node.problems().contains("fpm_no_session"));
}

#[test]
fn the_same_zebra_ends_its_replay_after_five_quiet_seconds() {
    let (mut node, peer) = with_session("");
    drop(peer);
    wait_for_routes(&mut node, 5, 5);
    let mut again = Peer::connect(&mut node, ZEBRA);
    let replay = again.replay(&node, false);
    again.send(&replay);
    wait_for_routes(&mut node, 5, 1);
    node.run(Duration::from_millis(4900));
    assert_eq!(
        (
            fpm(&mut node).stale_routes,
            &node.verdict("2001:db8:e::1")[..]
        ),
        (1, "forward eth2")
    );
    node.run(Duration::from_millis(200));
    assert_eq!((fpm(&mut node).routes, fpm(&mut node).stale_routes), (4, 0));
    assert_eq!(node.verdict("2001:db8:e::1"), "punt route_miss");
    let swept = "fpm: swept 1 stale routes and 0 stale nexthop objects";
    assert_eq!(node.console.log.last().map(String::as_str), Some(swept));
}

#[test]
fn a_replay_that_pauses_for_less_than_five_seconds_loses_no_route() {
    let (mut node, peer) = with_session("");
    drop(peer);
    wait_for_routes(&mut node, 5, 5);
    let mut again = Peer::connect(&mut node, ZEBRA);
    let replay = again.replay(&node, true);
    for frame in replay {
        let before = fpm(&mut node).messages;
        again.send(&[frame]);
        wait(&mut node, "a frame", |state| state.messages > before);
        node.run(Duration::from_millis(4500));
        assert_eq!(fpm(&mut node).routes, 5);
    }
    assert_eq!(fpm(&mut node).stale_routes, 0);
}

#[test]
fn stale_routes_of_a_zebra_that_has_started_again_stay_for_the_hold_time() {
    let (mut node, peer) = with_session("fpm_hold: 60\n");
    drop(peer);
    wait_for_routes(&mut node, 5, 5);
    node.run(SECOND * 50);
    let mut restarted = Peer::connect(&mut node, RESTARTED);
    let replay = restarted.replay(&node, false);
    restarted.send(&replay);
    let state = wait_for_routes(&mut node, 5, 1);
    assert_eq!(
        state.sweep_within,
        Some(60),
        "from the start of the session"
    );
    node.run(SECOND * 59);
    assert_eq!(fpm(&mut node).stale_routes, 1);
    node.run(SECOND);
    assert_eq!((fpm(&mut node).routes, fpm(&mut node).stale_routes), (4, 0));
}

#[test]
fn without_a_session_the_routes_go_after_the_hold_time() {
    let (mut node, peer) = with_session("fpm_hold: 60\n");
    drop(peer);
    wait_for_routes(&mut node, 5, 5);
    // Sessions that send nothing do not prolong the time.
    for _ in 0..5 {
        node.run(SECOND * 10);
        let sessions = fpm(&mut node).sessions;
        let silent = Peer::connect(&mut node, RESTARTED);
        wait(&mut node, "a session", |state| state.sessions > sessions);
        drop(silent);
        wait(&mut node, "its end", |state| state.peer.is_none());
    }
    assert_eq!(fpm(&mut node).routes, 5);
    node.run(SECOND * 10);
    assert_eq!(fpm(&mut node).routes, 0);
    assert_eq!(
        node.verdict("fc00:bb::1"),
        "forward eth1",
        "the route of the kernel"
    );
    assert_eq!(node.verdict("fc0c::1"), "punt route_miss");
}

#[test]
fn a_clock_that_jumps_sweeps_once_and_keeps_what_a_session_has() {
    let (mut node, mut peer) = with_session("");
    node.jump(SECOND * 1_000_000);
    node.turn();
    assert_eq!(fpm(&mut node).routes, 5);
    peer.send(&[ZEBRA.withdraw(&route(FIRST_ONLY, 2).key, BGP)]);
    wait_for_routes(&mut node, 4, 0);
    drop(peer);
    wait_for_routes(&mut node, 4, 4);
    node.jump(SECOND * 1_000_000);
    node.turn();
    node.turn();
    assert_eq!(fpm(&mut node).routes, 0);
    let swept = node
        .console
        .log
        .iter()
        .filter(|line| line.contains("swept"));
    assert_eq!(swept.count(), 1);
}

#[test]
fn a_route_of_fpm_precedes_that_of_the_kernel_until_it_is_withdrawn() {
    let mut node = start("");
    node.ip("route replace fc00:bb::/32 via fc00:c::2 dev eth2");
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth2");
    let mut peer = Peer::connect(&mut node, ZEBRA);
    let replay = peer.replay(&node, false);
    peer.send(&replay);
    wait_for_routes(&mut node, 4, 0);
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth1");
    let routes: report::Routes = node.report(Request::ShowRoutes { all: true });
    let owner = |prefix: &str| {
        let found = routes.iter().find(|it| it.prefix == prefix);
        found.expect("a route").owner.clone()
    };
    assert_eq!(owner("fc0c::/16"), "fpm");
    peer.send(&[ZEBRA.withdraw(&route("fc00:bb::/32", 1).key, BGP)]);
    wait_for_routes(&mut node, 3, 0);
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth2");
}

#[test]
fn a_second_client_is_refused_and_the_log_says_so_once_a_minute() {
    let (mut node, mut peer) = with_session("");
    for number in 1..=5 {
        let mut second = Peer::connect(&mut node, RESTARTED);
        wait(&mut node, "a refusal", |state| state.refused == number);
        assert!(second.has_ended());
        node.run(SECOND * 20);
    }
    assert_eq!(fpm(&mut node).sessions, 1);
    let refused = node
        .console
        .log
        .iter()
        .filter(|line| line.contains("refused"));
    assert_eq!(refused.count(), 2, "{:?}", node.console.log);
    peer.send(&[ZEBRA.withdraw(&route(FIRST_ONLY, 2).key, BGP)]);
    wait_for_routes(&mut node, 4, 0);
}

#[test]
fn a_malformed_frame_ends_its_session_and_applies_nothing_of_itself() {
    let (mut node, mut peer) = with_session("");
    // A message of a type that SONiC has: it is skipped and counted.
    let message = [16, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    peer.send(&[[&[1, 1, 0, 20][..], &message].concat()]);
    wait(&mut node, "the message", |state| state.ignored == 1);
    // The first message of this frame is valid, the second one is a route without its fields.
    let mut frame = ZEBRA.route(&route("2001:db8:77::/48", 1));
    let place = frame.len() + 16;
    frame.extend([16, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let length = frame.len() as u16;
    frame[2..4].copy_from_slice(&length.to_be_bytes());
    peer.send(&[frame]);
    let state = wait_for_routes(&mut node, 5, 5);
    assert!(peer.has_ended());
    let error = state.last_error.expect("an error");
    let expected = format!("frame 12, byte {place}: route of 0 bytes; expected at least 12");
    assert!(error.starts_with(&expected), "{error}");
    assert!(node.problems().contains("fpm_session_failed"));
    assert_eq!(node.verdict("2001:db8:77::1"), "punt route_miss");
    assert_eq!(node.verdict("fc0c::1"), "forward eth1");
}

#[test]
fn a_zebra_that_dies_within_a_frame_leaves_nothing_of_it() {
    let mut node = start("");
    let mut half = Peer::connect(&mut node, ZEBRA);
    half.send(&[ZEBRA.route(&route(FIRST_ONLY, 2))[..30].to_vec()]);
    wait(&mut node, "a session", |state| state.sessions == 1);
    drop(half);
    let state = wait(&mut node, "its end", |state| state.peer.is_none());
    let end = "it closed the connection within frame 1, after 30 bytes";
    assert_eq!(state.last_error.as_deref(), Some(end));
    let mut again = Peer::connect(&mut node, ZEBRA);
    let replay = again.replay(&node, true);
    again.send(&replay);
    wait_for_routes(&mut node, 5, 0);
}

#[test]
fn a_zebra_that_dies_within_its_replay_leaves_the_stale_routes_for_the_hold_time() {
    let (mut node, peer) = with_session("fpm_hold: 60\n");
    drop(peer);
    wait_for_routes(&mut node, 5, 5);
    let mut again = Peer::connect(&mut node, ZEBRA);
    let replay = again.replay(&node, true);
    again.send(&replay[..7]);
    wait_for_routes(&mut node, 5, 3);
    drop(again);
    wait_for_routes(&mut node, 5, 5);
    node.run(SECOND * 59);
    assert_eq!(node.verdict("2001:db8:e::1"), "forward eth2");
    node.run(SECOND * 2);
    assert_eq!(fpm(&mut node).routes, 0);
}

#[test]
fn a_write_that_fails_keeps_the_routes_of_a_session_for_the_next_try() {
    let mut node = start("");
    let mut peer = Peer::connect(&mut node, ZEBRA);
    node.instance.tables.kernel.fail_always(true);
    let replay = peer.replay(&node, true);
    peer.send(&replay);
    wait_for_routes(&mut node, 5, 0);
    assert_eq!(node.verdict("fc0c::1"), "punt route_miss");
    node.instance.tables.kernel.fail_always(false);
    node.run(SECOND * 2);
    assert_eq!(node.verdict("fc0c::1"), "forward eth1");
}

/// Reads this many replies. Returns the third group of each route's destination address, and
/// whether zebra would take it for installed.
fn replies(node: &mut Simulation, peer: &mut Peer, count: usize) -> Vec<(u8, bool)> {
    wait(node, "replies", |state| {
        state.reported_installed + state.reported_failed >= count as u64
    });
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
        let destination: [u8; 16] = *message[32..].first_chunk().expect("an address");
        (Ipv6Addr::from(destination).segments()[2] as u8, installed)
    };
    std::iter::repeat_with(reply).take(count).collect()
}

#[test]
fn zebra_learns_which_routes_are_in_the_tables_after_they_are() {
    let mut node = start("fpm_reply: true\n");
    let mut peer = Peer::connect(&mut node, ZEBRA);
    let hop = peer.replay(&node, false).remove(0);
    let prefix = |number: u8| route(&format!("2001:db8:{number}::/48"), 1);
    node.instance.tables.kernel.fail_always(true);
    peer.send(&[hop, ZEBRA.route(&prefix(1)), ZEBRA.route(&prefix(2))]);
    wait_for_routes(&mut node, 2, 0);
    node.run(SECOND * 5);
    assert_eq!(fpm(&mut node).reported_installed, 0, "they are in no table");
    node.instance.tables.kernel.fail_always(false);
    node.run(SECOND * 2);
    assert_eq!(replies(&mut node, &mut peer, 2), [(1, true), (2, true)]);
    assert_eq!(node.verdict("2001:db8:1::1"), "forward eth1");
}

#[test]
fn zebra_learns_which_routes_have_no_room_and_that_they_have_when_others_go() {
    let mut node = start("fpm_reply: true\n");
    let used = node.instance.tables.compiled.image.fib.len() as u32;
    let options = crate::daemon::Options {
        limits: sidestep_datapath::Limits {
            fib: used + 2,
            ..sidestep_datapath::Limits::default()
        },
        ports: ["eth0", "eth1", "eth2"].map(str::to_owned).into(),
        ..node.options()
    };
    node = Simulation::start(node.instance.mirror.kernel().clone(), options).expect("a start");
    let mut peer = Peer::connect(&mut node, ZEBRA);
    let hop = peer.replay(&node, false).remove(0);
    let prefix = |number: u8| route(&format!("2001:db8:{number}::/48"), 1);
    peer.send(&[
        hop,
        ZEBRA.route(&prefix(1)),
        ZEBRA.route(&prefix(2)),
        ZEBRA.route(&prefix(3)),
    ]);
    let found = replies(&mut node, &mut peer, 3);
    assert_eq!(found, [(1, true), (2, true), (3, false)]);
    peer.send(&[ZEBRA.withdraw(&prefix(1).key, BGP)]);
    wait_for_routes(&mut node, 2, 0);
    node.run(SECOND);
    peer.send(&[ZEBRA.route(&prefix(3))]);
    wait(&mut node, "another reply", |state| {
        state.reported_installed == 3
    });
    assert_eq!(replies(&mut node, &mut peer, 1), [(3, true)]);
}
