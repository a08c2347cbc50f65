"""The past usage of LocalQueues, which decides whose turn it is (KEP-4136).

Usage follows from facts alone: the usage of a workload counts while it is admitted, and decays
afterwards. In addition, every reservation costs an *entry penalty*, as if its workload had run for
one sampling interval. So a LocalQueue that submits many workloads at once loses its place after the
first ones, and not only at the next sample. The penalty stays in the history once the workload is
admitted. Otherwise it ends with the reservation.

The order of LocalQueues changes only with samples and penalties. Samples belong to whole multiples
of the interval since the epoch, so all replicas sample the same instants, even if they are late. A
restart needs only the last stored sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import floor, inf
from typing import Final

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.cache import Tally
from kueuelib.scheduler.quota.decay import (
    ONE,
    UNUSED,
    Nanos,
    Value,
    decayed,
    gained,
    left,
    times,
    total,
)
from kueuelib.scheduler.quota.holders import Holder

_NANO: Final = 10**9
_NOTHING: Final = Tally()


@frozen
class UsageRule:
    """How past usage counts (`admissionFairSharing` of the configuration).

    Attributes:
        half_life: seconds after which it counts half; 0: it does not count.
        interval: seconds between two samples, more than 0.
        weights: how much a unit of a resource counts; 1 for unnamed ones. A unit is a CPU, a byte,
            or whatever the resource counts.
    """

    half_life: float
    interval: float = 300.0
    weights: Mapping[str, Fraction] = attrs.field(factory=dict)

    @property
    def entry(self) -> int:
        """The part of a reservation that is its penalty, in 2^64ths."""
        return ONE - left(self.interval, self.half_life) if self.half_life else 0

    def grid(self, now: float) -> float:
        """The instant of the last sample, in seconds since the epoch."""
        return floor(Fraction(now) / Fraction(self.interval)) * self.interval

    def value(self, amounts: Nanos, weight: Fraction) -> Value:
        """Amounts as one number; infinite for a LocalQueue with weight 0."""
        if not weight:
            return inf
        weighted = (
            amount * self.weights.get(name, Fraction(1)) for name, amount in amounts.items()
        )
        return sum(weighted, Fraction(0)) / _NANO / weight


@frozen
class Sample:
    """The past usage at one instant.

    Attributes:
        consumed: the decayed amounts, all flavors together.
        at: seconds since the epoch.
    """

    consumed: Nanos
    at: float


@attrs.define
class Account:
    """The past usage of one LocalQueue.

    Attributes:
        cluster_queue: its ClusterQueue.
        weight: the divisor of its usage.
        origin: the first sample contains everything before this time, in seconds since the epoch.
        sampled: the remaining usage at the last sample.
        since: the usage added after that, as of `at`.
        at: the time up to which usage was counted.
        entered: the penalties of workloads that were admitted after the last sample.
    """

    cluster_queue: str
    weight: Fraction
    origin: float
    at: float
    sampled: dict[str, int] = attrs.field(factory=dict)
    since: dict[str, int] = attrs.field(factory=dict)
    entered: dict[str, int] = attrs.field(factory=dict)


class PastUsage:
    """The past usage of all LocalQueues whose ClusterQueues order them by it.

    Args:
        rule: the rule.
        tally: returns the totals of a LocalQueue in a ClusterQueue, or None.

    Attributes:
        rule: the rule.
    """

    def __init__(self, rule: UsageRule, tally: Callable[[str, ObjectKey], Tally | None]) -> None:
        self.rule = rule
        self._tally = tally
        self._accounts: dict[ObjectKey, Account] = {}
        self._values: Mapping[ObjectKey, Value] = {}
        self._changed: dict[ObjectKey, None] = {}
        self._now = 0.0
        self._sampled_at = 0.0

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._accounts

    # --- time

    def is_due(self, now: float) -> bool:
        """Whether a sample is due before anything else."""
        return now >= self.next_sample() and self.rule.grid(now) > self._sampled_at

    def next_sample(self) -> float:
        """When the next sample is due, in seconds since the epoch."""
        return self._sampled_at + self.rule.interval

    def advance(self, now: float) -> None:
        """Advances the time, and takes a sample if it is due."""
        self._now = max(self._now, now)
        if not self.is_due(self._now):
            return
        grid = self.rule.grid(self._now)
        half_life = self.rule.half_life
        for key, account in self._accounts.items():
            self._count_until(key, account, grid)
            kept = decayed(account.sampled, grid - self._sampled_at, half_life)
            account.sampled = total((kept, account.since))
            account.since, account.entered = {}, {}
            self._changed[key] = None
        self._sampled_at = grid

    def _count_until(self, key: ObjectKey, account: Account, instant: float) -> None:
        elapsed, half_life = instant - account.at, self.rule.half_life
        if elapsed > 0:
            used = _nanos(self._in_use(key, account).used)
            account.since = total(
                (decayed(account.since, elapsed, half_life), gained(used, elapsed, half_life))
            )
            account.at = instant

    def _in_use(self, key: ObjectKey, account: Account) -> Tally:
        return self._tally(account.cluster_queue, key) or _NOTHING

    # --- LocalQueues

    def open(
        self,
        key: ObjectKey,
        cluster_queue: str,
        weight: Fraction,
        stored: Sample | None,
        holders: Iterable[Holder],
    ) -> None:
        """Begins to count a LocalQueue, unless it is counted already.

        Args:
            key: the LocalQueue.
            cluster_queue: its ClusterQueue.
            weight: the divisor of its usage.
            stored: the last stored sample; None: there was no usage before the present workloads.
            holders: the workloads that hold quota through it.
        """
        if key in self._accounts:
            return
        origin = -inf if stored is None else min(stored.at, self._now)
        account = Account(cluster_queue, weight, origin, self._now)
        if stored is not None:
            age = max(0.0, self._sampled_at - stored.at)
            account.sampled = decayed(stored.consumed, age, self.rule.half_life)
        self._accounts[key] = account
        self._changed[key] = None
        for holder in holders:
            self._credit(account, holder)

    def close(self, key: ObjectKey) -> None:
        """Forgets a LocalQueue."""
        if self._accounts.pop(key, None) is not None:
            self._changed[key] = None

    def weigh(self, key: ObjectKey, weight: Fraction) -> None:
        """Gives a LocalQueue another weight."""
        account = self._accounts.get(key)
        if account is not None:
            account.weight = weight
            self._changed[key] = None

    # --- workloads

    def before_change(self, key: ObjectKey) -> None:
        """Counts usage up to now; call it before the usage changes."""
        account = self._accounts.get(key)
        if account is not None:
            self._count_until(key, account, self._now)
            self._changed[key] = None

    def entered(self, holder: Holder) -> None:
        """Counts a newly admitted workload."""
        account = self._accounts.get(holder.local_queue)
        if account is not None:
            self._credit(account, holder)

    def _credit(self, account: Account, holder: Holder) -> None:
        """Counts a workload from its admission until now, and its penalty.

        It may have been seen late, after a sample without it, or it stems from before a restart.
        """
        if not holder.admitted or holder.cluster_queue != account.cluster_queue:
            return
        half_life, used = self.rule.half_life, _nanos(holder.usage)
        admitted_at = self._now if holder.admitted_at is None else holder.admitted_at
        admitted_at = min(admitted_at, self._now)
        began = max(admitted_at, account.origin)
        late, last = self._sampled_at, account.sampled
        if began < late:
            account.sampled = last = total((last, gained(used, late - began, half_life)))
        account.since = total(
            (account.since, gained(used, self._now - max(began, late), half_life))
        )
        if admitted_at < account.origin:
            return
        penalty = times(used, self.rule.entry)
        if began < late:
            account.sampled = total((last, decayed(penalty, late - began, half_life)))
        else:
            paid = decayed(penalty, self._now - began, half_life)
            account.since = total((account.since, paid))
            account.entered = total((account.entered, penalty))

    # --- what to read

    def sample(self, key: ObjectKey) -> Sample | None:
        """The last sample; None for a LocalQueue that does not count."""
        account = self._accounts.get(key)
        return None if account is None else Sample(account.sampled, self._sampled_at)

    def is_counting(self, key: ObjectKey) -> bool:
        """Whether the next sample of a LocalQueue may differ from the last one."""
        account = self._accounts.get(key)
        if account is None:
            return False
        return bool(account.sampled or account.since or self._in_use(key, account).reserving)

    def value(self, key: ObjectKey) -> Value:
        """The number that orders LocalQueues; the lowest comes first."""
        return self.values().get(key, UNUSED)

    def values(self) -> Mapping[ObjectKey, Value]:
        """The same for all LocalQueues that count, as an immutable value."""
        if self._changed:
            values = dict(self._values)
            for key in self._changed:
                account = self._accounts.get(key)
                if account is None:
                    values.pop(key, None)
                else:
                    values[key] = self._value(key, account)
            self._changed.clear()
            self._values = values
        return self._values

    def _value(self, key: ObjectKey, account: Account) -> Value:
        in_use = self._in_use(key, account)
        waiting = {
            pair: amount - in_use.used.get(pair, 0) for pair, amount in in_use.reserved.items()
        }
        penalty = times(_nanos(waiting), self.rule.entry)
        return self.rule.value(total((account.sampled, account.entered, penalty)), account.weight)


def _nanos(used: Amounts) -> Nanos:
    """Amounts by resource, all flavors together."""
    return total({pair.resource: quantity_of(pair.resource, used[pair]).nanos} for pair in used)
