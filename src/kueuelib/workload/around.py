"""Gathers the objects that a decision about a Workload depends on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kueuelib.api.kueue import AFTER_CHECK_PASSED_OR_ON_DEMAND, CHECK_RETRY
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.activity import Activity
from kueuelib.scheduler.reasons import Reason
from kueuelib.workload import states
from kueuelib.workload.checks import may_preempt, required_checks
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.next_step import Surroundings
from kueuelib.workload.states import Phase

DEFAULT_RETRY_MINUTES = 15


class Objects(Protocol):
    """Raw objects by name; None for one that does not exist.

    Implemented by `Informers` in `controllers/workload.py` and by the simulator in `lives.py`.
    """

    def local_queue(self, key: ObjectKey) -> Obj | None:
        """A LocalQueue."""
        ...

    def cluster_queue(self, name: str) -> Obj | None:
        """A ClusterQueue."""
        ...

    def check(self, name: str) -> Obj | None:
        """An AdmissionCheck."""
        ...


class Judgements(Protocol):
    """The knowledge of the decision engine: `Engine` has these methods."""

    def activity(self, name: str) -> Activity:
        """Whether a ClusterQueue can admit."""
        ...

    def void_reservation(self, key: ObjectKey, *, flavors_only: bool = False) -> Reason | None:
        """Why a reservation may not become an admission; None if it still may."""
        ...


def surroundings(
    wl: Obj, objects: Objects, judgements: Judgements, life: LifeSettings
) -> Surroundings:
    """The queues and checks of a Workload; those of a finished one do not matter.

    Args:
        wl: the raw Workload.
        objects: finds the objects around it.
        judgements: the engine's knowledge about them.
        life: the settings for times.
    """
    if states.is_finished(wl):
        return Surroundings(life=life)
    queue_key = ObjectKey(key_of(wl).namespace, wl["spec"].get("queueName") or "")
    raw_queue = objects.local_queue(queue_key)
    local_queue = None if raw_queue is None else LocalQueueFacts.of_raw(raw_queue)
    admission = states.status_of(wl).get("admission") or {}
    name = admission.get("clusterQueue")
    if not name and local_queue is not None:
        name = local_queue.cluster_queue
    if not name:
        return Surroundings(local_queue, life=life)
    cluster_queue = objects.cluster_queue(name)
    return Surroundings(
        local_queue,
        cluster_queue,
        judgements.activity(name),
        {check: _retry_delay(objects.check(check)) for check in states.checks_in(wl, CHECK_RETRY)},
        _void(wl, cluster_queue, objects, judgements),
        life,
    )


def _void(
    wl: Obj, cluster_queue: Obj | None, objects: Objects, judgements: Judgements
) -> Reason | None:
    if states.phase_of(wl) is not Phase.RESERVED:
        return None
    # A check counts from the reservation on, also before it is listed in the status.
    required = required_checks(cluster_queue or {}, states.status_of(wl).get("admission"))
    early = not may_preempt(wl, required, _late(required, objects))
    return judgements.void_reservation(key_of(wl), flavors_only=early)


def _late(required: Collection[str], objects: Objects) -> frozenset[str]:
    """Those of the checks that must pass or ask before preemption. One that is gone can do neither,
    so no Workload is preempted for it.
    """
    checks = {name: objects.check(name) for name in required}
    return frozenset(
        name
        for name, check in checks.items()
        if check is None
        or (check.get("spec") or {}).get("preemptionPolicy") == AFTER_CHECK_PASSED_OR_ON_DEMAND
    )


def _retry_delay(check: Obj | None) -> float:
    minutes = ((check or {}).get("spec") or {}).get("retryDelayMinutes")
    return 60.0 * (DEFAULT_RETRY_MINUTES if minutes is None else minutes)
