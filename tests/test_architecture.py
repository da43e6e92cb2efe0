"""ARCHITECTURE.md against the tree: the drawn arrows are the dependencies, and C files keep layers."""

import json
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATAPATH = ROOT / "datapath"
# Permitted headers of the packet path besides its own: the kernel's UAPI and libbpf's helpers.
OUTSIDE = {
    "asm-generic/errno.h",
    "bpf/bpf_helpers.h",
    "linux/bpf.h",
    "linux/if_packet.h",
    "linux/pkt_cls.h",
    "linux/types.h",
}
# Headers of the compiler with processor instructions, and the file of the native target that
# includes them.
INSTRUCTIONS = {"immintrin.h": "sha_x86.h"}


def drawn():
    """Arrows of the picture: sets of (from, to), one for dependencies and one for those of tests."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    picture = re.search(r"```mermaid\n(.*?)```", text, re.DOTALL).group(1)
    pattern = r"(?m)^\s*(\w+)(?:\[[^\]]*\])? {} (\w+)"
    return tuple(set(re.findall(pattern.format(arrow), picture)) for arrow in ("-->", r"-\.->"))


def real():
    """The same sets from cargo."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    packages = []
    for workspace in (ROOT, ROOT / "bench"):
        metadata = subprocess.run(command, cwd=workspace, check=True, capture_output=True).stdout
        packages += json.loads(metadata)["packages"]
    room = {package["name"]: Path(package["manifest_path"]).parent.name for package in packages}
    arrows = {None: set(), "dev": set()}
    for package in packages:
        for dependency in package["dependencies"]:
            if dependency.get("path"):
                arrows[dependency["kind"]].add((room[package["name"]], room[dependency["name"]]))
    return arrows[None], arrows["dev"]


def c_sources(folder=DATAPATH):
    """Path and text of the C files."""
    for path in sorted(folder.rglob("*.[ch]")):
        yield path, path.read_text(encoding="utf-8")


def code(text):
    """C without comments."""
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


# Crates of the benchmark and of the tests, by name or by a part of it.
NOT_IN_THE_ROUTER = r"^(sidestep-(bench|lab|testkit)|csv|image|kuva|libloading|maud|statrs)$|plot|html|svg|png"


class Architecture(unittest.TestCase):
    maxDiff = None

    def test_lock_files_have_the_dependencies_of_both_workspaces(self):
        for workspace in (ROOT, ROOT / "bench"):
            command = ["cargo", "metadata", "--format-version", "1", "--locked"]
            done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_router_contains_no_crate_of_the_benchmark_or_the_tests(self):
        command = ["cargo", "tree", "--edges", "normal", "--package", "sidestep", "--prefix", "none", "--format", "{p}"]
        tree = subprocess.run([*command, "--locked"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        crates = {line.split()[0] for line in tree.splitlines() if line}
        self.assertIn("libbpf-rs", crates)
        self.assertEqual([name for name in sorted(crates) if re.search(NOT_IN_THE_ROUTER, name)], [])

    def test_the_drawn_arrows_are_the_dependencies(self):
        for drawn_arrows, real_arrows, of in zip(drawn(), real(), ("crates", "tests"), strict=True):
            self.assertEqual(sorted(drawn_arrows), sorted(real_arrows), f"arrows of {of}")

    def test_every_crate_and_folder_of_the_table_is_there_and_drawn(self):
        text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
        for path in re.findall(r"`((?:datapath|crates|bench|vectors|docs|tests)/[\w./]*)`", text):
            self.assertTrue((ROOT / path).exists(), f"ARCHITECTURE.md names {path}, which is not there")
        for crate in (ROOT / "crates").iterdir():
            self.assertRegex(text, rf"(?m)^\s+{crate.name}\[", f"crates/{crate.name} is not in the picture")

    def test_the_packet_path_includes_nothing_but_itself_and_the_kernels_headers(self):
        for path, text in c_sources():
            for quoted, angled in re.findall(r'#include (?:"([^"]+)"|<([^>]+)>)', text):
                if angled:
                    if INSTRUCTIONS.get(angled) != path.name:
                        self.assertIn(angled, OUTSIDE, path.name)
                    continue
                found = [folder / quoted for folder in (path.parent, DATAPATH) if (folder / quoted).exists()]
                self.assertTrue(found, f"{path.name} includes {quoted}")
                self.assertTrue(found[0].resolve().is_relative_to(DATAPATH), f"{path.name} includes {quoted}")

    def test_behaviors_look_nothing_up_and_write_nothing(self):
        forbidden = r"\b(env_fib_lookup|env_route|env_adjacency|env_port|env_shift|env_trim|bpf_\w+|store\w+)\s*\("
        for path, text in c_sources(DATAPATH / "behavior"):
            self.assertIsNone(re.search(forbidden, code(text)), path.name)

    def test_wire_includes_nothing_but_itself(self):
        for path, text in c_sources(DATAPATH / "wire"):
            for quoted in re.findall(r'#include "([^"]+)"', text):
                self.assertTrue((path.parent / quoted).resolve().parent == path.parent, f"{path.name} includes {quoted}")
            self.assertIsNone(re.search(r"\benv_\w+\s*\(", code(text)), path.name)

    def test_readers_look_nothing_up(self):
        for path, text in c_sources(DATAPATH / "read"):
            found = re.search(r"\benv_(fib_lookup|route|adjacency|port|policy)\s*\(", code(text))
            self.assertIsNone(found, path.name)

    def test_the_pipeline_names_no_endpoint_behavior(self):
        pipeline = (DATAPATH / "step.h").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"\b(?:SIDESTEP_ROUTE_END_\w+|end_\w+\()", code(pipeline)), [])
        self.assertLessEqual(len(pipeline.splitlines()), 400)

    def test_kernel_helpers_are_called_by_the_environments_and_targets_only(self):
        environments = {"env_xdp.h", "env_tc.h", "maps.bpf.h", "trace.bpf.h"}
        allowed = environments | {"xdp.bpf.c", "tc.bpf.c", "measure.bpf.c", "probe.bpf.c", "gate.bpf.c"}
        for path, text in c_sources():
            if path.name not in allowed:
                self.assertIsNone(re.search(r"\bbpf_\w+\s*\(", code(text)), path.name)

    def test_every_behavior_is_part_of_the_pipeline(self):
        reached, left = set(), [DATAPATH / "step.h"]
        while left:
            path = left.pop()
            for name in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
                included = next(f for f in (path.parent / name, DATAPATH / name) if f.exists()).resolve()
                if included not in reached:
                    reached.add(included)
                    left.append(included)
        lost = [path.name for path, _ in c_sources(DATAPATH / "behavior") if path.resolve() not in reached]
        self.assertEqual(lost, [])

    def test_every_c_file_says_its_licence(self):
        bpf = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
        for folder in (DATAPATH, ROOT / "crates", ROOT / "bench"):
            for path, text in c_sources(folder):
                if "target" not in path.parts:
                    self.assertIn(bpf, text.splitlines()[0], path)


if __name__ == "__main__":
    unittest.main()
