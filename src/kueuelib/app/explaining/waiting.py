"""The Workloads that wait, in the engine's order: `kueuelib pending`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from kueuelib.api import kinds
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey, Resource, find
from kueuelib.api.names import MANAGED_LABEL, QUOTA_RESERVED
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.app.explaining.gather import (
    ClusterData,
    Lists,
    decisive,
    facts_in,
    insist_on_namespace,
    insist_on_queues,
    list_kinds,
    list_nodes,
)
from kueuelib.errors import KueuelibError
from kueuelib.runtime.client import Client
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.awaited import awaited_checks
from kueuelib.scheduler.explain.trial import TrialOutcome, TrialResult, outcomes
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import (
    DEACTIVATED,
    MEANINGS,
    BackingOff,
    ChecksFailed,
    ClusterQueueInactive,
    ObjectReason,
)
from kueuelib.scheduler.pending.workload_info import order_of
from kueuelib.scheduler.reasons import condition_reason, render
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.workload.served import queueing_version
from kueuelib.workload.short_reasons import shorten

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.problems import Problem
    from kueuelib.scheduler.explain.trial import TriedChange


# ---- which of the waiting Workloads were asked for: the options of `kueuelib pending` ------------


class _Row(Protocol):
    """A Workload, and where it waits."""

    @property
    def workload(self) -> Workload: ...

    @property
    def cluster_queue(self) -> str: ...


@attrs.frozen
class WorkloadSelection:
    """The Workloads that were asked for.

    Attributes:
        namespace: their namespace; empty for all.
        local_queue: the LocalQueue that they name; empty for any.
        cluster_queue: the ClusterQueue in which they wait; empty for any.
    """

    namespace: str = ""
    local_queue: str = ""
    cluster_queue: str = ""

    def includes(self, row: _Row) -> bool:
        """Whether a Workload was asked for."""
        workload = row.workload
        return (
            self.namespace in ("", workload.namespace)
            and self.local_queue in ("", workload.spec.queue_name)
            and self.cluster_queue in ("", row.cluster_queue)
        )


# ---- verdicts in one or two words, for tables; the same from the engine and from a condition -----

FITS = "fits now"
WAITS_FOR_CHECKS = "waits for checks"
PODS_MISSING = "pods missing"
NOT_EVALUATED = "not evaluated"

_BY_KIND: dict[type, str] = {BackingOff: "backs off", ChecksFailed: "check failed"}


def word_of(outcome: TrialOutcome) -> str:
    """The engine's decision in short.

    Args:
        outcome: of a Workload without quota.
    """
    if outcome.verdict is TrialResult.ADMITTED:
        return FITS
    if outcome.verdict is TrialResult.PREEMPTS:
        return f"preempts {len(outcome.victims)}"
    if outcome.reason is None:
        return NOT_EVALUATED
    kind = _BY_KIND.get(type(outcome.reason))
    return kind or word_of_condition(condition_reason(outcome.reason))


def word_of_condition(reason: str) -> str:
    """The manager's reason in short; an unknown reason stays as it is.

    Args:
        reason: of the condition QuotaReserved; empty where there is none.
    """
    meaning = MEANINGS.get(reason)
    return (meaning.short if meaning else "") or reason or NOT_EVALUATED


# --------------------------------------------------------------------------------------------------

_WAITING = (TrialResult.WAITS, TrialResult.PREEMPTS, TrialResult.ADMITTED)


@attrs.frozen
class Waiting:
    """One Workload without quota.

    Attributes:
        workload: the object.
        cluster_queue: where it waits; empty if it waits in none, or if that is not known.
        place: its place in the ClusterQueue, from 1; None if it has none, or if not everything that
            decides it was read.
        place_in_local_queue: its place among those of its LocalQueue.
        verdict: the verdict in one to three words.
        reason: the reason of its condition QuotaReserved, for machines; empty when it fits.
        message: the whole verdict, for people; empty when it fits.
        victims: the Workloads that it preempts.
        searched: whether there was a search for changes.
        change: the smallest one that was found.
        problems: the mistakes in the set-up because of which it is not tried, in the order in
            which to correct them.
        cause: why its ClusterQueue is inactive; empty if it is not.
        start: by when it starts with a probability of 50 % and of 90 %, in seconds since the epoch,
            as the manager predicts; None if it does not.
    """

    workload: Workload
    cluster_queue: str
    verdict: str
    reason: str = ""
    message: str = ""
    place: int | None = None
    place_in_local_queue: int | None = None
    victims: tuple[ObjectKey, ...] = ()
    searched: bool = False
    change: TriedChange | None = None
    problems: tuple[Problem, ...] = ()
    cause: str = ""
    start: tuple[float, float | None] | None = None

    @property
    def key(self) -> ObjectKey:
        """The Workload."""
        return self.workload.key

    @property
    def why(self) -> str:
        """The message in the few words that fit into a table; empty when it fits."""
        return ": ".join(filter(None, (shorten(self.message), self.cause)))

    @property
    def first_fix(self) -> str:
        """How to correct the first mistake in the set-up; empty if there is none.

        It comes before any change that was found: what is wrong stays wrong elsewhere.
        """
        return next((f"{one.subject}: {one.fix}" for one in self.problems), "")

    @property
    def owner(self) -> str:
        """The job that it stands for, as kind/name; empty if there is none."""
        controller = self.workload.metadata.controller
        return "" if controller is None else f"{controller.kind}/{controller.name}"


@attrs.frozen(repr=False)  # asyncio writes the result of a program as text, and throws it away
class Listing:
    """The Workloads that wait.

    Attributes:
        rows: by ClusterQueue, in the order of the queue.
        notes: what was not read, and what follows from that.
        now: when it was read, in seconds since the epoch.
        awaiting: the Workloads that have quota and wait for admission checks, by ClusterQueue.
        world: the facts, for searches for changes; None if the engine cannot decide.
        partial: whether some of what waits may no longer be seen.
    """

    rows: tuple[Waiting, ...]
    notes: tuple[str, ...]
    now: float
    awaiting: tuple[Waiting, ...] = ()
    world: World | None = None
    partial: bool = False

    @property
    def decided(self) -> bool:
        """Whether the verdicts are the engine's; otherwise they are what a manager wrote."""
        return self.world is not None


