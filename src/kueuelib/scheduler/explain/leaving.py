"""Workloads that leave because others preempt them (KEP-83).

A manager remembers which preemptor gets their room. Its conditions show the preemptors, so they are
decided before others, as they were in the manager. Which victims belong to which of them does not
matter. If one would not just wait for room, conditions are out of date: then all of its tree is
decided again, as a manager does after a restart.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey, find
from kueuelib.api.names import EVICTED, REASON_PREEMPTED
from kueuelib.api.phrases import PREEMPTED_FOR
from kueuelib.api.workload_state import has_quota
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.preemption.victims import MOST_NAMED, Victim
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import waits_for_victims


def is_leaving(workload: Workload) -> bool:
    """Whether a Workload was preempted and still holds its quota."""
    evicted = find(workload.status.conditions, EVICTED)
    if evicted is None or not evicted.is_true or evicted.reason != REASON_PREEMPTED:
        return False
    return has_quota(workload)


def engine_of(world: World, now: float) -> Engine:
    """A new engine that knows all facts, and which preemptors wait for room.

    Args:
        world: the facts.
        now: seconds since the epoch.
    """
    workloads, promised = world.workloads, _promised(world)
    while promised:
        held = {key: each for key, each in workloads.items() if has_quota(each)}
        first = held | {key: workloads[key] for key in promised}
        engine = attrs.evolve(world, workloads=first).engine(now)
        outdated = _outdated(engine, promised, now)
        if not outdated:
            for key, each in workloads.items():
                if key not in first:
                    engine.observe(events.WorkloadSet(each), now)
            return engine
        trees = {promised[key] for key in outdated}
        promised = {key: tree for key, tree in promised.items() if tree not in trees}
    return world.engine(now)


def _promised(world: World) -> dict[ObjectKey, frozenset[str]]:
    """The preemptors whose conditions say that they wait for room, and their trees."""
    if not world.settings.parallel_preemptors or not any(map(is_leaving, world.workloads.values())):
        return {}
    return {
        key: world.scope_of(queue)
        for key, each in world.workloads.items()
        if waits_for_victims(each) and (queue := world.cluster_queue_of(each)) is not None
    }


def _outdated(engine: Engine, promised: Collection[ObjectKey], now: float) -> set[ObjectKey]:
    """Decides preemptors; those that do not just wait for room."""
    outdated: set[ObjectKey] = set()
    while (cycle := engine.next_cycle(now)) is not None:
        settled = engine.settle(decide(cycle, now), now)
        outdated.update(admit.key for admit in settled.admissions)
        outdated.update(preemption.key for preemption in settled.preemptions)
    return outdated.union(key for key in promised if not engine.is_promised(key))


def note_on_leaving(world: World, key: ObjectKey, kept: Collection[ObjectKey]) -> tuple[str, ...]:
    """A sentence about the Workloads that leave for others than one that waits, if any do.

    Args:
        world: the facts.
        key: the one that waits.
        kept: the preemptors for which room is kept, which need no such sentence.
    """
    queue = world.cluster_queue_of(world.workloads[key])
    if queue is None or not world.settings.parallel_preemptors:
        return ()
    scope = world.scope_of(queue)
    names = {other.metadata.uid: str(each) for each, other in world.workloads.items()}
    known = {world.workloads[each].metadata.uid for each in (key, *kept)}
    leaving = []
    for each, other in sorted(world.workloads.items()):
        if is_leaving(other) and world.home_of(other) in scope:
            evicted = find(other.status.conditions, EVICTED)
            match = PREEMPTED_FOR.match(evicted.message) if evicted is not None else None
            preemptor = match["uid"] if match else ""
            if not preemptor or preemptor not in known:
                leaving.append(f"{each} (for {names.get(preemptor) or 'another Workload'})")
    if not leaving:
        return ()
    rest = len(leaving) - MOST_NAMED
    others = f" and {rest} more" if rest > 0 else ""
    text = (
        f"preempted Workloads are leaving: {', '.join(leaving[:MOST_NAMED])}{others}; the manager "
        "has promised their room, but this answer and its changes were decided again, as after a "
        "restart, so until they have left the manager may decide otherwise"
    )
    return (text,)


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
