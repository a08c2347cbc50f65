"""The last evictions, from the conditions of the Workloads: when, for which object, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kueuelib.api import conditions
from kueuelib.api.kueue import Workload
from kueuelib.api.names import EVICTED, JOB_UID_LABEL, REASON_DEACTIVATED, REASON_PREEMPTED
from kueuelib.app.overview.values import Eviction

_PREEMPTED = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>[^,]*), JobUID: (?P<job>[^)]*)\) "
    r"due to (?P<why>.*?)(?:; preemptor path: (?P<path>.*?))?(?:; preemptee path: .*)?\Z",
    re.DOTALL,
)
"""The message of an eviction for another Workload, as today's Kueue writes it."""


def evictions_of(workloads: Iterable[Workload], most: int) -> tuple[Eviction, ...]:
    """The last eviction of every Workload that was evicted, the latest first.

    Args:
        workloads: all known Workloads.
        most: the maximum number.
    """
    known = tuple(workloads)
    names = dict(_names(known))
    evictions = sorted(_all(known, names), key=lambda one: (-one.at, one.key))
    return tuple(evictions[:most])


def _names(workloads: Iterable[Workload]) -> Iterator[tuple[str, str]]:
    """The Workloads by their UIDs and by those of their jobs."""
    for workload in workloads:
        job = workload.metadata.labels.get(JOB_UID_LABEL)
        if job:
            yield job, str(workload.key)
        yield workload.metadata.uid, str(workload.key)


def _all(workloads: Iterable[Workload], names: Mapping[str, str]) -> Iterator[Eviction]:
    for workload in workloads:
        said = conditions.find(workload.status.conditions, EVICTED)
        if said is None:
            continue
        preemptor, why = "", said.message
        message = _PREEMPTED.match(said.message) if said.reason == REASON_PREEMPTED else None
        if message is not None:
            uid, job, why = message["uid"], message["job"], message["why"]
            preemptor = names.get(uid) or names.get(job) or f"a Workload that is gone (UID {uid})"
            if message["path"]:
                preemptor += f" in {message['path']}"
        yield Eviction(
            workload.key,
            said.last_transition_time,
            over=said.status != "True",
            reason=said.reason,
            preemptor=preemptor,
            why=why,
            times=_times(workload, said.reason),
        )


def _times(workload: Workload, reason: str) -> int:
    """How often a Workload was evicted for a reason, whatever the underlying cause."""
    stats = workload.status.scheduling_stats
    rows = () if stats is None else stats.evictions
    whole = reason.partition(f"{REASON_DEACTIVATED}DueTo")
    named = (REASON_DEACTIVATED, whole[2]) if whole[1] else (reason, None)
    return sum(
        row.count
        for row in rows
        if row.reason == named[0] and named[1] in (None, row.underlying_cause)
    )
