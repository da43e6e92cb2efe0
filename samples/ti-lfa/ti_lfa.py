#!/usr/bin/python3
"""TI-LFA repairs (RFC 9855) from the link-state database of FRR's isisd, as backups of next hops.

ti_lfa.py DATABASE NEIGHBORS FUNCTION
                              prints a batch for `sidestep policy apply`: for each link of this router the
                              segment list to its neighbor around the link. DATABASE and NEIGHBORS are
                              files with the JSON of `show isis database detail` and `show isis neighbor`, of
                              an isisd with `no hostname dynamic`. The last segment is the locator of the
                              neighbor and FUNCTION, which is End.DT6 at each router.

A list protects against the failure of the link. A link has no backup where node segments alone do not lead around it.
"""

import heapq
import ipaddress
import json
import sys

INFINITE = float("inf")


class Topology:
    """Metrics of the links between routers, which are known by their system identifiers."""

    def __init__(self, links):
        self.links = links
        self.known = {}

    def distances(self, source, without=None):
        """Distances from a router; without a link in either direction, if one is given."""
        key = source, without
        if key in self.known:
            return self.known[key]
        found, queue = {}, [(0, source)]
        while queue:
            distance, router = heapq.heappop(queue)
            if router in found:
                continue
            found[router] = distance
            for neighbor, metric in self.links.get(router, {}).items():
                if not without or {router, neighbor} != set(without):
                    heapq.heappush(queue, (distance + metric, neighbor))
        self.known[key] = found
        return found

    def avoids(self, source, target, link):
        """Whether all shortest paths between two routers avoid a link."""
        best = self.distances(source).get(target, INFINITE)
        for near, far in (link, link[::-1]):
            over = self.distances(source).get(near, INFINITE) + self.links.get(near, {}).get(far, INFINITE)
            if over + self.distances(far).get(target, INFINITE) <= best:
                return False
        return True

    def way_around(self, link):
        """The routers of a shortest path between the ends of a link without it; none if there is no path."""
        here, target = link
        way, rest = [here], self.distances(here, without=link).get(target)
        while rest and here != target:
            steps = (
                (router, metric)
                for router, metric in sorted(self.links[here].items())
                if {here, router} != set(link)
                and metric + self.distances(router, without=link).get(target, INFINITE) == rest
            )
            here, metric = next(steps)
            way.append(here)
            rest -= metric
        return way if here == target else []

    def repair(self, link):
        """The routers whose node segments lead around a link. Each is the farthest to which all paths avoid it."""
        way = self.way_around(link)
        segments, at = [], 0
        while at + 1 < len(way):
            at = max((to for to in range(at + 1, len(way)) if self.avoids(way[at], way[to], link)), default=len(way))
            segments += way[at : at + 1]
        return segments if at + 1 == len(way) else []


def read(database):
    """The topology, the locator of each router, and the identifier of this one."""
    links, locators, own = {}, {}, None
    for level in database["areas"][0]["levels"]:
        for lsp in level.get("lsps", []):
            router = lsp["lsp"]["id"][: len("0000.0000.0000")]
            own = router if lsp["lsp"].get("ownLSP") else own
            for reach in lsp.get("extReach", []):
                if reach.get("mtName", "ipv6-unicast") == "ipv6-unicast":
                    known = links.setdefault(router, {})
                    neighbor = reach["id"][: len(router)]
                    known[neighbor] = min(reach["metric"], known.get(neighbor, INFINITE))
            if "srv6Locator" in lsp:
                locators[router] = ipaddress.IPv6Network(lsp["srv6Locator"]["prefix"])
    # RFC 9855 and ISO 10589 7.2.8.2: a link counts if both ends have it.
    mutual = {
        router: {to: metric for to, metric in all_links.items() if router in links.get(to, {})}
        for router, all_links in links.items()
    }
    return Topology(mutual), locators, own


def decapsulation(locator, function):
    """The SID of a locator whose 16 bits behind it are the function."""
    return ipaddress.IPv6Address(int(locator.network_address) | int(function, 16) << (112 - locator.prefixlen))


def batch(database, neighbors, function):
    """The backups of all links, instead of earlier ones."""
    topology, locators, own = read(database)
    next_hops = []
    for circuit in neighbors["areas"][0]["circuits"]:
        neighbor = circuit.get("adj", "")[: len(own)]
        routers = topology.repair((own, neighbor)) if circuit.get("state") == "Up" else []
        if routers and all(router in locators for router in routers):
            segments = [locators[router].network_address for router in routers[:-1]]
            segments.append(decapsulation(locators[neighbor], function))
            next_hops.append({"dev": circuit["interface"], "backup": {"segments": [str(sid) for sid in segments]}})
    owner = {"protocol_origin": "configuration", "originator": {"asn": 0, "address": "127.0.0.1"}}
    return {"owner": owner, "complete": True, "operations": [], "next_hops": next_hops}


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(json.dumps(batch(load(sys.argv[1]), load(sys.argv[2]), sys.argv[3]), indent=1))
