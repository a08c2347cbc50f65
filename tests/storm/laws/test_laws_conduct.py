"""Every law about calls is silent about what is right, and speaks of what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from histories import JOBS, LEASES, WORKLOADS

from kueuelib.testing.storm.exchange import Call
from kueuelib.testing.storm.laws import LAWS, Conduct, Tolerance, Violation
from kueuelib.testing.storm.laws.conduct import MOST, WINDOW
from kueuelib.testing.storm.laws.law import CALL

LASTS = 30.0


class Wire:
    """Calls of one manager, and their answers."""

    def __init__(self, patience: float = 0.0) -> None:
        self.broken: list[Violation] = []
        self.now = 100.0
        self.conduct = Conduct(Tolerance(patience=patience), LASTS, self.now, self.broken.append)

    def call(
        self,
        verb: str,
        version: int = 0,
        resource: str = WORKLOADS,
        owner: str = "manager-1",
        **body: Any,
    ) -> Call:
        if version:
            body["metadata"] = {"resourceVersion": str(version)}
        raw = json.dumps(body).encode() if body else b""
        place = ("ns", "wl", "", 0, raw)
        found = Call(owner, "server", "", "", "", verb, resource, *place)
        self.conduct.sent(found, self.now)
        return found

    def answer(self, call: Call, status: int = 200, version: int = 0) -> None:
        body = {"metadata": {"resourceVersion": str(version)}} if version else {}
        self.conduct.answered(call, status, json.dumps(body).encode(), self.now)

    def claims(self, holder: str = "one") -> Call:
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


def test_what_names_no_version_may_be_sent_again() -> None:
    wire = Wire()
    for _ in range(2):
        wire.answer(wire.call("patch", status=1), 409)
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
    wire.call("patch", status=1)
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
def test_nobody_calls_again_and_again_in_no_time(pause: float, broken: set[str]) -> None:
    wire = Wire()
    for _ in range(MOST + 5):
        wire.call("get")
        wire.now += pause * 1.05
    assert wire.names == broken


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
        "calls-are-bounded",
    }
    assert {law.name for law in LAWS if law.when == CALL} == tried
