"""What the author of a kind gives the conformance suite, and the contract that it keeps."""

from __future__ import annotations

import abc
import copy
from typing import Any, ClassVar

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, labels_of
from kueuelib.api.names import (
    QUEUE_LABEL,
)
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.testing.job_world import NAMESPACE, QUEUE, JobWorld


class JobAdapter(abc.ABC):
    """Plays the controller of a kind; every method returns a new object and changes none."""

    integration: ClassVar[Integration]
    """The kind."""

    @abc.abstractmethod
    def make(self) -> Obj:
        """A job as a user creates it: not suspended, without labels, with two pods or more."""

    @abc.abstractmethod
    def running(self, obj: Obj) -> Obj:
        """The unsuspended job once all its pods are ready."""

    @abc.abstractmethod
    def stopped(self, obj: Obj) -> Obj:
        """The suspended job once its last pod is gone."""

    @abc.abstractmethod
    def succeeded(self, obj: Obj) -> Obj:
        """The job once it did what it was made for."""

    @abc.abstractmethod
    def failed(self, obj: Obj) -> Obj:
        """The job once it failed for good."""

    @abc.abstractmethod
    def changed(self, obj: Obj) -> Obj:
        """The job as a user changes it so that it asks for other pods."""


def check_adapter(adapter: Any) -> None:
    """Check that an adapter keeps its contract.

    Raises:
        ConfigError: it does not; the error names the member and the fix.
    """
    name = adapter.__name__ if isinstance(adapter, type) else type(adapter).__name__
    if not isinstance(adapter, JobAdapter):
        fix = f"write adapter = {name}()" if isinstance(adapter, type) else "inherit JobAdapter"
        raise ConfigError(f"adapter {name}", "is not an instance of JobAdapter", fix)
    integration = getattr(adapter, "integration", None)
    if not isinstance(integration, Integration):
        kind = getattr(integration, "__name__", type(integration).__name__)
        raise ConfigError(
            f"{name}.integration",
            f"{kind} is not an Integration",
            f"write Integration.of({kind}), or use what declare() returned",
        )
    given = _returned(name, "make", adapter.make())
    given["metadata"] = {"namespace": NAMESPACE, "uid": "uid", **given["metadata"]}
    job = integration.job_type(copy.deepcopy(given))
    job.suspend()
    for method in ("running", "stopped", "succeeded", "failed", "changed"):
        argument = {"status": {}, **copy.deepcopy(job.object)}
        before = copy.deepcopy(argument)
        _returned(name, method, getattr(adapter, method)(argument))
        if argument != before:
            raise ConfigError(
                f"{name}.{method}",
                "changes its argument",
                "return a changed copy: copy.deepcopy(obj)",
            )


def _returned(adapter: str, method: str, value: Any) -> Obj:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        kind = "an object without metadata" if isinstance(value, dict) else type(value).__name__
        raise ConfigError(
            f"{adapter}.{method}()", f"returned {kind}", "return the whole raw object"
        )
    return value


class AdaptedJobs:
    """What the cases are made of: jobs of one adapter, and the world they live in."""

    adapter: ClassVar[JobAdapter]

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse an adapter that does not keep its contract, with one error."""
        super().__init_subclass__(**more)
        if "adapter" in vars(cls):
            check_adapter(cls.adapter)

    @property
    def _integration(self) -> Integration:
        return self.adapter.integration

    def _job(self, obj: Obj) -> GenericJob:
        return self._integration.job_type(obj)

    def _new(self) -> Obj:
        obj = self.adapter.make()
        obj["metadata"] = {"namespace": NAMESPACE, "uid": "uid", **obj["metadata"]}
        return obj

    def _queued(self) -> Obj:
        obj = self._new()
        obj["metadata"]["labels"] = {**labels_of(obj), QUEUE_LABEL: QUEUE}
        return obj

    def _suspended(self) -> Obj:
        obj = self._new()
        self._job(obj).suspend()
        return obj

    def _started(self) -> Obj:
        job = self._job(self._suspended())
        job.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in job.pod_sets()])
        return job.object

    def _infos(self, job: GenericJob) -> list[PodSetInfo]:
        toleration = {"key": "conformance", "operator": "Exists"}
        return [
            PodSetInfo(
                entry.name,
                entry.count,
                annotations={"pod-set": entry.name},
                labels={"pod-set": entry.name},
                node_selector={"pod-set": entry.name},
                tolerations=(toleration,),
            )
            for entry in job.pod_sets()
        ]

    def _world(self, obj: Obj, *, one_at_a_time: bool = False) -> JobWorld:
        return JobWorld(self._integration, obj, one_at_a_time=one_at_a_time)

    def _waiting(self, *, one_at_a_time: bool = False) -> JobWorld:
        obj = self._queued()
        self._job(obj).suspend()
        world = self._world(obj, one_at_a_time=one_at_a_time)
        world.settle()
        return world

    def _assert_restored(self, world: JobWorld) -> None:
        """The templates are as they were before the job was started."""
        before = self._job(self._suspended()).pod_sets()
        for entry, wanted in zip(self._job(world.live_job).pod_sets(), before, strict=True):
            assert placed_parts(entry.template) == placed_parts(wanted.template)

    def _assert_starts_elsewhere(self, world: JobWorld) -> None:
        """The stopped job gave everything back, and runs where it is admitted next."""
        assert world.is_suspended()
        assert not world.holds_quota()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        assert not world.is_suspended()
        self._assert_placed(world, "reserved")

    def _assert_placed(self, world: JobWorld, pool: str) -> None:
        """Every template selects the nodes of that flavor."""
        for entry in self._job(world.live_job).pod_sets():
            assert entry.template["spec"]["nodeSelector"]["pool"] == pool

    def _running(self, *, one_at_a_time: bool = False) -> JobWorld:
        world = self._waiting(one_at_a_time=one_at_a_time)
        world.admit("spot")
        world.settle()
        world.change(self.adapter.running(world.live_job))
        world.settle()
        assert not world.is_suspended(), "the job runs, and what was admitted is what it asks for"
        assert world.workload["kind"] == WORKLOADS.kind
        return world


def placed_parts(template: Obj) -> tuple[Any, ...]:
    """What a start changes in a template, absent as empty."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    return (
        meta.get("labels") or {},
        meta.get("annotations") or {},
        spec.get("nodeSelector") or {},
        spec.get("tolerations") or [],
    )
