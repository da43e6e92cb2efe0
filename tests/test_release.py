"""`./dev release`: versions, changelog, bill of materials, and a whole release of a small repository."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "packaging"))

import changelog  # noqa: E402  (the path above must be set first)
import sbom  # noqa: E402

# Semantic Versioning 2.0.0, clause 11, in ascending order.
ORDERED = """1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0
1.0.1 1.2.0 1.10.0 2.0.0""".split()
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A feature.

## [0.1.0] - 2026-01-02

### Added

- The first feature.
"""
TREE = """
0 sidestep v0.2.0 (/source/crates/cli)
1 clap v4.6.7
2 strsim v0.11.1
1 libbpf-sys v1.7.0+v1.7.0
1 sidestep-wire v0.2.0 (/source/crates/wire)
2 strsim v0.11.1 (*)

0 sidestep-bench v0.2.0 (/source/bench)
1 csv v1.4.0
1 clap v4.6.7 (*)
"""
BUILD_TREE = TREE.replace("2 strsim v0.11.1\n", "2 strsim v0.11.1\n2 clap_derive v4.6.7 (proc-macro)\n")
SECONDS = 1_790_000_000
# A stand-in for the real ./dev, which needs minutes.
DEV = """#!/bin/bash
set -euo pipefail
[[ "$*" == "package $2 sidestep sidestep-dbgsym sidestep-bench sidestep-bench-dbgsym" ]]
grep -q '"0.2.0"' Cargo.lock
grep -q '"0.2.0"' bench/Cargo.lock
mkdir -p "$CARGO_TARGET_DIR"
%s
echo package >"$2/sidestep_0.2.0-1_amd64.deb"
"""
MANIFEST = """[package]
name = "{name}"
version.workspace = true
edition = "2021"
license = "MIT/Apache-2.0"
[dependencies]
{dependencies}
"""


class Versions(unittest.TestCase):
    def test_versions_are_ordered_as_semantic_versioning_orders_them(self):
        self.assertEqual(sorted(reversed(ORDERED), key=changelog.precedence), ORDERED)

    def test_what_is_not_a_semantic_version_is_refused(self):
        for wrong in ("", "1", "1.2", "v1.2.0", "1.02.0", "1.2.0-", "1.2.0-01", "1.2.0-a..b", "1.2.0+build", "1.2.0\n"):
            with self.assertRaisesRegex(changelog.Refused, "write MAJOR.MINOR.PATCH"):
                changelog.precedence(wrong)

    def test_a_version_that_is_not_greater_is_refused_with_the_next_ones(self):
        for version in ("0.1.0", "0.1.0-rc.1", "0.0.9"):
            with self.assertRaisesRegex(changelog.Refused, r"0\.1\.0, .*: choose 0\.1\.1, 0\.2\.0 or 1\.0\.0"):
                changelog.check_successor(version, "0.1.0")
        with self.assertRaisesRegex(changelog.Refused, r"choose 0\.2\.0, 0\.3\.0 or 1\.0\.0"):
            changelog.check_successor("0.1.9", "0.2.0-rc.1")
        for version in ("0.1.1-rc.1", "0.1.1", "0.2.0", "1.0.0"):
            changelog.check_successor(version, "0.1.0")


class Changelog(unittest.TestCase):
    def test_the_unreleased_entries_move_below_a_heading_with_version_and_date(self):
        text, notes = changelog.release(CHANGELOG, "0.2.0", "2026-11-26")
        self.assertEqual(notes, "### Added\n\n- A feature.\n")
        heading = "## [Unreleased]\n\n## [0.2.0] - 2026-11-26\n"
        self.assertEqual(text, CHANGELOG.replace("## [Unreleased]\n", heading))

    def test_the_first_release_has_no_older_section(self):
        first = CHANGELOG.split("\n## [0.1.0]")[0]
        text, notes = changelog.release(first, "0.2.0", "2026-11-26")
        self.assertTrue(text.endswith("## [0.2.0] - 2026-11-26\n\n### Added\n\n- A feature.\n"))
        self.assertEqual(notes, "### Added\n\n- A feature.\n")

    def test_a_release_without_entries_is_refused(self):
        released, _ = changelog.release(CHANGELOG, "0.2.0", "2026-11-26")
        for empty in (released, CHANGELOG.replace("- A feature.\n", "")):
            with self.assertRaisesRegex(changelog.Refused, "no entries below"):
                changelog.release(empty, "0.3.0", "2026-11-27")
        with self.assertRaisesRegex(changelog.Refused, "no heading"):
            changelog.release("# Changelog\n", "0.3.0", "2026-11-27")

    def test_the_changelog_of_this_repository_can_be_released(self):
        page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        self.assertEqual(page.count(changelog.UNRELEASED), 1)


