"""In which order the tests of a parallel run begin, so that no core is idle while others work.

The scheduler `worksteal` of pytest-xdist cuts the order into runs of equal length, one for each
worker, and a worker that is done takes from the end of the longest rest. So each run begins with
what takes long and ends with short tests. Half of the runs begin with tests that mostly wait for
processes and clocks, the others with tests that compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
        if item.get_closest_marker("slow") is None and folder == SHORT:
            short.append(item)
        else:
            (waiting if folder == WAITING else computing).append(item)
    half = (workers + 1) // 2
    hands = [*_dealt(waiting, half), *_dealt(computing, workers - half)]
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


def _dealt(items: Sequence[pytest.Item], hands: int) -> list[list[pytest.Item]]:
    """Modules in turn, after slow tests one by one."""
    dealt: list[list[pytest.Item]] = [[] for _ in range(hands)]
    for hand, bundle in zip(cycle(dealt), _bundles(items), strict=False):
        hand.extend(bundle)
    return dealt


def _bundles(items: Iterable[pytest.Item]) -> Iterator[list[pytest.Item]]:
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is not None:
            yield [item]
        else:
            modules.setdefault(item.path, []).append(item)
    yield from modules.values()
