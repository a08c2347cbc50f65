"""The shares that statuses and metrics show (KEP-1714)."""

from __future__ import annotations

from kueuelib.scheduler.quota.cache import Cache
from kueuelib.scheduler.quota.share import share_of
from kueuelib.scheduler.quota.snapshot import Snapshot


def share_of_queue(cache: Cache, name: str) -> float:
    """The share of a ClusterQueue, not rounded.

    Infinite for one that borrows with weight 0; 0 without a cohort or if it does not exist.
    """
    snapshot = Snapshot(cache.freeze((name,)))
    queue = snapshot.queue(name)
    return 0.0 if queue is None else share_of(snapshot.nodes[queue.spec.name], snapshot.used).number


def share_of_cohort(cache: Cache, name: str) -> float:
    """The share of a cohort, not rounded.

    Infinite for one that borrows with weight 0; 0 for a root or a name that nothing uses.
    """
    frozen = cache.freeze_tree(name)
    if frozen is None:
        return 0.0
    node = frozen.trees[name].quota.cohort(name)
    return share_of(node, Snapshot(frozen).used).number
