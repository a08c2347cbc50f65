"""A head that gets quota, in the form of the plan."""

from __future__ import annotations

from kueuelib.api import conditions, names
from kueuelib.api.kueue import Workload
from kueuelib.scheduler.decide.cycle_values import Admit
from kueuelib.scheduler.decide.nomination import Entry
from kueuelib.scheduler.quota.check_rules import entries_of, passed_all


def admission_of(entry: Entry, now: float) -> Admit:
    """The quota that a head gets with its proposal.

    Args:
        entry: the head.
        now: seconds since the epoch.
    """
    info, proposal = entry.head.info, entry.proposal
    workload = info.workload
    spec = entry.queue.spec
    required = spec.checks_for(pair.flavor for pair in proposal.usage) if spec.checks else ()
    waited = now - _queued_since(workload, now)
    return Admit(
        info.key,
        info.uid,
        workload,
        entry.head.cluster_queue,
        proposal.admission,
        passed_all(entries_of(workload), required),
        required,
        waited if waited > 0 else 0.0,
        proposal.borrowing,
        proposal.usage,
    )


def _queued_since(workload: Workload, now: float) -> float:
    evicted = conditions.find(workload.status.conditions, names.EVICTED)
    if evicted is not None:
        return evicted.last_transition_time
    created = workload.metadata.creation_timestamp
    return now if created is None else created
