"""Jobs with values of a class with `@crd` instead of raw JSON."""

from __future__ import annotations

import copy
from typing import Any, Literal

import attrs
import pytest

from kueuelib import runtime as rt
from kueuelib.api.codec import decode
from kueuelib.errors import ConfigError, InvalidObject
from kueuelib.jobs import GenericJob, Integration, JobEnd
from kueuelib.jobs.contract.capabilities import begin_stop, end_stop
from kueuelib.jobs.contract.commands import Change, Delete, Emit
from kueuelib.jobs.contract.loose_objects import fitted
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.webhooks.rules import default_job
from kueuelib.runtime.webhook.admission import types_of

SETTINGS = JobSettings()


@rt.frozen(kw_only=True)
class Pool(rt.Struct):
    size: int = 1
    suspend: bool = False
    stages: tuple[str, ...] = ()


@rt.frozen
class PoolStatus(rt.Struct):
    phase: str = ""


@rt.crd("example.com", "v1", plural="pools", kind="Pool")
@rt.frozen(kw_only=True)
class PoolObject(rt.KubeObject):
    spec: Pool
    status: PoolStatus = PoolStatus()


class Untyped(GenericJob):
    """The kind with raw JSON."""

    resource = PoolObject.resource

    def is_suspended(self):
        return self.spec.get("suspend") is True

    def suspend(self):
        self.spec["suspend"] = True

    def run_with_podsets_info(self, infos):
        self.spec["suspend"] = False

    def restore_podsets_info(self, infos):
        return False

    def finished(self):
        return JobEnd(True, "") if self.status.get("phase") else None

    def pod_sets(self):
        return ()

    def is_active(self):
        return False

    def pods_ready(self):
        return True


class PoolJob(Untyped, GenericJob[PoolObject]):
    """The same with values."""

    def is_suspended(self):
        return self.object.spec.suspend

    def suspend(self):
        self.object = self.object.evolve(spec=self.object.spec.evolve(suspend=True))


def raw(**spec: Any) -> dict[str, Any]:
    unknown = {"ofTheFuture": {"a": [1, None]}, "suspend": False}
    meta = {"name": "p", "uid": "u", "managedFields": [{"manager": "m"}], "labels": {"a": "b"}}
    return {
        **PoolObject.resource.new("p", spec={**unknown, **spec}, more={"x": 1}),
        "metadata": meta,
    }


def test_the_object_is_a_value_and_the_kind_is_that_of_its_class() -> None:
    class Plain(GenericJob[PoolObject]):
        """Names no kind."""

    assert PoolJob(raw(size=3)).object.spec.size == 3
    assert Plain.resource is PoolObject.resource
    assert Untyped(raw(size=3)).object["spec"]["size"] == 3
    assert Untyped.object_class is None


def test_a_kind_may_say_another_version_for_its_class() -> None:
    class Newer(PoolJob, GenericJob[PoolObject]):
        resource = PoolObject.resource.at("v2")

    obj = {**raw(size=3), "apiVersion": "example.com/v2"}
    assert Newer.resource.version == "v2"
    job = Newer(obj)
    job.suspend()
    assert job.raw["apiVersion"] == "example.com/v2"
    moved = Integration.of(PoolJob).at("v2")
    assert moved.resource.version == "v2"
    assert moved.job_type(obj).object == job.object


def test_an_assignment_changes_what_differs_and_nothing_else() -> None:
    obj = raw(stages=["a"])
    job = PoolJob(copy.deepcopy(obj))
    job.object = job.object.evolve(spec=job.object.spec.evolve(size=2, stages=("b", "c")))
    spec = {**obj["spec"], "size": 2, "stages": ["b", "c"]}
    assert job.raw == {**obj, "spec": spec}

    job.object = job.object.evolve(spec=job.object.spec.evolve(size=1, stages=()))
    spec["size"] = 1  # a list that returns to its default is removed, a number is written
    del spec["stages"]
    assert job.raw == {**obj, "spec": spec}


