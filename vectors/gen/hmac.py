"""HMAC of an SRH (RFC 8754 2.1.2), verified and signed. Python's `hmac` module computes it.

The text is that of Linux (net/ipv6/seg6_hmac.c): source address, Last Entry, Flags, HMAC Key ID,
Segment List. The RFC has the 16 bits behind Length (the D-bit) in front of the Key ID, which Linux
and Sidestep omit. The field has 32 octets, and SHA-1 fills 20.
"""

import hashlib
import hmac
import ipaddress

from scapy.layers.inet6 import IPv6

from .case import SAME, Group, differs, drop, forward, kernel, skip, answer
from .decap import inner4, inner6
from .flow_label import label4, label6
from .h_encaps import PORTS, TUNSRC, WHY4, WHY6, egress_of, outer
from .h_encaps_l2 import WHY6 as WHY_L2
from .h_insert import HOP_BY_HOP_FIRST, inserted
from .icmp import error
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    ETHERNET, HOP_BY_HOP, IPV4, IPV6, OPTION_PADN_6, ROUTING, SRH, UDP_PROTOCOL, hmac_tlv, ipv4, options_header, padn, tlv, udp4, udp6,
)

RFC = "8754 2.1.2.1"
FLAG = 8
# As in Linux: the text has 22 octets and 16 for each segment, and less than 256 octets in total.
SEGMENTS_MAX = 14
KEYS = {
    7: ("sha256", "a secret of sha256"),
    8: ("sha1", "another one of sha1"),
    9: ("sha256", "x" * 64),
    0xFFFFFFFF: ("sha1", "y"),
}
NO_LINUX = skip("Linux does not have this behavior")


def keys(numbers=tuple(KEYS)):
    """The keys in the format of a node file."""
    return {number: {"algorithm": KEYS[number][0], "secret": KEYS[number][1]} for number in numbers}


def field(key, source, segments, flags=FLAG, last_entry=None, secret=None):
    """The HMAC field: `segments` in the order of the wire."""
    algorithm, own = KEYS[key]
    text = ipaddress.IPv6Address(source).packed
    text += bytes([len(segments) - 1 if last_entry is None else last_entry, flags]) + key.to_bytes(4, "big")
    text += b"".join(ipaddress.IPv6Address(segment).packed for segment in segments)
    return hmac.new((secret or own).encode(), text, getattr(hashlib, algorithm)).digest().ljust(32, b"\0")


def signed(key, source, segments, before=b"", flags=FLAG, **fields):
    """An SRH with the HMAC of this key at its end; `before`: other TLVs."""
    mac = field(key, source, segments, flags)
    return SRH(segment_list=segments, flags=flags, tlvs=before + hmac_tlv(key, mac), **fields)


SIDS = {
    "end": ("fc0f::1", "End", "fc0f::1/128 encap seg6local action End dev eth0"),
    "end_psp": ("fc0f::11", "End", "fc0f::11/128 encap seg6local action End flavors psp dev eth0"),
    "end_x": ("fc0f::2", "End.X", "fc0f::2/128 encap seg6local action End.X nh6 fc01::1 dev eth0"),
    "end_t": ("fc0f::3", "End.T", "fc0f::3/128 encap seg6local action End.T table main dev eth0"),
}
DX6, DX4, DT6, DX2 = "fc0f::6", "fc0f::4", "fc0f::7", "fc0f::22"
B6_ENCAPS, B6 = "fc0f::b6e", "fc0f::b6"
CSID = "fcc0:0:f1::"
ROUTES = [words for _, _, words in SIDS.values()] + [
    f"{DX6}/128 encap seg6local action End.DX6 nh6 fc01::1 dev eth0",
    f"{DX4}/128 encap seg6local action End.DX4 nh4 198.51.100.99 dev eth0",
    f"{DT6}/128 encap seg6local action End.DT6 table main dev eth0",
    f"{DX2}/128 encap seg6local action End.DX2 oif eth1 dev eth0",
    f"{CSID}/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev eth0",
    f"{B6}/128 encap seg6local action End.B6 srh segs fc0b::5 dev eth0",
]


