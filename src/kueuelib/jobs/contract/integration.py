"""Describes a kind of jobs, in addition to the class of its jobs, and keeps all kinds (KEP-369)."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partialmethod
from typing import Any

import attrs

from kueuelib.api.forms import Typed
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource, group_kind_of
from kueuelib.api.names import PREBUILT_LABEL, QUEUE_LABEL
from kueuelib.errors import ConfigError, FieldError
from kueuelib.jobs.contract import capabilities
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.machinery.store import Transform, strip
from kueuelib.runtime.webhook.admission import Shape, Shapes, WebhookEntry, types_of

# ---- checks how the methods of a class of jobs can be called, before anything runs ---------------
# A method that is `async`, takes other arguments or is a field would otherwise fail, or always
# count as true, in a reconciler or a webhook. There the error would reach a user who did not write
# it.

_CAPABILITIES: tuple[abc.ABCMeta, ...] = tuple(
    each for each in vars(capabilities).values() if inspect.isabstract(each)
)
_READ_FROM_LABELS = {"queue_name": QUEUE_LABEL, "prebuilt_workload": PREBUILT_LABEL}
_PROPERTIES = tuple(
    name for name, member in vars(GenericJob).items() if isinstance(member, property)
)


def check_methods(subject: str, job_type: type[GenericJob[Any]]) -> None:
    """Check the methods and properties of a class of jobs.

    Args:
        subject: what an error is about.
        job_type: the class.

    Raises:
        ConfigError: one of them is missing, or cannot be called as the framework calls it.
    """
    if missing := ", ".join(sorted(job_type.__abstractmethods__)):
        raise ConfigError(subject, f"has no {missing}", "write these methods")
    if job_type.resource.group == KUEUE:
        problem = f"resource is of the group {KUEUE}, which has no jobs"
        raise ConfigError(subject, problem, "set resource to the kind of your jobs")
    for name, arguments in _called(job_type):
        member = inspect.getattr_static(job_type, name)
        written = f"write def {name}({', '.join(arguments)})"
        refused = isinstance(member, property | partialmethod)
        if refused or not callable(getattr(job_type, name)):
            problem = f"{name} is a {type(member).__name__}, not a method"
            raise ConfigError(subject, problem, written)
        if _is_async(getattr(job_type, name)):
            raise ConfigError(subject, f"{name} is async", f"{written}: methods do no I/O")
        if not _takes(job_type, name, member, arguments):
            raise ConfigError(subject, f"{name} takes other arguments", written)
    for name, label in _READ_FROM_LABELS.items():
        if inspect.getattr_static(job_type, name) is not vars(GenericJob)[name]:
            fix = f"set the label {label} of new objects, in a webhook of yours"
            raise ConfigError(subject, f"{name} is overridden", f"{fix}: others only see the label")
    for name in _PROPERTIES:
        member = inspect.getattr_static(job_type, name)
        written = f"write @property above def {name}(self)"
        if not (inspect.isdatadescriptor(member) or isinstance(member, cached_property)):
            raise ConfigError(subject, f"{name} is not a property", written)
        if _is_async(getattr(member, "fget", None) or getattr(member, "func", None)):
            raise ConfigError(subject, f"{name} is async", f"{written}: it does no I/O")


def _called(job_type: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The methods that the framework calls, and the names of their arguments."""
    bases: tuple[type, ...] = (GenericJob, *_CAPABILITIES)
    for base in bases:
        if base in job_type.__mro__:
            for name, member in vars(base).items():
                if inspect.isfunction(member) and (name == "__init__" or name[0] != "_"):
                    yield name, tuple(inspect.signature(member).parameters)


def _is_async(method: Any) -> bool:
    """Whether a method is async as it was written; a wrapper may hide that."""
    written = inspect.unwrap(method)
    return inspect.iscoroutinefunction(written) or inspect.isasyncgenfunction(written)


def _takes(job_type: type, name: str, member: Any, arguments: tuple[str, ...]) -> bool:
    """Whether a method can be called with these arguments, by position."""
    bound = isinstance(member, classmethod | staticmethod)
    try:
        inspect.signature(getattr(job_type, name)).bind(*arguments[bound:])
    except TypeError:
        return False
    except ValueError:  # some that are not written in Python have no signature
        return True
    return True


# --------------------------------------------------------------------------------------------------

Validate = Callable[[Obj, Obj | None], Sequence[FieldError]]
"""Rules of one kind on a raw object and, on an update, the one it replaces."""


REFERRED = "referred"
"""The key next to the spec for the object that a job refers to; it is never written."""


@attrs.frozen
class Reference:
    """An object that a job refers to, and which defines a part of its pods.

    Attributes:
        resource: its kind.
        key: namespace and name.
    """

    resource: Resource
    key: ObjectKey


def no_rules(_new: Obj, _old: Obj | None) -> Sequence[FieldError]:
    """No rules beyond those of every kind."""
    return ()


