"""Pods get the domains that Kueue was seen to give them, and where it drops pods, none."""

from __future__ import annotations

import gzip
from pathlib import Path

import attrs
import orjson
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.core import PodSpec, Taint
from kueuelib.api.workload import HOST, TopologyConstraint, TopologyRequest
from kueuelib.scheduler.topology.demand import PodsToPlace, Unplaceable, missing_level
from kueuelib.scheduler.topology.leaf_room import FlavorNodes
from kueuelib.scheduler.topology.nodes import (
    NodeCache,
    NodeFacts,
    TopologyOfFlavor,
    node_facts,
)
from kueuelib.scheduler.topology.placement import NoDomain, Placement, place
from kueuelib.scheduler.topology.pod_sets import replace
from kueuelib.testing.topology_scenarios import is_placement, placement_of

DATA = Path(__file__).parents[3] / "scenarios" / "data" / "tas-placement.jsonl.gz"
RECORDED = [orjson.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
PODS = decode(PodSpec, {"containers": []})
LEVELS = ("rack", HOST)


def test_pods_are_placed_where_kueue_was_seen_to_place_them() -> None:
    for one in RECORDED:
        assert is_placement(one["in"])
        assert placement_of(one["in"]) == one["out"], one["in"]["id"]
    assert len(RECORDED) == 1500


def node(name: str, rack: str, cpu: int = 4, *taints: Taint, usable: bool = True) -> NodeFacts:
    labels = {"rack": rack, HOST: name}
    return NodeFacts(name, labels, taints, {"cpu": cpu, "pods": 9}, usable)


def nodes(*found: NodeFacts) -> FlavorNodes:
    cache = NodeCache()
    cache.set_flavor("flavor", TopologyOfFlavor("racks", LEVELS, {}, ()))
    for one in found:
        cache.set_node(one)
    return cache.freeze()["flavor"]


def pods(count: int, cpu: int = 1, **request: object) -> PodsToPlace:
    return PodsToPlace(count, {"cpu": cpu}, PODS, TopologyRequest(**request))  # type: ignore[arg-type]


def test_a_taint_is_named_with_the_nodes_that_it_costs() -> None:
    tainted = Taint("maintenance", "NoSchedule", "yes")
    there = nodes(node("a", "r", 4, tainted), node("b", "r", 1), node("c", "r", 0))
    found = place(there, pods(3, required="rack"))
    assert isinstance(found, NoDomain)
    assert found.text == (
        'topology "racks" allows to fit only 1 out of 3 pod(s). Total nodes: 3; excluded: '
        'resource "cpu": 1, taint "maintenance=yes:NoSchedule": 1'
    )


def test_what_bars_pods_is_kept_for_a_limited_number_of_needs() -> None:
    tree = nodes(node("a", "r"), node("b", "r")).tree

    def barred(rack: str) -> object:
        return tree.barred(decode(PodSpec, {"nodeSelector": {"rack": rack}, "containers": []}), ())

    first = barred("0")
    assert barred("0") is first
    for number in range(2000):
        barred(str(number + 1))
    again = barred("0")
    assert again == first
    assert again is not first


def test_pods_that_select_a_node_by_its_name_get_no_other() -> None:
    named = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    selecting = decode(PodSpec, {"containers": [], "affinity": wanted})
    there = nodes(node("a", "r"), node("b", "r"))
    found = place(there, attrs.evolve(pods(2, required="rack"), pods=selecting))
    assert found == Placement(((1, 2),))
    found = place(there, attrs.evolve(pods(5, required="rack"), pods=selecting))
    assert isinstance(found, NoDomain)
    assert found.text.endswith("excluded: affinity: 1")


def test_slices_that_cannot_be_completed_do_not_move() -> None:
    there = nodes(node("a", "r"), node("b", "s"))
    sliced = pods(
        4,
        preferred="rack",
        podset_slice_required_topology_constraints=(TopologyConstraint("rack", 2),),
    )
    moved = replace(there, sliced, (((("gone"),), 1), (("a",), 1), (("b",), 2)), "gone")
    assert moved == ((("a",), 2), (("b",), 2))
    lost = replace(there, attrs.evolve(sliced, count=3), ((("gone",), 3),), "gone")
    assert isinstance(lost, Unplaceable)
    assert lost.text == "slices cannot be completed with the 3 pod(s) of node gone"


def test_nothing_moves_if_another_node_of_the_pods_is_gone_as_well() -> None:
    moved = replace(nodes(node("a", "r")), pods(2), ((("b",), 1), (("c",), 1)), "b")
    assert isinstance(moved, Unplaceable)
    assert "contains the stale domain c" in moved.text


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        (TopologyRequest(required="rack"), None),
        (TopologyRequest(preferred="block"), "block"),
        (TopologyRequest(unconstrained=True), None),
        (TopologyRequest(unconstrained=False), ""),
        (TopologyRequest(pod_set_slice_required_topology="rack", pod_set_slice_size=2), None),
        (TopologyRequest(pod_set_slice_required_topology="block", pod_set_slice_size=2), "block"),
    ],
)
def test_a_flavor_needs_the_levels_that_are_asked_for(
    request_: TopologyRequest, missing: str | None
) -> None:
    assert missing_level(request_, LEVELS) == missing


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ((("block", 2),), "no requested topology level for slices: block"),
        ((("rack", 0),), "slice topology requested, but slice size not provided"),
        (
            (("rack", 4), ("block", 2)),
            "no requested topology level for additional slice layer: block",
        ),
        (
            ((HOST, 4), ("rack", 2)),
            f"additional slice layer topology rack must be at a lower level than {HOST}",
        ),
        (
            (("rack", 4), (HOST, 3)),
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
    ],
)
def test_slices_that_no_topology_has_are_refused(
    layers: tuple[tuple[str, int], ...], text: str
) -> None:
    asked = tuple(TopologyConstraint(level, size) for level, size in layers)
    found = place(nodes(node("a", "r")), pods(4, podset_slice_required_topology_constraints=asked))
    assert found == Unplaceable(text)


