"""What one call of a reconciler changes through its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kueuelib.api.forms import raw_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, group_kind_of, key_of
from kueuelib.machinery.ownership import controller_key
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.client import Client
from kueuelib.runtime.operator.callbacks import Callback, predicate_of
from kueuelib.runtime.operator.reconciled import OtherKind
from kueuelib.runtime.operator.repeats import Change
from kueuelib.runtime.operator.surroundings import Surroundings


class NotingClient(Client):
    """The same client on the same connections, which says what it writes.

    Args:
        client: what it is a copy of.
        writes: learns of it.
    """

    def __init__(self, client: Client, writes: Writes) -> None:
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


class Writes:
    """What one call changed, as far as that makes its object due again.

    Args:
        around: what all runs share.
        obj: the object of the call.

    Attributes:
        changes: in order.
    """

    def __init__(self, around: Surroundings, obj: Obj) -> None:
        self.changes: list[Change] = []
        self._around = around
        self._obj = obj
        self._before: dict[tuple[tuple[str, str], ObjectKey], Obj | None] = {}

    def deleted(self, obj: Obj) -> None:
        """Learn that the call deleted a child or a watched object."""
        self.changes.append(Change(_subject(obj), obj, None))

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
            self.changes.append(Change(subject, old, answer, hidden=kind[1] == "Secret"))
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
