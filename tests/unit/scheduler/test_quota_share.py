"""Shares of borrowed quota."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.cache import share_of_cohort, share_of_queue
from kueuelib.testing.scenarios import facts


def engine(
    queues: dict[str, Any], cohorts: list[dict[str, Any]], *running: tuple[str, dict[str, int]]
) -> Engine:
    """What runs is given by ClusterQueue and requests, all of it in flavor `f`."""
    found = Engine()
    admitted = [
        {"name": f"r{index}", "cq": queue, "req": req, "flv": "f"}
        for index, (queue, req) in enumerate(running)
    ]
    found.observe_all(facts({"cqs": queues, "cohorts": cohorts, "admitted": admitted}), 0)
    return found


def queue(weight: Any = None, cohort: str = "c", **quota: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"groups": [{"f": quota}], "cohort": cohort}
    if weight is not None:
        found["fairSharing"] = {"weight": weight}
    return found


def of_queue(found: Engine, name: str) -> float:
    return share_of_queue(found.cache, name)


def of_cohort(found: Engine, name: str) -> float:
    return share_of_cohort(found.cache, name)


@pytest.mark.parametrize(
    ("weight", "share"), [(None, 200), (2, 100), ("500m", 400), ("0.333", 200 / 0.333), (0, inf)]
)
def test_share_is_what_is_borrowed_of_all_quota_by_weight(weight: Any, share: float) -> None:
    queues = {"a": queue(weight, cpu=3), "b": queue(cpu=7)}
    assert of_queue(engine(queues, [], ("a", {"cpu": 5})), "a") == share


def test_who_borrows_nothing_has_no_share_whatever_its_weight() -> None:
    found = engine({"a": queue(0, cpu=3), "b": queue(cpu=7)}, [], ("a", {"cpu": 3}))
    assert of_queue(found, "a") == 0


def test_the_dominant_resource_decides() -> None:
    queues = {"a": queue(cpu=1, memory=2), "b": queue(cpu=9, memory=2)}
    found = engine(queues, [], ("a", {"cpu": 2, "memory": 3}))
    assert of_queue(found, "a") == 250


def test_queue_without_a_cohort_and_unknown_names_have_no_share() -> None:
    found = engine({"a": queue(cohort="", cpu=1)}, [], ("a", {"cpu": 5}))
    assert of_queue(found, "a") == of_queue(found, "b") == of_cohort(found, "c") == 0


def test_cohort_has_the_share_of_what_its_subtree_borrows_and_a_root_has_none() -> None:
    cohorts = [
        {"name": "left", "parent": "top", "fairSharing": {"weight": 2}},
        {"name": "right", "parent": "top", "groups": [{"f": {"cpu": 8}}]},
    ]
    queues = {"a": queue(cohort="left", cpu=1), "b": queue(cohort="left", cpu=1)}
    found = engine(queues, cohorts, ("a", {"cpu": 4}))
    assert of_cohort(found, "left") == 100
    assert of_cohort(found, "right") == of_cohort(found, "top") == 0
    assert of_queue(found, "a") == 300


def test_subtree_without_quota_borrows_all_that_it_uses() -> None:
    cohorts = [{"name": "left", "parent": "top"}, {"name": "top", "groups": [{"f": {"cpu": 10}}]}]
    queues = {"a": queue(cohort="left", cpu=0)}
    assert of_cohort(engine(queues, cohorts, ("a", {"cpu": 4})), "left") == 400


def test_what_a_subtree_does_not_list_does_not_count() -> None:
    cohorts = [{"name": "left", "parent": "top"}, {"name": "top", "groups": [{"f": {"cpu": 10}}]}]
    queues = {"a": queue(cohort="left", memory=0), "b": queue(cohort="top", cpu=0)}
    found = engine(queues, cohorts, ("a", {"cpu": 4}))
    assert of_queue(found, "a") == of_cohort(found, "left") == 0


def test_borrowing_what_nobody_can_lend_is_no_share() -> None:
    """Kueue decides so, even for a weight of 0."""
    found = engine({"a": queue(0, cpu=0), "b": queue(cpu=0)}, [], ("a", {"cpu": 4}))
    assert of_queue(found, "a") == 0


def test_what_a_child_keeps_for_itself_is_not_lendable() -> None:
    queues = {"a": queue(cpu=2), "b": queue(cpu="8/-/2")}
    assert of_queue(engine(queues, [], ("a", {"cpu": 4})), "a") == 500


def test_what_a_cohort_keeps_for_itself_is_lendable_below_it_and_what_it_lends_counts_once() -> (
    None
):
    cohorts = [
        {"name": "left", "parent": "top", "groups": [{"f": {"cpu": "4/-/1"}}]},
        {"name": "top", "groups": [{"f": {"cpu": 6}}]},
    ]
    found = engine({"a": queue(cohort="left", cpu=0)}, cohorts, ("a", {"cpu": 2}))
    assert of_queue(found, "a") == 2000 / (3 + 7)
