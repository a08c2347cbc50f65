"""Places are charged from the moment they are assigned, in whatever order facts arrive."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Topology, Workload
from kueuelib.api.workload import HOST, AdmissionCheckState
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.testing.builders import (
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
LEVELS = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
TOPOLOGY = decode(Topology, {"metadata": {"name": "t"}, "spec": {"levels": LEVELS}})


def node(name: str) -> events.NodeSet:
    labels = {"rack": "r", HOST: name, "tas": "yes"}
    status = {
        "allocatable": {"cpu": "4", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    raw = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}
    return events.NodeSet(node_facts(raw))


def pods(name: str, *, on: str = "", failed: str = "", levels: Iterable[str] = (HOST,)) -> Workload:
    """A Workload of three pods, admitted on one node, or waiting."""
    pod_set = {**make_pod_set({"cpu": 1}, count=3), "topologyRequest": {"required": "rack"}}
    if not on:
        return make_workload(name, "lq", pod_sets=[pod_set])
    values = [{"universal": on if level == HOST else "r"} for level in levels]
    part = {"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 3}}
    assignment = {
        "name": "main",
        "count": 3,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": "3"},
        "topologyAssignment": {"levels": [*levels], "slices": [part]},
    }
    return make_workload(
        name,
        "lq",
        pod_sets=[pod_set],
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
            "unhealthyNodes": [{"name": failed}] if failed else [],
        },
    )


FLAVOR = events.FlavorSet(make_flavor("f", {"tas": "yes"}, topologyName="t"))
QUEUE = events.ClusterQueueSet(make_cluster_queue("q", {"f": {"cpu": 99}}))
OBJECTS = (events.TopologySet(TOPOLOGY), FLAVOR, QUEUE)


def engine_with(*told: events.Event) -> Engine:
    engine = Engine()
    first = (events.NamespaceSet("ns", {}), events.LocalQueueSet(make_local_queue("lq", "q")))
    engine.observe_all((*first, *told), NOW)
    return engine


def cycle(engine: Engine, now: float = NOW) -> Settled | None:
    taken = engine.next_cycle(now)
    return None if taken is None else engine.settle(decide(taken, now), now)


def admitted(engine: Engine) -> list[str]:
    found = cycle(engine)
    return [] if found is None else [one.key.name for one in found.admissions]


RUNS = events.WorkloadSet(pods("runs", on="n"))


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_after_a_start_what_runs_is_charged_whatever_is_known_first(order: tuple[int, ...]) -> None:
    facts = [*OBJECTS, RUNS]
    engine = engine_with(*(facts[at] for at in order), node("n"))
    engine.observe(events.WorkloadSet(pods("new")), NOW)
    assert admitted(engine) == []
    engine.observe(node("m"), NOW)
    assert admitted(engine) == ["new"]


def test_levels_change_under_what_runs() -> None:
    """It keeps its places, and what waits for a level is tried again when there is one."""
    engine = engine_with(*OBJECTS, node("n"), node("m"), RUNS)
    flat = TOPOLOGY.evolve(spec=TOPOLOGY.spec.evolve(levels=TOPOLOGY.spec.levels[1:]))
    engine.observe(events.TopologySet(flat), NOW)
    engine.observe(events.WorkloadSet(pods("new")), NOW)
    assert admitted(engine) == []
    free = engine.cache.nodes.freeze()["f"]
    assert dict(zip(free.tree.paths[-1], free.free["cpu"], strict=True)) == {
        ("m",): 4000,
        ("n",): 1000,
    }
    engine.observe(events.TopologySet(TOPOLOGY), NOW)
    assert admitted(engine) == ["new"]
    free = engine.cache.nodes.freeze()["f"]
    assert [*free.free["cpu"]] == [1000, 1000]


@pytest.mark.parametrize("gone", [events.FlavorGone("f"), events.TopologyGone("t")])
def test_nodes_keep_their_pods_when_a_flavor_is_deleted_under_them(gone: events.Event) -> None:
    """Another flavor with the same nodes does not get their room."""
    flat = events.TopologySet(
        decode(Topology, {"metadata": {"name": "flat"}, "spec": {"levels": LEVELS[1:]}})
    )
    other = events.FlavorSet(make_flavor("other", {"tas": "yes"}, topologyName="flat"))
    others = events.ClusterQueueSet(make_cluster_queue("others", {"other": {"cpu": 99}}))
    local = events.LocalQueueSet(make_local_queue("theirs", "others"))
    engine = engine_with(*OBJECTS, node("n"), RUNS, flat, other, others, local)
    engine.observe(gone, NOW)
    new = make_workload("new", "theirs", pod_sets=[make_pod_set({"cpu": 1}, count=3)])
    engine.observe(events.WorkloadSet(new), NOW)
    assert admitted(engine) == []
    engine.observe(node("m"), NOW)
    assert admitted(engine) == ["new"]


@pytest.mark.parametrize("served", [True, False])
def test_what_runs_in_another_cluster_gets_no_places_in_this_one(served: bool) -> None:
    """Its check has no controller here, so its ClusterQueue is inactive."""
    check = make_check("elsewhere", active=served)
    queue = events.ClusterQueueSet(
        make_cluster_queue("q", {"f": {"cpu": 99}}, checks=["elsewhere"])
    )
    facts = (events.TopologySet(TOPOLOGY), FLAVOR, events.CheckSet(check), queue, node("n"))
    sent = pods("sent", on="n")
    assert sent.status.admission is not None
    (one,) = sent.status.admission.pod_set_assignments
    later = one.evolve(topology_assignment=None, delayed_topology_request="Pending")
    admission = sent.status.admission.evolve(pod_set_assignments=(later,))
    state = AdmissionCheckState("elsewhere", "Ready")
    status = sent.status.evolve(
        admission=admission, admission_checks=(state,), conditions=sent.status.conditions[:1]
    )
    engine = engine_with(*facts, events.WorkloadSet(sent.evolve(status=status)))
    found = cycle(engine, NOW + 2.0)
    placed = () if found is None else found.placed
    assert [place.key.name for place in placed] == ["sent"] * served


def moved() -> tuple[Engine, Settled]:
    """A Workload whose node failed gets another one, and the order to write that."""
    engine = engine_with(*OBJECTS, node("n"), node("m"))
    engine.observe(events.WorkloadSet(pods("runs", on="n", failed="n")), NOW)
    engine.observe(events.NodeGone("n"), NOW)
    settled = cycle(engine, NOW + 2.0)
    assert settled is not None
    (place,) = settled.placed
    assert place.key.name == "runs"
    return engine, settled


def test_new_places_are_charged_although_an_older_event_follows() -> None:
    engine, settled = moved()
    (place,) = settled.placed
    assert [one.key for one in engine.placed()] == [place.key]
    older = pods("runs", on="n", failed="n")
    changed = older.evolve(metadata=older.metadata.evolve(generation=7))
    engine.observe(events.WorkloadSet(changed), NOW)
    engine.observe(events.WorkloadSet(pods("new")), NOW)
    assert admitted(engine) == [], "the pods that move need the only node"
    again = cycle(engine, NOW + 60.0)
    assert again is None or again.placed == (), "they are not placed a second time"
    status = older.status.evolve(admission=place.admission, unhealthy_nodes=())
    shown = older.evolve(status=status)
    engine.observe(events.WorkloadSet(shown), NOW)
    assert engine.placed() == ()
    assert admitted(engine) == []


def test_places_that_cannot_be_written_are_free_again_and_tried_again() -> None:
    engine, settled = moved()
    (place,) = settled.placed
    engine.observe(events.NotPlaced(place.key, "other"), NOW)
    assert len(engine.placed()) == 1
    engine.observe(events.NotPlaced(place.key, place.uid), NOW)
    assert engine.placed() == ()
    again = cycle(engine, NOW + 3.0)
    assert again is not None
    assert [one.key for one in again.placed] == [place.key]


def test_what_ends_while_its_places_are_written_charges_nothing() -> None:
    engine, settled = moved()
    (place,) = settled.placed
    engine.observe(events.WorkloadGone(place.key), NOW)
    engine.observe(events.NotPlaced(place.key, place.uid), NOW)
    engine.observe(events.WorkloadSet(pods("new")), NOW)
    assert admitted(engine) == ["new"]


def test_who_is_evicted_for_a_failed_node_leaves_once() -> None:
    engine = engine_with(*OBJECTS, node("n"))
    engine.observe(events.WorkloadSet(pods("runs", on="n", failed="n")), NOW)
    engine.observe(events.NodeGone("n"), NOW)
    settled = cycle(engine, NOW + 2.0)
    assert settled is not None
    (eviction,) = settled.evictions
    assert [one.key for one in engine.leaving()] == [eviction.key]
    assert cycle(engine, NOW + 60.0) is None
    engine.observe(events.EvictionFailed(eviction.key, eviction.uid, "no"), NOW)
    again = cycle(engine, NOW + 120.0)
    assert again is not None
    assert [one.key for one in again.evictions] == [eviction.key]
