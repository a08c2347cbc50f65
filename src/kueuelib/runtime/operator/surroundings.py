"""What all runs of one reconciler share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.definitions import Definition
from kueuelib.api.forms import Kind
from kueuelib.api.meta import KubeObject, Resource
from kueuelib.api.models import has_field, is_model_class, part_class
from kueuelib.api.struct import Struct
from kueuelib.errors import ConfigError
from kueuelib.machinery.ownership import Applied
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.cluster import Cluster
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.operator.reconciled import Reconciled, Watched
from kueuelib.runtime.operator.repeats import Repeats


@attrs.frozen
class Surroundings:
    """What all runs of one reconciler share.

    Attributes:
        operator: the name of the operator.
        declared: the author's declaration.
        client: writes, as the leader only.
        cache: learns every answer.
        recorder: writes events.
        informers: those of the object's kind, its children, and the watched kinds.
        clusters: the other clusters, by name.
        applied: what was applied before.
        clock: wall-clock time for conditions.
        repeats: counts the calls that wrote something.
        status: the class of the object's status; None if it has none.
        observes: whether that has `observed_generation`.
    """

    operator: str
    declared: Reconciled[Any]
    client: Client
    cache: Cache
    recorder: EventSink
    informers: Mapping[Watched, Informer]
    clusters: Mapping[str, Cluster]
    applied: Applied
    clock: Clock
    repeats: Repeats
    status: type[Struct] | None = attrs.field(init=False)
    observes: bool = attrs.field(init=False)

    @status.default
    def _status(self) -> type[Struct] | None:
        return status_class(self.declared.kind)

    @observes.default
    def _observes(self) -> bool:
        return self.status is not None and "observed_generation" in attrs.fields_dict(self.status)

    @property
    def condition(self) -> type | None:
        """The class of a condition, if the kind is named by a model that has conditions."""
        kind = self.declared.kind
        return part_class(kind, "status", "conditions") if is_model_class(kind) else None

    @property
    def reports(self) -> bool:
        """Whether the operator defines the kind, so that nobody else writes its status."""
        return isinstance(getattr(self.declared.kind, "definition", None), Definition)

    def index(self, resource: Watched, name: str, *, owned: bool) -> str:
        """The name in the store of an index, see `index_name`.

        Raises:
            ConfigError: the kind is not declared in this way, or has no such index.
        """
        declared = self.declared
        children = resource in declared.owns
        if (owned and not children) or (
            not owned and children and resource not in declared.watches
        ):
            raise ConfigError(
                f"operator {self.operator}",
                f"{resource.kind} is {'not ' if owned else ''}owned by {declared.resource.kind}",
                "find children with children(), and others with find()",
            )
        if name not in declared.indexes.get(resource, ()):
            raise ConfigError(
                f"operator {self.operator}",
                f"{resource.kind} has no index {name!r}",
                f"name it in indexes= of {declared.resource.kind}",
            )
        return index_name(declared, name, owned=owned)


def status_class(kind: Kind) -> type[Struct] | None:
    """The class of the status of a kind; `Struct` if any will do, None if it has no status."""
    if is_model_class(kind):
        return Struct if has_field(kind, "status") else None
    if isinstance(kind, Resource) or not issubclass(kind, KubeObject):
        return Struct
    field = attrs.fields_dict(attrs.resolve_types(kind)).get("status")
    if field is None:
        return None
    cls = field.type
    return cls if isinstance(cls, type) and issubclass(cls, Struct) else Struct


def index_name(declared: Reconciled[Any], name: str, *, owned: bool) -> str:
    """The name of an index in the store, which reconcilers of other kinds may share."""
    whose = "children/" if owned else ""
    return f"{declared.resource.plural}.{declared.resource.group}/{whose}{name}"
