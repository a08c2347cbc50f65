"""The time to place pods on 5,000 nodes, and to take over what happens to these.

All times are processor time of the one thread that decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures import show

from kueuelib.api.codec import decode
from kueuelib.api.core import PodSpec
from kueuelib.api.workload import HOST, TopologyRequest
from kueuelib.scheduler.topology.demand import PodsToPlace
from kueuelib.scheduler.topology.nodes import NodeCache, NodeFacts, TopologyOfFlavor
from kueuelib.scheduler.topology.placement import Placement, place

NODES = 5_000
LEVELS = ("zone", "block", "rack", HOST)
CAPACITY = {"cpu": 64_000, "memory": 256 << 30, "nvidia.com/gpu": 8, "pods": 110}
REQUESTS = {
    "required: zone": TopologyRequest(required="zone"),
    "preferred: rack": TopologyRequest(preferred="rack"),
    "unconstrained": TopologyRequest(unconstrained=True),
    "slices of 8 in racks": TopologyRequest(
        preferred="block", pod_set_slice_required_topology="rack", pod_set_slice_size=8
    ),
}


def node(index: int, *, usable: bool = True) -> NodeFacts:
    labels = {"zone": f"z{index // 2500}", "block": f"b{index // 500}", "rack": f"r{index // 25}"}
    return NodeFacts(f"n{index}", {**labels, HOST: f"n{index}"}, (), CAPACITY, usable)


def cluster() -> NodeCache:
    """Nodes in two zones, ten blocks and 200 racks, each with ten pods of others."""
    cache = NodeCache()
    cache.set_flavor("gpu", TopologyOfFlavor("racks", LEVELS, {}, ()))
    for index in range(NODES):
        cache.set_node(node(index))
        for pod in range(10):
            cache.set_pod((index, pod), f"n{index}", {"cpu": 100 * (pod + index % 7), "pods": 1})
    return cache


def spent(action: Callable[[], object], times: int = 5) -> str:
    """The shortest of some runs."""
    best = float("inf")
    for _ in range(times):
        start = time.thread_time()
        action()
        best = min(best, time.thread_time() - start)
    return f"{best * 1000:.2f} ms"


def test_time_per_placement() -> None:
    nodes = cluster().freeze()["gpu"]
    pods = decode(PodSpec, {"containers": []})
    rows = []
    for name, request in REQUESTS.items():
        for count in (1, 8, 64, 512, 5_000):
            if "slices" in name and count == 1:
                continue
            asked = PodsToPlace(count, {"cpu": 4_000, "nvidia.com/gpu": 1}, pods, request)
            assert isinstance(place(nodes, asked), Placement)
            rows.append((f"{count:,} pods, {name}", spent(lambda asked=asked: place(nodes, asked))))
    show(f"topology: placement on {NODES:,} nodes", rows)


def test_time_per_change_of_nodes_and_pods() -> None:
    cache = cluster()
    start = time.thread_time()
    cache.freeze()
    built = time.thread_time() - start
    rows = [("the tree, from nothing", f"{built * 1000:.0f} ms")]
    numbers = iter(range(NODES))

    def pod_ends() -> None:
        cache.set_pod((next(numbers), 3), "", None)
        cache.freeze()

    def node_shrinks() -> None:
        index = next(numbers)
        name = f"n{index}"
        labels = node(index).labels
        cache.set_node(NodeFacts(name, labels, (), {**CAPACITY, "cpu": 32_000}, ready=True))
        cache.freeze()

    def node_fails() -> None:
        cache.set_node(node(next(numbers), usable=False))

    def node_comes_back() -> None:
        cache.set_node(node(next(numbers), usable=False))
        cache.freeze()

    rows.append(("a pod ends, and a snapshot", spent(pod_ends, 50)))
    rows.append(("a node has less, and a snapshot", spent(node_shrinks, 50)))
    rows.append(("a node fails", spent(node_fails, 50)))
    rows.append(("a node fails, and a snapshot", spent(node_comes_back)))
    show(f"topology: changes in {NODES:,} nodes with {10 * NODES:,} pods", rows)
