"""A plan composes the Workload of a group at most once, because that looks at every pod."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.jobs.pods import compose


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of members, for each time."""
    counts: list[int] = []
    counted = compose._counted

    def counting(members: Any, *others: Any) -> compose.Composition:
        counts.append(len(members))
        return counted(members, *others)

    monkeypatch.setattr(compose, "_counted", counting)
    return counts


def test_a_group_is_composed_once_per_plan(pods: Any, composed: list[int]) -> None:
    members = [pods.waiting(f"pod-{number}", group="group", total=3) for number in range(3)]
    pods.plan(*members[:2])
    assert composed == [2]
    workload = pods.composed(*members)
    assert composed == [2, 3]
    assert pods.plan(*members, workload=workload) == ()
    assert composed == [2, 3, 3]
    pods.plan(*members, workload=pods.admitted(workload))
    assert composed == [2, 3, 3], "a group with quota stays as it is"
