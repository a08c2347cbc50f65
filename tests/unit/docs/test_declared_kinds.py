"""The declarations of the page on other kinds keep what a `GenericJob` has to keep."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kueuelib.jobs.paths import put, value
from kueuelib.jobs.registry import Integration
from kueuelib.testing.job_conformance import JobAdapter, JobConformance

Obj = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs/declared-kinds.md"


def declarations() -> dict[str, Integration]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return {name: found for name, found in names.items() if isinstance(found, Integration)}


KINDS = declarations()


def template() -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"containers": [container]}}


class Kind(JobAdapter):
    """A kind whose status is replaced as a whole."""

    spec: ClassVar[Obj]
    count: ClassVar[str]
    statuses: ClassVar[dict[str, Obj]]

    def make(self) -> Obj:
        return {"metadata": {"name": "j"}, "spec": copy.deepcopy(self.spec)}

    def _with(self, obj: Obj, state: str) -> Obj:
        return {**copy.deepcopy(obj), "status": copy.deepcopy(self.statuses[state])}

    def running(self, obj: Obj) -> Obj:
        return self._with(obj, "running")

    def stopped(self, obj: Obj) -> Obj:
        return self._with(obj, "stopped")

    def succeeded(self, obj: Obj) -> Obj:
        return self._with(obj, "succeeded")

    def failed(self, obj: Obj) -> Obj:
        return self._with(obj, "failed")

    def changed(self, obj: Obj) -> Obj:
        found = copy.deepcopy(obj)
        # a list is not a place that `put` writes to, so the element is found first
        *way, last = self.count.split(".")
        place: Any = found
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[last] += 1
        return found


def condition(type: str) -> Obj:
    return {"type": type, "status": "True"}


class JobSets(Kind):
    integration = KINDS["jobset"]
    spec: ClassVar[Obj] = {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": template()}}},
            {
                "name": "workers",
                "replicas": 2,
                "template": {"spec": {"parallelism": 3, "template": template()}},
            },
        ]
    }
    count = "spec.replicatedJobs.1.replicas"
    statuses: ClassVar[dict[str, Obj]] = {
        "running": {
            "replicatedJobsStatus": [
                {"name": "driver", "active": 1, "ready": 1},
                {"name": "workers", "active": 2, "ready": 3},
            ]
        },
        "stopped": {"replicatedJobsStatus": [{"name": "driver", "active": 0}]},
        "succeeded": {"conditions": [condition("Completed")]},
        "failed": {"conditions": [condition("Failed")]},
    }


class RayJobs(Kind):
    integration = KINDS["rayjob"]
    spec: ClassVar[Obj] = {
        "rayClusterSpec": {
            "headGroupSpec": {"template": template()},
            "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": template()}],
        }
    }
    count = "spec.rayClusterSpec.workerGroupSpecs.0.replicas"
    statuses: ClassVar[dict[str, Obj]] = {
        "running": {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
        "stopped": {"jobDeploymentStatus": "Suspended"},
        "succeeded": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
        "failed": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "it broke"},
    }


def roles(field: str, first: str) -> Obj:
    specs = {"Worker": {"replicas": 2, "template": template()}, first: {"template": template()}}
    return {field: specs}


TRAINING_STATUSES: dict[str, Obj] = {
    "running": {
        "conditions": [condition("Running")],
        "replicaStatuses": {"Worker": {"active": 2}},
    },
    "stopped": {"replicaStatuses": {"Worker": {"active": 0}}},
    "succeeded": {"conditions": [condition("Succeeded")]},
    "failed": {"conditions": [condition("Failed")]},
}


class MPIJobs(Kind):
    integration = KINDS["mpijob"]
    spec: ClassVar[Obj] = roles("mpiReplicaSpecs", "Launcher")
    count = "spec.mpiReplicaSpecs.Worker.replicas"
    statuses: ClassVar[dict[str, Obj]] = TRAINING_STATUSES


class PyTorchJobs(Kind):
    integration = KINDS["pytorchjob"]
    spec: ClassVar[Obj] = roles("pytorchReplicaSpecs", "Master")
    count = "spec.pytorchReplicaSpecs.Worker.replicas"
    statuses: ClassVar[dict[str, Obj]] = TRAINING_STATUSES


class TestJobSet(JobConformance):
    adapter = JobSets()


class TestRayJob(JobConformance):
    adapter = RayJobs()


class TestMPIJob(JobConformance):
    adapter = MPIJobs()


class TestPyTorchJob(JobConformance):
    adapter = PyTorchJobs()


@pytest.mark.parametrize(
    ("adapter", "shapes"),
    [
        (JobSets(), {"driver": 1, "workers": 6}),
        (RayJobs(), {"head": 1, "small": 2}),
        (MPIJobs(), {"launcher": 1, "worker": 2}),
        (PyTorchJobs(), {"master": 1, "worker": 2}),
    ],
)
def test_pod_sets_are_those_of_the_kind(adapter: Kind, shapes: dict[str, int]) -> None:
    job = adapter.integration.job_type(adapter.make())
    found = {entry.name: entry.count for entry in job.pod_sets()}
    assert found == shapes
    assert list(found) == list(shapes)


def test_a_tfjob_differs_in_names_only() -> None:
    obj: Obj = {"spec": {}}
    put(obj, "spec.tfReplicaSpecs", roles("x", "PS")["x"])
    job = KINDS["tfjob"].job_type(obj)
    assert [entry.name for entry in job.pod_sets()] == ["ps", "worker"]
    job.suspend()
    assert value(obj, "spec.runPolicy.suspend") is True
