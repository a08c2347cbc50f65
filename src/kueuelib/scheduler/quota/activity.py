"""Whether a ClusterQueue can admit workloads, and the condition that says so."""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.kueue import NONE
from kueuelib.api.names import (
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_NOT_FOUND,
    REASON_READY,
    REASON_STOPPED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.queue_spec import Flavor, QueueSpec


@frozen
class Activity:
    """The Active condition of a ClusterQueue.

    Attributes:
        active: its status.
        reason: its reason; with several causes the first of Stopped, FlavorNotFound,
            AdmissionCheckNotFound, AdmissionCheckInactive, TopologyNotFound, CohortCycle.
        message: its message, with all causes and names.
    """

    active: bool
    reason: str
    message: str


ACTIVE = Activity(active=True, reason=REASON_READY, message="Can admit new workloads")
UNKNOWN = Activity(active=False, reason=REASON_NOT_FOUND, message="ClusterQueue not found")


def activity_of(
    spec: QueueSpec, flavors: Mapping[str, Flavor], checks: Mapping[str, bool], endless: str = ""
) -> Activity:
    """The activity of a ClusterQueue.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist.
        checks: the AdmissionChecks that exist, and whether they are active.
        endless: its cohort if the parents of that form a cycle, otherwise empty.
    """
    if spec.terminating:
        text = "Can't admit new workloads; clusterQueue is terminating"
        return Activity(active=False, reason=REASON_TERMINATING, message=text)
    causes = []
    if spec.stop_policy != NONE:
        causes.append((REASON_STOPPED, "is stopped"))
    missing = sorted(name for name in spec.flavors if name not in flavors)
    if missing:
        text = f"references missing ResourceFlavor(s): {','.join(missing)}"
        causes.append((REASON_FLAVOR_NOT_FOUND, text))
    names = sorted({check.name for check in spec.checks})
    missing = [name for name in names if name not in checks]
    if missing:
        text = f"references missing AdmissionCheck(s): {','.join(missing)}"
        causes.append((REASON_CHECK_NOT_FOUND, text))
    idle = [name for name in names if not checks.get(name, True)]
    if idle:
        text = f"references inactive AdmissionCheck(s): {','.join(idle)}"
        causes.append((REASON_CHECK_INACTIVE, text))
    for name in sorted(flavors.keys() & spec.flavors):
        if topology := flavors[name].topology:
            text = f'there is no Topology "{topology}" for TAS flavor "{name}"'
            causes.append((REASON_TOPOLOGY_NOT_FOUND, text))
    if endless:
        text = f"is in Cohort {endless}, whose parents form a cycle"
        causes.append((REASON_COHORT_CYCLE, text))
    if not causes:
        return ACTIVE
    message = f"Can't admit new workloads: {', '.join(text for _, text in causes)}."
    return Activity(active=False, reason=causes[0][0], message=message)
