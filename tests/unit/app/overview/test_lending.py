"""Who lends: what is borrowed anywhere is lent somewhere else, and nobody lends what it uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.app.overview.cohort_trees import LendingNode, shares, spread
from kueuelib.scheduler.quota.amounts import Limits


def queue(nominal: int, used: int, lending: int | None = None) -> LendingNode:
    return LendingNode(Limits(nominal, None, lending), used)


def test_what_one_borrows_the_others_lend_in_proportion_to_what_they_do_not_use() -> None:
    borrower, busy, idle = queue(10, 16), queue(10, 8), queue(10, 6)
    root = LendingNode(children=(borrower, busy, idle))
    spread(root)
    assert (borrower.borrowed, busy.lent, idle.lent) == (6, 2, 4)
    assert (root.nominal, root.total, root.borrowed, root.lent) == (30, 30, 0, 0)


def test_what_a_cohort_owns_is_lent_first() -> None:
    borrower, idle = queue(10, 16), queue(10, 0)
    spread(LendingNode(Limits(5), children=(borrower, idle)))
    assert (borrower.borrowed, idle.lent) == (6, 1)


def test_what_is_never_lent_stays() -> None:
    borrower, guarded, open_ = queue(10, 14), queue(10, 0, lending=1), queue(10, 7)
    spread(LendingNode(children=(borrower, guarded, open_)))
    assert (guarded.lent, open_.lent) == (1, 3)
    assert (guarded.lendable, open_.lendable) == (1, 3)


def test_a_cohort_lends_to_its_neighbour_through_those_below_it() -> None:
    borrower, idle = queue(4, 9), queue(8, 1)
    left, right = LendingNode(children=(borrower,)), LendingNode(children=(idle,))
    spread(LendingNode(children=(left, right)))
    assert (left.borrowed, right.lent, idle.lent) == (5, 5, 5)


def test_more_than_there_is_is_lent_by_nobody() -> None:
    only = queue(2, 5)
    root = LendingNode(children=(only,))
    spread(root)
    assert (only.borrowed, root.borrowed, root.lent) == (3, 3, 0)


amounts = st.integers(0, 20)
queues = st.builds(queue, amounts, amounts, st.none() | amounts)
trees = st.recursive(
    queues,
    lambda below: st.builds(
        lambda own, lending, children: LendingNode(Limits(own, None, lending), 0, tuple(children)),
        amounts,
        st.none() | amounts,
        st.lists(below, min_size=1, max_size=4),
    ),
    max_leaves=12,
)


def every(node: LendingNode) -> list[LendingNode]:
    return [node, *(each for child in node.children for each in every(child))]


@given(trees)
def test_in_every_cohort_what_is_borrowed_comes_from_somewhere(root: LendingNode) -> None:
    spread(root)
    for node in every(root):
        assert 0 <= node.lent <= node.lendable or not node.lent
        assert node.total - node.borrowed + node.lent <= node.nominal
        if node.children:
            borrowed = sum(each.borrowed for each in node.children)
            needed = borrowed - node.borrowed + node.lent
            assert sum(each.lent for each in node.children) == max(0, needed - node.limits.nominal)


@given(st.data(), st.lists(amounts))
def test_shares_are_whole_and_never_too_large(data: st.DataObject, parts: list[int]) -> None:
    amount = data.draw(st.integers(0, sum(parts)))
    found = shares(amount, parts)
    assert sum(found) == amount
    assert all(0 <= mine <= part for mine, part in zip(found, parts, strict=True))
