"""Resolves the priority of a job's Workload (KEP-369)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kueuelib.api.kinds import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES
from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import KueuelibError

if TYPE_CHECKING:
    from kueuelib.jobs.contract.generic_job import GenericJob, PodSet


class PriorityClassNotFound(KueuelibError):
    """A job names a class that does not exist (yet); a retry may succeed."""


@attrs.frozen
class PriorityClasses:
    """The raw classes that exist, by name.

    Attributes:
        workload: WorkloadPriorityClasses.
        pod: PriorityClasses.
    """

    workload: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    pod: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)


@attrs.frozen
class Priority:
    """A resolved priority.

    Attributes:
        value: higher goes first.
        source: the kind of the class, None when there is no class.
        name: of the class, empty when there is none.
    """

    value: int = 0
    source: Resource | None = None
    name: str = ""

    def spec(self) -> Obj:
        """The fields of a Workload's spec."""
        fields: Obj = {"priority": self.value}
        if self.source is not None:
            fields["priorityClassRef"] = class_ref(self.source, self.name)
        return fields


def class_ref(source: Resource, name: str) -> Obj:
    """A `priorityClassRef`."""
    return {"group": source.group, "kind": source.kind, "name": name}


def resolve(job: GenericJob, pod_sets: Sequence[PodSet], classes: PriorityClasses) -> Priority:
    """The priority of the job's label, or of its pods' class, or the global default, or 0.

    Raises:
        PriorityClassNotFound: the class that is named does not exist.
    """
    if job.workload_priority_class:
        return _of(WORKLOAD_PRIORITY_CLASSES, job.workload_priority_class, classes.workload)
    name = pod_priority_class(job, pod_sets)
    if name:
        return _of(PRIORITY_CLASSES, name, classes.pod)
    defaults = [
        priority_class
        for priority_class in classes.pod.values()
        if priority_class.get("globalDefault")
    ]
    if not defaults:
        return Priority()
    chosen = min(
        defaults,
        key=lambda priority_class: (priority_class["value"], priority_class["metadata"]["name"]),
    )
    return Priority(chosen["value"], PRIORITY_CLASSES, chosen["metadata"]["name"])


def pod_priority_class(job: GenericJob, pod_sets: Sequence[PodSet]) -> str:
    """The PriorityClass of the job's pods, empty for none."""
    from kueuelib.jobs.contract.capabilities import JobWithPriorityClass
    from kueuelib.jobs.contract.generic_job import first_of_templates

    if isinstance(job, JobWithPriorityClass):
        return job.priority_class()
    return first_of_templates(pod_sets)


def _of(source: Resource, name: str, known: Mapping[str, Mapping[str, Any]]) -> Priority:
    priority_class = known.get(name)
    if priority_class is None:
        raise PriorityClassNotFound(f'{source.kind} "{name}" is not found')
    return Priority(int(priority_class.get("value") or 0), source, name)
