"""The methods that a kind of job needs in order to be queued (KEP-369).

A `GenericJob` wraps one object, as raw JSON, as a value of a class with `@crd`, or as a model of
kubernetes_asyncio. Methods change it in memory only: the framework works on a copy, compares its
raw form with the original and sends the difference as one merge patch: unknown fields survive.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

import attrs

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    annotations_of,
    copied,
    key_of,
    labels_of,
)
from kueuelib.api.models import ModelPart, encode_model, is_model, is_model_class, without_models
from kueuelib.api.names import (
    MAX_EXECUTION_LABEL,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    admission_gates,
    is_dns1123_label,
)
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.field_rules import identifier
from kueuelib.jobs.contract.podset_info import PodSetInfo, check_template
from kueuelib.jobs.contract.topology import asking_annotations, topology_request
from kueuelib.jobs.contract.typed_objects import class_of_objects, members_for, settle_methods

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, installed or not

    T = TypeVar("T", bound=Obj | Typed, default=Obj)
else:
    from typing import TypeVar

    T = TypeVar("T")

DEFAULT_POD_SET = "main"
"""The name of the only pod set of a job."""


def _raw_template(given: Obj | ModelPart) -> Obj:
    return encode_model(given) if is_model(given) else cast("Obj", given)


@attrs.frozen
class PodSet:
    """Pods of one shape that a job wants to run.

    Attributes:
        name: a DNS label, unique within the job.
        count: how many pods run at the same time at most.
        template: the raw `PodTemplateSpec`, a copy that may be kept; given as one, or as a model.
        min_count: the job can also run with as few pods as this; None when it cannot.
        topology_request: where the pods may be placed, raw; by default what the annotations of the
            template ask.
        path: of the template in the object, for messages.

    Raises:
        InvalidJob: the name, the count or the template is not valid.
    """

    name: str
    count: int
    template: Obj = attrs.field(converter=_raw_template)
    min_count: int | None = None
    topology_request: Obj | None = attrs.field()
    path: str = attrs.field(default="spec.template", eq=False)

    @topology_request.default
    def _asked(self) -> Obj | None:
        return topology_request(asking_annotations(self.template), None)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_dns1123_label(self.name):
            raise InvalidJob(
                f"PodSet({self.name!r})", "the name is not a DNS label such as workers"
            )
        if not isinstance(self.count, int) or self.count < 0:
            raise InvalidJob(
                f"PodSet({self.name!r})", f"count={self.count!r} is not a number of pods"
            )
        path = f"PodSet({self.name!r}).template"
        check_template(path, self.template)
        if not ((self.template or {}).get("spec") or {}).get("containers"):
            raise InvalidJob(f"{path}.spec.containers", "a pod has at least one container")

    def raw(self) -> Obj:
        """The entry of `spec.podSets` of a Workload."""
        entry: Obj = {"name": self.name, "count": self.count, "template": self.template}
        if self.min_count is not None:
            entry["minCount"] = self.min_count
        if self.topology_request is not None:
            entry["topologyRequest"] = self.topology_request
        return entry


def first_of_templates(pod_sets: Sequence[PodSet]) -> str:
    """The first PriorityClass that a pod template names, empty for none."""
    names = (entry.template.get("spec", {}).get("priorityClassName") for entry in pod_sets)
    return next((name for name in names if name), "")


@attrs.frozen
class JobEnd:
    """How a job ended.

    Attributes:
        succeeded: whether it did what it was made for.
        message: a sentence for people.
    """

    succeeded: bool
    message: str


class GenericJob(abc.ABC, Generic[T]):
    """One job of a kind that can be queued.

    A subclass names its `resource` and implements the abstract methods; for optional capabilities
    it also inherits from classes of `kueuelib.jobs`, such as `JobWithReclaimablePods`. All methods
    are pure: they read and change `self.object` and nothing else.

    `class Training(GenericJob)` has raw JSON as `object`. `class TrainingJob(GenericJob[Training])`
    has a value of a class with `@crd`, whose kind is its `resource`. Such values are immutable; a
    method assigns a changed one, `self.object = self.object.evolve(...)`. The object of
    `class BatchJob(GenericJob[V1Job])` is a model of kubernetes_asyncio, which methods change as
    they like; `self.raw` follows.

    Attributes:
        object: the object.

    Args:
        obj: the object as the API server sent it, or in another form; treat a raw one as read-only
            unless it is a `copy`.
    """

    object: T
    object_class: ClassVar[type[Typed] | None] = None
    """The class that `GenericJob[...]` names; None: `object` is raw JSON."""
    resource: ClassVar[Resource]
    """The kind, at the version that is read and written."""
    other_versions: ClassVar[tuple[str, ...]] = ()
    """Versions with the same fields, used if that of `resource` is not served; the first served
    one counts.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        """Make `object` a value of the class that `GenericJob[...]` names.

        Raises:
            ConfigError: that class has no `@crd`.
        """
        super().__init_subclass__(**more)
        named = class_of_objects(cls)
        if named is not None:
            for name, member in members_for(named).items():
                if name not in vars(cls):
                    setattr(cls, name, member)
        if is_model_class(cls.object_class):
            settle_methods(cls)

    def __init__(self, obj: Obj | Typed) -> None:
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(meta, dict) or "uid" not in meta:
            obj = cast("Obj", without_models(raw_of(obj)))  # somebody made it, maybe of models
        self.object = cast("T", obj)

    @property
    def raw(self) -> Obj:
        """The object as raw JSON, whatever `object` is."""
        return cast("Obj", self.object)

    def copy(self) -> Self:
        """The same job with its own copy of the object, which may be changed."""
        return type(self)(copied(self.raw))

    def suspended_copy(self) -> Self:
        """A copy after `suspend`; read-only: it may share parts that `suspend` does not change."""
        job = self.copy()
        job.suspend()
        return job

    # ---- what the framework knows of every object

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return key_of(self.raw)

    @property
    def uid(self) -> str:
        """The UID of the object."""
        return str(self.raw["metadata"]["uid"])

    @property
    def spec(self) -> Obj:
        """The raw spec of the object, to read and to change."""
        return self.raw["spec"]  # type: ignore[no-any-return]

    @property
    def status(self) -> Mapping[str, Any]:
        """The raw status of the object, to read; empty if it has none."""
        return self.raw.get("status") or {}

    @property
    def is_deleted(self) -> bool:
        """Whether the object is being deleted."""
        return bool(self.raw["metadata"].get("deletionTimestamp"))

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the label names, or the deprecated annotation; empty for none."""
        return labels_of(self.raw).get(QUEUE_LABEL) or annotations_of(self.raw).get(QUEUE_LABEL, "")

    @property
    def prebuilt_workload(self) -> str | None:
        """The name of an existing Workload that the job uses instead of one made for it, or
        None.
        """
        return identifier(self.raw, PREBUILT_LABEL) or None

    @property
    def workload_priority_class(self) -> str:
        """The WorkloadPriorityClass that the label names; empty for none."""
        return labels_of(self.raw).get(PRIORITY_CLASS_LABEL, "")

    @property
    def maximum_execution_seconds(self) -> int | None:
        """How long the job may be admitted, by its label or annotation; None: without a limit."""
        text = labels_of(self.raw).get(MAX_EXECUTION_LABEL) or annotations_of(self.raw).get(
            MAX_EXECUTION_LABEL, ""
        )
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    @property
    def admission_gates(self) -> tuple[str, ...]:
        """The gates that others remove before the job may be admitted (KEP-6915)."""
        return admission_gates(annotations_of(self.raw))

    # ---- what the kind has to say

    @abc.abstractmethod
    def is_suspended(self) -> bool:
        """Whether the spec suspends the job, and the last stop is complete."""

    @abc.abstractmethod
    def suspend(self) -> None:
        """Stop all pods."""

    @abc.abstractmethod
    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Let pods run, with what admission adds to each template.

        Args:
            infos: one per pod set, in the order of `pod_sets`; `count` is smaller than the pod
                set's if fewer pods were admitted.

        Raises:
            InvalidPodSetInfo: there are not as many infos as pod sets.
            InvalidPodSetUpdate: an info contradicts the template.
        """

    @abc.abstractmethod
    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Restore templates and counts as they were before the start.

        Args:
            infos: the state that each pod set should have: what its user wrote last, which is the
                present state without the additions of the start; empty if nothing is known.

        Returns:
            Whether anything changed.
        """

    @abc.abstractmethod
    def finished(self) -> JobEnd | None:
        """How the job ended; None while it has not."""

    @abc.abstractmethod
    def pod_sets(self) -> tuple[PodSet, ...]:
        """The pod sets of the job, always in the same order, without labels that a controller adds.

        Raises:
            InvalidJob: the object has none that could be queued; an event on it says why.
        """

    @abc.abstractmethod
    def is_active(self) -> bool:
        """Whether any pod runs or may run, except pods that `is_terminating` reports."""

    def is_ending(self) -> bool:
        """Whether the end is certain and no further pod will start, although `finished` is still
        None. Such a job is not stopped; an eviction frees its quota when no pod is active.
        """
        return False

    def is_terminating(self) -> bool:
        """Whether pods that are being deleted have not ended yet; False if the object does not say.

        Their quota is released with `quotaReleaseStrategy: OnTermination` only.
        """
        return False

    @abc.abstractmethod
    def pods_ready(self) -> bool:
        """Whether as many pods as expected are ready or have succeeded."""
