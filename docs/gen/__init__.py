"""Generators of the pages of docs/."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Mistakes(Exception):
    """Mistakes in the hand-written parts, one line each in `args`."""


def cell(text):
    """Text as a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(header, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
