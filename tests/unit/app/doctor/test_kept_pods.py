"""Deleted pods whose finalizer a manager keeps on purpose, and others that nothing ends."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import format_time


def _deleted_pod(patient: Any, name: str, phase: str, group: str = "g", **spec: Any) -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": group}
    meta = {
        "deletionTimestamp": format_time(patient.now - 600),
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    meta = {**meta, "labels": labels, "deletionGracePeriodSeconds": 30}
    patient.add("Pod", name, "ns", metadata=meta, spec=spec, status={"phase": phase})


def test_a_finalizer_that_a_manager_keeps_on_purpose_is_not_reported(patient: Any) -> None:
    """A pod that has succeeded stays until its group is finished. A group that a user deletes stays
    until its last pod has ended.
    """
    patient.get("Workload", "runs")["metadata"]["name"] = "g"
    _deleted_pod(patient, "done", "Succeeded")
    assert patient.found() == []
    _deleted_pod(patient, "never-started", "Pending", "other")
    assert [name for name, *_ in patient.found()] == ["pod-finalizer-stuck"]
    _deleted_pod(patient, "still-ends", "Running", "other", nodeName="n")
    assert patient.found() == []


@pytest.mark.parametrize("ready", ["Unknown", "True"])
def test_a_pod_whose_node_is_lost_is_named_with_what_frees_its_quota(
    patient: Any, ready: str
) -> None:
    _deleted_pod(patient, "lone", "Running", "", nodeName="n")
    workload = patient.get("Workload", "runs")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "lone", "uid": "uid-lone"}
    workload["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    patient.get("Node")["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    found = dict(patient.found()).get("pod-finalizer-stuck")
    assert (found is None) is (ready == "True")
    if found is not None:
        assert found.problem == (
            "it should have ended 10m ago, but its node n does not answer; its Workload runs "
            "holds quota until then"
        )
        assert found.fix.startswith("kubectl delete -n ns pod lone --force --grace-period=0  # ")


def test_a_job_that_a_finalizer_of_another_program_keeps_is_named_with_it(patient: Any) -> None:
    meta = {
        "deletionTimestamp": format_time(patient.now - 600),
        "finalizers": ["foregroundDeletion", "example.com/keep"],
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
    }
    patient.add("Job", "job", "ns", metadata=meta, spec={"suspend": True})
    found = patient.only("finalizer-stuck")
    kept = "it was deleted 10m ago, and finalizer example.com/keep of another program keeps it"
    assert str(found.subject) == "Job ns/job"
    assert found.problem == f"{kept}; its Workload runs holds quota while its pods run"
    assert found.fix.startswith("kubectl patch -n ns job job --type=json -p ")
    patient.remove("Workload", "runs")
    patient.get("ClusterQueue")["status"] |= {"reservingWorkloads": 0, "flavorsReservation": []}
    assert dict(patient.found())["finalizer-stuck"].problem == kept
    assert "job-unqueued" not in dict(patient.found())