def test_what_is_read_and_assigned_again_stays_as_it_came() -> None:
    job = PoolJob(obj := raw(suspend=False, size=1))
    before = copy.deepcopy(obj)
    job.object = job.object
    assert job.raw is obj
    assert obj == before


def test_values_follow_the_raw_object() -> None:
    job = PoolJob(raw())
    job.raw["spec"]["size"] = 7
    job.spec["stages"] = ["x"]
    assert job.object.spec.size == 7
    assert job.object.spec.stages == ("x",)


def test_a_copy_has_an_object_of_its_own() -> None:
    job = PoolJob(raw())
    other = job.suspended_copy()
    assert other.object.spec.suspend
    assert not job.object.spec.suspend


def test_the_framework_sends_the_difference() -> None:
    obj = raw()
    obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    made = default_job(
        Integration.of(PoolJob), obj, SETTINGS, namespace_labels={}, has_ancestor=False
    )
    assert made == {**obj, "spec": {**obj["spec"], "suspend": True}}

    (change, *_) = plan(JobSnapshot(PoolJob(obj), 0.0, SETTINGS, namespace_labels={}))
    assert change.patch == {"spec": {"suspend": True}}  # type: ignore[union-attr]


def test_a_stop_in_two_writes_works_on_the_raw_object() -> None:
    job = PoolJob(raw())
    mark = {"annotations": {"kueue.x-k8s.io/stopping": "true"}}
    assert begin_stop(job).patch == {"spec": {"suspend": True}, "metadata": mark}
    (end,) = end_stop(job, ())
    assert end.patch == {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": None}}}


def test_an_object_that_does_not_fit_names_its_field() -> None:
    with pytest.raises(InvalidObject, match=r"spec.size in body must be of type integer"):
        PoolJob(raw(size="3")).object  # noqa: B018


def test_webhooks_refuse_an_object_that_does_not_fit() -> None:
    schema = rt.crd_of(PoolObject)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    shape = Integration.of(PoolJob).shape
    assert shape == types_of(schema, required=True)
    assert shape["properties"]["spec"]["properties"]["size"] == {"type": "integer"}
    assert Integration.of(Untyped).shape == {}


def test_a_class_without_a_kind_is_refused() -> None:
    class Bare(rt.KubeObject):
        """Not decorated."""

    with pytest.raises(ConfigError, match="Bare: has no resource; decorate it with @crd, or"):

        class BareJob(GenericJob[Bare]):
            """Of no kind."""


def stored(job: GenericJob, commands: Any) -> GenericJob:
    """The job after the changes of a plan."""
    changed = [each for each in commands if isinstance(each, Change)]
    return type(job)(copy.deepcopy(changed[0].new)) if changed else job


def test_a_job_that_does_not_fit_its_class_is_stopped_and_says_so() -> None:
    """A CRD may allow what the class does not."""
    obj = raw(size="two", stages=["a", 1], suspend=False)
    obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "main"
    obj["metadata"]["namespace"] = "ns"
    job: GenericJob = PoolJob(obj)
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns", "uid": "w", "finalizers": []},
        "spec": {"podSets": []},
    }
    situation = JobSnapshot(job, 0.0, SETTINGS, workloads=(workload,))
    commands = plan(situation)
    told = [each.message for each in commands if isinstance(each, Emit)]
    assert any("spec.size in body must be of type integer" in message for message in told), told
    stopped = stored(job, commands)
    assert stopped.raw["spec"] == {**obj["spec"], "suspend": True}

    commands = plan(attrs.evolve(situation, job=stopped))
    assert any(isinstance(each, Delete) for each in commands), "its Workload keeps the quota"


@rt.frozen(kw_only=True)
class Strict(rt.Struct):
    size: int
    names: tuple[str, ...]
    level: Literal["high", "low"]
    pools: tuple[Pool, ...] = ()
    pool: Pool


def test_whatever_does_not_fit_is_read_as_something_that_does() -> None:
    piece = {"size": "x", "pools": 3, "pool": {"size": 2, "stages": 1}}
    read = decode(Strict, fitted(Strict, piece))
    assert read == Strict(size=0, names=(), level="high", pool=Pool(size=2))
