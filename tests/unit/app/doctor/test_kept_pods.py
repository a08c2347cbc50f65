"""Deleted pods whose finalizer a manager keeps on purpose."""

from __future__ import annotations

from typing import Any

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
