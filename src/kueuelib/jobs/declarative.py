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

What cannot be said in this way is said by a subclass of `GenericJob`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import is_dns1123_label
from kueuelib.errors import InvalidJob
from kueuelib.jobs import podset_info
from kueuelib.jobs.capabilities import JobWithReclaimablePods
from kueuelib.jobs.declaration_rules import (
    check_pods,
    check_resource,
    check_rest,
    check_shapes,
    check_versions,
)
from kueuelib.jobs.generic_job import DEFAULT_POD_SET, GenericJob, JobEnd, PodSet
from kueuelib.jobs.paths import check_path, elements, put, value
from kueuelib.jobs.podset_info import PodSetInfo
from kueuelib.jobs.registry import Integration, Validate, no_rules
from kueuelib.jobs.signs import Condition, Enough, Equals, Sign, check_sign, enough, equals, shows

__all__ = ["Condition", "Declaration", "Enough", "Equals", "Pods", "declare", "enough", "equals"]

_NEVER_ENOUGH = 2**31


@attrs.frozen
class Pods:
    """Where a kind keeps pods of one shape, or, with `each`, of several shapes.

    Attributes:
        name: of the pod set, a DNS label; with `each`, a path within the element, or empty for the
            element's key in lower case.
        template: the path of the pod template; what has no template there has no pods.
        count: how many pods: a number, the path of one, or several paths whose numbers are
            multiplied. What is absent counts as 1.
        min_count: the path of the fewest pods that the job can run with; then `count` must be one
            path, and is changed when fewer pods are admitted.
        succeeded: the path of how many of the pods are done and need no quota any more.
        each: the path of a list or mapping whose elements have a shape of pods each; the other
            paths are then within the element.
        order: the keys of the mapping at `each` that come first; others follow by name.

    Raises:
        ValueError: one of these cannot be, or two contradict each other; it is named.
    """

    name: str = DEFAULT_POD_SET
    template: str = "spec.template"
    count: int | str | tuple[str, ...] = 1
    min_count: str = ""
    succeeded: str = ""
    each: str = ""
    order: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_pods(self)


@attrs.frozen
class Declaration:
    """All that there is to know about a kind of jobs; see `declare`."""

    resource: Resource
    pods: tuple[Pods, ...]
    active: Sign | Sequence[Sign]
    ready: Sign | Sequence[Sign]
    succeeded: Sign | Sequence[Sign]
    failed: Sign | Sequence[Sign]
    suspend: str = "spec.suspend"
    message: str = ""


@attrs.frozen
class _Slot:
    """One pod set of one object; `place` and its template are parts of the object."""

    name: str
    place: Obj
    pods: Pods

    @property
    def template(self) -> Obj:
        found = value(self.place, self.pods.template)
        if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
            raise InvalidJob(self.pods.template, f"the pod set {self.name} needs a pod template")
        if not isinstance(found.get("metadata") or {}, dict):
            raise InvalidJob(f"{self.pods.template}.metadata", "must be a mapping")
        return found

    @property
    def count(self) -> int:
        given = self.pods.count
        if isinstance(given, int):
            return given
        product = 1
        for path in (given,) if isinstance(given, str) else given:
            found = _number(self.place, path)
            product *= 1 if found is None else found
        return product

    @property
    def min_count(self) -> int | None:
        return _number(self.place, self.pods.min_count) if self.pods.min_count else None

    def set_count(self, count: int) -> None:
        if self.min_count is not None and count != self.count:
            assert isinstance(self.pods.count, str)
            put(self.place, self.pods.count, count)


