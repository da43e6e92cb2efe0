"""The SR policy API: its schema against examples and against the daemon's limits, and the sample client."""

import copy
import importlib.util
import json
import re
import struct
import sys
import unittest
from ipaddress import ip_address
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/policy-api.md"
SCHEMA = json.loads((ROOT / "docs/reference/policy-batch.schema.json").read_text(encoding="utf-8"))
CLIENT = ROOT / "docs/examples/bgp_sr_policy.py"
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def example():
    """The batch of the reference page."""
    page = PAGE.read_text(encoding="utf-8")
    return json.loads(re.search(r"<!-- checked by tests/test_policy_api.py -->\n```json\n(.*?)```", page, re.DOTALL)[1])


def client():
    """The sample client as a module."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("bgp_sr_policy", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tlv(kind, value, long=False):
    """A sub-TLV (RFC 9012 2)."""
    return struct.pack("!BH" if long else "!BB", kind, len(value)) + value


def sid(text):
    """Segment Type B (RFC 9830 2.4.4.2.2)."""
    return tlv(13, bytes(2) + ip_address(text).packed)


class Schema(unittest.TestCase):
    def test_the_schema_is_valid_and_accepts_the_example(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        VALIDATOR.validate(example())

    def test_the_schema_refuses_what_the_daemon_refuses(self):
        """`an_error_names_the_field` in api/policy_batch.rs has the same mistakes."""

        def withdraw_with_path(it):
            it["operations"][1]["candidate_path"] = it["operations"][0]["candidate_path"]

        mistakes = [
            lambda it: it.update(colour=1),
            lambda it: it.pop("owner"),
            lambda it: it["owner"].update(asn=1),
            lambda it: it["owner"].update(protocol_origin="isis"),
            lambda it: it["owner"]["originator"].update(address="r1"),
            lambda it: it["operations"][0].update(owner={}),
            lambda it: it["operations"][0].update(color=2**32),
            lambda it: it["operations"][1].update(action="delete"),
            lambda it: it["operations"][0].pop("candidate_path"),
            withdraw_with_path,
            lambda it: it["operations"][0]["candidate_path"].update(segment_lists=[]),
            lambda it: it["operations"][0]["candidate_path"]["segment_lists"][0].update(segments=[]),
            lambda it: it["operations"][0]["candidate_path"]["segment_lists"][0].update(segments=["fc00::1"] * 17),
            lambda it: it["operations"][0]["candidate_path"]["segment_lists"][0].update(segments=["x"]),
            lambda it: it["operations"][0]["candidate_path"]["segment_lists"][0].update(weight=0),
            lambda it: it.update(operations=[it["operations"][1]] * 10001),
            lambda it: it["next_hops"][0].pop("dev"),
            lambda it: it["next_hops"][0].pop("backup"),
            lambda it: it["next_hops"][0].update(backup={}),
            lambda it: it["next_hops"][0].update(backup={"via": "fe80::2"}),
            lambda it: it["next_hops"][0].update(backup={"via": "fe80::2", "dev": "eth2", "mode": "encap"}),
            lambda it: it["next_hops"][0]["backup"].update(segments=["fc00::1"] * 17),
        ]
        for number, mistake in enumerate(mistakes):
            batch = copy.deepcopy(example())
            mistake(batch)
            self.assertFalse(VALIDATOR.is_valid(batch), f"mistake {number}")

    def test_the_limits_of_the_schema_are_those_of_the_daemon(self):
        def constant(name, path):
            text = (ROOT / path).read_text(encoding="utf-8")
            return int(re.search(rf"{name}: \w+ = ([\d_]+)", text)[1])

        lists = SCHEMA["$defs"]["candidate_path"]["properties"]["segment_lists"]
        segments = SCHEMA["$defs"]["segments"]
        next_hops = SCHEMA["properties"]["next_hops"]
        operations = SCHEMA["properties"]["operations"]
        for found, name, path in [
            (operations["maxItems"], "OPERATIONS_MAX", "crates/control/src/api/policy_batch.rs"),
            (lists["maxItems"], "LISTS_MAX", "crates/model/src/policy.rs"),
            (next_hops["maxItems"], "PROTECTIONS_MAX", "crates/model/src/protection.rs"),
            (segments["maxItems"], "SEGMENTS_MAX", "crates/model/src/behavior.rs"),
        ]:
            self.assertEqual(found, constant(name, path), name)


class Client(unittest.TestCase):
    def test_a_tunnel_encapsulation_attribute_is_a_candidate_path(self):
        first = tlv(9, struct.pack("!HI", 0, 3)) + sid("fc00:2::e") + sid("fc00:3::d6")
        sub_tlvs = [
            tlv(12, struct.pack("!HI", 0, 200)),
            tlv(13, bytes(2) + ip_address("fc0f::b1").packed),
            tlv(128, bytes(1) + first, long=True),
            tlv(128, bytes(1) + sid("fc00:4::e"), long=True),
            tlv(130, b"\0gold", long=True),
        ]
        value = b"".join(sub_tlvs)
        path = client().candidate_path(struct.pack("!HH", 15, len(value)) + value)
        lists = [{"segments": ["fc00:2::e", "fc00:3::d6"], "weight": 3}, {"segments": ["fc00:4::e"], "weight": 1}]
        self.assertEqual(path, {"preference": 200, "binding_sid": "fc0f::b1", "segment_lists": lists})

    def test_an_update_becomes_a_valid_batch_and_a_steered_route(self):
        module, asked = client(), []
        module.ask = asked.append
        value = tlv(128, bytes(1) + sid("fc00:2::e"), long=True)
        attributes = {23: struct.pack("!HH", 15, len(value)) + value, 16: struct.pack("!HHI", 0x030B, 0, 100)}
        policy = bytes([192]) + struct.pack("!II", 7, 100) + ip_address("fc00:3::1").packed
        owner = {"protocol_origin": "bgp", "originator": {"asn": 65001, "address": "192.0.2.1"}}
        routes, prefix = set(), bytes([48]) + ip_address("2001:db8:e::").packed[:6]
        module.apply(owner, routes, 73, policy, attributes)
        module.apply(owner, routes, 1, prefix, attributes, ip_address("fc00:3::1"))
        module.apply(owner, routes, 1, prefix)
        module.apply(owner, routes, 73, policy)
        installed, steered, unsteered, withdrawn = asked
        for request, action in ((installed, "replace"), (withdrawn, "withdraw")):
            VALIDATOR.validate(request["batch"])
            operation = request["batch"]["operations"][0]
            found = [operation[name] for name in ("action", "color", "endpoint", "discriminator")]
            self.assertEqual(found, [action, 100, "fc00:3::1", 7])
        self.assertEqual(steered["args"], ["2001:db8:e::/48", "policy", "color-100-fc00-3--1"])
        self.assertEqual((unsteered["verb"], unsteered["args"]), ("del", ["2001:db8:e::/48"]))
        self.assertEqual(routes, set())

    def test_the_client_has_at_most_100_lines(self):
        self.assertLessEqual(len(CLIENT.read_text(encoding="utf-8").splitlines()), 100)
