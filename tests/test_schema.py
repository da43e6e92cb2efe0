"""The JSON Schema of the node file, against the program and all node files of the repository."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from test_docs import ROOT, sidestep

try:
    import jsonschema
except ModuleNotFoundError:
    jsonschema = None

SCHEMA = json.loads((ROOT / "docs/reference/node-file.schema.json").read_text(encoding="utf-8"))

ACCEPTED = """
ports:
ports: []
ports: [eth0, eth1.7]
ports: {eth0: }
ports: {eth0: {mtu: 68, hop_limit: 255, rp_filter: 2, seg6_require_hmac: -1, forwarding: false}}
ports: {eth0: {mac: "02:0:00:00:00:01"}, eth0.7: {vlan: {link: eth0, id: 4094, protocol: 802.1ad}}}
hmac: {4294967295: {algorithm: sha1, secret: x}}
tunsrc: "fc00::1"
seg6_flowlabel: -1
multipath_hash_seed: 4294967295
{local_srh: linux, ipv4_too_big: icmp, mode: tc}
mode: xdp-always
metrics: "[::1]:10143"
{fpm: "127.0.0.1:2620", fpm_hold: 60, fpm_reply: true}
limits: {prefixes: 16777216, route-counters: 2}
{fragment_rate: 0, fragment_burst: 1, icmp_rate: 2, icmp_burst: 3, oam_rate: 4}
{require_seg6_enabled: true, encap_lookup_main: false}
"""

REFUSED = """
[]
prots: [eth0]
ports: eth0
ports: [eth0, eth0]
ports: [a/b]
ports: [".."]
ports: [abcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefgh]
ports: {eth0: {mtu: 67}}
ports: {eth0: {mtu: "x"}}
ports: {eth0: {mac: "02:00"}}
ports: {eth0: {hop_limit: 0}}
ports: {eth0: {rp_filter: 3}}
ports: {eth0: {seg6_require_hmac: 2}}
ports: {eth0: {forwarding: 7}}
ports: {eth0: {mut: 1500}}
ports: {eth0: , eth1: {vlan: {link: eth0, id: 4095}}}
ports: {eth0: , eth1: {vlan: {link: eth0}}}
ports: {eth0: , eth1: {vlan: {link: eth0, id: 1, protocol: 802.1x}}}
routes: "fc00::/16 dev eth0"
routes: [{a: b}]
domain: 7
hmac: [7]
hmac: {0: {algorithm: sha1, secret: x}}
hmac: {7: {algorithm: md5, secret: x}}
hmac: {7: {secret: x}}
hmac: {7: {algorithm: sha1, secret: ""}}
hmac: {7: {algorithm: sha1, sceret: x}}
seg6_flowlabel: 2
multipath_hash_seed: 4294967296
oam_rate: -1
local_srh: maybe
require_seg6_enabled: 3
ipv4_too_big: drop
metrics: "10143"
fpm: "2620"
fpm_hold: -1
fpm_reply: maybe
mode: fast
limits: {prefixes: 1}
limits: {prefixes: 16777217}
limits: {tables: 9}
"""


def listed(text):
    """Allowed keys in an error of the program."""
    return set(re.search(r"expected one of (.*)", text).group(1).split(", "))


class Schema(unittest.TestCase):
    maxDiff = None

    def check(self, text):
        """Runs `sidestep check` on a node file. Returns whether it is valid, and the output."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([sidestep(), "check", "--replay", file.name], capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def errors(self, document):
        """Errors of a document by the schema."""
        if jsonschema is None:
            raise unittest.SkipTest("jsonschema (Debian package python3-jsonschema)")
        # JSON has no numbers as keys.
        document = json.loads(json.dumps(document))
        return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]

    def test_the_keys_are_those_of_the_program(self):
        # The program does not list the keys at the top, because they are many: crates/model compares them.
        keys = {
            "ports: {eth0: {nothing: 1}}": SCHEMA["$defs"]["port"]["properties"],
            "ports: {eth0: {vlan: {nothing: 1}}}": SCHEMA["$defs"]["port"]["properties"]["vlan"]["properties"],
            "hmac: {7: {nothing: 1}}": SCHEMA["$defs"]["key"]["properties"],
        }
        for text, properties in keys.items():
            self.assertEqual(listed(self.check(text)[1]), set(properties), text)

    def test_the_node_files_of_the_repository_are_valid(self):
        page = (ROOT / "docs/reference/node-file.md").read_text(encoding="utf-8")
        documents = {"page": re.search(r"tests/test_docs.py -->\n```yaml\n(.*?)```", page, re.DOTALL).group(1)}
        documents["packaged"] = (ROOT / "packaging/node.yaml").read_text(encoding="utf-8")
        documents = {name: yaml.safe_load(text) for name, text in documents.items()}
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for path in sorted((ROOT / "vectors").glob("*.yaml")):
            documents[path.name] = yaml.load(path.read_text(encoding="utf-8"), loader)["node"]  # noqa: S506
        self.assertGreater(len(documents), 40)
        for name, document in documents.items():
            self.assertEqual(self.errors(document), [], name)

    def test_schema_and_program_accept_and_refuse_the_same(self):
        for texts, valid in ((ACCEPTED, True), (REFUSED, False)):
            for text in texts.strip().splitlines():
                with self.subTest(text):
                    self.assertEqual(not self.errors(yaml.safe_load(text)), valid, "schema")
                    # A file with a secret must not be world-readable: temporary files are not.
                    by_program, output = self.check(text)
                    self.assertEqual(by_program, valid, output)


if __name__ == "__main__":
    unittest.main()
