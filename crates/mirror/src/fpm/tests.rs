use std::net::IpAddr;

use sidestep_model::behavior::{Behavior, EncapMode, Seg6Encap, Seg6Local};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Encap, Owner, RouteKind};

use super::encode::Encoder;
use super::*;
use crate::wire::{Body, frame};

/// Everything that zebra of FRR 10.7 sent to a new listener: ECMP, segments, uN, uA, uDT6, blackhole,
/// IPv4, connected and local routes.
const ZEBRA: &[u8] = include_bytes!("../../tests/data/zebra-10.7.fpm");
/// The same of FRR 10.3, without uA, until its end, when it withdraws all routes.
const ZEBRA_10_3: &[u8] = include_bytes!("../../tests/data/zebra-10.3.fpm");

const ZEBRAS: Encoder = Encoder { sender: 7 };
const OTHERS: Encoder = Encoder { sender: 8 };

fn key(prefix: &str) -> RouteKey {
    RouteKey {
        metric: 20,
        ..RouteKey::new(prefix.parse().expect("a prefix"))
    }
}

fn hop(via: &str, dev: u32) -> NextHop {
    NextHop {
        via: via.parse().ok(),
        dev: Some(IfIndex(dev)),
        ..NextHop::new()
    }
}

fn route(prefix: &str, next_hops: &[NextHop]) -> Route {
    Route {
        key: key(prefix),
        kind: RouteKind::Unicast,
        next_hops: next_hops.to_vec().into(),
        prefsrc: None,
        mtu: None,
        nhid: None,
        protocol: 186,
        owner: Owner::Fpm { in_kernel: false },
    }
}

fn by_object(prefix: &str, nhid: u32) -> Route {
    Route {
        nhid: Some(nhid),
        ..route(prefix, &[])
    }
}

/// Applies a notification about a link.
fn link(state: &mut State, dev: u32, is_up: bool) {
    // struct ifinfomsg: ARPHRD_ETHER; IFF_UP, IFF_BROADCAST, IFF_RUNNING, IFF_LOWER_UP.
    let flags: u32 = if is_up { 0x1_0043 } else { 0x1002 };
    let fixed = [
        &[0, 0, 1, 0][..],
        &dev.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &[0; 4],
    ];
    let mut body = Body::new(&fixed.concat());
    body.attribute(libc::IFLA_IFNAME, format!("eth{dev}\0").as_bytes())
        .attribute(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, dev as u8])
        .attribute(libc::IFLA_MTU, &1500u32.to_ne_bytes());
    let bytes = frame(libc::RTM_NEWLINK, 0, 0, &body.0);
    messages(&bytes).for_each(|message| state.apply(&message));
}

fn up(state: &mut State, devs: &[u32]) {
    for dev in devs {
        link(state, *dev, true);
    }
}

fn down(state: &mut State, dev: u32) {
    link(state, dev, false);
}

fn with_links(devs: &[u32]) -> State {
    let mut state = State::default();
    up(&mut state, devs);
    state.take_changes();
    state
}

fn send(state: &mut State, frames: &[Vec<u8>]) -> Vec<RouteKey> {
    apply_stream(state, &frames.concat()).expect("valid frames");
    state.take_changes().routes
}

fn hops<'a>(state: &'a State, prefix: &str) -> Option<&'a [NextHop]> {
    let route = state.node.routes.get(&key(prefix))?;
    Some(&route.next_hops)
}

