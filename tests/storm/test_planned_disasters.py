"""Disasters are drawn from the weather and performed to their end."""

from __future__ import annotations

import asyncio

import pytest

from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.profiles import PROFILES, Disaster, disasters, perform, weather


class Stage:
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.dead: set[str] = set()

    def kill(self, name: str) -> None:
        self.notes.append(f"kill {name}")
        self.dead.add(name)

    def pause(self, name: str) -> None:
        self.notes.append(f"pause {name}")

    def resume(self, name: str) -> None:
        self.notes.append(f"resume {name}")

    def skew(self, name: str, offset: float, rate: float) -> None:
        self.notes.append(f"skew {name} {offset:g} {rate:g}")

    def alive(self, name: str) -> bool:
        return name not in self.dead

    async def start_manager(self, name: str) -> None:
        self.notes.append(f"start {name}")
        self.dead.discard(name)

    def hold_jobs(self, *, held: bool) -> None:
        self.notes.append(f"jobs are held: {held}")

    def hold_garbage(self, *, held: bool) -> None:
        self.notes.append(f"garbage is held: {held}")

    def delay_jobs(self, seconds: float) -> None:
        self.notes.append(f"jobs lag by {seconds:g}")

    async def next_write(self, name: str, limit: float) -> None:
        self.notes.append(f"write of {name} within {limit:g}")

    async def restart_server(self, *, history: bool) -> None:
        self.notes.append(f"restart {history}")

    async def sleep(self, seconds: float) -> None:
        self.notes.append(f"sleep {seconds:g}")
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("kind", "notes"),
    [
        ("kill", ["kill manager-1", "sleep 3", "start manager-1"]),
        ("pause", ["pause manager-1", "sleep 3", "resume manager-1"]),
        ("skew", ["skew manager-1 2 1.05"]),
        ("server-restart", ["restart True"]),
        ("server-amnesia", ["restart False"]),
        ("jobs-held", ["jobs are held: True", "sleep 3", "jobs are held: False"]),
        ("garbage-late", ["garbage is held: True", "sleep 3", "garbage is held: False"]),
        ("jobs-late", ["jobs lag by 4", "sleep 3", "jobs lag by 0"]),
    ],
)
async def test_each_disaster_happens(kind: str, notes: list[str]) -> None:
    stage = Stage()
    disaster = Disaster(
        1.0, "label", kind, "manager-1", seconds=3.0, lag=4.0, offset=2.0, rate=1.05
    )
    await perform(disaster, stage)
    assert stage.notes == notes


async def test_a_pause_may_wait_for_a_write() -> None:
    stage = Stage()
    disaster = Disaster(1.0, "label", "pause", "manager-1", seconds=3.0, after_write=True)
    await perform(disaster, stage)
    assert stage.notes[:2] == ["write of manager-1 within 20", "pause manager-1"]


async def test_an_unknown_disaster_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown kind 'flood'"):
        await perform(Disaster(1.0, "label", "flood", "server"), Stage())


async def test_a_manager_that_somebody_else_started_is_not_started_twice() -> None:
    class Busy(Stage):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            self.dead.clear()

    stage = Busy()
    await perform(Disaster(1.0, "label", "kill", "manager-1", seconds=3.0), stage)
    assert stage.notes == ["kill manager-1", "sleep 3"]


def test_disasters_come_in_order_within_the_storm_and_strike_what_exists() -> None:
    kinds = set()
    for seed in range(60):
        draws = Draws(seed)
        drawn = weather(draws.stream("weather"), PROFILES["swarm"])
        found = disasters(draws.stream("disasters"), drawn)
        assert [one.at for one in found] == sorted(one.at for one in found)
        for one in found:
            assert 0 <= one.at <= drawn.seconds
            assert one.kind in drawn.rates
            assert one.target in {"server", *(f"manager-{n + 1}" for n in range(drawn.managers))}
        kinds |= {one.kind for one in found}
        assert len({one.label for one in found}) == len(found)
    assert kinds == {
        *("kill", "stop", "pause", "skew"),
        *("server-restart", "server-amnesia", "jobs-held", "jobs-late"),
    }


def test_the_garbage_collector_is_late_only_where_moments_matter() -> None:
    drawn = weather(Draws(1).stream("weather"), PROFILES["moments"])
    late = [one for one in disasters(Draws(1), drawn) if one.kind == "garbage-late"]
    assert late
    assert all(one.target == "server" and one.seconds >= 2.0 for one in late)
    assert "garbage-late" not in PROFILES["swarm"].kinds


def test_calm_weather_has_no_disasters() -> None:
    for seed in range(20):
        drawn = weather(Draws(seed).stream("weather"), PROFILES["calm"])
        assert disasters(Draws(seed).stream("disasters"), drawn) == ()