async def list_pending(
    client: Client,
    selection: WorkloadSelection,
    now: float,
    settings: Settings = DEFAULTS,
) -> Listing:
    """Lists the Workloads without quota; sends nothing but GET and LIST.

    Args:
        client: whose cluster.
        selection: which ones.
        now: seconds since the epoch.
        settings: the manager's settings for decisions.

    Raises:
        ConfigError: the cluster does not serve the queueing API, or no Workloads.
        ObjectNotFound: the queue that was asked for does not exist.
        KueuelibError: Workloads may not be listed or cannot be converted, or the server did not
            answer.
    """
    version = await queueing_version(client)
    near, unseen = await list_near(client, decisive(version), selection.namespace)
    near = await list_nodes(client, near, version, settings)
    near.insist_on_kinds([kinds.WORKLOADS.kind])
    near.insist_on_versions([kinds.WORKLOADS])
    if kinds.WORKLOADS.kind in near.refused:
        where = f"in namespace {selection.namespace}" if selection.namespace else "everywhere"
        fix = "name a namespace with -n, or ask for the right" if not selection.namespace else ""
        problem = f"Workloads may not be listed {where}: {near.refused[kinds.WORKLOADS.kind]}"
        raise KueuelibError(f"{problem}; {fix or 'ask for the right, or name another namespace'}")
    insist_on_namespace(selection.namespace, near)
    insist_on_queues(selection.namespace, selection.local_queue, selection.cluster_queue, near)
    cluster, why = facts_in(near, unseen, settings)
    listing = (
        decided(cluster, selection, now) if not why else reported(cluster, selection, now, why)
    )
    if why:
        listing = await with_served(client, listing)
    managed = {kinds.PODS.kind: f"{MANAGED_LABEL}=true"}
    pods = await list_kinds(client, [kinds.PODS], selection.namespace, managed)
    return with_groups(listing, cluster.world, pods, selection)


