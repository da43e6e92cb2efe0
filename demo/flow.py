#!/usr/bin/python3
"""Echo requests to an IPv6 address, without a pause, and the number of those without a reply.

flow.py ADDRESS [PREFIXES]    sends a request every 2 ms. For each line on standard input, it prints
                              the number of requests since the last line, how many of them have no
                              reply, and for how many milliseconds at most no reply arrived. That may
                              have begun before the last line. With PREFIXES, each request has another
                              destination: the same address in the next of this number of adjacent
                              /64 prefixes.
"""

import ipaddress
import os
import select
import socket
import struct
import sys
import time

INTERVAL = 0.002
PATIENCE = 0.3  # seconds until a request without a reply is lost
STRIDE = 7919
ECHO_REQUEST, ECHO_REPLY = 128, 129
ICMP6_FILTER = 1


class Flow:
    """A request has the type, an identifier, and a number of 64 bits as its data."""

    def __init__(self, address, prefixes=1):
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
        passed = [0xFFFFFFFF] * 8  # RFC 3542 3.2: a set bit blocks the type
        passed[ECHO_REPLY >> 5] &= ~(1 << (ECHO_REPLY & 31))
        self.socket.setsockopt(socket.IPPROTO_ICMPV6, ICMP6_FILTER, struct.pack("8I", *passed))
        self.address = int(ipaddress.IPv6Address(address))
        self.prefixes = prefixes
        self.identifier = os.getpid() & 0xFFFF
        self.sent = []  # times of the requests since the last report
        self.answered = []
        self.first = 0  # number of the first of them
        self.since = None  # time of the first request without a reply behind the last reply

    def send(self, now):
        number = self.first + len(self.sent)
        self.sent.append(now)
        self.answered.append(False)
        # The kernel writes the checksum.
        data = struct.pack("!BBHHHQ", ECHO_REQUEST, 0, 0, self.identifier, number & 0xFFFF, number)
        try:
            self.socket.sendto(data, (self.destination(number), 0))
        except OSError:
            pass  # without a reply, like a packet lost on the way

    def destination(self, number):
        # Neighboring requests have distant prefixes.
        return str(ipaddress.IPv6Address(self.address + (number * STRIDE % self.prefixes << 64)))

    def receive(self):
        while True:
            try:
                data = self.socket.recv(64)
            except BlockingIOError:
                return
            if len(data) != 16 or struct.unpack("!H", data[4:6])[0] != self.identifier:
                continue
            index = struct.unpack("!Q", data[8:16])[0] - self.first
            if 0 <= index < len(self.answered):
                self.answered[index] = True

    def report(self, until):
        """Ends the interval at the first request after the time `until`, and describes it."""
        count = sum(1 for sent in self.sent if sent < until)
        sent, answered = self.sent[:count], self.answered[:count]
        self.first += count
        self.sent, self.answered = self.sent[count:], self.answered[count:]
        silence = 0.0
        for time_sent, reply in zip(sent, answered):
            self.since = None if reply else self.since or time_sent
            silence = max(silence, 0.0 if self.since is None else time_sent + INTERVAL - self.since)
        return f"{count} {answered.count(False)} {silence * 1000:.0f}"

    def run(self):
        due = time.monotonic()
        asked = None
        while True:
            now = time.monotonic()
            if now >= due:
                self.send(now)
                due = max(due + INTERVAL, now - INTERVAL)
            if asked is not None and now >= asked + PATIENCE:
                print(self.report(asked), flush=True)
                asked = None
            inputs = [self.socket] + ([sys.stdin] if asked is None else [])
            ready, _, _ = select.select(inputs, [], [], max(0, due - now))
            self.receive()
            if sys.stdin in ready:
                if not os.read(0, 4096):
                    return
                asked = time.monotonic()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    Flow(sys.argv[1], *map(int, sys.argv[2:])).run()