def test_slices_lie_within_the_domain_of_the_pods() -> None:
    found = place(
        nodes(node("a", "r")),
        pods(4, required=HOST, pod_set_slice_required_topology="rack", pod_set_slice_size=2),
    )
    assert found == Unplaceable(f"podset slice topology rack is above the podset topology {HOST}")


def test_two_nodes_of_one_host_name_are_one_leaf() -> None:
    again = attrs.evolve(node("a", "r"), name="again")
    found = place(nodes(node("a", "r"), again), pods(8, required=HOST))
    assert found == Placement(((0, 8),))


def test_a_node_without_all_levels_does_not_count() -> None:
    bare = NodeFacts("bare", {HOST: "bare"}, (), {"cpu": 9, "pods": 9}, ready=True)
    found = place(nodes(bare), pods(1, required=HOST))
    assert found == Unplaceable(f"no topology domains at level: {HOST}")


def test_what_counts_of_a_node_is_read_from_the_object() -> None:
    raw = {
        "metadata": {"name": "a", "labels": {HOST: "a"}},
        "spec": {"taints": [{"key": "x", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"cpu": "1500m", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    taints = (Taint("x", "NoExecute"),)
    read = NodeFacts("a", {HOST: "a"}, taints, {"cpu": 1500, "pods": 110}, ready=True)
    assert node_facts(raw) == read
    raw["spec"]["unschedulable"] = True  # type: ignore[call-overload]
    assert not node_facts(raw).usable


def test_flavors_with_the_same_nodes_see_each_others_pods() -> None:
    cache = NodeCache()
    for flavor in ("one", "other"):
        cache.set_flavor(flavor, TopologyOfFlavor("racks", LEVELS, {}, ()))
    cache.set_flavor("coarse", TopologyOfFlavor("coarse", ("rack",), {}, ()))
    cache.set_node(node("a", "r"))
    cache.charge({("", "a"): {"cpu": 3}, ("coarse", "r"): {"cpu": 2}})
    free = {name: [*each.free["cpu"]] for name, each in cache.freeze().items()}
    assert free == {"one": [1], "other": [1], "coarse": [2]}


def test_levels_that_change_make_another_tree_in_which_pods_still_count() -> None:
    cache = NodeCache()
    cache.set_flavor("flavor", TopologyOfFlavor("racks", LEVELS, {}, ()))
    cache.set_node(node("a", "r"))
    cache.charge({("", "a"): {"cpu": 3}})
    assert cache.freeze()["flavor"].tree.paths == [[("r",)], [("r", "a")]]
    assert cache.set_flavor("flavor", TopologyOfFlavor("racks", (HOST,), {}, ()))
    changed = cache.freeze()["flavor"]
    assert changed.tree.paths == [[("a",)]]
    assert [*changed.free["cpu"]] == [1]
