"""The order in which heads are decided."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.scheduler.decide.cycle import in_turn
from kueuelib.scheduler.decide.nomination import Entry, nominate
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.scenarios import facts

FAIR = Settings(fair_sharing=FairSharingRules())


def heads(settings: Settings, **scenario: Any) -> tuple[Snapshot, list[Entry]]:
    """The nominated heads of a scenario, and the state that they see."""
    engine = Engine(settings)
    engine.observe_all(facts(scenario), 0)
    found = engine.next_cycle(1)
    assert found is not None
    snapshot = Snapshot(found.frozen)
    entries = [nominate(snapshot, head, settings, Judge()) for head in found.heads]
    return snapshot, [entry for entry in entries if isinstance(entry, Entry)]


def waits(name: str, queue: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cq": queue, "req": {"cpu": 1}, **more}


def names(entries: Any) -> list[str]:
    return [entry.head.info.key.name for entry in entries]


QUEUE = {"cohort": "c", "groups": [{"f": {"cpu": 0}}]}
CQS = {"a": QUEUE, "b": QUEUE, "z": {"cohort": "c", "groups": [{"f": {"cpu": 9}}]}}
BORROWER = [{"name": "r", "cq": "a", "req": {"cpu": 4}, "flv": "f"}]


@pytest.mark.parametrize(("settings", "order"), [(Settings(), ["p", "q"]), (FAIR, ["q", "p"])])
def test_shares_decide_only_with_fair_sharing(settings: Settings, order: list[str]) -> None:
    pending = [waits("p", "a", prio=1), waits("q", "b")]
    snapshot, entries = heads(settings, cqs=CQS, admitted=BORROWER, pending=pending)
    assert names(in_turn(entries, snapshot, settings)) == order


def test_who_insists_comes_first_whatever_its_share() -> None:
    """Otherwise those that take its room back could do so for ever."""
    pending = [waits("p", "a"), waits("q", "b")]
    snapshot, entries = heads(FAIR, cqs=CQS, admitted=BORROWER, pending=pending)
    insisting = [
        Entry(
            entry.head,
            entry.queue,
            entry.proposal,
            (-1, *entry.order[1:]),
        )
        if entry.head.cluster_queue == "a"
        else entry
        for entry in entries
    ]
    assert names(in_turn(insisting, snapshot, FAIR)) == ["p", "q"]


def test_heads_of_different_trees_come_by_priority_and_age() -> None:
    alone = {"groups": [{"f": {"cpu": 9}}]}
    cqs = {**CQS, "x": {**alone, "cohort": "d"}, "y": alone}
    pending = [
        waits("p", "a", prio=2, created=3),
        waits("q", "x", prio=2, created=2),
        waits("s", "y", prio=3, created=4),
    ]
    snapshot, entries = heads(FAIR, cqs=cqs, admitted=BORROWER, pending=pending)
    assert names(in_turn(entries, snapshot, FAIR)) == ["s", "q", "p"]


def test_what_was_decided_counts_for_those_who_come_next() -> None:
    """`p` and `s` come through one cohort, so what `p` gets lets `q` go before `s`."""
    cqs = {
        "a": {**QUEUE, "cohort": "left"},
        "b": {**QUEUE, "cohort": "right"},
        "d": {**QUEUE, "cohort": "left"},
    }
    cohorts = [
        {"name": "top", "groups": [{"f": {"cpu": 9}}]},
        {"name": "left", "parent": "top"},
        {"name": "right", "parent": "top"},
    ]
    pending = [waits("p", "a", created=1), waits("q", "b", created=3), waits("s", "d", created=2)]
    snapshot, entries = heads(FAIR, cqs=cqs, cohorts=cohorts, pending=pending)
    order = []
    for entry in in_turn(entries, snapshot, FAIR):
        order += names([entry])
        snapshot.add(entry.queue, entry.proposal.usage)
    assert order == ["p", "q", "s"]
    snapshot, entries = heads(FAIR, cqs=cqs, cohorts=cohorts, pending=pending)
    assert names(in_turn(entries, snapshot, FAIR)) == ["p", "s", "q"]
