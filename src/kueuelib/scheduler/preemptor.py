"""The preemptor as a function: the victims that leave so that a Workload gets quota (KEP-83).

A cycle calls the same search for each head whose quota is in use:
`kueuelib.scheduler.decide.preemption`.
"""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.explain.world import World


def choose_victims(world: World, key: ObjectKey, now: float) -> tuple[Victim, ...]:
    """The victims of one waiting Workload: those that must leave so that it gets quota.

    All other waiting Workloads are ignored. The set is minimal: if any one of the victims stayed,
    the Workload would not fit.

    Args:
        world: all facts; it is not changed.
        key: the waiting Workload.
        now: seconds since the epoch.

    Returns:
        the victims; none if the Workload fits already, if no victims suffice, or if it does not
        wait. `explain_workload` says which of these is the case.

    Raises:
        UnknownObject: there is no such Workload in the world.
    """
    world.workload(key)
    cycle = world.alone(key).engine(now).next_cycle(now)
    if cycle is None:
        return ()
    return tuple(
        victim
        for preemption in decide(cycle, now).preemptions
        if preemption.key == key
        for victim in preemption.victims
    )
