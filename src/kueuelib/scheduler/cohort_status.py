"""The quota and usage of a cohort and everything below it, for its status and its gauges."""

from __future__ import annotations

from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import Amounts, total_of
from kueuelib.scheduler.quota.cache import Cache
from kueuelib.scheduler.quota.weighted_share import share_of_cohort


@frozen
class CohortUsage:
    """The present numbers of a cohort, with or without an object.

    Attributes:
        parent: the cohort above, empty for a root.
        root: the top of its tree, empty when the parents form a cycle.
        cycle: the cohorts of that cycle, each before its parent.
        quota: the nominal quota of its subtree.
        reserved: the usage of all workloads with quota in the ClusterQueues below.
        admitted: how many workloads are admitted in the ClusterQueues below.
        share: its share of borrowed quota, infinite when it borrows with weight 0; None while fair
            sharing is off.
    """

    parent: str
    root: str
    cycle: tuple[str, ...]
    quota: Amounts
    reserved: Amounts
    admitted: int
    share: float | None


def cohort_status(cache: Cache, name: str, *, shares: bool) -> CohortUsage | None:
    """The numbers of a cohort; the cost is proportional to the number of ClusterQueues below.

    Args:
        cache: knows the trees.
        name: the cohort.
        shares: whether fair sharing is on.

    Returns:
        None if no object has the name and nothing uses it.
    """
    forest = cache.forest
    quota = forest.subtree_quota(name)
    if quota is None:
        return None
    cycle = forest.cycle_above(name)
    _, *above = forest.path(name)
    states = [state for queue in forest.below(name) if (state := cache.state(queue)) is not None]
    return CohortUsage(
        parent=above[0] if above else "",
        root="" if cycle else forest.root_of(name),
        cycle=cycle,
        quota={pair: limits.nominal for pair, limits in quota.items()},
        reserved=total_of(state.tally.reserved for state in states),
        admitted=sum(state.tally.admitted for state in states),
        share=share_of_cohort(cache, name) if shares else None,
    )
