"""Partial admission: the largest pod counts that fit, between minCount and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kueuelib.scheduler.pending.workload_info import PodSetNeeds

T = TypeVar("T")


def can_shrink(pod_sets: tuple[PodSetNeeds, ...]) -> bool:
    """Whether any pod set may start with fewer pods than it still needs."""
    return any(_slack(pod_set) for pod_set in pod_sets)


def _slack(pod_set: PodSetNeeds) -> int:
    return 0 if pod_set.min_count is None else max(0, pod_set.count - pod_set.min_count)


def search(
    pod_sets: tuple[PodSetNeeds, ...], attempt: Callable[[tuple[int, ...]], T | None]
) -> T | None:
    """The result of the smallest reduction that works, found by bisection.

    All pod sets shrink in proportion to what they can spare. Counts start from the pods that still
    need quota, so reclaimable pods are not asked for again.

    Args:
        pod_sets: the pod sets of the workload.
        attempt: tries given counts; None if they do not fit. It is assumed to be monotone: if more
            pods fit, fewer fit as well.
    """
    slack = [_slack(pod_set) for pod_set in pod_sets]
    spread = sum(slack)
    low, high = 0, spread + 1
    best: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        counts = tuple(
            pod_set.count - spare * middle // spread
            for pod_set, spare in zip(pod_sets, slack, strict=True)
        )
        result = attempt(counts)
        if result is None:
            low = middle + 1
        else:
            best, high = (middle, result), middle
    return best[1] if best is not None and best[0] == low else None