class Verify:
    """Adds cases of packets that arrive with an HMAC."""

    def __init__(self, group):
        self.group = group

    def at(self, name, sid, header, outcome, port=ETH0, source=HEADEND, hop_limit=64, payload=None, linux=None, about="", answered=False):
        """A packet to a SID; `outcome`: a verdict, or the (port, packet) that leaves. `answered`: with a message about the TLV."""
        payload = udp6(source, SEGMENT_1) if payload is None else payload
        arrived = IPv6(src=source, dst=sid, hlim=hop_limit, nh=ROUTING) / header / payload
        if isinstance(outcome, tuple):
            egress, packet = outcome
            outcome = forward(egress, sent(egress, packet))
        told = answer(source, error(4, 0, 40 + len(header) - 40, arrived)) if answered else None
        self.group.add(name, [RFC, "8754 2.1.2.2"] if answered else RFC, port, received(port, arrived), outcome, linux, about, answer=told)

    def advanced(self, header, source=HEADEND, payload=None, next_segment=None):
        """The packet after End."""
        header = header.copy()
        header.segments_left -= 1
        header.tlvs, header.segment_list = bytes(header.tlvs), list(header.segment_list)
        destination = next_segment or header.segment_list[header.segments_left]
        payload = udp6(source, SEGMENT_1) if payload is None else payload
        return IPv6(src=source, dst=destination, hlim=63, nh=ROUTING) / header / payload


def path(count, last):
    """A segment list of the wire whose last but one segment in the order of travel is `last`, reached with Segments Left 1."""
    return [SEGMENT_1, last][:count] + [f"fc0b::{index:x}" for index in range(0x50, 0x50 + max(0, count - 2))]


def header(key, segments, segments_left=1, source=HEADEND, **fields):
    """A signed SRH with UDP behind it."""
    return signed(key, source, segments, next_header=UDP_PROTOCOL, segments_left=segments_left, **fields)


def wrong(head, change):
    """The header with a changed HMAC field at the end of its TLVs."""
    head = head.copy()
    head.tlvs = bytes(head.tlvs[:-32]) + change(bytes(head.tlvs[-32:]))
    return head


def flipped(place, bit=1):
    """The HMAC field with one inverted bit."""
    return lambda mac: mac[:place] + bytes([mac[place] ^ bit]) + mac[place + 1:]


def add_right(verify):
    """Each algorithm, each length, each behavior."""
    end = SIDS["end"][0]
    for key in (7, 8):
        for count in range(1, SEGMENTS_MAX + 1):
            head = header(key, path(count, end))
            verify.at(f"hmac_{KEYS[key][0]}_over_{count}_segment{'s' * (count > 1)}", end, head, (ETH1, verify.advanced(head)), linux=SAME,
                      about="A reduced SRH: the SID is only in the destination address." if count == 1 else "")
        head = header(key, path(2, end))
        verify.at(f"hmac_{KEYS[key][0]}_a_second_time", end, head, (ETH1, verify.advanced(head)))
        for place in (0, 15, 19):
            verify.at(f"hmac_{KEYS[key][0]}_with_a_wrong_bit_in_octet_{place}", end, wrong(head, flipped(place)), drop("hmac_wrong"))
    verify.at("hmac_sha256_with_a_wrong_bit_in_its_last_octet", end, wrong(header(7, path(2, end)), flipped(31, 0x80)), drop("hmac_wrong"))
    verify.at("hmac_sha1_with_octets_behind_it_that_are_not_0", end, wrong(header(8, path(2, end)), flipped(20)), drop("hmac_wrong"))
    for name, key in (("a_secret_as_long_as_a_block", 9), ("the_largest_key_id", 0xFFFFFFFF)):
        head = header(key, path(3, end))
        verify.at(f"hmac_with_{name}", end, head, (ETH1, verify.advanced(head)))
    for name, (sid, _, _) in SIDS.items():
        head = header(7, path(3, sid), segments_left=2 if name == "end_psp" else 1)
        if name == "end_psp":
            head = header(7, ["fc0a::7", SEGMENT_1, sid], segments_left=2)
        verify.at(f"hmac_at_{name}", sid, head, (ETH1, verify.advanced(head)))
        verify.at(f"hmac_wrong_at_{name}", sid, wrong(head, flipped(0)), drop("hmac_wrong"))
    sid = SIDS["end_psp"][0]
    head = header(8, path(2, sid))
    verify.at("hmac_goes_with_the_srh_at_a_penultimate_segment", sid, head,
              (ETH1, IPv6(src=HEADEND, dst=SEGMENT_1, hlim=63, nh=UDP_PROTOCOL) / udp6(HEADEND, SEGMENT_1)))


