"""Cases about a job: its life, from stop to end, and edits of its user."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.names import IN_USE_FINALIZER, JOB_UID_LABEL
from kueuelib.jobs.contract.loose_objects import read_loosely
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.reconcile.written import ADDED_AT_START
from kueuelib.testing.job_adapter import AdaptedJobs, about, placed_parts, pod_specs
from kueuelib.testing.job_world import QUEUE, JobWorld, unshared
from kueuelib.workload import states

# Cases about edits: what the user of a job writes is what runs, and a stop does not undo it.

EDIT = {"team": "a"}


class EditCases(AdaptedJobs):
    """Cases in which the user of a job edits its templates at any moment."""

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("moment", ["waiting", "admitted", "stopping", "stopped"])
    @about("pod_sets", "run_with_podsets_info", "restore_podsets_info")
    def test_an_edit_is_what_runs_and_what_is_restored(
        self, moment: str, one_at_a_time: bool
    ) -> None:
        """The Workload follows it, and keeps its place; a decision made before is void."""
        world = self._waiting(one_at_a_time=one_at_a_time)
        uid = world.workload["metadata"]["uid"]
        if moment != "waiting":
            world.admit("spot")
        if moment in ("stopping", "stopped"):
            self._runs_and_is_evicted(world, "spot")
        if moment == "stopped":
            self._stops(world)
        self._edit(world, EDIT)
        if moment == "stopping":
            self._stops(world)
        world.settle()
        assert world.is_suspended(), "it was started by a decision about older templates"
        assert world.workload["metadata"]["uid"] == uid
        assert not world.holds_quota()
        self._assert_written(world, EDIT)
        assert world.workload["spec"]["podSets"] == self._asked(world.live_job)
        world.admit("reserved")
        self._runs_and_is_evicted(world, "reserved")
        self._stops(world)
        self._assert_written(world, EDIT)

    @about("run_with_podsets_info", "restore_podsets_info")
    def test_a_key_that_user_and_flavor_both_set_is_the_users(self) -> None:
        """The start adds only what is not there, so the stop leaves it."""
        world = self._waiting()
        self._edit(world, {"pool": "spot"})
        world.settle()
        world.admit("spot")
        self._runs_and_is_evicted(world, "spot")
        self._stops(world)
        self._assert_written(world, {"pool": "spot"})

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize("gone", ["changed flavor", "deleted flavor", "lost workload"])
    @about("run_with_podsets_info", "restore_podsets_info")
    def test_what_the_start_added_is_known_whatever_happens(
        self, gone: str, one_at_a_time: bool
    ) -> None:
        """The job itself remembers it."""
        world = self._waiting(one_at_a_time=one_at_a_time)
        self._edit(world, EDIT)
        world.settle()
        world.admit("spot")
        world.settle()
        world.change(self.adapter.running(world.live_job))
        world.settle()
        if gone == "lost workload":
            world.lose_workload()
        elif gone == "deleted flavor":
            del world.flavors["spot"]
        else:
            world.flavors["spot"] = {"spec": {"nodeLabels": {"pool": "other"}}}
        world.settle()
        if gone != "lost workload":
            assert not world.is_suspended(), "a change of its flavor stopped it"
            world.evict()
            world.settle()
        self._stops(world)
        self._assert_written(world, EDIT)
        assert ADDED_AT_START not in annotations_of(world.live_job)

    @pytest.mark.parametrize("flavor", ["the same", "another"])
    @about("run_with_podsets_info", "restore_podsets_info")
    def test_a_job_that_another_manager_started_is_restored(self, flavor: str) -> None:
        """Its Workload remembers its templates, as in Kueue."""
        world = self._waiting()
        self._edit(world, EDIT)
        world.settle()
        world.admit("spot")
        world.settle()
        world.change(self.adapter.running(world.live_job))
        world.forget_start()
        world.settle()
        assert not world.is_suspended(), "it was stopped because it has no annotation"
        if flavor == "another":
            world.flavors["spot"] = {"spec": {"nodeLabels": {"pool": "other"}}}
        world.evict()
        world.settle()
        self._stops(world)
        self._assert_written(world, EDIT)

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @about("run_with_podsets_info", "restore_podsets_info")
    def test_a_running_job_that_is_replaced_stays_as_written(self, one_at_a_time: bool) -> None:
        """A file of its user contains nothing that the start added, not even the note about it."""
        world = self._waiting(one_at_a_time=one_at_a_time)
        written = copy.deepcopy(world.live_job)
        world.admit("spot")
        world.settle()
        if self.adapter.integration.resource in (JOBS, PODS):
            pytest.skip("the API server refuses it")
        replaced = self._job(self.adapter.edited(written, EDIT))
        infos = [PodSetInfo(each.name, each.count) for each in replaced.pod_sets()]
        replaced.run_with_podsets_info(infos)
        world.change(self.adapter.running(replaced.raw))
        world.settle()
        assert not world.is_suspended()
        world.evict()
        world.settle()
        self._stops(world)
        self._assert_written(world, EDIT)

    @about("run_with_podsets_info", "pod_sets")
    def test_a_manifest_that_is_applied_again_is_not_an_edit(self) -> None:
        """Nothing is written, and the Workload stays as it is."""
        world = self._waiting()
        for state in ("waiting", "reserved"):
            if state == "reserved":
                world.reserve("spot")
                world.settle()
            before = copy.deepcopy(world.workload)
            world.change(copy.deepcopy(world.live_job))
            world.settle()
            assert world.workload == before

    @pytest.mark.parametrize("one_at_a_time", [False, True])
    @pytest.mark.parametrize(("field", "value"), [("nodeSelector", ["a"]), ("tolerations", "x")])
    @about("suspend", "pod_sets", "is_active")
    def test_a_job_whose_templates_cannot_be_read_is_stopped(
        self, field: str, value: Any, one_at_a_time: bool
    ) -> None:
        """Its templates stay as they are, and are restored once they can be read again."""
        world = self._running(one_at_a_time=one_at_a_time)
        job = copy.deepcopy(world.live_job)
        if not self._puts(job, field, value):
            pytest.skip("its templates are elsewhere")
        world.change(job)
        world.evict()
        world.settle()
        live = self._job(world.live_job)
        typed = live if live.object_class is None else read_loosely(live)
        assert world.live_job == typed.suspended_copy().raw, "its pods run without quota"
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert not any(map(states.has_quota, world.workloads)), "nothing can release its quota"
        assert "ErrWorkloadCompose" in world.events
        assert [spec[field] for spec in pod_specs(world.live_job["spec"])].count(value)
        job = copy.deepcopy(world.live_job)
        self._puts(job, field, {} if field == "nodeSelector" else [])
        world.change(self.adapter.edited(job, EDIT))
        world.settle()
        self._assert_written(world, EDIT)
        assert ADDED_AT_START not in annotations_of(world.live_job)
        world.admit("reserved")
        self._runs_and_is_evicted(world, "reserved")
        self._stops(world)
        self._assert_written(world, EDIT)

    # ---- steps

    def _puts(self, job: Obj, field: str, value: Any) -> bool:
        """Whether a field of a template was set; the job is changed."""
        specs = [*pod_specs(job["spec"])]
        for spec in specs:
            spec[field] = copy.deepcopy(value)
        return bool(specs)

    def _edit(self, world: JobWorld, selector: dict[str, str]) -> None:
        world.change(self.adapter.edited(world.live_job, selector))

    def _runs_and_is_evicted(self, world: JobWorld, pool: str) -> None:
        world.settle()
        assert not world.is_suspended()
        self._assert_placed(world, pool)
        world.change(self.adapter.running(world.live_job))
        world.settle()
        world.evict()
        world.settle()

    def _stops(self, world: JobWorld) -> None:
        world.change(self.adapter.stopped(world.live_job))
        world.settle()
        assert world.is_suspended()

    def _asked(self, obj: Obj) -> list[Any]:
        return [entry.raw() for entry in self._job(obj).pod_sets()]

    def _assert_written(self, world: JobWorld, selector: dict[str, str]) -> None:
        """Assert that the templates are those of the user, with one edit."""
        wanted = self._job(self.adapter.edited(self._suspended(), selector)).pod_sets()
        for entry, each in zip(self._job(world.live_job).pod_sets(), wanted, strict=True):
            assert placed_parts(entry.template) == placed_parts(each.template)
            assert entry.count == each.count


# --------------------------------------------------------------------------------------------------


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
