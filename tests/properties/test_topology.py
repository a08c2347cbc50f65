"""Laws of topology-aware placement on random trees of four levels (KEP-2724)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kueuelib.api.codec import decode
from kueuelib.api.core import PodSpec, Taint
from kueuelib.api.workload import HOST, TopologyConstraint, TopologyRequest
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.topology import nodes as node_cache
from kueuelib.scheduler.topology.counting import beginning
from kueuelib.scheduler.topology.demand import PodsToPlace, layers_of
from kueuelib.scheduler.topology.leaf_room import FlavorNodes, LeafRoom
from kueuelib.scheduler.topology.nodes import NodeCache, NodeFacts, TopologyOfFlavor
from kueuelib.scheduler.topology.placement import NoDomain, Placement, place
from kueuelib.scheduler.topology.pod_sets import Member, place_all, replace
from kueuelib.scheduler.topology.tree import Charges, total_charges

LEVELS = ("zone", "block", "rack", HOST)
PODS = decode(PodSpec, {"containers": []})
TAINT = Taint("maintenance", "NoSchedule")


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeFacts]:
    found = []
    for index in range(draw(st.integers(1, 12))):
        labels = {level: f"{level[0]}{draw(st.integers(0, 1))}" for level in LEVELS[:-1]}
        labels[HOST] = f"n{index}"
        capacity = {"cpu": draw(st.integers(0, 6)), "pods": draw(st.integers(0, 5))}
        tainted = draw(st.integers(0, 9)) == 0
        usable = draw(st.integers(0, 9)) > 0
        taints = (TAINT,) if tainted else ()
        found.append(NodeFacts(f"n{index}", labels, taints, capacity, usable))
    return found


def layers() -> st.SearchStrategy[tuple[TopologyConstraint, ...]]:
    """Slices of up to three layers; some have levels in a wrong order."""
    sizes = st.sampled_from([(1,), (2,), (3,), (4, 2), (4, 1), (6, 3), (4, 2, 1), (6, 3, 1)])
    return sizes.flatmap(
        lambda each: st.lists(
            st.sampled_from(LEVELS), min_size=len(each), max_size=len(each), unique=True
        ).map(
            lambda levels: tuple(
                TopologyConstraint(level, size)
                for level, size in zip(sorted(levels, key=LEVELS.index), each, strict=True)
            )
        )
    )


@st.composite
def requests(draw: st.DrawFn) -> TopologyRequest | None:
    level = draw(st.sampled_from(LEVELS))
    kind = draw(st.sampled_from(["required", "preferred", "unconstrained", "implied", "slices"]))
    sliced = draw(layers()) if kind == "slices" or draw(st.booleans()) else ()
    if kind == "implied":
        return None
    asked: dict[str, Any] = {"podset_slice_required_topology_constraints": sliced}
    if kind in ("required", "preferred"):
        asked[kind] = level
    elif kind == "unconstrained":
        asked = {"unconstrained": True}
    return TopologyRequest(**asked)


@st.composite
def pods(draw: st.DrawFn) -> PodsToPlace:
    request = draw(requests())
    sliced = layers_of(request)
    count = draw(st.integers(1, 8)) * (sliced[0].size if sliced else 1)
    leader = None if sliced or draw(st.integers(0, 2)) else {"cpu": draw(st.integers(0, 4))}
    return PodsToPlace(count, {"cpu": draw(st.integers(0, 3))}, PODS, request, leader)


def cache_of(found: list[NodeFacts]) -> NodeCache:
    cache = NodeCache()
    cache.set_flavor("flavor", TopologyOfFlavor("topology", LEVELS, {}, ()))
    for node in found:
        cache.set_node(node)
    return cache


def frozen(found: list[NodeFacts]) -> FlavorNodes:
    return cache_of(found).freeze()["flavor"]


def taken(asked: PodsToPlace, placed: Placement) -> dict[int, Counter[str]]:
    """What every leaf has to give."""
    used: dict[int, Counter[str]] = {}
    for leaf, count in placed.pods:
        sums = used.setdefault(leaf, Counter())
        sums.update({"pods": count, "cpu": count * asked.per_pod["cpu"]})
    if placed.leader is not None and asked.leader is not None:
        sums = used.setdefault(placed.leader, Counter())
        sums.update({"pods": 1, "cpu": asked.leader["cpu"]})
    return used


def room(nodes: FlavorNodes, leaf: int, per_pod: int) -> int:
    """How many pods of so many cores fit in a leaf, computed anew."""
    if nodes.tree.leaves[leaf].taints:
        return 0
    slots = nodes.free["pods"][leaf] if "pods" in nodes.free else 0
    cores = nodes.free["cpu"][leaf] if "cpu" in nodes.free else 0
    return max(0, min(slots, cores // per_pod if per_pod else slots))


@given(nodes(), pods())
def test_no_leaf_is_overbooked_and_all_pods_have_a_place(
    found: list[NodeFacts], asked: PodsToPlace
) -> None:
    there = frozen(found)
    placed = place(there, asked)
    if not isinstance(placed, Placement):
        return
    for leaf, used in taken(asked, placed).items():
        assert not there.tree.leaves[leaf].taints
        assert all(amount <= there.free[name][leaf] for name, amount in used.items() if amount)
    assert sum(count for _, count in placed.pods) == asked.count
    assert (placed.leader is None) == (asked.leader is None)


@given(nodes(), pods())
def test_a_required_request_lies_in_one_domain_and_slices_are_whole(
    found: list[NodeFacts], asked: PodsToPlace
) -> None:
    there = frozen(found)
    placed = place(there, asked)
    if not isinstance(placed, Placement):
        return
    leaves = there.tree.leaves
    if asked.request is not None and asked.request.required is not None:
        depth = LEVELS.index(asked.request.required) + 1
        both = [leaf for leaf, _ in placed.pods]
        both += [] if placed.leader is None else [placed.leader]
        assert len({leaves[leaf].path[:depth] for leaf in both}) == 1
    for layer in layers_of(asked.request):
        depth = LEVELS.index(layer.topology) + 1
        held: Counter[tuple[str, ...]] = Counter()
        for leaf, count in placed.pods:
            held[leaves[leaf].path[:depth]] += count
        assert all(count % layer.size == 0 for count in held.values())


@given(nodes(), pods())
def test_what_one_domain_could_hold_is_not_refused(
    found: list[NodeFacts], asked: PodsToPlace
) -> None:
    there = frozen(found)
    if layers_of(asked.request) or asked.leader is not None:
        return
    request = asked.request or TopologyRequest(unconstrained=True)
    level = request.required or request.preferred
    depth = 0 if level is None else LEVELS.index(level) + 1
    sums: Counter[tuple[str, ...]] = Counter()
    for index, leaf in enumerate(there.tree.leaves):
        sums[leaf.path[:depth]] += room(there, index, asked.per_pod["cpu"])
    most, everything = max(sums.values(), default=0), sum(sums.values())
    placed = place(there, asked)
    if request.required is not None:
        assert isinstance(placed, Placement) == (most >= asked.count)
    else:
        assert isinstance(placed, Placement) == (everything >= asked.count)
    if request.preferred is not None and most >= asked.count and isinstance(placed, Placement):
        assert len({there.tree.leaves[leaf].path[:depth] for leaf, _ in placed.pods}) == 1
    if isinstance(placed, NoDomain):
        assert placed.fitting < placed.wanted == asked.count


@given(nodes(), st.lists(pods(), min_size=1, max_size=4))
def test_pod_sets_of_a_workload_do_not_share_their_room(
    found: list[NodeFacts], asked: list[PodsToPlace]
) -> None:
    there = LeafRoom(cache_of(found).freeze())
    members = [
        Member(str(index), "flavor", one.count, one.per_pod, PODS, one.request)
        for index, one in enumerate(asked)
    ]
    placed = place_all(there, members)
    if isinstance(placed, tuple):
        return
    together = total_charges(one.charges for one in placed.values())
    assert there.holds(together)
    there.take(together)
    assert all(left >= 0 for column in there["flavor"].free.values() for left in column)


@given(nodes(), pods(), st.data())
def test_only_the_pods_of_a_failed_node_move(
    found: list[NodeFacts], asked: PodsToPlace, data: st.DataObject
) -> None:
    asked = attrs.evolve(asked, leader=None)
    there = frozen(found)
    placed = place(there, asked)
    if not isinstance(placed, Placement):
        return
    old = tuple((there.tree.shown(leaf), count) for leaf, count in placed.pods)
    (failed,), moving = data.draw(st.sampled_from(old))
    cache = cache_of([attrs.evolve(one, ready=one.name != failed and one.usable) for one in found])
    left = LeafRoom(cache.freeze())
    rest = {("", values[0]): count for values, count in old if values[0] != failed}
    left.take({k: {"pods": n, "cpu": n * asked.per_pod["cpu"]} for k, n in rest.items()})
    moved = replace(left.nodes["flavor"], asked, old, failed, left["flavor"])
    if not isinstance(moved, tuple):
        return
    new = Counter({("", values[0]): count for values, count in moved})
    assert ("", failed) not in new
    assert sum(new.values()) == asked.count
    more = new - Counter(rest)
    assert all(new[key] >= count for key, count in rest.items())
    assert sum(more.values()) == moving
    assert left.holds({k: {"pods": n, "cpu": n * asked.per_pod["cpu"]} for k, n in more.items()})


CHANGES = st.one_of(
    st.tuples(st.just("node"), nodes().map(lambda each: each[0]), st.integers(0, 5)),
    st.tuples(st.just("more"), st.integers(0, 5), st.integers(0, 6)),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("pod"), st.integers(0, 3), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("used"), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("look")),
)


NODE = NodeFacts(
    "n0", {"zone": "z0", "block": "b0", "rack": "r0"}, (), {"cpu": 3, "pods": 2}, ready=True
)


TAINTED = attrs.evolve(NODE, taints=(TAINT,))


@example([("node", NODE, 0), ("look",), ("more", 0, 5)], 0.1)
@example([("node", NODE, 0), ("look",), ("node", TAINTED, 0)], 9.0)
@example([("node", NODE, 0), ("look",), ("node", TAINTED, 1), ("node", NODE, 2)], 9.0)
@example([("node", NODE, 1), ("node", TAINTED, 2), ("look",), ("node", NODE, 0)], 9.0)
@given(st.lists(CHANGES, max_size=30), st.sampled_from([0.1, 9.0]))
def test_the_nodes_after_any_history_are_those_of_a_new_cache(
    history: list[Any], few: float
) -> None:
    """Trees are built, or (the second number) as few leaves as these are replaced in them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node_cache, "_FEW", few)
        live_through(history)


