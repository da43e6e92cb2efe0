#!/usr/bin/python3
"""Writes vectors/*.yaml. With --check, writes nothing and fails if a file is not current."""

import argparse
import difflib
import importlib
import pkgutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import gen  # noqa: E402  (the path above must be set first)


def groups():
    """All groups of all modules, sorted by name."""
    found = []
    for module in sorted(module.name for module in pkgutil.iter_modules(gen.__path__)):
        found += getattr(importlib.import_module(f"gen.{module}"), "groups", list)()
    return sorted(found, key=lambda group: group.name)


def refuse_duplicates(all_groups):
    """Exits if a case name occurs twice in all files."""
    seen = {}
    for group in all_groups:
        for case in group.cases:
            if case.name in seen:
                sys.exit(f"{group.name}: case {case.name} is also in {seen[case.name]}")
            seen[case.name] = group.name


def main():
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    arguments = parser.parse_args()

    all_groups = groups()
    refuse_duplicates(all_groups)
    wanted = {f"{group.name}.yaml": group.text() for group in all_groups}
    existing = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.yaml")}

    if arguments.check:
        stale = sorted(name for name in wanted.keys() | existing.keys() if wanted.get(name) != existing.get(name))
        for name in stale:
            sys.stdout.writelines(
                difflib.unified_diff(
                    existing.get(name, "").splitlines(keepends=True),
                    wanted.get(name, "").splitlines(keepends=True),
                    f"vectors/{name}",
                    f"vectors/{name} (generated)",
                )
            )
        if stale:
            sys.exit(f"not up to date: {', '.join(stale)}; run vectors/generate.py")
        return

    for name in existing.keys() - wanted.keys():
        (HERE / name).unlink()
    for name, text in wanted.items():
        (HERE / name).write_text(text, encoding="utf-8")
    for group in all_groups:
        print(f"{group.name:24} {len(group.cases):4}")
    print(f"{'all':24} {sum(len(group.cases) for group in all_groups):4}")


if __name__ == "__main__":
    main()
