"""Reads from a cluster only what a decision depends on: GET and LIST, no watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import anyio
import attrs

from kueuelib.api import core, kinds, kueue
from kueuelib.api.codec import decode
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of, labels_of
from kueuelib.api.names import ACTIVE, NAMESPACE_NAME_LABEL
from kueuelib.app.explaining.nodes import (
    ON_NODES,
    PLACING,
    names_topology,
    places_matter,
    with_nodes,
)
from kueuelib.app.stored_versions import is_unconverted, list_stored
from kueuelib.errors import (
    ApiError,
    ConfigError,
    Forbidden,
    InvalidObject,
    InvalidSelector,
    KueuelibError,
    NotFound,
)
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.workload.served import queueing_version

# ---- decodes the raw objects of a cluster that is read again and again ---------------------------

Decode = Callable[[type[Any], Obj], Any]


class Decoder:
    """Decodes raw objects, and keeps the values of objects that were also in the last lists.

    The raw objects are never changed: another state is another object.
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[Obj, Any]] = {}
        self._now: dict[int, tuple[Obj, Any]] = {}

    def __call__(self, cls: type[Any], obj: Obj) -> Any:
        """The value of a raw object; raises as `decode`."""
        known = self._before.get(id(obj)) or (obj, decode(cls, obj))
        self._now[id(obj)] = known
        return known[1]

    def end(self) -> None:
        """Forgets values that were not used since the last call."""
        self._before, self._now = self._now, {}


# --------------------------------------------------------------------------------------------------

QUEUEING = (
    kinds.CLUSTER_QUEUES,
    kinds.COHORTS,
    kinds.LOCAL_QUEUES,
    kinds.RESOURCE_FLAVORS,
    kinds.ADMISSION_CHECKS,
    kinds.WORKLOADS,
    kinds.WORKLOAD_PRIORITY_CLASSES,
)
AROUND = (
    kinds.NAMESPACES,
    kinds.LIMIT_RANGES,
    kinds.RUNTIME_CLASSES,
    kinds.PRIORITY_CLASSES,
)
NEEDED = (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.RESOURCE_FLAVORS, kinds.WORKLOADS)
"""The kinds that every answer needs."""
ASK_DOCTOR = "run kueuelib doctor: it names the command that helps"
ASK_FOR_MORE = (
    "ask for the right to list queues, flavors and Workloads in the whole cluster, or use kueuelib "
    "pending -n NAMESPACE, which needs less"
)


class TooFewRights(KueuelibError):
    """The kinds that every answer needs may not be listed in the whole cluster."""


@attrs.frozen
class Lists:
    """The objects that were listed at about the same moment.

    Attributes:
        objects: the raw objects by kind; of every kind that could be listed.
        refused: why the other kinds were not listed: forbidden, not served, or not converted.
        unconverted: why the API server could not convert all objects of a kind, by kind. Those that
            could be listed were read in the versions in which they are stored.
    """

    objects: Mapping[str, Sequence[Obj]]
    refused: Mapping[str, ApiError]
    unconverted: Mapping[str, ApiError] = MappingProxyType({})

    def of(self, kind: str) -> Sequence[Obj]:
        """The objects of a kind; none if it was not listed."""
        return self.objects.get(kind, ())

    def insist(self) -> None:
        """Raises the reason if a kind that every answer needs was not listed.

        Raises:
            ConfigError: the cluster does not serve it.
            TooFewRights: it may not be listed.
            KueuelibError: the server cannot convert its objects.
        """
        self.insist_on_kinds([one.kind for one in NEEDED])
        self.insist_on_versions(NEEDED)
        refused = [self.refused[one.kind] for one in NEEDED if one.kind in self.refused]
        if refused:
            raise TooFewRights(f"{min(refused, key=str)}; {ASK_FOR_MORE}")

    def insist_on_kinds(self, wanted: Iterable[str]) -> None:
        """Raises an error that names those of our kinds that the cluster does not serve.

        Raises:
            ConfigError: the installation is incomplete.
        """
        errors = [self.refused.get(kind) for kind in wanted]
        absent = sorted(str(error) for error in errors if isinstance(error, NotFound))
        if absent:
            raise ConfigError("the installation", absent[0], "run kueuelib install")

    def insist_on_versions(self, wanted: Iterable[Resource]) -> None:
        """Raises an error that names kinds whose objects the API server cannot convert.

        Raises:
            KueuelibError: some objects can be read in none of the versions that it serves.
        """
        lost = {one.plural: self.refused.get(one.kind) for one in wanted}
        lost = {plural: error for plural, error in lost.items() if is_unconverted(error)}
        if lost:
            why = next(iter(lost.values()))
            raise KueuelibError(f"{', '.join(lost)} cannot be read: {why}; {ASK_DOCTOR}")

    def lacks(self, resource: Resource) -> bool:
        """Whether the cluster lacks a kind that is optional, such as Cohorts."""
        refused = self.refused.get(resource.kind)
        return resource.kind == kinds.COHORTS.kind and isinstance(refused, NotFound)

    def absences(self, resources: Iterable[Resource]) -> list[str]:
        """Which of some kinds were not listed, or not as the server converts them, for people: one
        text for each reason.
        """
        plurals: dict[str, list[str]] = {}
        for one in resources:
            if one.kind in self.refused and not self.lacks(one):
                error = self.refused[one.kind]
                why = "you may not list them" if isinstance(error, Forbidden) else str(error)
                why += f"; {ASK_DOCTOR}" if is_unconverted(error) else ""
                taken = "are taken to be Active" if self.hides(one) else "count as absent"
                plurals.setdefault(f"were not read and {taken}: {why}", []).append(one.plural)
        texts = [f"{', '.join(names)} {why}" for why, names in plurals.items()]
        stored = [one for one in resources if one.kind in self.unconverted.keys() - self.refused]
        if stored:
            names, error = ", ".join(one.plural for one in stored), self.unconverted[stored[0].kind]
            texts.append(f"{names} were read as they are stored: {error}; {ASK_DOCTOR}")
        return texts

    def hides(self, resource: Resource) -> bool:
        """Whether AdmissionChecks may exist that the caller may not see."""
        refused = self.refused.get(resource.kind)
        return resource.kind == kinds.ADMISSION_CHECKS.kind and isinstance(refused, Forbidden)

    def completed(self, more: Lists) -> Lists:
        """The same lists with those that were read later, which replace earlier ones."""
        refused = {**self.refused, **more.refused}
        return Lists(
            {**self.objects, **more.objects},
            {kind: why for kind, why in refused.items() if kind not in more.objects},
            {**self.unconverted, **more.unconverted},
        )


