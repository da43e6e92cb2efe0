"""The sample that computes TI-LFA repairs: lists against failures of random topologies."""

import importlib.util
import pathlib
import random
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("ti_lfa", ROOT / "samples/ti-lfa/ti_lfa.py")
ti_lfa = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ti_lfa)


def topology(links):
    found = {}
    for a, b, metric in links:
        found.setdefault(a, {})[b] = metric
        found.setdefault(b, {})[a] = metric
    return ti_lfa.Topology(found)


def arrives(network, source, target, link):
    """Whether each way of ECMP between two routers avoids a link, step by step, as the routers forward."""
    here, seen = {source}, set()
    while here:
        router = here.pop()
        if router == target or router in seen:
            continue
        seen.add(router)
        best = network.distances(router)[target]
        for neighbor, metric in network.links[router].items():
            if metric + network.distances(neighbor)[target] == best:
                if {router, neighbor} == set(link):
                    return False
                here.add(neighbor)
    return True


class Repairs(unittest.TestCase):
    def test_a_ring_needs_the_router_behind_which_no_path_returns(self):
        ring = topology([("a", "b", 10), ("b", "c", 10), ("c", "d", 10), ("d", "a", 10)])
        # From d, half of the flows to b would return by a.
        self.assertEqual(ring.repair(("a", "b")), ["d", "c", "b"])

    def test_a_triangle_needs_the_neighbor_alone(self):
        self.assertEqual(topology([("a", "b", 10), ("b", "c", 10), ("a", "c", 10)]).repair(("a", "b")), ["c", "b"])

    def test_a_link_without_another_way_has_no_repair(self):
        self.assertEqual(topology([("a", "b", 10), ("b", "c", 10)]).repair(("a", "b")), [])

    def test_a_step_that_node_segments_cannot_take_has_no_repair(self):
        # c reaches b by a, the failed link, because its own link to b costs more.
        self.assertEqual(topology([("a", "b", 1), ("a", "c", 1), ("c", "b", 9)]).repair(("a", "b")), [])

    def test_no_list_crosses_the_failed_link_in_random_networks(self):
        repaired = 0
        for seed in range(200):
            chance = random.Random(seed)
            routers = [f"r{number}" for number in range(chance.randint(3, 9))]
            links = [(a, b, chance.randint(1, 5)) for a, b in zip(routers, routers[1:])]
            links += [(*chance.sample(routers, 2), chance.randint(1, 5)) for _ in range(6)]
            network = topology(links)
            for a in routers:
                for b in network.links[a]:
                    at = a
                    for to in network.repair((a, b)):
                        self.assertTrue(arrives(network, at, to, (a, b)), (seed, a, b, at, to))
                        at, repaired = to, repaired + (to == b)
                    self.assertIn(at, (a, b))
        self.assertGreater(repaired, 1000)

    def test_the_batch_has_the_backups(self):
        def lsp(number, own, *reach):
            links = [{"id": f"0000.0000.000{to}.00", "metric": metric, "mtName": "ipv6-unicast"} for to, metric in reach]
            return {
                "lsp": {"id": f"0000.0000.000{number}.00-00", "ownLSP": own},
                "extReach": links,
                "srv6Locator": {"prefix": f"fcbb:bbbb:a{number}::/48"},
            }

        database = {"areas": [{"levels": [{"id": 1, "lsps": [lsp(1, True, (2, 10), (3, 10), (4, 5)),
                    lsp(2, False, (1, 10), (3, 10)), lsp(3, False, (1, 10), (2, 10)), lsp(4, False, (1, 5))]}]}]}
        up = {"adj": "0000.0000.0002", "interface": "eth1", "state": "Up"}
        alone = {"adj": "0000.0000.0004", "interface": "eth2", "state": "Up"}
        neighbors = {"areas": [{"circuits": [up, {"circuit": 0}, alone]}]}
        batch = ti_lfa.batch(database, neighbors, "fe06")
        expected = {"dev": "eth1", "backup": {"segments": ["fcbb:bbbb:a3::", "fcbb:bbbb:a2:fe06::"]}}
        self.assertEqual(batch["next_hops"], [expected], "eth2 leads to a router that has no other link")


if __name__ == "__main__":
    unittest.main()
