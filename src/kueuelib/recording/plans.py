"""Plans as short JSON whose words stay the same from version to version.

Parts that follow from the facts are left out: amounts, messages, waiting times.
"""

from __future__ import annotations

from hashlib import sha256

import orjson

from kueuelib.api.kueue import Admission
from kueuelib.api.meta import Obj
from kueuelib.scheduler.decide.cycle_values import Admit, Plan, Wait
from kueuelib.scheduler.decide.preemption.victims import Preemption

DIGITS = 16
"""Hexadecimal digits of a hash that are written."""


def plan_data(plan: Plan) -> Obj:
    """A plan as JSON, without empty parts.

    `admit`: workload, ClusterQueue, pod sets with their counts and flavors, whether it is admitted
    at once, and how far up the tree it borrows. `preempt`: workload, and its victims with the
    reasons. `wait`: workload, ClusterQueue, reason, and where it is queued.
    """
    return {
        name: part
        for name, part in (
            ("admit", list(map(_admit, plan.admissions))),
            ("preempt", list(map(_preempt, plan.preemptions))),
            ("wait", list(map(_wait, plan.waits))),
        )
        if part
    }


def preemptions_data(preemptions: tuple[Preemption, ...]) -> Obj:
    """The same for preemptions outside a cycle."""
    return {"preempt": list(map(_preempt, preemptions))} if preemptions else {}


def plan_hash(before: str, data: Obj) -> str:
    """The hash of a plan and of all plans before it.

    Args:
        before: the hash of the plan before; empty for the first one.
        data: the plan as JSON.
    """
    text = before.encode() + orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:DIGITS]


def _admit(admit: Admit) -> list[object]:
    sets = _sets(admit.admission)
    return [str(admit.key), admit.cluster_queue, sets, admit.admitted, admit.borrowing]


def _sets(admission: Admission) -> list[object]:
    return [
        [assignment.name, assignment.count, dict(sorted(assignment.flavors.items()))]
        for assignment in admission.pod_set_assignments
    ]


def _preempt(preemption: Preemption) -> list[object]:
    victims = [[str(victim.key), victim.path.value] for victim in preemption.victims]
    return [str(preemption.key), victims]


def _wait(wait: Wait) -> list[object]:
    reason = type(wait.reason).__name__
    return [str(wait.key), wait.cluster_queue, reason, wait.requeue.name]
