from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot

KUEUE = "kueue.x-k8s.io"
NOW = 1_700_000_000.0


class Build:
    """Raw objects for tests about jobs."""

    now = NOW
    origin: Mapping[str, Mapping[str, str]] = {
        "labels": {
            f"{KUEUE}/podset": "main",
            f"{KUEUE}/cluster-queue-name": "cq",
            f"{KUEUE}/local-queue-name": "main",
        },
        "annotations": {f"{KUEUE}/workload": "job-job-12345"},
    }
    """What the pods of its job say about their origin."""

    def job(
        self,
        *,
        queue: str | None = "main",
        suspend: bool = True,
        parallelism: int | None = 3,
        completions: int | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        meta: dict[str, Any] | None = None,
        pod: dict[str, Any] | None = None,
        template_labels: dict[str, str] | None = None,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        labels = {**({f"{KUEUE}/queue-name": queue} if queue else {}), **(labels or {})}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        obj: dict[str, Any] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "job",
                "namespace": "ns",
                "uid": "job-uid",
                "resourceVersion": "1",
                "labels": labels,
                **(meta or {}),
            },
            "spec": {
                "suspend": suspend,
                "template": {
                    "metadata": {"labels": {**(template_labels or {})}},
                    "spec": {"containers": [container], **(pod or {})},
                },
                **spec,
            },
        }
        if annotations:
            obj["metadata"]["annotations"] = annotations
        counts = {"parallelism": parallelism, "completions": completions}
        obj["spec"].update({key: value for key, value in counts.items() if value is not None})
        if status is not None:
            obj["status"] = status
        return obj

    def workload(
        self,
        job: dict[str, Any],
        *,
        name: str = "job-job-12345",
        created: str = "2024-01-01T00:00:00Z",
        meta: dict[str, Any] | None = None,
        reserved: bool = False,
        admitted: bool = False,
        evicted: str = "",
        finished: bool = False,
        flavors: dict[str, str] | None = None,
        count: int | None = None,
        checks: list[dict[str, Any]] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """The Workload of a job that has not started, in a state of its own."""
        pod_sets = [entry.raw() for entry in BatchJob(job).pod_sets()]
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        conditions = []

        def condition(type: str, status: str, reason: str) -> None:
            conditions.append(
                {
                    "type": type,
                    "status": status,
                    "reason": reason,
                    "message": f"{type} because {reason}",
                    "lastTransitionTime": created,
                }
            )

        status: dict[str, Any] = {}
        if reserved or admitted:
            condition("QuotaReserved", "True", "QuotaReserved")
            assignment = {
                "name": "main",
                "flavors": flavors or {"cpu": "spot"},
                "count": pod_sets[0]["count"] if count is None else count,
            }
            status["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
        if admitted:
            condition("Admitted", "True", "Admitted")
        if evicted:
            condition("Evicted", "True", evicted)
        if finished:
            condition("Finished", "True", "Succeeded")
        if checks:
            status["admissionChecks"] = checks
        return {
            "apiVersion": f"{KUEUE}/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-of-{name}",
                "resourceVersion": "7",
                "creationTimestamp": created,
                "labels": {f"{KUEUE}/job-uid": job["metadata"]["uid"]},
                "finalizers": [f"{KUEUE}/resource-in-use"],
                "ownerReferences": [owner],
                **(meta or {}),
            },
            "spec": {
                "queueName": job["metadata"]["labels"].get(f"{KUEUE}/queue-name", ""),
                "podSets": copy.deepcopy(pod_sets),
                "priority": 0,
                "active": True,
                **spec,
            },
            "status": {**status, "conditions": conditions},
        }

    def flavor(self, labels: dict[str, str], *tolerations: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"nodeLabels": labels, "tolerations": list(tolerations)}}

    @property
    def spot(self) -> dict[str, Any]:
        toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        return {"spot": self.flavor({"pool": "spot"}, toleration)}

    def started(self, job: dict[str, Any], **status: Any) -> dict[str, Any]:
        """The job as it runs on the flavor `spot`."""
        running = copy.deepcopy(job)
        running["spec"]["suspend"] = False
        spec = running["spec"]["template"]["spec"]
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "pool": "spot"}
        spec["tolerations"] = [
            *spec.get("tolerations", []),
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
        ]
        running["status"] = {"startTime": "2024-01-01T00:00:10Z", **status}
        return running

    def situation(self, job: dict[str, Any] | None, *workloads: Any, **fields: Any) -> JobSnapshot:
        return JobSnapshot(
            None if job is None else BatchJob(job),
            NOW,
            workloads=tuple(workloads),
            flavors=fields.pop("flavors", self.spot),
            **fields,
        )


@pytest.fixture
def build() -> Build:
    return Build()
