"""Who can influence whom: the ClusterQueues of one cohort, and what happened there."""

from __future__ import annotations

from typing import NamedTuple

from kueuelib.scheduler.amounts import FlavorResource
from kueuelib.scheduler.pending_queue import Borrowed, PendingQueue
from kueuelib.scheduler.workload_info import Shape


class Scope(NamedTuple):
    """The ClusterQueues that can influence each other: one cohort, or one ClusterQueue alone."""

    cohort: str
    cluster_queue: str


def scope_of(cohort: str, cluster_queue: str) -> Scope:
    """The scope of a ClusterQueue."""
    return Scope(cohort, "") if cohort else Scope("", cluster_queue)


class ScopeState:
    """What happened in one scope, as `Queues` writes it down.

    Attributes:
        members: its ClusterQueues.
        woken: whether all its parked workloads are to be moved before the next cycle.
        freed: otherwise those are that ask for any of this, which became free.
        moved_in: the cycle after which something moved last.
        borrowed: the last charge of every ClusterQueue that borrowed then.
        charged_in: the cycle after which somebody was charged last.
        version: counts everything that may change a verdict.
        passing: whether parked shapes have a turn to come that passes.
        late: parked shapes of ClusterQueues that start over after the next cycle.
        last: those that start over when nobody else in the scope is to be tried.
    """

    __slots__ = (
        "borrowed",
        "charged_in",
        "freed",
        "last",
        "late",
        "members",
        "moved_in",
        "passing",
        "version",
        "woken",
    )

    def __init__(self) -> None:
        self.members: dict[str, PendingQueue] = {}
        self.woken = False
        self.freed: set[FlavorResource] = set()
        self.moved_in = -1
        self.charged_in = -1
        self.borrowed: dict[str, Borrowed] = {}
        self.version = 0
        self.passing = False
        self.late: dict[tuple[str, Shape], None] = {}
        self.last: dict[tuple[str, Shape], None] = {}
