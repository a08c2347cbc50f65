"""Laws of the history of a simulation: intervals are equal, and nothing is lost in them."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.figures import AmountOverTime
from kueuelib.simulator.history import FEWEST, ClusterHistory, Historian
from kueuelib.simulator.meter import QueueLevels

PAIR = FlavorResource("f", "gpu")
changes = st.lists(
    st.tuples(
        st.floats(0, 100) | st.sampled_from([0.0, 1.0, 1e4, 1e7, 1e11]),
        st.integers(-3, 5),
    ),
    max_size=30,
)


def written(
    found: list[tuple[float, int]], span: float
) -> tuple[ClusterHistory, list[tuple[float, int]]]:
    """A history of an amount, and the times at which it changed to what."""
    level, now = AmountOverTime(nominal=4, since=10.0), 10.0
    queue = QueueLevels("", {PAIR: level}, AmountOverTime(since=10.0), AmountOverTime(since=10.0))
    meter: Any = SimpleNamespace(queues={"q": queue}, shared={})
    historian = Historian(meter, span)
    historian.arrived(SimpleNamespace(), now)  # type: ignore[arg-type]
    truth = [(now, 0)]
    for pause, by in found:
        if pause:
            historian.rested(now, now + pause)
            now += pause
        level.change(max(by, -level.amount), now)
        truth.append((now, level.amount))
    historian.rested(now, math.inf)
    return historian.history(), truth


@given(changes, st.sampled_from([0.0, 1.0, 300.0, 1e6]))
def test_every_interval_has_the_mean_of_what_was_in_it(
    found: list[tuple[float, int]], span: float
) -> None:
    history, truth = written(found, span)
    borders = history.borders
    assert (borders[0], borders[-1]) == (10.0, truth[-1][0])
    use = history.queues["q"].use.get(PAIR)
    assert use is not None or len(borders) == 1
    for at, (low, high) in enumerate(pairwise(borders)):
        ends = [*truth[1:], (math.inf, 0)]
        parts = [
            (amount, max(0.0, min(after, high) - max(since, low)))
            for (since, amount), (after, _) in zip(truth, ends, strict=True)
        ]
        assert use is not None
        area = sum(amount * width for amount, width in parts)
        beyond = sum(max(0, amount - 4) * width for amount, width in parts)
        slack = 1e-9 * high / (high - low) * 150  # floats lose digits far from the start
        assert use.used[at] == pytest.approx(area / (high - low), rel=1e-6, abs=1e-6 + slack)
        assert use.borrowed[at] == pytest.approx(beyond / (high - low), rel=1e-6, abs=1e-6 + slack)
        assert use.nominal[at] == pytest.approx(4, abs=1e-6 + slack)


@given(changes, st.sampled_from([0.0, 1.0, 300.0, 1e6]))
def test_intervals_are_equal_and_few(found: list[tuple[float, int]], span: float) -> None:
    borders = written(found, span)[0].borders
    widths = [high - low for low, high in pairwise(borders)]
    assert len(widths) <= 2 * FEWEST
    assert all(width == pytest.approx(widths[0]) for width in widths[:-1])
    assert all(width > 0 for width in widths)
    if widths:
        assert widths[-1] <= widths[0] * (1 + 1e-9)
