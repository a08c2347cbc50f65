"""Callbacks and timers of a simulated event loop, without debug checks: there are millions."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any


class Handle:
    """A callback; what asyncio asks of its own `Handle`.

    Args:
        callback: what is called.
        args: with these.
        context: in this; None: in a copy of the present one.

    Attributes:
        dead: whether it was cancelled.
    """

    __slots__ = ("args", "callback", "context", "dead")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.context = contextvars.copy_context() if context is None else context
        self.callback = callback
        self.args = args
        self.dead = False

    def cancel(self) -> None:
        """It will not be called, and holds nothing."""
        self.dead = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.dead

    def get_context(self) -> contextvars.Context:
        """The context in which it is called."""
        return self.context

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call it; the loop's handler hears of what it raises."""
        try:
            self.context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as every loop does
            message = f"Exception in callback {self.callback!r}"
            loop.call_exception_handler({"message": message, "exception": error, "handle": self})

    def is_step(self) -> bool:
        """Whether it is a step of a task.

        Only tasks may overtake: asyncio guarantees that plain callbacks, for example those of a
        transport to its protocol, run in the order they were registered.
        """
        return isinstance(getattr(self.callback, "__self__", None), asyncio.Task)


class Timer(Handle):
    """A callback at an instant.

    Args:
        instant: the clock of the owner then.
        cancelled: called when it is cancelled before it was taken.
    """

    __slots__ = ("_cancelled", "_instant")

    def __init__(
        self,
        instant: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        cancelled: Callable[[], None],
    ) -> None:
        super().__init__(callback, args, context)
        self._instant = instant
        self._cancelled: Callable[[], None] | None = cancelled

    def when(self) -> float:
        """The clock of the owner when it is called."""
        return self._instant

    def cancel(self) -> None:
        """It will not be called, and holds nothing."""
        if not self.dead and self._cancelled is not None:
            self._cancelled()
        super().cancel()

    def taken(self) -> None:
        """It waits no longer."""
        self._cancelled = None


def _nothing() -> None:
    """What a cancelled callback is."""
