"""Counts how often the Workload of a job vanished, so that it is not created again blindly.

A job may exist only in the cache: its watch may lag or be silent. The garbage collector removes
every Workload of a deleted job, so a reconciler that trusts its cache would create one after the
other. Before a Workload is created *again*, its job is therefore read from the server (client-go
has the same rule: `RecheckDeletionTimestamp`), and each time the wait gets longer.
"""

from __future__ import annotations

import attrs

from kueuelib.api.meta import ObjectKey

FIRST_PAUSE = 1.0
"""Seconds until a Workload that vanished twice is created again; doubles each time."""
LAST_PAUSE = 60.0
"""The maximum number of seconds until a Workload is created again."""
STEADY = 10.0
"""Seconds that a Workload has to exist before its end counts as the first one again."""


@attrs.frozen
class Again:
    """A Workload would be created again.

    Attributes:
        wait: seconds to wait first; 0 if it may be created now.
    """

    wait: float = 0.0


@attrs.frozen
class _Trail:
    uid: str
    present: bool
    since: float
    times: int = 0


class Vanished:
    """How often the Workload of each job vanished.

    One entry for each job that has, or had, a Workload; `forget` removes it.
    """

    def __init__(self) -> None:
        self._trails: dict[ObjectKey, _Trail] = {}

    def __len__(self) -> int:
        return len(self._trails)

    def look(self, key: ObjectKey, uid: str, now: float, *, present: bool) -> Again | None:
        """Record whether a job has a Workload.

        Args:
            key: the job.
            uid: its UID; another one starts at 0.
            now: monotonic seconds.
            present: whether it has a Workload.

        Returns:
            None if the job has a Workload or never had one.
        """
        trail = self._trails.get(key)
        if trail is None or trail.uid != uid:
            trail = _Trail(uid, present, now)
        elif present is not trail.present:
            times = trail.times
            if not present:
                times = 1 if now - trail.since >= STEADY else times + 1
            trail = _Trail(uid, present, now, times)
        self._trails[key] = trail
        if present or not trail.times:
            return None
        return Again(max(trail.since + _pause(trail.times) - now, 0.0))

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted job."""
        self._trails.pop(key, None)


def _pause(times: int) -> float:
    if times == 1:
        return 0.0
    return min(FIRST_PAUSE * 2.0 ** min(times - 2, 10), LAST_PAUSE)
