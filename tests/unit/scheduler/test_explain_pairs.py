"""What `explain` finds where one change is not enough."""

from __future__ import annotations

import itertools

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.asking import ObjectAnswer
from kueuelib.cli.explain.command import answer_data
from kueuelib.cli.explain.text import show
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.pairs import PAIRS
from kueuelib.scheduler.explain.trial import SearchBudget, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

NOW = 1000.0
KEY = ObjectKey("ns", "job")
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
RED = {"matchLabels": {"team": "red"}}


def world(cpu: object = 4, taint: bool = False, **queue: object) -> World:
    taints = (TAINT,) if taint else ()
    found = World().with_namespace("ns", {}).with_flavor(make_flavor("f", {}, taints))
    found = found.with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": cpu}}, **queue))
    found = found.with_local_queue(make_local_queue("lq", "cq"))
    return found.with_workload(make_workload("job", "lq", {"cpu": "4500m"}))


def ask(found: World, steps: int = 100_000) -> Explanation:
    return explain(found, KEY, NOW, pairs=lambda: SearchBudget(steps))


def texts(found: Explanation) -> list[tuple[str, ...]]:
    return [tuple(change.text for change in pair.changes) for pair in found.pairs]


QUOTA = "raise nominalQuota of flavor f: cpu by 500m (to 4500m)"


@pytest.mark.parametrize(
    ("found", "smallest"),
    [
        (world(selector=RED), ("label namespace ns with team=red", QUOTA)),
        (
            world(taint=True),
            ("let its pods tolerate the taint spot=yes:NoSchedule of flavor f", QUOTA),
        ),
        (
            world(5, stopPolicy="Hold").with_local_queue(
                make_local_queue("lq", "cq", stopPolicy="Hold")
            ),
            (
                "set spec.stopPolicy: None instead of Hold",
                "set spec.stopPolicy: None instead of Hold",
            ),
        ),
        (
            world()
            .with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 4}}, {"g": {"memory": 0}}))
            .with_flavor(make_flavor("g"))
            .with_workload(make_workload("job", "lq", {"cpu": "4500m", "memory": 1})),
            (QUOTA, "raise nominalQuota of flavor g: memory by 1 (to 1)"),
        ),
    ],
)
def test_two_changes_are_found_where_neither_is_enough(
    found: World, smallest: tuple[str, ...]
) -> None:
    answer = ask(found)
    assert answer.changes == ()
    assert texts(answer)[0] == smallest
    assert PAIRS in answer.tried
    for pair in answer.pairs:
        first, second = pair.changes
        assert outcome(second.apply(first.apply(found)), KEY, NOW) == pair.outcome
        assert pair.outcome.admits
        for one in pair.changes:
            assert not outcome(one.apply(found), KEY, NOW).helps


def test_the_second_change_may_be_about_the_queue_that_the_first_one_leads_to() -> None:
    found = world(0, taint=True, selector=RED)
    found = found.with_cluster_queue(make_cluster_queue("other", {"g": {"cpu": 4}}))
    found = found.with_local_queue(make_local_queue("other", "other"))
    found = found.with_flavor(make_flavor("g"))
    label = "with the label kueue.x-k8s.io/queue-name"
    move = f"submit it to LocalQueue other (ClusterQueue other) {label}"
    raised = "raise nominalQuota of flavor g: cpu by 500m (to 4500m)"
    assert {move, raised} in [set(pair) for pair in texts(ask(found))]


def test_the_second_change_is_as_weak_as_the_first_one_allows() -> None:
    found = world(5, selector=RED, preemption={"withinClusterQueue": "LowerPriority"})
    for name, cpu, priority in (("low", "4500m", 5), ("high", "500m", 10)):
        assigned = [make_assignment({"cpu": cpu}, "f")]
        status = {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}}
        held = [make_condition("QuotaReserved")]
        found = found.with_workload(
            make_workload(
                name, "lq", {"cpu": cpu}, priority=priority, status=status, conditions=held
            )
        )
    higher = "priority 6 or higher, instead of 0"
    assert ("label namespace ns with team=red", higher) in texts(ask(found))


def test_no_pair_is_sought_if_one_change_is_enough_or_nobody_asks() -> None:
    assert ask(world()).changes
    assert (ask(world()).pairs, PAIRS in ask(world()).tried) == ((), False)
    silent = explain(world(selector=RED), KEY, NOW)
    assert (silent.changes, silent.pairs, PAIRS in silent.tried) == ((), (), False)


def test_the_search_ends_with_its_steps_and_says_so() -> None:
    answer = ask(world(selector=RED), 3)
    assert answer.pairs == ()
    assert PAIRS not in answer.tried
    assert answer.limits == (
        "not all pairs of changes were tried in the time for them; --thorough takes longer",
    )


def test_the_search_ends_with_its_time() -> None:
    seconds = itertools.count()
    answer = explain(
        world(selector=RED),
        KEY,
        NOW,
        pairs=lambda: SearchBudget(seconds=5, clock=lambda: float(next(seconds))),
    )
    assert answer.limits
    assert next(seconds) < 20


def test_two_changes_are_said_together(capsys: pytest.CaptureFixture[str]) -> None:
    found = world(selector=RED, checks=("check",)).with_check(make_check("check", active=True))
    answer = ask(found)
    show([ObjectAnswer("Job job", True, answer)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = lines.index(
        "No single change was found that would admit it now, but these two together would "
        "reserve quota; check check then decides:"
    )
    assert lines[at + 1 : at + 3] == [
        "Namespace ns: label namespace ns with team=red",
        f"ClusterQueue cq: {QUOTA}",
    ]
    assert not any("Tried" in line and PAIRS in line for line in lines)
    (pair, *_) = answer_data(ObjectAnswer("Job job", True, answer))["pairs"]
    assert pair["checks"] == ["check"]
    assert pair["preempts"] == []
    assert [one["kind"] for one in pair["changes"]] == ["namespace", "quota"]


def test_that_no_two_help_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = world(0, taint=True, selector=RED)
    show([ObjectAnswer("Job job", True, ask(found))])
    says = "No single change was found that would admit it now, and no two."
    assert says in capsys.readouterr().out
