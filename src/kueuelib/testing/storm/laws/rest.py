"""The table of laws that hold at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from kueuelib.testing.storm.laws import admissible, endings, statuses, waiting
from kueuelib.testing.storm.laws.law import REST, Law
from kueuelib.testing.storm.laws.still import Finding, Rest

Check = Callable[[Rest], Iterator[Finding]]

__all__ = ["REST_LAWS", "Rest", "RestLaw"]


@attrs.frozen
class RestLaw:
    """A law with the function that finds violations."""

    law: Law
    check: Check


def _law(name: str, check: Check) -> RestLaw:
    """Makes a law whose sentence is the first line of the function's docstring."""
    sentence = (check.__doc__ or "").partition("\n")[0]
    return RestLaw(Law(name, REST, sentence), check)


REST_LAWS = (
    _law("admissible-runs", admissible.admissible_runs),
    _law("admitted-runs", endings.admitted_runs),
    _law("done-jobs-end", endings.done_jobs_end),
    _law("nothing-runs-unadmitted", endings.nothing_runs_unadmitted),
    _law("every-job-has-a-workload", endings.every_job_has_a_workload),
    _law("finished-jobs-have-finished-workloads", endings.finished_jobs),
    _law("no-orphans", endings.no_orphans),
    _law("no-leaked-finalizers", endings.no_leaked_finalizers),
    _law("groups-all-or-none", endings.groups_all_or_none),
    _law("waiting-says-why", waiting.waiting_says_why),
    _law("no-unfinished-eviction", waiting.no_unfinished_eviction),
    _law("no-reservation-in-vain", waiting.no_reservation_in_vain),
    _law("stopped-queues-are-respected", waiting.stopped_queues),
    _law("cluster-queue-status", statuses.cluster_queue_status),
    _law("local-queue-status", statuses.local_queue_status),
    _law("queues-say-if-they-admit", statuses.queues_say_if_they_admit),
    _law("shares-are-right", statuses.shares),
)
"""The laws in the order they are checked."""
