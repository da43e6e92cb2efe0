#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes Vinbero the router of a conformance run, or of a campaign (campaigns/peers.yaml).

The daemon runs in the namespace. Its SIDs and headends replace the kernel's routes of the same
prefixes, so that the kernel processes no packet in its place.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROUTER = os.environ.get("ROUTER", "")
FOLDER = pathlib.Path(tempfile.gettempdir()) / f"vinbero-{ROUTER}"
SERVER = "127.0.0.1:8080"

CONFIG = """\
internal:
  devices: [{ports}]
  bpf: {{device_mode: driver, verifier_log_level: 0, verifier_log_size: 0}}
  server: {{bind: "{server}"}}
  logger: {{level: warn, format: text, no_color: true}}
settings:
  entries:
    sid_function: {{capacity: 1024}}
    headendv4: {{capacity: 1024}}
    headendv6: {{capacity: 1024}}
    headend_l2: {{capacity: 64}}
    fdb: {{capacity: 64}}
    bd_peer: {{capacity: 64}}
"""

MODES = {"encap": "H_ENCAPS", "encap.red": "H_ENCAPS_RED", "inline": "H_INSERT"}
INNER = {"End.B6": "H_INSERT", "End.B6.Encaps": "H_ENCAPS", "End.B6.Encaps.Red": "H_ENCAPS_RED"}


def within(*words, check=True):
    """Runs a command in the namespace and returns what it prints."""
    done = subprocess.run(
        ["ip", "netns", "exec", ROUTER, *words], capture_output=True, text=True, check=False
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done


def after(words, key):
    """The word after this one, or none."""
    return words[words.index(key) + 1] if key in words else None


def translate(words):
    """Arguments of `vinbero` for a route of `ip`; none if Vinbero lacks it."""
    prefix = words[0] if "/" in words[0] else words[0] + ("/128" if ":" in words[0] else "/32")
    if after(words, "table") and "seg6local" not in words or "hmac" in words:
        return None
    if "seg6local" not in words:
        mode = MODES.get(after(words, "mode"))
        if mode is None:
            return None
        source = os.environ.get("TUNSRC") or "::"
        head = "hv6" if ":" in prefix else "hv4"
        return [head, "create", "--trigger-prefix", prefix, "--src-addr", source,
                "--segments", after(words, "segs"), "--mode", mode]
    action = after(words, "action")
    flavors = (after(words, "flavors") or "").split(",")
    if not set(flavors) <= {"", "psp", "usp", "usd"} or len(flavors) > 1:
        return None
    made = ["sid", "create", "--trigger-prefix", prefix]
    if flavors != [""]:
        made += ["--flavor", flavors[0].upper()]
    name = action.replace(".", "_").upper()
    if action == "End":
        return [*made, "--action", name]
    if action == "End.X" and after(words, "nh6"):
        return [*made, "--action", name, "--nexthop", after(words, "nh6")]
    if action in ("End.DT4", "End.DT6", "End.DT46"):
        table = after(words, "table") or after(words, "vrftable")
        return [*made, "--action", name] if table in ("main", "254") else None
    # It has no next hop of its own for these: the table decides.
    if action == "End.DX6" and after(words, "nh6") == "::":
        return [*made, "--action", name]
    if action == "End.DX4" and after(words, "nh4") == "0.0.0.0":
        return [*made, "--action", name]
    if action == "End.DX2":
        index = within("cat", f"/sys/class/net/{after(words, 'oif')}/ifindex").stdout.strip()
        return [*made, "--action", name, "--oif", index]
    if action == "End.DX2V":
        return [*made, "--action", name, "--table-id", after(words, "vlantable")]
    if action in INNER:
        source = os.environ.get("TUNSRC") or "::"
        name = "END_B6" if action == "End.B6" else "END_B6_ENCAPS"
        return [*made, "--action", name, "--src-addr", source, "--segments",
                after(words, "segs"), "--headend-mode", INNER[action]]
    return None


def lines(name):
    return [line for line in os.environ.get(name, "").splitlines() if line.strip()]


def start(ports):
    """Starts the daemon and waits until it answers."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.yaml").write_text(CONFIG.format(ports=", ".join(ports), server=SERVER))
    within("ip", "link", "set", "lo", "up")
    with open(FOLDER / "log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen(
            ["ip", "netns", "exec", ROUTER, "vinberod", "-c", str(FOLDER / "config.yaml")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
    (FOLDER / "pid").write_text(str(daemon.pid))
    for _ in range(200):
        if within("vinbero", "-s", f"http://{SERVER}", "sid", "list", check=False).returncode == 0:
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError("vinberod does not start: " + (FOLDER / "log").read_text()[-2000:])


def up():
    start([line.split()[0] for line in lines("PORTS")])
    for route in lines("ROUTES"):
        words = route.split()
        if "encap" not in words:
            if "owner" in words:
                print(f"unsupported: {route}")
            continue
        # The kernel may have the route.
        within("ip", "route", "del", words[0], check=False)
        arguments = translate(words)
        if arguments is None:
            print(f"unsupported: {route}")
            continue
        done = within("vinbero", "-s", f"http://{SERVER}", *arguments, check=False)
        if done.returncode != 0 or "rror" in done.stdout + done.stderr:
            print(f"unsupported: {route}")
            print((done.stdout + done.stderr).strip(), file=sys.stderr)


def check():
    """Fails without Vinbero, and with the first route that it lacks."""
    if shutil.which("vinberod") is None:
        sys.exit("vinberod is not in $PATH")
    for route in lines("ROUTES"):
        words = route.split()
        if "encap" in words and translate(words) is None:
            sys.exit(f"unsupported: {route}")


def down():
    try:
        os.kill(int((FOLDER / "pid").read_text()), signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        pass
    shutil.rmtree(FOLDER, ignore_errors=True)


def info():
    done = subprocess.run(["vinberod", "-v"], capture_output=True, text=True, check=False)
    print("version:", (done.stdout or done.stderr).strip().split(" ")[-1])


if __name__ == "__main__":
    {"up": up, "check": check, "down": down, "info": info}[sys.argv[1]]()
