"""The preemption policy: decides which workloads may be preempted now, and in which order.

ClusterQueues define the rules of preemption (`spec.preemption`, fair sharing). A policy narrows
them and orders the remaining candidates; it never widens them. The base class is Kueue's own
policy: it refuses nothing; the lowest priority leaves first, and among equals the newest
reservation.

A policy is pure: equal arguments give equal answers, and nothing is remembered between two calls.
What happened in the past comes with the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import FlavorResource


@frozen
class Asking:
    """The workload that needs room. Workloads that are equal in all of this get one verdict.

    Attributes:
        cluster_queue: its ClusterQueue.
        local_queue: its LocalQueue.
        priority: its priority.
    """

    cluster_queue: str
    local_queue: ObjectKey
    priority: int


@frozen
class Running:
    """A workload that holds quota and that the ClusterQueues allow to preempt.

    Attributes:
        key: namespace and name.
        uid: its UID.
        cluster_queue: where it holds quota.
        local_queue: the LocalQueue that it was submitted to.
        priority: its priority.
        labels: the labels of the Workload object.
        usage: its charge: CPU in milli-cores, memory in bytes, others in units.
        reserved_at: when its quota was reserved, in seconds since the epoch; None for an
            admission that the API server has not confirmed yet.
        started_at: when it was admitted; the present time for an admission that the API server
            has not confirmed yet, and None while an admission check decides.
        preempted: when it was preempted before, within `PreemptionPolicy.remembers`, ascending.
        queue_preempted: the same for all workloads of its LocalQueue. Victims that this cycle has
            chosen so far count as preempted at the present time.
    """

    key: ObjectKey
    uid: str
    cluster_queue: str
    local_queue: ObjectKey
    priority: int
    labels: Mapping[str, str]
    usage: Mapping[FlavorResource, int]
    reserved_at: float | None
    started_at: float | None
    preempted: tuple[float, ...] = ()
    queue_preempted: tuple[float, ...] = ()


@frozen
class Refusal:
    """A workload may not be preempted now.

    Attributes:
        why: a short text for people, for example "it ran for less than 600 s".
        until: when to ask again, in seconds since the epoch and later than now. None if time alone
            does not change the answer.
    """

    why: str
    until: float | None = None


class PreemptionPolicy:
    """Which workloads may be preempted now, and in which order. Subclass it to write your own.

    Attributes:
        name: its name in configuration, log and metrics.
        remembers: how many seconds the policy needs past preemptions; 0: not at all.
    """

    name: str = "kueue"
    remembers: float = 0.0

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        """Why a workload may not be preempted now; None if it may.

        It is not called for workloads that are already leaving, which always count as room.

        Args:
            asking: the workload that needs room.
            running: the workload that would have to leave.
            now: seconds since the epoch.
        """
        del asking, running, now
        return None

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        """The rank of a workload among equal candidates; the smallest leaves first.

        These precedences come first: candidates that are already leaving, those that use the
        preemptor's quota, and without fair sharing, other ClusterQueues before the own one. Equal
        ranks are in Kueue's own order.

        Args:
            asking: the workload that needs room.
            running: the workload that would have to leave; only preemptions before this cycle are
                filled in.
        """
        del asking
        reserved_at = running.reserved_at
        return (running.priority, float("-inf") if reserved_at is None else -reserved_at)


KUEUE = PreemptionPolicy()
"""Kueue's own policy."""


PROTECTOR = "The preemption policy "
"""The words before the name of a policy that protects workloads."""


@frozen
class Protected:
    """Candidates that a policy did not allow to preempt.

    Attributes:
        policy: its name.
        count: how many workloads it refused.
        why: the reason for the one that it would allow first.
        until: when it is asked again; None if time alone does not change its answers.
    """

    policy: str
    count: int
    why: str
    until: float | None

    @property
    def text(self) -> str:
        """One sentence for people, also in the condition message."""
        count = "1 workload" if self.count == 1 else f"{self.count} workloads"
        until = "" if self.until is None else f", the first until {format_time(self.until)}"
        return f"{PROTECTOR}{self.policy} protects {count}{until}: {self.why}"


@frozen
class Unevictable:
    """Candidates whose eviction the API server refused a short time ago.

    Attributes:
        key: the one that is tried again first.
        count: how many there are.
        why: the answer of the server for that one.
        until: when it is tried again.
    """

    key: ObjectKey
    count: int
    why: str
    until: float

    @property
    def text(self) -> str:
        """One sentence for people, also in the condition message."""
        others = f" (and {self.count - 1} more)" if self.count > 1 else ""
        again = format_time(self.until)
        return f"The eviction of {self.key}{others} was refused; tried again at {again}: {self.why}"


def again_after(*left_out: Protected | Unevictable | None) -> float | None:
    """When candidates that were left out may be chosen; None if time does not change that."""
    times = [one.until for one in left_out if one is not None]
    return min((at for at in times if at is not None), default=None)


class PolicyError(Exception):
    """A policy raised, or returned something that is not an answer.

    Attributes:
        args: one line that names the policy, its method and what is wrong.
    """


class WrongAnswerError(Exception):
    """A policy returned something that is not an answer."""


def checked_refusal(answer: Any, now: float) -> Refusal | None:
    """The answer of `refuse`, if it is one.

    Raises:
        WrongAnswerError: it is not; the message says why.
    """
    if answer is None:
        return None
    if not isinstance(answer, Refusal):
        raise WrongAnswerError(f"returned {_shown(answer)} instead of a Refusal or None")
    if answer.until is None:
        return answer
    if not _is_number(answer.until):
        raise WrongAnswerError(f"returned until={_shown(answer.until)}, which is not a time")
    if not now < answer.until < float("inf"):
        raise WrongAnswerError(
            f"returned until={answer.until}, which is not later than now ({now})"
        )
    return answer


def checked_order(answer: Any) -> tuple[float, ...]:
    """The answer of `order`, if it is one.

    Raises:
        WrongAnswerError: it is not; the message says why.
    """
    if not isinstance(answer, tuple) or not all(map(_is_number, answer)):
        raise WrongAnswerError(f"returned {_shown(answer)} instead of a tuple of numbers")
    return answer


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value  # noqa: PLR0124 - NaN has no order


def _shown(value: Any) -> str:
    """A value as text, even if its class raises."""
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001 - code of others
        return f"a {type(value).__name__}"
