"""The time to place pods on 5,000 nodes, and to take over what happens to these.

All times are processor time of the one thread that decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
from baseline.shape import IN_RACKS, Shape
from bench_scheduler import Replay
from figures import show

from kueuelib.api.codec import decode
from kueuelib.api.core import PodSpec
from kueuelib.api.workload import HOST, TopologyRequest
from kueuelib.scheduler.topology.counting import beginning
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
    """First, with counts of all leaves, and again, after a few leaves have changed."""
    cache = cluster()
    pods = decode(PodSpec, {"containers": []})
    rows = []

    def search(asked: PodsToPlace, *, again: bool) -> float:
        cache.charge({("", f"n{number}"): {"cpu": 1_000, "pods": 1} for number in (7, 700, 4_000)})
        nodes = cache.freeze()["gpu"]
        nodes = nodes if again else attrs.evolve(nodes, now=beginning())
        start = time.thread_time()
        assert isinstance(place(nodes, asked), Placement)
        return time.thread_time() - start

    for name, request in REQUESTS.items():
        for count in (1, 8, 64, 512, 5_000):
            if "slices" in name and count == 1:
                continue
            asked = PodsToPlace(count, {"cpu": 4_000, "nvidia.com/gpu": 1}, pods, request)
            search(asked, again=True)
            best = [min(search(asked, again=each) for _ in range(5)) for each in (False, True)]
            figures = ", ".join(f"{seconds * 1000:.2f} ms" for seconds in best)
            rows.append((f"{count:,} pods, {name}", figures))
    show(f"topology: placement on {NODES:,} nodes, first and again", rows)


def replayed(shape: Shape) -> Replay:
    """The replay that took the shortest time."""
    runs = [Replay(shape) for _ in range(3)]
    for run in runs:
        run.run()
        assert run.engine.pending("bench-0-0") == ()
    return min(runs, key=lambda run: sum(run.seconds))


def test_time_per_decision_with_places_and_without() -> None:
    """A fifteenth of upstream's Workloads come, run and end in virtual time."""
    classes = tuple(attrs.evolve(each, asks=None) for each in IN_RACKS.classes)
    plain = replayed(attrs.evolve(IN_RACKS, classes=classes, racks=0).scaled(1_000))
    placing = replayed(IN_RACKS.scaled(1_000))
    each = [1000 * sum(run.seconds) / run.decisions for run in (plain, placing)]
    rows = [
        ("without a topology", f"{each[0]:.3f} ms, {plain.decisions:,} in {plain.cycles:,} cycles"),
        ("with places", f"{each[1]:.3f} ms, {placing.decisions:,} in {placing.cycles:,} cycles"),
        ("ratio", f"{each[1] / each[0]:.2f}"),
    ]
    show(f"topology: one decision, {placing.shape.total:,} Workloads on 640 nodes", rows)


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
