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
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from kueuelib.api.meta import Obj, Resource, annotations_of, copied
from kueuelib.api.names import is_dns1123_label, is_dns1123_subdomain
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.capabilities import (
    JobWithCustomStop,
    JobWithPriorityClass,
    JobWithReclaimablePods,
    JobWithSkip,
    Stop,
    StopReason,
    begin_stop,
    end_stop,
    forget_condition,
    is_stop_begun,
    is_unseen,
)
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd, PodSet, first_of_templates
from kueuelib.jobs.contract.integration import Integration, Validate, no_rules
from kueuelib.jobs.contract.paths import check_path, put, steps_of, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import asking_annotations, topology_request
from kueuelib.jobs.declared.pod_shape import AtMost, Done, Pods, Slot, slots_of
from kueuelib.jobs.declared.signs import (
    Differs,
    Enough,
    Equals,
    Every,
    HasCondition,
    Sign,
    check_sign,
    check_suspended,
    check_together,
    differs,
    enough,
    equals,
    every,
    message_of,
    never,
    outdated,
    shows,
)
from kueuelib.runtime.webhook.admission import shape_with

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


# ---- the rules for declarations of kinds of jobs; all are checked before anything runs -----------
# A mistake that only shows up in a webhook or a reconciler is seen by a user who did not make it.
# So every broken rule is a `ValueError` that names the argument.

_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")


def check_resource(resource: Any) -> None:
    """Check the resource of a kind of jobs.

    Raises:
        ValueError: it cannot be a kind of jobs.
    """
    if not isinstance(resource, Resource):
        raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong
            f"resource={resource!r} is not a Resource(group, version, plural, kind, "
            "namespaced=True)"
        )
    wrong = [
        f"{field}={value!r} {problem}"
        for field, value, holds, problem in (
            ("kind", resource.kind, _KIND.fullmatch, "is not a kind such as Training"),
            ("version", resource.version, _VERSION.fullmatch, "is not a version such as v1"),
            ("plural", resource.plural, is_dns1123_label, "is not a plural such as trainings"),
            ("group", resource.group or "core", is_dns1123_subdomain, "is not a group such as a.b"),
        )
        if not isinstance(value, str) or not holds(value)
    ]
    if not resource.namespaced:
        wrong.append("namespaced=False, but jobs are queued in namespaces")
    if wrong:
        raise ValueError(f"resource: {'; '.join(wrong)}")


def check_versions(resource: Resource, versions: Any) -> None:
    """Check the further versions of a kind.

    Raises:
        ValueError: one of them is not valid, or occurs twice.
    """
    if not isinstance(versions, list | tuple):
        raise ValueError(f"other_versions={versions!r} is not a tuple of versions")  # noqa: TRY004
    known = {resource.version}
    for version in versions:
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise ValueError(f"other_versions: {version!r} is not a version such as v1")
        if version in known:
            raise ValueError(f"other_versions: {version!r} is given twice")
        known.add(version)


def check_shapes(pods: Any) -> None:
    """Check that there are pods, and that the names of shapes differ.

    Raises:
        ValueError: there are none, or two have one name.
    """
    if not isinstance(pods, Sequence) or isinstance(pods, str):
        fix = "; write pods=[Pods(...)]" if isinstance(pods, Pods) else ""
        raise ValueError(f"pods={pods!r} is not a list of Pods(...){fix}")  # noqa: TRY004
    if not pods:
        raise ValueError("pods is empty: say where the pod templates are")
    names: set[str] = set()
    templates: set[str] = set()
    for index, each in enumerate(pods):
        if not isinstance(each, Pods):
            raise ValueError(f"pods[{index}]={each!r} is not Pods(...)")  # noqa: TRY004
        if each.each:
            continue
        name = each.name
        if name in names:
            raise ValueError(f"pods[{index}]: the name {name!r} is given twice")
        names.add(name)
        if each.when is None and each.template in templates:
            raise ValueError(f"pods[{index}]: the template {each.template!r} is given twice")
        templates |= {each.template} if each.when is None else set()


def check_rest(name: Any, validate: Any) -> None:
    """Check the other arguments of a declaration.

    Raises:
        ValueError: one of them is not valid.
    """
    if not isinstance(name, str) or name != "".join(name.split()) or "," in name:
        raise ValueError(f"name={name!r} is not a name such as example.com/training")
    if not callable(validate):
        raise ValueError(f"validate={validate!r} is not a function")  # noqa: TRY004