#[test]
fn the_replay_of_zebra_has_every_route_but_the_kernels() {
    let mut state = with_links(&[2, 3, 5]);
    apply_stream(&mut state, ZEBRA).expect("valid frames");
    state.resolve_objects();
    let prefixes: Vec<_> = state
        .node
        .routes
        .keys()
        .map(|it| it.prefix.to_string())
        .collect();
    let expected = [
        "192.0.2.0/24",
        "198.51.100.0/24",
        "2001:db8:1::/64",
        "2001:db8:2::/64",
        "2001:db8:3::/64",
        "2001:db8:4::/64",
        "fcbb:bbbb:1::/48",
        "fcbb:bbbb:1:fe01::/64",
        "fcbb:bbbb:1:fe06::/64",
    ];
    assert_eq!(prefixes, expected);
    assert!(
        state
            .node
            .routes
            .values()
            .all(|route| !route.owner.in_kernel())
    );

    let single = |prefix| match hops(&state, prefix) {
        Some([hop]) => hop,
        other => panic!("{prefix}: {other:?}"),
    };
    assert_eq!(single("2001:db8:1::/64"), &hop("fd00::2", 2));
    assert_eq!(hops(&state, "2001:db8:3::/64").map(<[_]>::len), Some(2));
    assert_eq!(hops(&state, "198.51.100.0/24").map(<[_]>::len), Some(2));
    assert_eq!(
        state.node.routes[&key("2001:db8:4::/64")].kind,
        RouteKind::Blackhole
    );
    let Some(Encap::Seg6(encap)) = &single("2001:db8:2::/64").encap else {
        panic!("no segments");
    };
    let segment: Vec<std::net::Ipv6Addr> =
        vec!["fcbb:bbbb:2:3:fe06::".parse().expect("an address")];
    assert_eq!((encap.mode, &encap.segments), (EncapMode::Encap, &segment));
    let local = |prefix| match &single(prefix).encap {
        Some(Encap::Seg6Local(local)) => local.clone(),
        other => panic!("{prefix}: {other:?}"),
    };
    assert_eq!(local("fcbb:bbbb:1::/48").flavors.next_csid, Some((32, 16)));
    let adjacency = local("fcbb:bbbb:1:fe01::/64");
    assert_eq!(adjacency.action, Behavior::EndX);
    assert_eq!(adjacency.oif, Some(IfIndex(3)));
    // FRR sets the flavor NEXT-C-SID here as well, and the kernel ignores it.
    let decap = local("fcbb:bbbb:1:fe06::/64");
    assert_eq!(
        (decap.action, decap.flavors.is_empty()),
        (Behavior::EndDt6, true)
    );
}

#[test]
fn the_replay_of_frr_10_3_has_the_same_routes_but_ua() {
    let (node, result) = node_of(&[], ZEBRA);
    assert_eq!(result, Ok(()));
    let (older, result) = node_of(&[], &ZEBRA_10_3[..2540]);
    assert_eq!(result, Ok(()));
    let (last, result) = node_of(&[], ZEBRA_10_3);
    assert_eq!((last.routes.len(), result), (0, Ok(())));
    let missing: Vec<_> = node
        .routes
        .keys()
        .filter(|key| !older.routes.contains_key(key))
        .collect();
    assert_eq!(missing, [&key("fcbb:bbbb:1:fe01::/64")]);
    assert_eq!(older.routes.len(), node.routes.len() - 1);
}

#[test]
fn every_prefix_of_a_replay_is_incomplete_or_valid() {
    for replay in [ZEBRA, ZEBRA_10_3] {
        for length in 0..replay.len() {
            let (_, result) = node_of(&[], &replay[..length]);
            assert_eq!(result, Ok(()), "{length} bytes");
        }
    }
}

#[test]
fn what_the_encoder_writes_is_read_again() {
    let encap = Encap::Seg6(Seg6Encap {
        mode: EncapMode::Encap,
        segments: vec!["fc00:2::1".parse().expect("an address")],
        hmac: None,
        tunsrc: None,
        lookup: None,
    });
    let local = Encap::Seg6Local(Seg6Local::new(Behavior::End));
    let with = |encap: &Encap, hop: NextHop| NextHop {
        encap: Some(encap.clone()),
        ..hop
    };
    let mut state = with_links(&[2, 3]);
    let all = [
        route("10.0.0.0/8", &[hop("10.1.0.1", 2), hop("10.2.0.1", 3)]),
        route("fc00:a::/64", &[with(&encap, hop("fd00::2", 2))]),
        route("fc00:b::1/128", &[with(&local, hop("", 3))]),
        route("::/0", &[hop("fd00::2", 2)]),
    ];
    let mut sent: Vec<_> = all.iter().map(|route| ZEBRAS.route(route)).collect();
    assert_eq!(send(&mut state, &sent).len(), all.len());
    for route in &all {
        assert_eq!(state.node.routes.get(&route.key), Some(route));
    }
    sent = all
        .iter()
        .map(|route| ZEBRAS.withdraw(&route.key, 186))
        .collect();
    assert_eq!(send(&mut state, &sent).len(), all.len());
    assert!(state.node.routes.is_empty());
}