def add_text(verify):
    """Fields inside and outside the HMAC text."""
    end = SIDS["end"][0]
    segments = path(3, end)
    good = header(7, segments)
    verify.at("hmac_of_another_source", end, good, drop("hmac_wrong"), source="fc00:aaaa::2")
    for name, other in (
        ("another_last_segment", ["fc0a::2"] + segments[1:]), ("another_first_segment", segments[:2] + ["fc0b::77"]),
        ("segments_in_another_order", [segments[0], segments[1], segments[2]][::-1]),
    ):
        head = good.copy()
        head.segment_list = other
        head.segments_left = 1
        verify.at(f"hmac_of_{name}", end if other[1] == end else other[1], head, drop("hmac_wrong"))
    head = good.copy()
    head.flags = FLAG | 0x20
    verify.at("hmac_of_other_flags", end, head, drop("hmac_wrong"))
    head = header(7, segments, flags=FLAG | 0x20)
    verify.at("hmac_with_another_flag", end, head, (ETH1, verify.advanced(head)))
    head = header(7, segments, tag=0xBEEF)
    verify.at("hmac_does_not_cover_the_tag", end, head, (ETH1, verify.advanced(head)))
    head = SRH(segment_list=segments, flags=FLAG, segments_left=1, next_header=UDP_PROTOCOL,
               tlvs=hmac_tlv(8, field(7, HEADEND, segments)))
    verify.at("hmac_of_another_key", end, head, drop("hmac_wrong"))
    head = SRH(segment_list=segments, flags=FLAG, segments_left=1, next_header=UDP_PROTOCOL,
               tlvs=hmac_tlv(7, field(7, HEADEND, segments, secret="a secret of sha512")))
    verify.at("hmac_of_another_secret", end, head, drop("hmac_wrong"))
    head = SRH(segment_list=segments, flags=FLAG, segments_left=1, next_header=UDP_PROTOCOL, tlvs=hmac_tlv(6, bytes(32)))
    verify.at("hmac_of_an_unknown_key", end, head, drop("hmac_key"), answered=True)
    head = SRH(segment_list=segments, flags=FLAG, segments_left=1, next_header=UDP_PROTOCOL, tlvs=hmac_tlv(0, bytes(32)))
    verify.at("hmac_of_key_0", end, head, drop("hmac_key"))
    for count in (SEGMENTS_MAX + 1, 16):
        verify.at(f"hmac_over_{count}_segments", end, header(7, path(count, end)), drop("hmac_segments"), answered=True,
                  about="The text would exceed Linux's buffer, so Linux drops the packet too, even with a valid HMAC.")


def add_place(verify):
    """The place of the TLV, and the flag."""
    end = SIDS["end"][0]
    segments = path(2, end)
    mac = field(7, HEADEND, segments)
    head = header(7, segments, before=padn(6))
    verify.at("hmac_behind_padding", end, head, (ETH1, verify.advanced(head)))
    verify.at("hmac_wrong_behind_padding", end, wrong(head, flipped(3)), drop("hmac_wrong"), answered=True)
    why = "As in Linux, an SRH has an HMAC if it has the flag and ends with the TLV. This SRH has none, and the packet passes."
    for name, fields in (
        ("the_flag_and_no_tlv", {"flags": FLAG}),
        ("the_flag_and_another_tlv", {"flags": FLAG, "tlvs": tlv(0x7C, bytes(38))}),
        ("the_flag_and_the_tlv_not_at_the_end", {"flags": FLAG, "tlvs": hmac_tlv(7, flipped(0)(mac)) + padn(6)}),
        ("the_flag_and_a_tlv_of_another_length", {"flags": FLAG, "tlvs": tlv(5, bytes(2) + (7).to_bytes(4, "big") + bytes(40))}),
        ("the_tlv_and_no_flag", {"tlvs": hmac_tlv(7, flipped(0)(mac))}),
    ):
        head = SRH(segment_list=segments, segments_left=1, next_header=UDP_PROTOCOL, **fields)
        verify.at(f"hmac_{name}", end, head, (ETH1, verify.advanced(head)), about=why)
        required = IPv6(src=HEADEND, dst=end, hlim=64, nh=ROUTING) / head / udp6(HEADEND, SEGMENT_1)
        verify.group.add(f"hmac_required_{name}", RFC, ETH1, received(ETH1, required), drop("hmac_missing"))


