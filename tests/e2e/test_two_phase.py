"""Two-phase admission end to end (KEP-993): its seven transitions, and when preemption happens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, condition, eventually, is_true, job
from warm import Processes

from kueuelib.testing.processes import LocalCluster

AFTER, ANYTIME = "AfterCheckPassedOrOnDemand", "Anytime"
TIME = "2024-01-01T00:00:00Z"
_NUMBERS = itertools.count()


class World:
    """Queues, checks and Jobs of one test, in a cluster that tests share.

    Args:
        rest: the cluster.
    """

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self._prefix = f"t{next(_NUMBERS)}"

    def name(self, base: str) -> str:
        return f"{self._prefix}-{base}"

    def _create(self, plural: str, kind: str, base: str, spec: Obj) -> None:
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "spec": spec}
        self.rest.create(f"{KUEUE}/{plural}", {**obj, "metadata": {"name": self.name(base)}})

    def flavor(self, base: str, **labels: str) -> None:
        self._create("resourceflavors", "ResourceFlavor", base, {"nodeLabels": labels})

    def check(self, base: str, **spec: Any) -> None:
        controller = {"controllerName": "example.com/by-hand", "retryDelayMinutes": 60}
        self._create("admissionchecks", "AdmissionCheck", base, {**controller, **spec})
        active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        body = {"status": {"conditions": [{**active, "lastTransitionTime": TIME}]}}
        self.rest.merge(f"{KUEUE}/admissionchecks/{self.name(base)}/status", body)

    def groups(self, quota: dict[str, int]) -> list[Obj]:
        flavors = [
            {
                "name": self.name(flavor),
                "resources": [{"name": "cpu", "nominalQuota": str(amount)}],
            }
            for flavor, amount in quota.items()
        ]
        return [{"coveredResources": ["cpu"], "flavors": flavors}]

    def queue(self, base: str, quota: dict[str, int], *checks: str, **spec: Any) -> None:
        rules = [{"name": self.name(check)} for check in checks]
        if rules:
            spec["admissionChecksStrategy"] = {"admissionChecks": rules}
        spec = {"namespaceSelector": {}, "resourceGroups": self.groups(quota), **spec}
        self._create("clusterqueues", "ClusterQueue", base, spec)
        local = {"clusterQueue": self.name(base)}
        self._create("namespaces/default/localqueues", "LocalQueue", base, local)

    def quota(self, base: str, quota: dict[str, int]) -> None:
        body = {"spec": {"resourceGroups": self.groups(quota)}}
        self.rest.merge(f"{KUEUE}/clusterqueues/{self.name(base)}", body)

    def job(self, base: str, queue: str) -> None:
        obj = job(self.name(base), seconds=600)
        obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = self.name(queue)
        self.rest.create(JOBS, obj)

    def workload(self, base: str) -> Obj:
        for wl in self.rest.items(WORKLOADS):
            if wl["metadata"]["ownerReferences"][0]["name"] == self.name(base):
                return wl
        raise AssertionError(f"{base} has no workload")

    def reserved(self, base: str) -> Obj:
        def holds() -> Obj:
            wl = self.workload(base)
            return wl if is_true(wl, "QuotaReserved") and not is_true(wl, "Evicted") else {}

        return eventually(holds)

    def freed(self, base: str) -> Obj:
        def free() -> Obj:
            wl = self.workload(base)
            lost = condition(wl, "QuotaReserved").get("status") == "False"
            return wl if lost and "admission" not in wl["status"] else {}

        return eventually(free)

    def runs(self, base: str) -> bool:
        return not self.rest.get(f"{JOBS}/{self.name(base)}")["spec"]["suspend"]

    def says(self, base: str, check: str, state: str, **fields: Any) -> None:
        """A check answers."""

        def answered() -> bool:
            wl = self.workload(base)
            entries = wl["status"]["admissionChecks"]
            (entry,) = [one for one in entries if one["name"] == self.name(check)]
            entry.update(state=state, message="by hand", lastTransitionTime=_now(wl), **fields)
            name, version = wl["metadata"]["name"], wl["metadata"]["resourceVersion"]
            body = {
                "metadata": {"resourceVersion": version},
                "status": {"admissionChecks": entries},
            }
            self.rest.merge(f"{WORKLOADS}/{name}/status", body)
            return True

        eventually(answered)

    def states(self, base: str) -> dict[str, str]:
        found = self.workload(base)["status"].get("admissionChecks") or []
        return {entry["name"].removeprefix(f"{self._prefix}-"): entry["state"] for entry in found}


def _now(wl: Obj) -> str:
    """A time after the reservation, so that no delay is over already."""
    return str(condition(wl, "QuotaReserved")["lastTransitionTime"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with Processes(tmp_path_factory.mktemp("two-phase")) as processes:
        cluster = LocalCluster(processes)
        cluster.start()
        with Rest(cluster.kubeconfig) as rest:
            yield rest


@pytest.fixture
def world(shared: Rest) -> World:
    return World(shared)


def checked(world: World, count: int = 1) -> list[str]:
    """A queue of one CPU with that many checks."""
    names = [f"check-{number}" for number in range(count)]
    world.flavor("f")
    for name in names:
        world.check(name)
    world.queue("q", {"f": 1}, *names)
    return names


# ---- the transitions that the KEP lists


def test_1_quota_is_reserved_and_checks_are_pending(world: World) -> None:
    names = checked(world, 2)
    world.job("job", "q")
    world.reserved("job")
    assert world.states("job") == dict.fromkeys(names, "Pending")
    assert not world.runs("job")


def test_2_passed_checks_admit(world: World) -> None:
    names = checked(world, 2)
    world.job("job", "q")
    assert not is_true(world.reserved("job"), "Admitted")
    for name in names:
        assert not world.runs("job")
        world.says("job", name, "Ready")
    eventually(lambda: world.runs("job"))


def test_3_withdrawn_quota_takes_the_reservation(world: World) -> None:
    checked(world)
    world.job("job", "q")
    world.reserved("job")
    world.quota("q", {"f": 0})
    world.says("job", "check-0", "Ready")
    world.freed("job")
    assert not world.runs("job")


def test_4_another_flavor_takes_the_reservation(world: World) -> None:
    checked(world)
    world.flavor("g", pool="g")
    world.job("job", "q")
    world.reserved("job")
    world.quota("q", {"g": 1})

    def moved() -> bool:
        admission = world.workload("job")["status"].get("admission") or {}
        (assignment,) = admission.get("podSetAssignments") or [{"flavors": {}}]
        return assignment["flavors"] == {"cpu": world.name("g")}

    eventually(moved)
    assert world.states("job") == {"check-0": "Pending"}
    world.says("job", "check-0", "Ready")
    eventually(lambda: world.runs("job"))


@pytest.mark.parametrize("count", [1, 2])
def test_5_a_retry_takes_the_reservation_and_others_may_try(world: World, count: int) -> None:
    names = checked(world, count)
    world.job("job", "q")
    world.reserved("job")
    world.says("job", names[0], "Retry")
    world.freed("job")
    assert world.states("job")[names[0]] == "Retry"
    world.job("other", "q")
    world.reserved("other")
    assert not world.runs("job")


@pytest.mark.parametrize("count", [1, 2])
def test_6_one_rejection_deactivates(world: World, count: int) -> None:
    names = checked(world, count)
    world.job("job", "q")
    world.reserved("job")
    world.says("job", names[-1], "Rejected")
    assert world.freed("job")["spec"]["active"] is False
    assert not world.runs("job")


def test_7_no_checks_admit_at_once(world: World) -> None:
    checked(world, 0)
    world.job("job", "q")
    eventually(lambda: world.runs("job"))
    assert world.states("job") == {}


# ---- when preemption happens


@pytest.mark.parametrize("needed", [True, False], ids=["needed", "not-needed"])
@pytest.mark.parametrize("policy", [ANYTIME, AFTER])
@pytest.mark.parametrize("answer", ["Ready", "Retry", "Rejected"])
def test_victims_leave_when_the_policy_says_so(
    world: World, needed: bool, policy: str, answer: str
) -> None:
    world.flavor("f")
    world.check("check", preemptionPolicy=policy)
    cohort = {"cohortName": world.name("cohort")}
    world.queue("borrower", {"f": 0 if needed else 1}, **cohort)
    world.queue("owner", {"f": 1}, "check", preemption={"reclaimWithinCohort": "Any"}, **cohort)
    world.job("low", "borrower")
    eventually(lambda: world.runs("low"))
    world.job("high", "owner")
    world.reserved("high")
    early = needed and policy == ANYTIME
    if early:
        eventually(lambda: not world.runs("low"))
    else:
        assert world.runs("low")
    world.says("high", "check", answer)
    if answer == "Ready":
        eventually(lambda: world.runs("high"))
        assert world.runs("low") is not needed
    else:
        world.freed("high")
        assert not world.runs("high")
        eventually(lambda: world.runs("low"))  # never stopped, or back again
        stopped = bool(condition(world.workload("low"), "Evicted"))
        assert stopped is early


def test_a_check_may_ask_for_preemption_before_it_passes(world: World) -> None:
    world.flavor("f")
    world.check("check", preemptionPolicy=AFTER)
    cohort = {"cohortName": world.name("cohort")}
    world.queue("borrower", {"f": 0}, **cohort)
    world.queue("owner", {"f": 1}, "check", preemption={"reclaimWithinCohort": "Any"}, **cohort)
    world.job("low", "borrower")
    eventually(lambda: world.runs("low"))
    world.job("high", "owner")
    world.reserved("high")
    world.job("next", "owner")  # what fits together is reserved, nothing more
    eventually(lambda: condition(world.workload("next"), "QuotaReserved").get("status") == "False")
    world.says("high", "check", "Pending", reason="PreemptionRequired")
    eventually(lambda: not world.runs("low"))
    assert not world.runs("high")
    world.says("high", "check", "Ready")
    eventually(lambda: world.runs("high"))
    assert not is_true(world.workload("next"), "QuotaReserved")


def test_a_victim_that_ends_by_itself_is_not_evicted(world: World) -> None:
    world.flavor("f")
    world.check("check", preemptionPolicy=AFTER)
    cohort = {"cohortName": world.name("cohort")}
    world.queue("borrower", {"f": 0}, **cohort)
    world.queue("owner", {"f": 1}, "check", preemption={"reclaimWithinCohort": "Any"}, **cohort)
    world.job("low", "borrower")
    eventually(lambda: world.runs("low"))
    world.job("high", "owner")
    world.reserved("high")

    def ended() -> bool:
        for pod in world.rest.items("/api/v1/namespaces/default/pods"):
            if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == world.name("low"):
                body = {"metadata": {"annotations": {"kueuelib.dev/run-seconds": "0"}}}
                path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
                try:
                    world.rest.merge(path, body)
                except httpx.HTTPStatusError:
                    return False
        return is_true(world.workload("low"), "Finished")

    eventually(ended)
    world.says("high", "check", "Ready")
    eventually(lambda: world.runs("high"))
    assert condition(world.workload("low"), "Evicted") == {}
