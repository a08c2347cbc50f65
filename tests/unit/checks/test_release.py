"""What a check took for a Workload is released: after the quota, the job or the object ended."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.checks import (
    Check,
    Ready,
    Rejected,
    Retry,
    Verdict,
    Workload,
    check,
    current,
    release,
)
from kueuelib.checks.moves import Reservation
from kueuelib.checks.release import finalizer_of, held_by
from kueuelib.errors import NotFound
from kueuelib.runtime.queries import PatchType

if TYPE_CHECKING:
    from .conftest import Checks

NAME = "example.com/licenses"
KEY = ObjectKey("default", "wl")


def taking(*verdicts: Verdict, failures: int = 0, **options: Any) -> tuple[Check, list[str]]:
    """A check that takes something outside, and what happened: takes and releases."""
    history: list[str] = []
    answers = list(verdicts)
    left = failures

    async def give_back(workload: Workload) -> None:
        nonlocal left
        assert current().check == ""
        if left:
            left -= 1
            raise OSError("the license server is away")
        history.append(f"release {workload.name}")

    @check(NAME, release=give_back, **options)
    async def licenses(workload: Workload, _: Obj | None) -> Verdict:
        assert held_by(current().workload, NAME) is not None
        history.append(f"take {workload.name}")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    return licenses, history


async def admitted(checks: Checks) -> None:
    await checks.admission_check("check", NAME)
    await checks.queues("check")
    await checks.world.workload("wl")
    await checks.world.is_("wl", "Admitted")


async def activate(checks: Checks, *, active: bool) -> None:
    body: Obj = {"spec": {"active": active}}
    await checks.client.patch(kinds.WORKLOADS, KEY, body, PatchType.MERGE)


async def history_is(checks: Checks, history: list[str], *wanted: str) -> None:
    """Waits for this history, and until nothing is held."""

    async def reached() -> bool:
        assert history == list(wanted)
        try:
            assert held_by(await checks.get("wl"), NAME) is None
        except NotFound:
            return True
        return True

    await checks.until(reached)


async def test_a_finished_workload_is_released_once(checks: Checks) -> None:
    licenses, history = taking(Ready())
    async with checks.running(licenses):
        await admitted(checks)
        assert history == ["take wl"]
        await checks.world.finish("wl")
        await history_is(checks, history, "take wl", "release wl")


async def test_an_evicted_workload_is_released_before_the_check_is_called_again(
    checks: Checks,
) -> None:
    licenses, history = taking(Retry("full", after=1), Ready())
    async with checks.running(licenses):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.state("wl", "Retry")
        await checks.release("wl")
        await checks.world.is_("wl", "Admitted")
        assert history == ["take wl", "release wl", "take wl"]


async def test_a_rejected_workload_is_released(checks: Checks) -> None:
    licenses, history = taking(Rejected("too large"))
    async with checks.running(licenses):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.release("wl")
        await history_is(checks, history, "take wl", "release wl")


async def test_what_pods_still_use_is_not_given_back(checks: Checks) -> None:
    licenses, history = taking(Ready())
    async with checks.running(licenses):
        await admitted(checks)
        await activate(checks, active=False)
        await checks.world.is_("wl", "Evicted")
        await asyncio.sleep(0.3)
        assert history == ["take wl"]
        assert held_by(await checks.get("wl"), NAME) is not None
        await checks.release("wl")
        await history_is(checks, history, "take wl", "release wl")


async def test_a_release_waits_for_a_thread_that_goes_on_after_its_call(checks: Checks) -> None:
    history: list[str] = []
    go_on = threading.Event()

    def give_back(workload: Workload) -> None:
        history.append("release")

    @check(NAME, release=give_back)
    def licenses(workload: Workload, _: Obj | None) -> Verdict:
        history.append("called")
        go_on.wait(30)
        history.append("take")
        return Ready()

    async with checks.running(licenses):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.until(lambda: history == ["called"])
        await activate(checks, active=False)
        await checks.release("wl")
        await asyncio.sleep(0.3)
        assert history == ["called"]
        go_on.set()
        await history_is(checks, history, "called", "take", "release")


async def test_a_release_does_not_wait_for_a_thread_for_ever(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "LONGEST_WAIT", 0.0)
    monkeypatch.setattr(release, "HANGING_PAUSE", 0.1)
    history: list[str] = []
    go_on = threading.Event()

    @check(NAME, release=lambda _: history.append("release"))
    def licenses(workload: Workload, _: Obj | None) -> Verdict:
        history.append("called")
        go_on.wait(60)
        return Ready()

    async with checks.running(licenses):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.until(lambda: history == ["called"])
        await activate(checks, active=False)
        await checks.release("wl")
        await history_is(checks, history, "called", "release")
        go_on.set()


async def test_a_deleted_workload_stays_until_its_release_succeeds(checks: Checks) -> None:
    licenses, history = taking(Ready(), failures=1)
    async with checks.running(licenses):
        await admitted(checks)
        await checks.client.delete(kinds.WORKLOADS, KEY)
        message = await checks.event("wl", "AdmissionCheckReleaseFailed")
        assert "OSError: the license server is away" in message
        await history_is(checks, history, "take wl", "release wl")


@pytest.mark.parametrize("end", ["finished", "deleted", "evicted"])
async def test_what_ends_while_no_process_runs_is_released_at_the_next_start(
    checks: Checks, end: str
) -> None:
    licenses, history = taking(Ready())
    async with checks.world.running():
        async with checks.deciding(licenses):
            await admitted(checks)
        if end == "finished":
            await checks.world.finish("wl")
        elif end == "deleted":
            await checks.client.delete(kinds.WORKLOADS, KEY)
        else:
            body = {"spec": {"active": False}}
            await checks.client.patch(kinds.WORKLOADS, KEY, body, PatchType.MERGE)
            await checks.release("wl")
        assert history == ["take wl"]
        async with checks.deciding(licenses):
            await history_is(checks, history, "take wl", "release wl")


async def test_another_reservation_made_while_no_process_ran_releases_the_old_one_first(
    checks: Checks,
) -> None:
    licenses, history = taking(Ready())
    async with checks.world.running():
        async with checks.deciding(licenses):
            await admitted(checks)
            first = held_by(await checks.get("wl"), NAME)
        await activate(checks, active=False)
        await checks.release("wl")
        await asyncio.sleep(1.0)  # conditions count whole seconds
        await activate(checks, active=True)
        await checks.world.is_("wl", "QuotaReserved")
        async with checks.deciding(licenses):
            await checks.world.is_("wl", "Admitted")
            assert history == ["take wl", "release wl", "take wl"]
            assert held_by(await checks.get("wl"), NAME) not in (None, first)


async def test_a_queue_that_drops_the_check_releases_what_it_took(checks: Checks) -> None:
    licenses, history = taking(Ready())
    async with checks.running(licenses):
        await admitted(checks)
        body = {"spec": {"admissionChecksStrategy": None}}
        queue = ObjectKey("", "cq")
        await checks.client.patch(kinds.CLUSTER_QUEUES, queue, body, PatchType.MERGE)
        await history_is(checks, history, "take wl", "release wl")


async def test_a_check_without_a_release_function_leaves_no_finalizer(checks: Checks) -> None:
    @check(NAME)
    async def plain(_: Workload, __: Obj | None) -> Verdict:
        return Ready()

    async with checks.running(plain):
        await admitted(checks)
        assert held_by(await checks.get("wl"), NAME) is None


@pytest.mark.parametrize("path", ["x", "a/b_c", "x" * 100, "x" * 101])
def test_finalizers_are_valid_names_and_differ(path: str) -> None:
    name = f"example.com/{path}"
    one, other = (finalizer_of(name, Reservation("u", since, {})) for since in ("1", "2"))
    assert one != other
    assert one.partition("/")[0] == "example.com"
    assert len(one.partition("/")[2]) <= 63
    assert held_by({"metadata": {"finalizers": ["kueue.x-k8s.io/in-use", one]}}, name) == one
    assert held_by({"metadata": {"finalizers": [one]}}, name + "y") is None


def test_fields_that_change_while_a_job_runs_do_not_change_the_reservation() -> None:
    pod_set: Obj = {"name": "main", "flavors": {"cpu": "spot"}, "count": 3}
    names = {
        finalizer_of(
            NAME,
            Reservation(
                "u", "1", {"clusterQueue": "q", "podSetAssignments": [{**pod_set, **change}]}
            ),
        )
        for change in ({}, {"count": 2}, {"resourceUsage": {"cpu": "1"}})
    }
    assert len(names) == 1
