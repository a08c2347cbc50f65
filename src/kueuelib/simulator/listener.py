"""What a simulation reports while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import Preemption
from kueuelib.simulator.cluster import Cluster
from kueuelib.simulator.live import Live


class Listener:
    """Hears of everything that happens; a subclass takes what it needs.

    All instants are seconds on the trace's clock, and never go back.
    """

    def arrived(self, live: Live, now: float) -> None:
        """A job was submitted."""

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        """A job got quota: `live.usage` in `live.cluster_queue`.

        `admit` is the decision; None for a job that had its quota before the simulation began.
        """

    def started(self, live: Live, now: float) -> None:
        """A job was admitted, and runs."""

    def preempted(self, live: Live, preemption: Preemption, now: float) -> None:
        """A job has to leave so that another one gets quota."""

    def released(self, live: Live, now: float) -> None:
        """A job gives back `live.usage`: it ended, or was stopped and waits again."""

    def ended(self, live: Live, end: str, now: float) -> None:
        """A job is over; `end` says how."""

    def cluster_changed(self, cluster: Cluster, now: float) -> None:
        """The queues and flavors are others from now on."""

    def rested(self, now: float, until: float) -> None:
        """Nothing is left to do at `now`; nothing happens before `until`."""


class Audience(Listener):
    """Several listeners as one: each hears what it takes, in their order."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        members = tuple(listeners)
        for name, nothing in vars(Listener).items():
            if not name.startswith("_"):
                hear = [getattr(one, name) for one in members]
                takers = [one for one in hear if getattr(one, "__func__", None) is not nothing]
                setattr(self, name, partial(_tell, takers))


def _tell(takers: Iterable[Callable[..., None]], *what: Any) -> None:
    for take in takers:
        take(*what)
