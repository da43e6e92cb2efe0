#!/usr/bin/python3
"""Builds a release: packages, bills of materials, release notes and checksums.

The release is a commit with its version, in a worktree of its own. After the build, that commit gets
an annotated tag, and the current branch moves to it. If a step fails or is interrupted, the
repository and the file system are as before.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import changelog
import sbom
from changelog import Refused

ROOT = Path(__file__).resolve().parents[1]
# Programs, and the workspaces of their crates.
PROGRAMS = {"sidestep": ".", "sidestep-bench": "bench"}
PACKAGES = [f"{program}{suffix}" for program in PROGRAMS for suffix in ("", "-dbgsym")]
SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
# Seconds that a stopped build has to end.
PATIENCE = 10


def say(text):
    """Prints a line about the progress."""
    print(f"release: {text}", file=sys.stderr, flush=True)


def git(*arguments, at=ROOT, text=None):
    """Output of a git command."""
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, cwd=at, input=text, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise Refused(f"`git {arguments[0]}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def present_version(root):
    """Version in Cargo.toml."""
    manifest = tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))
    return manifest["workspace"]["package"]["version"]


def target():
    """Folder of all build output."""
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def check_tested():
    """Refuses a commit for which the last `./dev test --all` was not green."""
    commit = git("rev-parse", "HEAD")
    try:
        tested = json.loads((target() / "tested.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        tested = {"commit": "none", "failed": 0}
    if tested["commit"] != commit or tested["failed"]:
        raise Refused(
            f"the last `./dev test --all` of a clean tree was of commit {tested['commit'][:12]}, with "
            f"{tested['failed']} failures, and this is {commit[:12]}: run `./dev test --all` first"
        )


def check(version, tag):
    """Refuses a release that could not be published."""
    changelog.check_successor(version, present_version(ROOT))
    if git("tag", "--list", tag):
        raise Refused(
            f"the tag {tag} exists: choose a greater version. If the tag was never pushed, `git tag --delete {tag}` "
            "removes it"
        )
    changed = git("status", "--porcelain")
    if changed:
        raise Refused(
            f"the tree has changes that are not committed:\n{changed}\n"
            "Commit them, or put them aside with `git stash --include-untracked`"
        )
    changelog.release((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version, "")


def commit_version(source, version):
    """Commits version and changelog in the worktree. Returns the commit and the release notes."""
    for workspace in map(source.joinpath, PROGRAMS.values()):
        manifest = workspace / "Cargo.toml"
        text = manifest.read_text(encoding="utf-8")
        text, found = re.subn(r'(?m)^version = ".*"$', f'version = "{version}"', text, count=1)
        if not found:
            raise Refused(f'{manifest.relative_to(source)} has no line `version = "..."`')
        manifest.write_text(text, encoding="utf-8")
    if present_version(source) != version:
        raise Refused('Cargo.toml has another line `version = "..."` before that of [workspace.package]: move it down')
    for workspace in map(source.joinpath, PROGRAMS.values()):
        done = subprocess.run(["cargo", "update", "--workspace", "--quiet"], cwd=workspace, check=False)
        if done.returncode:
            raise Refused(f"cargo cannot write the version to {workspace.relative_to(source)}/Cargo.lock (see above)")
    page = source / "CHANGELOG.md"
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    text, notes = changelog.release(page.read_text(encoding="utf-8"), version, date)
    page.write_text(text, encoding="utf-8")
    message = (
        f"release: set version {version}\n\n"
        "`./dev release` wrote the version and the changelog. It built the packages from this commit.\n"
    )
    git("commit", "--all", "--quiet", "--file=-", at=source, text=message)
    return git("rev-parse", "HEAD", at=source), notes


def end_group(leader):
    """Ends a build with all its processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + PATIENCE
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, number)
            while time.monotonic() < until:
                leader.poll()
                os.killpg(leader.pid, 0)
                time.sleep(0.05)


def build_packages(source, folder):
    """Builds the Debian packages of the worktree into a folder."""
    # The build must not take programs of another version from the caller's target.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIDESTEP_")}
    environment["CARGO_TARGET_DIR"] = str(source / "target")
    # In a process group of its own, the build ends before its folder is removed.
    build = subprocess.Popen(
        ["./dev", "package", folder, *PACKAGES], cwd=source, env=environment, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        status = build.wait()
    except BaseException:
        end_group(build)
        raise
    if status:
        raise Refused("`./dev package` failed (see above)")
    if not list(folder.glob("*.deb")):
        raise Refused(f"`./dev package` built no package in {folder}")


def write_checksums(folder):
    """Writes SHA256SUMS of all files of the release, for `sha256sum --check`."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def build(source, folder, version):
    """Builds all files of the release. Returns its commit and release notes."""
    git("worktree", "add", "--quiet", "--detach", source, "HEAD")
    commit, notes = commit_version(source, version)
    say(f"building the packages of {version} from commit {commit[:12]}")
    build_packages(source, folder)
    seconds = int(git("show", "--no-patch", "--format=%ct", commit))
    for program, text in sbom.documents(source, PROGRAMS, seconds).items():
        (folder / f"{program}_{version}.cdx.json").write_text(text, encoding="utf-8")
    (folder / "release-notes.md").write_text(notes, encoding="utf-8")
    write_checksums(folder)
    return commit, notes


def publish(version, tag, commit, notes):
    """Creates the tag, and moves the current branch to the commit."""
    # git would remove the headings of the notes as comments.
    git("tag", "--annotate", "--cleanup=verbatim", "--file=-", tag, commit, text=f"Sidestep {version}\n\n{notes}")
    try:
        git("merge", "--ff-only", "--quiet", commit)
    except Refused as error:
        git("tag", "--delete", tag)
        raise Refused(f"{error}\nThe branch has changed since the start: repeat `./dev release {version}`") from None


def remove_worktree(source):
    """Removes a worktree, also one that is incomplete."""
    with contextlib.suppress(Refused):
        git("worktree", "remove", "--force", "--force", source)
    shutil.rmtree(source, ignore_errors=True)


def release(version, dry_run):
    """Builds a release, and publishes it in this repository unless it is a dry run."""
    tag = f"v{version}"
    check(version, tag)
    if not dry_run:
        check_tested()
    folder = target() / f"release-{version}"
    source = folder / "source"
    if source.exists():
        raise Refused(
            f"{source} exists: another release of {version} is running, or was killed. If none is running, remove it "
            f"with `git worktree remove --force {source}`"
        )
    # Files of a dry run.
    shutil.rmtree(folder, ignore_errors=True)
    complete = False
    try:
        folder.mkdir(parents=True)
        commit, notes = build(source, folder, version)
        # Tag and branch change together: a signal has no effect from here on.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if not dry_run:
            publish(version, tag, commit, notes)
        complete = True
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        remove_worktree(source)
        if not complete:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"the files of {version} are in {folder}")
    if dry_run:
        say("dry run: no tag and no commit on the branch")
    else:
        say(f"created the tag {tag}; publish it with `git push --follow-tags`")


def main():
    """Entry."""
    parser = argparse.ArgumentParser(prog="./dev release", description="Builds a release in target/release-VERSION.")
    parser.add_argument("version", metavar="VERSION", help="version without a prefix, for example 1.2.0 or 1.2.0-rc.1")
    parser.add_argument("--dry-run", action="store_true", help="build all files, but create no tag and move no branch")
    arguments = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        release(arguments.version, arguments.dry_run)
    except Refused as error:
        say(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