class BillOfMaterials(unittest.TestCase):
    def setUp(self):
        trees = [sbom.parse_tree(tree) for tree in (TREE, BUILD_TREE)]
        packages = {crate: {"license": "MIT OR Apache-2.0"} for crate in trees[1]}
        packages["strsim", "0.11.1"] = {"license": "MIT/Apache-2.0", "repository": "https://example.org/strsim"}
        checksums = {crate: "00" * 32 for crate in trees[1] if not crate[0].startswith("sidestep")}
        self.document = sbom.document(("sidestep", "0.2.0"), trees, packages, checksums, SECONDS)
        self.components = {entry["name"]: entry for entry in self.document["components"]}

    def test_it_lists_the_crates_of_this_program_only(self):
        self.assertEqual(
            {name: entry["scope"] for name, entry in self.components.items()},
            {
                "clap": "required",
                "clap_derive": "excluded",
                "libbpf-sys": "required",
                "sidestep-wire": "required",
                "strsim": "required",
            },
        )
        self.assertEqual(self.document["metadata"]["component"]["bom-ref"], "sidestep@0.2.0")
        self.assertEqual(self.document["metadata"]["timestamp"], "2026-09-21T14:13:20Z")

    def test_a_crate_has_checksum_license_and_package_url(self):
        self.assertEqual(
            self.components["strsim"],
            {
                "type": "library",
                "bom-ref": "strsim@0.11.1",
                "name": "strsim",
                "version": "0.11.1",
                "scope": "required",
                "hashes": [{"alg": "SHA-256", "content": "00" * 32}],
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": "pkg:cargo/strsim@0.11.1",
                "externalReferences": [{"type": "vcs", "url": "https://example.org/strsim"}],
            },
        )
        self.assertEqual(self.components["libbpf-sys"]["purl"], "pkg:cargo/libbpf-sys@1.7.0%2Bv1.7.0")
        self.assertNotIn("purl", self.components["sidestep-wire"])

    def test_its_dependencies_are_those_of_the_tree(self):
        needed = {entry["ref"]: entry["dependsOn"] for entry in self.document["dependencies"]}
        self.assertEqual(needed["sidestep@0.2.0"], ["clap@4.6.7", "libbpf-sys@1.7.0+v1.7.0", "sidestep-wire@0.2.0"])
        self.assertEqual(needed["clap@4.6.7"], ["clap_derive@4.6.7", "strsim@0.11.1"])
        self.assertEqual(needed["sidestep-wire@0.2.0"], ["strsim@0.11.1"])
        self.assertEqual(set(needed), {entry["bom-ref"] for entry in self.components.values()} | {"sidestep@0.2.0"})


