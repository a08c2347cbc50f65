"""Reports on a job, and on its Workload, that the API server did not accept its start."""

from __future__ import annotations

from typing import Final

from kueuelib.api.kinds import KUEUE
from kueuelib.api.names import REASON_FAILED_TO_START
from kueuelib.errors import ApiError, Conflict, NotFound, TooManyRequests
from kueuelib.jobs.contract.commands import WARNING, Change
from kueuelib.machinery.repetition import Recent
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.events import EventSink

START_REFUSED: Final = "The API server did not accept the start, which is tried again: "
"""How these Events begin; others of this reason say that the job can never start."""


def is_start(command: Change) -> bool:
    """Whether a change lets a job run: its Workload permits it."""
    return command.given is not None and command.resource.group != KUEUE


class FailedStarts:
    """Remembers what was reported.

    Args:
        recorder: reports events.
        component: who reports them.
        clock: time.
    """

    def __init__(self, recorder: EventSink, component: str, clock: Clock) -> None:
        self._recorder = recorder
        self._component = component
        self._clock = clock
        self._told = Recent()

    def failed(self, command: Change, error: ApiError) -> None:
        """Takes the failure of any change; reports it once a minute, or once its text changes.

        Args:
            command: the change.
            error: the answer; one that only says that the plan is stale is not reported.
        """
        if not is_start(command) or isinstance(error, Conflict | NotFound | TooManyRequests):
            return
        now, text = self._clock.monotonic(), f"{START_REFUSED}{error.message}"
        for obj in (command.old, command.given):
            if obj is not None and self._told.is_new(obj["metadata"]["uid"], text, now):
                self._recorder.event(
                    obj, WARNING, REASON_FAILED_TO_START, text, component=self._component
                )
