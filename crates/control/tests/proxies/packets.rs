//! Random packets for a node with proxies: to a SID, and from a service; most of them right, all of them nearly.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_testkit::differential::headers::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ipv4, Ipv6, Srh, ethernet, fragment, ipv4, ipv4_set_checksum,
    ipv6, options, proto, srh,
};
use sidestep_testkit::differential::mutate;
use sidestep_testkit::random::Random;

use super::bench::NETWORK;
use super::model::{Kind, Model, Proxy};

/// A port, and a frame that arrives there.
pub fn random(model: &Model, random: &mut Random) -> (usize, Vec<u8>) {
    let proxy = random.pick(&model.proxies).clone();
    let (port, packet) = if random.one_in(3) {
        if proxy.inner == proto::ETHERNET {
            return (proxy.iface_in, frame_from_service(model, &proxy, random));
        }
        (proxy.iface_in, from_service(model, &proxy, random))
    } else {
        (*random.pick(&NETWORK), to_sid(model, &proxy, random))
    };
    let ethertype = if packet[0] >> 4 == 6 {
        ETHERTYPE_IPV6
    } else {
        ETHERTYPE_IPV4
    };
    let [to, from] = [0, 0x10].map(|kind| [2, 0, 0, 0, 0, kind + port as u8]);
    let mut frame = ethernet(to, from, ethertype, &packet);
    if random.one_in(5) {
        mutate::nearly(&mut frame, random);
    }
    // RFC 894: the link's padding.
    if random.one_in(8) {
        let bytes = random.between(1, 20);
        frame.extend(random.bytes(bytes));
    }
    (port, frame)
}

fn to_sid(model: &Model, proxy: &Proxy, random: &mut Random) -> Vec<u8> {
    let content = payload(proxy.inner, random);
    if matches!(proxy.kind, Kind::ByFlow(_)) {
        // So few chains that all of them are known at a time.
        let seed = u64::from(proxy.sid.octets()[15]) << 8 | random.below(10) as u64;
        return chain(model, proxy, content, &mut Random::new(seed));
    }
    chain(model, proxy, content, random)
}

/// A customer's packet to another one or to all, or a packet outside the chain.
fn frame_from_service(model: &Model, proxy: &Proxy, random: &mut Random) -> Vec<u8> {
    let mut frame = customers(random);
    match random.below(12) {
        0 => frame[..6].copy_from_slice(&[0xff; 6]),
        1 => frame[..6].copy_from_slice(&model.ports[proxy.iface_in].mac),
        2 => {
            // A group that no bridge forwards, or the first that one does.
            let group = random.below(17) as u8;
            frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, group]);
        }
        _ => {}
    }
    if random.one_in(5) {
        mutate::nearly(&mut frame, random);
    }
    frame
}

/// A frame between two customers: around a packet, tagged, or of something else.
fn customers(random: &mut Random) -> Vec<u8> {
    let inner = *random.pick(&[proto::IPV6, proto::IPV4]);
    let packet = plain(inner, random);
    let ethertype = if inner == proto::IPV6 {
        ETHERTYPE_IPV6
    } else {
        ETHERTYPE_IPV4
    };
    let [to, from] = [1, 2].map(|host| [2, 0xcc, 0, 0, 0, host]);
    match random.below(6) {
        0 => {
            let tagged = [&[0, 7][..], &ethertype.to_be_bytes(), &packet].concat();
            ethernet(to, from, 0x8100, &tagged)
        }
        1 => ethernet(to, from, 0x0806, &random.bytes(28)),
        _ => ethernet(to, from, ethertype, &packet),
    }
}

fn from_service(model: &Model, proxy: &Proxy, random: &mut Random) -> Vec<u8> {
    let inner = if random.one_in(12) {
        proto::IPV6
    } else {
        proxy.inner
    };
    if matches!(proxy.kind, Kind::ByFlow(_)) && random.one_in(6) {
        return icmp_error(inner, random);
    }
    let masqueraded = matches!(proxy.kind, Kind::Masquerading(_)) && !random.one_in(6);
    if !masqueraded {
        return plain(inner, random);
    }
    let content = payload(inner, random);
    let mut packet = chain(model, proxy, content, random);
    // The last segment that the service received, or its modification.
    if !random.one_in(4) {
        packet[24..40].copy_from_slice(&segment(model, random).octets());
    }
    packet
}

