"""Headers of the vectors.

Scapy has Ethernet, IPv4, IPv6, UDP and TCP. This file defines the Segment Routing Header field by
field from the diagram in RFC 8754 section 2, so that a vector can give any field a wrong value.
"""

from scapy.fields import ByteField, IP6Field, FieldListField, ShortField, StrField
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

# https://www.iana.org/assignments/protocol-numbers
HOP_BY_HOP = 0
ICMP_PROTOCOL = 1
IPV4 = 4
TCP_PROTOCOL = 6
UDP_PROTOCOL = 17
IPV6 = 41
ROUTING = 43
FRAGMENT = 44
ESP = 50
AUTHENTICATION = 51
ICMPV6 = 58
NO_NEXT_HEADER = 59
DESTINATION_OPTIONS = 60
SCTP = 132
ETHERNET = 143


class SRH(Packet):
    """RFC 8754 section 2. `segment_list` is in wire order: Segment List[0], the last segment of the path, first."""

    name = "SRH"
    fields_desc = [
        ByteField("next_header", NO_NEXT_HEADER),
        ByteField("hdr_ext_len", None),
        ByteField("routing_type", 4),
        ByteField("segments_left", 0),
        ByteField("last_entry", None),
        ByteField("flags", 0),
        ShortField("tag", 0),
        FieldListField("segment_list", [], IP6Field("", "::")),
        StrField("tlvs", b""),
    ]

    def post_build(self, header, payload):
        """Hdr Ext Len and Last Entry of RFC 8754, unless the vector sets others."""
        if self.hdr_ext_len is None:
            assert len(header) % 8 == 0, "the TLVs must fill up to 8 octets"
            header = header[:1] + bytes([len(header) // 8 - 1]) + header[2:]
        if self.last_entry is None:
            header = header[:4] + bytes([len(self.segment_list) - 1]) + header[5:]
        return header + payload


# RFC 8754 2.1.1: padding TLVs.
PAD1 = b"\x00"
# RFC 791 3.1: No Operation and End of Option List; Router Alert (RFC 2113); Record Route; an option that nobody defined.
OPTIONS4 = {
    "no_operations": bytes([1, 1, 1, 0]),
    "router_alert": bytes([0x94, 4, 0, 0]),
    "record_route": bytes([7, 7, 8]) + bytes(4) + bytes([0]),
    "an_unknown_option": bytes([0xDE, 4, 0xAB, 0xCD]),
    "forty_octets_of_options": bytes([1] * 40),
}


def padn(length):
    """PadN TLV with `length` octets behind its two-octet head."""
    return bytes([4, length]) + bytes(length)


def tlv(kind, value):
    """Any other TLV."""
    return bytes([kind, len(value)]) + value


def hmac_tlv(key, mac=bytes(32)):
    """RFC 8754 2.1.2: the HMAC TLV."""
    return tlv(5, bytes(2) + key.to_bytes(4, "big") + mac)


def options_header(next_header, options):
    """Hop-by-Hop or Destination Options header (RFC 8200 4.3, 4.6); `options` must fill up to 8 octets."""
    assert (len(options) + 2) % 8 == 0
    return Raw(bytes([next_header, (len(options) + 2) // 8 - 1]) + options)


# RFC 8200 4.2: PadN option of 6 octets; fills the smallest options header.
OPTION_PADN_6 = b"\x01\x04\x00\x00\x00\x00"
# RFC 2711: Router Alert, MLD; with PadN of 2 octets behind it.
OPTION_ROUTER_ALERT = b"\x05\x02\x00\x00\x01\x00"
# RFC 4727: experimental option 0x1e (skip if unknown, not changed on the way).
OPTION_EXPERIMENT = b"\x1e\x04\xca\xfe\xf0\x0d"


def fragment_header(next_header, offset, more, identification=0x5EED):
    """Fragment header (RFC 8200 4.5); `offset` in units of 8 octets."""
    return Raw(
        bytes([next_header, 0]) + ((offset << 3) | int(more)).to_bytes(2, "big") + identification.to_bytes(4, "big")
    )


def authentication_header(next_header):
    """Authentication Header (RFC 4302 2) with an ICV of 12 octets; Payload Len counts words of 4 octets, less 2."""
    return Raw(bytes([next_header, 4, 0, 0]) + (0x5A).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(range(12)))


def pattern(length):
    """`length` octets 00 01 02 …, which reveal a shifted payload."""
    return bytes(index & 0xFF for index in range(length))


def _upper(source, destination, layer):
    """The layer's bytes with its checksum over the given pseudo header (RFC 8200 8.1)."""
    return Raw(bytes(IPv6(src=source, dst=destination) / layer)[40:])


def udp6(source, final_destination, data=b"sidestep", source_port=4096, destination_port=53):
    """UDP datagram whose checksum includes the final destination, the last segment of an SRH."""
    return _upper(
        source, final_destination, UDP(sport=source_port, dport=destination_port) / Raw(data)
    )


def tcp6(source, final_destination, data=b"sidestep", source_port=4096, destination_port=80):
    """TCP segment, as `udp6`."""
    return _upper(
        source,
        final_destination,
        TCP(sport=source_port, dport=destination_port, seq=1, ack=1, flags="PA") / Raw(data),
    )


def echo6(source, final_destination, data=b"sidestep"):
    """ICMPv6 echo request (RFC 4443 4.1), as `udp6`."""
    return icmp6(source, final_destination, bytes([128, 0, 0, 0, 0x12, 0x34, 0, 1]) + data)


def icmp6(source, final_destination, message):
    """Any ICMPv6 message, with its checksum."""
    checksum = _sum16(
        bytes(IPv6(src=source, dst=final_destination))[8:40]
        + len(message).to_bytes(4, "big")
        + bytes([0, 0, 0, ICMPV6])
        + message
    )
    return Raw(message[:2] + checksum.to_bytes(2, "big") + message[4:])


def _sum16(data):
    """Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\x00"
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp4(data=b"sidestep", source_port=4096, destination_port=53):
    """UDP over IPv4; Scapy computes the checksum after an IP layer."""
    return UDP(sport=source_port, dport=destination_port) / Raw(data)


def tcp4(data=b"sidestep", source_port=4096, destination_port=80):
    """TCP over IPv4, as `udp4`."""
    return TCP(sport=source_port, dport=destination_port, seq=1, ack=1, flags="PA") / Raw(data)


def ipv4(**fields):
    """IPv4 header with a fixed Identification, so that the files are the same each time."""
    return IP(**{"id": 0x1D0E, **fields})
