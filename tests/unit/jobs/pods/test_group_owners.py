"""Whose Workload a group has, and what does not end it (KEP-976)."""

from __future__ import annotations

from kueuelib.jobs.contract.commands import Delete
from kueuelib.jobs.pods.pod_plan import plan_without_pods


def test_a_preempted_group_whose_pods_had_no_node_waits_for_others(pods, running, admitted):
    stopped = [pods.deleted(pod) for pod in running]
    for pod in stopped:
        del pod["spec"]["nodeName"]
        pod["status"] = {"conditions": [{"type": "TerminationTarget", "status": "True"}]}
    (patch,) = pods.plan(*stopped, workload=pods.evicted(admitted))
    assert "admission" not in patch.status
    (condition,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
    assert condition["message"] == "The group waits for 2 pods to be replaced"


def test_a_role_that_has_succeeded_twice_does_not_end_another_one(pods):
    waiting = [pods.waiting(name, group="group", total=2, cpu=cpu) for name, cpu in ("a1", "b2")]
    admitted = pods.admitted(pods.composed(*waiting))
    admitted["metadata"]["ownerReferences"].append({"uid": "uid-c"})
    runs = pods.running("b", group="group", total=2, cpu="2")
    done = [pods.over(name, "Succeeded", group="group", total=2) for name in ("a", "c")]
    group = pods.group(*done, runs, workload=admitted)
    assert group.finished() is None
    assert group.reclaimable_pods()


def test_other_owners_of_a_workload_do_not_matter(pods, running, admitted):
    admitted["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": "uid-app"}
    )
    assert pods.plan(*running, workload=admitted) == ()
    left = {**admitted, "metadata": {**admitted["metadata"]}}
    left["metadata"]["ownerReferences"] = admitted["metadata"]["ownerReferences"][-1:]
    first = plan_without_pods(pods.facts(workload=left).own)[0]
    assert isinstance(first, Delete)
    assert first.obj == left


def test_a_workload_that_something_controls_is_not_that_of_a_group(pods, pair, admitted):
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    admitted["metadata"]["ownerReferences"] = [ref]
    assert pods.facts(*pair, workload=admitted).name_is_taken
