"""Submits jobs after the end of another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from functools import partial

from kueuelib.api.meta import ObjectKey
from kueuelib.simulator.agenda import Agenda
from kueuelib.simulator.work import Job


class Following:
    """Holds jobs back until the job that they follow has ended.

    Args:
        agenda: for later submissions.
        live: the jobs that have arrived and not ended.
        arrive: submits a job.

    Attributes:
        awaited: the jobs that others follow.
        orphans: how many jobs should follow a job that never came.
    """

    def __init__(
        self, agenda: Agenda, live: Container[ObjectKey], arrive: Callable[[Job], None]
    ) -> None:
        self._agenda = agenda
        self._live = live
        self._arrive = arrive
        self._followers: dict[ObjectKey, list[Job]] = {}
        self._ended: dict[ObjectKey, float] = {}
        self.awaited: Collection[ObjectKey] = frozenset()
        self.orphans = 0

    def submit(self, job: Job) -> None:
        """Takes a job of the trace."""
        key = ObjectKey(job.namespace, job.name)
        before = ObjectKey(job.namespace, job.after)
        if not job.after:
            self._arrive(job)
        elif before in self._ended:
            self._follow(job, self._ended[before])
        elif before in self._live or before in self._followers:
            self._followers.setdefault(before, []).append(job)
            self._followers.setdefault(key, [])
        else:
            self.orphans += 1
            self._arrive(job)

    def _follow(self, job: Job, ended: float) -> None:
        at = ended + job.think_seconds
        if at <= self._agenda.now:
            self._arrive(job)
        else:
            self._followers.setdefault(ObjectKey(job.namespace, job.name), [])
            self._agenda.plan(at, partial(self._arrive, job))

    def over(self, key: ObjectKey) -> None:
        """A job has ended: submit those that follow it."""
        now = self._agenda.now
        if key in self.awaited:
            self._ended[key] = now
        for job in self._followers.pop(key, ()):
            self._follow(job, now)
