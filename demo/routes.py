#!/usr/bin/python3
"""Compares Sidestep's copy of the kernel's IPv6 routes with the kernel.

routes.py SIDESTEP    prints each route that only one of them has, and exits with status 1 if there
                      are any. SIDESTEP is the path of the program.
"""

import json
import re
import subprocess
import sys

# Each interface has these: addresses of the node, and link-local prefixes.
SKIPPED = ("local ", "anycast ", "multicast ", "broadcast ", "fe80::/64 ")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def canonical(line):
    """A route without what Sidestep does not print, and with its next hops in order."""
    line = re.sub(r"segs \d+ \[ (.*?) \]", lambda found: "segs " + ",".join(found[1].split()), line)
    line = re.sub(r" (pref medium|linkdown|dead|expires \w+)\b", "", line.replace("\\", " "))
    route, *hops = (" ".join(part.split()) for part in re.split(r"\bnexthop\b", line))
    return " nexthop ".join([route, *sorted(re.sub(r" weight 1$", "", hop) for hop in hops)])


def of_the_kernel():
    # One line for each route, also with several next hops.
    for line in output("ip", "-6", "-oneline", "route", "show", "table", "all").splitlines():
        yield canonical(line)


def of_sidestep(program):
    for route in json.loads(output(program, "route", "show", "--all", "-j")):
        if route["owner"] == "kernel" and ":" in route["prefix"]:
            yield canonical(route["route"])


def main(program):
    kernel, sidestep = (
        {line for line in lines if not line.startswith(SKIPPED)} for lines in (of_the_kernel(), of_sidestep(program))
    )
    for line in sorted(kernel - sidestep):
        print("only in the kernel:", line)
    for line in sorted(sidestep - kernel):
        print("only in Sidestep:", line)
    return int(kernel != sidestep)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
