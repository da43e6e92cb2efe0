#!/usr/bin/python3
"""Writes vectors/kernel/VERSION.json from the output of the test `kernel_ends` in files or on standard input.

The recorded ends of vectors that did not run on that kernel stay unchanged.
"""

import fileinput
import json
import sys
from collections import defaultdict
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def punted():
    """The names of all vectors with the verdict punt, in the order of the files."""
    for path in sorted(HERE.glob("*.yaml")):
        for case in yaml.load(path.read_text(encoding="utf-8"), LOADER)["cases"]:
            if "kernel" in case["expect"]:
                yield case["name"]


def main():
    """Entry."""
    seen = defaultdict(dict)
    with fileinput.input() as lines:
        for line in lines:
            if line.startswith("END "):
                _, version, name, end = line.split(" ", 3)
                seen[version][name] = json.loads(end)
    if not seen:
        sys.exit("record.py: no line begins with END")
    names = list(punted())
    for version, ends in seen.items():
        path = HERE / "kernel" / f"{version}.json"
        path.parent.mkdir(exist_ok=True)
        before = json.loads(path.read_text(encoding="utf-8"))["ends"] if path.exists() else {}
        merged = {name: {**before, **ends}[name] for name in names if name in before or name in ends}
        lines = ",\n".join(f'  "{name}": {json.dumps(end)}' for name, end in merged.items())
        path.write_text(f'{{"kernel": "{version}", "ends": {{\n{lines}\n}}}}\n', encoding="utf-8")
        changed = sum(before.get(name) != end for name, end in merged.items())
        print(f"{path.relative_to(HERE.parent)}: {len(merged)} of {len(names)} ends, {changed} changed")


if __name__ == "__main__":
    main()
