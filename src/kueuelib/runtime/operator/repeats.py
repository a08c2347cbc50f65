"""Notices an object that is reconciled again and again because every call writes something."""

from __future__ import annotations

from collections.abc import Callable

from kueuelib.api.meta import ObjectKey

OFTEN = 20
"""Calls in a row that wrote something; a reconciler that has an aim reaches it sooner."""
WITHIN = 60.0
"""Seconds in which they came, and between two warnings about one object."""


class Repeats:
    """Counts the calls in a row that wrote something, by object.

    Args:
        monotonic: gives the time.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rows: dict[ObjectKey, tuple[float, int]] = {}

    def note(self, key: ObjectKey, *, wrote: bool) -> bool:
        """Learn of a call; whether it is time for a warning."""
        if not wrote:
            self._rows.pop(key, None)
            return False
        now = self._monotonic()
        since, count = self._rows.get(key, (now, 0))
        if now - since > WITHIN:
            since, count = now, 0
        self._rows[key] = since, count + 1
        return count + 1 == OFTEN
