"""When quota is reserved before its victims leave (KEP-993, AfterCheckPassedOrOnDemand).

Victims of such a reservation keep their quota until its checks have passed, and perhaps for good.
So it must not count on room that a preemptor waits for: that one would not fit beside the
reservation and its victims, and more would have to leave before any check has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.scheduler.decide.cycle_values import Head, Wait
from kueuelib.scheduler.decide.nomination import Entry
from kueuelib.scheduler.quota.check_rules import entries_of, passed
from kueuelib.scheduler.quota.snapshot import Snapshot


def comes_later(snapshot: Snapshot, entry: Entry) -> bool:
    """Whether a check has to pass or to ask before the victims of a head leave.

    A check asks for one reservation, and the head has none: what is left of a request is about an
    earlier one.
    """
    if not entry.queue.spec.checks:
        return False
    usage = entry.proposal.usage
    required = entry.queue.spec.checks_for(pair.flavor for pair in usage)
    late = snapshot.late_checks.intersection(required)
    return not passed(entries_of(entry.head.info.workload), late)


def takes_room(snapshot: Snapshot, entry: Entry, preemptors: Iterable[Head | Wait]) -> bool:
    """Whether any of these preemptors waits for quota that a head of its tree asks for as well."""
    nodes, usage = snapshot.nodes, entry.proposal.usage
    root = nodes[entry.queue.spec.name].root.key
    return any(
        nodes[one.cluster_queue].root.key == root
        and any(amount and usage.get(pair) for pair, amount in one.promise.usage.items())
        for one in preemptors
        if one.promise is not None
    )
