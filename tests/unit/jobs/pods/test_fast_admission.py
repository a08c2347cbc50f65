"""Groups that start before all of their pods exist (fast admission), once they were evicted."""

from __future__ import annotations

import itertools

import pytest

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.jobs.contract.commands import Change, Delete, PatchStatus
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def deleted(commands):
    return [c.obj["metadata"]["name"] for c in of(Delete, commands) if c.resource == PODS]


def fast_group(pods, stage, *cpus, name="pod", age=0.0):
    """Pods of a group of three that may start at once, one with each of these CPUs."""
    fields = {
        "group": "group",
        "total": 3,
        "annotations": {f"{KUEUE}/pod-group-fast-admission": "true"},
    }
    make = pods.waiting if stage == "waiting" else pods.over
    more = {"age": age} if stage == "waiting" else {}
    return [make(f"{name}-{i}", cpu=cpu, **fields, **more) for i, cpu in enumerate(cpus)]


def shapes(workload):
    return [
        (entry["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], entry["count"])
        for entry in workload["spec"]["podSets"]
    ]


@pytest.fixture
def evicted_fast(pods):
    """A group of two small pods and a large one without quota, and its pods, which we stopped."""
    workload = pods.composed(*fast_group(pods, "waiting", "1", "1", "8"))
    workload = states.release(pods.evicted(pods.admitted(workload)), pods.now)
    over = [pods.deleted(pod) for pod in fast_group(pods, "over", "1", "1", "8")]
    for pod in over:
        pod["status"]["conditions"].append({"type": "TerminationTarget", "status": "True"})
    return states.hold_back(workload, "pods are missing", pods.now), over


@pytest.mark.parametrize("order", sorted({*itertools.permutations(["1", "1", "8"])}), ids="-".join)
def test_replacements_of_all_shapes_come_back_in_any_order(pods, evicted_fast, order):
    workload, over = evicted_fast
    for count in range(1, 4):
        came = fast_group(pods, "waiting", *order[:count], name="new", age=-1.0)
        commands = pods.plan(*over, *came, workload=workload)
        assert deleted(commands) == [], "all of them have a place"
        specs = [c.new for c in of(Change, commands) if "podSets" in c.patch.get("spec", {})]
        assert specs == [], "it stays the group that it was"
        (patch,) = of(PatchStatus, commands)
        (requeued,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
        assert requeued["status"] == "True", "one pod is enough"


def test_a_replaced_shape_makes_another_group(pods, evicted_fast):
    workload, over = evicted_fast
    came = fast_group(pods, "waiting", "4", name="new", age=-1.0)
    (change,) = [
        c for c in of(Change, pods.plan(*over, *came, workload=workload)) if c.resource == WORKLOADS
    ]
    assert shapes(change.new) == [("4", 3)]


def test_more_pods_of_one_shape_take_the_places_of_others(pods, evicted_fast):
    """Nothing is reserved yet, so the pods that exist say what the group is."""
    workload, over = evicted_fast
    came = fast_group(pods, "waiting", "8", "8", name="new", age=-1.0)
    (change,) = [
        c for c in of(Change, pods.plan(*over, *came, workload=workload)) if c.resource == WORKLOADS
    ]
    assert sorted(shapes(change.new)) == [("1", 1), ("8", 2)]
