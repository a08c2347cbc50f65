"""Two managers without leader election on one cluster notice each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.foreign_reservations import (
    MESSAGE,
    PERIOD,
    RESERVED_BY_ANOTHER,
    ForeignReservations,
)
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from .conftest import World

COUNT = "kueuelib_foreign_reservations_total"
KEY = ObjectKey("ns", "wl")


def workload(*, reserved: bool) -> Obj:
    conditions = [{"type": "QuotaReserved", "status": "True"}] if reserved else []
    admission = {"admission": {"clusterQueue": "cq"}} if reserved else {}
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {},
        "status": {"conditions": conditions, **admission},
    }


class Seen:
    """What was reported, and when."""

    def __init__(self, *, holds: bool = False, decides: bool = True) -> None:
        self.telemetry, self.events, self.now = Telemetry(), [], 5.0
        self.strangers = ForeignReservations(
            self.telemetry,
            self,  # type: ignore[arg-type]
            lambda key: holds,
            decides=lambda: decides,
            monotonic=lambda: self.now,
        )

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.events.append((obj["metadata"]["name"], type, reason, message))

    def see(self, old: Obj | None, new: Obj | None) -> float:
        self.strangers.seen(Delta(DeltaKind.UPDATED, KEY, old, new))
        return self.telemetry.registry.get_sample_value(COUNT) or 0.0


def test_a_reservation_that_the_engine_does_not_know_is_reported_once_a_minute() -> None:
    seen = Seen()
    change = workload(reserved=False), workload(reserved=True)
    assert [seen.see(*change), seen.see(*change)] == [1, 2]
    assert seen.events == [("wl", "Warning", RESERVED_BY_ANOTHER, MESSAGE)]
    seen.now += PERIOD
    seen.see(*change)
    assert len(seen.events) == 2


@pytest.mark.parametrize(
    ("seen", "old", "new"),
    [
        (Seen(holds=True), False, True),
        (Seen(decides=False), False, True),
        (Seen(), True, True),
        (Seen(), False, False),
        (Seen(), True, False),
        (Seen(), None, True),
        (Seen(), False, None),
    ],
)
def test_nothing_else_is(seen: Seen, old: bool | None, new: bool | None) -> None:
    found = [None if each is None else workload(reserved=each) for each in (old, new)]
    assert seen.see(*found) == 0
    assert seen.events == []


async def test_two_managers_that_decide_at_once_notice_it(world: World, tmp_path: Path) -> None:
    other = type(world)(world.client, world.server)
    await world.queues(cpu="20")

    def counted() -> float:
        return sum(
            each.telemetry.registry.get_sample_value(COUNT) or 0.0 for each in (world, other)
        )

    async with world.running():
        await world.workload("alone")
        await world.is_("alone", "Admitted")
        assert counted() == 0
        async with other.running():
            for number in range(5):
                await world.workload(f"wl{number}")
                await world.is_(f"wl{number}", "Admitted")
            await world.until(counted, "nobody noticed")
            reasons = [
                reason
                for number in range(5)
                for reason, _ in await world.events(f"wl{number}")
                if reason == RESERVED_BY_ANOTHER
            ]
            assert reasons
