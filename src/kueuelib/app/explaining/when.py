"""Predicts when an object of a cluster will start, from known run times and many simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey, controller_of, key_of
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.app.explaining.asking import served_state
from kueuelib.app.explaining.gather import (
    ClusterData,
    ObjectNotFound,
    TooFewRights,
    read_cluster,
)
from kueuelib.app.explaining.subject import (
    SubjectReference,
    owned_workload,
    workload_of,
)
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.jobs.client.progress import Progress
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import gates_of, missing_pods
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.simulator.forecast import RUNS, Forecast, Known, RunTimes, forecast, run_time
from kueuelib.workload.life import LifeSettings

WINDOW = 86400.0
"""Seconds of the past whose arrivals are taken as typical of the future."""
PATIENCE = 20.0
"""Seconds after which no further simulation begins."""


@attrs.frozen
class When:
    """When an object will start.

    Attributes:
        title: the object, as kind and name.
        now: the time of the answer, in seconds since the epoch.
        forecast: the result of the simulations; None if there is nothing to simulate.
        why: why there is nothing to simulate, as a sentence without its subject; else empty.
        lately: how many jobs arrived in that past.
        hours: its length.
        notes: what could not be read.
        state: what the manager predicts, if the caller may not read enough to simulate.
    """

    title: str
    now: float
    forecast: Forecast | None
    why: str = ""
    lately: int = 0
    hours: float = 0.0
    notes: tuple[str, ...] = ()
    state: Progress | None = None


async def ask_when(
    client: Client,
    reference: SubjectReference,
    namespace: str,
    settings: Settings = DEFAULTS,
    life: LifeSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> When:
    """Simulates forward from the state of a cluster; sends nothing but GET and LIST.

    Args:
        client: whose cluster.
        reference: the object.
        namespace: where it is.
        settings: the manager's settings for decisions.
        life: its settings for times.
        clock: the time.

    Raises:
        ObjectNotFound: it does not exist, or has no Workload.
        ConfigError: the cluster serves no queueing API.
        TooFewRights: not even its state in the queue may be read.
    """
    title = reference.title
    try:
        cluster = await read_cluster(client, namespace, settings)
    except TooFewRights as error:
        state = await served_state(client, reference, namespace, error)
        note = f"nothing was simulated: {error}"
        return When(
            title, clock.now(), None, state.unknown.get("start", ""), notes=(note,), state=state
        )
    raw = await _workload(client, reference, ObjectKey(namespace, reference.name), cluster)
    key = key_of(raw)
    if key not in cluster.world.workloads:
        raise ObjectNotFound(f"the Workload {key} of {title} cannot be read")
    deadlines, notes = await _deadlines(client)
    began = clock.monotonic()
    answer = when(
        cluster.world,
        key,
        title,
        clock.now(),
        limits={
            one["metadata"]["uid"]: deadlines[owner["uid"]]
            for one in cluster.workloads
            if (owner := controller_of(one)) is not None and owner["uid"] in deadlines
        },
        life=life,
        goes_on=lambda _: clock.monotonic() - began < PATIENCE,
    )
    return attrs.evolve(answer, notes=(*cluster.notes, *notes))


async def _workload(
    client: Client, reference: SubjectReference, key: ObjectKey, cluster: ClusterData
) -> Obj:
    title = reference.title
    if reference.resource is None:
        return owned_workload(reference, key.namespace, cluster.workloads)
    if reference.resource is WORKLOADS:
        matching = [one for one in cluster.workloads if key_of(one) == key]
        if matching:
            return matching[0]
        raise ObjectNotFound(f"{title} does not exist in namespace {key.namespace}")
    try:
        obj = await client.get(reference.resource, key)
    except NotFound as error:
        problem = f"{title} does not exist in namespace {key.namespace}"
        raise ObjectNotFound(problem) from error
    raw = workload_of(obj, cluster.workloads)
    if raw is None:
        raise ObjectNotFound(f"{title} has no Workload, so nothing waits; ask without --when why")
    return raw


async def _deadlines(client: Client) -> tuple[dict[str, float], tuple[str, ...]]:
    """How long Jobs may run, by UID; and what could not be read."""
    try:
        jobs = [one async for one in client.list_all(JOBS)]
    except (ApiError, TransportError) as error:
        return {}, (f"jobs were not read, so their activeDeadlineSeconds are not known: {error}",)
    deadlines = {
        one["metadata"]["uid"]: (one.get("spec") or {}).get("activeDeadlineSeconds") for one in jobs
    }
    return {uid: float(seconds) for uid, seconds in deadlines.items() if seconds}, ()


def when(
    world: World,
    key: ObjectKey,
    title: str,
    now: float,
    *,
    limits: dict[str, float],
    life: LifeSettings | None = None,
    runs: int = RUNS,
    goes_on: Callable[[int], bool] = lambda _: True,
) -> When:
    """The answer for a Workload of a world.

    Args:
        world: the facts, with the Workloads that have finished.
        key: the Workload.
        title: what to call it.
        now: seconds since the epoch.
        limits: by UID of a Workload, for how many seconds its job may run.
        life: the manager's settings for times.
        runs: how many simulations there are at most.
        goes_on: called before each simulation but the first, with the number of finished ones.
    """
    workload = world.workloads[key]
    if is_finished(workload):
        return When(title, now, None, "has finished")
    if not workload.spec.active:
        return When(title, now, None, "is deactivated: its spec.active is false")
    if has_quota(workload):
        return When(title, now, None, "already has its quota")
    if gates_of(workload):
        return When(title, now, None, f"is gated by {', '.join(gates_of(workload))}")
    if missing_pods(workload):
        return When(title, now, None, f"stays out of its queue: {missing_pods(workload)}")
    world = without_held_back(world)
    times = RunTimes()
    for each in world.workloads.values():
        seconds = run_time(each)
        if seconds is not None:
            times.add(each, seconds)
    born = [each.metadata.creation_timestamp or now for each in world.workloads.values()]
    since = max(now - WINDOW, min(born))
    recent = [
        each
        for each, at in zip(world.workloads.values(), born, strict=True)
        if at >= since and each.key != key
    ]
    known = Known(times, limits_in(world, limits), recent, since)
    prediction = forecast(world, key, now, known, runs=runs, life=life, goes_on=goes_on)
    return When(title, now, prediction, "", len(recent), (now - since) / 3600)


def without_held_back(world: World) -> World:
    """A world without the Workloads that stay out of their queues."""
    held_back = [
        each.key
        for each in world.workloads.values()
        if missing_pods(each) or (gates_of(each) and not has_quota(each))
    ]
    return world.without_workloads(*held_back)


def limits_in(world: World, limits: Mapping[str, float]) -> dict[str, float]:
    """For how many seconds Workloads may run in their present turns, by UID, if there is a limit.

    Args:
        world: the facts.
        limits: by UID of a Workload, for how many seconds its job may run.
    """
    own = {each.uid: _limit(each, limits) for each in world.workloads.values()}
    return {uid: limit for uid, limit in own.items() if limit is not None}


def _limit(workload: Workload, limits: Mapping[str, float]) -> float | None:
    """How many seconds a Workload may run in its present turn."""
    seconds = list(_limits(workload, limits))
    return min(seconds) if seconds else None


def _limits(workload: Workload, limits: Mapping[str, float]) -> Iterator[float]:
    most = workload.spec.maximum_execution_time_seconds
    if most is not None:
        past = workload.status.accumulated_past_execution_time_seconds or 0
        yield max(0.0, float(most - past))
    if workload.uid in limits:
        yield limits[workload.uid]
    pods = [one.template.spec.active_deadline_seconds for one in workload.spec.pod_sets]
    seconds = [one for one in pods if one is not None]
    if seconds and len(seconds) == len(pods):
        yield float(max(seconds))