@attrs.frozen
class ClusterData:
    """The data that was read.

    Attributes:
        world: the facts that decisions depend on.
        workloads: the raw Workloads.
        classes: the raw priority classes.
        notes: what could not be read and was left out, for people.
        unreadable: the objects that are left out, by kind and key, each with the broken rules.
        only_quota: whether places on nodes are left out, because nodes or Topologies may not be
            listed.
    """

    world: World
    workloads: tuple[Obj, ...]
    classes: PriorityClasses
    notes: tuple[str, ...]
    unreadable: tuple[tuple[str, ObjectKey, str], ...] = ()
    only_quota: bool = False


async def read_cluster(
    client: Client, namespace: str, settings: Settings = DEFAULTS
) -> ClusterData:
    """Lists the queues, flavors, checks, Workloads and what requests depend on.

    Args:
        client: whose cluster.
        namespace: of the object in question; it is read alone if namespaces may not be listed.
        settings: the manager's settings for decisions.

    Raises:
        ConfigError: the cluster does not serve the queueing API, or not all of its kinds.
        TooFewRights: queues, flavors or Workloads may not be listed.
    """
    version = await queueing_version(client)
    lists = await list_kinds(client, decisive(version))
    lists.insist()
    lists = await list_nodes(client, lists, version, settings)
    return cluster_of(lists, settings, namespace)


def decisive(version: str) -> tuple[Resource, ...]:
    """The kinds that decisions depend on.

    Args:
        version: of the queueing API.
    """
    return (*(one.at(version) for one in QUEUEING), *AROUND)


async def list_kinds(
    client: Client,
    resources: Iterable[Resource],
    namespace: str = "",
    selectors: Mapping[str, str] = MappingProxyType({}),
) -> Lists:
    """Lists several kinds at once.

    Args:
        client: whose cluster.
        resources: the kinds.
        namespace: the only one to list namespaced kinds in; all when empty.
        selectors: label selectors by kind.

    Raises:
        KueuelibError: the server did not answer, or failed.
    """
    objects: dict[str, Sequence[Obj]] = {}
    refused: dict[str, ApiError] = {}
    unconverted: dict[str, ApiError] = {}

    async def read(resource: Resource) -> None:
        where = namespace if resource.namespaced else ""
        try:
            labels = selectors.get(resource.kind, "")
            listed = await list_stored(client, resource, where, labels)
        except NotFound:
            name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            refused[resource.kind] = NotFound(f"the cluster does not serve {name}")
        except Forbidden as error:
            refused[resource.kind] = error
        else:
            if listed.failure is not None:
                unconverted[resource.kind] = listed.failure
            if listed.failure is not None and not listed.complete:
                refused[resource.kind] = listed.failure
            else:
                objects[resource.kind] = listed.objects

    await at_once(*map(read, resources))
    return Lists(objects, refused, unconverted)


