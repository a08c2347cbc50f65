"""The same cases for every kind of jobs: the contract of a `GenericJob` (KEP-369).

    class TrainingAdapter(JobAdapter):
        integration = training.integration
        def make(self): ...
        def running(self, obj): ...
        ...

    class TestTraining(JobConformance):
        adapter = TrainingAdapter()

pytest collects the cases from the subclass. The contract of the adapter is checked before any case
runs: `integration` is an `Integration` (from `declare`, or from a class by `Integration.of`), and
each method returns a whole raw object and does not change its argument. The cases are for jobs that
are one object; a `ComposableJob` stops and starts in its own way.
"""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.meta import Obj
from kueuelib.api.names import (
    QUEUE_LABEL,
    is_dns1123_label,
)
from kueuelib.errors import InvalidPodSetInfo, InvalidPodSetUpdate
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithReclaimablePods
from kueuelib.jobs.contract.podset_info import PodSetInfo, infos_for_restore
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.testing.job_adapter import about, placed_parts
from kueuelib.testing.job_lives import EditCases, LifeCases


class JobConformance(LifeCases, EditCases):
    """The cases; a subclass names its adapter."""

    def test_the_kind_is_one_object(self) -> None:
        """The other cases are about jobs that one patch starts."""
        assert not issubclass(self._integration.job_type, ComposableJob)

    @about("pod_sets")
    def test_pod_sets_have_names_counts_and_templates_of_their_own(self) -> None:
        """A caller may keep and change pod sets without changing the job."""
        obj = self._new()
        before = copy.deepcopy(obj)
        pod_sets = self._job(obj).pod_sets()
        assert sum(entry.count for entry in pod_sets) >= 2, "the adapter makes a job of one pod"
        names = [entry.name for entry in pod_sets]
        assert len({*names}) == len(names)
        assert all(map(is_dns1123_label, names))
        for entry in pod_sets:
            assert entry.template["spec"]["containers"]
            assert entry.min_count is None or 0 < entry.min_count <= entry.count
            entry.template["spec"]["containers"] = []
        assert obj == before
        assert names == [entry.name for entry in self._job(obj).pod_sets()]

    @about("pod_sets", "finished")
    def test_reading_changes_nothing(self) -> None:
        """No question changes the object."""
        for obj in (self._new(), self.adapter.running(self._new())):
            before = copy.deepcopy(obj)
            job = self._job(obj)
            job.pod_sets()
            job.is_suspended()
            job.is_active()
            job.pods_ready()
            job.finished()
            assert obj == before

    @about("run_with_podsets_info", "suspend")
    def test_unknown_fields_survive(self) -> None:
        """Unknown fields are neither lost nor moved."""
        obj = self._suspended()
        obj["spec"]["aFieldOfTheFuture"] = {"a": [1, None]}
        job = self._job(obj).copy()
        job.run_with_podsets_info(self._infos(job))
        job.suspend()
        assert job.raw["spec"]["aFieldOfTheFuture"] == {"a": [1, None]}

    @about("suspend")
    def test_a_copy_is_independent(self) -> None:
        """Changing a copy does not change the original."""
        job = self._job(self._new())
        before = copy.deepcopy(job.raw)
        job.copy().suspend()
        assert job.raw == before

    @about("suspend", "is_suspended", "run_with_podsets_info")
    def test_suspending_and_starting_are_opposites(self) -> None:
        """A suspended job says so, a started one does not."""
        job = self._job(self._new()).copy()
        assert not job.is_suspended()
        job.suspend()
        assert job.is_suspended()
        job.run_with_podsets_info(self._infos(job))
        assert not job.is_suspended()

    @about("run_with_podsets_info", "restore_podsets_info")
    def test_infos_reach_every_template_and_are_taken_away_again(self) -> None:
        """Each pod set gets its own labels, annotations, node selectors, tolerations and gates."""
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
            assert {"name": info.scheduling_gates[0]} in spec["schedulingGates"]
        job.suspend()
        assert job.restore_podsets_info(infos_for_restore(remembered))
        for entry, wanted in zip(job.pod_sets(), before, strict=True):
            assert placed_parts(entry.template) == placed_parts(wanted.template)
            assert (entry.count, entry.min_count) == (wanted.count, wanted.min_count)
        assert not job.restore_podsets_info(infos_for_restore(remembered)), "done already"

    @about("run_with_podsets_info", "restore_podsets_info")
    def test_fewer_pods_run_when_fewer_are_admitted(self) -> None:
        """If a pod set has a minimum count, its count follows the admission and is restored."""
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

    @about("restore_podsets_info")
    def test_restoring_what_is_not_known_changes_nothing(self) -> None:
        """Templates stay if no Workload remembers them."""
        job = self._job(self._suspended()).copy()
        before = copy.deepcopy(job.raw)
        assert not job.restore_podsets_info([])
        assert job.raw == before

    @about("run_with_podsets_info")
    def test_a_wrong_number_of_infos_is_refused(self) -> None:
        """This is a permanent error: a retry cannot help."""
        job = self._job(self._suspended()).copy()
        infos = self._infos(job)
        for wrong in (infos[:-1], [*infos, PodSetInfo("more", 1)]):
            with pytest.raises(InvalidPodSetInfo):
                job.run_with_podsets_info(wrong)

    @about("run_with_podsets_info")
    def test_a_contradiction_is_refused(self) -> None:
        """A node selector cannot be injected if the template sets another value."""
        job = self._job(self._suspended()).copy()
        infos = self._infos(job)
        job.run_with_podsets_info(infos)
        job.suspend()
        other = [PodSetInfo(info.name, info.count, labels={"pod-set": "other"}) for info in infos]
        with pytest.raises(InvalidPodSetUpdate):
            job.run_with_podsets_info(other)

    @about("is_active", "pods_ready", "finished")
    def test_the_state_of_the_pods_is_reported(self) -> None:
        """A job is active and ready while it runs, neither before nor after."""
        new = self._job(self._suspended())
        assert (new.is_active(), new.pods_ready(), new.finished()) == (False, False, None)
        obj = self._started()
        running = self._job(self.adapter.running(obj))
        assert (running.is_active(), running.pods_ready(), running.finished()) == (True, True, None)
        suspended = running.copy()
        suspended.suspend()
        assert suspended.is_active(), "pods are there until the controller says otherwise"
        assert not self._job(self.adapter.stopped(suspended.raw)).is_active()

    @about("finished", "is_active")
    def test_the_end_is_reported(self) -> None:
        """Success and failure differ, and each has a sentence for people."""
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

    @about("reclaimable_pods")
    def test_reclaimable_pods_are_some_of_the_jobs(self) -> None:
        """A job that reports reclaimable pods names existing pod sets, and not more pods than they
        have.
        """
        obj = self.adapter.running(self._started())
        job = self._job(obj)
        counts = {entry.name: entry.count for entry in job.pod_sets()}
        spare = job.reclaimable_pods() if isinstance(job, JobWithReclaimablePods) else {}
        assert spare.keys() <= counts.keys(), "there are no such pod sets"
        assert all(0 <= count <= counts[name] for name, count in spare.items()), "too many or < 0"

    # ---- the webhook and the manifests

    @about("suspend", "is_suspended")
    def test_the_webhook_suspends_what_is_queued_and_nothing_else(self) -> None:
        """A job without a queue passes unchanged."""
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

    @about("is_suspended")
    def test_the_queue_of_a_running_job_stays(self) -> None:
        """The queue may only change while the job is suspended."""
        old, new = self._queued(), self._queued()
        new["metadata"]["labels"][QUEUE_LABEL] = "other"
        assert validate_job(self._integration, new, old)
        for obj in (old, new):
            self._job(obj).suspend()
        assert not validate_job(self._integration, new, old)

    def test_webhooks_and_permissions_are_those_of_the_kind(self) -> None:
        """They match no objects of other kinds."""
        resource = self._integration.resource
        for entry in webhook_entries([self._integration], JobSettings()):
            (rule,) = entry.entry["rules"]
            assert (rule["apiGroups"], rule["resources"]) == ([resource.group], [resource.plural])
            assert entry.entry["objectSelector"]["matchExpressions"]
        rules = rbac_rules([self._integration])
        assert {rule["apiGroups"][0] for rule in rules} == {resource.group}
