"""What a reconciler may do to the world around its object."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from functools import cached_property
from typing import Any

from kueuelib.api.codec import encode
from kueuelib.api.forms import Kind, Typed, resource_of
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    check_condition,
    check_reason,
    key_of,
    labels_of,
    with_raw_condition,
)
from kueuelib.api.models import (
    ModelPart,
    encode_model,
    has_field,
    is_model,
    is_model_class,
    without_models,
)
from kueuelib.api.patch import diff_merge_patch
from kueuelib.api.struct import Struct
from kueuelib.errors import ConfigError, Conflict, NotFound
from kueuelib.machinery.ownership import (
    MANAGED_BY,
    OWNER_INDEX,
    claim_problem,
    is_absent,
    is_left_over,
    owned_child,
    placed_child,
)
from kueuelib.machinery.recurrence import EventType
from kueuelib.runtime.client import Client, managers_of, read, take_over, take_over_named
from kueuelib.runtime.cluster import Cluster
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.operator.environment import NotingClient, OwnChanges, ReconcilerEnvironment
from kueuelib.runtime.operator.reconciled import OtherCluster, OtherKind, Watched, watched_of
from kueuelib.runtime.queries import PatchType

# ---- objects that exist before an operator applies them ------------------------------------------


async def claim(
    client: Client,
    resource: Resource,
    key: ObjectKey,
    present: Obj | None,
    owner: Obj,
    by: str,
    adopt: bool | Collection[str],
) -> None:
    """Checks that an object may be applied as a child, and takes over fields of others.

    Args:
        client: reads the object and writes its `managedFields`.
        resource: its kind.
        key: its name.
        present: the object in the cache, which lacks objects without the label of the operator.
        owner: the intended owner.
        by: the operator.
        adopt: see `Context.apply`.

    Raises:
        ConfigError: it is foreign.
        Conflict: it was changed meanwhile, or it is left from an earlier owner with the same name.
    """
    managers = managers_of(adopt)
    actual = await read(client, resource, key) if present is None or managers else present
    if actual is not None and is_left_over(actual, owner):
        raise Conflict(
            f"{resource.kind} {key} belongs to an earlier {owner['kind']} with the same name, and "
            "has not been deleted yet"
        )
    problem = actual and claim_problem(actual, owner, by, adopt=bool(adopt))
    if problem:
        raise ConfigError(f"{resource.kind} {key}", *problem)
    if actual is not None:
        await take_over(client, resource, actual, managers)


# --------------------------------------------------------------------------------------------------


class Context:
    """Reads from the cache, and writes on behalf of one object, for the time of one call.

    Every answer of the server goes into the cache before the next call, so a reconciler reads its
    own writes.

    Attributes:
        obj: the raw object as the server returned it last.
        writes: what the call has changed.
    """

    def __init__(self, around: ReconcilerEnvironment, obj: Obj) -> None:
        self.obj = obj
        self.writes = OwnChanges(around, obj)
        self._around = around
        self._named: set[tuple[tuple[str, str], ObjectKey]] = set()
        self._status: Obj | None = None
        self._conditions: dict[str, tuple[bool | None, str, str]] = {}

    @cached_property
    def client(self) -> Client:
        """For what the methods here do not offer.

        Its writes do not reach the cache by themselves: pass the answers to `learn`.
        """
        return NotingClient(self._around.client, self.writes)

    # ---- reading

    def get(self, kind: Kind | OtherKind, name: str, namespace: str | None = None) -> Obj | None:
        """One raw object out of the cache; the namespace is that of the object by default.

        If the kind is in `owns=`, the child of an earlier object with the same name counts as
        absent. If it is not in `watches=` as well, only children of this object count as present.

        Args:
            kind: one of `owns=` or `watches=`, so kinds of other clusters, too.
            name: of the object.
            namespace: of the object.

        Raises:
            ConfigError: the kind is neither owned nor watched.
        """
        watched = watched_of(kind)
        informer = self._informer(watched)
        where = self.obj["metadata"].get("namespace", "") if namespace is None else namespace
        key = ObjectKey(where if informer.resource.namespaced else "", name)
        present = informer.store.get(key)
        if present is not None and watched in self._around.declared.owns:
            if is_absent(present, self.obj, others=watched in self._around.declared.watches):
                return None
            self._named.add((informer.resource.group_kind, key))
        return present

    def children(self, kind: Kind, index: str = "", value: Hashable = None) -> tuple[Obj, ...]:
        """The raw children of a kind, out of the cache; all of them, or those that an index finds.

        Args:
            kind: one of `owns=`.
            index: a name in `indexes=`.
            value: what the function of the index returned for them.

        Raises:
            ConfigError: the kind is not in `owns=`, or has no such index.
        """
        resource, uid = resource_of(kind), self.obj["metadata"]["uid"]
        store = self._informer(resource).store
        if index:
            objects = store.by_index(self._around.index(resource, index, owned=True), (uid, value))
        else:
            objects = store.by_index(OWNER_INDEX, uid)
        if resource not in self._around.declared.watches:
            return objects
        by = self._around.operator  # the cache also has those of other operators
        return tuple(each for each in objects if labels_of(each).get(MANAGED_BY) == by)

    def find(self, kind: Kind | OtherKind, index: str, value: Hashable) -> tuple[Obj, ...]:
        """The raw objects of a watched kind that an index finds, out of the cache.

        Args:
            kind: one of `watches=`, here or in another cluster, or the reconciled kind itself.
            index: a name in `indexes=`.
            value: what the function of the index returned for them.

        Raises:
            ConfigError: the kind is not in `watches=`, or has no such index.
        """
        watched = watched_of(kind)
        store = self._informer(watched).store
        return store.by_index(self._around.index(watched, index, owned=False), value)

    def cluster(self, other: OtherCluster) -> Cluster:
        """Another cluster: its `client`, its `cache`, and the `problem` that it has now, if any.

        Raises:
            ConfigError: the operator does not declare it.
        """
        cluster = self._around.clusters.get(other.name)
        if cluster is None:
            raise ConfigError(
                f"operator {self._around.operator}",
                f"uses cluster {other.name}, which it does not declare",
                f"call cluster({other.name!r}) of this operator",
            )
        return cluster

    # ---- children

    async def apply(self, child: Obj | Typed, *, adopt: bool | Collection[str] = False) -> Obj:
        """Make an object exist with these fields, by server-side apply.

        A field that another writer changed is set back, a field that is no longer named is removed,
        and what others added stays. Nothing is sent for a kind in `owns=` if this process applied
        the same before and the object has not changed outside its status since. A kind in `writes=`
        is not cached, so that every call sends a patch.

        A child of a kind in `owns=` gets the owner reference and the operator's label, and is
        refused if it exists and does not belong to the object. If it belongs to an earlier object
        with the same name, the call ends, and is repeated until that child has been deleted.

        Args:
            child: the desired fields, with `apiVersion`, `kind` and `metadata.name`, in any form;
                the namespace is that of the object unless it names one.
            adopt: take over an existing object that has no controller, or that another operator
                manages for the same object. One with another controller is refused all the same.
                Names of field managers also make their fields the operator's: what they wrote,
                and the child does not name, is removed. While names are given, the object is read
                before each patch. For a kind in `writes=`, only names have an effect.

        Returns:
            The raw object as the server has it. It is the one in the cache: copy it, for example
            with `copy.deepcopy`, before you change it.

        Raises:
            ConfigError: the kind is not declared, the object cannot own it, or it is foreign.
            Conflict: the child of an earlier object is still there.
            ApiError: the server refused it.
        """
        declared = self._around.declared
        raw: Any = encode(child) if isinstance(child, Struct) else without_models(child)
        if not isinstance(raw, dict) or not (raw.get("apiVersion") and raw.get("kind")):
            raise ConfigError(
                f"operator {self._around.operator}",
                f"applies {raw!r:.60}, which has no apiVersion and kind",
                "make it with new() of its kind, for example kinds.CONFIG_MAPS.new(...)",
            )
        resource = self._declared(str(raw.get("apiVersion")), str(raw.get("kind")))
        owned = resource in declared.owns
        if owned:
            wanted = owned_child(raw, resource, self.obj, declared.resource, self._around.operator)
        else:
            wanted = placed_child(raw, resource, self.obj)
        key = key_of(wanted)
        self._named.add((resource.group_kind, key))
        if owned:
            present = self._informer(resource).store.get(key)
            if present is not None and self._around.applied.holds(resource, wanted, present):
                return present
            await claim(self.client, resource, key, present, self.obj, self._around.operator, adopt)
        else:
            await take_over_named(self.client, resource, key, adopt)
        answer = await self.client.apply(resource, wanted)
        self.learn(answer)
        if owned:
            self._around.applied.note(resource, wanted, answer)
        return answer

    async def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete an object; one that does not exist is fine.

        Raises:
            ConfigError: the kind is neither in `owns=` nor in `writes=`.
            ApiError: the server refused it.
        """
        asked = resource_of(kind)
        resource = self._declared(asked.api_version, asked.kind)
        where = self.obj["metadata"].get("namespace", "") if namespace is None else namespace
        await self._delete(resource, ObjectKey(where if resource.namespaced else "", name))

    async def prune(self, kind: Kind) -> int:
        """Delete the children of a kind that this call neither applied nor found with `get`.

        Returns:
            how many.
        """
        resource = resource_of(kind)
        extra = [
            key_of(child)
            for child in self.children(resource)
            if (resource.group_kind, key_of(child)) not in self._named
            and "deletionTimestamp" not in child["metadata"]
        ]
        for key in extra:
            await self._delete(resource, key)
        return len(extra)

    # ---- status and events

    def report(self, status: Struct | ModelPart | Mapping[str, Any]) -> None:
        """Set the status, which is written once after the call, if it differs.

        Conditions are kept next to it, and `observedGeneration` is filled in if the class has it
        and the function returns.

        Args:
            status: the whole status, typed or raw.

        Raises:
            ConfigError: the class of the object has no field `status`, or the status is of another
                class.
        """
        expected = self._needs_status()
        if isinstance(status, Mapping):
            self._status = dict(without_models(status))
        elif expected is Struct and is_model(status):
            self._status = encode_model(status)
        elif isinstance(status, expected):
            self._status = encode(status)
        else:
            raise ConfigError(
                f"report() of {self._around.declared.resource.kind}",
                f"{status!r:.60} is not a status",
                f"give it a {expected.__name__}, or a mapping",
            )

    def condition(self, type: str, status: bool | None, reason: str, message: str = "") -> None:
        """Set a condition of the object; it is written with the status.

        The transition time changes with the status only. `observedGeneration` is filled in, unless
        the kind is named by a model whose conditions do not have it.

        Args:
            type: for example `Ready`.
            status: None stands for Unknown.
            reason: a word in CamelCase for programs.
            message: a sentence for people.

        Raises:
            ConfigError: the class of the object has no field `status`, or an argument is not valid.
        """
        self._needs_status()
        check_condition(type, status, reason)
        self._conditions[type] = (status, reason, message)

    def event(self, type: EventType, reason: str, message: str) -> None:
        """Record an event about the object; returns at once.

        Args:
            type: `Normal` or `Warning`.
            reason: a word in CamelCase.
            message: a sentence for people.

        Raises:
            ConfigError: the type is neither, or the reason is more than a word.
        """
        check_reason(f"event({type!r}, {reason!r})", reason)
        self._around.recorder.event(self.obj, type, reason, message)

    def learn(self, answer: Obj | Typed) -> None:
        """Pass the answer to a write of `client` to the cache; also a model."""
        self._around.cache.learn(answer)

    async def write_status(self, *, failed: bool = False) -> None:
        """Write what `report` and `condition` set; the framework calls it after the function.

        Args:
            failed: the function did not deal with the object to the end, so `observedGeneration`
                of the status stays what it was.
        """
        present = self.obj.get("status") or {}
        status = dict(present if self._status is None else self._status)
        meta = self.obj["metadata"]
        generation = meta.get("generation")
        cls = self._around.condition
        knows = cls is None or has_field(cls, "observed_generation")
        conditions = status.get("conditions") or present.get("conditions") or []
        for name, (value, reason, message) in self._conditions.items():
            conditions = with_raw_condition(
                conditions,
                name,
                value,
                reason,
                message,
                now=self._around.clock.now(),
                generation=generation if knows else None,
            )
        if conditions:
            status["conditions"] = conditions
        said = self._status is not None or bool(self._conditions)
        unsaid = not failed and self._around.reports and "deletionTimestamp" not in meta
        if self._around.observes and (said or unsaid):
            status["observedGeneration"] = (
                present.get("observedGeneration", 0) if failed else generation
            )
        patch = diff_merge_patch(present, status)
        if not patch:
            return
        version = {"resourceVersion": meta["resourceVersion"]}  # never over a state not seen
        self.obj = await self.client.patch(
            self._around.declared.resource,
            key_of(self.obj),
            {"metadata": version, "status": patch},
            PatchType.MERGE,
            subresource="status",
        )
        self.learn(self.obj)

    # ---- inside

    def _needs_status(self) -> type[Struct]:
        declared = self._around.declared
        if self._around.status is None:
            fix = "add `status: Status`, a class that extends ConditionedStatus"
            if is_model_class(declared.kind):
                fix = "write an event, or the status of an object of your own kind"
            raise ConfigError(declared.resource.kind, "has no field status", fix)
        return self._around.status

    def _informer(self, resource: Watched) -> Informer:
        informer = self._around.informers.get(resource)
        if informer is None:
            raise ConfigError(
                f"operator {self._around.operator}",
                f"reads {resource.kind}, which it does not watch",
                f"name it in owns= or watches= of {self._around.declared.resource.kind}",
            )
        return informer

    def _declared(self, api_version: str, kind: str) -> Resource:
        declared = self._around.declared
        for resource in (*declared.owns, *declared.writes):
            if (resource.api_version, resource.kind) == (api_version, kind):
                return resource
        raise ConfigError(
            f"operator {self._around.operator}",
            f"writes {kind} ({api_version}), which it does not declare",
            f"name it in owns= or writes= of {declared.resource.kind}; permissions follow from it",
        )

    async def _delete(self, resource: Resource, key: ObjectKey) -> None:
        informer = self._around.informers.get(resource)
        held = None if informer is None else informer.store.get(key)
        try:
            answer = await self.client.delete(resource, key)
        except NotFound:
            if held is not None:
                self._around.cache.learn_gone(held)
            return
        if held is not None:
            self.writes.deleted(held)
            self._around.cache.learn_deleted(held, answer)
