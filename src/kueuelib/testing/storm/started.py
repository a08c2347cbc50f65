"""One start of a manager: its process is restarted until it is killed, as by a kubelet."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import attrs

from kueuelib.errors import StopTimeout
from kueuelib.runtime.manager import STOP_DEADLINE
from kueuelib.testing.storm.owners import Owner
from kueuelib.testing.storm.program import Process
from kueuelib.testing.storm.settings import RESPAWN_SECONDS
from kueuelib.testing.storm.wire import Wire

READY = 120.0
"""Seconds within which a process has to be ready."""


class Surroundings(Protocol):
    """The part of a `World` that a process needs; see there."""

    wire: Wire
    endings: list[str]

    @property
    def now(self) -> float:
        """Seconds since the beginning of the world."""

    def tell(self, line: str) -> None:
        """Write a line into the trace."""


@attrs.define(eq=False)
class Started:
    """One start of a manager.

    Attributes:
        world: its world.
        owner: its name, clocks and chance.
        process: the program's process.
        task: the running task.
    """

    world: Surroundings
    owner: Owner
    process: Process
    task: asyncio.Task[Any] | None = None

    async def live(self) -> None:
        """Run the process, and restart it when it ends by itself, like a kubelet."""
        world, name = self.world, self.owner.name
        while not self.process.stopped:
            if world.wire.witness is not None:
                world.wire.witness.reborn(name)
            try:
                await self.process.run()
                why = "stopped"
            except Exception as error:  # noqa: BLE001 - a program that ends is reported
                why = f"{type(error).__name__}: {error}"
                if not (isinstance(error, StopTimeout) and self._overslept()):
                    world.endings.append(f"{name}: {why}")
            world.tell(f"{name} ended: {why}")
            await asyncio.sleep(RESPAWN_SECONDS)

    async def until_ready(self, limit: float) -> None:
        """Wait until all parts that may run are ready.

        Raises:
            TimeoutError: they are not in time.
        """
        end = self.world.now + limit
        while not self.process.ready:
            if self.world.now > end:
                why = "".join(f"; {text}" for text in self.world.endings[-1:])
                raise TimeoutError(f"{self.owner.name} is not ready after {limit:g} s{why}")
            await asyncio.sleep(0.05)

    def _overslept(self) -> bool:
        """Whether a stopping process may have missed its deadline because it was paused."""
        return self.world.now - self.owner.woken_at <= STOP_DEADLINE
