"""Checks at work on an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.checks import (
    Check,
    Pending,
    PodSetUpdate,
    Ready,
    Rejected,
    Retry,
    Verdict,
    Workload,
    check,
    current,
    usage_of,
)
from kueuelib.errors import NotFound
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states
from kueuelib.workload.writer import write_status

if TYPE_CHECKING:
    from .conftest import Checks

NAME = "example.com/test"
LIMITS = Resource("example.com", "v1", "limits", "Limit", namespaced=False)
SHARES = Resource("example.com", "v1", "shares", "Share", namespaced=True)


def says(*verdicts: Verdict | Exception, **options: Any) -> tuple[Check, list[str]]:
    """A check that gives these answers one after the other, then the last one; and its calls."""
    calls: list[str] = []

    @check(NAME, **options)
    async def scripted(workload: Workload, parameters: Obj | None) -> Verdict:
        found = verdicts[min(len(calls), len(verdicts) - 1)]
        calls.append(workload.name)
        if isinstance(found, Exception):
            raise found
        return found

    return scripted, calls


def crd(resource: Resource) -> Obj:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def test_a_check_is_active_is_asked_once_and_admits(checks: Checks) -> None:
    scripted, calls = says(Ready("fine", (PodSetUpdate("main", labels={"a": "b"}),)))
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.is_active("check", "True")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        entry = await checks.entry("wl")
        assert (entry["state"], entry["message"]) == ("Ready", "fine")
        assert entry["podSetUpdates"] == [{"name": "main", "labels": {"a": "b"}}]
        assert "fine" in await checks.event("wl", "AdmissionCheckReady")
    assert calls == ["wl"]


async def test_a_pending_check_is_asked_again_and_shows_its_message(checks: Checks) -> None:
    verdicts = (
        Pending("soon", again=0.05),
        Pending("very soon", preemption_required=True),
        Ready(),
    )
    scripted, calls = says(*verdicts, interval=0.05)
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
    assert calls == ["wl"] * 3


async def test_what_a_pending_check_asks_for_is_on_the_wire(checks: Checks) -> None:
    scripted, _ = says(Pending("full", preemption_required=True))
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")

        async def asked() -> bool:
            entry = await checks.entry("wl")
            return (entry["reason"], entry["message"]) == ("PreemptionRequired", "full")

        await checks.until(asked)


@pytest.mark.slow
async def test_what_a_check_said_about_a_lost_reservation_is_removed_and_no_longer_owned(
    checks: Checks,
) -> None:
    scripted, calls = says(Pending("full", preemption_required=True), Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")

        async def asks() -> bool:
            return (await checks.entry("wl")).get("reason") == "PreemptionRequired"

        await checks.until(asks)
        assert "f:reason" in owned_entry(await checks.get("wl"))
        await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await checks.world.is_("wl", "QuotaReserved", "False")
        wl = await checks.get("wl")
        (entry,) = states.check_states(wl)
        assert entry.keys() == {"name", "state", "message", "lastTransitionTime"}
        assert (entry["state"], entry["message"]) == (
            "Pending",
            "Reset to Pending after quota was lost",
        )
        assert not {"f:reason", "f:message"} & owned_entry(wl).keys()
        await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
        async with asyncio.timeout(scripted.interval / 2):
            await checks.world.is_("wl", "Admitted")
        assert "reason" not in await checks.entry("wl")
    assert calls == ["wl", "wl"]


def owned_entry(wl: Obj, check: str = "check") -> Obj:
    """The fields of its entry that the controller of a check owns by server-side apply."""
    for one in wl["metadata"]["managedFields"]:
        entries = one["fieldsV1"].get("f:status", {}).get("f:admissionChecks", {})
        if one["operation"] == "Apply" and entries:
            return dict(entries.get(f'k:{{"name":"{check}"}}', {}))
    return {}


async def test_a_retry_frees_the_quota_and_starts_over_after_its_own_delay(checks: Checks) -> None:
    scripted, calls = says(Retry("later", after=1), Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        entry = await checks.state("wl", "Retry")
        assert entry["requeueAfterSeconds"] == 1
        await checks.release("wl")
        await checks.world.is_("wl", "Admitted")
        entry = await checks.entry("wl")
        assert entry["retryCount"] == 1
        assert "requeueAfterSeconds" not in entry
    assert calls == ["wl", "wl"]


@pytest.mark.parametrize(("spec", "after"), [({"retryDelayMinutes": 0}, None), ({}, 0)])
async def test_a_retry_without_a_delay_comes_less_and_less_often(
    checks: Checks, spec: Obj, after: int | None
) -> None:
    scripted, calls = says(Retry("later", after=after))
    async with checks.running(scripted):
        await checks.admission_check("check", NAME, **spec)
        await checks.queues("check")
        await checks.world.workload("wl")
        loop = asyncio.get_running_loop()
        times = []
        for retries in range(3):

            async def answered(retries: int = retries) -> bool:
                entry = await checks.entry("wl")
                return entry["state"] == "Retry" and (entry.get("retryCount") or 0) == retries

            await checks.until(answered)
            times.append(loop.time())
            await checks.release("wl")
    assert times[2] - times[0] > 1  # 1 s and 2 s, each up to 1 s early
    assert len(calls) == 3


async def test_a_retry_tells_its_delay_where_the_check_of_the_manager_has_none(
    checks: Checks,
) -> None:
    key = ObjectKey("", "admissionchecks.kueue.x-k8s.io")
    old = await checks.client.get(kinds.CRDS, key)
    for version in old["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        spec.pop("retryDelayMinutes", None)
    await checks.client.replace(kinds.CRDS, old)
    scripted, calls = says(Retry("later"))
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        entry = await checks.state("wl", "Retry")
    assert entry["requeueAfterSeconds"] == 15 * 60
    assert calls == ["wl"]


async def test_crds_of_older_managers_get_no_fields_that_they_do_not_know(checks: Checks) -> None:
    key = ObjectKey("", "workloads.kueue.x-k8s.io")
    old = await checks.client.get(kinds.CRDS, key)
    for version in old["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        entry = status["admissionChecks"]["items"]["properties"]
        del entry["requeueAfterSeconds"], entry["reason"], entry["retryCount"]
    await checks.client.replace(kinds.CRDS, old)
    scripted, calls = says(Retry("later", after=0.5), Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        entry = await checks.state("wl", "Retry")
        assert "requeueAfterSeconds" not in entry
        await checks.release("wl")
        await checks.world.is_("wl", "Admitted")
    assert calls == ["wl", "wl"]


async def test_a_rejection_deactivates_and_activation_asks_once_more(checks: Checks) -> None:
    scripted, calls = says(Rejected("never"), Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.release("wl")
        wl = await checks.get("wl")
        assert wl["spec"]["active"] is False
        assert "never" in states.condition(wl, "Evicted")["message"]
        assert "never" in await checks.event("wl", "AdmissionCheckRejected")
        await checks.world.patch(kinds.WORKLOADS, "wl", {"spec": {"active": True}}, "default")
        await checks.world.is_("wl", "Admitted")
    assert calls == ["wl", "wl"]


async def test_a_check_that_changes_its_mind_evicts_what_it_admitted(checks: Checks) -> None:
    scripted, _ = says(Ready(), Ready(), Retry("enough"), recheck=0.05)
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        evicted = await checks.world.is_("wl", "Evicted")
        assert evicted["reason"] == "AdmissionCheck"
        assert "enough" in evicted["message"]


async def test_before_the_admission_another_answer_has_its_updates_stored_and_not_afterwards(
    checks: Checks,
) -> None:
    label, calls, held = ["first"], [0], [True]

    @check(NAME, recheck=0.05, interval=600)
    async def labels(workload: Workload, parameters: Obj | None) -> Verdict:
        calls[0] += 1
        return Ready("", (PodSetUpdate("main", labels={"a": label[0]}),))

    @check("example.com/other", interval=0.05)
    async def other(workload: Workload, parameters: Obj | None) -> Verdict:
        return Pending() if held[0] else Ready()

    async def stored(text: str) -> bool:
        entry = await checks.entry("wl")
        return entry["podSetUpdates"] == [{"name": "main", "labels": {"a": text}}]

    async def asked_often() -> None:
        before = calls[0]
        await checks.until(lambda: calls[0] > before + 3)

    async with checks.running(labels, other):
        await checks.admission_check("check", NAME)
        await checks.admission_check("other", "example.com/other")
        await checks.queues("check", "other")
        await checks.world.workload("wl")
        await checks.until(lambda: stored("first"))
        label[0] = "second"
        await checks.until(lambda: stored("second"))
        wl = await checks.get("wl")
        await asked_often()
        assert await checks.get("wl") == wl, "the same answer is not written again"
        held[0] = False
        await checks.world.is_("wl", "Admitted")
        label[0] = "third"
        await asked_often()
        assert (await checks.entry("wl"))["state"] == "Ready"
        assert await stored("second")


async def test_doubts_after_admission_change_nothing(checks: Checks) -> None:
    scripted, calls = says(Ready(), Pending("hm"), recheck=0.05, interval=0.05)
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        await checks.until(lambda: len(calls) > 3)
        assert (await checks.entry("wl"))["state"] == "Ready"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (RuntimeError("no answer"), "RuntimeError: no answer"),
        ("nonsense", "answered str"),
        (Ready(updates=(PodSetUpdate("other"),)), "the workload has ['main']"),
    ],
)
async def test_code_that_fails_is_a_retry_with_an_event(
    checks: Checks, wrong: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kueuelib.checks.reconciler.FIRST_PAUSE", 1.0)
    scripted, _ = says(wrong, Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        entry = await checks.state("wl", "Retry")
        assert told in entry["message"]
        assert told in await checks.event("wl", "AdmissionCheckFailed")
        await checks.release("wl")
        await checks.world.is_("wl", "Admitted")


async def test_a_failure_leaves_what_runs_alone_unless_told_otherwise(checks: Checks) -> None:
    gentle, calls = says(Ready(), RuntimeError("down"), recheck=0.05)
    strict = check("example.com/strict", recheck=0.05, evict_on_failure=True)(says_then_fails())
    async with checks.running(gentle, strict):
        await checks.admission_check("check", NAME)
        await checks.admission_check("strict", "example.com/strict")
        await checks.queues("check", cpu="4")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        await checks.until(lambda: len(calls) > 1)
        assert "down" in await checks.event("wl", "AdmissionCheckFailed")
        assert (await checks.entry("wl"))["state"] == "Ready"
        strategy = {"admissionChecks": [{"name": "strict"}]}
        spec = {"admissionChecksStrategy": strategy}
        await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": spec})
        await checks.world.is_("wl", "Evicted")


def says_then_fails() -> Any:
    calls = 0

    async def function(workload: Workload, parameters: Obj | None) -> Verdict:
        nonlocal calls
        calls += 1
        if calls == 1:
            return Ready()
        raise RuntimeError("down")

    return function


async def test_a_slow_check_delays_nobody_and_ends_after_its_time(checks: Checks) -> None:
    over = asyncio.Event()

    @check("example.com/slow", timeout=0.3)
    async def slow(workload: Workload, parameters: Obj | None) -> Verdict:
        while not over.is_set():  # it does not even let itself be cancelled
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)
        return Ready()

    @check("example.com/blocking", timeout=0.2)
    def blocking(workload: Workload, parameters: Obj | None) -> Verdict:
        time.sleep(0.5)
        return Ready()

    quick, _ = says(Ready())
    async with checks.running(slow, blocking, quick):
        for name in ("slow", "blocking"):
            await checks.admission_check(name, f"example.com/{name}")
        await checks.admission_check("check", NAME)
        await checks.queues("slow", "blocking", "check", cpu="4")
        await checks.world.workload("first")
        await checks.world.workload("second")
        for name in ("first", "second"):
            slept = await checks.event(name, "AdmissionCheckFailed")
            assert "took longer than" in slept
        over.set()


async def test_a_verdict_about_a_reservation_that_is_gone_is_not_written(checks: Checks) -> None:
    calls: list[str] = []

    @check(NAME)
    async def late(workload: Workload, parameters: Obj | None) -> Verdict:
        calls.append(workload.name)
        if len(calls) > 1:
            return Pending("asked again")
        wl = await checks.get("wl")
        await write_status(checks.client, wl, states.cancel(wl, "Pending", "gone", time.time()))
        return Ready()

    async with checks.running(late):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.until(lambda: _message(checks, "wl", "asked again"))
        assert "AdmissionCheckReady" not in dict(await checks.world.events("wl"))


async def test_a_check_that_becomes_ours_is_asked_about_what_waits(checks: Checks) -> None:
    scripted, calls = says(Ready())
    async with checks.running(scripted):
        await checks.admission_check("check", "example.com/other")
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.state("wl", "Pending")
        key, body = ObjectKey("", "check"), {"metadata": {"finalizers": []}}
        await checks.client.delete(kinds.ADMISSION_CHECKS, key)
        with contextlib.suppress(NotFound):
            await checks.client.patch(kinds.ADMISSION_CHECKS, key, body, PatchType.MERGE)
        assert calls == []
        await checks.admission_check("check", NAME)
        await checks.state("wl", "Ready")
        assert calls == ["wl"]


async def test_the_checks_of_other_controllers_are_left_to_them(checks: Checks) -> None:
    scripted, calls = says(Ready("mine"))
    async with checks.running(scripted):
        await checks.admission_check("check", NAME)
        await checks.admission_check("theirs", "example.com/other")
        other = await checks.client.get(kinds.ADMISSION_CHECKS, ObjectKey("", "theirs"))
        condition = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        time_ = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {**other, "status": {"conditions": [{**condition, **time_}]}}
        await checks.client.replace(kinds.ADMISSION_CHECKS, body, subresource="status")
        await checks.queues("check", "theirs")
        await checks.world.workload("wl")
        await checks.state("wl", "Ready")
        await asyncio.sleep(0.2)
        assert (await checks.entry("wl", "theirs"))["state"] == "Pending"
        assert calls == ["wl"]


async def test_parameters_are_handed_over_and_asked_for_again_when_they_change(
    checks: Checks,
) -> None:
    @check(NAME, parameters=LIMITS)
    async def limited(workload: Workload, parameters: Obj | None) -> Verdict:
        assert parameters is not None
        if usage_of(workload)["cpu"].value() <= parameters["spec"]["cpu"]:
            return Ready(current().check)
        return Pending("too much")

    async with checks.running(limited):
        ref = {"apiGroup": "example.com", "kind": "Limit", "name": "limit"}
        await checks.admission_check("check", NAME, parameters=ref)
        await checks.is_active("check", "False", "is it installed?")
        await checks.client.create(kinds.CRDS, crd(LIMITS))
        await checks.is_active("check", "False", "Limit limit does not exist")
        await checks.queues("check")
        await checks.until(lambda: checks.world.create(LIMITS, "limit", {"cpu": 1}))
        await checks.is_active("check", "True")
        await checks.world.workload("wl", cpu="2")
        await checks.until(lambda: _message(checks, "wl", "too much"))
        await checks.world.patch(LIMITS, "limit", {"spec": {"cpu": 2}})
        await checks.world.is_("wl", "Admitted")
        assert (await checks.entry("wl"))["message"] == "check"
        await checks.world.delete(LIMITS, "limit")
        await checks.is_active("check", "False", "does not exist")


async def _message(checks: Checks, name: str, text: str) -> bool:
    return text in (await checks.entry(name)).get("message", "")


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (None, "spec.parameters is missing"),
        ({"apiGroup": "example.com", "kind": "Other", "name": "x"}, "refers to a Other.example"),
    ],
)
async def test_a_wrong_reference_makes_the_check_inactive(
    checks: Checks, ref: Obj | None, text: str
) -> None:
    scripted, _ = says(Ready(), parameters=LIMITS)
    await checks.client.create(kinds.CRDS, crd(LIMITS))
    async with checks.deciding(scripted):
        await checks.admission_check("check", NAME, **({"parameters": ref} if ref else {}))
        await checks.admission_check("foreign", "example.com/foreign")
        await checks.is_active("check", "False", text)
        assert await checks.active("foreign") == ("", "", "")


async def test_parameters_of_a_namespaced_kind_are_those_of_the_workload(checks: Checks) -> None:
    @check(NAME, parameters=SHARES)
    async def shared(workload: Workload, parameters: Obj | None) -> Verdict:
        assert parameters is not None
        return Ready(f"{parameters['metadata']['namespace']} has {parameters['spec']['points']}")

    await checks.client.create(kinds.CRDS, crd(SHARES))
    async with checks.running(shared):
        ref = {"apiGroup": "example.com", "kind": "Share", "name": "share"}
        await checks.admission_check("check", NAME, parameters=ref)
        await checks.queues("check")
        await checks.is_active("check", "True")
        await checks.world.workload("wl")
        await checks.until(lambda: _message(checks, "wl", "share does not exist in default"))
        await checks.until(lambda: checks.world.create(SHARES, "share", {"points": 3}, "default"))
        await checks.world.is_("wl", "Admitted")
        assert (await checks.entry("wl"))["message"] == "default has 3"


async def test_what_was_admitted_is_watched_although_the_parameters_are_gone(
    checks: Checks,
) -> None:
    falls_short = False

    @check(NAME, parameters=SHARES, recheck=0.2)
    async def shared(workload: Workload, parameters: Obj | None) -> Verdict:
        assert parameters is not None
        assert parameters["spec"] == {"points": 3}
        return Retry("short", after=60) if falls_short else Ready()

    await checks.client.create(kinds.CRDS, crd(SHARES))
    async with checks.running(shared):
        ref = {"apiGroup": "example.com", "kind": "Share", "name": "share"}
        await checks.admission_check("check", NAME, parameters=ref)
        await checks.queues("check")
        await checks.until(lambda: checks.world.create(SHARES, "share", {"points": 3}, "default"))
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        await checks.client.delete(SHARES, ObjectKey("default", "share"))
        falls_short = True
        await checks.world.is_("wl", "Evicted")


async def test_of_workloads_that_are_decided_one_by_one_each_sees_what_passed_before(
    checks: Checks,
) -> None:
    """There is room for one of four, asked at the same time."""

    @check(NAME, serialize=lambda workload: workload.namespace)
    async def one_only(workload: Workload, parameters: Obj | None) -> Verdict:
        others = current().passed(workload.namespace)
        await asyncio.sleep(0.01)
        return Pending("full") if others else Ready()

    async with checks.running(one_only):
        await checks.admission_check("check", NAME)
        await checks.queues("check", cpu="4")
        for name in "abcd":
            await checks.world.workload(name)

        async def decided() -> bool:
            found = [await checks.entry(name) for name in "abcd"]
            told = sorted((entry["state"], entry["message"]) for entry in found)
            return told == [("Pending", "full")] * 3 + [("Ready", "")]

        await checks.until(decided)


async def test_two_checks_of_one_controller_keep_apart(checks: Checks) -> None:
    @check(NAME)
    async def by_name(workload: Workload, parameters: Obj | None) -> Verdict:
        return Ready("yes") if current().check == "first" else Pending("no")

    async with checks.running(by_name):
        await checks.admission_check("first", NAME)
        await checks.admission_check("second", NAME)
        await checks.queues("first", "second")
        await checks.world.workload("wl")
        await checks.state("wl", "Ready", "first")
        await checks.until(lambda: _second(checks))
        strategy = {"admissionChecks": [{"name": "first"}]}
        await checks.world.patch(
            kinds.CLUSTER_QUEUES, "cq", {"spec": {"admissionChecksStrategy": strategy}}
        )
        await checks.world.is_("wl", "Admitted")
        assert await checks.entry("wl", "second") == {}


async def _second(checks: Checks) -> bool:
    return (await checks.entry("wl", "second")).get("message") == "no"
