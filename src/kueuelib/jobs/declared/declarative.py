"""Kinds of jobs that are declared by paths: the usual case of `GenericJob` (KEP-369).

    integration = declare(
        Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True),
        pods=[
            Pods("launcher", template="spec.launcher.template"),
            Pods("workers", template="spec.workers.template", count="spec.workers.replicas"),
        ],
        active="status.active",
        ready=enough("status.ready"),
        succeeded=equals("status.phase", "Succeeded"),
        failed=equals("status.phase", "Failed"),
        message="status.message",
    )

For kinds that cannot be declared like this, write a subclass of `GenericJob`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.capabilities import (
    JobWithCustomStop,
    JobWithPriorityClass,
    JobWithReclaimablePods,
    JobWithSkip,
    Stop,
    StopReason,
)
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd, PodSet, first_of_templates
from kueuelib.jobs.contract.integration import Integration, Validate, no_rules
from kueuelib.jobs.contract.paths import check_path, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.stopping import (
    begin_stop,
    end_stop,
    forget_condition,
    is_stop_begun,
    is_unseen,
)
from kueuelib.jobs.declared.contradictions import check_together
from kueuelib.jobs.declared.declaration_rules import (
    check_resource,
    check_rest,
    check_shapes,
    check_versions,
)
from kueuelib.jobs.declared.pod_counts import AtMost, Done
from kueuelib.jobs.declared.pod_shape import Pods
from kueuelib.jobs.declared.pod_slots import Slot, slots_of
from kueuelib.jobs.declared.signs import (
    Differs,
    Enough,
    Equals,
    Every,
    HasCondition,
    Sign,
    check_sign,
    check_suspended,
    differs,
    enough,
    equals,
    every,
    message_of,
    never,
    outdated,
    shows,
)
from kueuelib.jobs.declared.suspending import (
    Suspend,
    Word,
    check_suspend,
    is_suspended,
    path_of,
    resume_in_place,
    suspend_in_place,
    type_of,
)
from kueuelib.runtime.webhook.reviews import shape_with

__all__ = [
    "AtMost",
    "Declaration",
    "Differs",
    "Done",
    "Enough",
    "Equals",
    "Every",
    "HasCondition",
    "Pods",
    "Word",
    "declare",
    "differs",
    "enough",
    "equals",
    "every",
    "never",
    "outdated",
]

_NEVER_ENOUGH = 2**31


@attrs.frozen
class Declaration:
    """The whole declaration of a kind of jobs; see `declare`."""

    resource: Resource
    pods: tuple[Pods, ...]
    active: Sign | Sequence[Sign]
    ready: Sign | Sequence[Sign]
    succeeded: Sign | Sequence[Sign]
    failed: Sign | Sequence[Sign]
    suspend: Suspend = "spec.suspend"
    message: str = ""
    priority_class: str = ""
    skip: Sign | Sequence[Sign] = never
    terminating: Sign | Sequence[Sign] = never
    suspended: HasCondition | None = None


class DeclaredJob(GenericJob, JobWithSkip, JobWithPriorityClass):
    """A job of a declared kind; `declare` makes its classes."""

    declaration: ClassVar[Declaration]

    def is_suspended(self) -> bool:
        """Whether the field that suspends says so."""
        return is_suspended(self.object, self.declaration.suspend)

    def suspend(self) -> None:
        """Set the field that suspends."""
        suspend_in_place(self.object, self.declaration.suspend)

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Add the infos to the templates and clear the field that suspends."""
        slots = self.slots()
        podset_info.check_count(self.resource.kind, infos, len(slots))
        for slot, info in zip(slots, infos, strict=True):
            slot.merge(info)
            slot.set_count(info.count)
        resume_in_place(self.object, self.declaration.suspend)

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Put templates and counts back."""
        before = copy.deepcopy(self.object)
        for slot, info in zip(self.slots(), infos, strict=False):
            slot.restore(info)
            slot.set_count(info.count)
        return self.object != before

    def finished(self) -> JobEnd | None:
        """The end, by the signs of success and failure."""
        count = self._count()
        for succeeded, sign in (
            (True, self.declaration.succeeded),
            (False, self.declaration.failed),
        ):
            if shows(self.object, sign, count):
                return JobEnd(succeeded, self._message(sign, succeeded=succeeded))
        return None

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One per shape of pods.

        Raises:
            InvalidJob: there are none, two of them have one name, or a field has a wrong type.
        """
        slots = self.slots()
        if not slots:
            places = [
                ".*.".join(filter(None, (each.each, each.template)))
                for each in self.declaration.pods
            ]
            raise InvalidJob(" or ".join(places), "there is no pod template to queue")
        names = [slot.name for slot in slots]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            pods = next(slot.pods for slot in slots if slot.name == twice)
            problem = f'two pod sets have the name "{twice}" (upper and lower case are one)'
            raise InvalidJob(".*.".join(filter(None, (pods.each, pods.name))), problem)
        return tuple(
            PodSet(slot.name, slot.count, _template(slot), slot.min_count) for slot in slots
        )

    def is_active(self) -> bool:
        """Whether the object shows the sign."""
        return shows(self.object, self.declaration.active, self._count())

    def is_terminating(self) -> bool:
        """Whether the object shows the sign."""
        return shows(self.object, self.declaration.terminating, self._count())

    def pods_ready(self) -> bool:
        """Whether the object shows the sign."""
        return shows(self.object, self.declaration.ready, self._count())

    def skip(self) -> bool:
        """Whether the object shows the sign."""
        return shows(self.object, self.declaration.skip, 0)

    def priority_class(self) -> str:
        """The class in its own field, or else in the first template that names one."""
        path = self.declaration.priority_class
        name = value(self.object, path) if path else None
        return str(name) if name else first_of_templates(self.pod_sets())

    def _message(self, sign: Sign | Sequence[Sign], *, succeeded: bool) -> str:
        path = self.declaration.message
        message = value(self.object, path) if path else message_of(self.object, sign)
        default = f"{self.resource.kind} {'finished successfully' if succeeded else 'failed'}"
        return str(message or default)

    def _count(self) -> int:
        """The number of pods; if it is unknown, no number of ready pods is enough."""
        try:
            return sum(slot.count for slot in self.slots())
        except InvalidJob:
            return _NEVER_ENOUGH

    def slots(self) -> tuple[Slot, ...]:
        """The places of its pod templates, one for each pod set.

        Raises:
            InvalidJob: a name is missing, or cannot be that of a pod set.
        """
        return tuple(slot for pods in self.declaration.pods for slot in slots_of(self.object, pods))


