#!/usr/bin/env python3
"""State of the system that a test run must not change.

tests/run.py compares it before and after a run, and names the test that left something. For other
commands:

    tests/leftovers.py save FILE       write the state to a file
    tests/leftovers.py compare FILE    print what has appeared since then; status 1 if anything has
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Environment variable that names the job of a process. Children inherit it.
JOB = "SIDESTEP_TEST_JOB"
# Folders whose entries are compared. Depth 2 includes the entries of their folders.
FOLDERS = {"/tmp": 1, "/dev/shm": 1, "/run": 1, "/run/netns": 1, "/run/sidestep": 2}
# Names of Sidestep's files in folders that other programs use, too. Files of tests with other names
# are in the job's TMPDIR.
OURS = ("ss-", "ss.", "sidestep", "frr")
# Folders that stay: of ip-netns(8), and of all instances of Sidestep.
SHARED = ("/run/netns", "/run/sidestep")
# Mount point of the BPF file system. systemd mounts it at boot; elsewhere the first `sidestep run` does,
# as bpftool(8) does. It stays, because other programs may have pins there by then.
BPFFS = "/sys/fs/bpf"
# Files that the kernel puts there (kernel/bpf/preload).
KERNEL_PINS = ("maps.debug", "progs.debug")
# Seconds in which the kernel has removed what no process uses.
PATIENCE = 10


def entries(folder, depth):
    """Paths of the entries of a folder, and of its folders up to a depth."""
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.path not in SHARED and (entry.name.startswith(OURS) or folder not in ("/tmp", "/dev/shm", "/run")):
            yield entry.path
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from entries(entry.path, depth - 1)


def processes():
    """Processes of jobs: number, job and command line."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        for line in environment.split(b"\0"):
            if line.startswith(f"{JOB}=".encode()) and command:
                words = command.decode(errors="replace").strip("\0").replace("\0", " ")
                yield f"{path.name} of {line.decode(errors='replace').partition('=')[2]}: {words[:160]}"


def bpf(kind):
    """BPF objects of a kind, and the bytes of kernel memory that they hold."""
    program = shutil.which("bpftool", path=PATH)
    if not program:
        return {}
    done = subprocess.run([program, "-j", kind, "show"], capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    return {
        f"{shown['id']} ({shown.get('type', '?')} {shown.get('name', '')})": shown.get("bytes_memlock", 0)
        for shown in json.loads(done.stdout)
    }


PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def snapshot():
    """State of the system: a set of (kind, name)."""
    found = {("interface", name) for name in os.listdir("/sys/class/net")}
    found |= {("process", text) for text in processes()}
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = (line.split(" ")[4] for line in mounts)
    # A namespace is a mount, too.
    found |= {("mount", point) for point in points if not point.startswith("/run/netns") and point != BPFFS}
    for folder, depth in FOLDERS.items():
        kind = "namespace" if folder == "/run/netns" else "file"
        found |= {(kind, path) for path in entries(folder, depth)}
    for folder, _, names in os.walk(BPFFS):
        found |= {("BPF pin", os.path.join(folder, name)) for name in names if name not in KERNEL_PINS}
        if folder != BPFFS:
            found.add(("folder of BPF pins", folder))
    for kind, name in (("prog", "BPF program"), ("map", "BPF map"), ("link", "BPF link")):
        found |= {(name, text) for text in bpf(kind)}
    return found


def memory():
    """Bytes of kernel memory that BPF programs and maps hold."""
    return sum(sum(bpf(kind).values()) for kind in ("prog", "map"))


def settled(before):
    """Returns what has appeared since `before`, after the kernel had time to remove it."""
    until = time.monotonic() + PATIENCE
    while left := snapshot() - before:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return left


def text(item):
    """Item as words."""
    return " ".join(item)


def main():
    """Entry."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("save", "compare"):
        sys.exit(__doc__)
    path = Path(sys.argv[2])
    if sys.argv[1] == "save":
        path.write_text(json.dumps([sorted(snapshot()), memory()]), encoding="utf-8")
        return
    before, held = json.loads(path.read_text(encoding="utf-8"))
    left = settled({tuple(item) for item in before})
    for item in sorted(left):
        print(f"left behind: {text(item)}")
    now = memory()
    if now != held:
        print(f"BPF memory: {held} bytes before, {now} bytes now")
    if left or now != held:
        sys.exit(1)
    print(f"nothing left behind; BPF memory as before, {now} bytes")


if __name__ == "__main__":
    main()