async def list_nodes(client: Client, lists: Lists, version: str, settings: Settings) -> Lists:
    """The same lists with Topologies, nodes and the pods on them, if a flavor names a Topology.

    Args:
        client: whose cluster.
        lists: those of other kinds.
        version: of the queueing API.
        settings: the manager's settings for decisions.
    """
    if not settings.places_pods or not names_topology(lists.of(kinds.RESOURCE_FLAVORS.kind)):
        return lists
    from kueuelib.controllers.nodes import BOUND

    placing = [one.at(version) if one.group == kinds.KUEUE else one for one in PLACING]
    lists = lists.completed(await list_kinds(client, placing))
    try:
        pods = [one async for one in client.list_all(kinds.PODS, field_selector=BOUND)]
    except Forbidden as error:
        return lists.completed(Lists({}, {ON_NODES: error}))
    return lists.completed(Lists({ON_NODES: pods}, {}))


async def at_once(*calls: Awaitable[Any]) -> list[Any]:
    """The results of some calls, in their order.

    Args:
        calls: each is awaited once; an error of one ends the others.

    Raises:
        KueuelibError: one of them failed.
    """
    results: dict[int, Any] = {}
    errors: list[KueuelibError] = []

    async def finish(number: int, call: Awaitable[Any]) -> None:
        try:
            results[number] = await call
        except KueuelibError as error:
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number, call in enumerate(calls):
            group.start_soon(finish, number, call)
    for error in errors:
        raise error
    return [results[number] for number in range(len(calls))]


def cluster_of(
    lists: Lists, settings: Settings, namespace: str = "", decoder: Decode = decode
) -> ClusterData:
    """The facts in what was listed.

    Args:
        lists: the listed objects; other kinds count as absent, which is noted.
        settings: the manager's settings for decisions.
        namespace: it is taken to exist even if namespaces were not listed.
        decoder: makes values of raw objects.
    """
    notes = lists.absences((*QUEUEING, *AROUND))
    reader = _Reader(lists, decoder)
    namespaces = lists.of("Namespace")
    if "Namespace" in lists.refused and namespace:
        # A world without the namespace would blame it for everything.
        namespaces = [{"metadata": {"name": namespace, "labels": {}}}]
    queues = {one.name: one for one in reader.all(kueue.ClusterQueue, queue_spec)}
    checks = {one.name: one for one in reader.all(kueue.AdmissionCheck)}
    if lists.hides(kinds.ADMISSION_CHECKS):
        checks = {name: _unseen_check(name) for name in _named_checks(queues.values())}
    world = World(
        settings=settings,
        cluster_queues=queues,
        cohorts={one.name: one for one in reader.all(kueue.Cohort)},
        local_queues={one.key: one for one in reader.all(kueue.LocalQueue)},
        flavors={one.name: one for one in reader.all(kueue.ResourceFlavor)},
        checks=checks,
        namespaces={obj["metadata"]["name"]: labels_of(obj) for obj in namespaces},
        workloads={one.key: one for one in reader.all(kueue.Workload)},
        limit_ranges={one.key: one for one in reader.all(core.LimitRange)},
        runtime_classes={one.name: one for one in reader.all(core.RuntimeClass)},
    )
    placing = places_matter(world)
    world, unseen = with_nodes(world, lists.of, lists.refused)
    notes += unseen
    classes = PriorityClasses(
        workload={obj["metadata"]["name"]: obj for obj in lists.of("WorkloadPriorityClass")},
        pod={obj["metadata"]["name"]: obj for obj in lists.of("PriorityClass")},
    )
    notes += [
        f"{kind} {key} cannot be read and is left out: {why}"
        for kind, key, why in reader.unreadable
    ]
    workloads, unreadable = tuple(lists.of("Workload")), tuple(reader.unreadable)
    only_quota = placing and not places_matter(world)
    return ClusterData(world, workloads, classes, tuple(sorted(notes)), unreadable, only_quota)


def with_namespaces(cluster: ClusterData, lists: Lists) -> ClusterData:
    """The cluster with the namespaces of its Workloads, if namespaces may not be listed.

    Args:
        cluster: what was read.
        lists: what it was made of.
    """
    if kinds.NAMESPACES.kind in lists.objects:
        return cluster
    names = {key.namespace for key in cluster.world.workloads}
    labels = {name: {NAMESPACE_NAME_LABEL: name} for name in names}
    return attrs.evolve(cluster, world=attrs.evolve(cluster.world, namespaces=labels))


def labels_decide(world: World) -> bool:
    """Whether labels of namespaces matter, besides their names."""
    return any(
        one.key != NAMESPACE_NAME_LABEL
        for queue in world.cluster_queues.values()
        for one in queue_spec(queue).selector.requirements
    )