class DeclaredJob(GenericJob):
    """A job whose kind was declared; its classes are made by `declare`."""

    declaration: ClassVar[Declaration]

    def is_suspended(self) -> bool:
        """Whether the field that suspends is true."""
        return value(self.object, self.declaration.suspend) is True

    def suspend(self) -> None:
        """Set the field that suspends."""
        put(self.object, self.declaration.suspend, True)

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Add the infos to the templates and clear the field that suspends."""
        slots = self._slots()
        podset_info.check_count(self.resource.kind, infos, len(slots))
        for slot, info in zip(slots, infos, strict=True):
            podset_info.merge(slot.template, info)
            slot.set_count(info.count)
        put(self.object, self.declaration.suspend, False)

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Put templates and counts back."""
        before = copy.deepcopy(self.object)
        for slot, info in zip(self._slots(), infos, strict=False):
            podset_info.restore(slot.template, info)
            slot.set_count(info.count)
        return self.object != before

    def finished(self) -> JobEnd | None:
        """Told by the signs of success and failure."""
        count = self._count()
        for succeeded, sign in (
            (True, self.declaration.succeeded),
            (False, self.declaration.failed),
        ):
            if shows(self.object, sign, count):
                return JobEnd(succeeded, self._message(succeeded=succeeded))
        return None

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One per shape of pods.

        Raises:
            InvalidJob: there are none, two of them have one name, or a field has a wrong type.
        """
        slots = self._slots()
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
            PodSet(slot.name, slot.count, copy.deepcopy(slot.template), slot.min_count)
            for slot in slots
        )

    def is_active(self) -> bool:
        """Told by its sign."""
        return shows(self.object, self.declaration.active, self._count())

    def pods_ready(self) -> bool:
        """Told by its sign."""
        return shows(self.object, self.declaration.ready, self._count())

    def _message(self, *, succeeded: bool) -> str:
        path = self.declaration.message
        found = value(self.object, path) if path else None
        default = f"{self.resource.kind} {'finished successfully' if succeeded else 'failed'}"
        return str(found or default)

    def _count(self) -> int:
        """How many pods there are; when that cannot be told, none are ever enough."""
        try:
            return sum(slot.count for slot in self._slots())
        except InvalidJob:
            return _NEVER_ENOUGH

    def _slots(self) -> tuple[_Slot, ...]:
        return tuple(slot for pods in self.declaration.pods for slot in _slots(self.object, pods))


class ReclaimingDeclaredJob(DeclaredJob, JobWithReclaimablePods):
    """A declared job that tells how many of its pods are done."""

    def reclaimable_pods(self) -> Mapping[str, int]:
        """How many pods of each shape are done."""
        found = {}
        for slot in self._slots():
            done = _number(slot.place, slot.pods.succeeded) if slot.pods.succeeded else None
            if done:
                found[slot.name] = min(done, slot.count)
        return found


def declare(
    resource: Resource,
    *,
    pods: Sequence[Pods],
    active: Sign | Sequence[Sign],
    ready: Sign | Sequence[Sign],
    succeeded: Sign | Sequence[Sign],
    failed: Sign | Sequence[Sign],
    suspend: str = "spec.suspend",
    message: str = "",
    name: str = "",
    validate: Validate = no_rules,
    other_versions: Sequence[str] = (),
) -> Integration:
    """The integration of a kind that says by its fields all that there is to know.

    Args:
        resource: the kind, at the version that is read and written.
        pods: where the pod templates are, always in the same order.
        active: shown while any pod still uses what was reserved for it.
        ready: shown when as many pods as expected are ready or have succeeded.
        succeeded: shown once the job did what it was made for.
        failed: shown once it failed for good.
        suspend: the path of the boolean that lets no pod run.
        message: the path of a sentence about the end; without it there is a general one.
        name: of the integration in configurations; by default group and kind in lower case.
        validate: rules for objects of the kind beyond those for all.
        other_versions: versions with the same fields, read when that of `resource` is not served.

    Raises:
        ValueError: something here cannot be, or contradicts the rest; the argument is named.
    """
    check_resource(resource)
    signs = {"active": active, "ready": ready, "succeeded": succeeded, "failed": failed}
    try:
        check_shapes(pods, Pods)
        for argument, sign in signs.items():
            check_sign(argument, sign)
        check_path("suspend", suspend)
        if message:
            check_path("message", message, many=True)
        check_rest(name, validate)
        check_versions(resource, other_versions)
    except ValueError as error:
        raise ValueError(f"{resource.kind}: {error}") from None
    declaration = Declaration(
        resource, tuple(pods), active, ready, succeeded, failed, suspend, message
    )
    base = ReclaimingDeclaredJob if any(each.succeeded for each in pods) else DeclaredJob
    parts = {
        "resource": resource,
        "other_versions": tuple(other_versions),
        "declaration": declaration,
    }
    made = type(resource.kind, (base,), parts)
    return Integration.of(made, name, validate)


def _number(place: Obj, path: str) -> int | None:
    found = value(place, path)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise InvalidJob(path, f"{json.dumps(found)} is no whole number from 0 on")
    return found


def _slots(obj: Obj, pods: Pods) -> Iterator[_Slot]:
    if not pods.each:
        if value(obj, pods.template) is not None:
            yield _Slot(pods.name, obj, pods)
        return
    for key, place in sorted(elements(value(obj, pods.each)), key=lambda item: _rank(pods, item)):
        if value(place, pods.template) is not None:
            name = value(place, pods.name) if pods.name else key
            path = ".".join(filter(None, (f"{pods.each}[{key}]", pods.name)))
            yield _Slot(_lowered(name, path), place, pods)


def _lowered(name: Any, path: str) -> str:
    """The name of a pod set that its object gives it."""
    if name is None:
        raise InvalidJob(path, "a name is missing")
    if not isinstance(name, str) or not is_dns1123_label(name.lower()):
        raise InvalidJob(path, f"{json.dumps(name)} is no DNS label, not even in lower case")
    return name.lower()


def _rank(pods: Pods, item: tuple[str, Any]) -> tuple[int, str]:
    """Elements of a list in their order, values of a mapping by the order of their keys."""
    key, _ = item
    if key.isdigit():
        return int(key), ""
    first = pods.order.index(key) if key in pods.order else len(pods.order)
    return first, key
