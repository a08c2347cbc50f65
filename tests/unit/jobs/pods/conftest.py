from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from kueuelib.api.meta import format_time
from kueuelib.jobs.contract.commands import Create
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.pods.facts import GroupFacts
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.marks import gated, ungated
from kueuelib.jobs.pods.pod_plan import plan_group, situation_of
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"
NOW = 1_700_000_000.0


class Pods:
    """Raw pods and groups for tests."""

    now = NOW
    flavors: ClassVar = {"spot": {"spec": {"nodeLabels": {"pool": "spot"}}}}

    def raw(
        self,
        name: str = "pod",
        *,
        queue: str | None = "main",
        group: str = "",
        total: int | str | None = None,
        cpu: str | None = "1",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        meta: dict[str, Any] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """A pod as a user sends it."""
        marks = {f"{KUEUE}/queue-name": queue, f"{KUEUE}/pod-group-name": group}
        notes = dict(annotations or {})
        if total is not None:
            notes[f"{KUEUE}/pod-group-total-count"] = str(total)
        container: dict[str, Any] = {"name": "c"}
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "creationTimestamp": format_time(NOW),
                "labels": {**{k: v for k, v in marks.items() if v}, **(labels or {})},
                "annotations": notes,
                **(meta or {}),
            },
            "spec": {"containers": [container], **spec},
            "status": {"phase": "Pending"},
        }

    def waiting(self, name: str = "pod", *, age: float = 0.0, **fields: Any) -> dict[str, Any]:
        """A pod as our webhook leaves it."""
        pod = gated(self.raw(name, **fields))
        pod["metadata"]["creationTimestamp"] = format_time(NOW - age)
        return pod

    def running(self, name: str = "pod", **fields: Any) -> dict[str, Any]:
        """A pod that we let run and that does."""
        pod = ungated(self.waiting(name, **fields), PodSetInfo("main"))
        pod["spec"]["nodeName"] = "node"
        pod["status"] = {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")
            ],
        }
        return pod

    def over(
        self, name: str = "pod", phase: str = "Failed", at: float = 0.0, **fields: Any
    ) -> dict[str, Any]:
        """A pod that ran and ended, as kubelets tell it."""
        pod = self.running(name, **fields)
        reason = "PodFailed" if phase == "Failed" else "PodCompleted"
        when = format_time(NOW + at)
        condition = {"status": "False", "reason": reason, "lastTransitionTime": when}
        pod["status"] = {
            "phase": phase,
            "conditions": [{"type": kind, **condition} for kind in ("Ready", "ContainersReady")],
        }
        return pod

    def deleted(self, pod: dict[str, Any], at: float = 30.0) -> dict[str, Any]:
        """The pod after somebody deleted it."""
        copied = copy.deepcopy(pod)
        copied["metadata"]["deletionTimestamp"] = format_time(NOW + at)
        copied["metadata"]["deletionGracePeriodSeconds"] = 30
        return copied

    def disrupted(
        self, pod: dict[str, Any], reason: str = "EvictionByEvictionAPI"
    ) -> dict[str, Any]:
        """The pod after something else than a request to delete it has deleted it."""
        gone = self.deleted(pod)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        gone["status"]["conditions"] = [*gone["status"].get("conditions", ()), condition]
        return gone

    # ---- groups

    def facts(self, *pods: Any, workload: Any = None, **fields: Any) -> GroupFacts:
        return GroupFacts("ns", "group", pods, workload, NOW, **fields)

    def group(self, *pods: Any, workload: Any = None, **fields: Any) -> PodGroup:
        return PodGroup(self.facts(*pods, workload=workload, **fields))

    def plan(self, *pods: Any, workload: Any = None, **fields: Any) -> tuple[Any, ...]:
        group = self.group(*pods, workload=workload, **fields)
        return plan_group(situation_of(group, JobSnapshot(None, NOW, flavors=self.flavors)), group)

    def composed(self, *pods: Any) -> dict[str, Any]:
        """The Workload that these pods make."""
        (create,) = [c for c in self.plan(*pods) if isinstance(c, Create)]
        workload = copy.deepcopy(create.obj)
        workload["metadata"].update(
            uid="wl-uid", resourceVersion="7", creationTimestamp=format_time(NOW)
        )
        return workload

    def admitted(self, workload: dict[str, Any], checks: Sequence[str] = ()) -> dict[str, Any]:
        """The Workload with quota in the flavor `spot`; only reserved if there are checks."""
        assigned = [
            {"name": entry["name"], "flavors": {"cpu": "spot"}, "count": entry["count"]}
            for entry in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
        return states.reserve(workload, admission, checks, NOW)

    def evicted(self, workload: dict[str, Any]) -> dict[str, Any]:
        return states.evict(workload, "Preempted", "room for others", NOW)


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def pair(pods: Pods) -> list[dict[str, Any]]:
    return [pods.waiting(name, group="group", total=2) for name in ("a", "b")]


@pytest.fixture
def running(pods: Pods) -> list[dict[str, Any]]:
    return [pods.running(name, group="group", total=2) for name in ("a", "b")]


@pytest.fixture
def admitted(pods: Pods, pair: list[dict[str, Any]]) -> dict[str, Any]:
    return pods.admitted(pods.composed(*pair))
