"""How tests are spread over the workers of a parallel run."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from spread import spread

TESTS = Path("/tests")


@attrs.frozen
class Item:
    name: str
    slow: bool = False

    @property
    def path(self):
        return TESTS / self.name.partition(":")[0]

    def get_closest_marker(self, name):
        assert name == "slow"
        return self if self.slow else None


def spread_names(items, workers):
    return [item.name for item in spread(items, TESTS, workers)]


def test_some_workers_begin_with_tests_that_wait_and_all_end_with_short_ones():
    items = [
        Item(f"{path}:{number}") for path in ("e2e/a", "storm/b", "unit/c") for number in "123"
    ]
    items += [Item(f"unit/d:{number}") for number in "123"]
    assert spread_names(items, 2) == [
        *("e2e/a:1", "e2e/a:2", "e2e/a:3", "unit/c:1", "unit/c:2", "unit/c:3"),
        *("storm/b:1", "storm/b:2", "storm/b:3", "unit/d:1", "unit/d:2", "unit/d:3"),
    ]


def test_slow_tests_come_first_one_by_one_and_modules_stay_together():
    items = [
        *(Item("storm/a:1"), Item("storm/a:2", slow=True), Item("storm/a:3", slow=True)),
        *(Item("storm/a:4"), Item("storm/b:1"), Item("unit/c:1", slow=True)),
    ]
    assert spread_names([*items, *(Item(f"unit/d:{n}") for n in range(10))], 4)[8:] == [
        *("storm/a:2", "unit/c:1", "storm/b:1", "unit/d:8"),
        *("storm/a:3", "storm/a:1", "storm/a:4", "unit/d:9"),
    ]


def test_modules_with_a_cluster_stay_together_and_slow_ones_come_first():
    items = [
        *(Item("e2e/a:1"), Item("e2e/b:1"), Item("e2e/b:2", slow=True)),
        *(Item(f"unit/c:{n}") for n in range(3)),
    ]
    assert spread_names(items, 2) == [
        *("e2e/b:1", "e2e/b:2", "e2e/a:1"),
        *("unit/c:0", "unit/c:1", "unit/c:2"),
    ]


@pytest.mark.parametrize("workers", range(2, 9))
def test_every_test_runs_once(workers):
    folders = ("conformance", "e2e", "storm", "unit")
    items = [Item(f"{folder}/{n % 5}:{n}", n % 4 == 0) for folder in folders for n in range(13)]
    items.sort(key=lambda item: item.path)
    assert sorted(spread_names(items, workers)) == sorted(item.name for item in items)


def test_what_is_too_long_for_a_run_stays_in_order():
    items = [Item(f"e2e/a:{number}") for number in "123456"]
    assert spread_names(items, 3) == [item.name for item in items]
