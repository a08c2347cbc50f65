"""The work queue of a controller as a pure state machine."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

import attrs

from kueuelib.machinery.backoff import ItemExponential, RateLimiter

K = TypeVar("K", bound=Hashable)

LOW_PRIORITY = -100
"""For events of an initial list and for resyncs, so that live changes overtake them."""
PATIENCE = 10.0
"""Seconds after which a ready key is overdue."""


class Item(NamedTuple, Generic[K]):
    """A key handed to a worker.

    Attributes:
        key: what to work on.
        priority: the priority it had; a requeue passes it on.
        waited: seconds since it became ready.
    """

    key: K
    priority: int
    waited: float


class _Mode(Enum):
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


@attrs.define
class _Record:
    priority: int
    counter: int
    ready_at: float | None  # None: ready
    since: float = 0.0


class QueueCore(Generic[K]):
    """Keys to work on: each at most once, by priority, some of them later.

    The shell calls `pop_ready` for each free worker and `done` when the worker ends, and sleeps
    until `next_deadline` or an `add`. All `now` are seconds of one monotonic clock.

    Guarantees:
        - A key is never held by two workers. Adds before a pop lead to one run, adds during a run
          to exactly one more.
        - Ready keys are handed out by descending priority, then in the order they became ready.
        - A key that has been ready for `patience` seconds is overdue. As long as there is one,
          every second pop takes the one that became ready first, whatever its priority. So a busy
          queue delays the keys of a first list but does not starve them, and live changes lose at
          most half of the pops.
        - The earlier of two delays wins; an add without delay makes a waiting key ready; the higher
          of two priorities wins, and raising it puts the key behind its new equals.

    Args:
        limiter: how long failed keys wait.
        patience: seconds.

    Attributes:
        adds: how often a key became ready (`workqueue_adds_total`).
        retries: how often a key was added with a delay (`workqueue_retries_total`).
    """

    def __init__(
        self, limiter: RateLimiter[K] | None = None, *, patience: float = PATIENCE
    ) -> None:
        self._limiter: RateLimiter[K] = ItemExponential() if limiter is None else limiter
        self._records: dict[K, _Record] = {}
        self._patience = patience
        self._ready: list[tuple[int, int, K]] = []
        self._oldest: list[tuple[float, int, K]] = []  # the same keys, by the time they are ready
        self._overdue_before = False  # whether the last pop took an overdue key
        self._waiting: list[tuple[float, int, int, K]] = []
        self._processing: dict[K, float] = {}
        self._depth: dict[int, int] = {}
        self._counter = 0
        self._mode = _Mode.OPEN
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """How many keys are ready, including those whose earlier run still continues."""
        return sum(self._depth.values())

    @property
    def waiting(self) -> int:
        """How many keys are delayed."""
        return len(self._records) - len(self)

    @property
    def processing(self) -> int:
        """How many keys are being worked on."""
        return len(self._processing)

    @property
    def depth(self) -> Mapping[int, int]:
        """Ready keys by priority (`workqueue_depth`); no zeros."""
        return dict(self._depth)

    @property
    def exhausted(self) -> bool:
        """Whether `pop_ready` will never return a key again: workers may leave."""
        return self._mode is not _Mode.OPEN and not self._records

    @property
    def drained(self) -> bool:
        """Whether, in addition, no worker holds a key."""
        return self.exhausted and not self._processing

    def add(
        self,
        *keys: K,
        now: float,
        after: float = 0.0,
        priority: int | None = None,
        rate_limited: bool = False,
    ) -> bool:
        """Ask for a run of each key.

        Args:
            keys: what to work on.
            now: the time.
            after: not before that many seconds; zero or less: at once.
            priority: higher first; None is 0.
            rate_limited: delay by the rate limiter; of two delays above zero the smaller holds.

        Returns:
            whether that changed anything, so that `next_deadline` may be another one.
        """
        if self._mode is not _Mode.OPEN:
            return False
        self._advance(now)
        changed = False
        for key in keys:
            delay = max(after, 0.0)
            if rate_limited:
                limited = self._limiter.when(key, now)
                if limited > 0.0:
                    delay = min(delay, limited) if delay > 0.0 else limited
            if delay > 0.0:
                self.retries += 1
            if self._merge(key, now, now + delay if delay > 0.0 else None, priority or 0):
                changed = True
        return changed

    def pop_ready(self, now: float) -> Item[K] | None:
        """Hand out the next key, or None when none is ready."""
        if self._mode is _Mode.OPEN:
            self._advance(now)
        by_age = not self._overdue_before and self._is_overdue(now)
        self._overdue_before = by_age
        while self._ready:
            _, counter, key = heappop(self._oldest) if by_age else heappop(self._ready)
            if not self._is_ready(key, counter):
                continue
            record = self._records.pop(key)
            self._count(record.priority, -1)
            if not self._depth:
                self._oldest.clear()
            self._processing[key] = now
            return Item(key, record.priority, max(0.0, now - record.since))
        return None

    def done(self, key: K, now: float, *, settled: bool = False) -> tuple[float, bool]:
        """The worker ended its run of `key`; a key added meanwhile becomes available.

        Args:
            key: what it worked on.
            now: the time.
            settled: whether it took into account why the key was added meanwhile, so that this
                needs no other run; adds with a delay stay.

        Returns:
            how many seconds the run took, and whether `key` is available again.

        Raises:
            KeyError: no worker held the key.
        """
        took = max(0.0, now - self._processing.pop(key))
        record = self._records.get(key)
        if record is None or record.ready_at is not None:
            return took, False
        if settled:
            del self._records[key]
            self._count(record.priority, -1)
        else:
            self._file(key, record)
        return took, not settled

    def forget(self, key: K) -> None:
        """The key succeeded: the rate limiter forgets its failures."""
        self._limiter.forget(key)

    def is_busy(self) -> bool:
        """Whether a key is ready or being worked on."""
        return bool(self._processing or self._depth)

    def is_due(self, key: K, by: float) -> bool:
        """Whether an add without priority, for a time not before `by`, would change nothing."""
        record = self._records.get(key)
        return (
            record is not None
            and record.priority >= 0
            and (record.ready_at is None or record.ready_at <= by)
        )

    def num_requeues(self, key: K) -> int:
        """How many failures the rate limiter counts."""
        return self._limiter.num_requeues(key)

    def next_deadline(self, now: float) -> float | None:
        """When `pop_ready` is worth a call: `now`, later, or None: only after an add or done."""
        if self._waiting and self._waiting[0][0] <= now and self._mode is _Mode.OPEN:
            self._advance(now)
        while self._ready and not self._is_ready(self._ready[0][2], self._ready[0][1]):
            heappop(self._ready)
        if self._ready:
            return now
        while self._waiting:
            at, _, counter, key = self._waiting[0]
            if self._is_waiting(key, counter, at):
                return at
            heappop(self._waiting)
        return None

    def unfinished(self, now: float) -> float:
        """Seconds that running workers have spent together."""
        return sum(max(0.0, now - start) for start in self._processing.values())

    def longest_running(self, now: float) -> float:
        """Seconds that the longest running worker has spent."""
        return max((max(0.0, now - start) for start in self._processing.values()), default=0.0)

    def shut_down(self, *, drain: bool) -> None:
        """Ignore adds from now on, and drop delayed keys.

        Args:
            drain: hand out ready keys, and again those added during their run (as client-go does);
                False drops all keys at once (as controller-runtime does), also during a drain.
        """
        self._waiting.clear()
        if drain and self._mode is not _Mode.CLOSED:
            self._mode = _Mode.DRAINING
            ready = {key: each for key, each in self._records.items() if each.ready_at is None}
            self._records = ready
        else:
            self._mode = _Mode.CLOSED
            self._records.clear()
            self._ready.clear()
            self._oldest.clear()
            self._depth.clear()

    def _merge(self, key: K, now: float, ready_at: float | None, priority: int) -> bool:
        waiting = self._records.get(key)
        if waiting is None:
            record = _Record(priority, self._fresh(), ready_at)
            self._records[key] = record
            if ready_at is None:
                self._became_ready(record, now)
            self._file(key, record)
            return True
        changed = False
        if priority > waiting.priority:
            if waiting.ready_at is None:
                self._count(waiting.priority, -1)
                self._count(priority, 1)
            waiting.priority = priority
            waiting.counter = self._fresh()
            changed = True
        if waiting.ready_at is not None and (ready_at is None or ready_at < waiting.ready_at):
            waiting.ready_at = ready_at
            if ready_at is None:
                waiting.counter = self._fresh()
                self._became_ready(waiting, now)
            changed = True
        if changed:
            self._file(key, waiting)
        return changed

    def _advance(self, now: float) -> None:
        """Make every key ready whose time has come, in the order of their times."""
        while self._waiting and self._waiting[0][0] <= now:
            at, _, counter, key = heappop(self._waiting)
            if self._is_waiting(key, counter, at):
                record = self._records[key]
                record.ready_at = None
                record.counter = self._fresh()
                self._became_ready(record, at)
                self._file(key, record)

    def _became_ready(self, record: _Record, at: float) -> None:
        record.since = at
        self.adds += 1
        self._count(record.priority, 1)

    def _file(self, key: K, record: _Record) -> None:
        if record.ready_at is not None:
            heappush(self._waiting, (record.ready_at, -record.priority, record.counter, key))
        elif key not in self._processing:
            heappush(self._ready, (-record.priority, record.counter, key))
            heappush(self._oldest, (record.since, record.counter, key))
        limit = 2 * len(self._records) + 64
        if len(self._ready) > limit or len(self._oldest) > limit or len(self._waiting) > limit:
            self._compact(limit)

    def _is_overdue(self, now: float) -> bool:
        """Whether the key that has been ready for longest is overdue; drops what is superseded."""
        while self._oldest and not self._is_ready(self._oldest[0][2], self._oldest[0][1]):
            heappop(self._oldest)
        return bool(self._oldest) and now - self._oldest[0][0] >= self._patience

    def _is_ready(self, key: K, counter: int) -> bool:
        record = self._records.get(key)
        return record is not None and record.ready_at is None and record.counter == counter

    def _is_waiting(self, key: K, counter: int, at: float) -> bool:
        record = self._records.get(key)
        return record is not None and record.ready_at == at and record.counter == counter

    def _compact(self, limit: int) -> None:
        """Remove superseded heap entries before they outnumber the others."""
        if len(self._ready) > limit:
            self._ready = [each for each in self._ready if self._is_ready(each[2], each[1])]
            heapify(self._ready)
        if len(self._oldest) > limit:
            self._oldest = [each for each in self._oldest if self._is_ready(each[2], each[1])]
            heapify(self._oldest)
        if len(self._waiting) > limit:
            self._waiting = [
                each for each in self._waiting if self._is_waiting(each[3], each[2], each[0])
            ]
            heapify(self._waiting)

    def _count(self, priority: int, by: int) -> None:
        depth = self._depth.get(priority, 0) + by
        if depth:
            self._depth[priority] = depth
        else:
            del self._depth[priority]

    def _fresh(self) -> int:
        self._counter += 1
        return self._counter
