"""The best leaf of a tree, while ranks change."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kueuelib.scheduler.quota.node import Bracket, QuotaNode, alone, leaf
from kueuelib.scheduler.quota.queue_spec import QueueSpec


def cohort(name: str, above: QuotaNode | None = None) -> QuotaNode:
    return QuotaNode(name, False, {}, {}, ancestors=above.path if above else ())


def queue(name: str, above: QuotaNode | None = None) -> QuotaNode:
    return leaf(QueueSpec(name), above.path if above else ())


def test_without_leaves_there_is_no_best_one() -> None:
    assert Bracket([], lambda node, leaf: 0).best is None


def test_the_best_child_of_the_best_cohort_comes_first() -> None:
    """Whatever the children of another cohort are like."""
    top = cohort("top")
    left, right = cohort("left", top), cohort("right", top)
    leaves = [queue("a", left), queue("b", left), queue("c", right)]
    ranks = {"top": 0, "left": 1, "right": 2, "a": 9, "b": 8, "c": 0}
    bracket = Bracket(leaves, lambda node, leaf: ranks[node.name])
    assert bracket.best is leaves[1]
    ranks["left"] = 3
    bracket.touch(leaves[0])
    assert bracket.best is leaves[2]


def test_equals_are_ordered_by_name_and_the_dropped_are_gone() -> None:
    leaves = [queue(name, cohort("top")) for name in "cab"]
    bracket = Bracket(leaves, lambda node, leaf: 0)
    order = []
    while (best := bracket.best) is not None:
        order.append(best.name)
        bracket.drop(best)
    assert order == ["a", "b", "c"]


def test_who_has_no_rank_takes_no_part_until_it_has_one() -> None:
    top = cohort("top")
    leaves = [queue("a", top), queue("b", top)]
    ranks: dict[str, int | None] = {"top": 0, "a": None, "b": 1}
    bracket = Bracket(leaves, lambda node, leaf: ranks[node.name])
    assert bracket.best is leaves[1]
    ranks["a"] = 0
    bracket.touch(leaves[0])
    assert bracket.best is leaves[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_bracket_after_any_changes_is_like_a_new_one(seed: int) -> None:
    random = Random(seed)
    cohorts = [cohort("k0")]
    for index in range(1, 6):
        cohorts.append(cohort(f"k{index}", random.choice([*cohorts, None])))
    leaves = [queue(name, random.choice(cohorts)) for name in "abcdefgh"]
    ranks: dict[str, Any] = {}

    def rank(node: QuotaNode, sent: QuotaNode) -> Any:
        """What a node is worth may depend on whom it sends."""
        return ranks.setdefault((node.key, sent.key), random.choice([0, 1, 2, None]))

    bracket = Bracket(leaves, rank)
    for _ in range(30):
        changed = random.choice(leaves)
        for node in changed.path:
            for sent in leaves:
                ranks.pop((node.key, sent.key), None)
        if random.random() < 0.2 and len(leaves) > 1:
            leaves.remove(changed)
            bracket.drop(changed)
        else:
            bracket.touch(changed)
        assert bracket.best is Bracket(leaves, rank).best


def test_a_queue_without_cohort_is_always_the_same_node() -> None:
    """A new one in every cycle would be garbage that only the collector frees."""
    spec = QueueSpec("a")
    assert alone(spec) is alone(spec)
    assert alone(spec).path == (alone(spec),)


@pytest.mark.parametrize("seed", range(20))
def test_leaves_that_may_come_later_are_the_same_as_if_they_took_part_at_once(seed: int) -> None:
    random = Random(seed)
    cohorts = [cohort("k0")]
    for index in range(1, 6):
        cohorts.append(cohort(f"k{index}", random.choice(cohorts)))
    leaves = [queue(name, random.choice(cohorts)) for name in "abcdefgh"]
    ranks: dict[str, int | None] = {}
    for each in (*cohorts, *leaves):
        ranks[each.key] = random.choice([0, 1, 2, 3, None])
    least = {key: rank and rank - random.choice([0, 1]) for key, rank in ranks.items()}
    looked: set[str] = set()

    def rank(node: QuotaNode, sent: QuotaNode) -> int | None:
        looked.add(node.key)
        return ranks[node.key]

    first = leaves[0]
    for node in first.path:
        ranks[node.key] = least[node.key] = random.choice([0, 1, 2])
    later = Bracket(leaves, lambda node, sent: least[node.key])
    lazy = Bracket([first], rank, later)
    at_once = Bracket(leaves, lambda node, sent: ranks[node.key])
    order = []
    while (best := at_once.best) is not None:
        order.append(best.name)
        assert lazy.best is best
        if best is first or random.random() < 0.5:
            at_once.drop(best)
            lazy.drop(best)
        else:
            ranks[best.key] = random.choice([4, 5, None])
            at_once.touch(best)
            lazy.touch(best)
    assert lazy.best is None


def test_leaves_that_do_not_come_first_are_not_looked_at() -> None:
    top = cohort("top")
    leaves = [queue(name, top) for name in "abcd"]
    looked = []

    def rank(node: QuotaNode, sent: QuotaNode) -> str:
        looked.append(node.name)
        return node.name

    bracket = Bracket(leaves[:1], rank, Bracket(leaves, lambda node, sent: node.name))
    assert bracket.best is leaves[0]
    bracket.drop(leaves[0])
    assert bracket.best is leaves[1]
    assert {"c", "d"}.isdisjoint(looked)


def test_the_leaves_below_a_cohort_come_in_their_order() -> None:
    top = cohort("top")
    left, right = cohort("left", top), cohort("right", top)
    leaves = [queue("d", top), queue("b", left), queue("c", right), queue("a", right)]
    bracket = Bracket(leaves, lambda node, sent: sent.name)
    assert [name for name, _ in bracket.leaves_below(top, leaves[0])] == ["a", "b", "c"]
    assert [leaf for _, leaf in bracket.leaves_below(top, right)] == [leaves[1], leaves[0]]