@attrs.frozen
class Integration:
    """One kind of jobs.

    Attributes:
        name: as in the configuration, for example `batch/job`.
        job_type: the class of its jobs.
        validate: rules beyond those of every kind.
        judged: the fields that `validate` reads besides labels, annotations and owners, for example
            `spec.parallelism`; None: any field.
        plain: whether `validate` accepts every new object whose only label of ours is a queue name
            or a priority class, so that the API server need not ask.
        allows_prebuilt: whether its jobs may use an existing Workload.
        watched: the label selector of the objects that are watched; empty for all.
        transform: reduces an object to what is stored.
        makes_pods: whether its objects create pods, which are then left alone.
        watches: whether its objects are watched and changed; otherwise there are only webhooks.
        refers: returns the reference to an object that completes a raw job; it is read before the
            job is reconciled, and added as `REFERRED`. None if there is none.
        implies: the names of integrations that are enabled with it.
        entries: the entries of the webhook configurations, if the usual ones do not suffice.
        rules: permissions beyond the usual ones.
        shape: the schema that its objects must have before the webhooks read them; only types and
            required fields count.
    """

    name: str
    job_type: type[GenericJob[Any]]
    validate: Validate = no_rules
    judged: Sequence[str] | None = None
    plain: bool = False
    allows_prebuilt: bool = False
    watched: str = ""
    transform: Transform = strip
    makes_pods: bool = True
    watches: bool = True
    refers: Callable[[Obj], Reference | None] | None = None
    implies: tuple[str, ...] = ()
    entries: Callable[[JobSettings], Sequence[WebhookEntry]] | None = None
    rules: Callable[[], Sequence[Obj]] | None = None
    shape: Shape = attrs.field(factory=dict, eq=False)

    @classmethod
    def of(
        cls,
        job_type: type[GenericJob[Any]],
        name: str = "",
        validate: Validate = no_rules,
        *,
        allows_prebuilt: bool = False,
    ) -> Integration:
        """The integration of a class of jobs, named after group and kind unless it has a name.

        Args:
            job_type: the class.
            name: as in the configuration.
            validate: rules beyond those of every kind.
            allows_prebuilt: whether its jobs may use an existing Workload.

        Raises:
            ConfigError: it is not a class of jobs, or a method cannot be called.
        """
        given: Any = job_type
        if not isinstance(given, type):
            kind = type(given).__name__
            raise ConfigError(
                "Integration.of", f"{kind} is not a class", f"write Integration.of({kind})"
            )
        if not issubclass(given, GenericJob) or not hasattr(given, "resource"):
            raise ConfigError(
                f"Integration.of({given.__name__})",
                "is not a GenericJob with a resource",
                "inherit GenericJob[Any], and set resource = Resource(...)",
            )
        subject = f"Integration.of({given.__name__})"
        resource: Any = given.resource
        if not isinstance(resource, Resource):
            fix = 'write Resource("example.com", "v1", "batchruns", "BatchRun", namespaced=True)'
            raise ConfigError(subject, f"resource is {resource!r:.60}", fix)
        check_methods(subject, given)
        own = name or f"{resource.group}/{resource.kind.lower()}"
        shape = _shape_of(job_type.object_class)
        return cls(own, job_type, validate, allows_prebuilt=allows_prebuilt, shape=shape)

    @property
    def resource(self) -> Resource:
        """The kind, at the version that is read and written."""
        return self.job_type.resource

    @property
    def shapes(self) -> Shapes:
        """Its shape in any version, for the webhook server."""
        return {"": self.shape}

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that it reads, the preferred one first."""
        return (self.resource.version, *self.job_type.other_versions)

    def at(self, version: str) -> Integration:
        """The same integration for a cluster that serves another version."""
        if version == self.resource.version:
            return self
        base = self.job_type
        moved = type(base.__name__, (base,), {"resource": base.resource.at(version)})
        return attrs.evolve(self, job_type=moved)

    @property
    def component(self) -> str:
        """The component that reports events about its jobs (KEP-369)."""
        return f"{self.name}-kueue-controller"

    def is_owner(self, ref: Mapping[str, Any]) -> bool:
        """Whether an owner reference points to an object of this kind, in any version."""
        return group_kind_of(ref) == self.resource.group_kind


def _shape_of(named: type[Typed] | None) -> Shape:
    if named is None or not issubclass(named, KubeObject) or named.definition is None:
        return {}  # the API server checks the kinds that others define
    from kueuelib.api.schema import object_schema

    return types_of(object_schema(named, derived=True), required=True)


@attrs.frozen
class IntegrationRegistry:
    """All known integrations, in the order they were registered."""

    integrations: tuple[Integration, ...] = ()

    def register(self, integration: Integration) -> IntegrationRegistry:
        """A registry with one more integration.

        Raises:
            ConfigError: the name or the kind is taken.
        """
        for known in self.integrations:
            if known.name == integration.name:
                raise ConfigError(
                    f'integration "{integration.name}"',
                    "is registered already",
                    "give it another name",
                )
            if known.resource.group_kind == integration.resource.group_kind:
                raise ConfigError(
                    f'integration "{integration.name}"',
                    f'its kind is that of the integration "{known.name}"',
                    "let one integration manage a kind",
                )
        return attrs.evolve(self, integrations=(*self.integrations, integration))

    def without(self, resource: Resource, wanted: Collection[str]) -> IntegrationRegistry:
        """A registry without the integration of a kind, unless its name is wanted."""
        kept = [
            known
            for known in self.integrations
            if known.name in wanted or known.resource.group_kind != resource.group_kind
        ]
        return attrs.evolve(self, integrations=tuple(kept))

    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(known.name for known in self.integrations))

    def enabled(self, frameworks: Iterable[str]) -> tuple[Integration, ...]:
        """The integrations that the configuration names, and those they imply, in registration
        order.

        Raises:
            ConfigError: a name is not known.
        """
        wanted = set(frameworks)
        unknown = sorted(wanted - {known.name for known in self.integrations})
        if unknown:
            raise ConfigError(
                "integrations.frameworks",
                f"unknown names: {', '.join(unknown)}",
                f"use some of: {', '.join(self.names())}",
            )
        wanted |= {
            name for known in self.integrations if known.name in wanted for name in known.implies
        }
        return tuple(known for known in self.integrations if known.name in wanted)
