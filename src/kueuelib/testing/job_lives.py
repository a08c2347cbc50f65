"""Cases about the life of a job: it is stopped, queued, admitted and evicted, and it ends."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.meta import labels_of
from kueuelib.api.names import (
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
)
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.testing.job_adapter import AdaptedJobs, about
from kueuelib.testing.job_world import QUEUE, JobWorld, unshared
from kueuelib.workload import states


class LifeCases(AdaptedJobs):
    """Cases from the creation of a job to its end, with interference by its user."""

    @about("is_suspended")
    def test_a_job_without_a_queue_is_left_alone(self) -> None:
        """There is not a single write."""
        world = JobWorld(self._integration, self._new())
        before = copy.deepcopy(world.job)
        world.settle()
        assert (world.job, world.workloads, world.events) == (before, (), [])

    @about("is_suspended", "suspend")
    def test_a_job_that_came_in_running_is_stopped_first(self) -> None:
        """For example because the webhook did not answer."""
        world = self._world(self._queued())
        world.settle()
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        assert world.is_suspended()
        assert world.workloads

    @about("pod_sets")
    def test_a_waiting_job_has_a_workload(self) -> None:
        """The Workload has its requests, its queue and its owner."""
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

    @about("run_with_podsets_info", "pod_sets")
    def test_an_admitted_job_starts_where_it_was_admitted(self) -> None:
        """Node selectors and tolerations of the flavor are in every template."""
        world = self._running()
        assert not world.is_suspended()
        assert "Started" in world.events
        for entry in self._job(world.live_job).pod_sets():
            assert entry.template["spec"]["nodeSelector"]["pool"] == "spot"
            assert any(t["key"] == "spot" for t in entry.template["spec"]["tolerations"])

    @about("is_suspended")
    def test_a_job_with_a_reservation_waits_for_its_checks(self) -> None:
        """Quota alone does not start it."""
        world = self._waiting()
        world.reserve("spot")
        world.settle()
        assert world.holds_quota()
        assert world.is_suspended()
        world.pass_checks()
        world.settle()
        assert not world.is_suspended()

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("succeeds", [True, False])
    @about("finished")
    def test_the_end_of_a_job_is_that_of_its_workload(
        self, succeeds: bool, one_at_a_time: bool
    ) -> None:
        """The Workload is Finished with the reason, and can be deleted."""
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
    @about("suspend", "is_active", "restore_podsets_info")
    def test_an_evicted_job_stops_gives_back_and_starts_again(self, one_at_a_time: bool) -> None:
        """Quota is held until the last pod is gone; templates are as they were before the start."""
        world = self._running(one_at_a_time=one_at_a_time)
        world.evict()
        world.settle()
        assert one_at_a_time or "Stopped" in world.events
        assert world.holds_quota(), "pods are still there"
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        self._assert_starts_elsewhere(world)

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("how", ["evict", "delete_workload"])
    @about("is_suspended", "restore_podsets_info")
    def test_a_job_that_its_user_suspends_is_restored_all_the_same(
        self, how: str, one_at_a_time: bool
    ) -> None:
        """The additions of the start would contradict the next flavor."""
        world = self._running(one_at_a_time=one_at_a_time)
        job = self._job(world.live_job).copy()
        job.suspend()
        world.change(self.adapter.stopped(job.raw))
        getattr(world, how)()
        world.settle()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        self._assert_placed(world, "reserved")

    @pytest.mark.parametrize("moment", ["waiting", "admitted", "started", "running", "evicted"])
    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("is_suspended", "restore_podsets_info")
    def test_whenever_its_user_suspends_it_a_job_can_be_admitted_elsewhere(
        self, moment: str, one_at_a_time: bool
    ) -> None:
        """Quota is released, and nothing of the first flavor stays in its templates."""
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
        world.change(job.raw)
        world.settle()
        if moment not in ("waiting", "evicted"):
            world.evict()
            world.settle()
        if moment != "waiting":
            world.change(self.adapter.stopped({"status": {}, **world.live_job}))
            world.settle()
        self._assert_starts_elsewhere(world)

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("run_with_podsets_info")
    def test_a_job_that_cannot_start_is_told_why_and_never_runs(self, one_at_a_time: bool) -> None:
        """It does not run even if its user starts it by hand."""
        queued = self._queued()
        self._job(queued).suspend()
        job = self._job(queued)
        infos = [PodSetInfo(e.name, e.count, node_selector={"pool": "own"}) for e in job.pod_sets()]
        job.run_with_podsets_info(infos)
        job.suspend()
        world = self._world(job.raw, one_at_a_time=one_at_a_time)
        world.settle()
        world.admit("spot")
        world.settle()
        assert states.condition(world.workload, "Finished")["reason"] == "FailedToStart"
        assert one_at_a_time or "FailedToStart" in world.events, "an event reports it"
        assert world.is_suspended()
        started = self._job(world.live_job).copy()
        started.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in started.pod_sets()])
        world.change(self.adapter.running(started.raw))
        assert not world.is_suspended()
        world.settle()
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        assert world.is_suspended(), "it has no quota"

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("suspend", "is_active", "restore_podsets_info")
    def test_a_deleted_workload_stops_the_job_and_is_made_again(self, one_at_a_time: bool) -> None:
        """The new Workload is created once no pod of the old one is left."""
        world = self._running(one_at_a_time=one_at_a_time)
        uid = world.workload["metadata"]["uid"]
        world.delete_workload()
        world.settle()
        assert world.workload["metadata"]["uid"] == uid, "it holds quota while there are pods"
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        assert world.is_suspended()
        assert world.workload["metadata"]["uid"] != uid

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("finished")
    def test_a_deleted_job_lets_its_workload_go(self, one_at_a_time: bool) -> None:
        """None of our finalizers stays."""
        world = self._running(one_at_a_time=one_at_a_time)
        world.delete_job()
        world.settle()
        assert not world.exists, "no finalizer keeps it"
        assert not world.workload["metadata"]["finalizers"]

    @about("pod_sets")
    def test_a_waiting_job_that_asks_for_something_else_keeps_its_workload(self) -> None:
        """It also keeps its place in the queue."""
        world = self._waiting()
        uid = world.workload["metadata"]["uid"]
        world.change(self.adapter.changed(world.live_job))
        world.settle()
        assert world.workload["metadata"]["uid"] == uid
        job = self._job(world.live_job)
        assert world.workload["spec"]["podSets"] == [entry.raw() for entry in job.pod_sets()]
        assert "UpdatedWorkload" in world.events

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("pod_sets", "suspend", "restore_podsets_info")
    def test_a_running_job_that_asks_for_something_else_queues_again(
        self, one_at_a_time: bool
    ) -> None:
        """It never gets more than was admitted, and what its user changed stays; so does its place
        in the queue.
        """
        world = self._running(one_at_a_time=one_at_a_time)
        uid = world.workload["metadata"]["uid"]
        changed = unshared(self.adapter.changed(world.live_job))
        counts = self._counts(changed)
        world.change(changed)
        world.settle()
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        assert world.is_suspended()
        assert world.workload["metadata"]["uid"] == uid
        assert not world.holds_quota()
        asked = [entry.raw() for entry in self._job(world.live_job).pod_sets()]
        assert world.workload["spec"]["podSets"] == asked, "the Workload has the old pods"
        assert self._counts(world.live_job) == counts, "the change of the user was undone"

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("run_with_podsets_info", "restore_podsets_info")
    def test_a_job_that_ran_with_fewer_pods_asks_for_all_again(self, one_at_a_time: bool) -> None:
        """Counts are restored, unless the user has changed them since."""
        world = self._waiting(one_at_a_time=one_at_a_time)
        counts = self._counts(world.live_job)
        world.admit("spot", fewest=True)
        world.settle()
        world.change(self.adapter.running(world.live_job))
        world.settle()
        assert not world.is_suspended(), "it does not run with fewer pods"
        world.evict()
        world.settle()
        world.change(self.adapter.stopped({"status": {}, **world.live_job}))
        world.settle()
        assert world.is_suspended()
        assert self._counts(world.live_job) == counts