def add_ports(verify):
    """seg6_require_hmac: 0 on eth0, 1 on eth1, -1 on eth2."""
    end = SIDS["end"][0]
    segments = path(2, end)
    good = header(7, segments)
    plain = SRH(segment_list=segments, segments_left=1, next_header=UDP_PROTOCOL)
    unknown = SRH(segment_list=segments, flags=FLAG, segments_left=1, next_header=UDP_PROTOCOL, tlvs=hmac_tlv(6, bytes(32)))
    for name, head in (("right", good), ("wrong", wrong(good, flipped(0))), ("unknown", unknown), ("missing", plain)):
        verify.at(f"hmac_{name}_where_it_is_ignored", end, head, (ETH1, verify.advanced(head)), port=ETH2)
    verify.at("hmac_required_and_right", end, good, (ETH1, verify.advanced(good)), port=ETH1)
    verify.at("hmac_required_and_wrong", end, wrong(good, flipped(0)), drop("hmac_wrong"), port=ETH1)
    verify.at("hmac_required_and_unknown", end, unknown, drop("hmac_key"), port=ETH1)
    verify.at("hmac_required_and_missing", end, plain, drop("hmac_missing"), port=ETH1)
    verify.at("hmac_missing_where_it_is_not_required", end, plain, (ETH1, verify.advanced(plain)))
    transit = wrong(good, flipped(0))
    packet = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=64, nh=ROUTING) / transit / udp6(HEADEND, SEGMENT_1)
    after = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=63, nh=ROUTING) / transit / udp6(HEADEND, SEGMENT_1)
    verify.group.add("hmac_wrong_in_transit", RFC, ETH1, received(ETH1, packet), forward(ETH1, sent(ETH1, after)),
                     about="Only a node that processes the SRH reads it.")


def add_decapsulating(verify):
    """A decapsulating SID does not process the SRH, but verifies it."""
    for name, sid, upper, inner, egress_inner in (
        ("end_dx6", DX6, IPV6, inner6(64), inner6(63)), ("end_dt6", DT6, IPV6, inner6(64), inner6(63)),
        ("end_dx4", DX4, IPV4, inner4(64), inner4(63)),
    ):
        segments = [sid, "fc0a::5"]
        good = signed(7, HEADEND, segments, next_header=upper, segments_left=0)
        plain = SRH(segment_list=segments, segments_left=0, next_header=upper)
        out = (ETH1, egress_inner)
        verify.at(f"hmac_at_{name}", sid, good, out, payload=inner)
        verify.at(f"hmac_wrong_at_{name}", sid, wrong(good, flipped(7)), drop("hmac_wrong"), payload=inner)
        verify.at(f"hmac_wrong_at_{name}_where_it_is_ignored", sid, wrong(good, flipped(7)), out, payload=inner, port=ETH2)
        verify.at(f"hmac_required_and_right_at_{name}", sid, good, out, payload=inner, port=ETH1)
        verify.at(f"hmac_required_and_missing_at_{name}", sid, plain, drop("hmac_missing"), payload=inner, port=ETH1)
        packet = IPv6(src=HEADEND, dst=sid, hlim=64, nh=upper) / inner
        verify.group.add(
            f"hmac_required_and_no_srh_at_{name}", RFC, ETH1, received(ETH1, packet), forward(ETH1, sent(ETH1, egress_inner)),
            about="As in Linux, the port requires an HMAC only of packets with an SRH.",
        )
    frame = bytes(received(ETH2, inner6(64)))
    good = signed(8, HEADEND, [DX2], next_header=ETHERNET, segments_left=0)
    packet = IPv6(src=HEADEND, dst=DX2, hlim=64, nh=ROUTING)
    verify.group.add("hmac_at_end_dx2", RFC, ETH0, received(ETH0, packet / good / frame), forward(ETH1, frame))
    verify.group.add("hmac_wrong_at_end_dx2", RFC, ETH0, received(ETH0, packet / wrong(good, flipped(0)) / frame), drop("hmac_wrong"))


