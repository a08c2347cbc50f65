"""The table of laws that hold in every stored state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import (
    bounds,
    conditions,
    edits,
    identity,
    leaders,
    placement,
    quota_law,
    starts,
)
from kueuelib.testing.storm.laws.law import COMMIT, Law
from kueuelib.testing.storm.laws.memory import Memory
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
)

Check = Callable[[Memory, Commit], Iterator[str]]


@attrs.frozen
class SafetyLaw:
    """A law with its kinds and the function that finds violations."""

    law: Law
    resources: tuple[str, ...]
    check: Check


def _law(name: str, check: Check, *resources: str) -> SafetyLaw:
    """Makes a law whose sentence is the first line of the function's docstring."""
    sentence = (check.__doc__ or "").partition("\n")[0]
    return SafetyLaw(Law(name, COMMIT, sentence), resources, check)


LED = (WORKLOADS, JOBS, PODS, CLUSTER_QUEUES, LOCAL_QUEUES)
"""The resources that only the leader writes."""

SAFETY = (
    _law("one-workload-per-job", identity.one_workload_per_job, WORKLOADS),
    _law("owners-are-real", identity.owners_are_real, WORKLOADS),
    _law("finished-with-cause", identity.finished_with_cause, WORKLOADS),
    _law("finished-for-ever", conditions.finished_for_ever, WORKLOADS),
    _law("consistent-conditions", conditions.consistent_conditions, WORKLOADS),
    _law("admission-not-edited", conditions.admission_not_edited, WORKLOADS),
    _law("checks-before-admission", conditions.checks_before_admission, WORKLOADS),
    _law("answers-end-with-quota", conditions.answers_end_with_quota, WORKLOADS),
    _law("started-by-admission", starts.started_by_admission, JOBS, PODS),
    _law("one-start-per-admission", starts.one_start_per_admission, JOBS),
    _law("quota-is-kept-while-pods-run", starts.quota_is_kept_while_pods_run, WORKLOADS),
    _law("pods-start-on-quota", starts.pods_start_on_quota, PODS),
    _law("ending-jobs-go-on", starts.ending_jobs_go_on, JOBS),
    _law("edits-are-kept", edits.edits_are_kept, JOBS),
    _law("starts-are-of-present-templates", edits.starts_are_of_present_templates, JOBS),
    _law("quota-not-exceeded", quota_law.quota_not_exceeded, WORKLOADS),
    _law("no-quota-in-a-cycle", quota_law.no_quota_in_a_cycle, WORKLOADS),
    _law("usage-is-what-pods-request", placement.usage_is_what_pods_request, WORKLOADS),
    _law("reserved-from-its-queue", placement.reserved_from_its_queue, WORKLOADS),
    _law("reserved-only-if-allowed", placement.reserved_only_if_allowed, WORKLOADS),
    _law("events-are-about-real-objects", identity.events_are_about_real_objects, EVENTS),
    _law("no-job-is-deleted", identity.no_job_is_deleted, JOBS),
    _law("only-the-leader-writes", leaders.only_the_leader_writes, *LED),
    _law("lease-is-taken-when-free", leaders.lease_is_taken_when_free, LEASES),
    _law("bounded-steps", bounds.bounded_steps, WORKLOADS),
    _law("no-burst", bounds.no_burst, *LED),
)
"""The laws in the order they are checked."""
