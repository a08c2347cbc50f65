"""Every kind of jobs that comes with kueuelib, and the examples, keep what a `GenericJob` keeps."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from kueuelib.app.programs import load
from kueuelib.errors import ConfigError
from kueuelib.jobs import (
    BatchJob,
    GenericJob,
    Integration,
    JobEnd,
    Pods,
    PodSet,
    PodSetInfo,
    declare,
    enough,
    equals,
    merge_all,
    restore_all,
)
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.commands import Change
from kueuelib.runtime import Resource
from kueuelib.testing import JobAdapter, JobConformance
from kueuelib.testing.job_world import JobWorld, NotSettled

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
        suspended = [{"type": "Suspended", "status": "True"}]
        return with_status(obj, active=0, ready=0, conditions=suspended, **status)

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


class Nightly(BatchJob):
    """A kind with the fields of a Job."""

    resource = Resource("example.com", "v1", "nightlies", "Nightly", namespaced=True)


class Nightlies(BatchJobs):
    integration = Integration.of(Nightly)


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


class TypedTrainings(Trainings):
    integration = of_file(str(EXAMPLE / "training_typed.py"))


class ModelJobs(BatchJobs):
    """The same kind with models of kubernetes_asyncio."""

    integration = Integration.of(
        runpy.run_path(str(EXAMPLE.parent / "from_kubernetes_asyncio/queued.py"))["SmallJob"]
    )


class TestModelJob(JobConformance):
    adapter = ModelJobs()


class TestBatchJob(JobConformance):
    adapter = BatchJobs()


class TestPartialBatchJob(JobConformance):
    adapter = PartialBatchJobs()


class TestKindDerivedFromBatchJob(JobConformance):
    adapter = Nightlies()


class TestTraining(JobConformance):
    adapter = Trainings()


class TestDeclaredTraining(JobConformance):
    adapter = DeclaredTrainings()


class TestTypedTraining(JobConformance):
    adapter = TypedTrainings()


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


class PartialRenders(Renders):
    """The same, if fewer workers than asked for are enough; its user changes their number."""

    integration = declare(
        Resource("example.com", "v1", "renders", "Render", namespaced=True),
        pods=[Pods("main", count="spec.workers", min_count="spec.fewest")],
        active="status.active",
        ready=enough("status.ready"),
        succeeded=equals("status.phase", "Succeeded"),
        failed=equals("status.phase", "Failed"),
    )

    def make(self) -> Obj:
        obj = super().make()
        return {**obj, "spec": {**obj["spec"], "fewest": 2}}


class TestPartialRender(JobConformance):
    adapter = PartialRenders()


class Pair(GenericJob):
    """A kind with two pod sets; the second one can be smaller, and counts are always restored."""

    resource = Resource("example.com", "v1", "pairs", "Pair", namespaced=True)

    def _roles(self) -> list[Obj]:
        return [self.spec["first"], self.spec["second"]]

    def pod_sets(self) -> tuple[PodSet, ...]:
        first, second = copy.deepcopy(self._roles())
        return (
            PodSet("first", first["count"], first["template"]),
            PodSet("second", second["count"], second["template"], second.get("fewest")),
        )

    def is_suspended(self) -> bool:
        return self.spec.get("suspend") is True

    def suspend(self) -> None:
        self.spec["suspend"] = True

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        merge_all("Pair", [role["template"] for role in self._roles()], infos)
        for role, info in zip(self._roles(), infos, strict=True):
            role["count"] = info.count
        self.spec["suspend"] = False

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        before = copy.deepcopy(self.spec)
        restore_all([role["template"] for role in self._roles()], infos)
        for role, info in zip(self._roles(), infos, strict=False):
            role["count"] = info.count
        return before != self.spec

    def finished(self) -> JobEnd | None:
        phase = self.status.get("phase")
        return JobEnd(phase == "Succeeded", phase) if phase in ("Succeeded", "Failed") else None

    def is_active(self) -> bool:
        return bool(self.status.get("active"))

    def pods_ready(self) -> bool:
        return bool(self.status.get("ready"))


class Pairs(Renders):
    """Both pod sets have one template, which is one object in the memory of the adapter."""

    integration = Integration.of(Pair)

    def make(self) -> Obj:
        template = super().make()["spec"]["template"]
        first, second = ({"count": 2, "template": template} for _ in range(2))
        return {"metadata": {"name": "p"}, "spec": {"first": first, "second": second}}

    def changed(self, obj: Obj) -> Obj:
        second = {**obj["spec"]["second"], "count": 7}
        return {**obj, "spec": {**obj["spec"], "second": second}}


class PartialPairs(Pairs):
    """The second pod set can be smaller."""

    def make(self) -> Obj:
        obj = super().make()
        obj["spec"]["second"]["fewest"] = 1
        return obj


class TestPair(JobConformance):
    adapter = Pairs()


class TestPartialPair(JobConformance):
    adapter = PartialPairs()


class Forgetful(Pair):
    """Stays suspended."""

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        merge_all("Pair", [role["template"] for role in self._roles()], infos)


class Restless(Pair):
    """Changes at every look."""

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        self.spec["looks"] = self.spec.get("looks", 0) + 1
        return True


@pytest.mark.parametrize(
    ("job_type", "case", "said"),
    [
        (
            Forgetful,
            "test_an_admitted_job_starts_where_it_was_admitted",
            ["look at Forgetful.run_with_podsets_info() and Forgetful.pod_sets()"],
        ),
        (
            Restless,
            "test_infos_reach_every_template_and_are_taken_away_again",
            ["look at Restless.run_with_podsets_info() and Restless.restore_podsets_info()"],
        ),
    ],
)
def test_a_case_that_fails_names_the_methods_to_look_at(
    job_type: type[Pair], case: str, said: list[str]
) -> None:
    cases = type("Cases", (JobConformance,), {})()
    type(cases).adapter = type("Own", (Pairs,), {"integration": Integration.of(job_type)})()
    with pytest.raises(AssertionError) as caught:
        getattr(cases, case)()
    assert caught.value.__notes__ == said


def test_an_answer_that_is_not_json_is_refused() -> None:
    class Strange(Pairs):
        def running(self, obj: Obj) -> Obj:
            return {**obj, "status": {"active": {1, 2}}}

    with pytest.raises(ConfigError, match=r"Strange.running\(\): is not JSON: .*; return texts, n"):
        check(Strange())


def test_a_job_that_never_settles_is_told_with_what_changes() -> None:
    world = JobWorld(Pairs.integration, Pairs().make())
    left = Change(Pair.resource, world.live_job, {**world.live_job, "spec": {"suspend": True}})
    with (
        mock.patch("kueuelib.testing.job_world.plan", return_value=(left,)),
        pytest.raises(NotSettled, match="after 30 steps the job still changes: Pair gets {'spec'"),
    ):
        world.settle()


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
            {"active": "metadata.name"},
            "Render.is_active(): returns True for what Own.stopped() returns, where metadata",
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
