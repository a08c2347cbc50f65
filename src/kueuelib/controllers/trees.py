"""Finds the ClusterQueues and cohorts of a tree that a change of one object affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
            _look_later(self._cohorts, forest.cohorts_below(root))
            if self._engine.shares_fairly:
                _look_later(self._queues, forest.below(root))

    def usage_changed(self, queues: tuple[str, ...]) -> None:
        """The usage or the number of workloads of these ClusterQueues may have changed."""
        cohorts = (cohort for name in queues for cohort in self._engine.cohorts(name))
        _look_later(self._cohorts, dict.fromkeys(cohorts))


def _look_later(controller: Controller, names: Iterable[str]) -> None:
    """Enqueue later; a controller that does not listen yet reconciles everything at its start."""
    if controller.listening:
        controller.queue.add_later((ObjectKey("", name) for name in names), DELAY)


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