#[test]
fn routes_follow_their_nexthop_objects() {
    let mut state = with_links(&[2, 3]);
    // Routes and groups may come before the objects that they refer to.
    send(
        &mut state,
        &[
            ZEBRAS.group(9, &[1, 2]),
            ZEBRAS.route(&by_object("fc00:a::/64", 9)),
        ],
    );
    let unknown = &hops(&state, "fc00:a::/64").expect("a route")[0];
    assert_eq!(
        unknown.encap,
        Some(Encap::Unsupported("unknown nexthop object 9".into()))
    );
    send(&mut state, &[ZEBRAS.next_hop(1, &hop("fd00::1", 2))]);
    assert_eq!(hops(&state, "fc00:a::/64"), Some(&[hop("fd00::1", 2)][..]));
    let changed = send(&mut state, &[ZEBRAS.next_hop(2, &hop("fd00::2", 3))]);
    assert_eq!(changed, [key("fc00:a::/64")]);
    assert_eq!(hops(&state, "fc00:a::/64").map(<[_]>::len), Some(2));
    send(&mut state, &[ZEBRAS.remove(1)]);
    assert_eq!(hops(&state, "fc00:a::/64"), Some(&[hop("fd00::2", 3)][..]));
}

#[test]
fn the_ids_of_the_kernels_objects_are_separate() {
    let mut state = with_links(&[2, 3]);
    send(&mut state, &[ZEBRAS.next_hop(1, &hop("fd00::1", 2))]);
    // The kernel's object has the same ID and another next hop.
    let of_kernel = ZEBRAS.next_hop(1, &hop("fd00::9", 3));
    messages(&of_kernel[HEADER..]).for_each(|message| state.apply(&message));
    send(&mut state, &[ZEBRAS.route(&by_object("fc00:a::/64", 1))]);
    assert_eq!(hops(&state, "fc00:a::/64"), Some(&[hop("fd00::1", 2)][..]));
}

#[test]
fn a_route_of_fpm_precedes_the_kernels_route_with_its_key() {
    let mut state = with_links(&[2, 3]);
    let of_kernel = ZEBRAS.route(&route("fc00:a::/64", &[hop("fd00::9", 3)]));
    let apply = |state: &mut State, bytes: &[u8]| {
        messages(&bytes[HEADER..]).for_each(|message| state.apply(&message));
        state.take_changes().routes
    };
    let owner = |state: &State| state.node.routes[&key("fc00:a::/64")].owner;
    apply(&mut state, &of_kernel);
    assert_eq!(owner(&state), Owner::Kernel);
    send(
        &mut state,
        &[ZEBRAS.route(&route("fc00:a::/64", &[hop("fd00::1", 2)]))],
    );
    assert_eq!(owner(&state), Owner::Fpm { in_kernel: true });
    // A change of the kernel's route does not change the packets' way.
    let other = ZEBRAS.route(&route("fc00:a::/64", &[hop("fd00::8", 3)]));
    assert_eq!(apply(&mut state, &other), []);
    // The link of FPM's route fails: the kernel's route is used until FRR sends another.
    down(&mut state, 2);
    state.take_changes();
    assert_eq!(owner(&state), Owner::Kernel);
    up(&mut state, &[2]);
    state.take_changes();
    assert_eq!(owner(&state), Owner::Fpm { in_kernel: true });
    let mut deleted = other;
    deleted[HEADER + 4] = libc::RTM_DELROUTE as u8;
    assert_eq!(apply(&mut state, &deleted), [key("fc00:a::/64")]);
    assert_eq!(owner(&state), Owner::Fpm { in_kernel: false });
    send(&mut state, &[ZEBRAS.withdraw(&key("fc00:a::/64"), 186)]);
    assert!(state.node.routes.is_empty());
}

#[test]
fn a_group_loses_the_members_of_a_link_that_fails() {
    let mut state = with_links(&[2, 3]);
    send(
        &mut state,
        &[
            ZEBRAS.next_hop(1, &hop("fd00::1", 2)),
            ZEBRAS.next_hop(2, &hop("fd00::2", 3)),
            ZEBRAS.group(9, &[1, 2]),
            ZEBRAS.route(&by_object("fc00:a::/64", 9)),
        ],
    );
    let dead = |state: &State| -> Vec<bool> {
        let hops = hops(state, "fc00:a::/64").expect("a route");
        hops.iter().map(|hop| hop.dead).collect()
    };
    down(&mut state, 3);
    assert_eq!(state.take_changes().routes, [key("fc00:a::/64")]);
    assert_eq!(dead(&state), [false, true]);
    // zebra sends the group again meanwhile.
    send(&mut state, &[ZEBRAS.group(9, &[2, 1])]);
    assert_eq!(dead(&state), [false, true]);
    up(&mut state, &[3]);
    state.take_changes();
    assert_eq!(dead(&state), [false, false]);
}

