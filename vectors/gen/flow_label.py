"""The flow label that a headend computes for the outer header if it does not copy the inner one.

Sidestep's rule (docs: flow label) is a multiplicative hash over addresses, ports and protocol, with
20 bits, never 0. This file implements the description and does not use the data path's source.
"""

import socket

MULTIPLIER = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1
WITHOUT_PORTS = bytes(4)


def _label(words):
    state = 0
    for word in words:
        state = ((state ^ int.from_bytes(word, "little")) * MULTIPLIER) & MASK64
        state ^= state >> 32
    return ((state >> 40) & 0xFFFFF) or 1


def ports(source_port, destination_port):
    """The first four octets of a TCP, UDP or SCTP header."""
    return source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")


def label6(source, destination, protocol, first_four=WITHOUT_PORTS):
    """IPv6 inner packet: `protocol` is the Next Header of its fixed header."""
    source = socket.inet_pton(socket.AF_INET6, source)
    destination = socket.inet_pton(socket.AF_INET6, destination)
    tail = first_four + bytes([protocol]) + bytes(3)
    return _label([source[:8], source[8:], destination[:8], destination[8:], tail])


def label4(source, destination, protocol, first_four=WITHOUT_PORTS):
    """IPv4 inner packet."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    return _label([addresses, first_four + bytes([protocol]) + bytes(3)])


def label_of_frame(frame):
    """Ethernet frame that carries no IP packet: by its two addresses."""
    return _label([bytes(frame)[:8], bytes(frame)[8:12] + bytes(4)])
