"""Every law about calls is silent about what is right, and speaks of what is wrong."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from histories import (
    ADMITTED,
    JOBS,
    LEASES,
    PODS,
    WORKLOADS,
    conditions,
    job,
    leaving,
    owner,
    with_status,
    workload,
)

from kueuelib.testing.storm.exchange import ObservedRequest
from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws import Conduct, Tolerance, Violation
from kueuelib.testing.storm.laws.conduct import CONDUCT, MOST, WINDOW

LASTS = 30.0
IN_USE = "kueue.x-k8s.io/resource-in-use"


class Wire:
    """Calls of one manager, and their answers."""

    def __init__(self, patience: float = 0.0) -> None:
        self.broken: list[Violation] = []
        self.now = 100.0
        self.minds: dict[str, Mind] = {}
        allowed = Tolerance(patience=patience)
        self.conduct = Conduct(allowed, LASTS, self.now, self.broken.append, self.minds.get)

    def call(
        self,
        verb: str,
        version: int = 0,
        resource: str = WORKLOADS,
        owner: str = "manager-1",
        subresource: str = "",
        **body: Any,
    ) -> ObservedRequest:
        if version:
            body["metadata"] = {"resourceVersion": str(version)}
        raw = json.dumps(body).encode() if body else b""
        return self.send(verb, resource, "wl", subresource, raw, owner)

    def send(
        self,
        verb: str,
        resource: str,
        name: str,
        subresource: str,
        body: bytes,
        owner: str = "manager-1",
    ) -> ObservedRequest:
        place = ("ns", name, subresource, 0, body)
        found = ObservedRequest(owner, "server", "", "", "", verb, resource, *place)
        self.conduct.sent(found, self.now)
        return found

    def store(self, resource: str, obj: Obj, version: int, actor: str = "server") -> None:
        obj["metadata"]["resourceVersion"] = str(version)
        place = (resource, "ns", obj["metadata"]["name"])
        self.conduct.committed(Commit(self.now, version, actor, *place, None, obj))

    def answer(self, call: ObservedRequest, status: int = 200, version: int = 0) -> None:
        body = {"metadata": {"resourceVersion": str(version)}} if version else {}
        self.conduct.answered(call, status, json.dumps(body).encode(), self.now)

    def claims(self, holder: str = "one") -> ObservedRequest:
        return self.call("update", resource=LEASES, spec={"holderIdentity": holder})

    @property
    def names(self) -> set[str]:
        return {violation.law for violation in self.broken}


def test_a_leader_that_reads_and_writes_breaks_nothing() -> None:
    wire = Wire()
    wire.answer(wire.claims())
    wire.answer(wire.call("patch", 1, status=1), 409)
    wire.answer(wire.call("get"), version=3)
    wire.now += 1
    wire.answer(wire.call("patch", 3, status=1), version=4)
    wire.now += 1
    wire.answer(wire.call("patch", 4, status=2), version=5)
    assert wire.broken == []


def test_what_a_conflict_refused_is_read_before_it_is_sent_again() -> None:
    wire = Wire()
    for _ in range(2):
        wire.answer(wire.call("patch", 1, status=1), 409)
    assert wire.names == {"conflicts-are-read-again"}


def test_a_write_from_the_present_version_changes_something() -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 6, status=1), version=7)
    wire.answer(wire.call("patch", subresource="status", status={}), version=7)
    assert wire.broken == []
    wire.answer(wire.call("patch", 7, status=1), version=7)
    assert wire.names == {"writes-change-something"}


@pytest.mark.parametrize("status", [400, 403, 415, 422])
def test_a_write_is_not_refused_whatever_the_state(status: int) -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=1), 404)
    wire.answer(wire.call("get"), status)
    wire.answer(wire.send("patch", WORKLOADS, "wl", "", b"[]"), 422)
    gone = json.dumps({"message": "metadata.uid: field is immutable"}).encode()
    wire.conduct.answered(wire.call("patch", 1, status=1), 422, gone, wire.now)
    assert wire.broken == []
    wire.answer(wire.call("patch", 1, status=1), status)
    assert wire.names == {"requests-are-valid"}


def test_what_names_no_version_may_be_sent_again() -> None:
    wire = Wire()
    for _ in range(2):
        wire.answer(wire.call("patch", subresource="status", status={}), 409)
    assert wire.broken == []


def test_a_write_is_made_from_what_the_last_answer_said() -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.now += 1
    wire.call("patch", 1, status=2)
    assert wire.names == {"own-answers-are-remembered"}


def test_a_write_that_waited_for_a_connection_may_be_old() -> None:
    wire = Wire(patience=5.0)
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.now += 4
    wire.call("patch", 1, status=2)
    assert wire.broken == []


def test_a_write_that_is_repeated_because_the_server_is_busy_may_be_old() -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=2), 429)
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.now += 4
    wire.call("patch", 1, status=2)
    assert wire.broken == []


def test_a_process_that_was_held_knows_an_answer_only_when_it_goes_on() -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.now += 50
    wire.conduct.woken("manager-1", wire.now)
    wire.answer(wire.claims())
    wire.call("patch", 1, status=2)
    assert wire.broken == []


def test_a_new_process_knows_nothing_and_leads_nobody() -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.conduct.reborn("manager-1")
    wire.call("patch", 1, status=2)
    assert wire.names == {"writes-within-the-lease"}


@pytest.mark.parametrize(
    ("seconds", "broken"), [(LASTS - 1, set()), (LASTS + 1, {"writes-within-the-lease"})]
)
def test_a_leader_writes_only_while_its_lease_lasts(seconds: float, broken: set[str]) -> None:
    wire = Wire()
    claim = wire.claims()
    wire.now += 2
    wire.answer(claim)
    wire.answer(wire.claims(), 503)
    wire.now += seconds - 2
    wire.call("patch", 1, status=1)
    assert wire.names == broken


def test_nothing_is_written_after_the_lease_was_given_up_until_it_is_taken_again() -> None:
    wire = Wire()
    wire.claims("")
    wire.call("patch", resource=JOBS)
    assert wire.names == {"no-write-after-release"}
    wire.broken.clear()
    wire.answer(wire.claims())
    wire.call("patch", resource=JOBS)
    assert wire.broken == []


@pytest.mark.parametrize(
    ("pause", "broken"), [(0.001, {"calls-are-bounded"}), (WINDOW / MOST, set())]
)
@pytest.mark.parametrize(("verb", "name"), [("get", "wl"), ("list", "")])
def test_nobody_calls_again_and_again_in_no_time(
    verb: str, name: str, pause: float, broken: set[str]
) -> None:
    wire = Wire()
    for _ in range(MOST + 5):
        wire.send(verb, WORKLOADS, name, "", b"")
        wire.now += pause * 1.05
    assert wire.names == broken


RELEASE = json.dumps({"status": {"conditions": conditions(QuotaReserved=False)}}).encode()
EVICTION = json.dumps({"status": {"conditions": conditions(QuotaReserved=True)}}).encode()
FREEING = json.dumps([{"op": "test", "path": "/metadata/finalizers/0", "value": IN_USE}]).encode()
LETTING_GO = ("nothing-is-let-go-while-it-runs",)


def started(wire: Wire, told: int = 3) -> None:
    """A Job runs for a Workload; the manager was told of some version of it."""
    wire.store(JOBS, job(), 1)
    wire.store(WORKLOADS, workload(owner(job()), **ADMITTED), 2)
    wire.store(JOBS, job(suspend=False), 3)
    wire.answer(wire.send("get", JOBS, "one", "", b""), version=told)
    wire.now += 5


def test_quota_stays_in_the_first_moment_when_it_is_taken_after_the_start_was_told() -> None:
    wire = Wire(patience=60.0)
    started(wire)
    wire.store(WORKLOADS, workload(owner(job()), **ADMITTED, Evicted=True), 4)
    made = {"metadata": {"resourceVersion": "2"}, **json.loads(RELEASE)}
    wire.send("apply", WORKLOADS, "wl", "status", json.dumps(made).encode())
    assert wire.broken == []
    made["metadata"]["resourceVersion"] = "4"
    wire.send("apply", WORKLOADS, "wl", "status", json.dumps(made).encode())
    assert wire.names == {*LETTING_GO}


def let_go(wire: Wire) -> set[str]:
    wire.send("apply", WORKLOADS, "wl", "status", RELEASE)
    wire.send("patch", WORKLOADS, "wl", "", FREEING)
    return {each.law for each in wire.broken} - {"changes-are-conditional"}


@pytest.mark.parametrize(
    ("verb", "subresource", "body"), [("apply", "status", RELEASE), ("patch", "", FREEING)]
)
def test_quota_and_finalizer_stay_while_the_job_is_known_to_run(
    verb: str, subresource: str, body: bytes
) -> None:
    wire = Wire(patience=4.0)
    started(wire)
    wire.send(verb, WORKLOADS, "wl", subresource, body)
    assert "nothing-is-let-go-while-it-runs" in wire.names


def test_quota_stays_while_the_pods_of_a_stopped_job_run() -> None:
    wire = Wire()
    started(wire)
    wire.store(JOBS, with_status(job(suspend=True, kind="Job"), active=1), 4)
    assert let_go(wire) == {*LETTING_GO}


@pytest.mark.parametrize(
    "after",
    [
        job(),
        with_status(job(suspend=True, kind="Job"), terminating=1),
        leaving(job(suspend=False), "keep"),
        with_status(job(suspend=False), conditions=conditions(Failed=True)),
    ],
)
def test_quota_goes_when_the_job_has_stopped_or_ended(after: Obj) -> None:
    wire = Wire()
    started(wire)
    wire.store(JOBS, after, 4)
    assert let_go(wire) == set()


def test_quota_may_go_when_nobody_knows_that_the_job_runs() -> None:
    wire = Wire()
    started(wire, told=1)
    assert let_go(wire) == set()
    wire = Wire(patience=6.0)
    started(wire)
    assert let_go(wire) == set()
    wire = Wire()
    started(wire)
    wire.conduct.reborn("manager-1")
    wire.answer(wire.claims())
    assert let_go(wire) == set()


def test_an_eviction_lets_nothing_go() -> None:
    wire = Wire()
    started(wire)
    wire.send("apply", WORKLOADS, "wl", "status", EVICTION)
    assert {*LETTING_GO}.isdisjoint(wire.names)


@pytest.mark.parametrize(
    ("resource", "subresource", "body"),
    [
        (JOBS, "", {"spec": {}}),
        (PODS, "", {"spec": {}}),
        (WORKLOADS, "", {"spec": {}}),
        (WORKLOADS, "status", {"status": {"conditions": conditions(Admitted=True)}}),
    ],
)
def test_a_change_names_the_version_that_it_was_made_from(
    resource: str, subresource: str, body: Obj
) -> None:
    wire = Wire()
    wire.call("patch", 1, resource=resource, subresource=subresource, **body)
    assert wire.broken == []
    wire.call("patch", resource=resource, subresource=subresource, **body)
    assert wire.names == {"changes-are-conditional"}


def test_what_nobody_else_writes_names_no_version() -> None:
    wire = Wire()
    body = {"status": {"conditions": conditions(Finished=True)}}
    wire.call("patch", subresource="status", **body)
    wire.call("patch", resource=JOBS, subresource="status", status={"startTime": None})
    wire.send("patch", PODS, "one", "", FREEING)
    assert wire.broken == []


def test_nobody_creates_the_same_again_and_again_in_no_time() -> None:
    wire = Wire()
    for number in range(MOST + 5):
        body = json.dumps({"metadata": {"name": f"one-{number}"}}).encode()
        wire.send("create", WORKLOADS, "", "", body)
    assert wire.broken == []
    for _ in range(MOST + 5):
        wire.send("create", WORKLOADS, "", "", b'{"metadata": {"name": "one"}}')
    assert wire.names == {"calls-are-bounded"}


@pytest.mark.parametrize(("version", "broken"), [(6, {"begins-with-the-present"}), (7, set())])
def test_a_new_process_begins_with_what_was_written_before(version: int, broken: set[str]) -> None:
    wire = Wire()
    wire.answer(wire.call("patch", 1, status=1), version=7)
    wire.answer(wire.call("list"), version=version)
    assert wire.broken == [], "it began before that write"
    wire.conduct.reborn("manager-1")
    wire.answer(wire.call("list"), version=version)
    assert wire.names == broken


@pytest.mark.parametrize(("version", "broken"), [(6, {"takes-over-with-the-present"}), (7, set())])
def test_a_new_leader_reads_what_the_last_one_wrote(version: int, broken: set[str]) -> None:
    wire = Wire()
    listed = wire.call("list", owner="manager-2")
    wire.answer(listed, version=5)
    wire.store(WORKLOADS, workload(**ADMITTED), 7, "manager-1")
    wire.call("patch", 5, owner="manager-2", status=1)
    assert wire.broken == [], "nobody led before the first one"
    lease_of = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": "two"}}
    wire.store(LEASES, lease_of, 8, "manager-2")
    wire.answer(listed, version=version)
    wire.call("patch", 5, owner="manager-2", status=1)
    assert wire.names == broken


class Mind:
    """Charges what it was told to."""

    def __init__(self, *charged: str) -> None:
        self.charged = set(charged)

    def charges(self, namespace: str, name: str, uid: str) -> bool:
        assert (namespace, name) == ("ns", "wl")
        return uid in self.charged


RESERVED = workload(**ADMITTED)


def reserves(wire: Wire) -> None:
    """A manager reserves quota, which is stored."""
    uid, states = RESERVED["metadata"]["uid"], conditions(QuotaReserved=True)
    made = {"metadata": {"uid": uid, "resourceVersion": "1"}, "status": {"conditions": states}}
    wire.send("apply", WORKLOADS, "wl", "status", json.dumps(made).encode())
    wire.store(WORKLOADS, copy.deepcopy(RESERVED), 2, "manager-1")


def test_what_is_reserved_is_charged_until_it_is_given_back() -> None:
    wire = Wire()
    wire.minds["manager-1"] = mind = Mind(RESERVED["metadata"]["uid"])
    reserves(wire)
    wire.store(JOBS, job(), 3, "manager-1")
    assert wire.broken == []
    mind.charged.clear()
    wire.store(JOBS, job(), 4, "user")
    assert wire.broken == [], "nobody looks while the manager does nothing"
    wire.store(JOBS, job(), 5, "manager-1")
    assert wire.names == {"reservations-are-charged"}
    wire.store(JOBS, job(), 6, "manager-1")
    assert len(wire.broken) == 1


def test_what_is_reserved_is_charged_at_once() -> None:
    wire = Wire()
    wire.minds["manager-1"] = Mind("another")
    reserves(wire)
    assert wire.names == {"reservations-are-charged"}


def test_what_was_given_back_or_asked_for_in_another_life_is_not_charged() -> None:
    wire = Wire()
    wire.minds["manager-1"] = mind = Mind(RESERVED["metadata"]["uid"])
    reserves(wire)
    wire.store(WORKLOADS, workload(), 3, "user")
    mind.charged.clear()
    wire.store(JOBS, job(), 4, "manager-1")
    wire.minds["manager-1"] = Mind(RESERVED["metadata"]["uid"])
    reserves(wire)
    wire.minds["manager-1"] = Mind()
    wire.store(JOBS, job(), 5, "manager-1")
    del wire.minds["manager-1"]
    reserves(wire)
    assert wire.broken == []


def test_users_may_do_what_they_like() -> None:
    wire = Wire()
    for _ in range(MOST + 5):
        wire.answer(wire.call("patch", 1, owner="user", status=1), 409)
    assert wire.broken == []


def test_every_law_about_calls_is_tried_here() -> None:
    tried = {
        "no-write-after-release",
        "writes-within-the-lease",
        "own-answers-are-remembered",
        "conflicts-are-read-again",
        "writes-change-something",
        "requests-are-valid",
        "calls-are-bounded",
        "nothing-is-let-go-while-it-runs",
        "changes-are-conditional",
        "begins-with-the-present",
        "takes-over-with-the-present",
        "reservations-are-charged",
    }
    assert {law.name for law in CONDUCT} == tried
