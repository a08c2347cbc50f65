"""The examples of KEP-2724, with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.conversion import slices_of
from kueuelib.api.core import PodSpec
from kueuelib.api.workload import HOST, TopologyConstraint, TopologyRequest
from kueuelib.scheduler.topology.leaf_room import FlavorNodes
from kueuelib.scheduler.topology.nodes import NodeCache, NodeFacts, TopologyOfFlavor
from kueuelib.scheduler.topology.placement import Placement, PodsToPlace, place

LEVELS = ("block", "rack", HOST)
PODS = decode(PodSpec, {"containers": []})
ANY = TopologyRequest(unconstrained=True)


def hosts(*capacities: int, rack: str = "r", block: str = "b") -> list[NodeFacts]:
    """Nodes of a rack, each with room for so many pods."""
    return [
        NodeFacts(
            name := f"{block}-{rack}-{number}",
            {"block": block, "rack": rack, HOST: name},
            (),
            {"cpu": room, "pods": 110},
            ready=True,
        )
        for number, room in enumerate(capacities)
    ]


def tree(*nodes: NodeFacts) -> FlavorNodes:
    cache = NodeCache()
    cache.set_flavor("flavor", TopologyOfFlavor("default", LEVELS, {}, ()))
    for node in nodes:
        cache.set_node(node)
    return cache.freeze()["flavor"]


def placed(nodes: FlavorNodes, count: int, request: TopologyRequest) -> list[int]:
    """How many pods each node gets."""
    found = place(nodes, PodsToPlace(count, {"cpu": 1}, PODS, request))
    assert isinstance(found, Placement), found
    counts = [0] * len(nodes.tree.leaves)
    for leaf, pods in found.pods:
        counts[leaf] = pods
    return counts


@pytest.mark.parametrize(
    ("request_", "counts"),
    [(TopologyRequest(required="rack"), [3, 3, 0, 1]), (ANY, [3, 1, 2, 1])],
    ids=["BestFit", "LeastFreeCapacity"],
)
def test_seven_pods_on_four_nodes(request_: TopologyRequest, counts: Sequence[int]) -> None:
    """Section "Computing the assignment"."""
    assert placed(tree(*hosts(3, 3, 2, 1)), 7, request_) == counts


@pytest.mark.parametrize(
    ("request_", "count", "counts"),
    [
        (TopologyRequest(required="rack"), 12, [6, 0, 4, 0, 2]),
        (TopologyRequest(), 10, [0, 2, 4, 2, 2]),
    ],
    ids=["BestFit", "LeastFreeCapacity"],
)
def test_slices_of_two_pods(request_: TopologyRequest, count: int, counts: Sequence[int]) -> None:
    """Section "Two-level Topology Aware scheduling"."""
    sliced = request_.evolve(pod_set_slice_required_topology=HOST, pod_set_slice_size=2)
    assert placed(tree(*hosts(6, 5, 4, 3, 2)), count, sliced) == counts


def test_slices_in_slices_fill_both_racks_of_a_block() -> None:
    """Section "Multi-level Topology Aware scheduling"."""
    racks = [
        *hosts(*[8] * 4, rack="r1"),
        *hosts(*[8] * 4, rack="r2"),
        *hosts(*[8] * 4, rack="r1", block="c"),
    ]
    layers = (TopologyConstraint("block", 32), TopologyConstraint("rack", 16))
    asked = TopologyRequest(podset_slice_required_topology_constraints=layers)
    assert placed(tree(*racks), 64, asked) == [8] * 8 + [0] * 4


def test_racks_of_one_name_in_two_blocks_are_two_domains() -> None:
    """Section "Hierarchy representation"."""
    nodes = [
        *hosts(4, rack="rack-1", block="block-1"),
        *hosts(4, rack="rack-2", block="block-1"),
        *hosts(4, rack="rack-1", block="block-2"),
        *hosts(4, rack="rack-3", block="block-2"),
    ]
    found = place(tree(*nodes), PodsToPlace(8, {"cpu": 1}, PODS, TopologyRequest(required="rack")))
    assert not isinstance(found, Placement)


def test_what_is_preferred_is_relaxed_level_by_level() -> None:
    """Section "User-facing API"."""
    asked = TopologyRequest(preferred="rack")
    nodes = [
        *hosts(2, rack="r1"),
        *hosts(4, rack="r2"),
        *hosts(3, rack="r1", block="c"),
        *hosts(1, rack="r2", block="c"),
    ]
    assert placed(tree(*nodes), 4, asked) == [0, 4, 0, 0]
    assert placed(tree(*nodes), 6, asked) == [2, 4, 0, 0]
    assert placed(tree(*nodes), 10, asked) == [2, 4, 3, 1]


def test_hosts_of_two_pools_are_two_slices() -> None:
    """Section "Encoding assignments by hostname prefix"."""
    pools = {"gke-c-pool-a-hash1-": "abcdefgh", "gke-c-pool-b-hash2-": "ijklmnop"}
    domains = [
        {"values": [f"{pool}{end}{end}"], "count": 3 if end < "p" else 5}
        for pool, ends in pools.items()
        for end in ends
    ]
    first, second = slices_of([HOST], domains)
    for one, (pool, ends) in zip((first, second), pools.items(), strict=True):
        roots = [end * 2 for end in ends]
        assert one["valuesPerLevel"] == [{"individual": {"prefix": pool, "roots": roots}}]
    assert first["podCounts"] == {"universal": 3}
    assert second["podCounts"] == {"individual": [3] * 7 + [5]}


def test_common_parts_of_values_are_written_once() -> None:
    """Section "Since v1beta2"."""
    domains = [
        {"values": ["block-1", "rack-1"], "count": 4},
        {"values": ["block-1", "rack-2"], "count": 2},
    ]
    values = [{"universal": "block-1"}, {"individual": {"prefix": "rack-", "roots": ["1", "2"]}}]
    counts = {"individual": [4, 2]}
    assert slices_of(["block", "rack"], domains) == [
        {"domainCount": 2, "valuesPerLevel": values, "podCounts": counts}
    ]
