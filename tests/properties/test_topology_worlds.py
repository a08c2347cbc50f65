"""Laws of decisions on random worlds with nodes, over several cycles (KEP-2724)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.amounts import leaves_of
from kueuelib.testing.scenario_form import PARALLEL
from kueuelib.testing.scenarios import run

HOST = "kubernetes.io/hostname"
LEVELS = ["rack", HOST]


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        labels = {"rack": f"r{draw(st.integers(0, 1))}", HOST: f"n{index}", "tas": "yes"}
        if draw(st.booleans()):
            labels["pool"] = "x"
        alloc = {"cpu": draw(st.integers(1, 4)), "pods": draw(st.integers(1, 4))}
        found.append({"name": f"n{index}", "labels": labels, "alloc": alloc})
    return found


@st.composite
def pod_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for name in ("main", "more")[: draw(st.sampled_from([1, 1, 2]))]:
        one: dict[str, Any] = {"name": name, "count": draw(st.integers(1, 4))}
        one["req"] = {"cpu": draw(st.integers(0, 2))}
        kind = draw(st.sampled_from(["required", "preferred", "unconstrained", "implied"]))
        if kind == "unconstrained":
            one["topology"] = {kind: True}
        elif kind != "implied":
            one["topology"] = {kind: draw(st.sampled_from(LEVELS))}
        if draw(st.integers(0, 3)) == 0:
            sliced = {"sliceTopology": HOST, "sliceSize": draw(st.integers(1, 2))}
            one["topology"] = {**one.get("topology", {}), **sliced}
        found.append(one)
    return found


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    queues = {}
    for name in "abc"[: draw(st.integers(1, 3))]:
        flavors = draw(st.sampled_from([["f0"], ["f1"], ["f0", "f1"]]))
        queue: dict[str, Any] = {
            "groups": [{flavor: {"cpu": draw(st.integers(1, 8))} for flavor in flavors}],
            "preemption": {
                "within": draw(st.sampled_from(["Never", "LowerPriority"])),
                "reclaim": draw(st.sampled_from(["Never", "Any", "LowerPriority"])),
            },
            "strategy": draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"])),
        }
        if draw(st.booleans()):
            queue["cohort"] = "c"
        queues[name] = queue
    pending = []
    for index in range(draw(st.integers(1, 6))):
        one = {
            "name": f"w{index}",
            "cq": draw(st.sampled_from(sorted(queues))),
            "prio": draw(st.integers(0, 2)),
            "created": index,
            "podsets": draw(pod_sets()),
        }
        if draw(st.booleans()):
            one["arrive"] = draw(st.integers(1, 3))
        pending.append(one)
    for queue in queues.values():
        if draw(st.integers(0, 4)) == 0:
            queue["provisioning"] = True
    there = draw(nodes())
    lost = [{"name": there[0]["name"], "deleted": True}] if draw(st.booleans()) else []
    return {
        "cycles": 12,
        "topologies": {"t": LEVELS},
        "flavors": {
            "f0": {"topologyName": "t", "labels": {"tas": "yes"}},
            "f1": {"topologyName": "t", "labels": {"pool": "x"}},
        },
        "nodes": there,
        "pods": [{"name": "p", "node": "n0", "req": {"cpu": 1}, "phase": "Running"}],
        "cqs": queues,
        "pending": pending,
        "finish": {"3": ["w0"], "5": ["w1"]},
        "events": {
            "1": {"ready": {one["name"]: {} for one in pending}},
            "2": {"pods": [{"name": "p", "deleted": True}]},
            "4": {"nodes": lost, "unhealthy": {one["name"]: ["n0"] for one in pending}},
            "6": {"ready": {one["name"]: {} for one in pending}},
        },
        "fairSharing": {"enable": draw(st.booleans())},
        "release_delay": draw(st.integers(0, 1)),
        PARALLEL: draw(st.booleans()),
    }


@given(worlds())
def test_no_node_is_overbooked_and_nothing_that_could_be_placed_sleeps(
    world: dict[str, Any],
) -> None:
    overbooked: list[ObjectKey] = []
    engines: list[Engine] = []

    def watch(engine: Engine, settled: Settled) -> None:
        engines.append(engine)
        for admit in (*settled.admissions, *settled.placed):
            for key in leaves_of(engine.cache.holders[admit.key].usage):
                for flavor in engine.cache.nodes.freeze().values():
                    at = flavor.tree.positions.get(key)
                    if at is not None and any(column[at] < 0 for column in flavor.free.values()):
                        overbooked.append(admit.key)

    result = run(world, watch=watch)
    assert overbooked == []
    if not engines:
        return
    engine, last = engines[-1], result["cycles"][-1]
    assert not last["preempted"], "preemption ends"
    cache = engine.cache.rebuilt()
    for name, old in engine.cache.nodes.freeze().items():
        new = cache.nodes.freeze()[name]
        assert {key: [*column] for key, column in new.free.items() if any(column)} == {
            key: [*column] for key, column in old.free.items() if any(column)
        }
    if not world[PARALLEL]:
        return  # as in the Go manager, where room that was kept for one cycle is forgotten
    _until_rest(engine)  # which the runner, that tries all heads in every cycle, never reaches
    for queue in engine._queues.cluster_queues.values():
        for group in queue.parked():
            queue.unpark(group)
    engine.reconsider()
    assert _until_rest(engine) == set()


def _until_rest(engine: Engine) -> set[ObjectKey]:
    """What is admitted until nothing is left to try."""
    admitted: set[ObjectKey] = set()
    for _ in range(40):
        cycle = engine.next_cycle(9e9)
        if cycle is None:
            return admitted
        plan = decide(cycle, 9e9)
        admitted |= {admit.key for admit in plan.admissions}
        engine.settle(plan, 9e9)
    raise AssertionError("it never rests")
