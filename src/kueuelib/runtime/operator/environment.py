"""What all runs of one reconciler share, and what one call of it changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.definitions import Definition
from kueuelib.api.forms import Kind, raw_of
from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource, group_kind_of, key_of
from kueuelib.api.models import has_field, is_model_class, part_class
from kueuelib.api.struct import Struct
from kueuelib.errors import ConfigError
from kueuelib.machinery.ownership import Applied, controller_key
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.cluster import Cluster
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.operator.reconciled import OtherKind, Reconciled, Watched
from kueuelib.runtime.operator.repeats import ObservedChange, Repeats
from kueuelib.runtime.predicates import Predicate

# Functions of an author that run inside a cache: their errors are logged, and stop nothing.


@attrs.frozen
class Callback:
    """An author's function, called for every change of a kind.

    Attributes:
        subject: the kind that is reconciled.
        name: of the function: the argument of `reconciles`, and the kind that it is called for.
        function: what the author wrote.
    """

    subject: str
    name: str
    function: Callable[[Any], Any]

    def keys(self, delta: Delta[Obj]) -> tuple[ObjectKey, ...]:
        """The keys that a function of `watches=` returns; none if it fails."""
        return self._items(delta, delta.key, ObjectKey, "return a list of ObjectKey")

    def values(self, obj: Obj) -> tuple[Hashable, ...]:
        """The values that a function of `indexes=` returns; none if it fails."""
        return self._items(obj, key_of(obj), object, "return a list of values")

    def passes(self, delta: Delta[Obj]) -> bool:
        """Whether `predicate=` lets a change pass; it does so if the function fails."""
        try:
            answer = self.function(delta)
        except Exception as error:  # noqa: BLE001 - code of others
            self._failed(delta.key, error)
            return True
        if isinstance(answer, bool):
            return answer
        fix = "call the function that makes it" if callable(answer) else "return True or False"
        problem = f"{self.name} returned {answer!r:.60}"
        self._failed(delta.key, ConfigError(self.subject, problem, fix))
        return True

    def _items(self, given: Any, key: ObjectKey, kind: Any, fix: str) -> tuple[Any, ...]:
        try:
            answer = self.function(given)
            items = None
            if isinstance(answer, Iterable) and not isinstance(answer, (str, ObjectKey)):
                items = tuple(dict.fromkeys(answer))
        except Exception as error:  # noqa: BLE001 - code of others
            self._failed(key, error)
            return ()
        if items is None or not all(isinstance(each, kind) for each in items):
            problem = f"{self.name} returned {answer!r:.60}"
            self._failed(key, ConfigError(self.subject, problem, fix))
            return ()
        return items

    def _failed(self, key: ObjectKey, error: Exception) -> None:
        known = isinstance(error, ConfigError)
        text = str(error) if known else f"{self.subject}: {self.name} raised {error!r:.200}"
        get_logger("operator").error(
            "a function of the operator failed",
            error=text,
            object=str(key),
            exc_info=None if known else error,
        )


def predicate_of(subject: str, function: Predicate | None) -> Predicate | None:
    """A predicate that never raises, or None without a function."""
    return None if function is None else Callback(subject, "predicate=", function).passes


# --------------------------------------------------------------------------------------------------


@attrs.frozen
class ReconcilerEnvironment:
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
    declared: Reconciled[Any, Any]
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


def index_name(declared: Reconciled[Any, Any], name: str, *, owned: bool) -> str:
    """The name of an index in the store, which reconcilers of other kinds may share."""
    whose = "children/" if owned else ""
    return f"{declared.resource.plural}.{declared.resource.group}/{whose}{name}"


# ---- what one call of a reconciler changes through its client ------------------------------------


class NotingClient(Client):
    """The same client on the same connections, which says what it writes.

    Args:
        client: what it is a copy of.
        writes: learns of it.
    """

    def __init__(self, client: Client, writes: OwnChanges) -> None:
        self.__dict__.update(vars(client))
        self._writes = writes

    def api_client(self, learn: Callable[[Obj], None] | None = None) -> Any:
        """See `Client.api_client`."""

        def both(answer: Obj) -> None:
            self._writes.note(answer)
            if learn is not None:
                learn(answer)

        return super().api_client(both)

    async def replace(self, resource: Resource, obj: Any, **rest: Any) -> Obj:
        """See `Client.replace`."""
        self._writes.begin(resource, obj)
        return await super().replace(resource, obj, **rest)

    async def patch(self, resource: Resource, key: ObjectKey, *body: Any, **rest: Any) -> Obj:
        """See `Client.patch`."""
        self._writes.begin(resource, key)
        return await super().patch(resource, key, *body, **rest)

    async def _object(self, method: str, path: str, **rest: Any) -> Obj:
        answer = await super()._object(method, path, **rest)
        if method not in ("GET", "DELETE"):
            self._writes.note(answer, created=method == "POST")
        return answer


class OwnChanges:
    """What one call changed, as far as that makes its object due again.

    Args:
        around: what all runs share.
        obj: the object of the call.

    Attributes:
        changes: in order.
    """

    def __init__(self, around: ReconcilerEnvironment, obj: Obj) -> None:
        self.changes: list[ObservedChange] = []
        self._around = around
        self._obj = obj
        self._before: dict[tuple[tuple[str, str], ObjectKey], Obj | None] = {}

    def deleted(self, obj: Obj) -> None:
        """Learn that the call deleted a child or a watched object."""
        self.changes.append(ObservedChange(_subject(obj), obj, None))

    def begin(self, resource: Resource, obj: Any) -> None:
        """Remember what an object is before a write; its answer may come after the watch event."""
        informer = self._around.informers.get(resource)
        if informer is not None:
            key = obj if isinstance(obj, ObjectKey) else key_of(raw_of(obj))
            self._before.setdefault((resource.group_kind, key), informer.store.get(key))

    def note(self, answer: Obj, *, created: bool = False) -> None:
        """Learn of the answer to a write."""
        if answer.get("kind") == "Status" or "resourceVersion" not in answer.get("metadata", {}):
            return
        kind, key, declared = group_kind_of(answer), key_of(answer), self._around.declared
        for watched, informer in self._around.informers.items():
            if isinstance(watched, OtherKind) or watched.group_kind != kind:
                continue
            own = watched == declared.resource and key == key_of(self._obj)
            known = self._obj if own else None if created else informer.store.get(key)
            old = self._before.get((kind, key), known)
            if old is not None and _version(old) == _version(answer):
                return
            step = DeltaKind.ADDED if old is None else DeltaKind.UPDATED
            if not self._due(watched, Delta(step, key, old, answer)):
                continue
            self._before[kind, key] = answer
            if watched in declared.metadata_only:
                old, answer = (
                    old and {"metadata": old["metadata"]},
                    {"metadata": answer["metadata"]},
                )
            subject = "" if own else f"{kind[1]} {key}"
            self.changes.append(ObservedChange(subject, old, answer, hidden=kind[1] == "Secret"))
            return

    def _due(self, watched: Resource, delta: Delta[Obj]) -> bool:
        declared, key = self._around.declared, key_of(self._obj)
        function = declared.watches.get(watched)
        if watched in declared.owns:
            assert delta.new is not None
            own = controller_key(delta.new, declared.resource) == key
            if own or function is None:
                return own
        if function is not None:
            called = Callback(declared.resource.kind, f"watches= of {watched.kind}", function)
            return key in called.keys(delta)
        passes = predicate_of(declared.resource.kind, declared.predicate)
        return delta.key == key and (passes is None or passes(delta))


def _subject(obj: Obj) -> str:
    return f"{obj.get('kind', 'object')} {key_of(obj)}"


def _version(obj: Obj) -> tuple[object, object]:
    meta = obj["metadata"]
    return meta.get("uid"), meta.get("resourceVersion")
