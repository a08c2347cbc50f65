"""What becomes of a Workload that lost its node when there is no other one."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Topology, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import HOST, AdmissionCheckState
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.second_pass import needs_second_pass
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.amounts import leaves_of
from kueuelib.scheduler.settings import NodeFailureRules, Settings
from kueuelib.scheduler.topology.nodes import NodeFacts

ROOM = {"cpu": 2000, "pods": 9}
AT = "2024-01-01T00:00:00Z"
NOW = 1_704_067_200.0
POD = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}


def workload(*owners: Any) -> Workload:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    values, counts = [{"universal": "gone"}], {"universal": 1}
    slices = [{"domainCount": 1, "valuesPerLevel": values, "podCounts": counts}]
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": "1"},
        "topologyAssignment": {"levels": [HOST], "slices": slices},
    }
    true = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": AT}
    return decode(
        Workload,
        {
            "metadata": {
                "name": "w",
                "namespace": "ns",
                "uid": "w",
                "creationTimestamp": AT,
                "ownerReferences": [*owners],
            },
            "spec": {
                "queueName": "lq",
                "podSets": [
                    {
                        "name": "main",
                        "count": 1,
                        "template": {"spec": {"containers": [container]}},
                        "topologyRequest": {"required": HOST},
                    }
                ],
            },
            "status": {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
                "conditions": [{"type": name, **true} for name in ("QuotaReserved", "Admitted")],
                "unhealthyNodes": [{"name": "gone"}],
            },
        },
    )


def engine_of(wl: Workload, *, last: str = "", **rules: bool) -> Engine:
    """An engine that learns a Topology, a flavor or the Workload last."""
    engine = Engine(Settings(places_pods=True, node_failures=NodeFailureRules(**rules)))
    topology = {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": HOST}]}}
    flavor = {"metadata": {"name": "f"}, "spec": {"nodeLabels": {"a": "b"}, "topologyName": "t"}}
    row = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [row]}]
    queue = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": groups}}
    local = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    facts = [
        events.NamespaceSet("ns", {}),
        events.TopologySet(decode(Topology, topology)),
        events.FlavorSet(decode(ResourceFlavor, flavor)),
        events.ClusterQueueSet(decode(ClusterQueue, queue)),
        events.LocalQueueSet(decode(LocalQueue, local)),
        events.WorkloadSet(wl),
    ]
    for event in sorted(facts, key=lambda event: type(event).__name__ == last):
        engine.observe(event, NOW)
    return engine


def settled(wl: Workload, **rules: bool) -> Settled:
    """The decision about a Workload whose only node is gone."""
    engine = engine_of(wl, **rules)
    later = NOW + 2.0
    cycle = engine.next_cycle(later)
    assert cycle is not None
    return engine.settle(decide(cycle, later), later)


def test_it_is_evicted_at_once() -> None:
    (eviction,) = settled(workload(JOB)).evictions
    assert eviction.key == ObjectKey("ns", "w")
    assert eviction.message.endswith("no replacement for unhealthy node(s): gone")


def test_it_keeps_its_places_if_the_rules_say_so() -> None:
    kept = settled(workload(JOB), evicts=False)
    assert (kept.evictions, kept.placed, kept.waits) == ((), (), ())
    (wait,) = kept.unplaced
    assert wait.message.endswith("no topology domains at level: kubernetes.io/hostname")


def test_it_is_evicted_if_its_flavor_is_gone_too() -> None:
    """A queue may drop a flavor while jobs run, and then the flavor can be deleted."""
    engine = engine_of(workload(JOB))
    plain = decode(ClusterQueue, {"metadata": {"name": "cq"}, "spec": {}})
    engine.observe_all([events.ClusterQueueSet(plain), events.FlavorGone("f")], NOW)
    cycle = engine.next_cycle(NOW + 2.0)
    assert cycle is not None
    (eviction,) = engine.settle(decide(cycle, NOW + 2.0), NOW + 2.0).evictions
    assert eviction.message.endswith("no replacement for unhealthy node(s): gone")
    assert "the flavor or its topology no longer exists" in eviction.why


@pytest.mark.parametrize("over", ["Finished", "Evicted"])
def test_who_ended_or_leaves_needs_no_other_node(over: str) -> None:
    wl = workload(JOB)
    conditions = wl.status.conditions
    ended = wl.status.evolve(conditions=(*conditions, conditions[0].evolve(type=over)))
    assert needs_second_pass(wl)
    assert not needs_second_pass(wl.evolve(status=ended))


def test_pods_get_places_once_all_checks_have_passed() -> None:
    wl = workload(JOB)
    admission = wl.status.admission
    assert admission is not None
    (assigned,) = admission.pod_set_assignments
    later = assigned.evolve(topology_assignment=None, delayed_topology_request="Pending")
    waits = wl.status.evolve(
        admission=admission.evolve(pod_set_assignments=(later,)),
        conditions=wl.status.conditions[:1],
        unhealthy_nodes=(),
    )

    def needs(*states: str) -> bool:
        raw = [{"name": state, "state": state} for state in states]
        checks = tuple(decode(AdmissionCheckState, one) for one in raw)
        return needs_second_pass(wl.evolve(status=waits.evolve(admission_checks=checks)))

    assert needs("Ready")
    assert not needs("Ready", "Pending")
    assert not needs()


@pytest.mark.parametrize(("owners", "stays"), [((POD,), True), ((POD, {**POD, "uid": "q"}), False)])
def test_one_pod_stays_where_it_is(owners: Any, stays: bool) -> None:
    found = settled(workload(*owners))
    assert [one.admission for one in found.placed] == [workload().status.admission] * stays
    assert len(found.evictions) == (not stays)


@pytest.mark.parametrize("last", ["WorkloadSet", "TopologySet", "FlavorSet"])
def test_places_are_charged_in_whatever_order_objects_become_known(last: str) -> None:
    """As after a restart, when the first lists come in any order."""
    engine = engine_of(workload(JOB), last=last)
    leaves = leaves_of(engine.cache.holders[ObjectKey("ns", "w")].usage)
    assert leaves == {("", "gone"): {"cpu": 1000, "pods": 1}}
    engine.observe(events.NodeSet(NodeFacts("gone", {"a": "b", HOST: "gone"}, (), ROOM, True)), NOW)
    assert [*engine.cache.nodes.freeze()["f"].free["cpu"]] == [1000]
