"""In which order the tests of a parallel run begin, so that no core is idle while others work.

The scheduler `worksteal` of pytest-xdist cuts the order into runs of equal length, one for each
worker, and a worker that is done takes from the end of the longest rest. So each run begins with
what takes long and ends with short tests. Two thirds of the runs begin with tests that mostly wait
for processes and clocks, the others with tests that compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, cycle, islice
from pathlib import Path

import pytest

WAITING = "e2e"
SHORT = "unit"


def spread(items: Sequence[pytest.Item], tests: Path, workers: int) -> list[pytest.Item]:
    """The same tests in another order.

    Args:
        items: the tests; those of one module follow each other.
        tests: the folder of all tests.
        workers: how many run them.
    """
    waiting, computing, short = [], [], []
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder == SHORT and not _is_slow(item):
            short.append(item)
        else:
            (waiting if folder == WAITING else computing).append(item)
    most = max(1, 2 * workers // 3)
    hands = [*_dealt(_modules(waiting), most), *_dealt(_apart(computing), workers - most)]
    rest = iter(short)
    runs = (
        [*hand, *islice(rest, max(0, _length(len(items), workers, number) - len(hand)))]
        for number, hand in enumerate(hands)
    )
    return [*chain.from_iterable(runs), *rest]


def _length(total: int, workers: int, number: int) -> int:
    """How many tests a worker gets: as the scheduler deals."""
    left = total
    for dealt in range(number):
        left -= left // (workers - dealt)
    return left // (workers - number)


def _dealt(bundles: Iterable[list[pytest.Item]], hands: int) -> list[list[pytest.Item]]:
    dealt: list[list[pytest.Item]] = [[] for _ in range(hands)]
    for hand, bundle in zip(cycle(dealt), bundles, strict=False):
        hand.extend(bundle)
    return dealt


def _modules(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """Modules, whose tests share a cluster, those with slow tests first."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    return sorted(modules.values(), key=lambda module: not any(map(_is_slow, module)))


def _apart(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Slow tests one by one, then the rest of the modules."""
    slow = [[item] for item in items if _is_slow(item)]
    return slow + _modules(item for item in items if not _is_slow(item))


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None
