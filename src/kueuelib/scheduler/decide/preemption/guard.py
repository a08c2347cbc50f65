"""Leaves out candidates: those whose eviction was refused, or that were preempted of late.

A policy that raises or gives an invalid answer does not stop the manager: Kueue's own policy then
decides about the workload, and the plan carries the fault to log and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from kueuelib.api import names
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey, find
from kueuelib.api.struct import frozen
from kueuelib.scheduler.policy import (
    KUEUE,
    Asking,
    PolicyError,
    PreemptionPolicy,
    Protected,
    Refusal,
    Running,
    Unevictable,
    WrongAnswerError,
    checked_order,
    checked_refusal,
)
from kueuelib.scheduler.quota.holders import Holder, Ranked

# Past preemptions: for policies that limit how often workloads may be preempted, and those that
# the API server refused.
#
# The former come from two sources: the engine's own plans, and the `Preempted` conditions of
# Workloads, which survive a restart. A condition that is False again has lost the time of the
# preemption; the time of its change counts instead, which is later, so that no limit is exceeded.
# The latter are forgotten in a restart, after which they are tried again.

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


class PreemptionHistory:
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
        preempted = find(workload.status.conditions, names.PREEMPTED)
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


# --------------------------------------------------------------------------------------------------

T = TypeVar("T")


@frozen
class PolicyFault:
    """A policy gave no valid answer, so Kueue's own policy decided.

    Attributes:
        policy: the name of the policy.
        message: the method, and what is wrong.
    """

    policy: str
    message: str


class Judge:
    """The policy in one cycle.

    Args:
        policy: the policy.
        past: the preemptions before the cycle.
        now: seconds since the epoch.

    Attributes:
        asks_policy: whether the policy is not Kueue's own, so that it is asked.
        refused: the evictions that were refused and are not tried again yet, by UID.
        leaves_out: whether any candidate might be left out.
        taken: the workloads that are preempted in this cycle.
        faults: the distinct faults of the policy.
    """

    def __init__(
        self, policy: PreemptionPolicy = KUEUE, past: Past = NOTHING, now: float = 0.0
    ) -> None:
        self.policy = policy
        self.asks_policy = policy is not KUEUE
        self.refused = past.refused
        if self.refused:
            self.refused = {uid: one for uid, one in past.refused.items() if one.until > now}
        self.leaves_out = self.asks_policy or bool(self.refused)
        self.past = past
        self.now = now
        self.taken: dict[ObjectKey, Holder] = {}
        self.faults: dict[str, None] = {}

    def guard(self, asking: Asking) -> Guard | None:
        """The guard for one preemptor; None if it would leave out nothing."""
        return Guard(self, asking) if self.leaves_out else None

    @property
    def reported(self) -> tuple[PolicyFault, ...]:
        """The faults, for log and metrics."""
        return tuple(PolicyFault(self.policy.name, message) for message in self.faults)

    def take(self, holder: Holder) -> None:
        """Notes that a workload is preempted in this cycle."""
        if not holder.evicted:
            self.taken[holder.key] = holder


class Guard:
    """What is left out in the search for the victims of one preemptor.

    Attributes:
        broken: whether the policy failed, so that Kueue's own decides from then on.
    """

    def __init__(self, judge: Judge, asking: Asking) -> None:
        self._judge = judge
        self._asking = asking
        self._chosen: dict[ObjectKey, Holder] = {}
        self._protected: dict[ObjectKey, Refusal] = {}
        self._unevictable: dict[ObjectKey, RefusedEviction] = {}
        self._places: dict[ObjectKey, tuple[float, ...]] = {}
        self._orders = type(judge.policy).order is not PreemptionPolicy.order
        self.broken = False

    # --- what is chosen in a search

    def begin(self) -> None:
        """A search begins: nothing is chosen yet."""
        self._chosen = dict(self._judge.taken)

    def take(self, holder: Holder) -> None:
        """A candidate is chosen."""
        if not holder.evicted:
            self._chosen[holder.key] = holder

    def put_back(self, holder: Holder) -> None:
        """Notes that a candidate is no longer chosen."""
        self._chosen.pop(holder.key, None)

    # --- questions

    def sift(self, granted: Iterator[Ranked]) -> Iterator[Ranked]:
        """The candidates that are not left out, in the order of the policy.

        Raises:
            PolicyError: an answer is wrong.
        """
        kept = (ranked for ranked in granted if not self.refuses(ranked[1]))
        if not self._orders or self.broken:
            return kept
        candidates: list[tuple[Any, Holder]]
        candidates = [((self.order(holder), rank), holder) for rank, holder in kept]
        return iter(sorted(candidates, key=itemgetter(0)))

    def refuses(self, holder: Holder) -> bool:
        """Whether a workload may not be preempted now, given the victims chosen so far.

        Raises:
            PolicyError: the answer is wrong.
        """
        judge = self._judge
        if holder.evicted:
            return False
        if holder.uid in judge.refused:
            self._unevictable[holder.key] = judge.refused[holder.uid]
            return True
        return judge.asks_policy and not self.broken and self._protects(holder)

    def _protects(self, holder: Holder) -> bool:
        judge = self._judge
        chosen = sum(one.local_queue == holder.local_queue for one in self._chosen.values())
        queue_preempted = self._past_of_queue(holder) + (judge.now,) * chosen
        running = self._running(holder, self._preempted(holder), queue_preempted)
        refusal = self._asked(
            "refuse",
            lambda: checked_refusal(
                judge.policy.refuse(self._asking, running, judge.now), judge.now
            ),
        )
        if refusal is None:
            return False
        self._protected.setdefault(holder.key, refusal)
        return True

    def order(self, holder: Holder) -> tuple[float, ...]:
        """The place of a candidate; the policy is asked once.

        Raises:
            PolicyError: the answer is wrong.
        """
        if holder.evicted or not self._orders or self.broken:
            return ()
        place = self._places.get(holder.key)
        if place is None:
            running = self._running(holder, self._preempted(holder), self._past_of_queue(holder))
            ask = self._judge.policy.order
            place = self._asked("order", lambda: checked_order(ask(self._asking, running)))
            self._places[holder.key] = place
        return place

    @property
    def protected(self) -> Protected | None:
        """The candidates that the policy protects, or None."""
        if not self._protected:
            return None
        never = float("inf")
        first = min(
            self._protected.values(), key=lambda one: never if one.until is None else one.until
        )
        return Protected(self._judge.policy.name, len(self._protected), first.why, first.until)

    @property
    def unevictable(self) -> Unevictable | None:
        """The candidates whose eviction was refused, or None."""
        if not self._unevictable:
            return None
        key, first = min(self._unevictable.items(), key=lambda item: (item[1].until, item[0]))
        return Unevictable(key, len(self._unevictable), first.why, first.until)

    def _asked(self, method: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:
            said = str(error)
            if not isinstance(error, WrongAnswerError):
                said = f"raised {type(error).__name__}: {said}"
            self.broken = True
            fault = f"{method}() {' '.join(said.split())}"
            self._judge.faults[fault] = None
            raise PolicyError(fault) from error

    # --- what the policy is shown

    def _preempted(self, holder: Holder) -> tuple[float, ...]:
        return tuple(filter(self._counts, self._judge.past.workloads.get(holder.uid, ())))

    def _past_of_queue(self, holder: Holder) -> tuple[float, ...]:
        past = self._judge.past
        times = (
            at for uid in past.queues.get(holder.local_queue, ()) for at in past.workloads[uid]
        )
        return tuple(sorted(filter(self._counts, times)))

    def _counts(self, at: float) -> bool:
        return at > self._judge.now - self._judge.policy.remembers

    def _running(
        self,
        holder: Holder,
        preempted: tuple[float, ...],
        queue_preempted: tuple[float, ...],
    ) -> Running:
        started_at = holder.admitted_at
        if started_at is None and holder.admitted:
            started_at = self._judge.now
        return Running(
            key=holder.key,
            uid=holder.uid,
            cluster_queue=holder.cluster_queue,
            local_queue=holder.local_queue,
            priority=holder.priority,
            labels=MappingProxyType(holder.labels),
            usage=MappingProxyType(holder.usage),
            reserved_at=holder.reserved_at,
            started_at=started_at,
            preempted=preempted,
            queue_preempted=queue_preempted,
        )
