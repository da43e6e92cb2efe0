#!/usr/bin/env python3
"""Compares the size of the stripped router with its limit in tests/limits.toml."""

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main():
    """Entry."""
    router = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/sidestep"
    limit = tomllib.loads((ROOT / "tests/limits.toml").read_text(encoding="utf-8"))["router_bytes"]
    size = router.stat().st_size
    print(f"{router} has {size:,} bytes; the limit is {limit:,}")
    sys.exit(size > limit)


if __name__ == "__main__":
    main()