class SeenStopDeclaredJob(DeclaredJob, JobWithCustomStop):
    """A declared job whose controller sets a condition when it has seen that it is suspended.

    The first write of a stop suspends the job and marks it. The mark is removed once no pod is
    active and the controller has seen the stop; until then the job is not started again.
    """

    restores_while_active: ClassVar[bool] = True
    """Whether the first write restores the templates as well; else the last one does."""

    def is_active(self) -> bool:
        """Whether the object shows the sign, or its controller has not seen the last stop yet."""
        return super().is_active() or (self.is_stopping() and self._is_unseen)

    def is_stopping(self) -> bool:
        """Whether it is suspended, and the mark of its stop has not been removed yet."""
        return super().is_suspended() and is_stop_begun(self.object)

    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """The remaining writes of: suspend, and once that was seen, restore and remove the mark."""
        del reason, message, now
        state, seen = self.copy(), self.declaration.suspended
        if not super().is_suspended():
            forgotten = forget_condition(state, seen.path, seen.type) if seen else ()
            restored = infos if self.restores_while_active else ()
            return Stop((*forgotten, begin_stop(state, restored)), stops_now=True)
        if self.is_active() and (self.is_stopping() or not self.restores_while_active):
            return Stop()
        return Stop(end_stop(state, infos))

    @property
    def _is_unseen(self) -> bool:
        seen = self.declaration.suspended
        return seen is not None and is_unseen(self.object, value(self.object, seen.path), seen.type)


