"""Past preemptions: for policies that limit how often workloads may be preempted, and those that
the API server refused.

The former come from two sources: the engine's own plans, and the `Preempted` conditions of
Workloads, which survive a restart. A condition that is False again has lost the time of the
preemption; the time of its change counts instead, which is later, so that no limit is exceeded. The
latter are forgotten in a restart, after which they are tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kueuelib.api import conditions, names
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen

_KEPT = 64
"""Entries that may be out of date before all are checked."""

FIRST_REST: Final = 60.0
LONGEST_REST: Final = 900.0
"""Seconds for which a workload is left out after its eviction was refused: after the first time,
and at most. Every further refusal doubles it.
"""


@frozen
class RefusedEviction:
    """The API server refused to store the eviction of a workload.

    Attributes:
        why: its last answer.
        times: how often it did so.
        until: when the workload may be chosen again, in seconds since the epoch.
    """

    why: str
    times: int
    until: float


@frozen
class Past:
    """The past preemptions as known to a cycle; frozen.

    Attributes:
        workloads: when each workload was preempted, by UID, ascending; in seconds since the epoch.
        queues: the UIDs of the workloads of each LocalQueue.
        refused: the workloads that hold quota and whose eviction was refused, by UID.
    """

    workloads: Mapping[str, tuple[float, ...]] = attrs.field(factory=dict)
    queues: Mapping[ObjectKey, frozenset[str]] = attrs.field(factory=dict)
    refused: Mapping[str, RefusedEviction] = attrs.field(factory=dict)


NOTHING = Past()


class History:
    """Records preemptions, and forgets them after a while.

    Args:
        span: how many seconds they count; 0: only refused ones are recorded.
    """

    def __init__(self, span: float) -> None:
        self._span = span
        self._times: dict[str, tuple[float, ...]] = {}
        self._queue_of: dict[str, ObjectKey] = {}
        self._issued: dict[str, float] = {}
        self._refused: dict[str, RefusedEviction] = {}
        self._limit = _KEPT
        self._past: Past | None = NOTHING

    def issued(self, uid: str, local_queue: ObjectKey, now: float) -> None:
        """Record a decided preemption that the object does not show yet."""
        if self._span:
            self._issued[uid] = now
            self._add(uid, local_queue, now, now)

    def failed(self, uid: str) -> None:
        """Remove a decided preemption that did not happen, or not at that time."""
        at = self._issued.pop(uid, None)
        if at in self._times.get(uid, ()):
            self._drop(uid, at)

    def refused(self, uid: str, why: str, now: float) -> None:
        """Record that the API server refused an eviction."""
        known = self._refused.get(uid)
        times = 1 if known is None else known.times + 1
        rest = min(LONGEST_REST, FIRST_REST * 2.0 ** min(times - 1, 10))
        self._refused[uid] = RefusedEviction(" ".join(why.split()), times, now + rest)
        self._past = None

    def released(self, uid: str) -> None:
        """Forget that an eviction was refused, because the workload no longer holds quota."""
        if self._refused.pop(uid, None) is not None:
            self._past = None

    def seen(self, workload: Workload, now: float) -> None:
        """Take in a Workload, whose condition may show a preemption."""
        if not self._span:
            return
        uid = workload.metadata.uid
        preempted = conditions.find(workload.status.conditions, names.PREEMPTED)
        if preempted is None:
            return
        known, at = self._times.get(uid), preempted.last_transition_time
        if not preempted.is_true:
            if known is not None:
                return
        elif uid in self._issued:
            self.failed(uid)
        elif known is not None and known[-1] >= at:
            return
        self._add(uid, ObjectKey(workload.namespace, workload.spec.queue_name), at, now)

    def _add(self, uid: str, local_queue: ObjectKey, at: float, now: float) -> None:
        if at <= now - self._span:
            return
        self._times[uid] = (*self._times.get(uid, ()), at)
        self._queue_of[uid] = local_queue
        self._past = None
        if len(self._times) > self._limit:
            self._forget(now)

    def _drop(self, uid: str, at: float) -> None:
        self._past = None
        left = list(self._times[uid])
        left.remove(at)
        if left:
            self._times[uid] = tuple(left)
        else:
            del self._times[uid], self._queue_of[uid]

    def _forget(self, now: float) -> None:
        for uid, times in tuple(self._times.items()):
            for at in times:
                if at <= now - self._span:
                    self._drop(uid, at)
        self._issued = {uid: at for uid, at in self._issued.items() if uid in self._times}
        self._limit = 2 * len(self._times) + _KEPT

    def past(self) -> Past:
        """The recorded preemptions, as an immutable value."""
        if self._past is None:
            queues: dict[ObjectKey, set[str]] = {}
            for uid, local_queue in self._queue_of.items():
                queues.setdefault(local_queue, set()).add(uid)
            grouped = {key: frozenset(uids) for key, uids in queues.items()}
            self._past = Past(dict(self._times), grouped, dict(self._refused))
        return self._past
