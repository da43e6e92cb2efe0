"""The limits of tests/limits.toml only fall."""

import re
import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = "tests/limits.toml"
DAEMON = ROOT / "crates/control/src/daemon"
LIVE = ROOT / "crates/cli/tests/live"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


class Limits(unittest.TestCase):
    def test_the_daemon_has_few_fields_and_a_short_loop(self):
        now = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
        for name, file in (("Daemon", "mod.rs"), ("Instance<S: System>", "instance.rs")):
            text = (DAEMON / file).read_text(encoding="utf-8")
            fields = re.search(rf"struct {name} \{{\n(.*?)\n\}}", text, re.DOTALL)[1]
            found = re.findall(r"(?m)^    (?:pub )?\w+: ", fields)
            self.assertTrue(0 < len(found) <= now["daemon_fields"], f"{name}: {found}")
        text = (DAEMON / "events.rs").read_text(encoding="utf-8")
        loop = re.search(r"(?m)^    pub fn run\(.*?^    \}", text, re.DOTALL)[0]
        self.assertLessEqual(len(loop.splitlines()), now["event_loop_lines"])

    def test_live_tests_are_few_and_few_of_them_run_alone(self):
        now = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
        tests = []
        for path in sorted(LIVE.rglob("*.rs")):
            room = "::".join(path.relative_to(LIVE).with_suffix("").parts)
            found = re.findall(r"#\[test\](?:\n#\[[^\n]*\])*\nfn (\w+)", path.read_text(encoding="utf-8"))
            tests += [f"sidestep::live::{room}::{name}" for name in found]
        self.assertTrue(0 < len(tests) <= now["live_tests"], len(tests))
        tiers = tomllib.loads((ROOT / "tests/tiers.toml").read_text(encoding="utf-8"))
        alone = [test for test in tests if any(test.startswith(it) for it in tiers["alone"])]
        self.assertTrue(0 < len(alone) <= now["live_tests_alone"], alone)

    def test_no_limit_is_greater_than_in_an_earlier_commit(self):
        now = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
        for commit in git("log", "--format=%H", "--", FILE).split():
            before = tomllib.loads(git("show", f"{commit}:{FILE}"))
            for name, limit in before.items():
                self.assertLessEqual(now.get(name, limit), limit, f"{name} had the limit {limit} in {commit[:12]}")


if __name__ == "__main__":
    unittest.main()