def with_groups(
    listing: Listing, world: World, pods: Lists, selection: WorkloadSelection
) -> Listing:
    """The listing with the groups of pods that have no Workload yet.

    Args:
        listing: the Workloads that wait.
        world: the facts.
        pods: those that have a queue, if they could be listed.
        selection: which Workloads.
    """
    rows, notes, managed = list(listing.rows), listing.notes, pods.of(kinds.PODS.kind)
    groups: Iterable[tuple[Workload, str]] = ()
    if managed:  # without Pods, the modules about them are not imported
        from kueuelib.app.explaining.subject import incomplete_groups

        groups = incomplete_groups(managed, world.workloads)
    for workload, problem in groups:
        home = world.home_of(workload)
        home = home if home in world.cluster_queues else ""
        rows.append(Waiting(workload, home, PODS_MISSING, message=problem))
    if pods.refused:
        notes = (*notes, "pods were not read: groups without all their pods are not shown")
    kept = sorted(filter(selection.includes, rows), key=_order)
    return attrs.evolve(listing, rows=tuple(kept), notes=notes)


async def list_near(
    client: Client, resources: Sequence[Resource], namespace: str
) -> tuple[Lists, tuple[Resource, ...]]:
    """Lists several kinds; those that may not be listed in the whole cluster, in one namespace.

    Args:
        client: whose cluster.
        resources: the kinds.
        namespace: the one; empty for none.

    Returns:
        What was listed, and the kinds that cannot be listed in the whole cluster.

    Raises:
        KueuelibError: the server did not answer, or failed.
    """
    lists = await list_kinds(client, resources)
    near = await _in_namespace(client, lists, resources, namespace)
    return near, tuple(one for one in resources if one.kind in lists.refused)


async def _in_namespace(
    client: Client, lists: Lists, resources: Sequence[Resource], namespace: str
) -> Lists:
    """The lists of the whole cluster, and of one namespace for the other kinds."""
    again = [one for one in resources if one.namespaced and one.kind in lists.refused]
    if not namespace or not again:
        return lists
    return lists.completed(await list_kinds(client, again, namespace))


# --- the engine's answer


def decided(
    cluster: ClusterData,
    selection: WorkloadSelection,
    now: float,
    engine: Engine | None = None,
) -> Listing:
    """The waiting Workloads of a cluster whose relevant objects were all read, without changes.

    Args:
        cluster: what was read.
        selection: which Workloads.
        now: seconds since the epoch.
        engine: one that knows the cluster; it must not be used afterwards. None: a new one is made.
    """
    world = cluster.world.with_usage(now)
    ended, lines = outcomes(world, now, engine), world.lines()
    places = {key: number for line in lines.values() for number, key in enumerate(line, start=1)}
    local = dict(_places_in_local_queues(world, lines))
    waiting = [
        _decided(world, world.workloads[key], one, places.get(key), local.get(key))
        for key, one in ended.items()
        if one.verdict in _WAITING
    ]
    return Listing(
        tuple(sorted(filter(selection.includes, waiting), key=_order)),
        notes=cluster.notes,
        now=now,
        awaiting=_awaiting(cluster.world, selection),
        world=world,
    )


def _decided(
    world: World, workload: Workload, outcome: TrialOutcome, place: int | None, local: int | None
) -> Waiting:
    reason = outcome.reason
    home, cause = world.home_of(workload), ""
    misplaced = place is None or isinstance(reason, ObjectReason)
    problems: tuple[Problem, ...] = ()
    if misplaced:
        from kueuelib.scheduler.explain.problems import problems_of

        problems = problems_of(world, workload.key, reason)
    if isinstance(reason, ClusterQueueInactive) and problems:
        first = problems[0]
        own = first.subject == f"ClusterQueue {reason.name}"
        cause = first.problem if own else f"{first.subject} {first.problem}"
    return Waiting(
        workload,
        home if home in world.cluster_queues else "",
        word_of(outcome),
        "" if reason is None else condition_reason(reason),
        "" if reason is None else render(reason),
        place,
        local,
        outcome.victims,
        problems=problems,
        cause=cause,
    )


