"""Vectors and their YAML files."""

import json
from dataclasses import dataclass, field


def forward(port, frame):
    """The frame leaves by this port."""
    return {"forward": {"port": port.name, "frame": bytes(frame).hex()}}


def drop(reason):
    """DROP_ reason of datapath/reason.h."""
    return {"drop": reason}


def kernel(reason):
    """PUNT_ reason of datapath/reason.h: the kernel gets the packet."""
    return {"kernel": reason}


SAME = "same"


def differs(outcome, why):
    """Linux differs: `outcome` is a `forward(…)` or "drop" (Linux sends no frame)."""
    return {"differs": outcome, "why": why}


def one_of(*outcomes):
    """Linux sends one of these frames (each a `forward(…)`), selected by its own hash."""
    return {"one_of": [outcome["forward"] for outcome in outcomes]}


def answer(to, message, source=None):
    """An ICMP message to the sender, beginning with its type. The checksum of ICMPv6 is 0.
    `source`: the source address, unless Linux chooses it.
    """
    expected = {"to": to, "message": bytes(message).hex()}
    return expected if source is None else {**expected, "from": source}


SILENCE = "none"
# Why Linux differs for several local SIDs in one packet.
ONE_DECREMENT = "the hop limit is checked and decremented once for all SIDs, where the packet leaves (ip6_forward)"


def copied(sid, segments_left, packet):
    """RFC 9259 2.1.1: the copy that this SID makes of the packet, with the Segments Left that it finds."""
    return {"sid": sid, "segments_left": segments_left, "packet": bytes(packet).hex()}


def skip(why):
    """The vector does not run on Linux."""
    return {"skip": why}


@dataclass
class Case:
    """One packet in, one outcome."""

    name: str
    rfc: list
    port: object
    frame: object
    expect: dict
    linux: object = None
    about: str = ""
    counters: dict = None
    earlier: list = field(default_factory=list)
    answer: object = None
    copies: list = None
    fragments: list = field(default_factory=list)

    def __post_init__(self):
        if self.linux is None:
            self.linux = skip("punted") if "kernel" in self.expect else SAME


@dataclass
class Group:
    """The cases that share one node: one file."""

    name: str
    about: str
    node: dict
    cases: list = field(default_factory=list)

    def add(self, name, rfc, port, frame, expect, linux=None, about="", counters=None, earlier=(), answer=None, copies=None,
            fragments=()):
        """Adds a case.

        `linux`: by default the same as Sidestep, or skipped if Sidestep punts the packet.
        `earlier`: ports and frames that arrive before. `answer`: the ICMP message to the sender, or
        SILENCE; by default not checked. `copies`: copies for the O-flag in the order of the SIDs;
        by default not checked. `fragments`: ports and frames that the daemon sends.
        """
        rfc = [rfc] if isinstance(rfc, str) else rfc
        self.cases.append(Case(name, rfc, port, bytes(frame), expect, linux, about, counters, earlier, answer, copies, list(fragments)))

    def text(self):
        """The YAML file."""
        lines = [
            "# Written by vectors/generate.py: do not edit. See vectors/README.md.",
            "format: 1",
            f"group: {self.name}",
            f"about: {_flow(self.about)}",
            "node:",
            "  ports:",
        ]
        lines += [f"    {name}: {_flow(port)}" for name, port in self.node["ports"].items()]
        for key in ("neighbors", "routes", "rules", "vlans", "domain", "policies", "ethers", "reflectors"):
            if self.node.get(key):
                lines.append(f"  {key}:")
                lines += [f"  - {_flow(line)}" for line in self.node[key]]
        for key in ("tunsrc", "seg6_flowlabel", "multipath_hash_seed", "hmac", "oam_rate", "local_srh", "require_seg6_enabled", "ipv4_too_big"):
            if key in self.node:
                lines.append(f"  {key}: {_flow(self.node[key])}")
        lines.append("cases:")
        for case in self.cases:
            lines.append(f"- name: {case.name}")
            if case.about:
                lines.append(f"  about: {_flow(case.about)}")
            lines.append(f"  rfc: {_flow(case.rfc)}")
            if case.earlier:
                lines.append("  earlier:")
            for port, frame in case.earlier:
                lines.append(f"  - {_flow({'port': port.name, 'frame': bytes(frame).hex()})}")
            lines.append("  in:")
            lines.append(f"    port: {case.port.name}")
            lines.append(f"    frame: {_flow(case.frame.hex())}")
            lines += _outcome("expect", case.expect, 2)
            if case.answer == SILENCE:
                lines.append("  answer: none")
            elif case.answer:
                lines.append(f"  answer: {_flow(case.answer)}")
            if case.copies:
                lines.append("  copies:")
                lines += [f"  - {_flow(copy)}" for copy in case.copies]
            elif case.copies is not None:
                lines.append("  copies: []")
            if case.fragments:
                lines.append("  fragments:")
                lines += [f"  - {_flow({'port': port.name, 'frame': bytes(frame).hex()})}" for port, frame in case.fragments]
            if case.linux == SAME:
                lines.append("  linux: same")
            elif "skip" in case.linux or "one_of" in case.linux:
                lines.append(f"  linux: {_flow(case.linux)}")
            else:
                lines.append("  linux:")
                lines += _outcome("differs", case.linux["differs"], 4)
                lines.append(f"    why: {_flow(case.linux['why'])}")
            if case.counters:
                lines.append(f"  counters: {_flow(case.counters)}")
        return "\n".join(lines) + "\n"


def _outcome(key, outcome, indent):
    space = " " * indent
    if isinstance(outcome, str):
        return [f"{space}{key}: {outcome}"]
    if "forward" in outcome:
        return [
            f"{space}{key}:",
            f"{space}  forward:",
            f"{space}    port: {outcome['forward']['port']}",
            f"{space}    frame: {_flow(outcome['forward']['frame'])}",
        ]
    (kind, reason), = outcome.items()
    return [f"{space}{key}:", f"{space}  {kind}: {reason}"]


def _flow(value):
    """YAML flow style: keys bare, strings quoted, hex frames as one string."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
