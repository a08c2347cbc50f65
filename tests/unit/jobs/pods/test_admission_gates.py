"""The admission gates of pods, of groups, and of what makes pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey, annotations_of
from kueuelib.jobs.contract.commands import Change, Create
from kueuelib.jobs.pods.deployment import queueing_errors, with_labels
from kueuelib.jobs.pods.leaderworkerset import validate_leader_worker_set
from kueuelib.jobs.pods.parents import Parent, Parents, parent_of
from kueuelib.jobs.pods.pod_plan import plan_pod
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.pods.statefulset import validate_stateful_set
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.machinery.store import Store

Obj = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
GATES, QUEUE = f"{KUEUE}/admission-gated-by", f"{KUEUE}/queue-name"
A, B, C = "example.com/a", "example.com/b", "example.com/c"


def made(commands: Any) -> Any:
    (create,) = [each for each in commands if isinstance(each, Create)]
    return create.obj


def gates_of(obj: Any) -> str | None:
    return annotations_of(obj).get(GATES)


def members(pods: Any, *gates: str, **fields: Any) -> list[Obj]:
    return [
        pods.waiting(
            f"p{number}",
            group="group",
            total=len(gates),
            annotations={GATES: each} if each else {},
            **fields,
        )
        for number, each in enumerate(gates)
    ]


def changed(commands: Any) -> list[Any]:
    found = [each for each in commands if isinstance(each, Change)]
    return [each.new for each in found if each.new.get("kind") == "Workload"]


def test_the_workload_of_a_pod_gets_its_gates(pods):
    pod = pods.waiting(annotations={GATES: A})
    assert gates_of(made(plan_pod(JobSnapshot(PodJob(pod), pods.now)))) == A


def test_a_group_has_the_gates_of_all_its_pods(pods):
    assert gates_of(pods.composed(*members(pods, A, f"{B},{A}", ""))) == f"{A},{B}"


def test_a_group_loses_a_gate_with_its_last_pod_that_names_it(pods):
    workload = pods.composed(*members(pods, f"{A},{B}", A))
    assert changed(pods.plan(*members(pods, A, A), workload=workload))
    assert not changed(pods.plan(*members(pods, f"{A},{B}", ""), workload=workload))
    (free,) = changed(pods.plan(*members(pods, "", ""), workload=workload))
    assert gates_of(free) is None


def test_pods_that_are_over_gate_nothing(pods):
    first, second = members(pods, A, "")
    workload = pods.composed(first, second)
    over = pods.over("p0", "Succeeded", group="group", total=2, annotations={GATES: A})
    (free,) = changed(pods.plan(over, second, workload=workload))
    assert gates_of(free) is None


def test_replacements_gate_nothing_that_holds_quota(pods):
    workload = pods.admitted(pods.composed(*members(pods, "", "")))
    running = pods.running("p0", group="group", total=2)
    other = pods.waiting("p1", group="group", total=2, annotations={GATES: A})
    assert not changed(pods.plan(running, other, workload=workload))


def test_a_group_is_rewritten_with_its_gates(pods):
    """Edited pods and the end of their gates are one write."""
    workload = pods.composed(*members(pods, A, A))
    selector = {"nodeSelector": {"pool": "x"}}
    (both,) = changed(pods.plan(*members(pods, "", "", **selector), workload=workload))
    assert gates_of(both) is None
    assert both["spec"] != workload["spec"]


def test_a_parent_gates_its_groups(pods):
    waiting = members(pods, "", A)
    ref = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}
    parent = Parent(ref, 2, gates=(B,))
    workload = made(pods.plan(*waiting, parent=parent))
    assert gates_of(workload) == f"{B},{A}"


def stateful_set(gates: str = "") -> Obj:
    meta: Obj = {"name": "s", "namespace": "ns", "uid": "uid-s", "labels": {QUEUE: "q"}}
    if gates:
        meta["annotations"] = {GATES: gates}
    spec = {"template": {"spec": {"containers": [{"name": "c"}]}}, "replicas": 2}
    return {"metadata": meta, "spec": spec}


def leader_worker_set(gates: str = "") -> Obj:
    obj = stateful_set(gates)
    obj["spec"] = {"leaderWorkerTemplate": {"workerTemplate": obj["spec"]["template"], "size": 2}}
    return obj


def stored(obj: Obj) -> Store[Obj]:
    store: Store[Obj] = Store()
    store.put(ObjectKey("ns", "s"), obj)
    return store


def test_the_gates_of_parents_are_read(pods):
    note = f"{KUEUE}/pod-suspending-parent"
    ref = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}
    pod = pods.waiting(
        annotations={note: "statefulset"}, meta={"ownerReferences": [{**ref, "controller": True}]}
    )
    found = parent_of([pod], None, "ns", Parents(stored(stateful_set(f"{A},{B}"))))
    assert found is not None
    assert found.gates == (A, B)
    pod = pods.waiting(
        annotations={note: "leaderworkerset.x-k8s.io/leaderworkerset"},
        labels={
            "leaderworkerset.sigs.k8s.io/name": "s",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
        },
    )
    parents = Parents(None, lambda: stored(leader_worker_set(A)))
    found = parent_of([pod], None, "ns", parents)
    assert found is not None
    assert found.gates == (A,)


@pytest.mark.parametrize(
    ("judge", "make"),
    [
        (queueing_errors, stateful_set),
        (validate_stateful_set, stateful_set),
        (validate_leader_worker_set, leader_worker_set),
    ],
)
def test_gates_of_what_makes_pods_can_only_be_removed(judge, make):
    assert judge(make(f"{A},{B}"), None) == ()
    assert judge(make(A), make(f"{A},{B}")) == judge(make(), make(A)) == ()
    for new, old in ((make("bad"), None), (make(A), make()), (make(f"{A},{B}"), make(A))):
        (error,) = judge(new, old)
        assert error.path == f"metadata.annotations[{GATES}]"


def test_the_pods_of_a_deployment_have_its_gates():
    before = stateful_set(f"{A},{B}")
    obj = copy.deepcopy(before)
    gated = with_labels(obj)
    assert obj == before
    assert gates_of(gated["spec"]["template"]) == f"{A},{B}"
    one = copy.deepcopy(gated)
    one["metadata"]["annotations"][GATES] = A
    one = with_labels(one, gated)
    assert gates_of(one["spec"]["template"]) == A
    free = copy.deepcopy(one)
    del free["metadata"]["annotations"][GATES]
    assert gates_of(with_labels(free, one)["spec"]["template"]) is None


def test_gates_that_a_user_wrote_into_a_template_stay_there():
    obj = stateful_set()
    obj["spec"]["template"]["metadata"] = {"annotations": {GATES: C}}
    assert gates_of(with_labels(obj)["spec"]["template"]) == C
    assert gates_of(with_labels(obj, stateful_set(A))["spec"]["template"]) == C