#[test]
fn a_replay_refreshes_and_the_sweep_removes_the_rest() {
    let mut state = with_links(&[2]);
    let kept = [
        ZEBRAS.next_hop(1, &hop("fd00::1", 2)),
        ZEBRAS.route(&by_object("fc00:a::/64", 1)),
    ];
    let gone = [
        ZEBRAS.next_hop(2, &hop("fd00::2", 2)),
        ZEBRAS.route(&by_object("fc00:b::/64", 2)),
    ];
    send(&mut state, &[&kept[..], &gone[..]].concat());
    state.mark_fpm_stale();
    let left = |state: &State| {
        let counts = state.fpm.counts();
        (counts.stale_routes, counts.stale_objects)
    };
    assert_eq!(left(&state), (2, 2));
    assert_eq!(state.take_changes().routes, [], "stale routes stay");
    let replay = [
        OTHERS.next_hop(1, &hop("fd00::1", 2)),
        OTHERS.route(&by_object("fc00:a::/64", 1)),
    ];
    assert_eq!(send(&mut state, &replay), [], "the same routes");
    assert_eq!(left(&state), (1, 1));
    state.sweep_fpm();
    assert_eq!(state.take_changes().routes, [key("fc00:b::/64")]);
    assert_eq!(left(&state), (0, 0));
    assert_eq!(
        (state.fpm.counts().routes, state.fpm.counts().objects),
        (1, 1)
    );
}

#[test]
fn a_connected_route_of_zebra_ends_the_route_that_it_replaces() {
    let mut state = with_links(&[2]);
    let own = route("fd00::/64", &[hop("fd01::1", 2)]);
    send(&mut state, &[ZEBRAS.route(&own)]);
    let connected = Route {
        protocol: libc::RTPROT_KERNEL,
        ..own
    };
    send(&mut state, &[ZEBRAS.route(&connected)]);
    assert!(state.node.routes.is_empty());
}

/// Returns the error for a frame with one message.
fn refused(kind: u16, body: &[u8]) -> String {
    let message = frame(kind, 1, 0, body);
    let length = (HEADER + message.len()) as u16;
    let bytes = [&[1, 1], &length.to_be_bytes()[..], &message].concat();
    let mut state = with_links(&[2]);
    let error = apply_stream(&mut state, &bytes).expect_err("a malformed frame");
    assert!(state.take_changes().is_empty());
    error.to_string()
}

#[test]
fn a_malformed_message_is_refused_with_its_place() {
    let six = [10, 64, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0];
    let with = |fixed: &[u8], rest: &[u8]| [fixed, rest].concat();
    let cases = [
        (
            refused(24, &six[..8]),
            "byte 20: route of 8 bytes; expected at least 12",
        ),
        (
            refused(24, &with(&[7], &six[1..])),
            "byte 20: address family 7; expected 2",
        ),
        (
            refused(24, &six),
            "byte 20: prefix length 64 with the attribute RTA_DST false",
        ),
        (
            refused(24, &with(&six, &[8, 0, 1, 0, 1, 2, 3, 4])),
            "byte 32: route attribute 1 with 4 bytes; expected 16",
        ),
        (
            refused(24, &with(&six, &[200, 0, 1, 0])),
            "byte 32: attribute of 200 bytes in 4 bytes",
        ),
        (
            refused(24, &with(&six, &[3, 0, 1, 0])),
            "byte 32: attribute of 3 bytes in 4",
        ),
        (
            refused(24, &with(&six, &[12, 0, 9, 0, 255, 255, 0, 0, 0, 0, 0, 0])),
            "byte 32: next hop of 65535 bytes in 8 bytes",
        ),
        (
            refused(104, &[0; 4]),
            "byte 20: nexthop of 4 bytes; expected at least 8",
        ),
        (refused(104, &[0; 8]), "byte 20: nexthop without an ID"),
        (
            refused(
                104,
                &[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 0, 1, 2, 3, 4, 5, 0, 0, 0],
            ),
            "byte 28: group of 5 bytes; expected a multiple of 8",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.starts_with(expected), "{error}");
    }
    let group = [0; 1025 * 8];
    let mut body = Body::new(&[0; 8]);
    body.attribute(2, &group);
    assert!(refused(104, &body.0).contains("group of 1025 members; expected at most 1024"));
}

