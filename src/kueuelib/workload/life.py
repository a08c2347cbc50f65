"""The deadlines of a Workload: pods not ready in time, an execution that takes too long, retention.

All functions are pure; instants are seconds since the epoch. A function that finds nothing to do
returns when it will, so that it is called again then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, is_true, parse_time
from kueuelib.api.names import (
    DEACTIVATION_TARGET,
    FINISHED,
    PODS_READY,
    REASON_MAXIMUM_EXECUTION,
    REASON_REQUEUING_LIMIT,
)
from kueuelib.workload import states
from kueuelib.workload.phases import DEACTIVATED, DUE_TO, PODS_READY_TIMEOUT, WAIT_FOR_RECOVERY


@attrs.frozen
class PodsReadyPolicy:
    """How long pods may take to become ready, and the consequences (`waitForPodsReady`).

    Attributes:
        timeout: seconds from admission until all pods have to be ready.
        recovery_timeout: seconds that a pod of a running job may take to be replaced; None: without
            a limit.
        backoff_base: seconds until the first retry; they double with every further one.
        backoff_max: the maximum number of seconds until a retry.
        limit: the number of tries before the workload is deactivated; None: unlimited.
    """

    timeout: float = 300.0
    recovery_timeout: float | None = None
    backoff_base: float = 60.0
    backoff_max: float = 3600.0
    limit: int | None = None

    def pause(self, count: int) -> float:
        """Seconds until the next try of a workload after `count` failures."""
        doublings = min(count - 1, 62)  # far beyond any maximum
        return float(min(self.backoff_base * 2.0**doublings, self.backoff_max))


@attrs.frozen
class LifeSettings:
    """The settings for times.

    Attributes:
        pods_ready: None if `waitForPodsReady` is off.
        delete_finished_after: seconds that finished Workloads are kept; None: until their job is
            deleted.
    """

    pods_ready: PodsReadyPolicy | None = None
    delete_finished_after: float | None = None


@attrs.frozen
class Due:
    """The result of checking a deadline.

    Attributes:
        workload: with its new status; None: it is not due yet.
        at: when it will be due; None: never.
    """

    workload: Obj | None = None
    at: float | None = None


def pods_overdue(wl: Obj, policy: PodsReadyPolicy, now: float) -> Due:
    """Evicts an admitted workload whose pods are not ready in time, or deactivates it."""
    deadline = _pods_deadline(wl, policy)
    if deadline is None or now < deadline:
        return Due(at=deadline)
    meta = wl["metadata"]
    count = int((states.status_of(wl).get("requeueState") or {}).get("count") or 0) + 1
    if policy.limit is not None and count > policy.limit:
        message = "exceeding the maximum number of re-queuing retries"
        return Due(states.target_deactivation(wl, REASON_REQUEUING_LIMIT, message, now))
    message = f"Exceeded the PodsReady timeout {meta.get('namespace', '')}/{meta['name']}"
    changed = states.evict(wl, PODS_READY_TIMEOUT, message, now)
    return Due(states.back_off(changed, count, now + policy.pause(count)))


def execution_overdue(wl: Obj, now: float) -> Due:
    """Stops a workload that was admitted longer than it may be, over all its admissions."""
    limit = wl.get("spec", {}).get("maximumExecutionTimeSeconds")
    if not limit:
        return Due()
    deadline = states.admitted_since(wl) + max(0, limit - states.past_seconds(wl))
    if now < deadline:
        return Due(at=deadline)
    message = "exceeding the maximum execution time"
    return Due(states.target_deactivation(wl, REASON_MAXIMUM_EXECUTION, message, now))


def expires_at(wl: Mapping[str, Any], settings: LifeSettings) -> float | None:
    """When a finished workload is to be deleted; None: never."""
    if settings.delete_finished_after is None:
        return None
    ended = states.condition(wl, FINISHED)["lastTransitionTime"]
    return parse_time(ended) + settings.delete_finished_after


def back_off_ends(wl: Mapping[str, Any]) -> float | None:
    """Until when a workload backs off after its pods were not ready in time; None: it does not."""
    until = (states.status_of(wl).get("requeueState") or {}).get("requeueAt")
    return None if until is None else parse_time(until)


def deactivation_target(wl: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The condition that announces a deactivation, if there is one."""
    return states.condition(wl, DEACTIVATION_TARGET) if is_true(wl, DEACTIVATION_TARGET) else None


def deactivation_reason(wl: Mapping[str, Any]) -> str:
    """The reason of an eviction by deactivation, with the cause if we announced it."""
    target = deactivation_target(wl)
    return DEACTIVATED if target is None else f"{DUE_TO}{target['reason']}"


def pods_are_ready(wl: Mapping[str, Any]) -> bool:
    """Whether PodsReady is True, and became so after the present admission."""
    condition = states.condition(wl, PODS_READY)
    if condition.get("status") != "True" or not states.is_admitted(wl):
        return False
    return parse_time(condition["lastTransitionTime"]) >= states.admitted_since(wl)


def _pods_deadline(wl: Mapping[str, Any], policy: PodsReadyPolicy) -> float | None:
    if pods_are_ready(wl):
        return None
    admitted = states.admitted_since(wl)
    condition = states.condition(wl, PODS_READY)
    since = (
        parse_time(condition["lastTransitionTime"]) if condition.get("status") == "False" else 0.0
    )
    if condition.get("reason") == WAIT_FOR_RECOVERY and since >= admitted:
        return None if policy.recovery_timeout is None else since + policy.recovery_timeout
    return max(admitted, since) + policy.timeout
