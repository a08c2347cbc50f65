"""The same cases for every kind of jobs: what a `GenericJob` has to keep to be queued (KEP-369).

    class TrainingAdapter(JobAdapter):
        integration = training.integration
        def make(self): ...
        def running(self, obj): ...
        ...

    class TestTraining(JobConformance):
        adapter = TrainingAdapter()

pytest collects the cases from the subclass. The adapter has a contract, which is checked before any
case runs: `integration` is an `Integration` (what `declare` returned, or `Integration.of` made of a
class), and each method returns a whole raw object and leaves its argument as it is. The cases hold
for jobs that are one object; a `ComposableJob` stops and starts in a way of its own.
"""

from __future__ import annotations

import abc
import copy
from typing import Any, ClassVar

import pytest

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, labels_of
from kueuelib.api.names import (
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    QUEUE_LABEL,
    is_dns1123_label,
)
from kueuelib.errors import ConfigError, InvalidPodSetInfo, InvalidPodSetUpdate
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithReclaimablePods
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.podset_info import PodSetInfo, infos_for_restore
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.testing.job_world import NAMESPACE, QUEUE, JobWorld
from kueuelib.workload import states


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


class JobConformance:
    """The cases; a subclass names its adapter."""

    adapter: ClassVar[JobAdapter]

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse an adapter that does not keep its contract, with one error."""
        super().__init_subclass__(**more)
        if "adapter" in vars(cls):
            check_adapter(cls.adapter)

    # ---- the object

    def test_the_kind_is_one_object(self) -> None:
        """The cases below are about jobs that one patch starts."""
        assert not issubclass(self._integration.job_type, ComposableJob)

    def test_pod_sets_have_names_counts_and_templates_of_their_own(self) -> None:
        """Pod sets can be kept and changed without changing the job."""
        obj = self._new()
        before = copy.deepcopy(obj)
        found = self._job(obj).pod_sets()
        assert sum(entry.count for entry in found) >= 2, "the adapter makes a job of one pod"
        names = [entry.name for entry in found]
        assert len({*names}) == len(names)
        assert all(map(is_dns1123_label, names))
        for entry in found:
            assert entry.template["spec"]["containers"]
            assert entry.min_count is None or 0 < entry.min_count <= entry.count
            entry.template["spec"]["containers"] = []
        assert obj == before
        assert names == [entry.name for entry in self._job(obj).pod_sets()]

    def test_reading_changes_nothing(self) -> None:
        """Every question leaves the object as it is."""
        for obj in (self._new(), self.adapter.running(self._new())):
            before = copy.deepcopy(obj)
            job = self._job(obj)
            job.pod_sets()
            job.is_suspended()
            job.is_active()
            job.pods_ready()
            job.finished()
            assert obj == before

    def test_unknown_fields_survive(self) -> None:
        """What nobody here knows is neither lost nor moved."""
        obj = self._suspended()
        obj["spec"]["aFieldOfTheFuture"] = {"a": [1, None]}
        job = self._job(obj).copy()
        job.run_with_podsets_info(self._infos(job))
        job.suspend()
        assert job.object["spec"]["aFieldOfTheFuture"] == {"a": [1, None]}

    def test_a_copy_is_independent(self) -> None:
        """Changing a copy leaves the original alone."""
        job = self._job(self._new())
        before = copy.deepcopy(job.object)
        job.copy().suspend()
        assert job.object == before

    def test_suspending_and_starting_are_opposites(self) -> None:
        """A suspended job says so, a started one does not."""
        job = self._job(self._new()).copy()
        assert not job.is_suspended()
        job.suspend()
        assert job.is_suspended()
        job.run_with_podsets_info(self._infos(job))
        assert not job.is_suspended()

    def test_infos_reach_every_template_and_are_taken_away_again(self) -> None:
        """Labels, annotations, node selectors and tolerations, for every pod set its own."""
        job = self._job(self._suspended()).copy()
        before = job.pod_sets()
        remembered = {"spec": {"podSets": [entry.raw() for entry in before]}}
        infos = self._infos(job)
        job.run_with_podsets_info(infos)
        for entry, info in zip(job.pod_sets(), infos, strict=True):
            meta, spec = entry.template["metadata"], entry.template["spec"]
            assert meta["labels"]["pod-set"] == info.name
            assert meta["annotations"]["pod-set"] == info.name
            assert spec["nodeSelector"]["pod-set"] == info.name
            assert dict(info.tolerations[0]) in spec["tolerations"]
        job.suspend()
        assert job.restore_podsets_info(infos_for_restore(remembered))
        for entry, wanted in zip(job.pod_sets(), before, strict=True):
            assert _parts(entry.template) == _parts(wanted.template)
            assert (entry.count, entry.min_count) == (wanted.count, wanted.min_count)
        assert not job.restore_podsets_info(infos_for_restore(remembered)), "done already"

    def test_fewer_pods_run_when_fewer_are_admitted(self) -> None:
        """Where a pod set has a minimal count, the count follows the admission and comes back."""
        job = self._job(self._suspended()).copy()
        before = job.pod_sets()
        counts = [entry.min_count or entry.count for entry in before]
        infos = [PodSetInfo(e.name, c) for e, c in zip(before, counts, strict=True)]
        remembered = {"spec": {"podSets": [entry.raw() for entry in before]}}
        job.run_with_podsets_info(infos)
        assert [entry.count for entry in job.pod_sets()] == counts
        job.suspend()
        job.restore_podsets_info(infos_for_restore(remembered))
        assert [entry.count for entry in job.pod_sets()] == [entry.count for entry in before]

    def test_restoring_what_is_not_known_changes_nothing(self) -> None:
        """Without a Workload to remember the templates they stay."""
        job = self._job(self._suspended()).copy()
        before = copy.deepcopy(job.object)
        assert not job.restore_podsets_info([])
        assert job.object == before

    def test_a_wrong_number_of_infos_is_refused(self) -> None:
        """That is a permanent error: a retry cannot help."""
        job = self._job(self._suspended()).copy()
        infos = self._infos(job)
        for wrong in (infos[:-1], [*infos, PodSetInfo("more", 1)]):
            with pytest.raises(InvalidPodSetInfo):
                job.run_with_podsets_info(wrong)

    def test_a_contradiction_is_refused(self) -> None:
        """A node selector that the template sets otherwise cannot be injected."""
        job = self._job(self._suspended()).copy()
        infos = self._infos(job)
        job.run_with_podsets_info(infos)
        job.suspend()
        other = [PodSetInfo(info.name, info.count, labels={"pod-set": "other"}) for info in infos]
        with pytest.raises(InvalidPodSetUpdate):
            job.run_with_podsets_info(other)

    def test_the_state_of_the_pods_is_told(self) -> None:
        """Active and ready while it runs, neither before nor after."""
        new = self._job(self._suspended())
        assert (new.is_active(), new.pods_ready(), new.finished()) == (False, False, None)
        obj = self._started()
        running = self._job(self.adapter.running(obj))
        assert (running.is_active(), running.pods_ready(), running.finished()) == (True, True, None)
        suspended = running.copy()
        suspended.suspend()
        assert suspended.is_active(), "pods are there until the controller says otherwise"
        assert not self._job(self.adapter.stopped(suspended.object)).is_active()

    def test_the_end_is_told(self) -> None:
        """Success and failure differ, and have a sentence for people."""
        obj = self.adapter.running(self._started())
        for ended, succeeded in (
            (self.adapter.succeeded(obj), True),
            (self.adapter.failed(obj), False),
        ):
            end = self._job(ended).finished()
            assert end is not None
            assert end.succeeded is succeeded
            assert end.message
            assert not self._job(ended).is_active()

    def test_reclaimable_pods_are_some_of_the_jobs(self) -> None:
        """A job that reports reclaimable pods names existing pod sets, and not more pods than they
        have.
        """
        obj = self.adapter.running(self._started())
        job = self._job(obj)
        counts = {entry.name: entry.count for entry in job.pod_sets()}
        spare = job.reclaimable_pods() if isinstance(job, JobWithReclaimablePods) else {}
        assert all(0 <= count <= counts[name] for name, count in spare.items())

    # ---- the webhook and the manifests

    def test_the_webhook_suspends_what_is_queued_and_nothing_else(self) -> None:
        """A job that names no queue passes as it is."""
        settings = JobSettings(frameworks=(self._integration.name,))

        def stored(obj: Obj, *, child: bool = False) -> Obj:
            return default_job(
                self._integration, obj, settings, namespace_labels={}, has_ancestor=child
            )

        plain, queued = self._new(), self._queued()
        assert stored(plain) is plain
        assert self._job(stored(queued)).is_suspended()
        assert stored(queued, child=True) is queued
        again = stored(queued)
        assert stored(again) is again
        assert not validate_job(self._integration, again, None)

    def test_the_queue_of_a_running_job_stays(self) -> None:
        """It may change while the job is suspended only."""
        old, new = self._queued(), self._queued()
        new["metadata"]["labels"][QUEUE_LABEL] = "other"
        assert validate_job(self._integration, new, old)
        for obj in (old, new):
            self._job(obj).suspend()
        assert not validate_job(self._integration, new, old)

    def test_webhooks_and_permissions_are_those_of_the_kind(self) -> None:
        """Nobody else's objects are matched."""
        resource = self._integration.resource
        for entry in webhook_entries([self._integration], JobSettings()):
            (rule,) = entry.entry["rules"]
            assert (rule["apiGroups"], rule["resources"]) == ([resource.group], [resource.plural])
            assert entry.entry["objectSelector"]["matchExpressions"]
        rules = rbac_rules([self._integration])
        assert {rule["apiGroups"][0] for rule in rules} == {resource.group}

    # ---- its life

    def test_a_job_without_a_queue_is_left_alone(self) -> None:
        """Not one write."""
        world = JobWorld(self._integration, self._new())
        before = copy.deepcopy(world.job)
        world.settle()
        assert (world.job, world.workloads, world.events) == (before, (), [])

    def test_a_job_that_came_in_running_is_stopped_first(self) -> None:
        """As when the webhook was away."""
        world = self._world(self._queued())
        world.settle()
        assert world.is_suspended()
        assert world.workloads

    def test_a_waiting_job_has_a_workload(self) -> None:
        """With what it asks for, where it waits, and who it belongs to."""
        world = self._waiting()
        wl, job = world.workload, self._job(world.live_job)
        assert wl["spec"]["queueName"] == QUEUE
        assert wl["spec"]["podSets"] == [entry.raw() for entry in job.pod_sets()]
        (owner,) = wl["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (job.uid, True)
        assert labels_of(wl)[JOB_UID_LABEL] == job.uid
        assert IN_USE_FINALIZER in wl["metadata"]["finalizers"]
        assert world.is_suspended()
        assert world.events == ["CreatedWorkload"]

    def test_an_admitted_job_starts_where_it_was_admitted(self) -> None:
        """Node selectors and tolerations of the flavor are in every template."""
        world = self._running()
        assert not world.is_suspended()
        assert "Started" in world.events
        for entry in self._job(world.live_job).pod_sets():
            assert entry.template["spec"]["nodeSelector"]["pool"] == "spot"
            assert any(t["key"] == "spot" for t in entry.template["spec"]["tolerations"])

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("succeeds", [True, False])
    def test_the_end_of_a_job_is_that_of_its_workload(
        self, succeeds: bool, one_at_a_time: bool
    ) -> None:
        """Finished, with the reason, and free to be deleted."""
        world = self._running(one_at_a_time=one_at_a_time)
        end = self.adapter.succeeded if succeeds else self.adapter.failed
        world.change(end(world.live_job))
        world.settle()
        finished = states.condition(world.workload, "Finished")
        assert finished["reason"] == ("Succeeded" if succeeds else "Failed")
        assert not world.workload["metadata"]["finalizers"]
        before = len(world.events)
        world.settle()
        assert len(world.events) == before, "what is finished is left alone"

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_an_evicted_job_stops_gives_back_and_starts_again(self, one_at_a_time: bool) -> None:
        """Quota is held until the last pod is gone; templates are as they were before the start."""
        world = self._running(one_at_a_time=one_at_a_time)
        world.evict()
        world.settle()
        assert one_at_a_time or "Stopped" in world.events
        assert world.holds_quota(), "pods are still there"
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert world.is_suspended()
        assert not world.holds_quota()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        assert not world.is_suspended()
        self._assert_placed(world, "reserved")

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("how", ["evict", "delete_workload"])
    def test_a_job_that_its_user_suspends_is_restored_all_the_same(
        self, how: str, one_at_a_time: bool
    ) -> None:
        """What the start put into its templates would contradict the next flavor."""
        world = self._running(one_at_a_time=one_at_a_time)
        job = self._job(world.live_job).copy()
        job.suspend()
        world.change(self.adapter.stopped(job.object))
        getattr(world, how)()
        world.settle()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        self._assert_placed(world, "reserved")

    @pytest.mark.parametrize("moment", ["waiting", "admitted", "started", "running", "evicted"])
    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_whenever_its_user_suspends_it_a_job_can_be_admitted_elsewhere(
        self, moment: str, one_at_a_time: bool
    ) -> None:
        """Quota comes back, and nothing of the first flavor stays in its templates."""
        world = self._waiting(one_at_a_time=one_at_a_time)
        if moment != "waiting":
            world.admit("spot")
        if moment in ("started", "running", "evicted"):
            world.settle()
        if moment in ("running", "evicted"):
            world.change(self.adapter.running(world.live_job))
            world.settle()
        if moment == "evicted":
            world.evict()
        job = self._job(world.live_job).copy()
        job.suspend()
        world.change(job.object)
        world.settle()
        if moment not in ("waiting", "evicted"):
            world.evict()
            world.settle()
        if moment in ("running", "evicted"):
            world.change(self.adapter.stopped(world.live_job))
            world.settle()
        assert world.is_suspended()
        assert not world.holds_quota()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        assert not world.is_suspended()
        self._assert_placed(world, "reserved")

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_a_job_that_cannot_start_is_told_why_and_never_runs(self, one_at_a_time: bool) -> None:
        """Not even when its user starts it by hand."""
        queued = self._queued()
        self._job(queued).suspend()
        job = self._job(queued)
        infos = [PodSetInfo(e.name, e.count, node_selector={"pool": "own"}) for e in job.pod_sets()]
        job.run_with_podsets_info(infos)
        job.suspend()
        world = self._world(job.object, one_at_a_time=one_at_a_time)
        world.settle()
        world.admit("spot")
        world.settle()
        assert states.condition(world.workload, "Finished")["reason"] == "FailedToStart"
        assert one_at_a_time or "FailedToStart" in world.events, "an event reports it"
        assert world.is_suspended()
        started = self._job(world.live_job).copy()
        started.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in started.pod_sets()])
        world.change(self.adapter.running(started.object))
        assert not world.is_suspended()
        world.settle()
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert world.is_suspended(), "it has no quota"

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_a_deleted_workload_stops_the_job_and_is_made_again(self, one_at_a_time: bool) -> None:
        """The new one comes once no pod of the old one is left."""
        world = self._running(one_at_a_time=one_at_a_time)
        uid = world.workload["metadata"]["uid"]
        world.delete_workload()
        world.settle()
        assert world.workload["metadata"]["uid"] == uid, "it holds quota while there are pods"
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert world.is_suspended()
        assert world.workload["metadata"]["uid"] != uid

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_a_deleted_job_lets_its_workload_go(self, one_at_a_time: bool) -> None:
        """No finalizer of ours stays."""
        world = self._running(one_at_a_time=one_at_a_time)
        world.delete_job()
        world.settle()
        assert not world.exists, "no finalizer keeps it"
        assert not world.workload["metadata"]["finalizers"]

    def test_a_waiting_job_that_asks_for_something_else_keeps_its_workload(self) -> None:
        """And with it its place in the queue."""
        world = self._waiting()
        uid = world.workload["metadata"]["uid"]
        world.change(self.adapter.changed(world.live_job))
        world.settle()
        assert world.workload["metadata"]["uid"] == uid
        job = self._job(world.live_job)
        assert world.workload["spec"]["podSets"] == [entry.raw() for entry in job.pod_sets()]
        assert "UpdatedWorkload" in world.events

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    def test_a_running_job_that_asks_for_something_else_queues_again(
        self, one_at_a_time: bool
    ) -> None:
        """Nobody gets more than was admitted."""
        world = self._running(one_at_a_time=one_at_a_time)
        uid = world.workload["metadata"]["uid"]
        world.change(self.adapter.changed(world.live_job))
        world.settle()
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert world.is_suspended()
        assert world.workload["metadata"]["uid"] != uid
        assert not world.holds_quota()

    # ---- parts

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
            assert _parts(entry.template) == _parts(wanted.template)

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


def _parts(template: Obj) -> tuple[Any, ...]:
    """What a start changes in a template, absent as empty."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    return (
        meta.get("labels") or {},
        meta.get("annotations") or {},
        spec.get("nodeSelector") or {},
        spec.get("tolerations") or [],
    )
