"""One process, several lives: after a lost lease a program starts over as a candidate."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable

import anyio
import attrs

from kueuelib.errors import ApiError, ConfigError, LeadershipLost, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import Manager, Signals


@attrs.define
class Life:
    """What a signal has to end: the running manager, or a start that waits for something.

    Attributes:
        manager: the running one; None during the start.
        start: cancelled by a signal while there is no manager.
        stopped: whether a signal came.
        has_run: whether the manager of this life has begun to run.
    """

    manager: Manager | None = None
    start: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    stopped: bool = False
    has_run: bool = False

    async def run(self, manager: Manager) -> None:
        """Run the manager; the start is over."""
        self.manager, self.has_run = manager, True
        try:
            await manager.run()
        finally:
            self.manager = None

    def stop(self) -> None:
        """End this life, and start no other one."""
        self.stopped = True
        if self.manager is None:
            self.start.cancel()
        else:
            self.manager.stop()


async def live(once: Callable[[Life, float], Awaitable[None]], patience: float) -> None:
    """Runs a program until SIGTERM or SIGINT, again after each lost lease.

    Use one identity for all lives (see `ElectionOptions`): then the next one takes the lease of the
    lost one at once, unless another process has it.

    Args:
        once: one life: connects, runs the manager by `Life.run`, and closes its clients. It is
            given the seconds to wait for the API server.
        patience: these seconds at the start; later there is no limit.
    """
    life = Life()
    with Signals(life.stop):
        await live_until(life, once, patience)


async def live_until(
    life: Life, once: Callable[[Life, float], Awaitable[None]], patience: float
) -> None:
    """As `live`, without signal handlers: for callers that use `Life.stop`.

    A server that has just been restarted refuses requests at first, for example because it does not
    know its roles yet. So once the program has run, a start that fails is tried again.

    Args:
        life: ends it.
        once: one life.
        patience: seconds to wait for the API server at the start.
    """
    pauses = Backoff(base=0.5, cap=10.0, jitter=0.2)
    while not life.stopped:
        life.has_run = False
        with anyio.CancelScope() as life.start:
            try:
                await once(life, patience)
            except LeadershipLost as error:
                # All parts were stopped, so this is as good as a new process: be a candidate
                # again, however long the server stays away.
                get_logger("app").warning("starting over as a candidate", why=str(error))
                patience = math.inf
                continue
            except (ApiError, TransportError, ConfigError) as error:
                if life.has_run or patience < math.inf:
                    raise
                pause = pauses.next(anyio.current_time(), random.random())
                get_logger("app").warning(
                    "cannot start again yet", why=str(error), again_in=f"{pause:.1f} s"
                )
                await anyio.sleep(pause)
                continue
        return
