"""New places, and evictions for failed nodes: what is written, and what the engine hears."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.conversion import convert, topology_assignment
from kueuelib.api.kueue import Workload
from kueuelib.api.workload import HOST
from kueuelib.errors import Invalid, TransportError
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction, Wait
from kueuelib.scheduler.engine import Settled
from kueuelib.scheduler.events import Effects, EvictionFailed, NotPlaced
from kueuelib.scheduler.flavor_reasons import NO_FIT
from kueuelib.scheduler.pending.tries import Requeue
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.workload import states
from kueuelib.workload.orders import REFUSALS

from .test_applier import KEY, Case, holder, workload

Obj = dict[str, Any]
NEW = topology_assignment([HOST], [(("m",), 2)])


def reserved(*, delayed: bool = False, **status: Any) -> Obj:
    """A Workload with quota whose pods are on node `n`, or have no places yet."""
    assignment: Obj = {"name": "main", "count": 2, "flavors": {"cpu": "f"}}
    if delayed:
        assignment["delayedTopologyRequest"] = "Pending"
    else:
        slices = [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": "n"}],
                "podCounts": {"universal": 2},
            }
        ]
        assignment["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    made = states.reserve(workload(), admission, [], 0.0)
    return {**made, "status": {**made["status"], **status}}


def place(case: Case, seen: Obj) -> None:
    """The engine gives all pods places on node `m`."""
    typed = decode(Workload, convert(seen, "v1beta2"))
    admission = typed.status.admission
    assert admission is not None
    (one,) = admission.pod_set_assignments
    ready = "Ready" if one.delayed_topology_request else ""
    moved = one.evolve(topology_assignment=NEW, delayed_topology_request=ready)
    given = admission.evolve(pod_set_assignments=(moved,))
    case.submit(Settled((), (), Effects(), placed=(NewPlaces(KEY, "u1", typed, "cq", given, {}),)))


def hosts(case: Case) -> list[str]:
    assert case.client.stored is not None
    typed = decode(Workload, case.client.stored)
    assert typed.status.admission is not None
    (one,) = typed.status.admission.pod_set_assignments
    assert one.topology_assignment is not None
    return [values[-1] for values, _ in one.topology_assignment.domains]


async def test_pods_of_a_failed_node_get_another_one_which_ends_its_replacement() -> None:
    wl = reserved(unhealthyNodes=[{"name": "n"}])
    newer = {**wl, "status": {**wl["status"], "unhealthyNodes": [{"name": "n"}, {"name": "x"}]}}
    newer["metadata"] = {**wl["metadata"], "resourceVersion": "5"}
    case = Case(newer)
    place(case, wl)
    await case.run()
    assert hosts(case) == ["m"]
    assert states.unhealthy_nodes(case.client.stored or {}) == ["x"], "it failed since"
    assert (case.told, case.recorder.events) == ([], ["NodeReplaced"])


@pytest.mark.parametrize("owned", [True, False])
async def test_an_event_of_the_job_names_the_failed_node_and_the_other_one(*, owned: bool) -> None:
    wl = reserved(unhealthyNodes=[{"name": "n"}])
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j"}
    if owned:
        wl["metadata"] = {**wl["metadata"], "ownerReferences": [{**job, "controller": True}]}
    case, events = Case(wl), []
    case.recorder.event = lambda about, *said, component: events.append(  # type: ignore[method-assign]
        (about.get("kind"), about.get("uid"), *said)
    )
    place(case, wl)
    await case.run()
    said = (
        "Normal",
        "NodeReplaced",
        "Node n failed: 2 pods of pod set main move from node n to node m",
    )
    assert [one[2:] for one in events] == [said] * (2 if owned else 1)
    assert [one[:2] for one in events[1:]] == ([("Job", "uid-j")] if owned else [])


async def test_a_workload_that_waits_for_its_nodes_is_admitted_with_its_places() -> None:
    wl = reserved(delayed=True)
    assert states.phase_of(wl) is states.Phase.RESERVED
    case = Case(wl)
    place(case, wl)
    await case.run()
    assert hosts(case) == ["m"]
    assert states.is_admitted(case.client.stored or {})
    assert case.recorder.events == ["Admitted"]
    (assignment,) = states.status_of(case.client.stored or {})["admission"]["podSetAssignments"]
    assert assignment["delayedTopologyRequest"] == "Ready"


async def test_places_are_written_in_the_version_of_the_workload() -> None:
    old = convert(reserved(unhealthyNodes=[{"name": "n"}]), "v1beta1")
    case = Case(old)
    place(case, old)
    await case.run()
    (assignment,) = states.status_of(case.client.stored or {})["admission"]["podSetAssignments"]
    domains = [{"values": ["m"], "count": 2}]
    assert assignment["topologyAssignment"] == {"levels": [HOST], "domains": domains}


@pytest.mark.parametrize("change", ["places", "evicted", "recreated", "uncharged"])
async def test_places_of_what_has_changed_are_void(change: str) -> None:
    wl = reserved()
    newer, charged = wl, holder()
    if change == "places":
        newer = reserved(delayed=True)
    if change == "evicted":
        newer = states.evict(wl, "Preempted", "", 0.0)
    if change == "recreated":
        newer = {**wl, "metadata": {**wl["metadata"], "uid": "u2"}}
    if change == "uncharged":
        charged = attrs.evolve(charged, uid="u2")
    case = Case(newer, holder=lambda _: charged)
    place(case, wl)
    await case.run()
    assert case.told == [NotPlaced(KEY, "u1")]
    assert case.client.patches == []


async def test_a_lost_answer_is_found_again() -> None:
    wl = reserved()
    case = Case(wl)
    place(case, wl)
    case.client.failures = [TransportError("https://x", "reset")]
    with pytest.raises(TransportError):
        await case.run()
    assert case.told == [], "the charge stays"
    place(case, wl)
    await case.run()
    case.informer.learn(wl)  # an older event of the watch
    place(case, wl)
    await case.run()
    assert hosts(case) == ["m"]
    assert case.told == []


async def test_places_that_are_refused_are_given_up() -> None:
    wl = reserved()
    case = Case(wl)
    place(case, wl)
    case.client.failures = [Invalid("no") for _ in range(REFUSALS)]
    for _ in range(REFUSALS - 1):
        with pytest.raises(Invalid):
            await case.run()
    await case.run()
    assert case.told == [NotPlaced(KEY, "u1")]
    assert case.recorder.events == ["AdmissionFailed"]


def evict(case: Case) -> None:
    order = NodeEviction(KEY, "u1", "no replacement for unhealthy node(s): n", "")
    case.submit(Settled((), (), Effects(), evictions=(order,)))


async def test_a_workload_without_a_replacement_is_evicted() -> None:
    case = Case(reserved(unhealthyNodes=[{"name": "n"}]))
    evict(case)
    await case.run()
    evicted = states.condition(case.client.stored or {}, "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("True", "NodeFailures")
    assert evicted["message"] == "no replacement for unhealthy node(s): n"
    assert case.recorder.events == ["EvictedDueToNodeFailures"]
    assert case.told == []


async def test_an_eviction_that_is_refused_is_given_up() -> None:
    case = Case(reserved())
    evict(case)
    case.client.failures = [Invalid("no") for _ in range(REFUSALS)]
    for _ in range(REFUSALS - 1):
        with pytest.raises(Invalid):
            await case.run()
    await case.run()
    assert case.told == [EvictionFailed(KEY, "u1", "no")]
    assert case.recorder.events == ["EvictionFailed"]


async def test_whoever_found_no_places_for_a_reservation_is_told() -> None:
    seen = reserved(delayed=True)
    case = Case(seen)
    typed = decode(Workload, convert(seen, "v1beta2"))
    reason = NoFlavors((), NO_FIT)
    wait = Wait(KEY, "u1", typed, "cq", reason, Requeue.GENERIC)
    case.submit(Settled((), (), Effects(), unplaced=(wait,)))
    await case.run()
    assert case.recorder.events == ["SecondPassFailed"]
    assert (case.told, case.client.patches) == ([], []), "its status stays"
