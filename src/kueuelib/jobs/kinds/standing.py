"""The state of a kind of jobs, and how it is reported and counted."""

from __future__ import annotations

import enum

import attrs

from kueuelib.api.meta import Obj
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.lookups.stores import PREBUILT_NAME, prebuilt_name
from kueuelib.machinery.store import Store
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.telemetry import Telemetry


class KindState(enum.StrEnum):
    """The state of a kind of jobs."""

    STARTING = "starting"
    """Its objects are being listed."""
    MANAGED = "managed"
    """Its jobs are queued."""
    MISSING = "missing"
    """It is not installed."""
    UNFIT = "unfit"
    """It is installed, but in another form or version than the integration reads."""
    UNREADABLE = "unreadable"
    """Its objects cannot be listed or watched."""


HELD_BACK = frozenset({KindState.UNFIT, KindState.UNREADABLE})
"""States in which jobs may be suspended that cannot be started."""


@attrs.frozen(eq=False)
class Turn:
    """A period in which the objects of a kind are known, from one informer.

    Attributes:
        integration: at the version that is served.
        store: the objects.
        informer: the owner of the store; None if the kind is gone, with all its objects.
    """

    integration: Integration
    store: Store[Obj]
    informer: Informer | None = None


@attrs.frozen
class Standing:
    """The state of a kind, with its reason.

    Attributes:
        state: the state.
        why: a clause for people; empty if all is well.
        turn: the objects to reconcile, or None.
    """

    state: KindState
    why: str = ""
    turn: Turn | None = None


def turn_without_objects(integration: Integration) -> Turn:
    """The turn of a deleted kind: Workloads of its jobs are released."""
    return Turn(integration, Store({PREBUILT_NAME: prebuilt_name}))


class KindMetrics:
    """Reports the standing of each kind to a scrape.

    Args:
        telemetry: where to report; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._state = telemetry.gauge(
            "kueuelib_job_kind_state",
            "1 for the state that an enabled kind of jobs is in, if a CRD defines it.",
            ("kind", "state"),
        )
        self._held_back = telemetry.counter(
            "kueuelib_jobs_held_back_total",
            "Jobs that were suspended on creation while their kind could not be managed.",
            ("kind",),
        )

    def now(self, kind: str, state: KindState) -> None:
        """Report the state of a kind."""
        for each in KindState:
            self._state.labels(kind, each).set(1 if each is state else 0)

    def held_back(self, kind: str) -> None:
        """Count a job that was suspended and cannot be started for now."""
        self._held_back.labels(kind).inc()
