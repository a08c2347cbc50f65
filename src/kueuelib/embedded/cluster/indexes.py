"""Sets of completion indexes in the notation of Job statuses: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str | None, limit: int | None = None) -> set[int]:
    """The indexes in a text, ignoring those at or above the limit and invalid numbers."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            continue
        low = int(first)
        high = int(last) if dash else low
        if limit is not None:
            high = min(high, limit - 1)
        indexes.update(range(low, high + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """The text of a set of indexes."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
