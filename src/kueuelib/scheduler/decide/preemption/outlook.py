"""Whether preemption could free one flavor for one request; used while flavors are chosen.

Each pair of flavor and resource is tested separately, so the result is only a necessary condition.
Victims for the whole request are searched after the flavors are chosen (KEP-83).
"""

from __future__ import annotations

from kueuelib.scheduler.blockers import Mode, Outlook
from kueuelib.scheduler.decide.preemption.candidates import Preemptor
from kueuelib.scheduler.decide.preemption.search import find_once
from kueuelib.scheduler.decide.preemption.victims import Path, SearchResult, home_of
from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot, Usage
from kueuelib.scheduler.values import value


@value
class Simulation:
    """The result of preempting for one request in one flavor.

    Attributes:
        mode: `NO_CANDIDATES`, `PREEMPT` if workloads of the own ClusterQueue have to leave, or
            `RECLAIM` if only others have to.
        borrowing: how far up the ClusterQueue would then borrow; 0 for not at all.
        outlook: the same for the reason tree.
    """

    mode: Mode
    borrowing: int
    outlook: Outlook


def simulate(
    snapshot: Snapshot, preemptor: Preemptor, pair: FlavorResource, amount: int
) -> Simulation:
    """Tries to free `amount` of one pair.

    Args:
        snapshot: the state, which is not changed.
        preemptor: the workload that needs quota.
        pair: flavor and resource.
        amount: more than is available now.
    """
    result = find_once(snapshot, preemptor, frozenset((pair,)), {pair: amount})
    used = snapshot.used[pair]
    left = Usage(used) if result.victims else used
    for victim in result.victims:
        place = snapshot.nodes[home_of(victim)]
        arithmetic.add(place, pair, -victim.holder.usage.get(pair, 0), left)
    home = snapshot.nodes[preemptor.queue.spec.name]
    borrowing, _ = arithmetic.level(home, pair, amount, left)
    mode = Mode.NO_CANDIDATES
    if result.victims:
        own = any(victim.path is Path.IN_CLUSTER_QUEUE for victim in result.victims)
        mode = Mode.PREEMPT if own else Mode.RECLAIM
    return Simulation(mode, borrowing, _outlook(result, pair))


def _outlook(result: SearchResult, pair: FlavorResource) -> Outlook:
    victims = tuple(sorted([victim.key for victim in result.victims]))
    lack = result.lacks.get(pair, 0)
    return Outlook(result.candidates, victims, lack, result.named, result.spared, result.borrowing)
