"""Waits until a job leaves its queue, for programs whose timeouts should begin then.

Most of kueuelib is imported with the first job, because Airflow imports its DAGs again and again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kueuelib
from kueuelib import sync

if TYPE_CHECKING:
    from kueuelib import Progress


def waits(progress: Progress) -> bool:
    """Whether a job is in its queue, or on its way back to it."""
    return progress.state is kueuelib.State.QUEUED or (
        progress.state is kueuelib.State.EVICTED and progress.comes_back
    )


class Reasons:
    """Passes on why a job waits, once for each reason and place.

    Args:
        say: receives a line of text.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said: object = None

    def __call__(self, progress: Progress) -> None:
        """Takes the next state."""
        news = (progress.state, progress.why, progress.place)
        if news != self._said:
            self._said = news
            self._say(progress.text)


async def leave_queue(job: Any, say: Callable[[str], object], **how: Any) -> Progress:
    """Waits until a job leaves its queue, and returns its state then.

    Start the timeouts of your program only now.

    Args:
        job: as for `kueuelib.watch`.
        say: receives a line of text for each reason to wait, and for the end of it.
        how: further arguments of `kueuelib.watch`.

    Raises:
        JobGone: it was deleted, or a manager evicted it for good.
    """
    report = Reasons(say)
    async with contextlib.aclosing(kueuelib.watch(job, **how)) as states:
        async for progress in states:
            report(progress)
            if not waits(progress):
                return progress
    raise kueuelib.JobGone("the watch ended while the job waited")


def leave_queue_blocking(job: Any, say: Callable[[str], object], **how: Any) -> Progress:
    """`leave_queue` without `await`; further arguments are those of `kueuelib.sync.watch`."""
    report = Reasons(say)
    with contextlib.closing(sync.watch(job, **how)) as states:
        for progress in states:
            report(progress)
            if not waits(progress):
                return progress
    raise kueuelib.JobGone("the watch ended while the job waited")
