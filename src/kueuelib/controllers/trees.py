"""Finds the ClusterQueues and cohorts of a tree that a change of one object affects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kueuelib.api.kinds import COHORTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.machinery.store import Delta
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.predicates import generation_changed
from kueuelib.scheduler.engine import Engine

DELAY = 1.0
"""Seconds within which several changes in a tree lead to one reconciliation of each member."""


def above(engine: Engine, delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """A changed Cohort, and the cohorts that are or were above it or above a ClusterQueue."""
    for name in _named(delta):
        for cohort in engine.cache.forest.path(name):
            yield ObjectKey("", cohort)


class TreeWatch:
    """Reconciles all members of a tree when their reported values may have changed.

    A share depends on all quota in the tree, and every cohort reports the root.

    Args:
        engine: knows the trees.
        cohorts: the controller of cohorts.
        queues: the controller of ClusterQueues.
    """

    def __init__(self, engine: Engine, cohorts: Controller, queues: Controller) -> None:
        self._engine = engine
        self._cohorts = cohorts
        self._queues = queues

    def quota_changed(self, delta: Delta[Obj]) -> None:
        """Receives every delta of Cohorts and ClusterQueues, after the engine."""
        if delta.initial or not generation_changed(delta):
            return
        forest = self._engine.cache.forest
        for root in {forest.root_of(name): None for name in _named(delta)}:
            look_later(self._cohorts, forest.cohorts_below(root), DELAY)
            if self._engine.shares_fairly:
                look_later(self._queues, forest.below(root), DELAY)

    def usage_changed(self, queues: tuple[str, ...]) -> None:
        """The usage or the number of workloads of these ClusterQueues may have changed."""
        if self._cohorts.listening:
            cohorts = {cohort for name in queues for cohort in self._engine.cohorts(name)}
            look_later(self._cohorts, cohorts, DELAY)


def look_later(
    controller: Controller,
    queues: Iterable[str | ObjectKey],
    after: float,
    not_before: Callable[[ObjectKey], float] = lambda _: 0.0,
) -> None:
    """Reconcile some objects later, unless they will be by then anyway.

    A controller that does not listen yet reconciles everything at its start.

    Args:
        controller: reconciles them.
        queues: their keys, or their names if they have no namespace.
        after: not before so many seconds.
        not_before: an instant of the controller's clock for each, in monotonic seconds.
    """
    if not controller.listening:
        return
    now = controller.queue.clock.monotonic()
    for each in queues:
        key = ObjectKey("", each) if isinstance(each, str) else each
        at = max(now + after, not_before(key))
        if not controller.queue.core.is_due(key, at):
            controller.enqueue(key, after=at - now)


def _named(delta: Delta[Obj]) -> Iterator[str]:
    """The Cohort itself, and the cohorts that an object names, or named before."""
    for obj in (delta.old, delta.new):
        if obj is None:
            continue
        if obj.get("kind") == COHORTS.kind:
            yield delta.key.name
        spec = obj.get("spec") or {}
        parent = spec.get("parentName") or spec.get("cohortName") or spec.get("cohort")
        if parent:
            yield parent
