//! HMAC, signed by a headend and verified by an endpoint. All packets of a flow have the same HMAC,
//! so the router can take the result from its cache.

use std::net::Ipv6Addr;

use sha1::Sha1;
use sha2::Sha256;
use sha2::digest::{Digest, Output};

use sidestep_wire::Protocol;

use super::super::customer::{
    Customer, HOST_6, NEXT, SID, TUNSRC, passed, path, path_words, received6, sent6,
};
use super::super::packet::srh;
use super::endpoint::{local, outer};
use super::headend::headend;
use super::{Arguments, Behavior, Kind, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "h.encaps.hmac.sha1",
        title: "H.Encaps, HMAC-SHA-1 signed",
        make: |asked| signed(asked, SHA_1),
        ..KIND
    },
    Kind {
        name: "h.encaps.hmac.sha256",
        title: "H.Encaps, HMAC-SHA-256 signed",
        make: |asked| signed(asked, SHA_256),
        ..KIND
    },
    Kind {
        name: "end.hmac.sha1",
        title: "End, HMAC-SHA-1 verified",
        make: |asked| verified(asked, SHA_1),
        ..KIND
    },
    Kind {
        name: "end.hmac.sha256",
        title: "End, HMAC-SHA-256 verified",
        make: |asked| verified(asked, SHA_256),
        ..KIND
    },
];

/// Defaults of all kinds in this file.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 1..=10,
    takes_rules: true,
    not_in_linux: None,
    needs_vrf: false,
    limit: false,
    least: LEAST_6,
    make: |asked| signed(asked, SHA_256),
};

/// An HMAC key of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// HMAC Key ID.
    pub id: u32,
    /// Name of the hash function for `ip sr hmac set`.
    pub algorithm: &'static str,
    /// The secret.
    pub secret: &'static str,
}

const SHA_1: Key = Key {
    id: 7,
    algorithm: "sha1",
    secret: "of the laboratory",
};
const SHA_256: Key = Key {
    id: 8,
    algorithm: "sha256",
    secret: "of the laboratory",
};

fn signed(asked: &Arguments, key: Key) -> Behavior {
    let (sids, list) = (asked.sids, path(asked.sids));
    let (segments, id) = (path_words(sids), key.id);
    let route = format!("2001:db8:d::/48 encap seg6 mode encap segs {segments} hmac {id} dev eth1");
    let behind = |inner: &[u8]| with_hmac(key, TUNSRC, &list, sids as u8 - 1, inner);
    Behavior {
        key: Some(key),
        ..headend(
            route,
            Customer::v6(asked.length),
            Protocol::ROUTING,
            &behind,
        )
    }
}

/// A packet between this SID and the next one, with an HMAC.
fn verified(asked: &Arguments, key: Key) -> Behavior {
    let customer = Customer::v6(asked.length);
    let list = passed(&[NEXT, SID], asked.sids);
    let packet = |hop_limit, destination, segments_left| {
        let inner = customer.packet(64);
        let behind = with_hmac(key, HOST_6, &list, segments_left, &inner);
        outer(Protocol::ROUTING, hop_limit, destination).emit(&behind)
    };
    Behavior {
        routes: vec![local("End")],
        key: Some(key),
        ..Behavior::passing(
            received6(&packet(64, SID, 1)),
            customer,
            sent6(&packet(63, NEXT, 0)),
        )
    }
}

/// Returns an SRH with an HMAC TLV after its segment list (RFC 8754 2.1.2) and flag H, as Linux
/// sets it.
fn with_hmac(key: Key, source: Ipv6Addr, list: &[Ipv6Addr], left: u8, inner: &[u8]) -> Vec<u8> {
    let mut packet = srh(Protocol::IPV6, left, list, inner);
    packet[1] += 5;
    packet[5] |= 8;
    let end = 8 + 16 * list.len();
    // RFC 8754 2.1.2.1: source address, Last Entry, flags, HMAC Key ID, all segments.
    let text = [
        &source.octets()[..],
        &packet[4..6],
        &key.id.to_be_bytes(),
        &packet[8..end],
    ];
    let mut hmac = match key.algorithm {
        "sha1" => hmac::<Sha1>(key.secret.as_bytes(), &text.concat()).to_vec(),
        _ => hmac::<Sha256>(key.secret.as_bytes(), &text.concat()).to_vec(),
    };
    hmac.resize(32, 0);
    // Type, length, and D with the reserved bits.
    let head = [5, 38, 0, 0];
    let tlv = head.into_iter().chain(key.id.to_be_bytes()).chain(hmac);
    packet.splice(end..end, tlv);
    packet
}

/// HMAC (RFC 2104) for keys that are not longer than a block.
fn hmac<H: Digest>(key: &[u8], text: &[u8]) -> Output<H> {
    let padded = |byte: u8| {
        let mut block = [byte; BLOCK];
        for (to, from) in block.iter_mut().zip(key) {
            *to ^= from;
        }
        block
    };
    let inner = H::new().chain_update(padded(0x36)).chain_update(text);
    let outer = H::new().chain_update(padded(0x5c));
    outer.chain_update(inner.finalize()).finalize()
}

/// Block size of both hash functions in bytes.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hmac_is_that_of_rfc_2202_and_rfc_4231() {
        let (key, text) = (b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            hex::encode(hmac::<Sha1>(key, text)),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        assert_eq!(
            hex::encode(hmac::<Sha256>(key, text)),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
