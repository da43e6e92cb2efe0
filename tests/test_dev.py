"""`./dev`, with stand-ins for cargo and for the program."""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CAMPAIGNS = sorted(path.stem for path in (ROOT / "campaigns").glob("*.yaml"))


class Dev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = Path(folder.name)
        (self.target / "release").mkdir()
        (self.target / "release/sidestep").write_bytes(b"router")
        # The stand-in builds nothing and prints the version of the real cargo.
        cargo = shutil.which("cargo")
        self.assertIsNotNone(cargo, "cargo is in PATH")
        self.program("bin/cargo", f'[ "$1" != --version ] || exec {cargo} --version')

    def program(self, name, text):
        path = self.target / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def dev(self, *arguments):
        """Result of `./dev ARGUMENTS`."""
        path = f"{self.target / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"CARGO_TARGET_DIR": str(self.target), "PATH": path}
        return subprocess.run(
            [ROOT / "dev", *arguments], env=environment, capture_output=True, encoding="utf-8", check=False
        )

    def bench(self, *arguments, failing="none"):
        """Exit code and folders of `./dev bench`, with a program that fails for one campaign."""
        log = self.target / "log"
        log.write_text("", encoding="utf-8")
        self.program("release/sidestep-bench", f'echo "$@" >>{log}\ncase "$*" in *{failing}*) exit 7 ;; esac')
        done = self.dev("bench", *arguments)
        asked = log.read_text(encoding="utf-8")
        return done.returncode, re.findall(r" -o (\S+)", asked)

    def test_a_campaign_that_fails_keeps_no_other_from_being_measured_and_is_told(self):
        for failing, expected in [("none", 0), (f"campaigns/{CAMPAIGNS[0]}.yaml", 7), ("fib\\ --quick", 7)]:
            code, folders = self.bench("/reports", failing=failing)
            self.assertEqual((code, folders), (expected, [f"/reports/{name}" for name in [*CAMPAIGNS, "fib"]]))

    def test_each_run_has_a_folder_of_its_own_unless_one_is_given(self):
        code, folders = self.bench()
        self.assertEqual(code, 0)
        (folder,) = {Path(path).parent for path in folders}
        self.assertEqual(folder.parent, self.target / "bench")
        self.assertRegex(folder.name, r"^\d{4}-\d\d-\d\d-\d{6}$")

    def test_a_large_router_is_built_with_a_warning(self):
        """tests/size.py compares the real router with the limit."""
        limit = tomllib.loads((ROOT / "tests/limits.toml").read_text(encoding="utf-8"))["router_bytes"]
        warning = f"warning: the router has {limit + 1} bytes; CI permits {limit} "
        for size, expected in [(limit, False), (limit + 1, True)]:
            (self.target / "release/sidestep").write_bytes(bytes(size))
            done = self.dev("build")
            self.assertEqual((done.returncode, warning in done.stderr), (0, expected), done.stderr)
            self.assertIn(f"release/sidestep, {size / 1e6:.2f} MB", done.stderr)


if __name__ == "__main__":
    unittest.main()
