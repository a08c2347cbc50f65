"""The order in which the heads of a cycle are decided, one at a time.

Without fair sharing, all are sorted once. With fair sharing, every decision may change the next
head, so the order is a tournament that continues while heads are decided (KEP-1714, "Admission
order").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from kueuelib.scheduler.decide.nomination import Entry
from kueuelib.scheduler.ordering import EntryOrder
from kueuelib.scheduler.quota.bracket import Bracket
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.quota.share import NOTHING, Share, borrowed, weigh
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import Settings


def in_turn(entries: Sequence[Entry], shown: Snapshot, settings: Settings) -> Iterator[Entry]:
    """The nominated heads, one after the other.

    Args:
        entries: the heads, one per ClusterQueue.
        shown: the state after the decisions so far, with victims still in place. It is read again
            after each head, and not changed.
        settings: the administrator's choices.
    """
    by_order = sorted(entries, key=attrgetter("order"))
    if settings.fair_sharing is None:
        return iter(by_order)
    return _tournament(by_order, shown)


def _tournament(entries: Sequence[Entry], shown: Snapshot) -> Iterator[Entry]:
    yield from (entry for entry in entries if entry.insists)
    left = {entry.queue.spec.name: entry for entry in entries if not entry.insists}
    nodes = [shown.nodes[entry.queue.spec.name] for entry in left.values()]
    bracket = Bracket(nodes, lambda node, leaf: _mark(shown, node, left[leaf.name]))
    while (leaf := bracket.best) is not None:
        yield left[leaf.name]
        bracket.drop(leaf)


class _Mark(NamedTuple):
    """The rank of a head among those of sibling nodes.

    Attributes:
        borrows: whether its node would borrow anything that the head asks for.
        share: the share that its node would have.
        order: priority and age.
    """

    borrows: bool
    share: Share
    order: EntryOrder


def _mark(shown: Snapshot, node: QuotaNode, entry: Entry) -> _Mark:
    """The rank of a node with the head that it sends."""
    usage = entry.proposal.usage
    order = (0, *entry.order[1:])
    if node.parent is None:
        return _Mark(borrows=False, share=NOTHING, order=order)
    mark = shown.mark()
    shown.add(entry.queue, usage)
    more = borrowed(node, shown.used)
    shown.undo(mark)
    return _Mark(any(usage.get(pair, 0) > 0 for pair in more), weigh(node, more), order)
