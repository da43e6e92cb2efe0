#!/usr/bin/python3
"""Writes the generated pages of docs/. With --check, only reports pages that are not current."""

import argparse
import difflib
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(DOCS))

from gen import Mistakes, conformance, reasons  # noqa: E402  (the path above must be set first)


def pages():
    """Path and text of every page that is generated, completely or between marks."""
    yield DOCS / "reference/conformance.md", conformance.page()
    yield DOCS / "reference/reasons.md", reasons.put_table((DOCS / "reference/reasons.md").read_text(encoding="utf-8"))


def main():
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the pages instead of writing them")
    arguments = parser.parse_args()
    try:
        wanted = dict(pages())
    except Mistakes as mistakes:
        sys.exit("\n".join(mistakes.args))
    stale = []
    for path, text in wanted.items():
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if found == text:
            continue
        stale.append(path.name)
        if arguments.check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    found.splitlines(keepends=True), text.splitlines(keepends=True), path.name, "generated", n=0
                )
            )
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{path.name}")
    if stale and arguments.check:
        sys.exit(f"not up to date: {', '.join(stale)}; run docs/generate.py")


if __name__ == "__main__":
    main()