def add_compressed(verify):
    """NEXT-C-SID takes the next C-SID from the destination address and does not process the SRH."""
    container = "fcc0:0:f1:a1::"
    after = "fcc0:0:a1::"
    for name, flip in (("right", False), ("wrong", True)):
        head = header(7, [SEGMENT_1, "fc0b::9"], segments_left=1)
        head = wrong(head, flipped(0)) if flip else head
        arrived = IPv6(src=HEADEND, dst=container, hlim=64, nh=ROUTING) / head / udp6(HEADEND, SEGMENT_1)
        left = IPv6(src=HEADEND, dst=after, hlim=63, nh=ROUTING) / head / udp6(HEADEND, SEGMENT_1)
        verify.group.add(f"hmac_{name}_at_a_c_sid_within_a_container", RFC, ETH0, received(ETH0, arrived), forward(ETH1, sent(ETH1, left)))
    for name, flip in (("right", False), ("wrong", True)):
        head = header(7, path(2, CSID))
        head = wrong(head, flipped(0)) if flip else head
        verify.at(f"hmac_{name}_at_the_last_c_sid_of_a_container", CSID, head,
                  drop("hmac_wrong") if flip else (ETH1, verify.advanced(head)))


def add_end_b6(verify):
    """End.B6.Insert (Linux's End.B6) verifies the received SRH before it inserts another one."""
    head = header(7, path(2, B6))
    inserted = SRH(next_header=ROUTING, segments_left=1, segment_list=[B6, "fc0b::5"])
    left = IPv6(src=HEADEND, dst="fc0b::5", hlim=63, nh=ROUTING) / inserted / head / udp6(HEADEND, SEGMENT_1)
    verify.at("hmac_at_end_b6", B6, head, (ETH2, left))
    verify.at("hmac_wrong_at_end_b6", B6, wrong(head, flipped(30)), drop("hmac_wrong"))


def verified():
    """Received packets with an HMAC."""
    group = Group(
        "hmac_verify", "Verification of HMACs: eth0 verifies present ones, eth1 requires one, eth2 ignores them.",
        node(
            routes=ROUTES + ["fcc0:0:a1::/48 via fc01::1 dev eth1"], hmac=keys(),
            settings={"eth1": {"seg6_require_hmac": 1}, "eth2": {"seg6_require_hmac": -1}},
        ),
    )
    verify = Verify(group)
    add_right(verify)
    add_text(verify)
    add_place(verify)
    add_ports(verify)
    add_decapsulating(verify)
    add_compressed(verify)
    add_end_b6(verify)
    return group


def own_behaviors():
    """Behaviors that only Sidestep has."""
    usd, proxy = "fc0f::5d", "fc0f::ad"
    group = Group(
        "hmac_verify_own", "Verification of HMACs at SIDs that Linux does not have.",
        node(
            routes=[
                f"{usd}/128 encap seg6local action End flavors usd dev eth0",
                f"{proxy}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 dev eth2",
            ],
            hmac=keys((7,)),
        ),
    )
    verify = Verify(group)
    good = signed(7, HEADEND, [usd, "fc0a::5"], next_header=IPV6, segments_left=0)
    verify.at("hmac_at_end_usd", usd, good, (ETH1, inner6(63)), payload=inner6(64), linux=NO_LINUX)
    verify.at("hmac_wrong_at_end_usd", usd, wrong(good, flipped(0)), drop("hmac_wrong"), payload=inner6(64), linux=NO_LINUX)
    unknown = SRH(segment_list=[usd], flags=FLAG, segments_left=0, next_header=IPV6, tlvs=hmac_tlv(8, bytes(32)))
    verify.at("hmac_of_an_unknown_key_at_end_usd", usd, unknown, drop("hmac_key"), payload=inner6(64), linux=NO_LINUX)
    segments = ["2001:db8:b::9", SEGMENT_1, proxy]
    good = signed(7, HEADEND, segments, next_header=IPV6, segments_left=2)
    bad = received(ETH0, IPv6(src=HEADEND, dst=proxy, hlim=64, nh=ROUTING) / wrong(good, flipped(0)) / inner6(64))
    group.add("hmac_wrong_at_end_ad", RFC, ETH0, bad, drop("hmac_wrong"), NO_LINUX)
    group.add("hmac_wrong_at_end_ad_teaches_nothing", RFC, ETH2, received(ETH2, inner6(62)), drop("not_learned"), NO_LINUX,
              earlier=[(ETH0, bad)])
    after = signed(7, HEADEND, segments, next_header=IPV6, segments_left=1)
    left = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=63, nh=ROUTING, tc=0x28, fl=0x0BEEF) / after / inner6(61)
    group.add(
        "hmac_at_end_ad_is_put_on_again", RFC, ETH2, received(ETH2, inner6(62)), forward(ETH1, sent(ETH1, left)), NO_LINUX,
        earlier=[(ETH0, received(ETH0, IPv6(src=HEADEND, dst=proxy, hlim=64, nh=ROUTING) / good / inner6(64)))],
        about="Segments Left is not in the text, so the HMAC is valid for the next verifier.",
    )
    return group


