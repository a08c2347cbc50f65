"""Workloads that leave because others preempted them (KEP-83).

A manager remembers which preemptor gets their room. Facts do not have all of that, so an answer
decides again, as a manager does after a restart.
"""

from __future__ import annotations

import re

from kueuelib.api import conditions
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import EVICTED, REASON_PREEMPTED
from kueuelib.scheduler.decide.preemption.victims import MOST_NAMED
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import holds_quota

_PREEMPTOR = re.compile(r"Preempted to accommodate a workload \(UID: ([^,]*),")


def is_leaving(workload: Workload) -> bool:
    """Whether a Workload was preempted and still holds its quota."""
    evicted = conditions.find(workload.status.conditions, EVICTED)
    if evicted is None or not evicted.is_true or evicted.reason != REASON_PREEMPTED:
        return False
    return holds_quota(workload)


def note_on_leaving(world: World, key: ObjectKey) -> tuple[str, ...]:
    """A sentence about the Workloads that leave for others than one that waits, if any do."""
    queue = world.cluster_queue_of(world.workloads[key])
    if queue is None or not world.settings.parallel_preemptors:
        return ()
    scope = world.scope_of(queue)
    names = {other.metadata.uid: str(each) for each, other in world.workloads.items()}
    mine = world.workloads[key].metadata.uid
    leaving = []
    for each, other in sorted(world.workloads.items()):
        if is_leaving(other) and world.home_of(other) in scope:
            evicted = conditions.find(other.status.conditions, EVICTED)
            match = _PREEMPTOR.match(evicted.message) if evicted is not None else None
            preemptor = match[1] if match else ""
            if not preemptor or preemptor != mine:
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