def live_through(history: list[Any]) -> None:
    cache, shaped = cache_of([]), attrs.evolve(PODS, node_selector={"zone": "z0"})
    known: dict[int, NodeFacts] = {}
    for what, *change in history:
        if what == "node":
            node, index = change
            labels = {**node.labels, HOST: f"n{index}"}
            known[index] = attrs.evolve(node, name=f"n{index}", labels=labels)
            cache.set_node(known[index])
        elif what == "more":
            index, cores = change
            if index in known:
                capacity = {**known[index].capacity, "cpu": cores}
                known[index] = attrs.evolve(known[index], capacity=capacity)
                cache.set_node(known[index])
        elif what == "gone":
            cache.drop_node(f"n{change[0]}")
            known.pop(change[0], None)
        elif what == "pod":
            pod, index, cores = change
            cache.set_pod(pod, f"n{index}", {"cpu": cores, "pods": 1} if cores else None)
        elif what == "used":
            index, cores = change
            cache.charge({("", f"n{index}"): {"cpu": cores, "pods": 1}})
        else:
            seen = cache.freeze()["flavor"]
            for asked in (PODS, shaped):
                seen.tree.barred(asked, ())
            before = {name: [*column] for name, column in seen.free.items()}
            cache.charge({("", "n0"): {"cpu": 1}})
            assert before == {name: [*column] for name, column in seen.free.items()}
    new, old = cache.rebuilt().freeze()["flavor"], cache.freeze()["flavor"]
    assert (new.tree.paths, new.tree.children) == (old.tree.paths, old.tree.children)
    assert new.tree.positions == old.tree.positions
    for asked in (PODS, shaped):
        assert new.tree.barred(asked, ()) == old.tree.barred(asked, ())
    assert [leaf.taints for leaf in new.tree.leaves] == [leaf.taints for leaf in old.tree.leaves]
    for ours, theirs in ((old.free, new.free), (old.capacity, new.capacity)):
        assert _some(ours) == _some(theirs)