def prefix(number):
    """The customer prefix of the route with this number."""
    return f"2001:db8:{0x5000 + number:x}::"


class Sign:
    """Adds routes with `hmac` and the resulting packets."""

    def __init__(self):
        self.routes, self.cases = [], []

    def route(self, mode, segments, key):
        """The next prefix."""
        number = len(self.routes) + 1
        self.routes.append(
            f"{prefix(number)}/48 encap seg6 mode {mode} segs {','.join(segments)} hmac {key} dev {egress_of(segments).name}"
        )
        return f"{prefix(number)}1"

    def srh(self, key, listed, source, next_header, segments_left):
        """The SRH that is pushed."""
        return signed(key, source, listed, next_header=next_header, segments_left=segments_left)

    def encaps(self, name, mode, segments, key, frame=False, reduced=False):
        """`encap`, `encap.red`, `l2encap`, `l2encap.red` of an IPv6 packet."""
        to = self.route(mode, segments, key)
        listed = (segments[1:] if reduced and len(segments) > 1 else segments)[::-1]
        upper = ETHERNET if frame else IPV6
        srh = self.srh(key, listed, TUNSRC, upper, len(segments) - 1)

        def inner(limit):
            return IPv6(src=HOST_0, dst=to, hlim=limit, nh=UDP_PROTOCOL) / udp6(HOST_0, to)

        label = label6(HOST_0, to, UDP_PROTOCOL, PORTS)
        arrived = received(ETH0, inner(64))
        egress = egress_of(segments)
        ours = outer(segments[0], ROUTING, hop_limit=64, label=label) / srh / (arrived if frame else inner(63))
        linux = outer(segments[0], ROUTING, hop_limit=63, label=0) / srh / (arrived if frame else inner(64))
        self.cases.append((
            name, arrived, forward(egress, sent(egress, ours)),
            differs(forward(egress, sent(egress, linux)), WHY_L2 if frame else WHY6),
        ))

    def inline(self, name, segments, key, source=HOST_0, hop_limit=64):
        """`inline`: signed with the packet's own source and destination."""
        to = self.route("inline", segments, key)
        self.inserted(name, to, segments, key, source, hop_limit)

    def inserted(self, name, to, segments, key, source=HOST_0, hop_limit=64):
        """By the route to this destination."""
        srh = self.srh(key, [to] + segments[::-1], source, UDP_PROTOCOL, len(segments))
        egress = egress_of(segments)
        arrived = IPv6(src=source, dst=to, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(source, to)
        left = IPv6(src=source, dst=segments[0], hlim=hop_limit - 1, nh=ROUTING) / srh / udp6(source, to)
        self.cases.append((name, received(ETH0, arrived), forward(egress, sent(egress, left)), SAME))

    def inserted_behind_hop_by_hop(self, name, segments, key):
        """The SRH is behind the Hop-by-Hop header, and the signature covers the same text."""
        to = self.route("inline", segments, key)
        egress, options, udp = egress_of(segments), OPTION_PADN_6, udp6(HOST_0, to)

        def outer(next_header):
            return IPv6(src=HOST_0, dst=segments[0], hlim=63, nh=next_header)

        def srh(next_header):
            return self.srh(key, [to] + segments[::-1], HOST_0, next_header, len(segments))

        ours, linux = inserted(outer, options, UDP_PROTOCOL, srh, udp)
        arrived = IPv6(src=HOST_0, dst=to, hlim=64, nh=HOP_BY_HOP) / options_header(UDP_PROTOCOL, options) / udp
        self.cases.append((name, received(ETH0, arrived), forward(egress, sent(egress, ours)),
                           differs(forward(egress, sent(egress, linux)), HOP_BY_HOP_FIRST)))

    def left_to_the_kernel(self, name, mode, segments, key):
        """Punted packets, which Sidestep does not sign."""
        to = self.route(mode, segments, key)
        arrived = IPv6(src=HOST_0, dst=to, hlim=64, nh=UDP_PROTOCOL) / udp6(HOST_0, to)
        self.cases.append((name, received(ETH0, arrived), kernel("hmac"), None))


def segments_of(count):
    """Segments in the order of travel."""
    return [f"fc0a::{index:x}" if index % 2 else f"fc0b::{index:x}" for index in range(1, count + 1)]


def signing():
    """Packets that headends sign."""
    sign = Sign()
    for key in (7, 8):
        name = KEYS[key][0]
        for count in (1, 2, 4, 10, SEGMENTS_MAX):
            sign.encaps(f"hmac_signs_{name}_h_encaps_of_{count}", "encap", segments_of(count), key)
        for count in range(1, SEGMENTS_MAX):
            sign.inline(f"hmac_signs_{name}_h_insert_of_{count}", segments_of(count), key)
        for count in (1, 2, 3, SEGMENTS_MAX):
            sign.encaps(f"hmac_signs_{name}_h_encaps_red_of_{count}", "encap.red", segments_of(count), key, reduced=True)
        for count in (1, 3):
            sign.encaps(f"hmac_signs_{name}_h_encaps_l2_of_{count}", "l2encap", segments_of(count), key, frame=True)
            sign.encaps(f"hmac_signs_{name}_h_encaps_l2_red_of_{count}", "l2encap.red", segments_of(count), key, frame=True, reduced=True)
    sign.encaps("hmac_signs_with_a_secret_as_long_as_a_block", "encap", segments_of(2), 9)
    sign.inline("hmac_signs_an_insertion_with_a_secret_as_long_as_a_block", segments_of(2), 9)
    to = sign.route("inline", segments_of(3), 7)
    sign.inserted("hmac_signs_for_a_source", to, segments_of(3), 7)
    sign.inserted("hmac_signs_for_a_source_again", to, segments_of(3), 7, hop_limit=9)
    sign.inserted("hmac_signs_for_another_source", to, segments_of(3), 7, source="2001:db8:1::2")
    sign.inserted("hmac_signs_for_another_destination", f"{to[:-1]}2", segments_of(3), 7)
    sign.inserted_behind_hop_by_hop("hmac_signs_an_insertion_behind_a_hop_by_hop_header", segments_of(2), 7)
    sign.left_to_the_kernel("hmac_to_sign_with_a_key_that_is_not_there", "encap", segments_of(2), 6)
    sign.left_to_the_kernel("hmac_to_sign_over_15_segments", "encap", segments_of(15), 7)
    sign.left_to_the_kernel("hmac_to_sign_an_insertion_of_14_segments", "inline", segments_of(14), 7)
    group = Group(
        "hmac_sign", "Headends that sign the SRH that they push (`hmac KEYID`).",
        node(routes=sign.routes, tunsrc=TUNSRC, hmac=keys((7, 8, 9))),
    )
    for name, arrived, expect, linux in sign.cases:
        group.add(name, "8754 2.1.2", ETH0, arrived, expect, linux)
    for count in (1, 2):
        to = f"10.{150 + count}.0.1"
        path4 = segments_of(count)
        group.node["routes"].append(f"10.{150 + count}.0.0/24 encap seg6 mode encap segs {','.join(path4)} hmac 8 dev eth1")

        def inner(ttl, to=to):
            return ipv4(src=HOST4_0, dst=to, ttl=ttl) / udp4()

        srh = signed(8, TUNSRC, path4[::-1], next_header=IPV4, segments_left=count - 1)
        ours = outer(path4[0], ROUTING, hop_limit=64, label=label4(HOST4_0, to, UDP_PROTOCOL, PORTS)) / srh / inner(63)
        linux = outer(path4[0], ROUTING, hop_limit=63) / srh / inner(64)
        group.add(f"hmac_signs_h_encaps_of_ipv4_with_{count}", "8754 2.1.2", ETH0, received(ETH0, inner(64)), forward(ETH1, sent(ETH1, ours)),
                  differs(forward(ETH1, sent(ETH1, linux)), WHY4))
    return group


def groups():
    """Returns the vector files of this module."""
    return [verified(), own_behaviors(), signing()]
