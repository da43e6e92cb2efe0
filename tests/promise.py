#!/usr/bin/env python3
"""Compares the last line of `./dev demo` with the one that README.md promises.

    tests/promise.py LOG

Figures may differ, but Sidestep must be faster than Linux.
"""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
FIGURE = r"\d+(?:\.\d+)?"


def pattern_of(promise):
    """A promised line as a pattern, in which every figure stands for any."""
    return FIGURE.join(map(re.escape, re.split(FIGURE, promise)))


def main():
    """Entry."""
    promise = re.search(r"(?m)^Result: .*", README.read_text(encoding="utf-8"))
    if not promise:
        sys.exit("README.md has no line that begins with `Result: `")
    promise = promise[0]
    lines = [line for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines() if line.strip()]
    last = re.sub(r"\x1b\[[\d;]*m", "", lines[-1]) if lines else ""
    if not re.fullmatch(pattern_of(promise), last):
        sys.exit(f"the demo ended with\n  {last}\nREADME.md promises\n  {promise}")
    sidestep, linux = map(float, re.findall(rf"({FIGURE}) Mpps", last))
    if sidestep <= linux:
        sys.exit(f"Sidestep is not faster than Linux alone: {last}")
    print(f"the demo ended as README.md promises: {last}")


if __name__ == "__main__":
    main()
