"""The documents against the tree: current pages, valid links, an entry for every dependency."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "vectors").glob("*.md")])


def sidestep():
    """Path of the newest build of the program."""
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    found = [path for path in (target / "debug/sidestep", target / "release/sidestep") if path.exists()]
    if not found:
        raise unittest.SkipTest("sidestep is not built (cargo build -p sidestep)")
    return max(found, key=lambda path: path.stat().st_mtime)


def section(text, title):
    """The text below a heading, up to the next heading of the same level."""
    return re.search(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", text).group(1)


def first_cells(text):
    """The names in the first column of a table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")][2:]
    return {name.strip() for row in rows for name in row.split(",")}


def anchors(page):
    """Anchors of the headings of a page in a repository's web view."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)$", text)}


def first_column(text):
    """First cells of the rows of a table."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip() for line in lines if not line.startswith("| ---")} - {"File", "If it has"}


def without_tests(text):
    """Rust source up to its tests, or a whole C header."""
    return text.split("#[cfg(test)]")[0]


def rows(table):
    """Rows of a table after the header row, without the outer bars."""
    lines = [line.strip("| ") for line in table.split("\n\n")[0].splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith("---")]


class Documents(unittest.TestCase):
    maxDiff = None

    def test_generated_pages_are_current(self):
        done = subprocess.run([ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
                self.assertTrue((page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}")

    def test_links_to_headings_lead_somewhere(self):
        for page in PAGES:
            for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
                to = (page.parent / target).resolve() if target else page
                self.assertIn(anchor, anchors(to), f"{page.relative_to(ROOT)} links to {target}#{anchor}")

    def test_files_named_in_backticks_are_there(self):
        name = r"`((?:crates|datapath|docs|tests|vectors)/[\w./-]+\.(?:rs|h|c|py|md|yaml))`"
        for page in PAGES:
            for target in re.findall(name, page.read_text(encoding="utf-8")):
                self.assertTrue((ROOT / target).exists(), f"{page.relative_to(ROOT)} names {target}")

    def test_every_security_promise_names_its_proof(self):
        page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
        promises = [line.split(" | ") for table in page.split("| Promise |")[1:] for line in rows(table)]
        self.assertGreater(len(promises), 20)
        for promise, *_, proof in promises:
            files = re.findall(r"`((?:crates|vectors)/[\w./-]+)`", proof)
            targets = [f"crates/fuzz/src/bin/fuzz-{target}.rs" for target in re.findall(r"`\./dev fuzz (\w+)`", proof)]
            patterns = re.findall(r"`\.\.\.(\w+)`|the same \(", proof)
            self.assertTrue(files or targets or patterns, f"docs/explanation/security.md: no proof of {promise}")
            for path in files + targets:
                self.assertTrue((ROOT / path).exists(), f"docs/explanation/security.md names {path}")

    def test_commands_in_the_documents_are_commands_of_the_program(self):
        program = sidestep()
        known = {}
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for page in pages:
            for command in re.findall(r"(?:^|`)sidestep ((?:route )?[a-z]+)", page.read_text(encoding="utf-8"), re.M):
                if command not in known:
                    asked = [program, *command.split(), "--help"]
                    known[command] = subprocess.run(asked, capture_output=True, check=False).returncode == 0
                self.assertTrue(known[command], f"{page.relative_to(ROOT)} names `sidestep {command}`")

    def test_every_command_of_the_program_is_in_the_documents(self):
        printed = subprocess.run([sidestep(), "--help"], capture_output=True, text=True, check=True).stdout
        commands = re.findall(r"(?m)^  ([a-z]+)  ", printed.split("Options:")[0])
        self.assertGreater(len(commands), 5)
        manual = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
        for command in set(commands) - {"help"}:
            # A line break may precede the command.
            self.assertTrue(re.search(rf"sidestep\s{command}\b", manual), f"docs/ lacks `sidestep {command}`")

    def test_the_node_file_of_the_reference_is_valid(self):
        page = (ROOT / "docs/reference/node-file.md").read_text(encoding="utf-8")
        text = re.search(r"<!-- checked by tests/test_docs.py -->\n```yaml\n(.*?)```", page, re.DOTALL).group(1)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([sidestep(), "check", "--replay", file.name], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("punted to the kernel", done.stdout)

    def test_the_configuration_of_frr_is_that_of_the_demo(self):
        page = (ROOT / "docs/howto/frr.md").read_text(encoding="utf-8")
        for version, first in ("10.7", "interface lo"), ("10.3", "segment-routing"):
            script = f". demo/lib.sh; . demo/frr.sh; version={version}; configuration pe1 eth1 eth0 a pe2 b"
            done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
            # The demo has shorter timers.
            skipped = re.compile(r" *(exit|exit-address-family|hostname .*|.*\b(interval|timers)\b.*)")
            demo = [line for line in done.stdout.splitlines() if not skipped.fullmatch(line)]
            shown = re.search(rf"(?m)^```\n({first}\n(?: *\S.*\n)+)```", page).group(1).splitlines()
            if version == "10.3":
                demo = demo[-len(shown) :]
            self.assertEqual(shown, demo, version)

    def test_the_commands_for_own_sids_are_those_of_the_demo(self):
        page = (ROOT / "docs/howto/frr-own-sids.md").read_text(encoding="utf-8")
        page = page.split("## 1.")[1].split("## 3.")[0]
        demo = (ROOT / "demo/own_sids.sh").read_text(encoding="utf-8")
        demo = re.sub(r"(?m)^\t+", "", demo)
        blocks = re.findall(r"```(?:sh)?\n(.*?)```", page, re.DOTALL)
        self.assertEqual(len(blocks), 7)
        for block in blocks:
            self.assertIn(block, demo)

    def test_every_behavior_is_in_the_documents(self):
        printed = subprocess.run([sidestep(), "route", "add", "--help"], capture_output=True, text=True, check=True).stdout
        page = (ROOT / "docs/reference/behaviors.md").read_text(encoding="utf-8")
        names = re.findall(r"(?m)^  (End[\w.]*)", printed) + re.findall(r"(?m)^  [\w.]+ +(H\.[\w.]+)", printed)
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertIn(f"\n| {name} |", page)

    def test_contributing_lists_the_files_of_a_behavior(self):
        listed = section((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "A new behavior")
        always, sometimes = listed.split("Depending on")
        first, second = first_column(always), first_column(sometimes)
        optional = re.findall(r"`[\w./]+/[\w.]+`", "".join(re.findall(r"(?m)^\| .*", sometimes)))
        self.assertLessEqual(len(first) + len(optional), 15)
        sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("datapath/**/*.h")]
        rooms = {"testkit"}  # may lack a behavior
        named = {
            str(path.relative_to(ROOT))
            for path in sources
            if path.parts[len(ROOT.parts) + 1] not in rooms
            and path.name != "tests.rs"
            and re.search(r"\bEndDx6\b|_END_DX6\b|\bend_dx6\b", without_tests(path.read_text(encoding="utf-8")))
        }
        expected = {re.sub(r"^a new file in `(.*)`$", r"\1end_dx6.h", cell).strip("`") for cell in first}
        self.assertEqual(named - expected, set(), "name a behavior, but CONTRIBUTING.md does not list them")
        code = {path for path in expected if path.startswith(("crates/", "datapath/"))}
        self.assertEqual(code - named, set(), "in CONTRIBUTING.md, but do not name a behavior")
        self.assertEqual(second, {"a new attribute", "a new reason", "a new kind of rewrite"})

    def test_every_crate_that_is_used_is_explained_and_no_other(self):
        command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
        packages = []
        for workspace in (ROOT, ROOT / "bench"):
            metadata = subprocess.run(command, cwd=workspace, check=True, capture_output=True).stdout
            packages += json.loads(metadata)["packages"]
        used = {
            dependency["name"]
            for package in packages
            for dependency in package["dependencies"]
            if not dependency.get("path")
        }
        text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(first_cells(section(text, "Crates"))), sorted(used))

    def test_every_dependency_of_the_workspace_is_used(self):
        table = re.search(
            r"(?ms)^\[workspace\.dependencies\]\n(.*?)(?=^\[)", (ROOT / "Cargo.toml").read_text(encoding="utf-8")
        ).group(1)
        manifests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("crates/*/Cargo.toml"))
        external = [name for name in re.findall(r"(?m)^([\w-]+) =", table) if not name.startswith("sidestep-")]
        unused = [
            name for name in external if not re.search(rf"(?m)^{name}(\.workspace\b| = \{{ workspace\b)", manifests)
        ]
        self.assertEqual(unused, [], "in Cargo.toml, but used by no crate")

    def test_every_package_that_setup_installs_is_explained_and_no_other(self):
        script = (ROOT / "dev").read_text(encoding="utf-8")
        lists = "".join(re.findall(r"(?ms)^\w+_needs='\n(.*?)^'", script))
        installed = {line.split()[0] for line in lists.splitlines()}
        installed |= set(re.findall(r"\b(?:cargo|rustc|rustfmt)-web\b|\brust-web-\w+\b", script))
        text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(first_cells(section(text, "Debian packages"))), sorted(installed))


if __name__ == "__main__":
    unittest.main()
