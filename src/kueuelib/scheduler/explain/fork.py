"""Copies an engine for a trial: mutable values are copied, frozen ones are shared.

Copying an engine with thousands of workloads takes a few milliseconds, and loading a new one a
hundred times as long. So every trial works on a copy, and nothing has to be undone. The copy
decides like an engine with the same facts (law in `tests/properties/test_explain.py`).
"""

from __future__ import annotations

from types import MethodType
from typing import Any, TypeVar

from kueuelib.scheduler.decide.preemption.guard import PreemptionHistory
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.handlers import Facts
from kueuelib.scheduler.facts.state import EffectsBuilder, EngineState, Grouping
from kueuelib.scheduler.facts.workloads import Requirements, WorkloadFacts
from kueuelib.scheduler.pending.queue import (
    Heap,
    PendingGroup,
    PendingQueue,
    PendingWorkload,
    Ranking,
    Scope,
)
from kueuelib.scheduler.pending.queues import Queues, UnreportedWorkloads
from kueuelib.scheduler.pending.waking import ScopeChanges
from kueuelib.scheduler.quota.cache import QueueState, QuotaCache, Tally
from kueuelib.scheduler.quota.forest import Forest, Ledger, NodeUsage, UsageByNode
from kueuelib.scheduler.quota.holders import Priorities
from kueuelib.scheduler.quota.past_usage import Account, PastUsage
from kueuelib.scheduler.topology.nodes import NodeCache, TreeOfFlavor

T = TypeVar("T")

_MUTABLE = frozenset(
    (
        Account,
        QuotaCache,
        EffectsBuilder,
        Engine,
        Facts,
        Forest,
        PendingGroup,
        Grouping,
        Heap,
        PreemptionHistory,
        Ledger,
        NodeCache,
        ScopeChanges,
        PastUsage,
        PendingWorkload,
        PendingQueue,
        Priorities,
        QueueState,
        Ranking,
        Requirements,
        Queues,
        Scope,
        UnreportedWorkloads,
        NodeUsage,
        EngineState,
        Tally,
        TreeOfFlavor,
        WorkloadFacts,
    )
)
_TABLES = frozenset((dict, UsageByNode))
_COPIED = _MUTABLE | _TABLES | {list, set, MethodType}


def fork(engine: Engine) -> Engine:
    """An independent copy of an engine."""
    copies = _Copies()
    copy = copies.of(engine)
    copies.fill()
    return copy


class _Copies:
    """Copies of mutable values; those of objects are filled in later, to avoid deep recursion."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._empty: list[tuple[Any, Any]] = []

    def of(self, value: T) -> T:
        """The copy of a value, or the value itself if it is immutable."""
        kind: Any = type(value)
        if kind not in _COPIED:
            return value
        source: Any = value
        if kind in _TABLES:
            copy = self._known.get(id(value))
            if copy is None:
                # All values of a table are of one kind.
                first = next(iter(source.values()), None)
                copy = kind(source)
                self._known[id(value)] = copy
                if type(first) in _COPIED:
                    copy.update((key, self.of(one)) for key, one in source.items())
            return copy  # type: ignore[no-any-return]
        if kind is list or kind is set:
            return source.copy()  # type: ignore[no-any-return]
        if kind is MethodType:
            bound: Any = MethodType(source.__func__, self.of(source.__self__))
            return bound  # type: ignore[no-any-return]
        copy = self._known.get(id(value))
        if copy is None:
            copy = self._known[id(value)] = kind.__new__(kind)
            self._empty.append((source, copy))
        return copy  # type: ignore[no-any-return]

    def fill(self) -> None:
        """Fills in all copies that were made."""
        while self._empty:
            source, copy = self._empty.pop()
            for name in _fields(type(source), source):
                setattr(copy, name, self.of(getattr(source, name)))


def _fields(kind: type, value: Any) -> tuple[str, ...]:
    attributes = getattr(value, "__dict__", None)
    if attributes is not None:
        return tuple(attributes)
    slots = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
    return tuple(name for name in slots if name != "__weakref__")
