"""Runs a recording again: the engine receives the same facts, and must decide the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import InvalidObject, InvalidSelector
from kueuelib.recording.facts import BadFact, fact_of, plan_data, plan_hash, preemptions_data
from kueuelib.recording.reader import Begin, FactLine, Line, LinePosition, Looked, PlanLine
from kueuelib.scheduler.decide.cycle import CycleInput, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.events import Event

_MOST_WARM_UP = 100_000
"""Cycles after which an engine that begins in the middle counts as warm."""


@attrs.frozen
class Difference:
    """The first decision that differs from the recorded one.

    Attributes:
        where: the line of the recording.
        at: when it was decided, in seconds since the epoch.
        cycle: the number of the cycle, from 1.
        recorded: the recorded plan.
        replayed: the plan of this engine; None if it saw nothing to decide, or another number of
            heads.
        why: the difference, in words.
    """

    where: LinePosition
    at: float
    cycle: int
    recorded: Obj
    replayed: Obj
    why: str


class Rerun:
    """Replays the lines of a recording, one after the other.

    Args:
        make: an engine with the settings of a manager's configuration.

    Attributes:
        engine: the engine; None before the first line.
        facts: how many facts it received.
        cycles: how many cycles it decided.
        lives: how many engines there were.
        hash: of all plans of the present engine.
        fresh: whether the last line began another engine.
        event: the last fact that the engine received.
        in_the_middle: the first line of a part whose earlier parts are missing, if any; other
            knowledge of the engine is then lost.
        at: the time of the last line.
    """

    def __init__(self, make: Callable[[Begin], Engine]) -> None:
        self._make = make
        self.engine: Engine | None = None
        self.facts = self.cycles = self.lives = 0
        self.hash = ""
        self.in_the_middle: LinePosition | None = None
        self.at = 0.0
        self.fresh = False
        self.event: Event | None = None
        self._begin: Begin | None = None
        self._knows = self._cold = False
        self._cycle: CycleInput | None = None

    def take(self, line: Line) -> Difference | None:
        """Takes the next line.

        Returns:
            The difference from the recording, if any; no more lines may be taken then.

        Raises:
            ConfigError: the line cannot be read, or does not follow from those before.
        """
        self.at, self.event = line.at, None
        if isinstance(line, Begin):
            self._begins(line)
            return None
        if self.engine is None:
            raise line.where.wrong("", "stands before the first line of a part")
        if self._cold and not (isinstance(line, FactLine) and line.again):
            self._warm_up(self.engine, line.at)
        match line:
            case FactLine():
                if not (line.again and self._knows):
                    self._observe(line, self.engine)
            case Looked():
                return self._look(line, self.engine)
            case PlanLine(room=None):
                return self._decide(line, self.engine)
            case PlanLine():
                return self._make_room(line, self.engine)
        return None

    def _begins(self, begin: Begin) -> None:
        before, self._begin = self._begin, begin
        self._knows = (
            before is not None and before.life == begin.life and before.part + 1 == begin.part
        )
        self.fresh = not self._knows
        if self._knows:
            return
        self._cold = begin.part > 1
        if self._cold:
            self.in_the_middle = self.in_the_middle or begin.where
        self.engine = self._make(begin)
        self.lives += 1
        self.hash = begin.hash
        self._cycle = None

    def _warm_up(self, engine: Engine, now: float) -> None:
        """Tries the waiting Workloads, as the manager had done before the part began."""
        self._cold = False
        for _ in range(_MOST_WARM_UP):
            cycle = engine.next_cycle(now)
            if cycle is None:
                return
            engine.settle(decide(cycle, now), now)

    def _observe(self, line: FactLine, engine: Engine) -> None:
        self.event = event = event_of(line, engine.workload)
        self.facts += 1
        with suppress(InvalidObject, InvalidSelector):  # as in the manager; a later line repairs it
            engine.observe(event, line.at)

    def _look(self, line: Looked, engine: Engine) -> Difference | None:
        self._cycle = engine.next_cycle(line.at)
        heads = None if self._cycle is None else len(self._cycle.heads)
        if heads == line.heads:
            return None
        why = f"the manager looked at {_heads(line.heads)}, the replay at {_heads(heads)}"
        replayed = {} if self._cycle is None else plan_data(decide(self._cycle, line.at))
        return Difference(line.where, line.at, self.cycles + 1, {}, replayed, why)

    def _decide(self, line: PlanLine, engine: Engine) -> Difference | None:
        cycle, self._cycle = self._cycle, None
        if cycle is None:
            raise line.where.wrong(
                "plan", "comes without the line that says how many heads there were"
            )
        self.cycles += 1
        plan = decide(cycle, line.at)
        different = self._compare(line, plan_data(plan))
        if different is None:
            engine.settle(plan, line.at)
        return different

    def _make_room(self, line: PlanLine, engine: Engine) -> Difference | None:
        assert line.room is not None, "the caller has looked"
        engine.advance(line.at)
        return self._compare(line, preemptions_data(engine.make_room(line.room).preemptions))

    def _compare(self, line: PlanLine, replayed: Obj) -> Difference | None:
        self.hash = plan_hash(self.hash, replayed)
        if replayed != line.plan:
            why = "the plans differ"
        elif self.hash != line.hash:
            why = "the plans are the same, but not the hash: lines before are missing or changed"
        else:
            return None
        return Difference(line.where, line.at, self.cycles, line.plan, replayed, why)


def event_of(line: FactLine, known: Callable[[ObjectKey], Workload | None]) -> Event:
    """The fact of a line.

    Args:
        line: the line.
        known: the Workloads as the lines before left them.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return fact_of(line.fact, line.of, known)
    except BadFact as error:
        raise line.where.wrong(error.field, error.reason) from None
    except InvalidObject as error:
        first = error.errors[0]
        raise line.where.wrong(f"of.{first.path}" if first.path else "of", first.message) from None
    except InvalidSelector as error:
        raise line.where.wrong("of", str(error)) from None


def _heads(count: int | None) -> str:
    if count is None:
        return "nothing"
    return "1 head" if count == 1 else f"{count} heads"
