"""One process, several lives: after a lost lease a program starts over as a candidate."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio
import attrs

from kueuelib.errors import LeadershipLost
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import Manager, Signals


@attrs.define
class Life:
    """What a signal has to end: the running manager, or a start that waits for something.

    Attributes:
        manager: the running one; None during the start.
        start: cancelled by a signal while there is no manager.
        stopped: whether a signal came.
    """

    manager: Manager | None = None
    start: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    stopped: bool = False

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
        once: one life: connects, sets `Life.manager` while the manager runs, and closes its
            clients. It is given the seconds to wait for the API server.
        patience: these seconds at the start; later there is no limit.
    """
    life = Life()
    with Signals(life.stop):
        await live_until(life, once, patience)


async def live_until(
    life: Life, once: Callable[[Life, float], Awaitable[None]], patience: float
) -> None:
    """As `live`, without signal handlers: for callers that use `Life.stop`.

    Args:
        life: ends it.
        once: one life.
        patience: seconds to wait for the API server at the start.
    """
    while not life.stopped:
        with anyio.CancelScope() as life.start:
            try:
                await once(life, patience)
            except LeadershipLost as error:
                # All parts were stopped, so this is as good as a new process: be a candidate
                # again, however long the server stays away.
                get_logger("app").warning("starting over as a candidate", why=str(error))
                patience = math.inf
                continue
        return
