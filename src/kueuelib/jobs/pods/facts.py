"""All that is known about one group at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of, controller_of
from kueuelib.api.names import IS_GROUP_WORKLOAD
from kueuelib.jobs.pods.pod_requests import NO_REQUESTS, PodRequests
from kueuelib.jobs.reconcile.priority import PriorityClasses

ENFORCE = "Enforce"
WARN = "Warn"


@attrs.frozen
class GroupFacts:
    """All that is known about one group at one moment.

    Attributes:
        namespace: of the group.
        name: of the group, and of its Workload.
        pods: the raw pods, all of them.
        workload: the raw Workload of that name, whosever it is.
        now: seconds since the epoch.
        classes: the priority classes by name.
        requests: compares what pods ask for with what was declared.
        policy: `Enforce`: pods that ask for more than was declared are deleted; `Warn`: they get
            an event.
        labels_to_copy: keys of labels that the Workload takes over.
    """

    namespace: str
    name: str
    pods: tuple[Obj, ...] = ()
    workload: Obj | None = None
    now: float = 0.0
    classes: PriorityClasses = attrs.field(factory=PriorityClasses)
    requests: PodRequests = NO_REQUESTS
    policy: str = ENFORCE
    labels_to_copy: tuple[str, ...] = ()

    @property
    def own(self) -> Obj | None:
        """The Workload, when it stands for this group."""
        return self.workload if self.workload and stands_for_group(self.workload) else None

    @property
    def owners(self) -> frozenset[str]:
        """The UIDs of the pods that the Workload counts already."""
        refs = (self.own or {"metadata": {}})["metadata"].get("ownerReferences") or ()
        return frozenset(ref["uid"] for ref in refs)

    @property
    def name_is_taken(self) -> bool:
        """Whether something else has a Workload of that name."""
        return self.workload is not None and self.own is None


def stands_for_group(workload: Mapping[str, Any]) -> bool:
    """Whether a raw Workload was made for a group of pods, and not for anything else."""
    marked = annotations_of(workload).get(IS_GROUP_WORKLOAD) == "true"
    refs = workload["metadata"].get("ownerReferences") or ()
    pods_only = all(ref.get("kind") == "Pod" and ref.get("apiVersion") == "v1" for ref in refs)
    return marked and pods_only and controller_of(workload) is None
