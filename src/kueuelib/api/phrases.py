"""Texts for people: numbers with their nouns, lists that end somewhere, lengths of time; and the
text of a preemption, which several parts read.
"""

from __future__ import annotations

import re
from collections.abc import Collection

# ---- lengths of time as kubectl prints them ------------------------------------------------------


def duration(seconds: float) -> str:
    """A length of time as kubectl prints it: `3m25s`, `5h`, `7d12h`."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = total // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


# --------------------------------------------------------------------------------------------------

MOST_NAMES = 5


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun, in singular or plural.

    Args:
        count: the number.
        one: the singular.
        many: the plural; empty for the singular with an s.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def some(names: Collection[object], most: int = MOST_NAMES) -> str:
    """The first of some names, and how many more there are.

    Args:
        names: in their order.
        most: how many to write.
    """
    listed = ", ".join(str(name) for name in list(names)[:most])
    more = len(names) - most
    return f"{listed} and {more:,} more" if more > 0 else listed


PREEMPTED_FOR = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>[^,]*), JobUID: (?P<job>[^)]*)\) "
    r"due to (?P<why>.*?)(?:; preemptor path: (?P<path>.*?))?(?:; preemptee path: .*)?\Z",
    re.DOTALL,
)
"""The message of an eviction for another Workload, as today's Kueue writes it."""