/// A packet in the reverse direction of its flow, from the service or from behind it.
fn icmp_error(inner: u8, random: &mut Random) -> Vec<u8> {
    let mut quoted = plain(inner, random);
    let (addresses, length, ports, protocol) = if inner == proto::IPV6 {
        (8, 16, 40, 58)
    } else {
        (12, 4, 20, 1)
    };
    let turn = |quoted: &mut Vec<u8>, at: usize, length: usize| {
        if quoted.len() >= at + 2 * length {
            quoted[at..at + 2 * length].rotate_left(length);
        }
    };
    turn(&mut quoted, addresses, length);
    turn(&mut quoted, ports, 2);
    // For each version an error and a non-error.
    let kind = *random.pick(&[1, 3, 11, 12, 8, 129]);
    let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let mut packet = plain(inner, random);
    packet.truncate(ports);
    if inner == proto::IPV6 {
        packet[6] = protocol;
        packet[4..6].copy_from_slice(&(message.len() as u16).to_be_bytes());
    } else {
        packet[9] = protocol;
        packet[2..4].copy_from_slice(&((20 + message.len()) as u16).to_be_bytes());
        ipv4_set_checksum(&mut packet);
    }
    [packet, message].concat()
}

/// An IPv6 packet whose segment list has the SID of the proxy.
fn chain(
    model: &Model,
    proxy: &Proxy,
    (next, carried): (u8, Vec<u8>),
    random: &mut Random,
) -> Vec<u8> {
    let destination = if random.one_in(30) {
        segment(model, random)
    } else {
        proxy.sid
    };
    let (mut next, mut carried) = (next, carried);
    if random.one_in(10) {
        (next, carried) = (
            proto::DESTINATION_OPTIONS,
            options(next, &option(random), &carried),
        );
    }
    if random.one_in(25) {
        let more = routing(model, proxy, random);
        (next, carried) = (proto::ROUTING, srh(&more, next, &carried));
    }
    if !random.one_in(12) {
        let list = routing(model, proxy, random);
        (next, carried) = (proto::ROUTING, srh(&list, next, &carried));
    }
    if random.one_in(10) {
        (next, carried) = (
            proto::DESTINATION_OPTIONS,
            options(next, &option(random), &carried),
        );
    }
    if random.one_in(10) {
        let option = if random.one_in(3) {
            option(random)
        } else {
            Vec::new()
        };
        (next, carried) = (proto::HOP_BY_HOP, options(next, &option, &carried));
    }
    let fields = Ipv6 {
        traffic_class: random.byte(),
        flow_label: random.next() as u32 & 0xf_ffff,
        hop_limit: hop_limit(random),
        source: Ipv6Addr::new(0xfc0e, 0, 0, 0, 0, 0, 0, random.between(1, 3) as u16),
        destination,
    };
    ipv6(&fields, next, &carried)
}

/// Few different ones, so that a dynamic proxy meets one again and compares.
fn routing(model: &Model, proxy: &Proxy, random: &mut Random) -> Srh {
    let behind = if random.one_in(25) {
        24
    } else {
        random.below(4)
    };
    let before = random.below(2);
    let mut list: Vec<_> = (0..behind).map(|_| segment(model, random)).collect();
    list.push(proxy.sid);
    list.extend((0..before).map(|_| segment(model, random)));
    let mut segments_left = behind as u8;
    // RFC 8986 5.2: reduced, without the first segment.
    if before == 0 && random.one_in(6) {
        list.pop();
    }
    if random.one_in(12) {
        segments_left = random.below(list.len() + 3) as u8;
    }
    Srh {
        list,
        segments_left,
        flags: if random.one_in(20) { random.byte() } else { 0 },
        tag: random.below(2) as u16,
        tlvs: match random.below(12) {
            0 => vec![4, 6, 0, 0, 0, 0, 0, 0],
            1 => [&[0x80, 4][..], &random.bytes(4), &[0, 0]].concat(),
            2 => [&[0x7c, 14][..], &[7; 14]].concat(),
            3 => random.bytes(8),
            // Not the length of an HMAC: the model knows no keys.
            4 if random.one_in(2) => [&[5, 30, 0, 0][..], &[9; 28]].concat(),
            _ => Vec::new(),
        },
    }
}

