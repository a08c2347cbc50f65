"""Cases about edits: what the user of a job writes is what runs, and a stop does not undo it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import Obj, annotations_of
from kueuelib.jobs.contract.additions import ADDED_AT_START
from kueuelib.jobs.contract.loose_objects import read_loosely
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.testing.job_adapter import AdaptedJobs, about, placed_parts, pod_specs
from kueuelib.testing.job_world import JobWorld
from kueuelib.workload import states

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