def _places_in_local_queues(
    world: World, lines: Mapping[str, Sequence[ObjectKey]]
) -> Iterator[tuple[ObjectKey, int]]:
    counts: dict[ObjectKey, int] = {}
    for line in lines.values():
        for key in line:
            queue = ObjectKey(key.namespace, world.workloads[key].spec.queue_name)
            counts[queue] = counts.get(queue, 0) + 1
            yield key, counts[queue]


# --- changes


def ahead(rows: Iterable[Waiting], world: World, most: int) -> list[Waiting]:
    """The first Workloads for which to search for changes: those ahead in a queue come first.

    Args:
        rows: the Workloads that wait; what fits needs no change.
        world: the facts.
        most: the maximum number.
    """
    known = [row for row in rows if row.verdict != FITS and row.key in world.workloads]
    return sorted(known, key=lambda row: (row.place is None, row.place or 0))[:most]


def with_change(world: World, row: Waiting, now: float) -> Waiting:
    """The same Workload with the smallest change that was found in a search, which takes a while.

    Args:
        world: the facts.
        row: the Workload.
        now: seconds since the epoch.
    """
    from kueuelib.scheduler.explain.answer import smallest_change

    return attrs.evolve(row, searched=True, change=smallest_change(world, row.key, now))


# --- what a manager wrote


def reported(cluster: ClusterData, selection: WorkloadSelection, now: float, why: str) -> Listing:
    """The waiting Workloads as far as they were read, with the verdicts in their own conditions.

    Args:
        cluster: what was read.
        selection: which Workloads.
        now: seconds since the epoch.
        why: why the engine cannot decide.
    """
    world = cluster.world
    rows = []
    for workload in sorted(world.workloads.values(), key=order_of):
        if has_quota(workload) or is_finished(workload) or workload.metadata.deletion_timestamp:
            continue
        said = find(workload.status.conditions, QUOTA_RESERVED)
        reason, message = ("", "") if said is None else (said.reason, said.message)
        word = word_of_condition(reason if workload.spec.active else DEACTIVATED)
        row = Waiting(workload, world.home_of(workload), word, reason, message)
        if selection.includes(row):
            rows.append(row)
    rows.sort(key=lambda row: row.cluster_queue)
    notes, awaiting = (why, *cluster.notes), _awaiting(world, selection)
    return Listing(tuple(rows), notes, now, awaiting)


async def with_served(client: Client, listing: Listing) -> Listing:
    """The listing with the places and expected starts that a manager serves.

    Args:
        client: whose cluster; needs the right to `get` `localqueues/pendingworkloads`.
        listing: from `reported`.
    """
    from kueuelib.jobs.client.places import served_places

    queues = {ObjectKey(row.key.namespace, row.workload.spec.queue_name) for row in listing.rows}
    rows, notes = list(listing.rows), list(listing.notes)
    for queue in sorted(queues):
        served, why = await served_places(client, queue)
        if served is None:
            notes.append(f"no places are shown for LocalQueue {queue}: {why}")
            continue
        for number, row in enumerate(rows):
            place = served.get(row.key.name)
            if place is not None and (row.key.namespace, row.workload.spec.queue_name) == queue:
                rows[number] = attrs.evolve(
                    row,
                    place=place.in_cluster_queue,
                    place_in_local_queue=place.in_local_queue,
                    start=None if place.p50 is None else (place.p50, place.p90),
                )
    return attrs.evolve(listing, rows=tuple(sorted(rows, key=_order)), notes=tuple(notes))


def _awaiting(world: World, selection: WorkloadSelection) -> tuple[Waiting, ...]:
    rows = []
    for workload in world.workloads.values():
        checks, admission = awaited_checks(world, workload), workload.status.admission
        if checks and admission is not None:
            said = "; ".join(one.text for one in checks)
            rows.append(Waiting(workload, admission.cluster_queue, WAITS_FOR_CHECKS, message=said))
    return tuple(sorted(filter(selection.includes, rows), key=_order))


def _order(row: Waiting) -> tuple[object, ...]:
    return row.cluster_queue, row.place is None, row.place or 0, row.key
