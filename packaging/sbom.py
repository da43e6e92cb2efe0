"""Software bill of materials of a program: its crates as CycloneDX 1.6 JSON.

`cargo tree` resolves the features of the released programs alone. `cargo metadata` would add the
features that tests and other members of the workspace select.
"""

import json
import re
import subprocess
import tomllib
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from urllib.parse import quote

# Crates that are linked into the program, and those that also run during its build.
LINKED = "normal,no-proc-macro"
BUILD = "normal,build"


def parse_tree(text):
    """Dependencies of each crate, from `cargo tree --prefix depth --format ' {p}'`.

    A crate is a pair of name and version.
    """
    edges = defaultdict(set)
    path = []
    for line in text.splitlines():
        found = re.match(r"(\d+) (\S+) v(\S+)", line)
        if not found:
            continue
        depth, crate = int(found[1]), (found[2], found[3])
        del path[depth:]
        if path:
            edges[path[-1]].add(crate)
        edges[crate] |= set()
        path.append(crate)
    return edges


def reachable(edges, root):
    """A crate and all its direct and indirect dependencies."""
    found, pending = set(), [root]
    while pending:
        crate = pending.pop()
        if crate not in found:
            found.add(crate)
            pending += edges[crate]
    return found


def reference(crate):
    """Identifier of a crate in the document."""
    return "@".join(crate)


def component(crate, package, checksum, scope):
    """Entry of a crate. Crates of the workspace have no checksum and no package URL."""
    name, version = crate
    entry = {"type": "library", "bom-ref": reference(crate), "name": name, "version": version, "scope": scope}
    if package.get("description"):
        entry["description"] = " ".join(package["description"].split())
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("license"):
        # Cargo's former separator is no SPDX expression.
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if checksum:
        entry["purl"] = f"pkg:cargo/{name}@{quote(version, safe='')}"
    if package.get("repository"):
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def document(root, trees, packages, checksums, seconds):
    """Bill of materials of the program of the crate `root`.

    `trees` has the edges of the crates that are linked, and of those that run during the build.
    `seconds` is the Unix time of the release. The same release gives the same document.
    """
    linked, build = trees
    in_program = reachable(linked, root)
    crates = sorted(in_program | reachable(build, root))
    application = {"type": "application", "bom-ref": reference(root), "name": root[0], "version": root[1]}
    if packages[root].get("license"):
        application["licenses"] = [{"expression": packages[root]["license"]}]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{reference(root)} {seconds}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": application,
        },
        "components": [
            component(crate, packages[crate], checksums.get(crate), "required" if crate in in_program else "excluded")
            for crate in crates
            if crate != root
        ],
        "dependencies": [
            {"ref": reference(crate), "dependsOn": list(map(reference, sorted(linked[crate] | build[crate])))}
            for crate in crates
        ],
    }


def documents(source, programs, seconds):
    """Bill of materials of each program, by the name of its crate, as JSON text.

    `programs` has the workspace of each program, a folder of `source`.
    """
    return {program: of_program(source / folder, program, seconds) for program, folder in programs.items()}


def of_program(workspace, program, seconds):
    """Bill of materials of a program as JSON text."""

    def cargo(*arguments):
        command = ["cargo", *arguments, "--locked"]
        return subprocess.run(command, cwd=workspace, check=True, stdout=subprocess.PIPE, text=True).stdout

    # The build selects the same package, so features are the same.
    trees = [
        parse_tree(cargo("tree", "--package", program, "--edges", edges, "--prefix", "depth", "--format", " {p}"))
        for edges in (LINKED, BUILD)
    ]
    metadata = json.loads(cargo("metadata", "--format-version", "1"))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    lock = tomllib.loads((workspace / "Cargo.lock").read_text(encoding="utf-8"))
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    root = next(crate for crate in packages if crate[0] == program)
    return json.dumps(document(root, trees, packages, checksums, seconds), indent=2) + "\n"