def _named_checks(queues: Iterable[kueue.ClusterQueue]) -> set[str]:
    return {check.name for queue in queues for check in queue_spec(queue).checks}


def _unseen_check(name: str) -> kueue.AdmissionCheck:
    """What stands for a check that may not be read: without it, its ClusterQueue would be blamed
    for naming it.
    """
    active = {"type": ACTIVE, "status": "True", "reason": ACTIVE, "message": ""}
    raw = {
        "metadata": {"name": name},
        "spec": {"controllerName": ""},
        "status": {"conditions": [active]},
    }
    return decode(kueue.AdmissionCheck, raw)


_DECISIVE = (
    kinds.CLUSTER_QUEUES,
    kinds.COHORTS,
    kinds.LOCAL_QUEUES,
    kinds.RESOURCE_FLAVORS,
    kinds.ADMISSION_CHECKS,
    kinds.WORKLOADS,
)


def facts_in(
    near: Lists, unseen: Sequence[Resource], settings: Settings, decoder: Decode = decode
) -> tuple[ClusterData, str]:
    """The facts in the lists, and why the engine cannot decide on them.

    Args:
        near: what was listed.
        unseen: the kinds that may not be listed in the whole cluster.
        settings: the manager's settings for decisions.
        decoder: makes values of raw objects.

    Returns:
        The facts, and a text that is empty when the engine can decide.
    """
    cluster = with_namespaces(cluster_of(near, settings, decoder=decoder), near)
    kept = {one.kind: one for one in unseen}
    hidden = [kept[one.kind] for one in _DECISIVE if one.kind in kept and not near.lacks(one)]
    unlabelled = kinds.NAMESPACES.kind in near.refused and labels_decide(cluster.world)
    if not hidden and not unlabelled:
        return cluster, ""
    names = ", ".join(one.plural for one in hidden) or kinds.NAMESPACES.plural
    why = (
        f"{names} cannot be listed in the whole cluster, so no changes are shown, and the verdicts "
        "are those that the manager wrote last"
    )
    return cluster, why


class _Reader:
    """Turns raw objects into values; unreadable ones are left out and kept separately."""

    def __init__(self, lists: Lists, decoder: Decode) -> None:
        self._lists = lists
        self._decode = decoder
        self.unreadable: list[tuple[str, ObjectKey, str]] = []

    def all(self, cls: type[Any], check: Callable[[Any], object] | None = None) -> list[Any]:
        values = []
        for obj in self._lists.of(cls.__name__):
            try:
                value = self._decode(cls, obj)
                if check is not None:
                    check(value)
            except (InvalidObject, InvalidSelector) as error:
                self.unreadable.append((cls.__name__, key_of(obj), str(error)))
            else:
                values.append(value)
        return values


# ---- refuses names that do not exist, as far as that can be seen ---------------------------------


class ObjectNotFound(KueuelibError):
    """The object that was asked about does not exist."""


def missing(kind: str, key: ObjectKey, known: list[str]) -> str:
    """The error for an object that does not exist; it names those that do.

    Args:
        kind: its kind.
        key: the object.
        known: the names of those in its namespace, or in the cluster.
    """
    where = f" in namespace {key.namespace}" if key.namespace else ""
    text = f"{kind} {key.name} does not exist{where}"
    if not known and key.namespace:
        return f"{text}, which has no {kind}s; choose another namespace with -n"
    if not known:
        return f"{text}; the cluster has no {kind}s"
    more = ", ..." if len(known) > 5 else ""
    return f"{text}; there are {', '.join(known[:5])}{more}"


def insist_on_namespace(name: str, lists: Lists) -> None:
    """Refuses a namespace that does not exist.

    Args:
        name: empty for none.
        lists: the objects that were listed.

    Raises:
        ObjectNotFound: the name does not exist.
    """
    _insist(kinds.NAMESPACES.kind, ObjectKey("", name), lists)


def insist_on_queues(namespace: str, local_queue: str, cluster_queue: str, lists: Lists) -> None:
    """Refuses queues that do not exist.

    Args:
        namespace: of the LocalQueue.
        local_queue: empty for none.
        cluster_queue: the same.
        lists: the objects that were listed.

    Raises:
        ObjectNotFound: the name does not exist.
    """
    _insist("LocalQueue", ObjectKey(namespace, local_queue), lists)
    _insist("ClusterQueue", ObjectKey("", cluster_queue), lists)


def _insist(kind: str, key: ObjectKey, lists: Lists) -> None:
    known = sorted(
        obj["metadata"]["name"]
        for obj in lists.of(kind)
        if not key.namespace or obj["metadata"].get("namespace") == key.namespace
    )
    if key.name and kind in lists.objects and key.name not in known:
        raise ObjectNotFound(missing(kind, key, known))
