"""Disasters as data: processes that die, pause or have wrong clocks, servers that restart."""

from __future__ import annotations

from typing import Protocol

import attrs

from .draws import Draws
from .profiles import Weather

__all__ = ["Disaster", "Stage", "disasters", "perform"]

RESTART_AFTER = (0.0, 30.0)
"""Seconds between the death of a manager and its restart."""
PATIENCE = 20.0
"""Seconds for which a disaster waits for a write."""
STANDSTILL = (2.0, 60.0)
"""Seconds for which the Job controller is paused, or lags."""
LAG = (2.0, 30.0)
"""Seconds between the moment when the Job controller reads a Job, and its writes."""


_OF_SERVER = ("server-restart", "server-amnesia", "jobs-held", "jobs-late")
_DRAWN = ("kill", "stop", "pause", "skew", *_OF_SERVER)


@attrs.frozen
class Disaster:
    """One scheduled disaster.

    Attributes:
        at: Seconds after the start of the storm.
        label: Names it for suppression.
        kind: The kind of fault.
        target: The process that it strikes.
        seconds: How long it lasts; 0 for instantaneous ones.
        lag: For how many seconds the Job controller acts on what it has read.
        offset: The error of a clock in seconds.
        rate: The rate of a clock.
        after_write: Whether it waits for the next write of the process.
    """

    at: float
    label: str
    kind: str
    target: str
    seconds: float = 0.0
    lag: float = 0.0
    offset: float = 0.0
    rate: float = 1.0
    after_write: bool = False


class Stage(Protocol):
    """The part of the world that disasters act on."""

    def kill(self, name: str) -> None:
        """End a process at once."""
        ...

    async def stop_manager(self, name: str) -> bool:
        """End a process with grace."""
        ...

    def pause(self, name: str) -> None:
        """Hold a process."""
        ...

    def resume(self, name: str) -> None:
        """Let a process continue."""
        ...

    def skew(self, name: str, offset: float, rate: float) -> None:
        """Set the clock of a process."""
        ...

    def alive(self, name: str) -> bool:
        """Return whether a process runs."""
        ...

    async def start_manager(self, name: str) -> None:
        """Start a manager."""
        ...

    async def restart_server(self, *, history: bool) -> None:
        """Restart the API server."""
        ...

    def hold_jobs(self, *, held: bool) -> None:
        """Pause or resume the Job controller."""
        ...

    def delay_jobs(self, seconds: float) -> None:
        """Let the Job controller write that long after it has read."""
        ...

    async def next_write(self, name: str, limit: float) -> None:
        """Wait until a process writes an object, or for a number of seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        ...


def disasters(draws: Draws, weather: Weather) -> tuple[Disaster, ...]:
    """Draw the disasters of one seed, in the order of time."""
    drawn = []
    profile = weather.profile
    for kind in _DRAWN:
        if kind not in weather.rates:
            continue
        for number in range(draws.integer(f"{kind}/count", *profile.disasters)):
            label = f"disaster/{kind}/{number}"
            manager = f"manager-{draws.integer(f'{label}/target', 1, weather.managers)}"
            disaster = Disaster(
                at=draws.uniform(f"{label}/at", 0.0, weather.seconds),
                label=label,
                kind=kind,
                target="server" if kind in _OF_SERVER else manager,
            )
            if kind in ("kill", "stop"):
                seconds = draws.uniform(f"{label}/seconds", *RESTART_AFTER)
                disaster = attrs.evolve(disaster, seconds=seconds)
            elif kind == "pause":
                disaster = attrs.evolve(
                    disaster,
                    seconds=draws.scaled(f"{label}/seconds", *profile.pauses),
                    after_write=draws.chance(f"{label}/after-write", 0.7),
                )
            elif kind in ("jobs-held", "jobs-late"):
                seconds = draws.uniform(f"{label}/seconds", *STANDSTILL)
                lag = draws.scaled(f"{label}/lag", *LAG) if kind == "jobs-late" else 0.0
                disaster = attrs.evolve(disaster, seconds=seconds, lag=lag)
            elif kind == "skew":
                disaster = attrs.evolve(
                    disaster,
                    offset=draws.uniform(f"{label}/offset", -profile.skew, profile.skew),
                    rate=1 + draws.uniform(f"{label}/rate", -profile.rate, profile.rate),
                )
            drawn.append(disaster)
    return tuple(sorted(drawn, key=lambda disaster: (disaster.at, disaster.label)))


async def perform(disaster: Disaster, stage: Stage) -> None:
    """Perform one disaster to its end."""
    match disaster.kind:
        case "kill":
            stage.kill(disaster.target)
            await stage.sleep(disaster.seconds)
            if not stage.alive(disaster.target):
                await stage.start_manager(disaster.target)
        case "stop":
            if stage.alive(disaster.target):
                await stage.stop_manager(disaster.target)
            await stage.sleep(disaster.seconds)
            if not stage.alive(disaster.target):
                await stage.start_manager(disaster.target)
        case "pause":
            if disaster.after_write:  # before its answer comes: what follows it waits
                await stage.next_write(disaster.target, PATIENCE)
            stage.pause(disaster.target)
            await stage.sleep(disaster.seconds)
            stage.resume(disaster.target)
        case "skew":
            stage.skew(disaster.target, disaster.offset, disaster.rate)
        case "server-restart":
            await stage.restart_server(history=True)
        case "server-amnesia":
            await stage.restart_server(history=False)
        case "jobs-held":
            stage.hold_jobs(held=True)
            await stage.sleep(disaster.seconds)
            stage.hold_jobs(held=False)
        case "jobs-late":
            stage.delay_jobs(disaster.lag)
            await stage.sleep(disaster.seconds)
            stage.delay_jobs(0.0)
        case kind:
            raise ValueError(f"disaster {disaster.label}: unknown kind {kind!r}")
