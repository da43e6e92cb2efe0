#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bgp_sr_policy.py PEER ASN ROUTER_ID: installs SR policies from BGP, and steers routes with a color into them."""

import json
import os
import socket
import struct
import sys
from ipaddress import ip_address


def ask(request):
    """Sends a request to Sidestep, and prints the reply."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(f"/run/sidestep/{os.stat('/proc/self/ns/net').st_ino}/control.sock")
        daemon.sendall(json.dumps({"version": 1, "request": request}).encode() + b"\n")
        print(daemon.makefile().readline(), end="", flush=True)


def split(data, is_long=lambda kind: False, at=1):
    """Type and value of each TLV. `at` is the offset of the length, which can have two octets."""
    while data:
        size = 2 if is_long(data[0]) else 1
        end = at + size + int.from_bytes(data[at : at + size])
        yield data[at - 1], data[at + size : end]
        data = data[end:]


def candidate_path(attribute):
    """The candidate path in a Tunnel Encapsulation attribute (RFC 9830 2.2 to 2.4)."""
    path = {"segment_lists": []}
    for kind, value in split(attribute[4:], lambda kind: kind > 127):
        if kind == 12:
            path["preference"] = int.from_bytes(value[2:])
        elif kind in (13, 20) and len(value) >= 18:
            path["binding_sid"] = str(ip_address(value[2:18]))
        elif kind == 128:
            parts = list(split(value[1:]))
            segments = [str(ip_address(it[2:18])) for kind, it in parts if kind == 13]
            weights = [int.from_bytes(it[2:]) for kind, it in parts if kind == 9]
            path["segment_lists"].append({"segments": segments, "weight": (weights or [1])[0]})
    return path


def apply(owner, routes, safi, nlri, attributes=None, next_hop=None):
    """Installs the policies or steers the prefixes of an UPDATE. Without attributes it withdraws them."""
    communities = struct.iter_unpack("!HHI", (attributes or {}).get(16, b""))
    colors = [color for kind, _, color in communities if kind == 0x030B]  # RFC 9012 4.3
    operations = []
    while nlri:
        length, item = nlri[0], nlri[1 : 1 + (nlri[0] + 7) // 8]
        nlri = nlri[1 + len(item) :]
        if safi == 73:
            discriminator, color = struct.unpack_from("!II", item)
            key = {"color": color, "endpoint": str(ip_address(item[8:])), "discriminator": discriminator}
            path = {"action": "replace", "candidate_path": candidate_path(attributes[23])} if attributes else None
            operations.append(key | (path or {"action": "withdraw"}))
            continue
        prefix = f"{ip_address(item.ljust(16, bytes(1)))}/{length}"
        if colors:
            policy = f"color-{max(colors)}-{next_hop}".replace(":", "-")
            ask({"op": "change", "noun": "route", "verb": "replace", "args": [prefix, "policy", policy]})
            routes.add(prefix)
        elif prefix in routes:
            ask({"op": "change", "noun": "route", "verb": "del", "args": [prefix]})
            routes.remove(prefix)
    if operations:
        ask({"op": "policy_batch", "batch": {"owner": owner, "operations": operations}})


if __name__ == "__main__":
    peer, own_asn, router_id = sys.argv[1], int(sys.argv[2]), ip_address(sys.argv[3])
    session, owner, routes = socket.create_connection((peer, 179)), None, set()

    def send(kind, body=b""):
        session.sendall(b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body)

    # IPv6 unicast, SR Policy with IPv4 and IPv6 endpoints, AS numbers of four octets
    options = bytes.fromhex("0218 010400020001 010400010049 010400020049 4104") + own_asn.to_bytes(4)
    asn = own_asn if own_asn < 65536 else 23456
    send(1, struct.pack("!BHH4sB", 4, asn, 90, router_id.packed, len(options)) + options)
    while len(header := session.recv(19, socket.MSG_WAITALL)) == 19:
        body = session.recv(int.from_bytes(header[16:18]) - 19, socket.MSG_WAITALL)
        if header[18] == 1:  # OPEN
            asn = [value for _, it in split(body[10:]) for kind, value in split(it) if kind == 65] or [body[1:3]]
            originator = {"asn": int.from_bytes(asn[0]), "address": str(ip_address(body[5:9]))}
            owner = {"protocol_origin": "bgp", "originator": originator}
        if header[18] in (1, 4):  # A KEEPALIVE for each of the peer, which follow its timer
            send(4)
        elif header[18] == 2:  # UPDATE with MP_UNREACH_NLRI or MP_REACH_NLRI; IPv4 unicast is not negotiated
            attributes = dict(split(body[4:], lambda flags: flags & 16, at=2))
            if gone := attributes.get(15):
                apply(owner, routes, gone[2], gone[3:])
            if reached := attributes.get(14):
                next_hop = ip_address(reached[4 : 4 + min(reached[3], 16)])
                apply(owner, routes, reached[2], reached[5 + reached[3] :], attributes, next_hop)
    for prefix in routes:
        ask({"op": "change", "noun": "route", "verb": "del", "args": [prefix]})
    ask({"op": "policy_batch", "batch": {"owner": owner, "complete": True, "operations": []}})
