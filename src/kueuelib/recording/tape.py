"""An engine that records all its input and decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.recording.facts import fact_data, is_last, subject_of, workload_data
from kueuelib.recording.plans import plan_data, plan_hash, preemptions_data
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan
from kueuelib.scheduler.decide.preemption.history import History
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.events import Effects, Event
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.settings import DEFAULTS, Settings

Rename = Callable[[Obj], Obj]
"""Replaces the names in a line."""


class Tape:
    """Lines of JSON, without line ends, kept until they are taken.

    Args:
        rename: replaces the names in every line before it is written.

    Attributes:
        hash: of all plans so far.
        number: how many lines there were so far.
    """

    def __init__(self, rename: Rename = lambda line: line) -> None:
        self.hash = ""
        self.number = 0
        self._rename = rename
        self._open = True
        self._lines: list[bytes] = []
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when the first line is ready; it must be quick and not raise."""
        self._wake = wake

    def write(self, line: Obj) -> None:
        """Adds a line."""
        self._add(self._rename(line))

    def plan(self, line: Obj) -> None:
        """Adds a line with a plan, and the hash of it and all plans before."""
        line = self._rename(line)
        self.hash = plan_hash(self.hash, line["plan"])
        self._add({**line, "hash": self.hash})

    def _add(self, line: Obj) -> None:
        if not self._open:
            return
        self.number += 1
        self._lines.append(orjson.dumps(line))
        if len(self._lines) == 1:
            self._wake()

    def close(self) -> None:
        """Drops all lines, present and future."""
        self._open = False
        self._lines.clear()

    def take(self) -> list[bytes]:
        """Takes all lines."""
        lines, self._lines = self._lines, []
        return lines


class RecordedEngine(Engine):
    """The decision engine, with a tape of everything that changes it.

    `advance` is not on the tape, because the next line has the same effect.

    Args:
        settings: the administrator's choices.
        tape: records.
        history: past preemptions; by default those that it sees.
    """

    def __init__(
        self,
        settings: Settings = DEFAULTS,
        tape: Tape | None = None,
        history: History | None = None,
    ) -> None:
        super().__init__(settings, history)
        self.tape = tape or Tape()
        self._latest: dict[tuple[str, ObjectKey], Event] = {}
        self._assumed: dict[ObjectKey, events.Assumed] = {}

    def observe(self, event: Event, now: float) -> Effects:
        """Takes in one fact, and records it."""
        if isinstance(event, events.WorkloadSet):
            before = self.workload(event.workload.key)
            if holds_quota(event.workload):
                self._assumed.pop(event.workload.key, None)
            of: Any = workload_data(event.workload, before, self.tape.number)
        else:
            of = fact_data(event)
        self.tape.write({"at": now, "fact": type(event).__name__, "of": of})
        self._remember(event)
        return super().observe(event, now)

    def _remember(self, event: Event) -> None:
        subject = subject_of(event)
        if subject is None:
            return
        if is_last(event):
            self._latest.pop(subject, None)
        else:
            self._latest[subject] = event

    def latest(self) -> tuple[Event, ...]:
        """The facts about all present objects, for a recording that begins here."""
        held = {key: self.cache.holder(key) for key in self._assumed}
        self._assumed = {
            key: event
            for key, event in self._assumed.items()
            if (holder := held[key]) is not None and holder.assumed
        }
        return (*self._latest.values(), *self._assumed.values())

    def next_cycle(self, now: float) -> CycleInput | None:
        """The heads that are worth a try; their number is recorded."""
        cycle = super().next_cycle(now)
        self.tape.write({"at": now, "heads": None if cycle is None else len(cycle.heads)})
        return cycle

    def settle(self, plan: Plan, now: float) -> Settled:
        """Carries out a plan, and records it."""
        self.tape.plan({"at": now, "plan": plan_data(plan)})
        settled = super().settle(plan, now)
        for admit in settled.admissions:
            self._assumed[admit.key] = events.Assumed(admit.key, admit.admission)
        return settled

    def make_room(self, key: ObjectKey) -> Settled:
        """Marks the victims of a reservation, and records it."""
        settled = super().make_room(key)
        plan = preemptions_data(settled.preemptions)
        self.tape.plan({"at": self._now, "room": list(key), "plan": plan})
        return settled