#[test]
fn a_frame_with_one_malformed_message_changes_nothing() {
    let good = ZEBRAS.route(&route("fc00:a::/64", &[hop("fd00::1", 2)]));
    let bad = frame(24, 1, 0, &[]);
    let mut both = [&good[..], &bad].concat();
    let length = both.len() as u16;
    both[2..4].copy_from_slice(&length.to_be_bytes());
    let mut state = with_links(&[2]);
    let error = apply_stream(&mut state, &both).expect_err("a malformed route");
    assert_eq!(error.offset, good.len() + 16);
    assert_eq!(state.fpm.counts(), Counts::default());
}

#[test]
fn messages_of_unknown_types_are_skipped_and_counted() {
    let good = ZEBRAS.route(&route("fc00:a::/64", &[hop("fd00::1", 2)]));
    let mut state = with_links(&[2]);
    let mut bytes = good[..HEADER].to_vec();
    for kind in [1000, 3001, 28] {
        bytes.extend(frame(kind, 1, 0, &[9; 8]));
    }
    bytes.extend(&good[HEADER..]);
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    let decoded = decode(&bytes).expect("a frame");
    assert_eq!((decoded.messages, decoded.ignored), (4, 3));
    apply_stream(&mut state, &bytes).expect("a frame");
    assert!(hops(&state, "fc00:a::/64").is_some());
}

#[test]
fn a_sid_with_an_unknown_action_is_kept_as_unsupported() {
    let local = Seg6Local {
        table: Some(TableId(100)),
        ..Seg6Local::new(Behavior::EndDt6)
    };
    let mut sid = hop("fd00::1", 2);
    sid.encap = Some(Encap::Seg6Local(local));
    let mut frame = ZEBRAS.route(&route("fc00:a::/64", &[sid]));
    // SEG6_LOCAL_ACTION with the number of End.DT6.
    let action = [8, 0, 1, 0, 7, 0, 0, 0];
    let place = frame.windows(8).position(|bytes| bytes == action);
    frame[place.expect("an action") + 4] = 18;
    let mut state = with_links(&[2]);
    apply_stream(&mut state, &frame).expect("a frame");
    let hops = hops(&state, "fc00:a::/64").expect("the route");
    let unknown = Encap::Unsupported("seg6local action 18".into());
    assert_eq!(hops[0].encap, Some(unknown));
}

#[test]
fn headers_other_than_netlink_by_fpm_are_refused() {
    assert_eq!(frame_length(&[1, 1, 0]), Ok(None));
    assert_eq!(frame_length(&[1, 1, 0, 20]), Ok(Some(20)));
    for (header, expected) in [
        ([2, 1, 0, 20], "byte 0: FPM version 2; expected 1"),
        (
            [1, 2, 0, 20],
            "byte 1: FPM message type 2; expected 1 (netlink",
        ),
        (
            [1, 1, 0, 19],
            "byte 2: frame of 19 bytes; expected at least 20",
        ),
    ] {
        let error = frame_length(&header)
            .expect_err("a wrong header")
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_million_length_fields_cost_no_memory() {
    // Each claims the longest frame, message, attribute or next hop, and has no content.
    for filler in [0xff, 0x00, 0x01, 0x18] {
        let mut frame = vec![filler; FRAME_MAX];
        frame[..HEADER].copy_from_slice(&[1, 1, 0xff, 0xff]);
        assert!(decode(&frame).is_err());
        frame[HEADER..HEADER + 4].copy_from_slice(&((FRAME_MAX - HEADER) as u32).to_ne_bytes());
        for kind in [24, 25, 104, 105] {
            frame[HEADER + 4..HEADER + 6].copy_from_slice(&u16::to_ne_bytes(kind));
            assert!(decode(&frame).is_err(), "{filler} {kind}");
        }
    }
}

#[test]
fn routes_beyond_the_limit_are_refused() {
    let mut state = with_links(&[2]);
    let prefix = |number: usize| {
        let number = number as u32;
        RouteKey {
            prefix: ipnet::IpNet::new(IpAddr::from(number.to_be_bytes()), 32).expect("a prefix"),
            ..key("0.0.0.0/0")
        }
    };
    state.fpm.keys = (0..ROUTES_MAX).map(prefix).collect();
    let another = Route {
        key: prefix(ROUTES_MAX),
        ..route("0.0.0.0/0", &[hop("10.0.0.1", 2)])
    };
    let error = apply_stream(&mut state, &ZEBRAS.route(&another)).expect_err("too many");
    assert_eq!(error.what, "more routes than 1048576, the limit");
    // A known one can still change.
    let known = Route {
        key: prefix(5),
        ..another
    };
    assert_eq!(apply_stream(&mut state, &ZEBRAS.route(&known)), Ok(()));
}
