"""Versions, and the sections of CHANGELOG.md."""

import re

SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*))?",
    re.ASCII,
)
UNRELEASED = "\n## [Unreleased]\n"


class Refused(Exception):
    """Reason why a release cannot be built, with its repair."""


def precedence(version):
    """Sort key of a version, as clause 11 of Semantic Versioning orders them."""
    found = SEMVER.fullmatch(version)
    if not found:
        raise Refused(
            f"{version!r} is not a version: write MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-PRERELEASE, "
            "for example 1.2.0 or 1.2.0-rc.1"
        )
    *core, prerelease = found.groups()
    # A number sorts before a word, and a pre-release before its release.
    identifiers = prerelease.split(".") if prerelease else []
    ranks = [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in identifiers]
    return [int(number) for number in core], not prerelease, ranks


def check_successor(version, present):
    """Refuses a version that is not greater than the present one."""
    if precedence(version) <= precedence(present):
        (major, minor, patch), is_release, _ = precedence(present)
        last = patch + 1 if is_release else patch
        raise Refused(
            f"{version} is not greater than {present}, the version in Cargo.toml: "
            f"choose {major}.{minor}.{last}, {major}.{minor + 1}.0 or {major + 1}.0.0"
        )


def release(text, version, date):
    """Text of the changelog after the release, and the text of the release's section.

    The unreleased entries move below a heading with version and date.
    """
    before, heading, after = text.partition(UNRELEASED)
    if not heading:
        raise Refused("CHANGELOG.md has no heading `## [Unreleased]`: add it above the newest version")
    following = re.search(r"(?m)^## ", after)
    end = following.start() if following else len(after)
    section = after[:end].strip("\n")
    if not re.search(r"(?m)^- ", section):
        raise Refused("CHANGELOG.md has no entries below [Unreleased]: describe the changes there, and commit them")
    released = f"{before}{heading}\n## [{version}] - {date}\n\n{section}\n"
    return released + ("\n" + after[end:] if following else ""), section + "\n"