def some(index: int, cores: int) -> Charges:
    return {("", f"n{index}"): {"cpu": abs(cores), "pods": 1}}


def outcome(there: LeafRoom, member: Member) -> object:
    placed = place_all(there, [member])
    return [one.why for one in placed] if isinstance(placed, tuple) else placed["main"].domains


STEPS = st.one_of(
    st.tuples(st.just("used"), st.integers(0, 11), st.integers(-2, 2)),
    st.tuples(st.just("pod"), st.integers(0, 11), st.integers(0, 3)),
    st.tuples(st.just("gone"), st.integers(0, 11)),
    st.tuples(st.just("look")),
    st.tuples(st.just("copy")),
    st.tuples(st.just("take"), st.integers(0, 11), st.integers(-2, 2)),
    st.tuples(st.just("fork"), st.integers(0, 11), st.integers(-2, 2)),
    st.tuples(st.just("place")),
)


@given(nodes(), st.lists(pods(), min_size=1, max_size=3), st.lists(STEPS, max_size=40), st.data())
def test_what_is_known_of_other_states_changes_no_placement(
    found: list[NodeFacts], asked: list[PodsToPlace], steps: list[Any], data: st.DataObject
) -> None:
    """The counts for one state become those for another: later, earlier, tried or of a copy."""
    caches = [cache_of(found)]
    rooms = [LeafRoom(caches[0].freeze())]
    for what, *change in steps:
        cache = data.draw(st.sampled_from(caches))
        here = data.draw(st.sampled_from(rooms))
        if what == "used":
            index, cores = change
            cache.charge(
                {("", f"n{index}"): {"cpu": abs(cores), "pods": 1}}, 1 if cores > 0 else -1
            )
        elif what == "pod":
            index, cores = change
            cache.set_pod(index, f"n{index}", {"cpu": cores, "pods": 1} if cores else None)
        elif what == "gone":
            cache.drop_node(f"n{change[0]}")
        elif what == "copy":
            caches.append(fork(cache))  # type: ignore[type-var]
        elif what == "look":
            rooms.append(LeafRoom(cache.freeze(), empty=data.draw(st.booleans())))
        elif what in ("take", "fork"):
            index, cores = change
            here = here.fork() if what == "fork" else here
            here.take(some(index, cores), 1 if cores > 0 else -1)
        if what in ("look", "fork", "place"):
            one = data.draw(st.sampled_from(asked))
            now = here["flavor"]
            new = attrs.evolve(now.nodes, free=dict(now.free), now=beginning())
            assert place(now.nodes, one, now) == place(new, one)
            member = Member("main", "flavor", one.count, one.per_pod, PODS, one.request)
            assert outcome(here, member) == outcome(LeafRoom({"flavor": new}), member)


def _some(columns: Any) -> dict[str, list[int]]:
    return {name: [*column] for name, column in columns.items() if any(column)}
