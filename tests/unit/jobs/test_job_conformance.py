"""Every kind of jobs that comes with kueuelib, and the examples, keep what a `GenericJob` keeps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.app.programs import load
from kueuelib.errors import ConfigError
from kueuelib.jobs import Integration, Pods, declare, enough, equals
from kueuelib.jobs.catalog.builtin import BATCH_JOB
from kueuelib.runtime import Resource
from kueuelib.testing import JobAdapter, JobConformance

Obj = dict[str, Any]
EXAMPLE = Path(__file__).parents[3] / "examples/custom_job"


def of_file(path: str) -> Integration:
    found = load(path)
    assert isinstance(found, Integration)
    return found


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
    integration = of_file(str(EXAMPLE / "training.py"))

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
    integration = of_file(str(EXAMPLE / "training_declared.py"))


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


class Renders(JobAdapter):
    """Jobs of a kind declared below."""

    def make(self) -> Obj:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        return {"metadata": {"name": "r"}, "spec": {"workers": 3, "template": template}}

    def running(self, obj: Obj) -> Obj:
        return with_status(obj, phase="Running", active=3, ready=3)

    def stopped(self, obj: Obj) -> Obj:
        return with_status(obj, phase="Pending")

    def succeeded(self, obj: Obj) -> Obj:
        return with_status(obj, phase="Succeeded")

    def failed(self, obj: Obj) -> Obj:
        return with_status(obj, phase="Failed")

    def changed(self, obj: Obj) -> Obj:
        return {**obj, "spec": {**obj["spec"], "workers": 5}}


def renders(template: str = "spec.template", **changed: Any) -> Integration:
    arguments: dict[str, Any] = {
        "active": "status.active",
        "ready": enough("status.ready"),
        "succeeded": equals("status.phase", "Succeeded"),
        "failed": equals("status.phase", "Failed"),
    }
    return declare(
        Resource("example.com", "v1", "renders", "Render", namespaced=True),
        pods=[Pods("main", template=template, count="spec.workers")],
        **{**arguments, **changed},
    )


def adapter_of(integration: Integration, crd: Any = None) -> JobAdapter:
    return type("Own", (Renders,), {"integration": integration, "crd": crd})()


def check(adapter: JobAdapter) -> None:
    type("TestIt", (JobConformance,), {"adapter": adapter})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"template": "spec.tmplate"},
            "Render.pod_sets(): spec.tmplate: there is no pod template to queue, in what Own",
        ),
        (
            {"active": "status.actve"},
            (
                "Render.is_active(): returns False for what Own.running() returns, where "
                "status.actve is absent; correct active='status.actve', or Own.running()"
            ),
        ),
        (
            {"ready": enough("status.redy")},
            "Render.pods_ready(): returns False for what Own.running() returns",
        ),
        (
            {"active": "spec.workers"},
            "Render.is_active(): returns True for what Own.stopped() returns, where spec.wor",
        ),
        (
            {"succeeded": equals("status.fase", "Succeeded")},
            (
                "Render.finished(): returns None for what Own.succeeded() returns, where "
                "status.fase is absent; correct succeeded=Equals(path='status.fase', wanted=("
            ),
        ),
        (
            {"failed": equals("status.phase", "Faild")},
            (
                "Render.finished(): returns None for what Own.failed() returns, where "
                "status.phase is 'Failed'; correct failed=Equals(path='status.phase', wanted=("
            ),
        ),
        (
            {"failed": lambda _: False},
            "Render.finished(): returns None for what Own.failed() returns; correct failed, or Own",
        ),
        (
            {
                "succeeded": equals("status.phase", "Failed"),
                "failed": equals("status.phase", "Succeeded"),
            },
            "Render.finished(): says succeeded=False for what Own.succeeded() returns",
        ),
    ],
)
def test_a_wrong_declaration_is_one_error(changed: dict[str, Any], said: str) -> None:
    check(adapter_of(renders()))
    with pytest.raises(ConfigError) as caught:
        check(adapter_of(renders(**changed)))
    assert str(caught.value).startswith(said)


def test_a_class_that_answers_nothing_is_one_error() -> None:
    job_type = renders().job_type
    for method, said in (
        ("pod_sets", "Render.pod_sets(): returned NoneType; return a list of PodSet(...)"),
        (
            "finished",
            "Render.finished(): returns None for what Own.succeeded() returns; correct fin",
        ),
    ):
        silent = type("Render", (job_type,), {method: lambda _: None})
        with pytest.raises(ConfigError) as caught:
            check(adapter_of(Integration.of(silent)))
        assert str(caught.value).startswith(said)


def test_paths_are_compared_with_the_crd(tmp_path: Path) -> None:
    spec = {
        "type": "object",
        "properties": {
            "paused": {"type": "boolean"},
            "workers": {"type": "integer"},
            "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {name: {} for name in ("active", "ready", "phase")}
    schema = {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": status}},
    }
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]
    crd = {"metadata": {"name": "renders.example.com"}, "spec": {"versions": versions}}
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump_all([{"kind": "Namespace"}, crd]))
    for given in (crd, file, str(file)):
        check(adapter_of(renders(suspend="spec.paused"), given))
        with pytest.raises(ConfigError, match="suspend='spec.pausd' is not a field .*'paused' for"):
            check(adapter_of(renders(suspend="spec.pausd"), given))
    status["phase"] = {"type": "string", "enum": ["Running", "Succeeded", "Failed"]}
    misspelt = renders(suspend="spec.paused", failed=equals("status.phase", "Faild"))
    said = r"Own.crd: Render: failed='status.phase' is never 'Faild': the CRD allows 'Running', .*;"
    with pytest.raises(ConfigError, match=said):
        check(adapter_of(misspelt, crd))
    with pytest.raises(ConfigError, match=r"Own.crd: has no CRD renders\.example\.com"):
        check(adapter_of(renders(), {"metadata": {"name": "others.example.com"}}))
    with pytest.raises(ConfigError, match=r"missing\.yaml: No such file"):
        check(adapter_of(renders(), "missing.yaml"))


def test_an_integration_is_made_of_a_class_of_jobs() -> None:
    job = renders().job_type({"metadata": {}})
    with pytest.raises(ConfigError, match=r"Render is not a class; write Integration\.of\(Render"):
        Integration.of(job)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"of\(dict\): is not a GenericJob with a resource"):
        Integration.of(dict)  # type: ignore[arg-type]