fn segment(model: &Model, random: &mut Random) -> Ipv6Addr {
    match random.below(12) {
        0..=2 => random.pick(&model.proxies).sid,
        3 => "2001:db8:dead::1".parse().expect("an address"),
        4 => "fc01::2".parse().expect("an address"),
        _ => Ipv6Addr::new(0xfc0a, 0, 0, 0, 0, 0, 0, random.between(1, 4) as u16),
    }
}

fn hop_limit(random: &mut Random) -> u8 {
    if random.one_in(12) {
        random.below(3) as u8
    } else {
        64
    }
}

/// An experimental option, or one that routers have to look at.
fn option(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => vec![5, 2, 0, 0],
        1 => vec![0; random.between(1, 14)],
        2 => vec![*random.pick(&[0x5e, 0x9e, 0xde]), 1, 0],
        _ => [&[0x1e, 4][..], &random.bytes(4)].concat(),
    }
}

/// Payload of an outer header, mostly of the service's inner type.
fn payload(inner: u8, random: &mut Random) -> (u8, Vec<u8>) {
    let length = random.between(0, 40);
    match random.below(12) {
        0 => (proto::UDP, random.bytes(8)),
        1 => match random.below(4) {
            0 => (proto::NO_NEXT_HEADER, Vec::new()),
            1 => (
                proto::FRAGMENT,
                fragment(proto::IPV6, 0, true, 7, &random.bytes(length)),
            ),
            2 => (proto::ETHERNET, random.bytes(60)),
            _ => (random.byte(), random.bytes(length)),
        },
        _ if inner == proto::ETHERNET => (inner, customers(random)),
        2 => {
            let other = if inner == proto::IPV6 {
                proto::IPV4
            } else {
                proto::IPV6
            };
            (other, plain(other, random))
        }
        _ => (inner, plain(inner, random)),
    }
}

/// A customer's packet.
fn plain(inner: u8, random: &mut Random) -> Vec<u8> {
    let length = if random.one_in(40) {
        random.between(1300, 1460)
    } else {
        random.between(0, 48)
    };
    let mut content = random.bytes(length);
    // Few flows, so that packets of learned flows return.
    if content.len() >= 4 && !random.one_in(8) {
        let ports = [random.below(3), random.below(2)].map(|port| 1000 + port as u16);
        content[..4].copy_from_slice(&[ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat());
    }
    let host = random.between(1, 5) as u8;
    if inner == proto::IPV6 {
        let text = match random.below(40) {
            0 => "ff02::1",
            1 => "fe80::1",
            2 => "2001:db8:dead::1",
            3 => "fc03::2",
            4 => "::1",
            _ => "2001:db8:a::1",
        };
        let fields = Ipv6 {
            traffic_class: random.byte(),
            flow_label: if random.one_in(6) {
                0
            } else {
                random.between(1, 0xf_ffff) as u32
            },
            hop_limit: hop_limit(random),
            source: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host.into()),
            destination: text.parse().expect("an address"),
        };
        if random.one_in(12) {
            let option = if random.one_in(2) {
                option(random)
            } else {
                Vec::new()
            };
            return ipv6(
                &fields,
                proto::HOP_BY_HOP,
                &options(proto::UDP, &option, &content),
            );
        }
        return ipv6(&fields, proto::UDP, &content);
    }
    let first = *random.pick(&[
        198, 198, 198, 198, 198, 198, 198, 198, 198, 198, 224, 255, 127, 10, 203,
    ]);
    let fields = Ipv4 {
        tos: random.byte(),
        id: random.next() as u16,
        fragment: if random.one_in(10) { 0x2000 } else { 0 },
        ttl: hop_limit(random),
        source: Ipv4Addr::new(192, 0, 2, host),
        destination: Ipv4Addr::new(first, 51, 100, host),
    };
    ipv4(&fields, proto::UDP, &content)
}
