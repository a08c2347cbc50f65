"""The simulated processes: the owner of the running code, its clock and its random numbers.

A context variable names the owner of the running code. Tasks, callbacks and timers inherit it with
their context, so that a whole process can be killed or paused, and has its own clock.
"""

from __future__ import annotations

import contextvars
import hashlib
import math
import random

from kueuelib.testing.storm.handles import Handle

EPOCH = 1_790_000_000.0
"""Seconds since the epoch at which every world begins, by a correct clock."""
UPTIME = 10_000.0
"""The time of monotonic clocks at that moment."""


class Owner:
    """One simulated process: its name, whether it runs, its clocks and its random numbers.

    A restarted process is another owner with the same name.

    Args:
        name: for example `manager-1`.
        life: the number of this start of the process, from 0.

    Attributes:
        alive: False once it was killed: nothing of it still runs.
        paused: whether its callbacks are held back.
        held: callbacks that wait for the end of the pause, in the order they became ready.
        woken_at: when its last pause ended, in seconds since the beginning of the world.
        rate: seconds of its clocks in one second of the world.
        offset: seconds by which its wall clock is ahead.
        chance: the source of its random numbers.
        world_anchor: an instant, in seconds since the beginning of the world ...
        own_anchor: ... and the time of its monotonic clock then.
    """

    def __init__(self, name: str, life: int = 0) -> None:
        self.name = name
        self.life = life
        self.alive = True
        self.paused = False
        self.held: list[Handle] = []
        self.woken_at = -math.inf
        self.rate = 1.0
        self.offset = 0.0
        self.chance = random.Random(0)
        self.world_anchor = 0.0
        self.own_anchor = UPTIME
        self.reseed(0)

    def __repr__(self) -> str:
        return f"{self.name}/{self.life}"

    def reseed(self, seed: int) -> None:
        """Begin a new sequence of random numbers, which also depends on the name and the life."""
        text = f"{seed}/{self.name}/{self.life}".encode()
        self.chance.seed(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big"))

    def monotonic(self, world: float) -> float:
        """The time of its monotonic clock, in seconds.

        Args:
            world: seconds since the beginning of the world.
        """
        return self.own_anchor + (world - self.world_anchor) * self.rate

    def wall(self, world: float) -> float:
        """The time of its wall clock, in seconds since the epoch."""
        return EPOCH - UPTIME + self.monotonic(world) + self.offset

    def instant(self, monotonic: float) -> float:
        """When its monotonic clock shows this, in seconds since the beginning of the world."""
        return self.world_anchor + (monotonic - self.own_anchor) / self.rate

    def skew(self, world: float, offset: float, rate: float) -> None:
        """Set the wall clock wrong by `offset` seconds, and let both clocks run at `rate`.

        Raises:
            ValueError: a clock would stand still or run backwards.
        """
        if rate <= 0:
            raise ValueError(f"a clock cannot run at {rate!r}: give a rate above 0")
        self.own_anchor, self.world_anchor = self.monotonic(world), world
        self.rate, self.offset = rate, offset


STORM = Owner("storm")
"""The owner of code outside all simulated processes: the test and the wire."""
OWNER: contextvars.ContextVar[Owner] = contextvars.ContextVar("storm_owner", default=STORM)
ACTOR: contextvars.ContextVar[str] = contextvars.ContextVar("storm_actor", default="")
"""Inside the server, the sender of the present request; empty for the server itself."""


def context_of(owner: Owner, actor: str = "") -> contextvars.Context:
    """An otherwise empty context for the code of a process."""
    context = contextvars.Context()
    context.run(OWNER.set, owner)
    if actor:
        context.run(ACTOR.set, actor)
    return context


def owner_of(handle: Handle) -> Owner:
    """The owner of a callback."""
    return handle.context.get(OWNER, STORM)
