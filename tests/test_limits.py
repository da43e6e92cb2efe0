"""The limits of tests/limits.toml only fall."""

import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = "tests/limits.toml"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


class Limits(unittest.TestCase):
    def test_no_limit_is_greater_than_in_an_earlier_commit(self):
        now = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
        for commit in git("log", "--format=%H", "--", FILE).split():
            before = tomllib.loads(git("show", f"{commit}:{FILE}"))
            for name, limit in before.items():
                self.assertLessEqual(now.get(name, limit), limit, f"{name} had the limit {limit} in {commit[:12]}")


if __name__ == "__main__":
    unittest.main()