# ---- the field that suspends the jobs of a declared kind: a boolean, or a word -------------------
# A job that the manager suspends may have had a word of its own, which is neither of the two that
# the declaration names. An annotation keeps it until the job starts, and the start writes it back.

RESUMES_AS: Final = "kueuelib.dev/resumes-as"
"""The annotation: the word of a job before it was suspended, unless it is the declared one."""

NO_FIELD: Final = "for a kind without such a field, see docs/kinds-without-suspend.md"
"""What to do about a kind that cannot be declared."""


@attrs.frozen
class Word:
    """A field that suspends a job by a word, as `spec.job.state` does for a FlinkDeployment.

    With any other word than `suspended`, or without one, the job runs.

    Attributes:
        path: of the field, in the spec.
        suspended: the word that stops all pods.
        running: the word with which a job starts, unless its user wrote another one before.
    """

    path: str
    suspended: str
    running: str


Suspend = str | Word
"""The path of a boolean, or a word."""


def path_of(suspend: Suspend) -> str:
    """Where the field is."""
    return suspend.path if isinstance(suspend, Word) else suspend


def type_of(suspend: Suspend) -> str:
    """The type of the field, as schemas call it."""
    return "string" if isinstance(suspend, Word) else "boolean"


def is_suspended(obj: Obj, suspend: Suspend) -> bool:
    """Whether the field suspends a raw object."""
    present = value(obj, path_of(suspend))
    return bool(present == suspend.suspended if isinstance(suspend, Word) else present is True)


def suspend_in_place(obj: Obj, suspend: Suspend) -> None:
    """Make the field suspend a raw object; a word of its user is kept in an annotation."""
    if not isinstance(suspend, Word):
        put(obj, suspend, True)
        return
    present = value(obj, suspend.path)
    if present == suspend.suspended:
        return
    put(obj, suspend.path, suspend.suspended)
    own = isinstance(present, str) and present not in ("", suspend.running)
    _remember(obj, present if own else None)


def resume_in_place(obj: Obj, suspend: Suspend) -> None:
    """Make the field start a raw object, with the word of its user if there was one."""
    if not isinstance(suspend, Word):
        put(obj, suspend, False)
        return
    if not is_suspended(obj, suspend):
        return
    kept = annotations_of(obj).get(RESUMES_AS)
    put(obj, suspend.path, kept if kept and kept != suspend.suspended else suspend.running)
    _remember(obj, None)


def _remember(obj: Obj, word: str | None) -> None:
    notes = {key: text for key, text in annotations_of(obj).items() if key != RESUMES_AS}
    if word is not None:
        notes[RESUMES_AS] = word
    if notes != annotations_of(obj):
        obj["metadata"]["annotations"] = notes


def check_suspend(suspend: Any) -> None:
    """Check that users may set the field that suspends, and that its words differ.

    Raises:
        ValueError: they may not, or the words are not two different ones.
    """
    if not suspend:
        raise ValueError(f"suspend={suspend!r} is not a path such as spec.suspend; {NO_FIELD}")
    if not isinstance(suspend, str | Word):
        fix = "a path such as spec.suspend, or Word('spec.state', suspended='off', running='on')"
        raise ValueError(f"suspend={suspend!r} is not {fix}")  # noqa: TRY004 - one kind of error
    path = path_of(suspend)
    check_path("suspend", path)
    first, *rest = steps_of(path)
    if first != "spec" or not rest:
        raise ValueError(f"suspend={path!r} is not in the spec; give a path such as spec.suspend")
    if isinstance(suspend, Word):
        _check_words(suspend)


def _check_words(word: Word) -> None:
    for argument in ("suspended", "running"):
        given: Any = getattr(word, argument)
        if isinstance(given, bool):
            raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong
                f"suspend: {argument}={given!r} is not a word; for a boolean that suspends write "
                f"suspend={word.path!r}"
            )
        if not isinstance(given, str) or not given or given != given.strip():
            raise ValueError(f"suspend: {argument}={given!r} is not a word such as 'suspended'")
    if word.suspended == word.running:
        raise ValueError(f"suspend: suspended and running are both {word.running!r}")


# --------------------------------------------------------------------------------------------------

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
        before: Obj = copied(self.object)
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
        return tuple(map(_pod_set, slots))

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


def _pod_set(slot: Slot) -> PodSet:
    template = _template(slot)
    asked = topology_request(asking_annotations(template), slot.ranks)
    return PodSet(slot.name, slot.count, template, slot.min_count, asked, slot.path)


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
