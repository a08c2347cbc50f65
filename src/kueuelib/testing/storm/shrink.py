"""Shrinks a failing storm to the few faults that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["ddmin"]


def ddmin(
    labels: Sequence[str], fails: Callable[[frozenset[str]], bool], *, tries: int = 200
) -> tuple[str, ...]:
    """Return a small subset of labels that still fails (Zeller's delta debugging).

    Args:
        labels: All labels that may be left out; together they fail.
        fails: Runs the storm with only the given labels; `True` if it still fails.
        tries: The maximum number of runs.

    Returns:
        The remaining labels in their order; each is needed, unless the tries ran out.
    """
    kept = tuple(labels)
    if kept and tries > 0:
        tries -= 1
        if fails(frozenset()):
            return ()
    parts = 2
    while len(kept) >= 2 and tries > 0:
        size = -(-len(kept) // parts)
        smaller = None
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if tries <= 0:
                break
            tries -= 1
            if fails(frozenset(rest)):
                smaller = rest
                break
        if smaller is not None:
            kept = smaller
            parts = max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(kept))
    return kept
