"""Scenarios are data: drawn by labels, sorted, and performed without surprises."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import attrs
import pytest
from dice import Dice, Family

from kueuelib.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError
from kueuelib.testing.storm.users import Act, Scenario, insist, meddle, perform, scenario
from kueuelib.testing.storm.users.acts import ANSWER, RESTORE, VERBS
from kueuelib.testing.storm.users.performing import TRIES, WAYS
from kueuelib.testing.storm.users.queues import CLUSTER_QUEUES, COHORTS

SEEDS = range(60)


class Memory:
    """An API server that only knows what it was given."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = lists
        self.calls: list[tuple[Any, ...]] = []
        self.failure: ApiError | None = None

    async def _call(self, *call: Any) -> dict[str, Any]:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure
        return {"metadata": {"uid": "uid"}}

    async def get(self, *where: str) -> dict[str, Any]:
        return await self._call("get", *where)

    async def list(self, resource: str, _namespace: str = "") -> list[dict[str, Any]]:
        return self.lists.get(resource.partition(".")[0], [])

    async def create(self, resource: str, obj: Any) -> dict[str, Any]:
        return await self._call("create", resource, obj)

    async def patch(self, *call: Any) -> dict[str, Any]:
        return await self._call("patch", *call)

    async def delete(self, *where: str) -> None:
        await self._call("delete", *where)


