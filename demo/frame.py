#!/usr/bin/python3
"""Ethernet frames for the demos.

frame.py udp DESTINATION-MAC SOURCE-MAC SOURCE DESTINATION SIZE   prints a UDP frame in hexadecimal
frame.py headers HEX             prints the headers of a UDP frame
frame.py send DEV HEX [COUNT]    sends a frame, COUNT times within COUNT/10 seconds
frame.py copies DEV HEX SECONDS  prints how many frames with these bytes arrive
frame.py expect DEV HEX          waits for a UDP frame with these ports and compares it
frame.py segments DEV COUNT      waits for a frame whose SRH has COUNT segments, prints the time
"""

import ipaddress
import socket
import struct
import sys
import time

UDP, ROUTING = 17, 43
PORTS = struct.pack("!HH", 4096, 9)  # 9 is discard
ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 263, 8, 1 << 4
SECONDS = 10


def udp(destination_mac, source_mac, source, destination, size):
    """A UDP packet over IPv6 with Hop Limit 64 and Flow Label 0."""
    ethernet = bytes.fromhex((destination_mac + source_mac).replace(":", "") + "86dd")
    addresses = b"".join(ipaddress.IPv6Address(text).packed for text in (source, destination))
    payload = bytes(int(size) - 62)
    length = 8 + len(payload)
    # RFC 8200 8.1: the pseudo-header takes part in the checksum.
    words = addresses + struct.pack("!II", length, UDP) + PORTS + struct.pack("!HH", length, 0) + payload
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    ip = struct.pack("!IHBB", 6 << 28, length, UDP, 64) + addresses
    return ethernet + ip + PORTS + struct.pack("!HH", length, ~total & 0xFFFF or 0xFFFF) + payload


def headers(frame):
    """One line for each header of a frame from `udp`."""
    destination_mac, source_mac = frame[:6].hex(":"), frame[6:12].hex(":")
    source, destination = (ipaddress.IPv6Address(frame[at : at + 16]) for at in (22, 38))
    ports = struct.unpack("!HH", frame[54:58])
    yield f"Ethernet {source_mac} > {destination_mac}"
    yield f"IPv6     {source} > {destination}  hop limit {frame[21]}"
    yield f"UDP      {ports[0]} > {ports[1]}, {len(frame)} bytes in all"


def received(device, seconds=SECONDS):
    """Frames that arrive on an interface within a time. Prints `ready` once none can be missed."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as raw:
        raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        raw.bind((device, ETH_P_ALL))
        print("ready", flush=True)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            raw.settimeout(left)
            try:
                frame, auxiliary, _, (_, _, kind, _, _) = raw.recvmsg(65535, socket.CMSG_SPACE(20))
            except TimeoutError:
                return
            if kind != socket.PACKET_OUTGOING:
                yield tagged(frame, auxiliary)


def tagged(frame, auxiliary):
    """The frame with its outermost VLAN tag, which the kernel passes beside it (packet(7))."""
    for _, kind, data in auxiliary:
        status, _, _, _, _, tag, protocol = struct.unpack("IIIHHHH", data)
        if kind == PACKET_AUXDATA and status & TP_STATUS_VLAN_VALID:
            return frame[:12] + struct.pack("!HH", protocol, tag) + frame[12:]
    return frame


def expect(device, wanted):
    """Compares the first frame from port 4096 to port 9."""
    for frame in received(device):
        if frame[54:58] == PORTS:
            return "equal" if frame == wanted else f"expected {wanted.hex()}, received {frame.hex()}"
    return "no frame arrived"


def send(device, frame, count):
    """Sends a frame several times."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((device, 0))
        for _ in range(count):
            raw.send(frame)
            time.sleep(0.1)


def segments(device, count):
    """The time, in seconds, when the first packet with this number of segments arrives."""
    for frame in received(device):
        # RFC 8754 2: Last Entry is the index of the last element of the segment list.
        if frame[12:14] == b"\x86\xdd" and frame[20] == ROUTING and frame[58] + 1 == count:
            return f"{time.time():.6f}"
    return "no frame arrived"


def main(command="", *arguments):
    if command == "udp":
        print(udp(*arguments).hex())
    elif command == "headers":
        print("\n".join(headers(bytes.fromhex(arguments[0]))))
    elif command == "send":
        send(arguments[0], bytes.fromhex(arguments[1]), int("".join(arguments[2:]) or 1))
    elif command == "copies":
        wanted = bytes.fromhex(arguments[1])
        print(sum(frame == wanted for frame in received(arguments[0], float(arguments[2]))))
    elif command == "expect":
        print(expect(arguments[0], bytes.fromhex(arguments[1])))
    elif command == "segments":
        print(segments(arguments[0], int(arguments[1])))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
