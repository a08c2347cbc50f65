"""What a change of one object means for other ClusterQueues and cohorts of its tree."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kinds import COHORTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.machinery.store import Delta
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.predicates import generation_changed
from kueuelib.scheduler.engine import Engine

DELAY = 1.0
"""Seconds in which several changes in a tree become one look at each of its members."""


def above(engine: Engine, delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """A Cohort that changed, and the cohorts that are or were above it or a ClusterQueue."""
    for name in _named(delta):
        for cohort in engine.cache.forest.path(name):
            yield ObjectKey("", cohort)


class TreeWatch:
    """Has all members of a tree looked at again when what they show may have changed.

    A share depends on all quota in the tree, and every cohort shows the root.

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
        """Hears of every delta of Cohorts and ClusterQueues, after the engine."""
        if delta.initial or not generation_changed(delta):
            return
        forest = self._engine.cache.forest
        for root in {forest.root_of(name): None for name in _named(delta)}:
            _look_later(self._cohorts, forest.cohorts_below(root))
            if self._engine.shares_fairly:
                _look_later(self._queues, forest.below(root))

    def usage_changed(self, queues: tuple[str, ...]) -> None:
        """What these ClusterQueues use, or how many workloads they have, may have changed."""
        cohorts = (cohort for name in queues for cohort in self._engine.cohorts(name))
        _look_later(self._cohorts, tuple(dict.fromkeys(cohorts)))


def _look_later(controller: Controller, names: tuple[str, ...]) -> None:
    """A controller that does not listen yet looks at everything when it begins."""
    if controller.listening:
        controller.enqueue(*(ObjectKey("", name) for name in names), after=DELAY)


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