class Release(unittest.TestCase):
    """Releases of a repository with two programs and a stand-in for `./dev package`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        kept = (name for name in os.environ if not name.startswith(("GIT_", "CARGO_")))
        self.environment = {name: os.environ[name] for name in kept}
        for role in ("AUTHOR", "COMMITTER"):
            self.environment |= {f"GIT_{role}_NAME": "Test", f"GIT_{role}_EMAIL": "test@example.org"}
        self.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "CARGO_NET_OFFLINE": "true"}
        manifest = '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\nexclude = ["bench"]\n\n[workspace.package]\nversion = "0.1.0"\n'
        self.write("Cargo.toml", manifest)
        self.write("CHANGELOG.md", CHANGELOG)
        self.write(".gitignore", "/target\n__pycache__/\n")
        self.package("sidestep", 'shared = { path = "../shared" }')
        bench = MANIFEST.format(name="sidestep-bench", dependencies='sidestep = { path = "../crates/sidestep" }')
        self.write("bench/Cargo.toml", "[workspace]\n" + bench.replace("version.workspace = true", 'version = "0.1.0"'))
        self.write("bench/src/lib.rs", "")
        self.package("shared", "")
        self.package("unused", "")
        self.write("dev", DEV % "").chmod(0o755)
        for name in ("release.py", "changelog.py", "sbom.py"):
            (self.root / "packaging").mkdir(exist_ok=True)
            shutil.copy(ROOT / "packaging" / name, self.root / "packaging")
        for manifest in ("Cargo.toml", "bench/Cargo.toml"):
            self.run_in("cargo", "generate-lockfile", "--quiet", "--manifest-path", manifest)
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def package(self, name, dependencies):
        self.write(f"crates/{name}/Cargo.toml", MANIFEST.format(name=name, dependencies=dependencies))
        self.write(f"crates/{name}/src/lib.rs", "")

    def run_in(self, *command):
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def git(self, *arguments):
        return self.run_in("git", *arguments)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "--quiet", "--message=change")
        self.tested()

    def tested(self, failed=0):
        """Writes the record of `./dev test --all`."""
        commit = self.git("rev-parse", "HEAD")
        self.write("target/tested.json", json.dumps({"commit": commit, "failed": failed}))

    def release(self, *arguments):
        """Exit status and messages of `./dev release ARGUMENTS`."""
        command = [self.root / "packaging/release.py", *arguments]
        done = subprocess.run(command, env=self.environment, stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stderr

    def state(self):
        """What a release that did not succeed must not change."""
        tags, head = self.git("tag"), self.git("rev-parse", "HEAD")
        return tags, head, self.git("status", "--porcelain"), self.git("worktree", "list"), self.files()

    def files(self):
        return sorted(str(path.relative_to(self.root)) for path in (self.root / "target").glob("*/*"))

    def test_a_release_has_tag_commit_packages_notes_and_checksums(self):
        base = self.git("rev-parse", "HEAD")
        status, messages = self.release("0.2.0")
        self.assertEqual(status, 0, messages)
        names = ["SHA256SUMS", "release-notes.md", "sidestep-bench_0.2.0.cdx.json", "sidestep_0.2.0.cdx.json"]
        names.append("sidestep_0.2.0-1_amd64.deb")
        folder = self.root / "target/release-0.2.0"
        self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted(names))
        for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
            checksum, name = line.split("  ")
            names.remove(name)
            self.assertEqual(checksum, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        self.assertEqual(names, ["SHA256SUMS"])

        self.assertEqual(self.git("rev-parse", "HEAD^"), base)
        self.assertEqual(self.git("rev-parse", "v0.2.0^{commit}"), self.git("rev-parse", "HEAD"))
        self.assertEqual(self.git("status", "--porcelain"), "")
        changed = self.git("diff", "--name-only", "HEAD^").split()
        self.assertEqual(
            changed, ["CHANGELOG.md", "Cargo.lock", "Cargo.toml", "bench/Cargo.lock", "bench/Cargo.toml"]
        )
        manifest = tomllib.loads((self.root / "Cargo.toml").read_text(encoding="utf-8"))
        self.assertEqual(manifest["workspace"]["package"]["version"], "0.2.0")
        manifest = tomllib.loads((self.root / "bench/Cargo.toml").read_text(encoding="utf-8"))
        self.assertEqual(manifest["package"]["version"], "0.2.0")
        # Tags keep the headings of the notes.
        tag = self.git("for-each-ref", "--format=%(objecttype) %(contents)", "refs/tags/v0.2.0")
        self.assertEqual(tag, "tag Sidestep 0.2.0\n\n### Added\n\n- A feature.")
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)

    def test_the_bill_of_materials_follows_the_dependencies_of_each_program(self):
        status, messages = self.release("0.2.0", "--dry-run")
        self.assertEqual(status, 0, messages)
        for program, expected in ("sidestep", ["shared"]), ("sidestep-bench", ["shared", "sidestep"]):
            path = self.root / f"target/release-0.2.0/{program}_0.2.0.cdx.json"
            document = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual([entry["name"] for entry in document["components"]], expected)
            self.assertEqual({entry["version"] for entry in document["components"]}, {"0.2.0"})

    def test_a_dry_run_changes_no_branch_and_no_tag_and_can_be_repeated(self):
        before = self.state()[:4]
        for _ in range(2):
            status, messages = self.release("0.2.0", "--dry-run")
            self.assertEqual(status, 0, messages)
            self.assertEqual(self.state()[:4], before)
        self.assertEqual(self.release("0.2.0")[0], 0)

    def test_what_cannot_be_released_is_refused_with_the_repair(self):
        self.git("tag", "v0.3.0")
        before = self.state()
        self.assertRegex(self.refusal("0.2"), "write MAJOR.MINOR.PATCH")
        self.assertRegex(self.refusal("0.1.0"), "choose 0.1.1, 0.2.0 or 1.0.0")
        self.assertRegex(self.refusal("0.3.0"), "the tag v0.3.0 exists: choose a greater version")
        self.assertEqual(self.state(), before)
        self.write("new", "")
        self.assertRegex(self.refusal("0.2.0"), r"not committed:\n\?\? new\nCommit them, or .*`git stash")
        (self.root / "new").unlink()
        self.write("CHANGELOG.md", CHANGELOG.replace("- A feature.\n", ""))
        self.commit()
        self.assertRegex(self.refusal("0.2.0"), "no entries below .Unreleased.: describe the changes there")
        (self.root / "target/release-0.2.0/source").mkdir(parents=True)
        self.write("CHANGELOG.md", CHANGELOG)
        self.commit()
        self.assertRegex(self.refusal("0.2.0"), "git worktree remove --force")

    def test_a_release_needs_a_green_run_of_all_tests_of_its_commit(self):
        self.tested(failed=2)
        self.assertRegex(self.refusal("0.2.0"), r"with 2 failures.*run `./dev test --all` first")
        self.tested()
        self.git("commit", "--quiet", "--allow-empty", "--message=next")
        self.assertRegex(self.refusal("0.2.0"), "run `./dev test --all` first")
        (self.root / "target/tested.json").unlink()
        self.assertRegex(self.refusal("0.2.0"), "commit none")
        self.assertEqual(self.release("0.2.0", "--dry-run")[0], 0)

    def refusal(self, version):
        status, messages = self.release(version)
        self.assertEqual(status, 1, messages)
        return messages

    def test_a_failed_build_leaves_nothing(self):
        self.write("dev", DEV % "exit 3")
        self.commit()
        before = self.state()
        self.assertRegex(self.refusal("0.2.0"), "`./dev package` failed")
        self.assertEqual(self.state(), before)

    def test_a_branch_that_moves_during_the_build_gets_no_tag(self):
        # The script runs in target/release-0.2.0/source.
        self.write("dev", DEV % "echo >../../../new; git -C ../../.. add new; git -C ../../.. commit -qm new")
        self.commit()
        self.assertRegex(self.refusal("0.2.0"), "(?s)The branch has changed since the start: repeat")
        self.assertEqual((self.git("tag"), self.files()), ("", []))
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)

    def test_signals_end_the_build_and_leave_nothing(self):
        self.write("dev", DEV % "sleep 60.25 & echo $! >../../../process; wait")
        self.write(".gitignore", "/target\n__pycache__/\n/process\n")
        self.commit()
        before = self.state()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.root / "process"
            process.unlink(missing_ok=True)
            command = [self.root / "packaging/release.py", "0.2.0"]
            running = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 60
            while not (process.exists() and process.read_text(encoding="utf-8").strip()):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
            running.send_signal(number)
            self.assertEqual(running.wait(timeout=60), 128 + number)
            self.assertEqual(self.state(), before)
            sleep = Path("/proc", process.read_text(encoding="utf-8").strip(), "cmdline")
            self.assertFalse(sleep.exists() and b"60.25" in sleep.read_bytes(), "the build still runs")


if __name__ == "__main__":
    unittest.main()