def act(verb: str, body: dict[str, Any] | None = None, resource: str = "jobs.batch") -> Act:
    return Act(0.0, "label", verb, resource, "ns", "one", body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scenario_is_well_formed(seed: int) -> None:
    found = scenario(Dice(seed), Family())
    every = (*found.setup, *found.acts, *found.calm, *found.rest)
    labels = [one.label for one in every]
    assert len(set(labels)) == len(labels)
    assert {one.verb for one in every} <= set(VERBS)
    assert [one.at for one in found.acts] == sorted(one.at for one in found.acts)
    assert json.loads(json.dumps(attrs.asdict(found))) == json.loads(
        json.dumps(attrs.asdict(scenario(Dice(seed), Family())))
    )


def test_edits_come_with_settings_that_are_rare() -> None:
    """Users edit most Jobs; managers wait for checks, and until pods are gone."""
    found = [scenario(Dice(seed), Family(edits=True)) for seed in range(100)]
    edits = [
        act for one in found for act in one.acts if act.verb == "patch" and "/edit-" in act.label
    ]
    changed = {
        (section, field)
        for act in edits
        for section, part in (act.body or {})["spec"]["template"].items()
        for field in part
    }
    assert changed == {("spec", "nodeSelector"), ("spec", "affinity"), ("metadata", "annotations")}
    terminal = [one.settings.get("quotaReleaseStrategy") for one in found]
    assert 30 <= terminal.count("OnTerminal") <= 70
    checks = [
        (act.body or {})["spec"].get("preemptionPolicy")
        for one in found
        for act in one.setup
        if act.resource.startswith("admissionchecks") and act.verb == "create"
    ]
    assert 30 <= checks.count("AfterCheckPassedOrOnDemand") <= 70
    assert None in checks
    offs = [act for one in found for act in one.acts if act.label.endswith("/stop/off")]
    assert len(offs) > len(found)
    calm = [scenario(Dice(seed), Family()) for seed in range(20)]
    assert not any("/edit-" in act.label for one in calm for act in one.acts)


def test_managers_wait_and_remember_and_jobs_have_limits() -> None:
    found = [scenario(Dice(seed), Family(waits=True)) for seed in range(100)]
    for block in ("waitForPodsReady", "admissionFairSharing"):
        assert 40 <= sum(block in one.settings for one in found) <= 90
    limits = [
        (act.body or {})["metadata"]["labels"].get("kueue.x-k8s.io/max-exec-time-seconds")
        for one in found
        for act in one.acts
        if act.verb == "create" and act.resource == "jobs.batch"
    ]
    assert 0.2 < sum(one is not None for one in limits) / len(limits) < 0.6
    for one in found:
        spec = [
            act.body["spec"] for act in one.setup if act.resource == CLUSTER_QUEUES and act.body
        ]
        assert all(
            ("admissionScope" in part) == ("admissionFairSharing" in one.settings) for part in spec
        )


def treed() -> list[Scenario]:
    found = [scenario(Dice(seed), Family()) for seed in range(300)]
    return [one for one in found if one.resources]


def test_a_quarter_of_the_scenarios_has_trees_and_half_of_these_share_fairly() -> None:
    found = treed()
    assert 50 <= len(found) <= 100
    assert 0.3 <= sum(bool(one.settings) for one in found) / len(found) <= 0.7


def test_users_change_trees_in_every_way() -> None:
    every = [act for one in treed() for act in one.acts if act.resource == COHORTS]
    fields = {field for act in every if act.verb == "patch" for field in (act.body or {})["spec"]}
    assert fields == {"parentName", "resourceGroups", "fairSharing"}
    assert {act.verb for act in every} == {"patch", "delete", "create"}


def test_cycles_are_closed() -> None:
    closed = 0
    for one in treed():
        parents = {act.name: _parent(act) for act in one.setup if act.resource == COHORTS}
        for act in one.acts:
            if act.resource == COHORTS and act.verb == "patch" and _parent(act):
                closed += _endless({**parents, act.name: _parent(act)}, act.name)
    assert closed > 10


def test_the_calm_has_another_tree_and_keeps_nothing_of_what_users_did() -> None:
    moved = others = 0
    for one in treed():
        first = {act.name: act.body for act in one.setup if act.resource == COHORTS}
        last = [act for act in one.calm if act.resource == COHORTS]
        restored = {act.name: act.body or {} for act in last if act.verb == RESTORE}
        gone = {act.name for act in last if act.verb == "delete"}
        assert gone == first.keys() - restored.keys()
        for body in restored.values():
            assert body["spec"].keys() == {"parentName", "resourceGroups", "fairSharing"}
        others += {name: _kept(body) for name, body in restored.items()} != {
            name: _kept(body or {}) for name, body in first.items()
        }
        moved += any(act.verb == "patch" for act in last)
    assert others > 0.9 * len(treed())
    assert 0 < moved < len(treed())


def test_at_rest_most_trees_come_below_one_cohort_that_owns_all_quota() -> None:
    pooled = [one for one in treed() if one.rest]
    assert 0.6 <= len(pooled) / len(treed()) <= 0.9
    for one in pooled:
        top, *others = one.rest
        parents = {act.name: _parent(act) for act in one.rest}
        last = {act.name for act in one.calm if act.resource == COHORTS and act.body}
        named = {
            (act.body or {})["spec"]["cohortName"]
            for act in one.setup
            if act.resource == CLUSTER_QUEUES
        }
        assert last | named <= {act.name for act in others}
        assert set(parents.values()) <= {"", *parents}
        assert not any(_endless(parents, name) for name in parents)
        assert [name for name, parent in parents.items() if not parent] == [top.name]
        own = [act.name for act in one.rest if "resourceGroups" in _kept(act.body or {})]
        assert own == [top.name]


def _kept(body: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in body["spec"].items() if value is not None}


def _parent(act: Act) -> str:
    return (act.body or {})["spec"].get("parentName") or ""


def _endless(parents: dict[str, str], name: str) -> bool:
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        name = parents.get(name, "")
    return bool(name)


def test_a_scenario_without_hostile_users_has_submissions_and_approvals_only() -> None:
    for seed in SEEDS:
        found = scenario(Dice(seed), Family(users=False))
        assert {one.verb for one in found.acts} <= {"create", ANSWER}


def test_scenarios_reach_every_verb() -> None:
    seen = {
        one.verb
        for seed in range(200)
        for found in [scenario(Dice(seed), Family())]
        for one in (*found.setup, *found.acts, *found.calm)
    }
    assert seen == set(VERBS)


def test_decisions_about_one_job_do_not_depend_on_how_many_there_are() -> None:
    few = scenario(Dice(7), Family(jobs=(4, 4), users=False))
    many = scenario(Dice(7), Family(jobs=(9, 9), users=False))
    assert {one.label for one in few.acts} < {one.label for one in many.acts}
    assert set(map(str, few.acts)) < set(map(str, many.acts))


async def test_an_answer_of_the_api_server_is_an_outcome() -> None:
    api = Memory()
    api.failure = NotFound("gone")
    assert await perform(act("delete"), api) == "NotFound"
    api.failure = Conflict("changed")
    assert await perform(act("patch", {}), api) == "Conflict"


@pytest.mark.parametrize(("failures", "outcome"), [(3, "done"), (TRIES, "ServerError")])
async def test_a_user_who_insists_tries_again_while_the_server_fails(
    failures: int, outcome: str
) -> None:
    api = Memory()
    api.failure = ServerError("the webhook is away")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == failures:
            api.failure = None

    assert await insist(act("delete"), api, sleep) == outcome
    assert len(pauses) == failures


async def restored(existing: bool, *failures: ApiError) -> tuple[str, list[str]]:
    """The outcome of a user who insists on an object, and the calls, which fail in this order."""
    waiting = list(failures)

    class Failing(Memory):
        async def _call(self, *call: Any) -> dict[str, Any]:
            if call[0] == "create" and not waiting:
                self.failure = AlreadyExists("it is there") if existing else None
            else:
                self.failure = waiting.pop(0) if waiting else None
            return await super()._call(*call)

    async def sleep(_seconds: float) -> None:
        pass

    api = Failing()
    outcome = await insist(act("restore", {"metadata": {}, "spec": {}}), api, sleep)
    return outcome, [call[0] for call in api.calls]


async def test_what_is_restored_is_created_as_soon_as_the_webhook_is_back() -> None:
    away = ServerError("the webhook is away")
    assert await restored(False, away, away) == ("done", ["create", "create", "create"])


async def test_what_is_there_is_changed_and_what_goes_meanwhile_is_created() -> None:
    there, gone = AlreadyExists("it is there"), NotFound("it is gone")
    assert await restored(True) == ("done", ["create", "patch"])
    assert await restored(False, there, gone) == ("done", ["create", "patch", "create"])


async def test_a_user_does_not_insist_on_what_is_refused() -> None:
    api = Memory()
    api.failure = NotFound("gone")
    assert await insist(act("delete"), api, asyncio.sleep) == "NotFound"
    assert len(api.calls) == 1


async def test_an_unknown_verb_is_an_error_of_the_scenario() -> None:
    with pytest.raises(ValueError, match="unknown verb"):
        await perform(act("sing"), Memory())


async def test_what_is_restored_is_created_without_empty_fields() -> None:
    api = Memory()
    body = {"metadata": {}, "spec": {"stopPolicy": "None", "admissionChecksStrategy": None}}
    assert await perform(act("restore", body), api) == "done"
    (call,) = api.calls
    assert call[2]["spec"] == {"stopPolicy": "None"}


async def test_a_workload_is_found_by_the_uid_of_its_owner() -> None:
    mine = {"metadata": {"name": "mine", "ownerReferences": [{"uid": "uid"}]}}
    other = {"metadata": {"name": "other", "ownerReferences": [{"uid": "another"}]}}
    api = Memory(workloads=[other, mine])
    assert await perform(act("delete-workload"), api) == "done"
    assert [call[3] for call in api.calls if call[0] == "delete"] == ["mine"]


async def test_only_workloads_that_hold_quota_and_wait_for_the_check_are_answered() -> None:
    def waiting(name: str, state: str, admission: dict[str, Any] | None) -> dict[str, Any]:
        checks = [{"name": "one", "state": state}, {"name": "two", "state": "Pending"}]
        meta = {"name": name, "namespace": "ns", "resourceVersion": "5"}
        return {"metadata": meta, "status": {"admissionChecks": checks, "admission": admission}}

    api = Memory(
        workloads=[
            waiting("a", "Pending", {"clusterQueue": "cq"}),
            waiting("b", "Ready", {"clusterQueue": "cq"}),
            waiting("c", "Pending", None),
        ]
    )
    assert await perform(act("answer", {"state": "Ready"}), api) == "done"
    (call,) = api.calls
    assert call[3] == "a"
    body = call[4]
    assert body["metadata"]["resourceVersion"] == "5"
    assert [one["state"] for one in body["status"]["admissionChecks"]] == ["Ready", "Pending"]


@pytest.mark.parametrize("resource", WAYS)
def test_who_meddles_does_something_at_once_to_the_object_that_is_written(resource: str) -> None:
    target = (resource, "ns", "one")
    made = act("create", {"metadata": {"name": "one"}}, resource)
    for number in range(40):
        found = meddle(Dice(number), f"write-{number}", target, [made])
        assert min(one.at for one in found) <= 0.01
        assert {(one.resource, one.namespace, one.name) for one in found} == {target}
        assert len({one.label for one in found}) == len(found)
        assert all(one.body == made.body for one in found if one.verb == "create")


def test_only_what_users_have_created_is_created_again() -> None:
    target = ("pods", "ns", "one")
    found = [one for n in range(40) for one in meddle(Dice(n), f"write-{n}", target, [])]
    assert {one.verb for one in found} == {"patch", "delete"}


def test_a_rival_is_a_copy_of_high_priority_for_the_same_queue() -> None:
    meta = {"name": "one", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    made = act("create", {"metadata": meta, "spec": {}})
    target = ("workloads.kueue.x-k8s.io", "ns", "job-one-12345")
    (rival,) = meddle(Dice(1), "write", target, [made], "doubted")
    assert rival.body is not None
    assert rival.body["metadata"] == {
        "name": "one-rival",
        "labels": {**meta["labels"], "kueue.x-k8s.io/priority-class": "high"},
    }
    assert meddle(Dice(1), "write", (target[0], "ns", "pod-one-12345"), [made], "doubted") == ()


def test_what_has_just_started_is_deactivated_for_a_while() -> None:
    off, on = meddle(Dice(1), "start", ("jobs.batch", "ns", "one"), [], "undone")
    assert (off.verb, off.body) == ("patch-workload", {"spec": {"active": False}})
    assert on.body == {"spec": {"active": True}}
    assert 0.1 <= off.at < on.at


def test_there_is_no_meddling_without_users() -> None:
    assert scenario(Dice(1), Family()).meddling
    assert not scenario(Dice(1), Family(users=False)).meddling
