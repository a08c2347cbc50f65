"""What the manager predicts for a queue: its words, its limits, and that it always answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.app import expected_starts
from kueuelib.app.expected_starts import ExpectedStarts
from kueuelib.runtime.clock import SystemClock
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import DEFAULTS
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.workload.life import LifeSettings

NOW = 1_900_000_000.0
FIRST, SECOND = ObjectKey("ns", "first"), ObjectKey("ns", "second")


class Frozen(SystemClock):
    """It is always now."""

    def now(self) -> float:
        return NOW


def running(**spec: Any) -> Workload:
    conditions = [make_condition(name, at=NOW - 40) for name in ("QuotaReserved", "Admitted")]
    admission = {"clusterQueue": "cq", "podSetAssignments": [make_assignment({"cpu": 1}, "f")]}
    return make_workload(
        "r",
        "q",
        {"cpu": 1},
        created=NOW - 40,
        conditions=conditions,
        status={"admission": admission},
        **spec,
    )


def finished(number: int) -> Workload:
    types = {"QuotaReserved": 900, "Admitted": 900, "Finished": 800}
    conditions = [make_condition(name, at=NOW - ago) for name, ago in types.items()]
    created = NOW - 2 * 86400
    return make_workload(f"f{number}", "q", {"cpu": 1}, created=created, conditions=conditions)


@asynccontextmanager
async def predicting(*workloads: Workload) -> AsyncIterator[ExpectedStarts]:
    """Two that wait for one CPU, which others use."""
    waiting = [
        make_workload(key.name, "q", {"cpu": 1}, created=NOW - 3 * 86400 + number)
        for number, key in enumerate((FIRST, SECOND))
    ]
    world = World(
        cluster_queues={"cq": make_cluster_queue("cq", {"f": {"cpu": 1}})},
        local_queues={ObjectKey("ns", "q"): make_local_queue("q", "cq")},
        flavors={"f": make_flavor("f")},
        namespaces={"ns": {}},
        workloads={one.key: one for one in (*workloads, *waiting)},
    )
    starts = ExpectedStarts(world.engine(NOW), DEFAULTS, LifeSettings(), Frozen())
    for event in world.events():
        starts.observe(event)
    task = asyncio.create_task(starts.run(lambda: None))
    yield starts
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_first_question_already_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_starts, "BUDGET", 60.0)  # for all simulations, also under load
    monkeypatch.setattr(expected_starts, "PATIENCE", 60.0)
    async with predicting(running(), *map(finished, range(6))) as starts:
        predicted = await starts.of("cq")
        first, second = predicted.starts[FIRST], predicted.starts[SECOND]
        assert first.p90 == pytest.approx(NOW + 60, abs=10)
        assert second.p50 == pytest.approx(NOW + 160, abs=10)
        assert predicted.row(FIRST).keys() == {"p50", "p90"}
        assert "first 100 places" in predicted.row(ObjectKey("ns", "other"))["unknown"]
        assert await starts.of("cq") is predicted


async def test_an_unknown_end_is_the_reason_and_names_nobody() -> None:
    async with predicting(running()) as starts:
        row = (await starts.of("cq")).row(FIRST)
        assert row == {
            "unknown": "no end is known for 3 jobs: no time limit, and no similar job has finished"
        }


async def test_too_little_time_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_starts, "BUDGET", 0.0)
    async with predicting(running(), *map(finished, range(6))) as starts:
        starts._credit = 1.0
        row = (await starts.of("cq")).row(FIRST)
        assert row == {"unknown": "there was time for 0 simulations only, of 9 needed"}


async def test_a_failure_is_an_answer_and_the_next_queue_is_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("odd")

    async with predicting(running(), *map(finished, range(6))) as starts:
        with monkeypatch.context() as broken:
            broken.setattr(expected_starts, "forecasts", fail)
            row = (await starts.of("cq")).row(FIRST)
        assert row["unknown"].startswith("the prediction failed with ValueError")
        assert (await starts.of("absent")).starts == {}
