"""Every kind of jobs that comes with kueuelib, and the examples, keep what a `GenericJob` keeps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.builtin import BATCH_JOB
from kueuelib.jobs.catalog.plugins import load
from kueuelib.testing import JobAdapter, JobConformance

Obj = dict[str, Any]
EXAMPLE = Path(__file__).parents[3] / "examples/custom_job"


def with_status(obj: Obj, **status: Any) -> Obj:
    return {**copy.deepcopy(obj), "status": status}


class BatchJobs(JobAdapter):
    integration = BATCH_JOB

    def make(self) -> Obj:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        return {"metadata": {"name": "job"}, "spec": {"parallelism": 3, "template": template}}

    def running(self, obj: Obj) -> Obj:
        count = obj["spec"]["parallelism"]
        return with_status(obj, active=count, ready=count, startTime="2024-01-01T00:00:00Z")

    def stopped(self, obj: Obj) -> Obj:
        status = {"startTime": obj["status"]["startTime"]} if obj["status"].get("startTime") else {}
        return with_status(obj, active=0, ready=0, **status)

    def succeeded(self, obj: Obj) -> Obj:
        return with_status(obj, conditions=[{"type": "Complete", "status": "True"}])

    def failed(self, obj: Obj) -> Obj:
        return with_status(obj, conditions=[{"type": "Failed", "status": "True"}])

    def changed(self, obj: Obj) -> Obj:
        found = copy.deepcopy(obj)
        found["spec"]["parallelism"] = 5
        return found


class PartialBatchJobs(BatchJobs):
    """Jobs that can run with fewer pods than they ask for."""

    def make(self) -> Obj:
        obj = super().make()
        obj["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
        return obj

    def changed(self, obj: Obj) -> Obj:
        found = copy.deepcopy(obj)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["resources"]["requests"]["cpu"] = "2"
        return found


class Trainings(JobAdapter):
    integration = load(str(EXAMPLE / "training.py"))

    def make(self) -> Obj:
        obj = yaml.safe_load((EXAMPLE / "training.yaml").read_text())
        del obj["metadata"]["labels"]
        return obj

    def running(self, obj: Obj) -> Obj:
        count = 1 + obj["spec"]["workers"]["replicas"]
        return with_status(obj, active=count, ready=count, phase="Running")

    def stopped(self, obj: Obj) -> Obj:
        return with_status(obj, active=0, ready=0, phase="Pending")

    def succeeded(self, obj: Obj) -> Obj:
        return with_status(obj, active=0, ready=1, phase="Succeeded")

    def failed(self, obj: Obj) -> Obj:
        return with_status(obj, active=0, ready=0, phase="Failed")

    def changed(self, obj: Obj) -> Obj:
        found = copy.deepcopy(obj)
        found["spec"]["workers"]["replicas"] += 1
        return found


class DeclaredTrainings(Trainings):
    integration = load(str(EXAMPLE / "training_declared.py"))


class TestBatchJob(JobConformance):
    adapter = BatchJobs()


class TestPartialBatchJob(JobConformance):
    adapter = PartialBatchJobs()


class TestTraining(JobConformance):
    adapter = Trainings()


class TestDeclaredTraining(JobConformance):
    adapter = DeclaredTrainings()


def test_an_adapter_that_breaks_its_contract_is_refused_with_one_error() -> None:
    class Silent(BatchJobs):
        def running(self, obj: Obj) -> Obj:
            return None  # type: ignore[return-value]

    class Careless(BatchJobs):
        def failed(self, obj: Obj) -> Obj:
            obj["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
            return obj

    class Unwrapped(BatchJobs):
        integration = BATCH_JOB.job_type  # type: ignore[assignment]

    for adapter, said in (
        (Silent(), r"Silent.running\(\): returned NoneType; return the whole raw object"),
        (Careless(), r"Careless.failed: changes its argument; return a changed copy"),
        (Unwrapped(), r"integration: BatchJob is not an Integration; write Integration.of\(Batch"),
        (BatchJobs, r"adapter BatchJobs: is not an instance of JobAdapter; write adapter = Batch"),
    ):
        with pytest.raises(ConfigError, match=said):
            type("TestIt", (JobConformance,), {"adapter": adapter})
