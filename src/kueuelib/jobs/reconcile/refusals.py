"""Reports on a job which writes the API server refuses; a refused start also on its Workload."""

from __future__ import annotations

from typing import Final

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, key_of
from kueuelib.api.names import REASON_FAILED_TO_START
from kueuelib.errors import ApiError
from kueuelib.jobs.contract.commands import (
    WARNING,
    Change,
    Command,
    Create,
    Delete,
    DropFinalizer,
    PatchStatus,
)
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.machinery.recurrence import Recent
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.failures import is_refusal

START_REFUSED: Final = "The API server did not accept the start, which is tried again: "
"""How these Events begin; others of this reason say that the job can never start."""
REFUSED: Final = "Refused"
WORKLOAD: Final = "The workload"
"""The subject of messages about a Workload that is not created, or whose spec is not changed."""
STATUS: Final = "The status of "
"""How the subject of messages about a status begins."""


class Refusals:
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
        self._reported = Recent()

    def report(self, command: Command, error: ApiError, about: Obj | None) -> None:
        """Reports the failure of a write once a minute, or once its text changes.

        Args:
            command: the write.
            error: the answer; one that only says that the plan is stale is not reported.
            about: the job that it is for; without it, only starts are reported, and, on the object
                itself, that it cannot be released.
        """
        if not is_refusal(error):
            return
        concerned: tuple[Obj | None, ...] = (about,)
        match command:
            case Change(given=given) if given is not None and command.resource.group != KUEUE:
                concerned = (command.old, given)
                reason, text = REASON_FAILED_TO_START, START_REFUSED
            case Create(resource) | Change(resource) if resource.group == KUEUE:
                verb = "created" if isinstance(command, Create) else "changed"
                reason, text = COMPOSE_ERROR, f"{WORKLOAD} could not be {verb}: "
            case Create(_, obj) | Change(_, obj) | PatchStatus(_, obj) | Delete(_, obj):
                reason, text = REFUSED, _subject(command, obj)
            case DropFinalizer(_, obj):
                concerned = (about or obj,)
                reason, text = REFUSED, _subject(command, obj)
            case _:
                return
        now, text = self._clock.monotonic(), f"{text}{error.message}"
        for one in filter(None, concerned):
            if self._reported.is_new((one["metadata"]["uid"], reason), text, now):
                self._recorder.event(one, WARNING, reason, text, component=self._component)


def _subject(command: Create | Change | PatchStatus | Delete | DropFinalizer, obj: Obj) -> str:
    verbs = {Create: "created", Delete: "deleted"}
    status = isinstance(command, PatchStatus) or getattr(command, "subresource", "") == "status"
    what = f"{STATUS if status else ''}{command.resource.kind} {key_of(obj)}"
    return f"{what} could not be {verbs.get(type(command), 'changed')}: "