class ReclaimingDeclaredJob(DeclaredJob, JobWithReclaimablePods):
    """A declared job that reports how many of its pods are done."""

    def reclaimable_pods(self) -> Mapping[str, int]:
        """How many pods of each shape are done."""
        return {slot.name: slot.succeeded for slot in self.slots() if slot.succeeded}


def _template(slot: Slot) -> Obj:
    template = copy.deepcopy(slot.template)
    if slot.added:
        containers = template["spec"].get("containers") or []
        template["spec"]["containers"] = [*containers, *copy.deepcopy([*slot.added])]
    return template


def declare(
    resource: Resource,
    *,
    pods: Sequence[Pods],
    active: Sign | Sequence[Sign],
    ready: Sign | Sequence[Sign],
    succeeded: Sign | Sequence[Sign],
    failed: Sign | Sequence[Sign],
    suspend: Suspend = "spec.suspend",
    message: str = "",
    priority_class: str = "",
    skip: Sign | Sequence[Sign] = never,
    terminating: Sign | Sequence[Sign] = never,
    suspended: HasCondition | None = None,
    name: str = "",
    validate: Validate = no_rules,
    allows_prebuilt: bool = False,
    other_versions: Sequence[str] = (),
) -> Integration:
    """The integration of a kind whose fields contain everything that is needed.

    Args:
        resource: the kind, at the version that is read and written.
        pods: where the pod templates are, always in the same order.
        active: shown while any pod runs or may run.
        ready: shown when as many pods as expected are ready or have succeeded.
        succeeded: shown once the job did what it was made for.
        failed: shown once it failed for good.
        suspend: the path of the boolean that suspends the job, or a `Word` that does so.
        message: the path of a sentence about the end; without it, the message of the condition
            that shows the end, or a general one.
        priority_class: the path of the name of a PriorityClass; if there is none, the first pod
            template that names one counts.
        skip: shown by objects of the kind that are left alone whatever their labels say.
        terminating: shown while pods that are being deleted have not ended, unless `active` counts
            them. Their quota is released with `quotaReleaseStrategy: OnTermination` only.
        suspended: the condition that the kind's controller sets to True when it has seen that a
            job is suspended, and not before. A stopped job keeps its quota until then. The kind
            needs the subresource `status`.
        name: of the integration in configurations; by default group and kind in lower case.
        validate: rules for objects of the kind beyond those for all.
        allows_prebuilt: whether its jobs may use an existing Workload.
        other_versions: versions with the same fields, used if that of `resource` is not served.

    Raises:
        ValueError: an argument is not valid or contradicts another one; the message names it.
    """
    check_resource(resource)
    signs = {
        "active": active,
        "ready": ready,
        "succeeded": succeeded,
        "failed": failed,
        "skip": skip,
        "terminating": terminating,
    }
    try:
        check_shapes(pods)
        for argument, sign in signs.items():
            check_sign(argument, sign)
        check_suspend(suspend)
        check_suspended(suspended)
        check_together(signs, suspended)
        if message:
            check_path("message", message, many=True)
        if priority_class:
            check_path("priority_class", priority_class)
        check_rest(name, validate)
        check_versions(resource, other_versions)
    except ValueError as error:
        raise ValueError(f"{resource.kind}: {error}") from None
    declaration = Declaration(
        resource,
        tuple(pods),
        active,
        ready,
        succeeded,
        failed,
        suspend,
        message,
        priority_class,
        skip,
        terminating,
        suspended,
    )
    reclaims = any(each.succeeded for each in pods)
    bases = [SeenStopDeclaredJob] * (suspended is not None) + [ReclaimingDeclaredJob] * reclaims
    parts = {
        "resource": resource,
        "other_versions": tuple(other_versions),
        "declaration": declaration,
    }
    made = type(resource.kind, tuple(bases) or (DeclaredJob,), parts)
    return attrs.evolve(
        Integration.of(made, name, validate, allows_prebuilt=allows_prebuilt),
        shape=shape_with({path_of(suspend).removeprefix("."): {"type": type_of(suspend)}}),
    )
