"""Every stop of an edited job comes to an end, and takes away what the start added."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Resource
from kueuelib.api.names import MIN_PARALLELISM, SYNC_COMPLETIONS
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.capabilities import JobWithCustomStop, Stop
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.declared.declarative import Pods, declare, equals
from kueuelib.jobs.reconcile.written import ADDED_AT_START
from kueuelib.testing.job_world import JobWorld
from kueuelib.workload import states

QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
(BATCH,) = [each for each in builtin_registry().integrations if each.name == "batch/job"]
CREW = declare(
    Resource("ml.example.com", "v1", "crews", "Crew", namespaced=True),
    pods=[
        Pods("lead", template="spec.lead"),
        Pods("name", template="template", each="spec.groups"),
    ],
    active="status.active",
    ready=equals("status.phase", "Ready"),
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
)


def template() -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def batch_job(**annotations: str) -> JobWorld:
    """A waiting Job of six pods."""
    meta = {"name": "job", "labels": QUEUE, "annotations": annotations}
    spec = {"suspend": True, "parallelism": 6, "completions": 6, "completionMode": "Indexed"}
    world = JobWorld(BATCH, {"metadata": meta, "spec": {**spec, "template": template()}})
    world.settle()
    return world


def crew(*groups: str, kind: Any = CREW) -> JobWorld:
    """A waiting job with several groups of pods."""
    listed = [{"name": name, "template": template()} for name in groups]
    spec = {"suspend": True, "lead": template(), "groups": listed}
    world = JobWorld(kind, {"metadata": {"name": "job", "labels": QUEUE}, "spec": spec})
    world.settle()
    return world


def edit(world: JobWorld, change: Any) -> None:
    job = copy.deepcopy(world.live_job)
    change(job)
    world.change(job)


def runs(world: JobWorld, *, fewest: bool = False) -> None:
    world.admit("spot", fewest=fewest)
    world.settle()
    assert not world.is_suspended()
    edit(world, lambda job: job.update(status={"active": 1, "startTime": "2024-01-01T00:00:00Z"}))


def ends(world: JobWorld) -> dict[str, Any]:
    """The job after its stop, when it waits again."""
    world.settle()
    assert world.live_job["spec"]["suspend"] is True
    seen = {"type": "Suspended", "status": "True"}
    edit(world, lambda job: job["status"].update(active=0, conditions=[seen]))
    world.settle()
    assert not states.has_quota(world.workload), "its quota is never freed"
    assert ADDED_AT_START not in world.live_job["metadata"].get("annotations", {})
    assert world.is_suspended()
    return world.live_job["spec"]


def placed(template: dict[str, Any]) -> list[str]:
    return [key for key in ("nodeSelector", "tolerations") if template["spec"].get(key)]


def test_a_job_that_may_not_run_with_fewer_pods_any_more_gets_all_of_them_again() -> None:
    world = batch_job(**{MIN_PARALLELISM: "2"})
    runs(world, fewest=True)
    assert world.live_job["spec"]["parallelism"] == 2
    edit(world, lambda job: job["metadata"]["annotations"].pop(MIN_PARALLELISM))
    world.settle()
    assert not world.is_suspended(), "it concerns no pod that runs"
    world.evict()
    spec = ends(world)
    assert spec["parallelism"] == 6
    assert not placed(spec["template"])
    (asked,) = world.workload["spec"]["podSets"]
    assert (asked["count"], asked.get("minCount")) == (6, None)


@pytest.mark.parametrize("suspends", [False, True])
def test_completions_that_were_set_to_what_runs_do_not_block_the_stop(suspends: bool) -> None:
    world = batch_job(**{MIN_PARALLELISM: "2"})
    runs(world, fewest=True)
    edit(world, lambda job: job["spec"].update(completions=2, suspend=suspends))
    if not suspends:
        world.evict()
    spec = ends(world)
    assert (spec["parallelism"], spec["completions"]) == (6, 2)
    assert not placed(spec["template"])


def test_a_job_that_no_longer_couples_its_completions_is_stopped() -> None:
    world = batch_job(**{MIN_PARALLELISM: "2", SYNC_COMPLETIONS: "true"})
    runs(world, fewest=True)
    assert world.live_job["spec"]["completions"] == 2

    def change(job: dict[str, Any]) -> None:
        job["spec"]["suspend"] = True
        del job["metadata"]["annotations"][SYNC_COMPLETIONS]

    edit(world, change)
    world.settle()
    edit(world, lambda job: job["status"].update(active=0))
    world.evict()
    spec = ends(world)
    assert spec["parallelism"] == 6
    assert not placed(spec["template"])


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("make", [batch_job, lambda: crew("small")])
def test_an_edit_that_also_unsuspends_a_waiting_job_is_kept(make: Any, reserved: bool) -> None:
    world = make()
    if reserved:
        world.reserve("spot")
        world.settle()

    def change(job: dict[str, Any]) -> None:
        job["spec"].pop("suspend")
        template = job["spec"].get("template") or job["spec"]["lead"]
        template["metadata"] = {"labels": {"mine": "a"}, "annotations": {"mine": "b"}}
        template["spec"].update(nodeSelector={"zone": "b"}, tolerations=[{"key": "own"}])

    edit(world, change)
    wanted = copy.deepcopy(world.live_job["spec"])
    wanted["suspend"] = True
    edit(world, lambda job: job.update(status={"active": 1}))
    assert ends(world) == wanted
    stored = world.workload["spec"]["podSets"][0]["template"]
    assert stored["spec"]["nodeSelector"] == {"zone": "b"}


def test_an_admission_during_the_stop_of_such_a_job_undoes_no_edit() -> None:
    world = batch_job()

    def change(job: dict[str, Any]) -> None:
        job["spec"].pop("suspend")
        job["spec"]["template"]["metadata"] = {"labels": {"mine": "a"}}
        job["status"] = {"active": 1, "startTime": "2024-01-01T00:00:00Z"}

    edit(world, change)
    world.settle()
    world.admit("spot")
    world.settle()
    assert ends(world)["template"]["metadata"]["labels"] == {"mine": "a"}
    runs(world)


@pytest.mark.parametrize(
    "names", [["gpu", "large"], ["large", "gpu"], ["gpu"], ["gpu", "cpu", "large"], ["one", "two"]]
)
def test_a_start_is_taken_back_from_renamed_pod_sets(names: list[str]) -> None:
    world = crew("small", "large")
    runs(world)

    def change(job: dict[str, Any]) -> None:
        kept = job["spec"]["groups"][0]
        job["spec"]["groups"] = [{**copy.deepcopy(kept), "name": name} for name in names]

    edit(world, change)
    world.evict()
    spec = ends(world)
    assert [each["name"] for each in spec["groups"]] == names
    assert not [name for each in spec["groups"] for name in placed(each["template"])]


def test_a_pod_set_that_was_added_keeps_what_looks_like_an_addition() -> None:
    world = crew("small")
    runs(world)
    own = {"name": "new", "template": template()}
    own["template"]["spec"]["nodeSelector"] = {"pool": "spot"}
    edit(world, lambda job: job["spec"]["groups"].append(own))
    first, second = ends(world)["groups"]
    assert not placed(first["template"])
    assert second["template"]["spec"]["nodeSelector"] == {"pool": "spot"}


def test_a_job_that_cannot_be_read_remembers_its_start_until_it_can() -> None:
    world = crew("small")
    runs(world)
    groups = copy.deepcopy(world.live_job["spec"]["groups"])
    edit(world, lambda job: job["spec"].update(groups=[{"template": template()}]))
    world.settle()
    assert world.live_job["spec"]["suspend"] is True
    edit(world, lambda job: job["status"].update(active=0))
    world.settle()
    assert "ErrWorkloadCompose" in world.events
    assert ADDED_AT_START in world.live_job["metadata"]["annotations"]
    edit(world, lambda job: job["spec"].update(groups=groups))
    (group,) = ends(world)["groups"]
    assert not placed(group["template"])


class Eager(CREW.job_type):  # type: ignore[misc,name-defined]
    """A kind that says of every restoration that it changed something."""

    def restore_podsets_info(self, infos: Any) -> bool:
        super().restore_podsets_info(infos)
        return True


class Slow(CREW.job_type, JobWithCustomStop):  # type: ignore[misc,name-defined]
    """A kind that restores its templates one write after it was suspended."""

    def is_stopping(self) -> bool:
        return False

    def stop(self, infos: Any, reason: Any, message: str, now: float) -> Stop:
        state, runs = self.copy(), not self.is_suspended()
        if runs:
            state.suspend()
        elif not state.restore_podsets_info(infos):
            return Stop()
        return Stop((Change(self.resource, self.raw, state.raw),), stops_now=runs)


@pytest.mark.parametrize("kind", [Eager, Slow])
def test_a_kind_that_needs_several_writes_is_stopped(kind: Any) -> None:
    world = crew("small", kind=attrs.evolve(CREW, job_type=kind))
    runs(world)
    edit(world, lambda job: job["spec"]["lead"]["spec"].update(nodeSelector={"own": "a"}))
    world.evict()
    spec = ends(world)
    assert spec["lead"]["spec"]["nodeSelector"] == {"own": "a"}
    assert not placed(spec["groups"][0]["template"])
